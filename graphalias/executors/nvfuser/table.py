"""The table of ATen operations that can be part of a fusion: how each is lowered, and what it does to positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

#: What an operation does to the positions of elements. The break rule asks.
POINTWISE = "pointwise"  # each element from those at its own position
MOVE = "view"  # elements as they are, elsewhere: nvFuser may return a view of the operand's memory
REARRANGE = "rearrange"  # elements of several positions or tensors put together
REDUCE = "reduce"
CREATE = "create"
PRODUCT = "product"


@dataclass(frozen=True)
class Lowering:
    """How an ATen operation becomes nvFuser operations.

    Parameters
    ----------
    kind : str
    emit : callable
        Takes the builder, the node and its arguments; returns an nvFuser value, or a list for several results.
    how : str
        In words, for the documentation.
    refuse : callable
        Returns why a node of this target can't be lowered after all; None where it can.
    """

    kind: str
    emit: Callable[..., Any]
    how: str
    refuse: Callable[[Node], str | None] | None = None


TABLE: dict[str, Lowering] = {}

Emit = Callable[..., Any]


def lowers(
    *targets: str, kind: str, how: str, refuse: Callable[[Node], str | None] | None = None
) -> Callable[[Emit], Emit]:
    """Enter a function into the table."""

    def enter(emit: Emit) -> Emit:
        for target in targets:
            TABLE[target] = Lowering(kind, emit, how, refuse)
        return emit

    return enter


def lowering_of(node: Node) -> Lowering | None:
    """Return how a node is lowered; None if it is not in the table."""
    return TABLE.get(str(node.target)) if node.op == "call_function" else None


def why_not_lowered(node: Node) -> str | None:
    """Return why a node can't be lowered; None where it can."""
    lowering = lowering_of(node)
    if lowering is None:
        return f"nvFuser has no lowering of {node.target}"
    return None if lowering.refuse is None else lowering.refuse(node)


def is_always_lowered(target: str) -> bool:
    """Whether an elementwise operation, or what its in-place form computes, is lowered whatever its arguments are.

    >>> from graphalias.executors import nvfuser  # fills the table
    >>> is_always_lowered("aten.mul_.Tensor"), is_always_lowered("aten.remainder_.Scalar")
    (True, False)
    """
    packet, _, overload = target.rpartition(".")
    lowering = TABLE.get(f"{packet.removesuffix('_')}.{overload}")
    return lowering is not None and lowering.kind == POINTWISE and lowering.refuse is None


def dtype_of(argument: Any) -> torch.dtype:
    """Return the dtype of a node's result."""
    return argument.meta["val"].dtype


def shape_of(argument: Any) -> tuple[int, ...]:
    """Return the shape of a node's result, of the first of several; that of a number is empty."""
    value = argument.meta["val"] if isinstance(argument, Node) else None
    value = value[0] if isinstance(value, (list, tuple)) else value
    return tuple(value.shape) if value is not None else ()


def argument_of(node: Node, position: int, name: str, default: Any = None) -> Any:
    """Return an argument given by position or by name."""
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)
