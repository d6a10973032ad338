"""The off switches: `disabled()` for a block, ``GRAPHALIAS_DISABLE=1`` for a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_is_off = ContextVar("graphalias_disabled", default=os.environ.get("GRAPHALIAS_DISABLE", "") not in ("", "0"))


@contextmanager
def disabled() -> Iterator[None]:
    """Let jitted functions call the original ones inside the block, in this thread.

    The environment variable ``GRAPHALIAS_DISABLE=1``, read when the package is imported, does so everywhere.

    Returns
    -------
    context manager

    Examples
    --------
    >>> import torch, graphalias
    >>> square = graphalias.jit(lambda x: x * x, executor="eager")
    >>> with graphalias.disabled():
    ...     square(torch.ones(1))
    tensor([1.])
    >>> square.cache_info().currsize
    0
    """
    token = _is_off.set(True)
    try:
        yield
    finally:
        _is_off.reset(token)


#: Whether an off switch is on; the same as `is_disabled`, for who asks often.
is_switched_off = _is_off.get


def is_disabled() -> bool:
    """Whether an off switch is on."""
    return _is_off.get()
