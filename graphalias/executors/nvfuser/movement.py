"""Views, and what puts elements together: broadcast, reshape, permute, slice, cat, pad, gather; and new tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from graphalias.executors.nvfuser.builder import Builder, Operand
from graphalias.executors.nvfuser.table import (
    CREATE,
    MOVE,
    REARRANGE,
    argument_of,
    dtype_of,
    lowers,
    shape_of,
)


def _dims(dims: Any, rank: int) -> list[int]:
    """Return dimensions counted from the front."""
    return [dim % max(rank, 1) for dim in ([dims] if isinstance(dims, int) else dims)]


@lowers("aten.clone.default", "aten.alias.default", "aten.detach.default", "aten.lift_fresh_copy.default",
        "aten.contiguous.default", kind=MOVE, how="the value itself")  # fmt: skip
def _same(builder: Builder, node: Node, x: Operand, *args: Any, **kwargs: Any) -> Any:
    return builder.tensor(x)


@lowers("aten.expand.default", kind=MOVE, how="`broadcast` and `expand`")
def _expand(builder: Builder, node: Node, x: Operand, *args: Any, **kwargs: Any) -> Any:
    if x.is_number:
        return builder.full(shape_of(node), builder.operand(x, x.dtype), x.dtype)
    return builder.expand(builder.tensor(x), x.shape, shape_of(node))


@lowers("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", kind=MOVE, how="`reshape`")
def _reshape(builder: Builder, node: Node, x: Operand, *args: Any) -> Any:
    shape = shape_of(node)
    return builder.tensor(x) if shape == x.shape else builder.ops.reshape(builder.tensor(x), list(shape))


@lowers("aten.permute.default", kind=MOVE, how="`permute`")
def _permute(builder: Builder, node: Node, x: Operand, dims: Sequence[int]) -> Any:
    order = _dims(dims, len(x.shape))
    return builder.tensor(x) if order == sorted(order) else builder.ops.permute(builder.tensor(x), order)


@lowers("aten.transpose.int", kind=MOVE, how="`permute`")
def _transpose(builder: Builder, node: Node, x: Operand, one: int, other: int) -> Any:
    order = list(range(len(x.shape)))
    one, other = _dims([one, other], len(x.shape))
    order[one : one + 1], order[other : other + 1] = order[other : other + 1], order[one : one + 1]
    return _permute(builder, node, x, order)


@lowers("aten.t.default", kind=MOVE, how="`permute`")
def _t(builder: Builder, node: Node, x: Operand) -> Any:
    return _permute(builder, node, x, list(range(len(x.shape)))[::-1])


@lowers("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims", kind=MOVE, how="`squeeze`")
def _squeeze(builder: Builder, node: Node, x: Operand, dims: Any = None) -> Any:
    chosen = range(len(x.shape)) if dims is None else sorted(_dims(dims, len(x.shape)))
    gone = [dim for dim in chosen if x.shape and x.shape[dim] == 1]
    return builder.ops.squeeze(builder.tensor(x), gone) if gone else builder.tensor(x)


@lowers("aten.unsqueeze.default", kind=MOVE, how="`broadcast` with a new dimension")
def _unsqueeze(builder: Builder, node: Node, x: Operand, dim: int) -> Any:
    rank = len(x.shape) + 1
    return builder.ops.broadcast(builder.tensor(x), is_broadcast_dim=[i == dim % rank for i in range(rank)])


def _cut(builder: Builder, value: Any, shape: Sequence[int], dim: int, start: int, end: int) -> Any:
    if (start, end) == (0, shape[dim]):
        return value
    starts, ends = [0] * len(shape), list(shape)
    starts[dim], ends[dim] = start, end
    return builder.ops.slice(value, starts, ends)


def _bounds(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Return the first element and the one behind the last.

    >>> _bounds(5, -2, 2**63 - 1), _bounds(5, 3, 1)
    ((3, 5), (3, 3))
    """
    first, last, _ = slice(start, end).indices(size)
    return first, max(first, last)


