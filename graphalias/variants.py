"""Variants of an operator, told by schemas: the one that works in place, the one that writes to ``out``."""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import Any

import torch


def operator_of(target: str) -> Any:
    """Return the operator of an ATen target."""
    return attrgetter(target)(torch.ops)


@cache
def in_place_target(target: str) -> str | None:
    """Return the target that does the same over its first operand, for a pointwise one that writes nothing.

    >>> in_place_target("aten.mul.Tensor"), in_place_target("aten.mm.default"), in_place_target("aten.mul_.Tensor")
    ('aten.mul_.Tensor', None, None)
    """
    namespace, _, rest = target.partition(".")
    name, _, overload = rest.partition(".")
    return _if_it_writes(target, f"{namespace}.{name}_.{overload}", 0)


@cache
def out_target(target: str) -> str | None:
    """Return the target that writes its result to ``out``, for a pointwise one that writes nothing.

    >>> out_target("aten.neg.default"), out_target("aten.add.Tensor"), out_target("aten.neg_.default")
    ('aten.neg.out', 'aten.add.out', None)
    """
    namespace, _, rest = target.partition(".")
    name, _, overload = rest.partition(".")
    candidates = ["out"] if overload in ("default", "Tensor") else [f"{overload}_out"]
    found = (_if_it_writes(target, f"{namespace}.{name}.{candidate}", -1) for candidate in candidates)
    return next(filter(None, found), None)


def _if_it_writes(target: str, other: str, position: int) -> str | None:
    """Return another target if it takes what a pointwise one takes, and writes the argument at a position as well."""
    try:
        pure, writing = operator_of(target), operator_of(other)
    except (AttributeError, ValueError, RuntimeError):
        return None
    mine, theirs = pure._schema.arguments, writing._schema.arguments
    if torch.Tag.pointwise not in pure.tags or any(argument.alias_info for argument in mine):
        return None
    own = theirs if position == 0 else theirs[:-1]
    is_alike = [(a.name, str(a.type)) for a in mine] == [(a.name, str(a.type)) for a in own]
    written = [i for i, argument in enumerate(theirs) if argument.alias_info and argument.alias_info.is_write]
    return other if is_alike and written == [position % len(theirs)] and len(pure._schema.returns) == 1 else None
