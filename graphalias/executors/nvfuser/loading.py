"""nvFuser itself: imported when asked for, and not before; why it can't be where it can't."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from graphalias.errors import ExecutorError

MODULE = "nvfuser_direct"
#: Older ones lack what is called here, such as the script that reproduces a fusion.
OLDEST = (0, 2, 34)
HINT = "pip install --pre 'graphalias[nvfuser]' (Python 3.10 or 3.12, torch 2.10), or use executor inductor or auto"


@functools.cache
def load() -> ModuleType:
    """Return the module ``nvfuser_direct``.

    Raises
    ------
    ExecutorError
        If it is not installed, too old, or can't be loaded beside this torch.
    """
    if importlib.util.find_spec(MODULE) is None:
        raise ExecutorError(f"executor nvfuser needs {MODULE}, which is not installed", hint=HINT)
    try:
        with _lazy_symbols():
            module = importlib.import_module(MODULE)
    except Exception as error:
        import torch

        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ExecutorError(
            f"{MODULE} can't be loaded beside torch {torch.__version__}: {reason[0]}", hint=HINT
        ) from error  # fmt: skip
    found = version_of(module)
    if found < OLDEST:
        raise ExecutorError(
            f"{MODULE} {'.'.join(map(str, found))} is too old: expected {'.'.join(map(str, OLDEST))} or newer",
            hint=HINT,
        )  # fmt: skip
    return module


def why_unavailable() -> str | None:
    """Return why nvFuser can't be used here; None where it can."""
    try:
        load()
    except ExecutorError as error:
        return str(error)
    return None


def version_of(module: ModuleType) -> tuple[int, ...]:
    """Return a module's version as numbers, without what marks a build.

    >>> version_of(type("", (), {"__version__": "0.2.36+git7e04d26"}))
    (0, 2, 36)
    """
    numbers = re.match(r"\d+(\.\d+)*", str(getattr(module, "__version__", "")))
    return tuple(map(int, numbers[0].split("."))) if numbers else (0,)


@contextmanager
def _lazy_symbols() -> Iterator[None]:
    """Resolve symbols when they are called: beside torch 2.11, one that logging alone calls is missing."""
    flags = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_LAZY)
    try:
        yield
    finally:
        sys.setdlopenflags(flags)
