"""The cheapest Python call of an operator.

Calling ``torch.ops.aten.add_.Tensor(x, 1)`` costs half a microsecond more than ``x.add_(1)``. Whether the method does
the same is not looked up anywhere: it is called on fake tensors, and what reaches the dispatcher is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from graphalias.executors.eager import callable_of, resolve_argument
from graphalias.executors.functional import empty_like_value
from graphalias.graph import Operation
from graphalias.torch_private import FakeTensorMode, TorchDispatchMode, no_modes, quiet_fakes


class _Seen(TorchDispatchMode):
    """Notes what reaches the dispatcher."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace != "prim":  # fakes ask for each other's device
            self.calls.append((func, tuple(args), dict(kwargs or {})))
        return func(*args, **(kwargs or {}))


def method_of(operation: Operation, bindings: Any) -> str | None:
    """Return the name of the tensor method that does just what the operation does, or None.

    >>> import graphalias
    >>> program = graphalias.capture(lambda x: torch.relu(x).add_(1), torch.ones(2))
    >>> [method_of(operation, {}) for operation in program.operations if operation.is_compute]
    ['relu', 'add_']
    """
    namespace, name, *_ = (*operation.target.split("."), "")
    method = getattr(torch.Tensor, name, None)
    if namespace != "aten" or method is None or not operation.args or operation.kwargs or not operation.operands:
        return None
    if operation.args[0] is not operation.operands[0]:
        return None
    key = (operation.target, tuple(v.dtype + str(len(v.shape)) for v in operation.operands), repr(operation.args[1:]))
    if key not in _answers:
        _answers[key] = _does_the_same(operation, method, bindings)
    return name if _answers[key] else None


_answers: dict[Any, bool] = {}


def _does_the_same(operation: Operation, method: Callable[..., Any], bindings: Any) -> bool:
    seen = _Seen()
    with no_modes(), quiet_fakes(), torch.no_grad(), FakeTensorMode():
        fakes = {value.name: empty_like_value(value) for value in operation.operands}
        args = resolve_argument(operation.args, fakes, bindings)
        try:
            with seen:
                method(*args)
        except Exception:  # then it is another method of that name
            return False
    if len(seen.calls) != 1:
        return False
    func, found, kwargs = seen.calls[0]
    return func is callable_of(operation) and not kwargs and _are_same(found, tuple(args))


def _are_same(found: Any, expected: Any) -> bool:
    if isinstance(expected, (list, tuple)):
        is_sequence = isinstance(found, (list, tuple)) and len(found) == len(expected)
        return is_sequence and all(map(_are_same, found, expected))
    if isinstance(expected, torch.Tensor):
        return found is expected
    return type(found) is type(expected) and repr(found) == repr(expected)
