"""Places where Python state lives, each readable, comparable and restorable: attributes, containers, cells, globals."""

from __future__ import annotations

import collections
import functools
import itertools
import random
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

_MISSING = object()
_PLAIN = (bool, int, str, bytes, bytearray, torch.dtype)


@dataclass
class Slot:
    """One place, with what it held when it was first looked at.

    Parameters
    ----------
    label : str
        How a message names it: ``Net.counts``.
    read : callable
        Returns what it holds now, as a list of (name of a part, value).
    write : callable or None
        Puts back what ``read`` returned; None where that can't be done.
    """

    label: str
    read: Callable[[], list[tuple[str, Any]]]
    write: Callable[[list[tuple[str, Any]]], None] | None
    saved: list[tuple[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.saved = self.read()

    def changes(self) -> list[str]:
        """Return the names of the parts that are not as they were.

        >>> counts = [1, 2]
        >>> slot = sequence_slot("Net.counts", counts)
        >>> counts.append(3)
        >>> slot.changes()
        ['Net.counts[2]']
        """
        now, before = dict(self.read()), dict(self.saved)
        names = [key for key in {**before, **now} if not is_same(before.get(key, _MISSING), now.get(key, _MISSING))]
        if not names and list(now) != list(before):
            return [self.label]
        return [f"{self.label}{name}" for name in names]


def is_same(before: Any, now: Any) -> bool:
    """Whether a value is the one it was: the same object, or an equal plain value."""
    if before is now:
        return True
    if type(before) is not type(now):
        return False
    if isinstance(before, (float, complex)):  # nan is nan, and -0.0 is not 0.0
        return repr(before) == repr(now)
    if isinstance(before, _PLAIN):
        return bool(before == now)
    if isinstance(before, (tuple, list)):
        return len(before) == len(now) and all(map(is_same, before, now))
    if isinstance(before, torch.Tensor):
        return torch.equal(before, now)
    if type(before).__module__ == "numpy":
        return before.tobytes() == now.tobytes()
    if isinstance(before, dict):
        return list(before) == list(now) and all(is_same(before[key], now[key]) for key in before)
    return False


def mapping_slot(label: str, mapping: dict[Any, Any]) -> Slot:
    """Return the slot of a dict, its order included; attributes and keys are named alike."""

    def write(items: list[tuple[str, Any]]) -> None:
        mapping.clear()
        mapping.update(saved)

    saved = dict(mapping)
    return Slot(label, lambda: [(f"[{key!r}]", value) for key, value in mapping.items()], write)


def attributes_slot(label: str, thing: Any) -> Slot:
    """Return the slot of an object's ``__dict__``."""
    slot = mapping_slot(label, vars(thing))
    slot.read = lambda: [(f".{key}", value) for key, value in vars(thing).items()]
    slot.saved = slot.read()
    return slot


def names_slot(label: str, names: Sequence[str], namespace: Any) -> Slot:
    """Return the slot of some names of a namespace: a dict of globals, a class, an object with ``__slots__``."""
    is_dict = isinstance(namespace, dict)

    def get(name: str) -> Any:
        return namespace.get(name, _MISSING) if is_dict else getattr(namespace, name, _MISSING)

    def put(name: str, value: Any) -> None:
        if is_dict and value is _MISSING:
            namespace.pop(name, None)
        elif is_dict:
            namespace[name] = value
        elif value is _MISSING:
            delattr(namespace, name)
        else:
            setattr(namespace, name, value)

    def write(items: list[tuple[str, Any]]) -> None:
        for name, (_, value) in zip(names, items, strict=True):
            if get(name) is not value:
                put(name, value)

    dot = "" if is_dict else "."
    return Slot(label, lambda: [(f"{dot}{name}", get(name)) for name in names], write)


def sequence_slot(label: str, sequence: Any) -> Slot:
    """Return the slot of a list or deque."""

    def write(items: list[tuple[str, Any]]) -> None:
        sequence.clear()
        sequence.extend(value for _, value in items)

    return Slot(label, lambda: [(f"[{i}]", value) for i, value in enumerate(sequence)], write)


def set_slot(label: str, members: set[Any]) -> Slot:
    """Return the slot of a set."""

    def write(items: list[tuple[str, Any]]) -> None:
        members.clear()
        members.update(saved)

    saved = set(members)
    return Slot(label, lambda: [("", members == saved)], write)


def cell_slot(label: str, cell: types.CellType) -> Slot:
    """Return the slot of a variable a function closes over."""

    def read() -> list[tuple[str, Any]]:
        try:
            return [("", cell.cell_contents)]
        except ValueError:  # not assigned yet
            return [("", _MISSING)]

    def write(items: list[tuple[str, Any]]) -> None:
        if items[0][1] is _MISSING:
            del cell.cell_contents
        else:
            cell.cell_contents = items[0][1]

    return Slot(label, read, write)


def state_slot(label: str, get: Callable[[], Any], put: Callable[[Any], Any] | None) -> Slot:
    """Return the slot of a state that is got and set as a whole."""

    def write(items: list[tuple[str, Any]]) -> None:
        if put is not None:
            put(items[0][1])

    return Slot(label, lambda: [("", get())], write if put is not None else None)


def slot_of(label: str, thing: Any) -> Slot | None:
    """Return the slot of a container or of a state of its own, or None where a thing is neither.

    >>> slot_of("items", [1]).saved, slot_of("n", 1)
    ([('[0]', 1)], None)
    """
    if isinstance(thing, dict):
        return mapping_slot(label, thing)
    if isinstance(thing, (list, collections.deque)):
        return sequence_slot(label, thing)
    if isinstance(thing, set):
        return set_slot(label, thing)
    if isinstance(thing, random.Random):
        return state_slot(label, thing.getstate, thing.setstate)
    if isinstance(thing, torch.Generator):
        return state_slot(label, thing.get_state, thing.set_state)
    if isinstance(thing, types.GeneratorType):
        return state_slot(label, lambda: _position(thing), None)
    if isinstance(thing, itertools.count):
        return state_slot(label, lambda: repr(thing), None)
    if type(thing).__module__.partition(".")[0] == "numpy":
        return _numpy_slot(label, thing)
    return None


def _position(generator: types.GeneratorType[Any, Any, Any]) -> tuple[Any, ...]:
    frame = generator.gi_frame
    return (None,) if frame is None else (frame.f_lasti, dict(frame.f_locals))


def _numpy_slot(label: str, thing: Any) -> Slot | None:
    if type(thing).__name__ == "ndarray" and thing.dtype != object:
        return state_slot(label, thing.copy, lambda saved: thing.__setitem__(..., saved) if thing.size else None)
    if type(thing).__name__ == "Generator":
        source = thing.bit_generator
        return state_slot(label, lambda: source.state, lambda saved: setattr(source, "state", saved))
    if type(thing).__name__ == "RandomState":
        return state_slot(label, lambda: thing.get_state(legacy=True), thing.set_state)
    return None


def global_slots() -> Iterator[Slot]:
    """Yield the slots of state that belongs to nobody: random numbers and torch's modes."""
    yield state_slot("Python's random state", random.getstate, random.setstate)
    if "numpy" in sys.modules:
        numpy_random = sys.modules["numpy"].random
        yield state_slot("numpy's random state", numpy_random.get_state, numpy_random.set_state)
    yield state_slot("torch's random state", torch.get_rng_state, torch.set_rng_state)
    if torch.cuda.is_initialized():
        yield state_slot("CUDA's random state", torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all)
    yield state_slot("torch.set_grad_enabled", torch.is_grad_enabled, torch.set_grad_enabled)
    for device in ("cpu", "cuda"):
        yield state_slot(
            f"torch.autocast({device!r})",
            functools.partial(torch.is_autocast_enabled, device),
            functools.partial(torch.set_autocast_enabled, device),
        )
    yield state_slot("torch.set_default_dtype", torch.get_default_dtype, torch.set_default_dtype)
