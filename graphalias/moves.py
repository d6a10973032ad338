"""Whether some operations can be brought together, and what has to go behind them then."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from graphalias.draft import Draft, Touch
from graphalias.graph import Operation, Value
from graphalias.overlap import byte_range


class Refused(Exception):  # noqa: N818  # no error: a place where a rule does not apply
    """Why a replacement would be seen from outside."""


class Site:
    """Matched operations, side by side, and what comes after them.

    Parameters
    ----------
    draft : Draft
    matched : sequence of Operation
        In program order.
    outputs : dict of str to Value
        By the name of one of their results: what takes its place.

    Raises
    ------
    Refused
        If an operation outside is ordered between two of them.
    """

    def __init__(self, draft: Draft, matched: Sequence[Operation], outputs: dict[str, Value]) -> None:
        self.draft, self.matched, self.outputs = draft, matched, outputs
        self.inside = {operation.name for operation in matched}
        self.storages = made_storages(matched)
        self.late = late_operations(draft, matched)

    def later(self, place: str) -> Iterator[tuple[Operation, Touch]]:
        """Yield every touch of a place that comes after them."""
        for operation, touch in self._late_touches():
            if touch.key.place == place:
                yield operation, touch
        yield from self.draft.touching(place, self.matched[-1].name)

    def later_conflicts(self, touch: Touch) -> Iterator[tuple[Operation, Touch]]:
        """Yield what comes after them and has an order with a touch."""
        for operation, other in self._late_touches():
            if touch.conflicts(other):
                yield operation, other
        yield from self.draft.conflicting(touch, self.matched[-1].name)

    def _late_touches(self) -> Iterator[tuple[Operation, Touch]]:
        for name in self.late:
            for touch in self.draft.touches(self.draft.operations[name]):
                yield self.draft.operations[name], touch


def late_operations(draft: Draft, matched: Sequence[Operation]) -> list[str]:
    """Return the operations between those matched that must follow one of them.

    Everything else between them can come before; so the matched ones can stand side by side, unless one of them must
    follow such an operation.

    Parameters
    ----------
    draft : Draft
    matched : sequence of Operation
        In program order.

    Raises
    ------
    Refused
        If an operation outside is ordered between two of them, by a value or by the bytes it reads or writes.
    """
    inside = {operation.name for operation in matched}
    last = matched[-1]
    causes = {operation.name: operation for operation in matched}
    waiting, late = list(matched[:-1]), []
    while waiting:
        operation = waiting.pop()
        for follower, how in _followers(draft, operation, last):
            if follower.name not in causes:
                causes[follower.name] = causes[operation.name]
                waiting.append(follower)
                late.append(follower.name)
            elif follower.name in inside and operation.name not in inside:
                cause = causes[operation.name]
                raise Refused(
                    f"{place_of(operation)} is ordered between %{cause.name} and %{follower.name}, which {how}"
                )
    return draft.in_order(late)


def _followers(draft: Draft, operation: Operation, last: Operation) -> Iterator[tuple[Operation, str]]:
    """Yield the operations up to the last one that must follow an operation, and why."""
    for result in filter(None, operation.results):
        for user in draft.users(result):
            if user is last or draft.comes_before(user.name, last.name):
                yield user, f"uses %{result.name}"
    for touch in draft.touches(operation):
        for follower, other in draft.conflicting(touch, operation.name, last.name):
            yield follower, describe(other)
        for other in draft.touches(last):
            if touch.conflicts(other):
                yield last, describe(other)


def describe(touch: Touch) -> str:
    """Return what a touch does, as the end of a sentence."""
    if touch.value.is_state:
        return f"advances {touch.value.storage.name}"
    what = f"{'writes' if touch.is_write else 'reads'} %{touch.value.name}"
    return what if touch.key.place == touch.value.storage.name else f"uses the geometry of %{touch.value.name}"


def place_of(operation: Operation) -> str:
    """Return how a message names an operation: its name, and where it comes from."""
    if operation.name == "output":
        return "the output"
    at = f" ({os.path.basename(operation.location)})" if operation.location else ""
    return f"%{operation.name}{at}"


def whose(value: Value) -> str:
    """Return whose memory a handle is on that outlives the program."""
    return f"{'an' if value.storage.lifetime == 'input' else 'a'} {value.storage.lifetime}"


def end_bytes(value: Value) -> int:
    """Return where in its storage a handle ends."""
    return byte_range(value.access)[1]


def made_storages(operations: Sequence[Operation]) -> dict[str, Value]:
    """Return the storages that some operations allocate, and the first handle of each."""
    made: dict[str, Value] = {}
    for operation in operations:
        taken = {operand.storage.name for operand in operation.operands}
        for result in operation.results:
            if result is not None and not result.is_state and result.storage.name not in taken:
                made.setdefault(result.storage.name, result)
    return made


def made_objects(operations: Sequence[Operation]) -> set[str]:
    """Return the tensor objects that some operations make."""
    taken: set[str] = set()
    made: set[str] = set()
    for operation in operations:
        taken |= {operand.object for operand in operation.operands} - made
        made |= {result.object for result in operation.results if result} - taken
    return made
