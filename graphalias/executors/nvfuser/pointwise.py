"""Elementwise operations: operands up to the dtype torch computes in, results down to the one it returns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTION
from torch._prims_common import elementwise_dtypes
from torch.fx import Node

from graphalias.executors.nvfuser.builder import Builder, Operand
from graphalias.executors.nvfuser.table import POINTWISE, argument_of, dtype_of, lowers

Refuse = Callable[[Node], str | None]


def compute_dtype(node: Node, arguments: tuple[Any, ...], kind: Any) -> torch.dtype:
    """Return the dtype that torch computes an elementwise operation in: f32 for half precision."""
    given = [a.meta["val"] if isinstance(a, Node) else a for a in arguments]
    return elementwise_dtypes(*[a for a in given if a is not None], type_promotion_kind=kind)[0]


def pointwise(*targets: str, how: str, count: int, kind: Any = PROMOTION.DEFAULT, refuse: Refuse | None = None,
              rounds_numbers: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # fmt: skip
    """Enter an elementwise operation whose first ``count`` arguments are promoted together.

    The function takes the builder, the dtype computed in, those arguments in it, and the others as they are. Some of
    torch's kernels round a number to the tensor's dtype first: ``rounds_numbers``.
    """

    def enter(emit: Callable[..., Any]) -> Callable[..., Any]:
        def lower(builder: Builder, node: Node, *args: Any, **kwargs: Any) -> Any:
            dtype = compute_dtype(node, node.args[:count], kind)
            if rounds_numbers:
                args = tuple(
                    a if isinstance(a, Operand) else torch.tensor(a, dtype=dtype_of(node)).item() for a in args
                )
            operands = [None if a is None else builder.operand(a, dtype) for a in args[:count]]
            if not any(isinstance(a, Operand) and not a.is_number for a in args[:count]):
                operands[0] = builder.tensor(args[0], dtype)  # something must be a tensor
            return emit(builder, dtype, *operands, *args[count:], **kwargs)

        lowers(*targets, kind=POINTWISE, how=how, refuse=refuse)(lower)
        return emit

    return enter


def _same_name(names: str, kind: Any, how: str, count: int = 1, refuse: Refuse | None = None) -> None:
    for name in names.split():
        overloads = ("Tensor", "Scalar") if kind is PROMOTION.ALWAYS_BOOL else ("default",)

        def emit(builder: Builder, dtype: torch.dtype, *operands: Any, name: str = name) -> Any:
            return getattr(builder.ops, name)(*operands)

        targets = [f"aten.{name}.{overload}" for overload in overloads]
        pointwise(*targets, how=how.format(name), count=count, kind=kind, refuse=refuse)(emit)


_same_name(
    "acos acosh asin asinh atan atanh cos cosh erf erfc erfinv exp exp2 expm1 lgamma log log10 log1p log2 reciprocal "
    "rsqrt sigmoid sin sinh sqrt tan tanh",
    PROMOTION.INT_TO_FLOAT, "`{}` in f32 or f64",
)  # fmt: skip
_same_name("abs neg sign", PROMOTION.DEFAULT, "`{}`")
_same_name("atan2", PROMOTION.INT_TO_FLOAT, "`{}` in f32 or f64", count=2)
_same_name("eq ne lt le gt ge", PROMOTION.ALWAYS_BOOL, "`{}` in the dtype both are promoted to", count=2)


@pointwise("aten.ceil.default", how="`ceil`; integers as they are", count=1)
def _ceil(builder: Builder, dtype: torch.dtype, x: Any) -> Any:
    return builder.ops.ceil(x) if dtype.is_floating_point else x


@pointwise("aten.floor.default", how="`floor`; integers as they are", count=1)
def _floor(builder: Builder, dtype: torch.dtype, x: Any) -> Any:
    return builder.ops.floor(x) if dtype.is_floating_point else x


@pointwise("aten.trunc.default", "aten.fix.default", how="`trunc`; integers as they are", count=1)
def _trunc(builder: Builder, dtype: torch.dtype, x: Any) -> Any:
    return builder.ops.trunc(x) if dtype.is_floating_point else x


@pointwise("aten.round.default", how="`round`, half to even; integers as they are", count=1)
def _round(builder: Builder, dtype: torch.dtype, x: Any) -> Any:
    return builder.ops.round(x) if dtype.is_floating_point else x


@pointwise("aten.frac.default", how="`x - trunc(x)`", count=1)
def _frac(builder: Builder, dtype: torch.dtype, x: Any) -> Any:
    return builder.ops.sub(x, builder.ops.trunc(x))


@pointwise("aten.relu.default", how="`where(x <= 0, 0, x)`: NaN stays", count=1)
def _relu(builder: Builder, dtype: torch.dtype, x: Any) -> Any:
    zero = builder.constant(0, dtype)
    return builder.ops.where(builder.ops.le(x, zero), zero, x)


@pointwise("aten.isnan.default", how="`x != x`", count=1, kind=PROMOTION.ALWAYS_BOOL)
def _isnan(builder: Builder, dtype: torch.dtype, x: Any) -> Any:
    return builder.ops.ne(x, x)


@pointwise("aten.isinf.default", how="`abs(x) == inf`; False for integers", count=1, kind=PROMOTION.ALWAYS_BOOL)
def _isinf(builder: Builder, dtype: torch.dtype, x: Any) -> Any:
    if not dtype.is_floating_point:
        return builder.ops.ne(x, x)
    return builder.ops.eq(builder.ops.abs(x), builder.constant(math.inf, dtype))


def _truth(builder: Builder, dtype: torch.dtype, x: Any) -> Any:
    return x if dtype == torch.bool else builder.ops.ne(x, builder.constant(0, dtype))


@pointwise("aten.logical_not.default", how="`x == 0`", count=1, kind=PROMOTION.ALWAYS_BOOL)
def _logical_not(builder: Builder, dtype: torch.dtype, x: Any) -> Any:
    return builder.ops.logical_not(x) if dtype == torch.bool else builder.ops.eq(x, builder.constant(0, dtype))


def _logical(name: str, op: str) -> None:
    @pointwise(f"aten.logical_{name}.default", how=f"`{op}` of `x != 0` and `y != 0`", count=2,
               kind=PROMOTION.ALWAYS_BOOL)  # fmt: skip
    def emit(builder: Builder, dtype: torch.dtype, x: Any, y: Any) -> Any:
        return getattr(builder.ops, op)(_truth(builder, dtype, x), _truth(builder, dtype, y))


for _name in ("and", "or", "xor"):
    _logical(_name, f"bitwise_{_name}")


def _bitwise(name: str) -> None:
    overloads = ("Tensor", "Scalar", "Scalar_Tensor")

    @pointwise(*(f"aten.bitwise_{name}.{o}" for o in overloads), how=f"`bitwise_{name}`", count=2)
    def emit(builder: Builder, dtype: torch.dtype, x: Any, y: Any) -> Any:
        return getattr(builder.ops, f"bitwise_{name}")(x, y)


for _name in ("and", "or", "xor"):
    _bitwise(_name)


@pointwise("aten.bitwise_not.default", how="`bitwise_not`; `logical_not` of booleans", count=1)
def _bitwise_not(builder: Builder, dtype: torch.dtype, x: Any) -> Any:
    return builder.ops.logical_not(x) if dtype == torch.bool else builder.ops.bitwise_not(x)


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


@pointwise("aten.maximum.default", how="`maximum`, NaN if either is; booleans: or", count=2)
def _maximum(builder: Builder, dtype: torch.dtype, x: Any, y: Any) -> Any:
    return builder.ops.bitwise_or(x, y) if dtype == torch.bool else builder.ops.maximum(x, y)


@pointwise("aten.minimum.default", how="`minimum`, NaN if either is; booleans: and", count=2)
def _minimum(builder: Builder, dtype: torch.dtype, x: Any, y: Any) -> Any:
    return builder.ops.bitwise_and(x, y) if dtype == torch.bool else builder.ops.minimum(x, y)


@pointwise("aten.clamp.default", "aten.clamp.Tensor", count=3, how="`maximum` with the lower bound, then `minimum`")
def _clamp(builder: Builder, dtype: torch.dtype, x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else builder.ops.maximum(x, low)
    return x if high is None else builder.ops.minimum(x, high)


@pointwise("aten.clamp_min.default", "aten.clamp_min.Tensor", count=2, how="`maximum`")
def _clamp_min(builder: Builder, dtype: torch.dtype, x: Any, low: Any) -> Any:
    return builder.ops.maximum(x, low)


@pointwise("aten.clamp_max.default", "aten.clamp_max.Tensor", count=2, how="`minimum`")
def _clamp_max(builder: Builder, dtype: torch.dtype, x: Any, high: Any) -> Any:
    return builder.ops.minimum(x, high)


def _where(builder: Builder, node: Node, condition: Operand, x: Any, y: Any) -> Any:
    dtype = dtype_of(node)
    operands = [builder.operand(a, dtype) for a in (x, y)]
    if all(isinstance(a, Operand) and a.is_number for a in (condition, x, y)):
        operands[0] = builder.tensor(x, dtype)
    return builder.ops.where(builder.operand(condition, torch.bool), *operands)


lowers("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar", kind=POINTWISE,
       how="`where`, both in the result's dtype")(_where)  # fmt: skip


def _to_dtype(builder: Builder, node: Node, x: Operand, *args: Any, **kwargs: Any) -> Any:
    return builder.tensor(x, dtype_of(node))


def _refuse_layout(node: Node) -> str | None:
    return "it moves to another device" if argument_of(node, 9, "device") not in (
        None, node.args[0].meta["val"].device) else None  # fmt: skip


lowers("aten._to_copy.default", "prims.convert_element_type.default", kind=POINTWISE, refuse=_refuse_layout,
       how="`cast`")(_to_dtype)  # fmt: skip
