"""Executors turn operations into calls. ``eager`` is always there: one ATen call an operation, the reference."""

from __future__ import annotations

from graphalias.errors import ExecutorError

EXECUTORS = ("eager",)


def resolve_executor(name: str) -> str:
    """Return the executor of a name; ``auto`` is the best one present.

    Raises
    ------
    ExecutorError
        If there is none of that name.
    """
    if name == "auto":
        return EXECUTORS[0]
    if name not in EXECUTORS:
        raise ExecutorError(f"no executor {name!r}", hint=f"use one of {', '.join(EXECUTORS)}, or auto")
    return name
