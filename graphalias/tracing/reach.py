"""The Python state a function can reach: closures, globals it names, attributes of what it is given."""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

from graphalias.torch_guards import global_hooks
from graphalias.tracing.slots import Slot, attributes_slot, cell_slot, names_slot, slot_of

#: Packages whose own functions keep no state that a captured function changes. Objects of their classes are
#: looked at where they are containers or modules, their code is not.
_TRUSTED = frozenset({*sys.stdlib_module_names, "torch", "torchgen", "numpy", "networkx", "graphalias"}) - {"__main__"}

_LOOKED_INTO = (torch.nn.Module, torch.optim.Optimizer, types.SimpleNamespace)

_Found = Iterator["Slot | tuple[str, Any]"]


def reachable_slots(roots: list[tuple[str, Any]]) -> list[Slot]:
    """Return every slot that is reached from some things, each once.

    Parameters
    ----------
    roots : list of (str, object)
        With the name messages call it by; a function's own is not shown.

    Examples
    --------
    >>> net = types.SimpleNamespace(n=1, sizes=[2])
    >>> [slot.label for slot in reachable_slots([("net", net)])]
    ['net', 'net.sizes']
    """
    slots: list[Slot] = []
    seen: set[int] = set()
    alive: list[Any] = []  # what seen holds are addresses
    waiting = list(reversed(roots))
    while waiting:
        label, thing = waiting.pop()
        if id(thing) in seen or _is_still(thing):
            continue
        seen.add(id(thing))
        alive.append(thing)
        found = list(_look_into(label, thing))
        slots += [item for item in found if isinstance(item, Slot)]
        waiting += reversed([item for item in found if not isinstance(item, Slot)])
    return slots


def _is_still(thing: Any) -> bool:
    return thing is None or isinstance(thing, (bool, int, float, complex, str, bytes, torch.dtype))


def is_trusted(thing: Any) -> bool:
    """Whether a function or class is the standard library's, torch's or ours.

    >>> is_trusted(torch.nn.Linear), is_trusted(type("Net", (), {"__module__": "mine"}))
    (True, False)
    """
    module = getattr(thing, "__module__", None) or ""
    return module.partition(".")[0] in _TRUSTED


def _look_into(label: str, thing: Any) -> _Found:
    """Yield the slots of a thing, and what to look into next."""
    if isinstance(thing, torch.Tensor):
        yield attributes_slot(label, thing)
    elif isinstance(thing, types.FunctionType):
        yield from () if is_trusted(thing) else _function(label, thing)
    elif isinstance(thing, types.MethodType):
        yield label or type(thing.__self__).__name__, thing.__self__
        yield label, thing.__func__
    elif isinstance(thing, functools.partial):
        yield from ((label, part) for part in (thing.func, thing.args, thing.keywords))
    elif isinstance(thing, (staticmethod, classmethod)):
        yield label, thing.__func__
    elif isinstance(thing, property):
        yield from ((label, part) for part in (thing.fget, thing.fset))
    elif isinstance(thing, type):
        yield from () if is_trusted(thing) else _class(thing)
    elif isinstance(thing, (tuple, frozenset)):
        yield from ((f"{label}[{i}]", item) for i, item in enumerate(thing))
    else:
        yield from _object(label or type(thing).__name__, thing)


def _function(label: str, function: types.FunctionType) -> _Found:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        slot = cell_slot(f"the closed-over variable {name}", cell)
        yield slot
        yield name, slot.saved[0][1]
    yield from ((f"a default of {function.__name__}", value) for value in function.__defaults__ or ())
    yield from ((f"a default of {function.__name__}", value) for value in (function.__kwdefaults__ or {}).values())
    yield attributes_slot(function.__name__, function)
    yield from ((f"{function.__name__}.{key}", value) for key, value in vars(function).items())
    names = sorted(_names(function.__code__))
    yield names_slot("the global ", names, function.__globals__)
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, types.ModuleType):
            yield from () if value.__name__.partition(".")[0] in _TRUSTED else _module(value, names)
        else:
            yield name, value


def _names(code: types.CodeType) -> set[str]:
    """Return the names of globals and attributes in a function's code and in the functions inside it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _module(module: types.ModuleType, names: list[str]) -> _Found:
    known = [name for name in names if name in vars(module)]
    yield names_slot(f"{module.__name__}.", known, vars(module))
    yield from ((f"{module.__name__}.{name}", getattr(module, name)) for name in known)


def _class(cls: type) -> _Found:
    code = {name: value for name, value in vars(cls).items() if isinstance(value, _DESCRIPTORS)}
    names = [name for name in vars(cls) if name not in code and not (name.startswith("__") and name.endswith("__"))]
    names = [*code, *names]
    yield names_slot(cls.__name__, names, cls)
    yield from ((f"{cls.__name__}.{name}", vars(cls)[name]) for name in names)
    yield from ((base.__name__, base) for base in cls.__bases__)


_DESCRIPTORS = (types.FunctionType, staticmethod, classmethod, property, types.MemberDescriptorType)


def _object(label: str, thing: Any) -> _Found:
    slot = slot_of(label, thing)
    if slot is not None:
        yield slot
        yield from slot.parts() if isinstance(thing, (dict, list, collections.deque)) else ()
    wrapped = getattr(thing, "__wrapped__", None)  # jitted and cached functions
    if wrapped is not None:
        yield label, wrapped
    if is_trusted(type(thing)) and not isinstance(thing, _LOOKED_INTO):
        return
    if isinstance(thing, torch.nn.Module):
        yield from (("torch's hooks of every module", hooks) for hooks in global_hooks())
    if hasattr(thing, "__dict__"):
        yield attributes_slot(label, thing)
        yield from ((f"{label}.{key}", value) for key, value in vars(thing).items())
    names = [name for cls in type(thing).__mro__ for name in _slot_names(cls) if hasattr(thing, name)]
    if names:
        yield names_slot(label, names, thing)
        yield from ((f"{label}.{name}", getattr(thing, name)) for name in names)
    yield type(thing).__name__, type(thing)


def _slot_names(cls: type) -> list[str]:
    names = vars(cls).get("__slots__", ())
    names = [names] if isinstance(names, str) else names
    return [name for name in names if name not in ("__dict__", "__weakref__")]
