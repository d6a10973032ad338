"""Which operations can be part of a fusion, and why others stay outside."""

from __future__ import annotations

import operator
import threading
from typing import Any

from torch.fx import Node

from graphalias import stages
from graphalias.executors.functional import alone
from graphalias.executors.nvfuser import products
from graphalias.executors.nvfuser.builder import DTYPES
from graphalias.executors.nvfuser.form import form_of, is_view, root_of
from graphalias.executors.nvfuser.table import is_always_lowered, why_not_lowered
from graphalias.graph import Operation, Value
from graphalias.values import may_repeat

NO_GAIN = "pure data movement"

_lock = threading.Lock()
_answers: dict[Any, tuple[str | None, int]] = {}


def why_outside(operation: Operation, fuses_products: bool) -> str | None:
    """Return why an operation can't be part of a region; None where it can."""
    return _why_by_values(operation, fuses_products) or _answer(operation)[0]


def why_not_inside(view: Operation) -> str | None:
    """Return why a view can't be made inside a region, where it may be written through; None where it can."""
    reason = _answer(view)[0]
    return None if reason == NO_GAIN else reason


def count_operations(operation: Operation) -> int:
    """Return how many operations of nvFuser an operation becomes, about: its nodes in functional form, casts aside."""
    return _answer(operation)[1]


def _why_by_values(operation: Operation, fuses_products: bool) -> str | None:
    """Return what in an operation's name and tensors keeps it outside."""
    if not operation.target.startswith("aten."):
        return "not an ATen operation"
    if operation.target in products.TARGETS and not fuses_products:
        return "a matrix product: ATen's own is faster"
    values = [value for value in (*operation.operands, *operation.results) if value]
    for value in values:
        if value.conj or value.neg or value.dtype.startswith("c"):
            return "complex numbers are left to ATen"
        if value.dtype not in DTYPES:
            return f"nvFuser has no dtype {value.dtype}"
        if 0 in value.shape:
            return "no elements: nothing to compute"
        if may_repeat([n for n, s in zip(value.shape, value.stride, strict=True) if s], [s for s in value.stride if s]):
            return "elements of an operand overlap"
    if all(value.size_bytes <= value.itemsize for value in values):
        return "single elements: nothing to gain"
    if len({value.device for value in values}) > 1:
        return "tensors on several devices"
    if operation.target == "aten.clone.default":
        return NO_GAIN
    return None


def _answer(operation: Operation) -> tuple[str | None, int]:
    """Return why an operation's functional form can't be lowered, and how many nodes it has; once for a kind."""
    key: tuple[Any, ...] = (
        operation.target, tuple(v.dtype for v in operation.operands), tuple(r is not None for r in operation.results),
        [type(argument) for argument in operation.args] if is_always_lowered(operation.target) else [
            tuple(v.shape for v in operation.operands),
            [argument for argument in operation.args if not isinstance(argument, (Value, list))],
            {name: a for name, a in operation.kwargs.items() if not isinstance(a, (Value, list))},
        ],
    )  # fmt: skip
    key = (*key[:-1], repr(key[-1]))
    with _lock:
        if key not in _answers:
            _answers[key] = _ask_functional_form(operation)
        return _answers[key]


def _ask_functional_form(operation: Operation) -> tuple[str | None, int]:
    try:
        form = form_of(alone(operation))
    except Exception as error:
        return f"PyTorch can't make it functional: {type(error).__name__}", 1
    nodes = (
        list(form.graph.nodes)[:-1] if stages.is_view(operation) else form.live([*form.outputs, *form.writes.values()])
    )
    reasons = (_why_not(node) for node in nodes if node.op != "placeholder")
    return next((reason for reason in reasons if reason is not None), _why_no_gain(form.outputs)), len(nodes)


def _why_no_gain(outputs: list[Node]) -> str | None:
    only_moves = outputs and all(is_view(node) and root_of(node).op == "placeholder" for node in outputs)
    return NO_GAIN if only_moves else None


def _why_not(node: Node) -> str | None:
    if node.op != "call_function":
        return "it holds a tensor of its own"
    return None if node.target is operator.getitem else why_not_lowered(node)
