"""Errors of eager PyTorch that fake tensors do not raise: asked of the real operator, on scratch memory.

Fakes do not check that a written operand overlaps itself or another operand, nor that a result can be cast to it.
Which operators allow which overlap is known to their kernels alone, so the kernel is asked: once for each geometry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from graphalias.effects import Operand
from graphalias.memory import extent_bytes, geometry_of
from graphalias.torch_private import kept_generators, map_tensors, neg_view, real_operations, storage_key

_answers: dict[Any, Exception | None] = {}


def refuse_what_eager_refuses(
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], operands: Sequence[Operand]
) -> None:
    """Raise the error eager PyTorch raises for a write to these operands, if it does.

    Errors that depend on values, such as an index out of range, are left to the run.
    """
    if operator.namespace != "aten" or torch.Tag.inplace_view in operator.tags or not is_suspicious(operands):
        return
    key = _key(operator, args, kwargs, operands)
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
    if any(_overlaps_itself(tensor) for tensor in written):
        return True
    inexact = {operand.tensor.dtype for operand in operands if _is_inexact(operand.tensor)}
    if written and (len(inexact) > 1 or any(not _is_inexact(tensor) for tensor in written)):
        return True
    others = [operand.tensor for operand in operands]
    return any(_share_bytes(tensor, others) > 1 for tensor in written)


def _is_inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements may be at one place: a dimension steps less than what the smaller steps span."""
    span = 1
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and step < span:
            return True
        span += (size - 1) * step
    return False


def _share_bytes(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> int:
    """Return how many of the operands, the tensor among them, lie on some byte of its range."""
    start, end = _range(tensor)
    ranges = [_range(other) for other in others if storage_key(other) == storage_key(tensor)]
    return sum(start < other_end and other_start < end for other_start, other_end in ranges)


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    start = tensor.storage_offset() * tensor.element_size()
    return start, start + extent_bytes(tensor.shape, tensor.stride(), tensor.element_size())


def _key(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], operands: Sequence[Operand]) -> Any:
    places: dict[int, int] = {}
    geometries = []
    for operand in operands:
        geometry = geometry_of(operand.tensor)
        place = places.setdefault(geometry.storage, len(places))
        geometries.append((place, str(operand.tensor.device), *geometry[1:]))
    plain = map_tensors(lambda tensor: None, (tuple(args), dict(kwargs)))
    return operator, tuple(geometries), repr(plain)


def _probe(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], fill: int) -> Exception | None:
    with real_operations(), kept_generators([*args, *kwargs.values()]):
        try:
            scratch_args, scratch_kwargs = _on_scratch((tuple(args), dict(kwargs)), fill)
            operator(*scratch_args, **scratch_kwargs)
        except Exception as error:
            return error.with_traceback(None)
    return None


def _on_scratch(call: Any, fill: int) -> Any:
    """Return the call with real tensors of the same geometry and sharing, filled with a number."""
    ends: dict[int, list[torch.Tensor]] = {}
    map_tensors(lambda tensor: ends.setdefault(storage_key(tensor), []).append(tensor), call)
    bases = {key: _scratch_base(tensors) for key, tensors in ends.items()}

    def real(fake: torch.Tensor) -> torch.Tensor:
        storage, start = bases[storage_key(fake)]
        tensor = torch.empty(0, dtype=fake.dtype, device=fake.device)
        offset = fake.storage_offset() - start // fake.element_size()
        tensor.set_(storage, offset if fake.numel() else 0, fake.shape, fake.stride())
        tensor.fill_(fill) if not _overlaps_itself(tensor) else tensor.untyped_storage().fill_(0)
        tensor = tensor.conj() if fake.is_conj() else tensor
        return neg_view(tensor) if fake.is_neg() else tensor

    return map_tensors(real, call)


def _scratch_base(tensors: Sequence[torch.Tensor]) -> tuple[torch.UntypedStorage, int]:
    """Return fresh memory for what some tensors see of one storage, and where in the storage it starts."""
    ranges = [_range(tensor) for tensor in tensors if tensor.numel()] or [(0, 0)]
    start = min(start for start, _ in ranges) // 16 * 16  # 16 is a multiple of every element size
    size_bytes = max(end for _, end in ranges) - start
    return torch.zeros(size_bytes, dtype=torch.uint8, device=tensors[0].device).untyped_storage(), start
