"""How many bytes operations read and write: what eager PyTorch moves, and what a region leaves of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from graphalias.graph import Access, Operation, Value
from graphalias.overlap import Footprint, footprint


class Traffic(NamedTuple):
    """Bytes read and written."""

    read_bytes: int
    written_bytes: int

    @property
    def total_bytes(self) -> int:
        """Both together."""
        return self.read_bytes + self.written_bytes


def traffic_of(operation: Operation) -> Traffic:
    """Return what a call of an operation reads and writes; of a region, what crosses its border.

    The same bytes count once; a view of another tensor's bytes counts nothing, a new tensor counts as written. Inside
    a region nothing counts but the first read of what it did not write itself, and what it leaves written or returns.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4,4] @s0 obj0 = input()
    ... %row: f32[4] @s0 obj1 = aten.select.int(%x, 0, 0)
    ... %add_: f32[4] @s0 obj1 = aten.add_.Tensor(%row!, 1) reads(%row)
    ... %exp: f32[4,4] @s1 obj2 = aten.exp.default(%x) reads(%x) after(add_ RAW)
    ... output(%exp)
    ... ''')
    >>> [tuple(traffic_of(program.operation(name))) for name in ("row", "add_", "exp")]
    [(0, 0), (16, 16), (64, 64)]
    """
    body = operation.body
    inner = [operation] if body is None else body.operations
    made = operation.results if body is None else body.outputs
    outside = {value.storage.name for value in (operation.operands if body is None else body.inputs)}
    read: dict[Footprint, None] = {}
    written: dict[Footprint, None] = {}
    for op in inner:
        for access, is_write in _accesses(op, outside):
            key = footprint(access)
            if is_write:
                written[key] = None
            elif key not in written:
                read[key] = None
    fresh = [value.access for value in made if isinstance(value, Value) and _is_made(value, outside)]
    written |= dict.fromkeys(map(footprint, fresh))
    return Traffic(_bytes(read), _bytes(written))


def traffic_of_calls(operations: Iterable[Operation]) -> Traffic:
    """Return what operations read and write one after the other, each from and to memory."""
    return total(traffic_of(operation) for operation in operations if operation.is_compute)


def total(traffics: Iterable[Traffic]) -> Traffic:
    """Return what is read and written together.

    >>> total([Traffic(1, 2), Traffic(3, 0)])
    Traffic(read_bytes=4, written_bytes=2)
    """
    each = list(traffics)
    return Traffic(sum(one.read_bytes for one in each), sum(one.written_bytes for one in each))


def _accesses(operation: Operation, outside: set[str]) -> Iterator[tuple[Access, bool]]:
    """Yield the accesses of bytes that come from outside; those of states and of geometries have none."""
    for value, access, is_write in operation.effects:
        if not value.is_state and access.place in outside:
            yield access, is_write


def _is_made(value: Value, outside: set[str]) -> bool:
    return not value.is_state and value.storage.name not in outside


def _bytes(footprints: Iterable[Footprint]) -> int:
    return sum(key.run_bytes * math.prod(size for _, size in key.dims) for key in footprints)
