"""What a program's writes make it depend on: which inputs and constants share the memory it writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch

from graphalias.errors import ExecutorError
from graphalias.graph import CONSTANT, INPUT, Operation, Value
from graphalias.memory import extent_bytes


@dataclass(frozen=True)
class WrittenStorage:
    """A storage the program writes, and what lies on it.

    Parameters
    ----------
    name : str
    members : dict
        Each input and constant on it: how many bytes into the storage its first element is.
    start, end : int
        The bytes of the storage that any handle of the program sees.
    """

    name: str
    members: Mapping[str, int]
    start: int
    end: int


class Span(NamedTuple):
    """Memory at one moment: a written storage's, or an argument's that lies on none."""

    device: str
    start: int
    end: int
    names: tuple[str, ...]
    is_written: bool


@dataclass(frozen=True)
class Sharing:
    """The sharing a program depends on.

    Parameters
    ----------
    written : tuple of WrittenStorage
        Those an input or constant lies on.
    reshaped : frozenset of str
        Inputs and constants whose object's geometry the program changes: no other argument may be that object.
    size_bytes : dict
        From the first to the end of the last byte of each input and constant.
    """

    written: tuple[WrittenStorage, ...] = ()
    reshaped: frozenset[str] = frozenset()
    size_bytes: Mapping[str, int] | None = None

    @cached_property
    def _strangers(self) -> tuple[str, ...]:
        members = {name for storage in self.written for name in storage.members}
        return tuple(name for name, size in (self.size_bytes or {}).items() if size and name not in members)

    def check(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Raise unless these inputs and constants share memory as the program needs it.

        Raises
        ------
        ExecutorError
            Naming the arguments, what was expected and what is found.
        """
        self._check_identity(tensors)
        if not self.written:
            return
        # In order of address, memory that meets any earlier one meets the one that reaches furthest.
        furthest: Span | None = None
        furthest_written: Span | None = None
        for span in sorted(self._spans(tensors)):
            if furthest is not None and span.device != furthest.device:
                furthest = furthest_written = None
            other = furthest if span.is_written else furthest_written
            if other is not None and span.start < other.end:
                raise _meeting(span, other)
            furthest = span if furthest is None or span.end > furthest.end else furthest
            if span.is_written and (furthest_written is None or span.end > furthest_written.end):
                furthest_written = span

    def _spans(self, tensors: Mapping[str, torch.Tensor]) -> Iterator[Span]:
        sizes = self.size_bytes or {}
        for storage in self.written:
            starts = {name: tensors[name].data_ptr() - shift for name, shift in storage.members.items() if sizes[name]}
            if len(set(starts.values())) > 1:
                raise ExecutorError(
                    f"arguments {', '.join(starts)} shared memory when the program was captured: expected the same "
                    "distances between them"
                )
            for name, start in starts.items():
                yield Span(
                    str(tensors[name].device), start + storage.start, start + storage.end, tuple(storage.members), True
                )
                break
        for name in self._strangers:
            start = tensors[name].data_ptr()
            yield Span(str(tensors[name].device), start, start + sizes[name], (name,), False)

    def _check_identity(self, tensors: Mapping[str, torch.Tensor]) -> None:
        for name in self.reshaped:
            others = [other for other, tensor in tensors.items() if tensor is tensors[name] and other != name]
            if others:
                raise ExecutorError(
                    f"arguments {name} and {others[0]} are the same tensor, which the program gives another geometry: "
                    "expected different ones"
                )


def _meeting(span: Span, other: Span) -> ExecutorError:
    written, stranger = (span, other) if span.is_written else (other, span)
    return ExecutorError(
        f"argument {', '.join(stranger.names)} shares memory with {', '.join(written.names)}, which the program "
        "writes: expected memory of its own",
        hint="capture again with these arguments",
    )


def sharing_of(operations: Sequence[Operation]) -> Sharing:
    """Return the sharing some operations depend on.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %y: f32[2] offset(2) @s0 obj1 = input()
    ... %add_: f32[2] offset(2) @s0 obj1 = aten.add_.Tensor(%y!, 1) reads(%y)
    ... output(%add_)
    ... ''')
    >>> sharing_of(program.operations).written
    (WrittenStorage(name='s0', members={'x': 0, 'y': 8}, start=0, end=16),)
    """
    outside = [value for op in operations if op.target in (INPUT, CONSTANT) for value in op.results if value]
    outside = [value for value in outside if not value.is_state]
    written = {operand.storage.name for op in operations for operand in op.written}
    reshaped = {op.operands[i].object for op in operations for i in op.reshapes}
    seen = _seen_bytes(operations)
    members: dict[str, dict[str, int]] = {}
    for value in outside:
        if value.storage.name in written:
            members.setdefault(value.storage.name, {})[value.name] = value.offset * value.itemsize
    return Sharing(
        tuple(WrittenStorage(name, lying, *seen[name]) for name, lying in members.items()),
        frozenset(value.name for value in outside if value.object in reshaped),
        {value.name: extent_bytes(value.shape, value.stride, value.itemsize) for value in outside},
    )


def _seen_bytes(operations: Sequence[Operation]) -> dict[str, tuple[int, int]]:
    """Return the first byte and the end of what any handle sees of each storage."""
    seen: dict[str, tuple[int, int]] = {}
    for value in (value for operation in operations for value in operation.results if value and not value.is_state):
        start, end = _extent(value)
        known = seen.get(value.storage.name)
        if start == end:
            seen.setdefault(value.storage.name, (0, 0))
        elif known is None or known[0] == known[1]:
            seen[value.storage.name] = (start, end)
        else:
            seen[value.storage.name] = (min(known[0], start), max(known[1], end))
    return seen


def _extent(value: Value) -> tuple[int, int]:
    start = value.offset * value.itemsize
    return start, start + extent_bytes(value.shape, value.stride, value.itemsize)
