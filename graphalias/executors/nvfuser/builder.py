"""A definition in the making: every value has torch's dtype, because nvFuser's rules of promotion differ."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch

from graphalias import symbols

Number = bool | int | float


class Operand(NamedTuple):
    """A value of the functional form: an nvFuser tensor, or a number that has a dtype."""

    value: Any
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def is_number(self) -> bool:
        """Whether it is no tensor yet: operations take numbers as they are, without a broadcast."""
        return isinstance(self.value, (bool, int, float))


class Builder:
    """Emits operations into a definition.

    Attributes
    ----------
    ops
        The operations of nvFuser.
    """

    def __init__(self, nvfuser: ModuleType, definition: Any) -> None:
        self.nvfuser, self.definition, self.ops = nvfuser, definition, definition.ops
        self._constants: dict[Any, Any] = {}
        self.numbers: set[float] = set()  # as they were given to nvFuser

    def dtype(self, dtype: torch.dtype) -> Any:
        """Return nvFuser's dtype."""
        return _dtypes(self.nvfuser)[dtype]

    def cast(self, value: Any, dtype: torch.dtype) -> Any:
        """Return a tensor in a dtype."""
        return value if value.dtype() == self.dtype(dtype) else self.ops.cast(value, self.dtype(dtype))

    def constant(self, number: Number, dtype: torch.dtype) -> Any:
        """Return a number in a dtype, as torch would convert it."""
        number = torch.tensor(number, dtype=torch.float64 if dtype.is_floating_point else None).to(dtype).item()
        key = (repr(number), dtype)
        if key not in self._constants:
            self.numbers |= {number} if isinstance(number, float) else set()
            self._constants[key] = self.definition.define_scalar(number, self.dtype(dtype))
        return self._constants[key]

    def operand(self, operand: Operand | Number, dtype: torch.dtype) -> Any:
        """Return an argument in a dtype: a tensor, or a constant."""
        if not isinstance(operand, Operand):
            return self.constant(operand, dtype)
        if operand.is_number:
            return self.constant(torch.tensor(operand.value, dtype=operand.dtype).item(), dtype)
        return self.cast(operand.value, dtype)

    def tensor(self, operand: Operand | Number, dtype: torch.dtype | None = None) -> Any:
        """Return an argument as a tensor: a number becomes one of no dimensions."""
        if isinstance(operand, Operand) and not operand.is_number:
            return operand.value if dtype is None else self.cast(operand.value, dtype)
        dtype = dtype or (operand.dtype if isinstance(operand, Operand) else torch.get_default_dtype())
        return self.full((), self.operand(operand, dtype), dtype)

    def full(self, shape: Sequence[int], value: Any, dtype: torch.dtype) -> Any:
        """Return a tensor full of a constant."""
        return self.ops.full(shape=list(shape), fill_value=value, dtype=self.dtype(dtype))

    def expand(self, value: Any, shape: Sequence[int], to: Sequence[int]) -> Any:
        """Return a tensor broadcast to a shape."""
        new = len(to) - len(shape)
        if new:
            value = self.ops.broadcast(value, is_broadcast_dim=[i < new for i in range(len(to))])
        is_larger = (*(1,) * new, *shape) != tuple(to)
        return self.ops.expand(value, shape=list(to)) if is_larger else value


#: The dtypes of tensors in a fusion, by the project's names: what nvFuser calls them.
DTYPES = {
    "f64": "Double", "f32": "Float", "f16": "Half", "bf16": "BFloat16", "i64": "Int", "i32": "Int32", "bool": "Bool"
}  # fmt: skip


@functools.cache
def _dtypes(nvfuser: ModuleType) -> dict[torch.dtype, Any]:
    return {symbols.DTYPES[name]: getattr(nvfuser.DataType, theirs) for name, theirs in DTYPES.items()}
