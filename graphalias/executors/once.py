"""Regions compiled once: those that differ in names only share what an executor made of the first."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from graphalias.canonical import canonical_text
from graphalias.errors import ExecutorError
from graphalias.executors import Executor, eager
from graphalias.graph import Operation

logger = logging.getLogger("graphalias")
_lock = threading.Lock()
_compiled: dict[Any, Callable[..., Any]] = {}
_failed: dict[Any, ExecutorError] = {}


def compiled_region(region: Operation, executor: Executor, strict: bool = False) -> Callable[..., Any]:
    """Return a region as a function; regions that differ in names only are compiled once.

    Where the executor can't, its operations run one by one, and a warning says so.
    """
    key = (id(executor), canonical_text(region.body), region.writes)
    with _lock:
        if key not in _compiled and key not in _failed:
            try:
                _compiled[key] = executor.compile_region(region)
            except ExecutorError as error:
                _failed[key] = error
                if not strict:
                    logger.warning("%s; its operations run one by one", error)
        if key in _compiled:
            return _compiled[key]
    if strict:
        raise _failed[key]
    return eager.compile_region(region)
