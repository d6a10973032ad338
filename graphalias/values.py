"""Storages, accesses and handles: tensors as names, shapes and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

#: Bytes of one element of each dtype, by its short name. ``state`` is a storage without bytes (a random
#: generator, the outside world).
ITEMSIZE_BYTES: dict[str, int] = {
    "bool": 1, "u8": 1, "u16": 2, "u32": 4, "u64": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8,
    "f16": 2, "bf16": 2, "f32": 4, "f64": 8, "c32": 4, "c64": 8, "c128": 16,
    "f8e4m3fn": 1, "f8e4m3fnuz": 1, "f8e5m2": 1, "f8e5m2fnuz": 1, "f8e8m0fnu": 1, "state": 0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Storage:
    """An allocation.

    Parameters
    ----------
    name : str
        ``"s0"``; a state's storage is called after it (``"rng:cpu"``, ``"world"``).
    lifetime : str
        ``"input"`` and ``"constant"`` outlive the program; ``"local"`` does not, unless returned.

    Examples
    --------
    >>> Storage("s0", "input")
    Storage(name='s0', lifetime='input')
    """

    name: str
    lifetime: str = "local"


class Access(NamedTuple):
    """Memory that is read or written: a strided set of bytes of one place.

    Attributes
    ----------
    place : str
        Name of a storage, or of an object where its geometry is meant (both are one namespace).
    offset_bytes : int
    shape : tuple of int
    strides_bytes : tuple of int
    itemsize : int
        Bytes of an element.

    Examples
    --------
    >>> Access("s0", 16, (4,), (4,), 4)
    Access(place='s0', offset_bytes=16, shape=(4,), strides_bytes=(4,), itemsize=4)
    """

    place: str
    offset_bytes: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    itemsize: int


def whole(place: str) -> Access:
    """Return the access of a place without bytes: a state, or the geometry of an object."""
    return Access(place, 0, (), (), 1)


def contiguous_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the row-major stride of a shape, in elements.

    >>> contiguous_stride((2, 3, 4))
    (12, 4, 1)
    """
    stride: list[int] = []
    step = 1
    for size in reversed(shape):
        stride.append(step)
        step *= max(size, 1)
    return tuple(reversed(stride))


def may_repeat(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Return whether two elements may be at one place: a dimension steps less than what the smaller steps span.

    >>> may_repeat((2, 3), (3, 1)), may_repeat((2, 3), (0, 1)), may_repeat((3, 4), (3, 1))
    (False, True, True)
    """
    span = 1
    for step, size in sorted(zip(stride, shape, strict=True)):
        if size > 1 and step < span:
            return True
        span += (size - 1) * step
    return False


@dataclass(frozen=True, eq=False)
class Value:
    """A name for a tensor handle: it names memory, not contents.

    Two values of one ``object`` are names of the same tensor object at different moments; two values of one
    ``storage`` share memory.

    Examples
    --------
    >>> Value("x", "f32", (2, 3), storage=Storage("s0"), object="obj0")
    %x: f32[2, 3] @s0 obj0
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    storage: Storage
    object: str
    stride: tuple[int, ...] = None  # type: ignore[assignment]  # row-major when not given
    offset: int = 0
    device: str = "cpu"
    conj: bool = False
    neg: bool = False

    def __post_init__(self) -> None:
        if self.stride is None:
            object.__setattr__(self, "stride", contiguous_stride(self.shape))

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return ITEMSIZE_BYTES[self.dtype]

    @property
    def size_bytes(self) -> int:
        """Bytes of all elements."""
        return self.itemsize * math.prod(self.shape)

    @property
    def is_state(self) -> bool:
        """Whether this is a handle of a storage without bytes."""
        return self.dtype == "state"

    @cached_property
    def geometry(self) -> tuple[Any, ...]:
        """What makes two handles the same memory seen in the same way."""
        return (self.storage.name, self.offset, self.shape, self.stride, self.dtype, self.conj, self.neg)

    @cached_property
    def access(self) -> Access:
        """The bytes of the handle's elements."""
        if self.is_state:
            return whole(self.storage.name)
        size = self.itemsize
        strides_bytes = tuple(step * size for step in self.stride)
        return Access(self.storage.name, self.offset * size, self.shape, strides_bytes, size)

    def __repr__(self) -> str:
        return f"%{self.name}: {self.dtype}{list(self.shape)} @{self.storage.name} {self.object}"


@dataclass(frozen=True, slots=True)
class Symbol:
    """An argument that is neither a number nor a handle.

    Parameters
    ----------
    kind : str
        ``"dtype"``, ``"device"``, ``"layout"``, ``"memory_format"``; ``"opaque"`` where a program's bindings know what
        it stands for.
    name : str

    Examples
    --------
    >>> print(Symbol("dtype", "f32"), Symbol("device", "cuda:0"), Symbol("opaque", "generator_1"))
    dtype:f32 device:cuda:0 opaque:generator_1
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def values_in(argument: Any) -> Iterator[Value]:
    """Yield the handles in an argument, in order, through lists, tuples and dicts."""
    if isinstance(argument, Value):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for item in argument:
            if isinstance(item, (Value, list, tuple, dict)):  # most arguments are none of these
                yield from values_in(item)
    elif isinstance(argument, dict):
        yield from values_in(list(argument.values()))


def map_values(argument: Any, change: Callable[[Value], Any]) -> Any:
    """Return the argument with every handle in it replaced by ``change(handle)``."""
    if isinstance(argument, Value):
        return change(argument)
    if isinstance(argument, (list, tuple)):
        return type(argument)([map_values(item, change) for item in argument])
    if isinstance(argument, dict):
        return {key: map_values(item, change) for key, item in argument.items()}
    return argument
