"""Sinking: what is only used in later stages is computed there, where that keeps fewer bytes alive.

What a region makes for a later region is written, kept, and read again. Computed in the later region it is none of
these, but what it is computed from must then live so long.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphalias.graph import Operation, Program
from graphalias.stages import Place, is_view


def find_later_stages(program: Program, places: dict[str, Place]) -> dict[str, int]:
    """Return the operations that are better computed in a later stage than their first, and in which.

    Parameters
    ----------
    program : Program
    places : dict of str to Place
        The first stage each operation could be in.

    Returns
    -------
    dict of str to int

    Notes
    -----
    An operation goes together with everything that is computed for it alone. It must write nothing; a write
    of what it reads counts as a user, since it has to come after it.
    """
    sinking = _Sinking(program, places)
    for operation in reversed(program.operations):
        if operation.name not in sinking.later:
            sinking.consider(operation)
    return sinking.later


class _Sinking:
    """One walk from the end of a program to its beginning."""

    def __init__(self, program: Program, places: dict[str, Place]) -> None:
        self.graph, self.places = program.graph, places
        self.later: dict[str, int] = {}
        self.kept: set[str] = set()  # what was found not worth it, with an operation it is computed for
        self.last_stage: dict[str, int] = {}  # by storage: the last stage that uses it
        self.makers = {r.storage.name: op.name for op in reversed(program.operations) for r in op.results if r}
        for operation in program.operations:
            for value in operation.operands:
                self._note_use(value.storage.name, operation.name)

    def _note_use(self, storage: str, user: str) -> None:
        self.last_stage[storage] = max(self.last_stage.get(storage, 0), self._stage(user))

    def _stage(self, name: str) -> int:
        return self.later.get(name, self.places[name].stage)

    def consider(self, operation: Operation) -> None:
        """Sink an operation, and what is computed for it alone, if that saves bytes."""
        users = list(self.graph.successors(operation.name))
        if operation.name in self.kept or not users or not self._is_pure(operation):
            return
        stage = min(map(self._stage, users))
        is_joined = any(self._stage(user) == stage and self._is_fused(user) for user in users)
        if stage <= self.places[operation.name].stage or not is_joined:
            return
        cone = self._cone(operation.name)
        if self._lengthened_bytes(cone, stage) < sum(r.size_bytes for r in operation.results if r):
            self.later |= dict.fromkeys(cone, stage)
            for name in cone:
                for value in self.graph.nodes[name]["op"].operands:
                    self._note_use(value.storage.name, name)
        else:
            self.kept |= cone

    def _is_pure(self, operation: Operation) -> bool:
        return self._is_fused(operation.name) and not (operation.writes or is_view(operation))

    def _is_fused(self, name: str) -> bool:
        return self.places[name].is_fused and self.graph.nodes[name]["op"].is_compute

    def _cone(self, root: str) -> set[str]:
        """Return an operation and those that are computed for it alone, in regions too."""
        cone, waiting = {root}, [root]
        while waiting:
            for name in self.graph.predecessors(waiting.pop()):
                operation = self.graph.nodes[name]["op"]
                is_inside = name in cone or name in self.kept or not self._is_pure(operation)
                if not is_inside and cone.issuperset(self.graph.successors(name)):
                    cone.add(name)
                    waiting.append(name)
        return cone

    def _lengthened_bytes(self, cone: Iterable[str], stage: int) -> int:
        """Return the bytes of what a cone is computed from that would otherwise be gone before a stage."""
        operations = [self.graph.nodes[name]["op"] for name in cone]
        needed = {value.storage: value for op in operations for value in op.operands}
        return sum(
            value.size_bytes
            for storage, value in needed.items()
            if storage.lifetime == "local" and self.makers[storage.name] not in cone
            and self.last_stage[storage.name] < stage
        )  # fmt: skip
