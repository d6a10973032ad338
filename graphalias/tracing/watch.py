"""Python state a captured program was made from: when it is not what it was, another program is needed."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable
from typing import Any

import torch

from graphalias.tracing.reach import reachable_slots
from graphalias.tracing.slots import MISSING, Slot, is_same

_VALUES = (bool, int, float, complex, str, bytes, tuple, torch.dtype)


class Watch:
    """The globals, closures, attributes and containers a function can reach, as they were when it was captured.

    Parameters
    ----------
    roots : iterable of (str, object)
        With the name messages call it by; a function's own is not shown.
    read_anew : collection of int
        Ids of containers that are read again in each call.

    Examples
    --------
    >>> import types
    >>> net = types.SimpleNamespace(scale=2)
    >>> watch = Watch([("net", net)])
    >>> watch.change() is None
    True
    >>> net.scale = 3
    >>> watch.change()
    'net.scale'
    """

    def __init__(self, roots: Iterable[tuple[str, Any]], read_anew: Collection[int] = ()) -> None:
        slots = [slot for slot in reachable_slots(list(roots)) if not slot.is_drawn_from and not _is_nothing(slot)]
        slots = [slot for slot in slots if id(slot.container) not in read_anew]
        # Most are empty: a module has a dozen dicts of hooks. That they still are is seen at once.
        empty = [slot for slot in slots if slot.container is not None and not slot.container]
        self.empty, self._empty_labels = [slot.container for slot in empty], [slot.label for slot in empty]
        self.parts = [_Part(slot) for slot in slots if slot.container is None or slot.container]

    def change(self) -> str | None:
        """Return the name of something that is not what it was, or None."""
        if any(self.empty):
            filled = [i for i, now in enumerate(self.empty) if now]
            for i in filled:
                if not _is_compilers(self.empty[i]):
                    return self._empty_labels[i]
            for i in reversed(filled):
                del self.empty[i], self._empty_labels[i]
        for part in self.parts:
            if not part.is_unchanged():
                return part.label
        return None


def _is_nothing(slot: Slot) -> bool:
    """Whether a slot is of names that nothing has, or holds only what is no user's.

    Attributes' names are looked for among globals too.
    """
    is_missing = bool(slot.saved) and all(value is MISSING for _, value in slot.saved)
    return is_missing or (bool(slot.container) and _is_compilers(slot.container))


def _is_compilers(container: Any) -> bool:
    """Whether a dict holds only what torch.compile hangs on tensors and modules."""
    return isinstance(container, dict) and all(str(key).startswith("_dynamo") for key in container)


class _Part:
    """A slot, read and compared fast: by address, which tells enough of what is kept alive.

    Tensors are not kept alive: their memory would be held as long as the program.
    """

    def __init__(self, slot: Slot) -> None:
        self.label = slot.label
        self._slot_read, self._suffix = slot.read, slot.suffix
        self._mapping = slot.container if isinstance(slot.container, dict) else None
        self._note(slot.saved)

    def _note(self, items: list[tuple[Any, Any]]) -> None:
        self._keys = [key for key, _ in items]
        self._addresses = [id(value) for _, value in items]
        self._values = [None if isinstance(value, torch.Tensor) else value for _, value in items]
        self._tensors = [weakref.ref(value) for _, value in items if isinstance(value, torch.Tensor)]

    def is_unchanged(self) -> bool:
        are_alive = all([tensor() is not None for tensor in self._tensors])  # noqa: C419  # a list is faster
        mapping = self._mapping if are_alive else None  # compared without a list of pairs
        if mapping is not None and [*map(id, mapping.values())] == self._addresses and [*mapping] == self._keys:
            return True
        items = self._slot_read()
        if are_alive and [id(value) for _, value in items] == self._addresses and self._keys == [k for k, _ in items]:
            return True
        if [key for key, _ in items] != self._keys or not are_alive:
            return False
        for (key, now), before, address in zip(items, self._values, self._addresses, strict=True):
            if id(now) != address and not _is_equal(before, now):
                self.label = f"{self.label.removesuffix(self._suffix(key))}{self._suffix(key)}"
                return False
        self._note(items)  # equal, but other objects: found at once the next time
        return True


def _is_equal(before: Any, now: Any) -> bool:
    """Whether another object is an equal plain value."""
    return (isinstance(before, _VALUES) or type(before).__module__ == "numpy") and is_same(before, now)
