"""Errors of eager PyTorch that fake tensors do not raise: asked of the real operator, on scratch memory.

Fakes do not check that a written operand overlaps itself or another operand, nor that a result can be cast to it.
Which operators allow which overlap is known to their kernels alone, so the kernel is asked: once for each geometry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from graphalias.effects import Operand
from graphalias.torch_private import storage_key
from graphalias.tracing.scratch import byte_range, call_key, overlaps_itself, run_on_scratch

_answers: dict[Any, Exception | None] = {}


def refuse_what_eager_refuses(
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], operands: Sequence[Operand]
) -> None:
    """Raise the error eager PyTorch raises for a write to these operands, if it does.

    Errors that depend on values, such as an index out of range, are left to the run.
    """
    if operator.namespace != "aten" or torch.Tag.inplace_view in operator.tags or not is_suspicious(operands):
        return
    key = call_key(operator, args, kwargs, operands)
    if key not in _answers:
        # Zeros are valid indices, ones valid divisors: what fails with both fails for what it is given.
        _answers[key] = _probe(operator, args, kwargs, 0) and _probe(operator, args, kwargs, 1)
    error = _answers[key]
    if error is not None:
        raise type(error)(*error.args)


def is_suspicious(operands: Sequence[Operand]) -> bool:
    """Whether a write could be one that eager refuses and fakes let pass.

    Examples
    --------
    >>> x = torch.zeros(4)
    >>> is_suspicious([Operand(x, "self", True, False, True)])
    False
    >>> is_suspicious([Operand(x.expand(2, 4), "self", True, False, True)])
    True
    """
    written = [operand.tensor for operand in operands if operand.is_written and operand.tensor.numel()]
    if any(overlaps_itself(tensor) for tensor in written):
        return True
    inexact = {operand.tensor.dtype for operand in operands if _is_inexact(operand.tensor)}
    if written and (len(inexact) > 1 or any(not _is_inexact(tensor) for tensor in written)):
        return True
    others = [operand.tensor for operand in operands]
    return any(_share_bytes(tensor, others) > 1 for tensor in written)


def _is_inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _share_bytes(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> int:
    """Return how many of the operands, the tensor among them, lie on some byte of its range."""
    start, end = byte_range(tensor)
    ranges = [byte_range(other) for other in others if storage_key(other) == storage_key(tensor)]
    return sum(start < other_end and other_start < end for other_start, other_end in ranges)


def _probe(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], fill: int) -> Exception | None:
    try:
        run_on_scratch(operator, args, kwargs, fill)
    except Exception as error:
        return error.with_traceback(None)
    return None
