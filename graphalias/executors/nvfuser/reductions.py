"""Reductions: half precision is summed in f32, booleans are counted, variances come from one pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from graphalias.executors.nvfuser.builder import Builder, Operand
from graphalias.executors.nvfuser.table import REDUCE, argument_of, dtype_of, lowers, shape_of

Dims = int | Sequence[int] | None


def _dims(dims: Dims, rank: int) -> list[int]:
    """Return dimensions counted from the front; all of them where none are named."""
    named = [dims] if isinstance(dims, int) else list(dims or ())
    return sorted(dim % max(rank, 1) for dim in named) or list(range(rank))


def _compute_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _reduced(builder: Builder, name: str, value: Any, x: Operand, dims: Dims, keepdim: bool) -> Any:
    """Return a reduction; of a tensor without dimensions it is the tensor."""
    if not x.shape:
        return value
    return getattr(builder.ops, name)(value, _dims(dims, len(x.shape)), keepdim=keepdim)


@lowers("aten.sum.default", "aten.sum.dim_IntList", kind=REDUCE, how="`sum`, in f32 for half precision")
def _sum(builder: Builder, node: Node, x: Operand, dims: Dims = None, keepdim: bool = False, dtype: Any = None) -> Any:
    value = builder.tensor(x, _compute_dtype(dtype_of(node)))
    return _reduced(builder, "sum", value, x, dims, keepdim)


@lowers("aten.prod.default", "aten.prod.dim_int", kind=REDUCE, how="`prod`, in f32 for half precision")
def _prod(builder: Builder, node: Node, x: Operand, dims: Dims = None, keepdim: bool = False, dtype: Any = None) -> Any:
    value = builder.tensor(x, _compute_dtype(dtype_of(node)))
    return _reduced(builder, "prod", value, x, dims, keepdim)


@lowers("aten.mean.default", "aten.mean.dim", kind=REDUCE, how="`sum` in f32 or f64, divided by the count")
def _mean(builder: Builder, node: Node, x: Operand, dims: Dims = None, keepdim: bool = False, dtype: Any = None) -> Any:
    compute = _compute_dtype(dtype_of(node))
    total = _reduced(builder, "sum", builder.tensor(x, compute), x, dims, keepdim)
    return builder.ops.div(total, builder.constant(_count(x, dims), compute))


def _count(x: Operand, dims: Dims) -> int:
    return math.prod(x.shape[dim] for dim in _dims(dims, len(x.shape)))


def _extreme(builder: Builder, name: str, x: Operand, dims: Dims, keepdim: bool) -> Any:
    compute = torch.int32 if x.dtype == torch.bool else _compute_dtype(x.dtype)
    return _reduced(builder, name, builder.tensor(x, compute), x, dims, keepdim)


@lowers("aten.amax.default", "aten.max.default", kind=REDUCE, how="`max`, NaN if any is")
def _amax(builder: Builder, node: Node, x: Operand, dims: Dims = None, keepdim: bool = False) -> Any:
    return _extreme(builder, "max", x, dims, keepdim)


@lowers("aten.amin.default", "aten.min.default", kind=REDUCE, how="`min`, NaN if any is")
def _amin(builder: Builder, node: Node, x: Operand, dims: Dims = None, keepdim: bool = False) -> Any:
    return _extreme(builder, "min", x, dims, keepdim)


def _counted(builder: Builder, x: Operand, comparison: str, dims: Dims, keepdim: bool) -> Any:
    """Return how many elements are (``ne``) or are not (``eq``) something."""
    value = builder.tensor(x)
    truth = getattr(builder.ops, comparison)(value, builder.constant(0, x.dtype))
    return _reduced(builder, "sum", builder.cast(truth, torch.int64), x, dims, keepdim)


@lowers("aten.any.default", "aten.any.dim", "aten.any.dims", kind=REDUCE, how="`sum` of `x != 0` is not 0")
def _any(builder: Builder, node: Node, x: Operand, dims: Dims = None, keepdim: bool = False) -> Any:
    return builder.ops.ne(_counted(builder, x, "ne", dims, keepdim), builder.constant(0, torch.int64))


@lowers("aten.all.default", "aten.all.dim", "aten.all.dims", kind=REDUCE, how="`sum` of `x == 0` is 0")
def _all(builder: Builder, node: Node, x: Operand, dims: Dims = None, keepdim: bool = False) -> Any:
    return builder.ops.eq(_counted(builder, x, "eq", dims, keepdim), builder.constant(0, torch.int64))


def _refuse_variance(node: Node) -> str | None:
    x, dims, correction = node.args[0], argument_of(node, 1, "dim"), node.kwargs.get("correction")
    shape = shape_of(x)
    count = math.prod(shape[dim] for dim in _dims(dims, len(shape)))
    correction = 1 if correction is None else correction
    if correction != int(correction):
        return f"a variance with correction {correction}"
    return None if count > correction and shape else "a variance of too few elements"


def _variance(builder: Builder, x: Operand, dims: Dims, correction: Any, keepdim: bool) -> tuple[Any, Any]:
    value = builder.tensor(x, _compute_dtype(x.dtype))
    count = 1 if correction is None else int(correction)
    return builder.ops.var_mean(value, _dims(dims, len(x.shape)), count, keepdim)


@lowers("aten.var.correction", kind=REDUCE, how="`var_mean`, in f32 for half precision", refuse=_refuse_variance)
def _var(builder: Builder, node: Node, x: Operand, dims: Dims = None, *, correction: Any = None,
         keepdim: bool = False) -> Any:  # fmt: skip
    return _variance(builder, x, dims, correction, keepdim)[0]


@lowers("aten.var_mean.correction", kind=REDUCE, how="`var_mean`, in f32 for half precision", refuse=_refuse_variance)
def _var_mean(builder: Builder, node: Node, x: Operand, dims: Dims = None, *, correction: Any = None,
              keepdim: bool = False) -> list[Any]:  # fmt: skip
    return list(_variance(builder, x, dims, correction, keepdim))
