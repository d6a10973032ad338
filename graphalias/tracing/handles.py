"""From fake tensors to Values: unique names, objects and storages in order of appearance."""

from __future__ import annotations

import re
from typing import Any

import torch

from graphalias.errors import CaptureError
from graphalias.graph import Storage, Value
from graphalias.memory import Geometry, geometry_of
from graphalias.symbols import DTYPE_NAMES
from graphalias.torch_private import storage_key


class Names:
    """Gives out names, each once: ``add``, then ``add_1``; a taken ``split`` also takes ``split.0``.

    Examples
    --------
    >>> names = Names()
    >>> [names.fresh("x"), names.fresh("x"), names.fresh("layer 1.weight"), names.fresh("layer_1")]
    ['x', 'x_1', 'layer_1.weight', 'layer_1_1']
    """

    def __init__(self) -> None:
        self._taken: set[str] = {"output"}
        self._counts: dict[str, int] = {}

    def fresh(self, base: str) -> str:
        """Return a name like ``base`` that no other thing of the program has, nor begins with before a dot."""
        base = re.sub(r"[^A-Za-z0-9_.]", "_", base).strip(".") or "x"
        base = f"_{base}" if base[0].isdigit() else base
        name = base
        while name in self._taken:
            self._counts[base] = self._counts.get(base, 0) + 1
            name = f"{base}_{self._counts[base]}"
        parts = name.split(".")
        self._taken.update(".".join(parts[: i + 1]) for i in range(len(parts)))
        return name


class Handles:
    """The Values of the fake tensors met so far."""

    def __init__(self) -> None:
        self.names = Names()
        self._newest: dict[int, Value] = {}
        self._storages: dict[int, tuple[Storage, int]] = {}
        # ids and storage keys are addresses: what they belong to must live as long as the maps.
        self._alive: list[Any] = []
        self._object_count = 0
        self._storage_count = 0

    def newest(self, fake: torch.Tensor) -> Value | None:
        """Return the newest handle of a tensor object, or None where the program does not know it."""
        return self._newest.get(id(fake))

    def new_storage(self, lifetime: str) -> Storage:
        """Return the next storage."""
        self._storage_count += 1
        return Storage(f"s{self._storage_count - 1}", lifetime)

    def new_object(self) -> str:
        """Return the name of the next tensor object."""
        self._object_count += 1
        return f"obj{self._object_count - 1}"

    def handle_at(self, fake: torch.Tensor, name: str, storage: Storage, shift_bytes: int) -> Value:
        """Return the first handle of a tensor whose memory begins ``shift_bytes`` into a storage."""
        self._put_storage(fake, storage, shift_bytes)
        return self.handle(fake, name)

    def handle(self, fake: torch.Tensor, name: str) -> Value:
        """Return a new handle of a tensor as it is now; a tensor not met before is a new object."""
        if storage_key(fake) not in self._storages:
            self._put_storage(fake, self.new_storage("local"), 0)
        known = self._newest.get(id(fake))
        storage, shift_bytes = self._storages[storage_key(fake)]
        value = _value(
            name, geometry_of(fake), fake, storage, shift_bytes, known.object if known else self.new_object()
        )
        self._newest[id(fake)] = value
        self._alive.append(fake)
        return value

    def _put_storage(self, fake: torch.Tensor, storage: Storage, shift_bytes: int) -> None:
        self._alive.append(fake.untyped_storage())
        self._storages.setdefault(storage_key(fake), (storage, shift_bytes))


def _value(
    name: str, geometry: Geometry, fake: torch.Tensor, storage: Storage, shift_bytes: int, object_name: str
) -> Value:
    if geometry.dtype not in DTYPE_NAMES or fake.layout is not torch.strided:
        raise CaptureError(f"%{name} is a {geometry.dtype} tensor of layout {fake.layout}: expected a strided tensor")
    if shift_bytes % fake.element_size():
        raise CaptureError(
            f"%{name}: a {geometry.dtype} view begins {shift_bytes} bytes into another's memory: expected a multiple "
            f"of {fake.element_size()}",
            hint="copy it first",
        )
    return Value(
        name, DTYPE_NAMES[geometry.dtype], geometry.shape, storage=storage, object=object_name, stride=geometry.stride,
        offset=geometry.offset + shift_bytes // fake.element_size(), device=str(fake.device), conj=geometry.conj,
        neg=geometry.neg,
    )  # fmt: skip
