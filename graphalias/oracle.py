"""Eager PyTorch as the oracle: everything that can be seen of a call, and the tensors put back as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from graphalias.torch_private import flatten_plain, storage_key


@dataclass
class Seen:
    """What a call shows: the error, or what it returned; its tensors and storages, and random states, afterwards."""

    error: Exception | None = None
    returned: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)


class Scene:
    """The tensors a call may touch, which are put back as they were after each run.

    The call runs on the very tensors, so that all sharing of memory, closed-over tensors and modules included, is
    what it is for the user.

    Parameters
    ----------
    tensors : mapping of str to Tensor
        By the names that messages call them.
    generators : sequence of torch.Generator
        Besides torch's default ones.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], generators: Sequence[torch.Generator] = ()) -> None:
        self.tensors = dict(tensors)
        self.generators = [torch.default_generator, *generators]
        self._generator_states = [generator.get_state() for generator in self.generators]
        with torch.no_grad():
            self._aliases = {name: tensor.detach() for name, tensor in self.tensors.items()}
        self._storages = {storage_key(tensor): tensor.untyped_storage() for tensor in self.tensors.values()}
        self._bytes = {key: storage.clone() for key, storage in self._storages.items()}

    def restore(self) -> None:
        """Put bytes, geometries and random states back. Version counters are not touched."""
        for key, storage in self._storages.items():
            if storage.nbytes() != self._bytes[key].nbytes():
                storage.resize_(self._bytes[key].nbytes())
            storage.copy_(self._bytes[key])
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                alias = self._aliases[name]
                if _geometry(tensor) != _geometry(alias) or storage_key(tensor) != storage_key(alias):
                    tensor.data = alias
        for generator, state in zip(self.generators, self._generator_states, strict=True):
            generator.set_state(state)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Put everything back at the end of a block, whatever happens in it."""
        try:
            yield
        finally:
            self.restore()

    def watch(self, call: Callable[[], Any]) -> Seen:
        """Run a call on the tensors, note what can be seen, and put everything back."""
        seen = Seen()
        with self.restored():
            try:
                returned = call()
            except Exception as error:
                seen.error, returned = error, None
            with torch.no_grad():
                labels = {key: f"storage {i}" for i, key in enumerate(self._storages)}
                seen.arguments = self._look_at_arguments(labels)
                if seen.error is None:
                    seen.returned = self._look_at_returned(returned, labels)
        return seen

    def _look_at_arguments(self, labels: dict[int, str]) -> dict[str, Any]:
        looks: dict[str, Any] = {}
        for name, tensor in self.tensors.items():
            looks[f"{name} (geometry)"] = (*_geometry(tensor), _label(tensor, labels))
            looks[f"{name} (contents)"] = _contents(tensor)
        for i, storage in enumerate(self._storages.values()):
            looks[f"storage {i}"] = torch.tensor(storage.clone(), dtype=torch.uint8)
        for i, generator in enumerate(self.generators):
            looks[f"random state {i}"] = generator.get_state()
        return looks

    def _look_at_returned(self, returned: Any, labels: dict[int, str]) -> dict[str, Any]:
        leaves, spec = flatten_plain(returned)
        looks: dict[str, Any] = {"structure": spec}
        known = {id(tensor): name for name, tensor in self.tensors.items()}
        for i, leaf in enumerate(leaves):
            if not isinstance(leaf, torch.Tensor):
                looks[f"result {i}"] = leaf
                continue
            looks[f"result {i} (object)"] = known.setdefault(id(leaf), f"result {i}")
            looks[f"result {i} (geometry)"] = (*_geometry(leaf), _label(leaf, labels))
            looks[f"result {i} (contents)"] = _contents(leaf)
        return looks


def soil_memory(byte: int) -> None:
    """Leave freed memory full of a byte, so that what reads uninitialised memory shows something else each time."""
    for size in (2**power for power in range(4, 17)):
        soiled = [torch.full((size,), byte, dtype=torch.uint8) for _ in range(16)]
        del soiled


def differences(expected: Seen, found: Seen, *, exact: bool = True, with_state_of_errors: bool = True) -> list[str]:
    """Return what differs, one line each; empty where nothing does.

    Parameters
    ----------
    expected, found : Seen
    exact : bool
        Compare values bit for bit; otherwise by ``torch.testing.assert_close``.
    with_state_of_errors : bool
        Compare the tensors too where both raised.
    """
    if (expected.error is None) != (found.error is None):
        return [f"error: expected {_error(expected)}, found {_error(found)}"]
    if expected.error is not None and not with_state_of_errors:
        return []
    lines = []
    for part in ("returned", "arguments"):
        mine, theirs = getattr(expected, part), getattr(found, part)
        for name in dict.fromkeys((*mine, *theirs)):
            if not is_same(mine.get(name), theirs.get(name), exact=exact or name.startswith("random")):
                if not exact and name.startswith("storage "):
                    continue  # its tensors are compared with the tolerance of their dtype
                lines.append(f"{name}: expected {_brief(mine.get(name))}, found {_brief(theirs.get(name))}")
    return lines


def is_same(mine: Any, theirs: Any, *, exact: bool = True) -> bool:
    """Whether two observations are the same: tensors by bits (or closely), plain values by type and value."""
    if isinstance(mine, torch.Tensor) and isinstance(theirs, torch.Tensor):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return False
        if exact:
            return torch.equal(_bits(mine), _bits(theirs))
        try:
            torch.testing.assert_close(theirs, mine, equal_nan=True)
        except AssertionError:
            return False
        return True
    return type(mine) is type(theirs) and (mine is theirs or mine == theirs or repr(mine) == repr(theirs))


def _geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (
        tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.is_conj(), tensor.is_neg(),
        tensor.untyped_storage().nbytes(),
    )  # fmt: skip


def _label(tensor: torch.Tensor, labels: dict[int, str]) -> str:
    """Return a name for the tensor's storage: those of arguments are known, new ones are numbered as they come."""
    return labels.setdefault(storage_key(tensor), f"new storage {len(labels)}")


def _contents(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)


def _error(seen: Seen) -> str:
    return f"{type(seen.error).__name__}: {seen.error}" if seen.error else "none"


def _brief(observation: Any) -> str:
    text = " ".join(repr(observation).split())
    return text if len(text) < 120 else f"{text[:117]}..."
