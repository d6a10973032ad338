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


def _rounding(name: str, *targets: str, note: str = "") -> None:
    @pointwise(*targets, how=f"`{name}`{note}; integers as they are", count=1)
    def emit(builder: Builder, dtype: torch.dtype, x: Any) -> Any:
        return getattr(builder.ops, name)(x) if dtype.is_floating_point else x


_rounding("ceil", "aten.ceil.default")
_rounding("floor", "aten.floor.default")
_rounding("trunc", "aten.trunc.default", "aten.fix.default")
_rounding("round", "aten.round.default", note=", half to even")


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
