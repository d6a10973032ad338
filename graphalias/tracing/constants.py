"""Real tensors and the fakes that stand for them: inputs, and what the function closed over."""

from __future__ import annotations

from typing import Any

import torch

from graphalias.errors import CaptureError
from graphalias.graph import CONSTANT, INPUT, Operation, Storage
from graphalias.memory import RealMemory, why_unsupported
from graphalias.torch_private import (
    FakeTensor,
    FakeTensorMode,
    forget_values,
    is_wrapped,
    real_operations,
    set_version,
    storage_key,
    version_of,
)
from graphalias.tracing.handles import Handles


class Constants:
    """Gives every real tensor one fake, and remembers what the real ones were like.

    Attributes
    ----------
    inputs, operations : list of Operation
        The input nodes and the constant nodes.
    bindings : dict
        The tensor each constant is.
    literal_storages : set of str
        Storages over memory that numpy and the like lent inside the function: another call may lend other memory.
    """

    def __init__(self, fake_mode: FakeTensorMode, handles: Handles) -> None:
        self.inputs: list[Operation] = []
        self.operations: list[Operation] = []
        self.bindings: dict[str, torch.Tensor] = {}
        self.literal_storages: set[str] = set()
        self.memory = RealMemory()
        self._fake_mode, self._handles = fake_mode, handles
        self._storages: dict[int, Storage] = {}
        self._fakes: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._reals: dict[int, torch.Tensor] = {}
        self._attributes: dict[int, frozenset[str]] = {}
        self._gradients: dict[int, Any] = {}
        self._versions: list[tuple[torch.Tensor, int | None]] = []
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def add_input(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return the fake of an input. A tensor that is an input already gets another object over the same memory."""
        is_again = id(tensor) in self._fakes
        with real_operations():
            fake = self._fake_mode.from_tensor(_another_object(tensor) if is_again else tensor)
        forget_values([fake])
        if not is_again:
            self._remember(tensor, fake)
        value = self._handles.handle_at(fake, name, *self._place(tensor, "input"))
        self.inputs.append(Operation(name, INPUT, results=(value,)))
        return fake

    def fake_of(self, tensor: torch.Tensor, *, is_literal: bool = False) -> torch.Tensor:
        """Return the fake that stands for a tensor: itself if it is one; a real one not met before is a constant."""
        if isinstance(tensor, FakeTensor) or is_wrapped(tensor):  # below torch.func's wrappers are fakes again
            return tensor
        if id(tensor) not in self._fakes:
            self._add_constant(tensor, is_literal)
        return self._fakes[id(tensor)][1]

    def real_of(self, fake: Any) -> Any:
        """Return the real tensor a fake stands for, or the thing itself."""
        return self._reals.get(id(fake), fake)

    def is_outside(self, fake: torch.Tensor) -> bool:
        """Whether a fake stands for a tensor that was there before the function ran."""
        return id(fake) in self._reals

    def is_foreign(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor's memory was lent by something else than torch: numpy, a buffer, dlpack."""
        return not tensor.untyped_storage().resizable()

    def copy_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a real copy of a literal, for the fake mode to take as its value."""
        with real_operations():
            return tensor.clone()

    def new_attribute(self) -> str | None:
        """Return the name of an attribute the function gave the fake of an input or constant, or None."""
        for _, fake in self._fakes.values():
            for key in vars(fake):
                if not key.startswith("_") and key not in self._attributes[id(fake)]:
                    return key
        return None

    def has_new_gradient(self) -> bool:
        """Whether a backward pass added to the gradient of an input or constant."""
        return any(
            real.is_leaf and fake.grad is not self._gradients.get(id(fake)) for real, fake in self._fakes.values()
        )

    def restore(self) -> list[str]:
        """Put every real tensor back as it was; return the names of the constants that had changed."""
        changed = []
        with real_operations():
            for name, tensor in self.bindings.items():
                now, before = self._copies[storage_key(tensor)]
                if not torch.equal(now, before):
                    changed.append(name)
            for now, before in self._copies.values():
                now.copy_(before)
            for tensor, version in self._versions:
                if version_of(tensor) != version:
                    changed += [self._name_of(tensor)]
                    set_version(tensor, version)
        return list(dict.fromkeys(changed))

    def _add_constant(self, tensor: torch.Tensor, is_literal: bool) -> None:
        reason = why_unsupported(tensor)
        if reason:
            raise CaptureError(f"can't capture {reason} that the function closed over", hint="pass plain tensors")
        with real_operations():
            fake = self._fake_mode.from_tensor(tensor)
            forget_values([fake])
            if storage_key(tensor) not in self._copies:
                storage = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
                self._copies[storage_key(tensor)] = (storage, storage.clone())
        self._remember(tensor, fake)
        name = self._handles.names.fresh(f"c{len(self.bindings)}")
        storage, shift = self._place(tensor, "constant")
        value = self._handles.handle_at(fake, name, storage, shift)
        self.operations.append(Operation(name, CONSTANT, results=(value,)))
        self.bindings[name] = tensor
        if is_literal and self.is_foreign(tensor):
            self.literal_storages.add(storage.name)

    def _remember(self, tensor: torch.Tensor, fake: torch.Tensor) -> None:
        self._fakes[id(tensor)] = (tensor, fake)
        self._reals[id(fake)] = tensor
        for key, value in vars(tensor).items():
            vars(fake).setdefault(key, value)
        self._attributes[id(fake)] = frozenset(vars(fake))
        self._versions.append((tensor, version_of(tensor)))
        if tensor.is_leaf:
            self._gradients[id(fake)] = fake.grad

    def _place(self, tensor: torch.Tensor, lifetime: str) -> tuple[Storage, int]:
        group, shift = self.memory.place(tensor)
        if group not in self._storages:
            self._storages[group] = self._handles.new_storage(lifetime)
        return self._storages[group], shift

    def _name_of(self, tensor: torch.Tensor) -> str:
        value = self._handles.newest(self._fakes[id(tensor)][1])
        return value.name if value else "?"


def _another_object(tensor: torch.Tensor) -> torch.Tensor:
    """Return another tensor object that is the same in all else."""
    if not tensor.requires_grad:
        return tensor.detach()
    if tensor.is_leaf:
        return tensor.detach().requires_grad_(True)
    with torch.enable_grad():
        return tensor.view_as(tensor)
