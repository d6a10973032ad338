"""Scratch memory: real tensors with the geometry and sharing of fakes, to ask a kernel what fakes do not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from graphalias.effects import Operand
from graphalias.memory import extent_bytes, geometry_of
from graphalias.torch_private import kept_generators, map_tensors, neg_view, real_operations, storage_key
from graphalias.values import may_repeat


def run_on_scratch(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], fill: int) -> Any:
    """Run an operator on scratch memory filled with a number; return its result.

    No user tensor and no random state is touched. Whatever the kernel raises is raised.
    """
    with real_operations(), kept_generators([*args, *kwargs.values()]):
        scratch_args, scratch_kwargs = _on_scratch((tuple(args), dict(kwargs)), fill)
        return operator(*scratch_args, **scratch_kwargs)


def call_key(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], operands: Sequence[Operand]) -> Any:
    """Return what makes two calls the same to a kernel, values apart."""
    places: dict[int, int] = {}
    geometries = []
    for operand in operands:
        geometry = geometry_of(operand.tensor)
        place = places.setdefault(geometry.storage, len(places))
        geometries.append((place, str(operand.tensor.device), *geometry[1:-1]))
    plain = map_tensors(lambda tensor: None, (tuple(args), dict(kwargs)))
    return operator, tuple(geometries), repr(plain)


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements may be at one place."""
    return may_repeat(tensor.shape, tensor.stride())


def byte_range(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first byte a tensor sees of its storage, and the end of its last."""
    start = tensor.storage_offset() * tensor.element_size()
    return start, start + extent_bytes(tensor.shape, tensor.stride(), tensor.element_size())


def _on_scratch(call: Any, fill: int) -> Any:
    """Return the call with real tensors of the same geometry and sharing, filled with a number."""
    ends: dict[int, list[torch.Tensor]] = {}
    map_tensors(lambda tensor: ends.setdefault(storage_key(tensor), []).append(tensor), call)
    bases = {key: _scratch_base(tensors) for key, tensors in ends.items()}
    known: dict[int, torch.Tensor] = {}  # one object stays one: some kernels look whether two operands are the same

    def real(fake: torch.Tensor) -> torch.Tensor:
        if id(fake) not in known:
            known[id(fake)] = make(fake)
        return known[id(fake)]

    def make(fake: torch.Tensor) -> torch.Tensor:
        storage, start = bases[storage_key(fake)]
        tensor = torch.empty(0, dtype=fake.dtype, device=fake.device)
        offset = fake.storage_offset() - start // fake.element_size()
        tensor.set_(storage, offset if fake.numel() else 0, fake.shape, fake.stride())
        tensor.fill_(fill) if not overlaps_itself(tensor) else tensor.untyped_storage().fill_(0)
        tensor = tensor.conj() if fake.is_conj() else tensor
        return neg_view(tensor) if fake.is_neg() else tensor

    return map_tensors(real, call)


def _scratch_base(tensors: Sequence[torch.Tensor]) -> tuple[torch.UntypedStorage, int]:
    """Return fresh memory for what some tensors see of one storage, and where in the storage it starts."""
    ranges = [byte_range(tensor) for tensor in tensors if tensor.numel()] or [(0, 0)]
    start = min(start for start, _ in ranges) // 16 * 16  # 16 is a multiple of every element size
    size_bytes = max(end for _, end in ranges) - start
    return torch.zeros(size_bytes, dtype=torch.uint8, device=tensors[0].device).untyped_storage(), start
