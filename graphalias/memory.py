"""Which memory tensors lie on: a tensor's geometry, and real storages that overlap."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from graphalias.errors import CaptureError
from graphalias.symbols import DTYPE_NAMES
from graphalias.torch_private import is_wrapped, storage_key


class Geometry(NamedTuple):
    """How a tensor object sees memory, and how large that is. ``storage`` identifies it only while it lives."""

    storage: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    conj: bool
    neg: bool
    storage_bytes: int


def geometry_of(tensor: torch.Tensor) -> Geometry:
    """Return how a tensor, real or fake, sees memory."""
    return Geometry(
        storage_key(tensor), tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype,
        tensor.is_conj(), tensor.is_neg(), tensor.untyped_storage().nbytes(),
    )  # fmt: skip


def why_unsupported(tensor: torch.Tensor) -> str | None:
    """Return what about a real tensor can't be captured, or None."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"a {type(tensor).__name__}, a subclass of Tensor"
    if is_wrapped(tensor):
        return "a tensor inside torch.func or functionalization"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}"
    if tensor.is_quantized:
        return "a quantized tensor"
    if tensor.device.type == "meta":
        return "a meta tensor, which has no memory"
    if tensor.dtype not in DTYPE_NAMES:
        return f"a tensor of {tensor.dtype}"
    return None


def extent_bytes(shape: Iterable[int], stride: Iterable[int], itemsize: int) -> int:
    """Return the bytes from a tensor's first element to the end of its last.

    >>> extent_bytes((2, 3), (4, 1), 4)
    28
    >>> extent_bytes((2, 0), (4, 1), 4)
    0
    """
    shape = tuple(shape)
    if math.prod(shape) == 0:
        return 0
    return (sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + 1) * itemsize


class Block(NamedTuple):
    """The memory of one real storage: device, first address and end."""

    device: str
    start: int
    end: int

    def meets(self, other: Block) -> bool:
        """Whether the two share a byte."""
        return self.device == other.device and self.start < other.end and other.start < self.end


def block_of(tensor: torch.Tensor) -> Block:
    """Return the memory of a real tensor's whole storage."""
    storage = tensor.untyped_storage()
    return Block(str(tensor.device), storage.data_ptr(), storage.data_ptr() + storage.nbytes())


class RealMemory:
    """Groups real storages that overlap: numpy arrays and dlpack give several storages over one memory.

    Examples
    --------
    >>> memory, x = RealMemory(), torch.zeros(4)
    >>> memory.place(x), memory.place(x[1:]), memory.place(torch.zeros(2))
    ((0, 0), (0, 0), (1, 0))
    """

    def __init__(self) -> None:
        self._places: dict[int, tuple[int, int]] = {}  # storage key -> (group, shift in bytes)
        self._starts: list[int] = []  # of each group: what shifts count from
        self._groups: list[tuple[Block, int]] = []  # what the storages of each group cover, in order of address
        self._alive: list[Any] = []  # keys are addresses: a freed storage's could come back as another's

    def place(self, tensor: torch.Tensor) -> tuple[int, int]:
        """Return a number for the memory a real tensor lies on, and where in it its storage starts, in bytes."""
        key = storage_key(tensor)
        if key not in self._places:
            self._alive.append(tensor.untyped_storage())
            self._places[key] = self._new_place(block_of(tensor))
        group, shift = self._places[key]
        if shift % tensor.element_size():
            raise CaptureError(
                f"a {tensor.dtype} tensor starts {shift} bytes into another's memory: expected a multiple of "
                f"{tensor.element_size()}",
                hint="copy it first",
            )
        return group, shift

    def place_all(self, tensors: Iterable[torch.Tensor]) -> None:
        """Place many at once: in order of address, so that one that bridges two others finds them one group."""
        for tensor in sorted(tensors, key=lambda tensor: (block_of(tensor).start, -block_of(tensor).end)):
            self.place(tensor)

    def _new_place(self, block: Block) -> tuple[int, int]:
        # Groups are apart, so those a block meets are neighbours.
        first = bisect.bisect_left(self._groups, block, key=lambda entry: entry[0])
        first -= first > 0 and self._groups[first - 1][0].meets(block)
        last = first
        while last < len(self._groups) and self._groups[last][0].meets(block):
            last += 1
        if last - first > 1:
            raise CaptureError(
                "a closed-over tensor joins two memories that were apart when they were first used",
                hint="pass it as an argument",
            )
        if first == last:
            self._starts.append(block.start)
            if block.start < block.end:  # an empty one meets nothing, and would hide its neighbours
                self._groups.insert(first, (block, len(self._starts) - 1))
            return len(self._starts) - 1, 0
        known, group = self._groups[first]
        covered = Block(block.device, min(known.start, block.start), max(known.end, block.end))
        self._groups[first] = (covered, group)
        return group, block.start - self._starts[group]
