"""Errors of eager PyTorch that fake tensors do not raise: asked of the real operator, on scratch memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphalias.effects import Operand


def refuse_what_eager_refuses(
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], operands: Sequence[Operand]
) -> None:
    """Raise what eager would."""
