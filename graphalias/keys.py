"""What one kind of call has in common: the part of the guards that is looked up rather than compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from graphalias.torch_private import flatten_plain


@dataclass(frozen=True)
class CallKey:
    """Everything about a call that must stay the same, but for the sharing of memory.

    ``leaves`` describe the arguments, ``spec`` their structure, ``modes`` torch's global state, ``module`` the
    ``training`` flags and tensors of a module. ``identities`` is no part of it: for each tensor among the arguments,
    the number of the first one that is the same object.
    """

    leaves: tuple[Any, ...]
    spec: Any
    modes: tuple[Any, ...]
    module: tuple[Any, ...]
    identities: tuple[int, ...] = field(default=(), compare=False)

    def __hash__(self) -> int:
        return hash((self.leaves, self.modes, self.module))

    def differences(self, other: CallKey) -> Iterator[str]:
        """Yield names of the parts that differ."""
        if self.spec != other.spec:
            yield "the arguments' structure"
        else:
            for i, (mine, theirs) in enumerate(zip(self.leaves, other.leaves, strict=True)):
                if mine != theirs:
                    yield f"argument {i}"
        if self.modes != other.modes:
            yield "the grad, inference or autocast mode, or a default"
        if self.module != other.module:
            yield "the module"


def call_key(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallKey:
    """Return the key of a call."""
    leaves, spec = flatten_plain((args, dict(kwargs)))
    keys = tuple(map(leaf_key, leaves))
    return CallKey(keys, spec, global_modes(), module_key(module_of(fn)), identities_of(leaves))


def leaf_key(leaf: Any) -> Any:
    """Return what is guarded of one argument.

    Numbers compare by type and exact value (``-0.0`` is not ``0.0``, ``nan`` is ``nan``); what has no hash, and any
    object that only knows its identity, by identity.
    """
    if isinstance(leaf, torch.Tensor):
        return tensor_key(leaf)
    if isinstance(leaf, (float, complex)):
        return (type(leaf), repr(leaf))
    try:
        hash(leaf)
    except TypeError:
        return (type(leaf), id(leaf))
    return (type(leaf), leaf)


def tensor_key(tensor: torch.Tensor) -> Any:
    """Return what is guarded of a tensor, memory sharing apart."""
    if tensor.layout != torch.strided:
        return (type(tensor), tensor.layout)
    return (
        type(tensor), tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.device,
        tensor.is_conj(), tensor.is_neg(), tensor.requires_grad, tensor.is_inference(), *_attributes(tensor),
    )  # fmt: skip


def _attributes(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return what a user hung on a tensor."""
    return tuple((name, leaf_key(vars(tensor)[name])) for name in attributes_of(tensor)) if tensor.__dict__ else ()


def attributes_of(tensor: torch.Tensor) -> list[str]:
    """Return the names of what a user hung on a tensor; torch.compile hangs something of its own on parameters."""
    return [name for name in tensor.__dict__ if not name.startswith("_dynamo")]


def identities_of(leaves: Sequence[Any]) -> tuple[int, ...]:
    """Return, for each tensor among some leaves, the number of the first one that is the same object.

    >>> x = torch.ones(1)
    >>> identities_of([x, torch.ones(1), 2, x])
    (0, 1, 0)
    """
    first: dict[int, int] = {}
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return tuple(first.setdefault(id(tensor), i) for i, tensor in enumerate(tensors))


def global_modes() -> tuple[Any, ...]:
    """Return torch's global state that changes what a program is."""
    autocast = tuple(
        torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None for device in ("cpu", "cuda")
    )
    default = (torch.get_default_dtype(), torch.get_default_device())
    is_deterministic = torch.are_deterministic_algorithms_enabled()
    return (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast, default, is_deterministic)


def module_of(fn: Callable[..., Any]) -> torch.nn.Module | None:
    """Return the module that is called, or whose method is."""
    owner = fn if isinstance(fn, torch.nn.Module) else getattr(fn, "__self__", None)
    return owner if isinstance(owner, torch.nn.Module) else None


def module_key(module: torch.nn.Module | None) -> tuple[Any, ...]:
    """Return what is guarded of a module."""
    if module is None:
        return ()
    tensors = [*module.parameters(), *module.buffers()]
    return (*(child.training for child in module.modules()), *map(tensor_key, tensors))


def requires_grad(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a tensor among the arguments, or of the module, requires grad."""
    module = module_of(fn)
    if module is not None and any(parameter.requires_grad for parameter in module.parameters()):
        return True
    leaves = flatten_plain((args, dict(kwargs)))[0]
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)
