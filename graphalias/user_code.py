"""The function or module that a command line names: ``model:step``, ``model.py:Net``, ``torch.nn:ReLU``."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from graphalias.errors import GraphAliasError


class UserCodeError(GraphAliasError):
    """The code named on a command line can't be found or made ready."""


def load(name: str, *, seed: int = 0) -> Callable[..., Any]:
    """Return what ``module:function`` names.

    Parameters
    ----------
    name : str
        ``module:function``, ``folder/file.py:function``, or the same with a dotted path, as in ``model:Net.loss``. An
        ``nn.Module`` class is called without arguments; its parameters are drawn from the seed.
    seed : int

    Returns
    -------
    callable

    Raises
    ------
    UserCodeError
        If there is no such thing, or it can't be called.

    Examples
    --------
    >>> load("torch.nn:ReLU")
    ReLU()
    """
    module_name, colon, path = name.rpartition(":")
    if not (colon and module_name and path):
        raise UserCodeError(f"{name!r} names no function", hint="write module:function, or file.py:function")
    found: Any = _import(module_name)
    for attribute in path.split("."):
        found = _attribute(found, attribute, name)
    return _ready(found, name, seed)


def _import(name: str) -> ModuleType:
    if name.endswith(".py") or os.sep in name:
        return _import_file(Path(name))
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # found, and it imports what is not there
        raise UserCodeError(
            f"there is no module {error.name!r}, neither here nor installed",
            hint=f"a file is written {name.replace('.', '/')}.py:function",
        ) from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserCodeError(f"there is no file {str(path)!r}")
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        raise UserCodeError(f"{str(path)!r} is no Python file", hint="write file.py:function")
    sys.path.insert(0, str(path.resolve().parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def _attribute(owner: Any, attribute: str, name: str) -> Any:
    try:
        return getattr(owner, attribute)
    except AttributeError as error:
        there = [key for key, item in vars(owner).items() if callable(item)] if hasattr(owner, "__dict__") else []
        close = difflib.get_close_matches(attribute, there, n=3)
        where = getattr(owner, "__name__", type(owner).__name__)
        hint = f"did you mean {' or '.join(close)}?" if close else None
        raise UserCodeError(f"{name!r}: {where} has no {attribute!r}", hint=hint) from error


def _ready(found: Any, name: str, seed: int) -> Callable[..., Any]:
    """Return an instance of a module's class, and anything else that can be called as it is."""
    if inspect.isclass(found) and issubclass(found, torch.nn.Module):
        try:
            inspect.signature(found).bind()
        except TypeError as error:
            raise UserCodeError(
                f"{name!r} is a class whose constructor takes arguments: {error}",
                hint="make a module in the file, as in `net = Net(64)`, and name that",
            ) from error
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return found()  # type: ignore[return-value]
    if not callable(found) or inspect.isclass(found):
        raise UserCodeError(
            f"{name!r} is of type {type(found).__name__}: expected a function, an nn.Module, or an nn.Module's class"
        )
    return found


def check_arguments(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check that a callable can be called with these arguments, by their number and names.

    Raises
    ------
    UserCodeError
        If it can't be.
    """
    called = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # some built-in functions have none: the call will tell
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        name = getattr(fn, "__name__", type(fn).__name__)
        parameters = ", ".join(str(item.replace(annotation=item.empty)) for item in signature.parameters.values())
        raise UserCodeError(
            f"{name}({parameters}) does not take the {len(args) + len(kwargs)} inputs given: {error}",
            hint="give each argument with an --input of its own, as in --input 'f32[4,4]'",
        ) from error