def _refuse_step(node: Node) -> str | None:
    step = argument_of(node, 5 if "scatter" in str(node.target) else 4, "step", 1)
    return None if step == 1 else f"a slice of step {step}"


@lowers("aten.slice.Tensor", kind=MOVE, how="`slice`, of step 1", refuse=_refuse_step)
def _slice(
    builder: Builder, node: Node, x: Operand, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Any:  # fmt: skip
    dim %= len(x.shape)
    return _cut(builder, builder.tensor(x), x.shape, dim, *_bounds(x.shape[dim], start, end))


@lowers("aten.select.int", kind=MOVE, how="`slice` of one, `squeeze`")
def _select(builder: Builder, node: Node, x: Operand, dim: int, index: int) -> Any:
    dim %= len(x.shape)
    index %= x.shape[dim]
    return builder.ops.squeeze(_cut(builder, builder.tensor(x), x.shape, dim, index, index + 1), [dim])


@lowers("aten.split_with_sizes.default", kind=MOVE, how="a `slice` each")
def _split_with_sizes(builder: Builder, node: Node, x: Operand, sizes: Sequence[int], dim: int = 0) -> list[Any]:
    dim %= len(x.shape)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    value = builder.tensor(x)
    return [_cut(builder, value, x.shape, dim, start, start + size) for start, size in zip(starts, sizes, strict=True)]


@lowers("aten.split.Tensor", kind=MOVE, how="a `slice` each")
def _split(builder: Builder, node: Node, x: Operand, size: int, dim: int = 0) -> list[Any]:
    total = x.shape[dim]
    sizes = [min(size, total - start) for start in range(0, total, size)]
    return _split_with_sizes(builder, node, x, sizes, dim)


@lowers("aten.unbind.int", kind=MOVE, how="a `slice` and `squeeze` each")
def _unbind(builder: Builder, node: Node, x: Operand, dim: int = 0) -> list[Any]:
    return [_select(builder, node, x, dim, index) for index in range(x.shape[dim])]


def _joined(builder: Builder, values: Sequence[Any], dim: int) -> Any:
    return values[0] if len(values) == 1 else builder.ops.cat(list(values), dim=dim)


@lowers("aten.cat.default", kind=REARRANGE, how="`cat`, all in the result's dtype; those without elements left out")
def _cat(builder: Builder, node: Node, tensors: Sequence[Operand], dim: int = 0) -> Any:
    rank = len(shape_of(node))
    values = [builder.tensor(x, dtype_of(node)) for x in tensors if 0 not in x.shape]
    return _joined(builder, values, dim % rank)


def _put(builder: Builder, node: Node, x: Operand, source: Any, dim: int, start: int, end: int) -> Any:
    """Return a tensor with some of it replaced: what is before, the new, what is behind."""
    value, size = builder.tensor(x), x.shape[dim]
    parts = [_cut(builder, value, x.shape, dim, 0, start)] if start else []
    parts += [builder.cast(source, dtype_of(node))]
    parts += [_cut(builder, value, x.shape, dim, end, size)] if end < size else []
    return _joined(builder, parts, dim)


@lowers("aten.slice_scatter.default", kind=REARRANGE, how="`cat` of what is before, the new, what is behind",
        refuse=_refuse_step)  # fmt: skip
def _slice_scatter(
    builder: Builder, node: Node, x: Operand, source: Operand, dim: int = 0, start: int | None = None,
    end: int | None = None, step: int = 1,
) -> Any:  # fmt: skip
    dim %= len(x.shape)
    start, end = _bounds(x.shape[dim], start, end)
    if start == end:
        return builder.tensor(x)
    shape = (*x.shape[:dim], end - start, *x.shape[dim + 1 :])
    return _put(builder, node, x, builder.expand(builder.tensor(source), source.shape, shape), dim, start, end)


@lowers("aten.select_scatter.default", kind=REARRANGE, how="`cat` of what is before, the new, what is behind")
def _select_scatter(builder: Builder, node: Node, x: Operand, source: Operand, dim: int, index: int) -> Any:
    dim %= len(x.shape)
    index %= x.shape[dim]
    value = builder.expand(builder.tensor(source), source.shape, (*x.shape[:dim], *x.shape[dim + 1 :]))
    value = builder.ops.broadcast(value, is_broadcast_dim=[i == dim for i in range(len(x.shape))])
    return _put(builder, node, x, value, dim, index, index + 1)


def _refuse_pad(node: Node) -> str | None:
    return "it pads by less than nothing" if any(width < 0 for width in node.args[1]) else None


@lowers("aten.constant_pad_nd.default", kind=REARRANGE, how="`pad`", refuse=_refuse_pad)
def _pad(builder: Builder, node: Node, x: Operand, widths: Sequence[int], value: Any = 0) -> Any:
    return builder.ops.pad(builder.tensor(x), list(widths), builder.constant(value, dtype_of(node)))


def _refuse_index(node: Node) -> str | None:
    return None if shape_of(node.args[0]) and shape_of(node.args[2]) else "indexes without dimensions"


@lowers("aten.index_select.default", kind=REARRANGE, how="`index_select`; indices are not checked",
        refuse=_refuse_index)  # fmt: skip
def _index_select(builder: Builder, node: Node, x: Operand, dim: int, index: Operand) -> Any:
    return builder.ops.index_select(builder.tensor(x), builder.tensor(index), dim % len(x.shape))


@lowers("aten.gather.default", kind=REARRANGE, how="`gather`; indices are not checked", refuse=_refuse_index)
def _gather(builder: Builder, node: Node, x: Operand, dim: int, index: Operand, sparse_grad: bool = False) -> Any:
    return builder.ops.gather(builder.tensor(x), builder.tensor(index), dim % len(x.shape))


@lowers("aten.full.default", kind=CREATE, how="`full`")
def _full(builder: Builder, node: Node, shape: Sequence[int], value: Any, **kwargs: Any) -> Any:
    dtype = dtype_of(node)
    if not shape:
        return torch.tensor(value, dtype=dtype).item()
    return builder.full(shape, builder.constant(value, dtype), dtype)


lowers("aten.full_like.default", kind=CREATE, how="`full`")(_full)
lowers("aten.copy.default", kind=REARRANGE, how="`cast` and `expand` of the source")(_full)  # by the form


@lowers("aten.empty.memory_format", "aten.empty_strided.default", "aten.empty_permuted.default",
        "aten.empty_like.default", "aten.new_empty_strided.default", "aten.new_empty.default", kind=CREATE,
        how="`full` of zeros: nothing else has a value")  # fmt: skip
def _empty(builder: Builder, node: Node, *args: Any, **kwargs: Any) -> Any:
    return _full(builder, node, shape_of(node), 0)


@lowers("aten.scalar_tensor.default", kind=CREATE, how="a constant")
def _scalar_tensor(builder: Builder, node: Node, value: Any, **kwargs: Any) -> Any:
    return _full(builder, node, (), value)


@lowers("aten.arange.start_step", kind=CREATE, how="`iota`; of floats: of integers, scaled in f64")
def _arange(builder: Builder, node: Node, start: Any, end: Any, step: Any = 1, **kwargs: Any) -> Any:
    length, dtype = shape_of(node)[0], dtype_of(node)
    if not dtype.is_floating_point:
        number = builder.definition.define_scalar
        return builder.ops.iota(number(length), number(int(start)), number(int(step)), builder.dtype(torch.int64))
    counted = builder.cast(builder.ops.iota(length), torch.float64)
    scaled = builder.ops.mul(counted, builder.constant(step, torch.float64))
    return builder.ops.add(scaled, builder.constant(start, torch.float64))
