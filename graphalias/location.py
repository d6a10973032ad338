"""Where in the user's code an operation comes from."""

from __future__ import annotations

import contextlib
import os
import sys
from types import FrameType

import networkx
import torch

_NOT_THE_USER = tuple(
    os.path.dirname(os.path.abspath(file)) + os.sep for file in (torch.__file__, networkx.__file__, __file__)
)
_NOT_THE_USER_FILES = frozenset({contextlib.__file__})


def is_user_frame(frame: FrameType) -> bool:
    """Whether a frame runs the user's code: not torch's, not ours."""
    file = frame.f_code.co_filename
    return not (file.startswith((*_NOT_THE_USER, "<frozen")) or file in _NOT_THE_USER_FILES)


def describe(frame: FrameType, line: int | None = None) -> str:
    """Return ``file:line``. Generated code is numbered by torch; the number would make texts differ."""
    file = frame.f_code.co_filename
    return f"{'<eval_with_key>' if file.startswith('<eval_with_key>') else file}:{line or frame.f_lineno}"


def user_location() -> str | None:
    """Return ``file:line`` of the innermost frame of the user's code, or None.

    Examples
    --------
    >>> user_location() is None or ":" in user_location()
    True
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_user_frame(frame):
        frame = frame.f_back
    return describe(frame) if frame is not None else None
