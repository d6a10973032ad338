"""Where in the user's code an operation comes from."""

from __future__ import annotations

import os
import sys
from types import FrameType

import networkx
import torch

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PACKAGES = (*(os.path.dirname(os.path.abspath(other.__file__)) + os.sep for other in (torch, networkx)), _OURS)
# The demo's programs lie in this package, and are shown as a user's would be.
_EXAMPLES = os.path.join(_OURS, "examples.py")
_STANDARD_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep


def is_user_frame(frame: FrameType) -> bool:
    """Whether a frame runs the user's code, or an example's: not torch's, the standard library's or ours."""
    file = frame.f_code.co_filename
    is_standard = file.startswith(_STANDARD_LIBRARY) and "site-packages" not in file
    # dataclasses, decorators of torch and networkx
    is_generated = file.startswith(("<frozen", "<class 'networkx")) or file == "<string>"
    is_ours = file.startswith(_PACKAGES) and file != _EXAMPLES
    return not (is_standard or is_generated or is_ours)


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
