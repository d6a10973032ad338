"""A call taken apart: which leaf of its arguments is which input."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from graphalias.errors import CaptureError
from graphalias.memory import why_unsupported
from graphalias.signature import Leaf, TensorSpec, argument_labels
from graphalias.torch_private import flatten, unflatten
from graphalias.tracing.constants import Constants
from graphalias.tracing.handles import Handles


@dataclass(frozen=True)
class Call:
    """A function and its arguments, taken apart.

    ``leaves`` are (label, value) in order; ``module_tensors`` are (qualified name, tensor), each tensor once.
    """

    fn: Callable[..., Any]
    in_spec: Any
    leaves: tuple[tuple[str, Any], ...]
    module: torch.nn.Module | None
    module_tensors: tuple[tuple[str, torch.Tensor], ...]

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Every tensor, in order, as often as it is passed."""
        passed = [value for _, value in self.leaves if isinstance(value, torch.Tensor)]
        return [*passed, *(tensor for _, tensor in self.module_tensors)]


def read_call(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """Take a call apart, refusing arguments of types a program can't hold."""
    if not callable(fn):
        raise CaptureError(f"expected a function or an nn.Module, found {type(fn).__name__}")
    found, spec = flatten((tuple(args), dict(kwargs)))
    labels = argument_labels(fn.forward if isinstance(fn, torch.nn.Module) else fn, args, [path for path, _ in found])
    for label, (_, value) in zip(labels, found, strict=True):
        reason = why_unsupported(value) if isinstance(value, torch.Tensor) else _why_no_argument(value)
        if reason:
            raise CaptureError(
                f"argument {label}: expected a plain tensor or value, found {reason}", hint="pass plain tensors"
            )
    module = fn if isinstance(fn, torch.nn.Module) else getattr(fn, "__self__", None)
    module = module if isinstance(module, torch.nn.Module) else None
    tensors = [*module.named_parameters(), *module.named_buffers()] if module is not None else []
    for name, tensor in tensors:
        reason = why_unsupported(tensor)
        if reason:
            raise CaptureError(f"{name} of the module: expected a plain tensor, found {reason}")
    leaves = tuple((label, value) for label, (_, value) in zip(labels, found, strict=True))
    return Call(fn, spec, leaves, module, tuple(tensors))


def _why_no_argument(value: Any) -> str | None:
    if type(value).__module__ == "numpy" and type(value).__name__ == "ndarray":
        return "a numpy array, whose contents the program would not see change"
    return None


class Inputs:
    """The inputs of one trace: which leaf is which, and the fakes to call with."""

    def __init__(self, call: Call, constants: Constants, handles: Handles, merged: Collection[int]) -> None:
        self.specs: dict[str, TensorSpec] = {}
        self.leaves: list[Leaf] = []
        self.fakes: list[Any] = []
        self.module_tensors: dict[str, str] = {}
        self._in_spec = call.in_spec
        self._known: dict[int, tuple[str, torch.Tensor]] = {}
        self._constants, self._handles, self._merged = constants, handles, merged
        constants.memory.place_all(call.tensors)
        for label, value in call.leaves:
            name, fake = self._add(label, value) if isinstance(value, torch.Tensor) else (None, value)
            self.leaves.append(Leaf(label, name, None if name else value))
            self.fakes.append(fake)
        for qualified_name, tensor in call.module_tensors:
            self.module_tensors[self._add(qualified_name, tensor)[0]] = qualified_name

    def _add(self, label: str, tensor: torch.Tensor) -> tuple[str, torch.Tensor]:
        if id(tensor) in self._known and id(tensor) in self._merged:
            return self._known[id(tensor)]
        name = self._handles.names.fresh(label)
        fake = self._constants.add_input(name, tensor)
        self.specs[name] = TensorSpec.of(tensor)
        self._known.setdefault(id(tensor), (name, fake))
        return name, fake

    def refuse_changed_containers(self, arguments: Any) -> None:
        """Refuse what a function did to the lists and dicts it was given: a program gets its own each time."""
        leaves, spec = flatten(arguments)
        labels = [leaf.label for leaf in self.leaves]
        changed = [
            label for label, before, (_, now) in zip(labels, self.fakes, leaves, strict=False) if now is not before
        ]
        if changed or spec != self._in_spec:
            raise CaptureError(
                f"the function changes a container among its arguments (at {changed[0] if changed else 'the end'})",
                hint="return the new container instead",
            )

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the args and kwargs to call the function with."""
        return unflatten(self.fakes, self._in_spec)
