"""Python state a captured program was made from: when it is not what it was, another program is needed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable
from itertools import chain
from operator import is_, itemgetter, methodcaller
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from graphalias.tracing.reach import reachable_slots
from graphalias.tracing.slots import MISSING, Slot, is_same

_values_of = methodcaller("values")
#: Where modules keep hooks.
_HOOKS = frozenset(name for name, held in vars(torch.nn.Module()).items() if "_hooks" in name and held is not None)
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
        self._empty = [(slot.container, slot.label) for slot in empty]
        self.parts = [_Part(slot) for slot in slots if slot.container is None or slot.container]
        self.empty: list[Any] = []
        self._note()

    def _note(self) -> None:
        """Note the objects of all parts, to be compared without a call for each part.

        Those of parts with tensors are not: they would be kept alive, as their memory.
        """
        self._hook_count = RemovableHandle.next_id
        quick = [part for part in self.parts if not part.tensors]
        self._names = [pair for part in quick for pair in zip(part.getters, part.values, strict=False)]
        mappings = [part.mapping for part in quick if part.mapping is not None]
        modules = [mapping for mapping in mappings if mapping.keys() >= _HOOKS]
        self._ordered = [mapping for mapping in mappings if not mapping.keys() >= _HOOKS]
        readers: list[tuple[Callable[[Any], Iterable[Any]], Any]] = [(_values_of, mapping) for mapping in self._ordered]
        readers += [(itemgetter(*(mapping.keys() - _HOOKS)), mapping) for mapping in modules]
        self._readers, self._lengths = readers, [len(mapping) for _, mapping in readers]
        self._held = [value for read, mapping in readers for value in read(mapping)]
        self._keys = [*chain.from_iterable(self._ordered)]
        self._others = [part for part in self.parts if part.tensors or (part.mapping is None and not part.getters)]
        hooks = {id(mapping[name]) for mapping in modules for name in _HOOKS}
        self.empty[:] = [container for container, _ in self._empty if id(container) not in hooks]
        self._hooks = [container for container, _ in self._empty if id(container) in hooks]

    def change(self) -> str | None:
        """Return the name of something that is not what it was, or None."""
        try:
            if not any(self.empty) and self._are_hooks_as_noted() and self._is_as_noted():
                return None
        except (KeyError, ValueError):  # an attribute or a variable that is closed over was deleted
            pass
        for container, label in self._empty:
            if container and not _is_compilers(container):
                return label
        self._empty = [(container, label) for container, label in self._empty if not container]
        for part in self.parts:
            if not part.is_unchanged():
                return part.label
        self._note()  # equal, but other objects: found at once the next time
        return None

    def _are_hooks_as_noted(self) -> bool:
        """Whether modules without hooks have none; torch counts what is registered."""
        count = RemovableHandle.next_id
        if count == self._hook_count:
            return True
        if any(self._hooks):
            return False
        self._hook_count = count
        return True

    def _is_as_noted(self) -> bool:
        """Whether everything is the very object it was."""
        for get, value in self._names:
            if get() is not value:
                return False
        if self._readers and not self._are_mappings_as_noted():
            return False
        return not self._others or all(part.is_unchanged() for part in self._others)

    def _are_mappings_as_noted(self) -> bool:
        held = chain.from_iterable([read(mapping) for read, mapping in self._readers])
        is_same_row = (
            all(map(is_, held, self._held)) and [len(mapping) for _, mapping in self._readers] == self._lengths
        )
        return is_same_row and [*chain.from_iterable(self._ordered)] == self._keys


def _is_nothing(slot: Slot) -> bool:
    """Whether a slot is of no names, or of such that nothing has, or holds only what is no user's.

    Attributes' names are looked for among globals too.
    """
    is_missing = slot.container is None and all(value is MISSING for _, value in slot.saved)
    return is_missing or (bool(slot.container) and _is_compilers(slot.container))


def _is_compilers(container: Any) -> bool:
    """Whether a dict holds only what torch.compile hangs on tensors and modules."""
    return isinstance(container, dict) and all(str(key).startswith("_dynamo") for key in container)


class _Part:
    """A slot, compared by address, which tells enough of what is kept alive; then by value, where that is plain.

    Tensors are not kept alive: their memory would be held as long as the program.
    """

    def __init__(self, slot: Slot) -> None:
        self.label, self.getters = slot.label, slot.getters
        self._slot_read, self._suffix = slot.read, slot.suffix
        self.mapping = slot.container if isinstance(slot.container, dict) else None
        self._note(slot.saved)

    def _note(self, items: list[tuple[Any, Any]]) -> None:
        self._keys = [key for key, _ in items]
        self._addresses = [id(value) for _, value in items]
        self.values = [None if isinstance(value, torch.Tensor) else value for _, value in items]
        self.tensors = [weakref.ref(value) for _, value in items if isinstance(value, torch.Tensor)]

    def is_unchanged(self) -> bool:
        are_alive = all([tensor() is not None for tensor in self.tensors])  # noqa: C419  # a list is faster
        items = self._slot_read()
        if [key for key, _ in items] != self._keys or not are_alive:
            return False
        if [id(value) for _, value in items] == self._addresses:
            return True
        for (key, now), before, address in zip(items, self.values, self._addresses, strict=True):
            if id(now) != address and not _is_equal(before, now):
                self.label = f"{self.label.removesuffix(self._suffix(key))}{self._suffix(key)}"
                return False
        self._note(items)
        return True


def _is_equal(before: Any, now: Any) -> bool:
    """Whether another object is an equal plain value."""
    return (isinstance(before, _VALUES) or type(before).__module__ == "numpy") and is_same(before, now)
