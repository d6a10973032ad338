"""The functional form of a region that is elementwise throughout: made directly, a tenth of the time of tracing it."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from graphalias.executors.eager import callable_of
from graphalias.executors.nvfuser.table import is_always_lowered
from graphalias.graph import Operation, Program, Value, map_values
from graphalias.symbols import DTYPES


def elementwise_form(body: Program) -> tuple[Graph, dict[Node, Node]] | None:
    """Return the graph of a region's body, and the value each written input has in the end.

    Parameters
    ----------
    body : Program
        Of a region node.

    Returns
    -------
    tuple or None
        None where tracing has to tell: something is not elementwise, or two handles see one storage.
    """
    operations = [operation for operation in body.operations if operation.is_compute]
    if not all(map(_is_simple, operations)) or not _has_one_handle_each(body):
        return None
    graph = Graph()
    current: dict[str, Node] = {}  # by object: its value
    inputs = {value.object: graph.placeholder(value.name) for value in body.inputs}
    for value in body.inputs:
        inputs[value.object].meta["val"] = _stand_in(value)
    current |= inputs
    for operation in operations:
        (result,) = operation.results
        assert result is not None
        args = map_values(operation.args, lambda value: current[value.object])
        target = callable_of(operation.replace(target=_functional(operation.target)))
        name = _functional(operation.target).split(".")[1]  # as tracing calls it
        node = graph.create_node("call_function", target, tuple(args), dict(operation.kwargs), name=name)
        node.meta["val"] = _stand_in(result)
        current[result.object] = node
    graph.output(tuple(current[value.object] for value in body.outputs))
    written = {node: current[name] for name, node in inputs.items() if current[name] is not node}
    return graph, written


def _functional(target: str) -> str:
    """Return the target that computes what an in-place one writes.

    >>> _functional("aten.add_.Tensor"), _functional("aten.add.Tensor")
    ('aten.add.Tensor', 'aten.add.Tensor')
    """
    packet, _, overload = target.rpartition(".")
    return f"{packet.removesuffix('_')}.{overload}"


def _is_simple(operation: Operation) -> bool:
    arguments = (*operation.args, *operation.kwargs.values())
    is_plain = all(isinstance(argument, (Value, bool, int, float)) or argument is None for argument in arguments)
    return is_always_lowered(operation.target) and is_plain and len(operation.results) == 1


def _has_one_handle_each(body: Program) -> bool:
    """Whether each storage is seen through one object, so that no view sees a write."""
    objects: dict[str, str] = {}
    values = (value for operation in body.operations for value in operation.results if value)
    return all(objects.setdefault(value.storage.name, value.object) == value.object for value in values)


def _stand_in(value: Value) -> torch.Tensor:
    """Return what tells a node's dtype and shape."""
    return torch.empty(value.shape, dtype=DTYPES[value.dtype], device="meta")
