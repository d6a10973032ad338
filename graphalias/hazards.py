"""Hazards: pairs of accesses that some topological order runs the wrong way round."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import networkx as nx

from graphalias.graph import OUTPUT, RAW, WAR, Access, Operation, Program, require_program
from graphalias.ledger import Ledger, outliving_places


@dataclass(frozen=True)
class Hazard:
    """Two accesses that some topological order would run the wrong way round.

    Parameters
    ----------
    before, after : str
        Names of the operations, in program order. No path joins them.
    reason : str
        ``RAW`` (a read that may come before the write), ``WAR`` (a write that may come before the read), ``WAW``.
    accesses : tuple of Access
        Of the earlier and the later operation.
    locations : tuple of (str or None)
        Where in the user's code the two are.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %add__1: f32[4] @s0 obj0 = aten.add_.Tensor(%x!, 1) reads(%x)
    ... output()
    ... ''')
    >>> (hazard,) = graphalias.find_hazards(program)
    >>> hazard.reason, hazard.before, hazard.after
    ('RAW', 'add__1', 'output')
    """

    before: str
    after: str
    reason: str
    accesses: tuple[Access, Access]
    locations: tuple[str | None, str | None] = (None, None)

    def __str__(self) -> str:
        names = [
            f"%{name} ({os.path.basename(at)})" if at else f"%{name}"
            for name, at in zip((self.before, self.after), self.locations, strict=True)
        ]
        return f"{self.reason}: {names[0]} must run before {names[1]}, but no path joins them"


def find_hazards(program: Program) -> tuple[Hazard, ...]:
    """Return the pairs of accesses that some topological order runs wrongly.

    Each access is compared with the last writers of its bytes (and geometry) and, for a write, the readers since.

    Parameters
    ----------
    program : Program

    Returns
    -------
    tuple of Hazard
        In program order of the later operation; empty after `insert_update_aliases`.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %add_1: f32[4] @s1 obj1 = aten.add.Tensor(%x, 1) reads(%x)  # model.py:3
    ... %mul__1: f32[4] @s0 obj0 = aten.mul_.Tensor(%x!, 2) reads(%x)  # model.py:4
    ... output(%add_1)
    ... ''')
    >>> for hazard in graphalias.find_hazards(program):
    ...     print(hazard)
    WAR: %add_1 (model.py:3) must run before %mul__1 (model.py:4), but no path joins them
    RAW: %mul__1 (model.py:4) must run before %output, but no path joins them
    """
    require_program(program, "find_hazards")
    return tuple(hazards(program))


def hazards(program: Program) -> Iterator[Hazard]:
    """Yield the hazards one by one, for who needs to know only whether there is one."""
    ledger = Ledger(program)
    position = {name: i for i, name in enumerate(program.graph)}
    for time, operation in enumerate(program.operations):
        needed: dict[str, Hazard] = {}
        for earlier, reason, accesses in _required(program, ledger, operation):
            if earlier not in needed or needed[earlier].reason == WAR:
                locations = (program.operation(earlier).location, operation.location)
                needed[earlier] = Hazard(earlier, operation.name, reason, accesses, locations)
        reached = _reaching(program.graph, operation.name, needed, position)
        yield from (needed[name] for name in sorted(needed, key=position.__getitem__) if name not in reached)
        if operation.is_compute:
            ledger.record(operation, time)


def _required(
    program: Program, ledger: Ledger, operation: Operation
) -> Iterator[tuple[str, str, tuple[Access, Access]]]:
    """Yield what must run before an operation: the earlier operation, why, and the two accesses."""
    if operation.target == OUTPUT:
        for conflict in ledger.writers_in(outliving_places(program)):
            yield str(conflict.operation), RAW, (conflict.access, conflict.access)
    for use in ledger.uses.get(operation.name, ()):
        for conflict in ledger.conflicts(use):
            yield str(conflict.operation), conflict.reason, (conflict.access, use.access)


def _reaching(graph: nx.DiGraph, target: str, sources: Iterable[str], position: dict[str, int]) -> set[str]:
    """Return the sources from which a path leads to the target; looks no further back than the earliest of them."""
    wanted, found = set(sources), set()
    frontier, seen = [target], {target}
    earliest = min((position[name] for name in wanted), default=0)
    while frontier and wanted:
        ahead = []
        for name in frontier:
            for other in graph.predecessors(name):
                if other not in seen and position[other] >= earliest:
                    seen.add(other)
                    ahead.append(other)
        found |= wanted & set(ahead)
        wanted -= found
        frontier = ahead
    return found
