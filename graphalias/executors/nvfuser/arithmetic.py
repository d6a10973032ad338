"""Sums, products, quotients and powers, by the steps torch takes."""

from __future__ import annotations

from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTION
from torch.fx import Node

from graphalias.executors.nvfuser.builder import Builder, Operand
from graphalias.executors.nvfuser.pointwise import compute_dtype, pointwise
from graphalias.executors.nvfuser.table import POINTWISE, dtype_of, lowers


def _times(builder: Builder, dtype: torch.dtype, x: Any, factor: Any) -> Any:
    return x if factor == 1 else builder.ops.mul(x, builder.constant(factor, dtype))


@pointwise("aten.add.Tensor", "aten.add.Scalar", how="`add`, `alpha` times the second first; booleans: or", count=2)
def _add(builder: Builder, dtype: torch.dtype, x: Any, y: Any, alpha: Any = 1) -> Any:
    if dtype == torch.bool:
        return builder.ops.bitwise_or(x, y) if alpha else x
    return builder.ops.add(x, _times(builder, dtype, y, alpha))


@pointwise("aten.sub.Tensor", "aten.sub.Scalar", how="`sub`, `alpha` times the second first", count=2)
def _sub(builder: Builder, dtype: torch.dtype, x: Any, y: Any, alpha: Any = 1) -> Any:
    return builder.ops.sub(x, _times(builder, dtype, y, alpha))


@pointwise("aten.rsub.Tensor", "aten.rsub.Scalar", how="`sub` the other way round", count=2)
def _rsub(builder: Builder, dtype: torch.dtype, x: Any, y: Any, alpha: Any = 1) -> Any:
    return builder.ops.sub(y, _times(builder, dtype, x, alpha))


@pointwise("aten.mul.Tensor", "aten.mul.Scalar", how="`mul`; booleans: and", count=2)
def _mul(builder: Builder, dtype: torch.dtype, x: Any, y: Any) -> Any:
    return builder.ops.bitwise_and(x, y) if dtype == torch.bool else builder.ops.mul(x, y)


@pointwise("aten.div.Tensor", "aten.div.Scalar", how="`div` in f32 or f64", count=2, kind=PROMOTION.INT_TO_FLOAT)
def _div(builder: Builder, dtype: torch.dtype, x: Any, y: Any) -> Any:
    return builder.ops.div(x, y)


def _refuse_integer_divisor(node: Node) -> str | None:
    """Integers are divided by a number that is not zero: of a tensor's elements nobody knows, and eager may raise."""
    given = [a for a in node.args[:2] if isinstance(a, Node)]
    divisor = node.args[1]
    is_number = not isinstance(divisor, Node)
    if any(dtype_of(a).is_floating_point for a in given) or isinstance(divisor, float) or (is_number and divisor != 0):
        return None
    return "integers divided by what may be zero"


@pointwise("aten.fmod.Tensor", "aten.fmod.Scalar", how="`fmod`, the sign of the first", count=2, rounds_numbers=True,
           refuse=_refuse_integer_divisor)  # fmt: skip
def _fmod(builder: Builder, dtype: torch.dtype, x: Any, y: Any) -> Any:
    return builder.ops.fmod(x, y)


@pointwise("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor",
           how="`remainder`, the sign of the second", count=2, rounds_numbers=True,
           refuse=_refuse_integer_divisor)  # fmt: skip
def _remainder(builder: Builder, dtype: torch.dtype, x: Any, y: Any) -> Any:
    return builder.ops.remainder(x, y)


def _refuse_mode(node: Node) -> str | None:
    if node.kwargs.get("rounding_mode") is None or dtype_of(node).is_floating_point:
        return None
    return _refuse_integer_divisor(node)


def _div_mode(builder: Builder, node: Node, x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    kind = PROMOTION.INT_TO_FLOAT if rounding_mode is None else PROMOTION.DEFAULT
    dtype = compute_dtype(node, node.args[:2], kind)
    x = builder.tensor(x, dtype) if isinstance(x, Operand) else builder.operand(x, dtype)
    y = builder.operand(y, dtype)
    if rounding_mode is None:
        return builder.ops.div(x, y)
    if rounding_mode == "trunc":
        quotient = builder.ops.div(x, y)
        return builder.ops.trunc(quotient) if dtype.is_floating_point else quotient
    return _floor_divide(builder, dtype, x, y)


lowers("aten.div.Tensor_mode", "aten.div.Scalar_mode", "aten.floor_divide.default", kind=POINTWISE, refuse=_refuse_mode,
       how="`div`; trunc: `trunc(div)`; floor: by `fmod`, as torch does it")(
    lambda builder, node, x, y, rounding_mode=None: _div_mode(
        builder, node, x, y, "floor" if "floor_divide" in str(node.target) else rounding_mode
    )
)  # fmt: skip


def _floor_divide(builder: Builder, dtype: torch.dtype, x: Any, y: Any) -> Any:
    """Return the quotient rounded down, by torch's steps: 1.0 // 0.1 is 9."""
    ops, zero, one = builder.ops, builder.constant(0, dtype), builder.constant(1, dtype)
    rest = ops.fmod(x, y)
    is_off = ops.bitwise_and(ops.ne(rest, zero), ops.ne(ops.lt(y, zero), ops.lt(rest, zero)))
    if not dtype.is_floating_point:
        quotient = ops.div(x, y)
        return ops.where(is_off, ops.sub(quotient, one), quotient)
    quotient = ops.div(ops.sub(x, rest), y)
    quotient = ops.where(is_off, ops.sub(quotient, one), quotient)
    floored = ops.floor(quotient)
    is_next = ops.gt(ops.sub(quotient, floored), builder.constant(0.5, dtype))
    floored = ops.where(is_next, ops.add(floored, one), floored)
    return ops.where(ops.eq(y, zero), ops.div(x, y), floored)


def _refuse_pow(node: Node) -> str | None:
    if dtype_of(node).is_floating_point or node.args[1] in (1, 2, 3):
        return None
    return "integers to other powers than 1, 2 and 3"


@pointwise("aten.pow.Tensor_Tensor", "aten.pow.Scalar", how="`pow`", count=2, refuse=_refuse_pow)
def _pow(builder: Builder, dtype: torch.dtype, x: Any, y: Any) -> Any:
    return builder.ops.pow(x, y)


def _pow_scalar(builder: Builder, node: Node, x: Operand, exponent: Any) -> Any:
    dtype = compute_dtype(node, node.args[:2], PROMOTION.DEFAULT)
    base = builder.tensor(x, dtype)
    if exponent in _ROOTS and dtype.is_floating_point:
        return getattr(builder.ops, _ROOTS[exponent])(base)
    if exponent in (1, 2, 3):
        power = base
        for _ in range(int(exponent) - 1):
            power = builder.ops.mul(power, base)
        return power
    return builder.ops.pow(base, builder.constant(exponent, dtype))


#: What torch does instead of a power; they differ at infinity.
_ROOTS = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}

lowers("aten.pow.Tensor_Scalar", kind=POINTWISE, refuse=_refuse_pow,
       how="`pow`; to the power of 2 or 3 by `mul`, of 1/2 and -1/2 by `sqrt` and `rsqrt`")(_pow_scalar)  # fmt: skip
