"""Strides as the kernels give them: fakes are not always right about results of operands that are not row-major, nor
about an ``out=`` that is resized.

What is a view and what overlaps what is worked out from strides, so the kernel is asked, on scratch memory, once for
each geometry. Where operands are row-major and of the right size it is not asked: there fakes are right.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from graphalias.effects import Operand
from graphalias.errors import CaptureError
from graphalias.torch_private import map_tensors, real_operations, storage_key
from graphalias.tracing.arguments import flatten_results
from graphalias.tracing.scratch import call_key, run_on_scratch

#: Shape and stride of each result; None where there is no answer.
Strides = list[tuple[tuple[int, ...], tuple[int, ...]] | None]

_answers: dict[Any, Strides] = {}

#: What copies its first operand together with what lies before it, which neither schemas nor tags tell.
_KEEP_OFFSETS = frozenset(
    {"aten::select_scatter", "aten::slice_scatter", "aten::diagonal_scatter", "aten::as_strided_scatter"}
)


def kernel_strides(
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], operands: Sequence[Operand]
) -> Strides:
    """Return the strides of a call's results where fakes may be wrong about them; empty where they are right.

    To be asked before the call, which may resize operands.
    """
    if operator.is_view:
        return _view_strides(operator, args, kwargs)
    if not _is_unsure(operator, operands):
        return []
    key = call_key(operator, args, kwargs, operands)
    if key not in _answers:
        _answers[key] = _ask(operator, args, kwargs)
    return _answers[key]


def with_strides(result: Any, strides: Strides, operands: Sequence[Operand]) -> Any:
    """Return a call's result with fresh fakes, views, and resized ``out=`` operands, of these strides."""
    leaves = flatten_results(result)
    if len(strides) != len(leaves):
        return result
    known = {id(operand.tensor) for operand in operands}
    storages = {storage_key(operand.tensor) for operand in operands}
    changed: dict[int, torch.Tensor] = {}
    for leaf, answer in zip(leaves, strides, strict=True):
        if answer is None or not isinstance(leaf, torch.Tensor):
            continue
        shape, stride = answer
        if id(leaf) in known and leaf.shape != shape:
            leaf.resize_(shape)
        if leaf.stride() == stride:
            continue
        if id(leaf) in known or storage_key(leaf) in storages:
            leaf.as_strided_(shape, stride)
        elif leaf.shape == shape:
            changed[id(leaf)] = torch.empty_strided(leaf.shape, stride, dtype=leaf.dtype, device=leaf.device)
    return map_tensors(lambda leaf: changed.get(id(leaf), leaf), result) if changed else result


def refuse_kept_offset(operator: Any, operands: Sequence[Operand]) -> None:
    """Refuse a ``select_scatter`` and the like of a tensor with a storage offset.

    Raises
    ------
    CaptureError
        Its kernel makes a result that lies at the same offset in memory of its own: fakes say otherwise.
    """
    if operator._schema.name in _KEEP_OFFSETS and operands[0].tensor.storage_offset():
        raise CaptureError(
            f"can't capture {operator} of a tensor with a storage offset: its result has one, too, which fakes don't",
            hint="clone the tensor before, or write into a clone of it in place",
        )


def _is_unsure(operator: Any, operands: Sequence[Operand]) -> bool:
    """Whether a call makes something new, or resizes something, from operands that are not row-major."""
    if operator.namespace != "aten" or torch.Tag.inplace_view in operator.tags:
        return False
    makes_some = any(returned.alias_info is None for returned in operator._schema.returns)
    makes_some = makes_some or any(operand.is_out for operand in operands)
    return makes_some and any(
        not operand.tensor.is_contiguous() or (operand.is_out and not operand.tensor.numel()) for operand in operands
    )


def _view_strides(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Strides:
    """Return the strides of views: fakes have a rule of their own for dimensions of one element, which shows."""

    def without_memory(fake: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device="meta")

    with real_operations(), contextlib.suppress(Exception):  # the call itself raises what there is to raise
        result = operator(*map_tensors(without_memory, tuple(args)), **kwargs)
        return [(tuple(leaf.shape), leaf.stride()) for leaf in flatten_results(result)]
    return []


def _ask(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Strides:
    for fill in (0, 1):
        try:
            result = run_on_scratch(operator, args, kwargs, fill)
        except Exception:  # it may not like these values; if it likes none, the run finds out
            continue
        leaves = flatten_results(result)
        return [(tuple(leaf.shape), leaf.stride()) if isinstance(leaf, torch.Tensor) else None for leaf in leaves]
    return []
