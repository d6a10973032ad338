"""What a program's writes make it depend on: which inputs and constants share the memory it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from graphalias.graph import CONSTANT, INPUT, Operation, Value
from graphalias.memory import extent_bytes
from graphalias.signature import Member, WrittenStorage


def guards_of(
    operations: Sequence[Operation], inputs: Mapping[str, Any], constants: Mapping[str, torch.Tensor]
) -> tuple[tuple[WrittenStorage, ...], frozenset[str]]:
    """Return the written storages an input or constant lies on, and the inputs whose geometry is written."""
    outside = [value for op in operations if op.target in (INPUT, CONSTANT) for value in op.results if value]
    outside = [value for value in outside if not value.is_state]
    written = {operand.storage.name for op in operations for operand in op.written}
    reshaped = {op.operands[i].object for op in operations for i in op.reshapes}
    spans = _spans(operations)
    storages = []
    for name in dict.fromkeys(value.storage.name for value in outside):
        if name in written:
            members = tuple(
                Member(value.name, value.offset * value.itemsize) for value in outside if value.storage.name == name
            )
            storages.append(WrittenStorage(name, members, *spans[name]))
    return tuple(storages), frozenset(value.name for value in outside if value.object in reshaped)


def _spans(operations: Sequence[Operation]) -> dict[str, tuple[int, int]]:
    """Return the first byte and the end of what any handle sees of each storage."""
    spans: dict[str, tuple[int, int]] = {}
    for operation in operations:
        for value in operation.results:
            if value is None or value.is_state:
                continue
            start, end = _extent(value)
            if start < end:
                known = spans.get(value.storage.name, (start, end))
                spans[value.storage.name] = (min(known[0], start), max(known[1], end))
            else:
                spans.setdefault(value.storage.name, (0, 0))
    return spans


def _extent(value: Value) -> tuple[int, int]:
    start = value.offset * value.itemsize
    return start, start + extent_bytes(value.shape, value.stride, value.itemsize)
