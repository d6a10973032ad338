"""Places where Python state lives, each readable, comparable and restorable: attributes, containers, cells, globals."""

from __future__ import annotations

import collections
import functools
import itertools
import random
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

MISSING = object()
_PLAIN = (bool, int, str, bytes, bytearray, torch.dtype)


@dataclass
class Slot:
    """One place, with what it held when it was first looked at.

    Parameters
    ----------
    label : str
        How a message names it: ``Net.counts``.
    read : callable
        Returns what it holds now, as a list of (key of a part, value).
    write : callable or None
        Puts back what ``read`` returned; None where that can't be done.
    suffix : callable
        Returns how a part's key is shown after the label.
    is_drawn_from : bool
        Whether using it changes it, as with a random generator: between two calls that is nothing to notice.
    container : dict, list, deque, set or torch.Generator, optional
        That the slot is the content of.
    getters : list of callable
        One for each part, each returns what it holds now, where that is faster than ``read``.
    """

    label: str
    read: Callable[[], list[tuple[Any, Any]]]
    write: Callable[[list[tuple[Any, Any]]], None] | None
    suffix: Callable[[Any], str] = str
    is_drawn_from: bool = False
    container: Any = None
    getters: list[Callable[[], Any]] = field(default_factory=list)
    saved: list[tuple[Any, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.saved = self.read()

    def changed_keys(self) -> list[Any]:
        """Return the keys of the parts that are not as they were."""
        now, before = dict(self.read()), dict(self.saved)
        return [key for key in {**before, **now} if not is_same(before.get(key, MISSING), now.get(key, MISSING))]

    def changes(self) -> list[str]:
        """Return the names of the parts that are not as they were; the slot's own where only their order changed.

        >>> counts = [1, 2]
        >>> slot = sequence_slot("Net.counts", counts)
        >>> counts.append(3)
        >>> slot.changes()
        ['Net.counts[2]']
        """
        keys = self.changed_keys()
        if not keys and [key for key, _ in self.read()] != [key for key, _ in self.saved]:
            return [self.label]
        return [f"{self.label}{self.suffix(key)}" for key in keys]

    def first_change(self) -> tuple[Any, Any]:
        """Return what the first changed part was, and what it is; a pair of None where only the order changed."""
        key = next(iter(self.changed_keys()), None)
        return dict(self.saved).get(key), dict(self.read()).get(key)

    def parts(self) -> list[tuple[str, Any]]:
        """Return the name and value of each part, as it was when first looked at."""
        return [(f"{self.label}{self.suffix(key)}", value) for key, value in self.saved]


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
    return Slot(label, lambda: list(mapping.items()), write, _show_key, container=mapping)


def attributes_slot(label: str, thing: Any) -> Slot:
    """Return the slot of an object's ``__dict__``."""
    slot = mapping_slot(label, vars(thing))
    slot.suffix = ".{}".format
    return slot


def _show_key(key: Any) -> str:
    return f"[{key!r}]" if isinstance(key, (str, int)) else f"[a {type(key).__name__}]"


def names_slot(label: str, names: Sequence[str], namespace: Any) -> Slot:
    """Return the slot of some names of a namespace: a dict of globals, a class, an object with ``__slots__``."""
    is_dict = isinstance(namespace, dict)
    getters: list[Callable[[], Any]]
    if is_dict or isinstance(namespace, type):  # as it is stored: looking it up would run descriptors
        stored = namespace if is_dict else vars(namespace)
        getters = [functools.partial(stored.get, name, MISSING) for name in names]
    else:
        getters = [functools.partial(getattr, namespace, name, MISSING) for name in names]

    def put(name: str, value: Any) -> None:
        if is_dict and value is MISSING:
            namespace.pop(name, None)
        elif is_dict:
            namespace[name] = value
        elif value is MISSING:
            delattr(namespace, name)
        else:
            setattr(namespace, name, value)

    def write(items: list[tuple[str, Any]]) -> None:
        for name, get, (_, value) in zip(names, getters, items, strict=True):
            if get() is not value:
                put(name, value)

    def read() -> list[tuple[str, Any]]:
        return [(name, get()) for name, get in zip(names, getters, strict=True)]

    return Slot(label, read, write, ("{}" if is_dict else ".{}").format, getters=getters)


def sequence_slot(label: str, sequence: Any) -> Slot:
    """Return the slot of a list or deque."""

    def write(items: list[tuple[str, Any]]) -> None:
        sequence.clear()
        sequence.extend(value for _, value in items)

    return Slot(label, lambda: list(enumerate(sequence)), write, "[{}]".format, container=sequence)


def set_slot(label: str, members: set[Any]) -> Slot:
    """Return the slot of a set."""

    def write(items: list[tuple[str, Any]]) -> None:
        members.clear()
        members.update(saved)

    saved = set(members)
    return Slot(label, lambda: [("", members == saved)], write, container=members)


def cell_slot(label: str, cell: types.CellType) -> Slot:
    """Return the slot of a variable a function closes over."""

    def read() -> list[tuple[str, Any]]:
        try:
            return [("", cell.cell_contents)]
        except ValueError:  # not assigned yet
            return [("", MISSING)]

    def write(items: list[tuple[str, Any]]) -> None:
        if items[0][1] is MISSING:
            del cell.cell_contents
        else:
            cell.cell_contents = items[0][1]

    return Slot(label, read, write, getters=[functools.partial(getattr, cell, "cell_contents")])


def state_slot(
    label: str, get: Callable[[], Any], put: Callable[[Any], Any] | None, *, is_drawn_from: bool = True
) -> Slot:
    """Return the slot of a state that is got and set as a whole."""

    def write(items: list[tuple[str, Any]]) -> None:
        if put is not None:
            put(items[0][1])

    return Slot(label, lambda: [("", get())], write if put is not None else None, is_drawn_from=is_drawn_from)


def slot_of(label: str, thing: Any) -> Slot | None:
    """Return the slot of a container or of a state of its own, or None where a thing is neither.

    >>> slot_of("items", [1]).saved, slot_of("n", 1)
    ([(0, 1)], None)
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
        slot = state_slot(label, thing.get_state, thing.set_state)
        slot.container = thing
        return slot
    if isinstance(thing, types.GeneratorType):
        return state_slot(label, lambda: _position(thing), None)
    if isinstance(thing, itertools.count):
        return state_slot(label, lambda: repr(thing), None)
    if isinstance(thing, functools._lru_cache_wrapper):
        # what was made while capturing must not stay in it; what else is lost is made again
        return state_slot(label, lambda: thing.cache_info().currsize, lambda saved: thing.cache_clear())
    if type(thing).__module__.partition(".")[0] == "numpy":
        return _numpy_slot(label, thing)
    return None


def _position(generator: types.GeneratorType[Any, Any, Any]) -> tuple[Any, ...]:
    frame = generator.gi_frame
    return (None,) if frame is None else (frame.f_lasti, dict(frame.f_locals))


def _numpy_slot(label: str, thing: Any) -> Slot | None:
    if type(thing).__name__ == "ndarray" and thing.dtype != object:
        put = lambda saved: thing.__setitem__(..., saved) if thing.size else None  # noqa: E731
        return state_slot(label, thing.copy, put, is_drawn_from=False)
    if type(thing).__name__ == "Generator":
        source = thing.bit_generator
        return state_slot(label, lambda: source.state, lambda saved: setattr(source, "state", saved))
    if type(thing).__name__ == "RandomState":
        return state_slot(label, lambda: thing.get_state(legacy=True), thing.set_state)
    return None
