"""A region's functional form, with each write as the value an input has in the end: reads come from the graph alone."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from graphalias.executors.functional import functional_form
from graphalias.executors.nvfuser import arithmetic, movement, pointwise, products, reductions  # noqa: F401  # they fill the table
from graphalias.executors.nvfuser.elementwise import elementwise_form
from graphalias.executors.nvfuser.table import CREATE, MOVE, TABLE, dtype_of, lowering_of, shape_of
from graphalias.graph import Program

#: What is taken apart by PyTorch's own decompositions besides the ones every backend takes.
_TAKEN_APART = """
    _log_softmax _native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training
    _softmax elu gelu hardtanh leaky_relu native_batch_norm native_group_norm native_layer_norm
"""


def taken_apart() -> list[str]:
    """Return the names of operations that PyTorch's decompositions take apart here, besides the usual ones."""
    return _TAKEN_APART.split()


@functools.cache
def decompositions() -> dict[Any, Any]:
    """Return the decompositions of what is not in the table."""
    from torch._decomp import core_aten_decompositions, get_decompositions

    packets = [getattr(torch.ops.aten, name) for name in taken_apart()]
    table = {**core_aten_decompositions(), **get_decompositions(packets)}
    return {target: function for target, function in table.items() if str(target) not in TABLE}


@dataclass(frozen=True)
class Form:
    """A pure graph.

    Attributes
    ----------
    graph : torch.fx.Graph
    inputs : list of Node
    outputs : list of Node
        What the region makes: fresh values.
    writes : dict of int to Node
        By input: the value it has in the end, in its dtype and shape.
    """

    graph: Graph
    inputs: list[Node]
    outputs: list[Node]
    writes: dict[int, Node]

    def live(self, wanted: Iterable[Node]) -> list[Node]:
        """Return the nodes that some nodes are computed from, themselves included, in order."""
        reached: set[Node] = set()
        waiting = list(wanted)
        while waiting:
            node = waiting.pop()
            if node not in reached:
                reached.add(node)
                waiting += node.all_input_nodes
        return [node for node in self.graph.nodes if node in reached]


def form_of(body: Program) -> Form:
    """Return the functional form of a region's body."""
    made = elementwise_form(body)
    return _traced(body) if made is None else _form(*made)


def _form(graph: Graph, written: dict[Node, Node]) -> Form:
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    outputs = list(next(node for node in graph.nodes if node.op == "output").args[0])
    return Form(graph, inputs, outputs, {inputs.index(target): value for target, value in written.items()})


def _traced(body: Program) -> Form:
    """Return the form that PyTorch's functionalisation and decompositions make."""
    module, _ = functional_form(body, decompositions(), keeps_views=True)
    graph = module.graph
    last: dict[Node, Node] = {}
    at_the_end = _writes_at_the_end(graph)
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.copy_.default:
            target, value = node.args[0], node.args[1]
            # the writes at the end are of values; one in the middle is read by what follows it
            value = _fitted(graph, node, value if node in at_the_end else last.get(value, value), target)
            if value.op == "placeholder" and value is not target:  # a read of that input, to be seen by the rule
                with graph.inserting_before(node):
                    value = _inserted(graph, torch.ops.aten.alias.default, value)
            last[target] = value
            for user in list(node.users):
                if user.target is node.target and user.args[0] is node:
                    user.update_arg(0, target)  # the same input written again
            node.replace_all_uses_with(value)
            graph.erase_node(node)
        elif node.op == "call_function":
            for old, new in last.items():
                node.replace_input_with(old, new)
            _forget_contents(graph, node)
    return _form(graph, last)


def _writes_at_the_end(graph: Graph) -> set[Node]:
    last: set[Node] = set()
    for node in reversed(list(graph.nodes)[:-1]):
        if node.target is not torch.ops.aten.copy_.default:
            break
        last.add(node)
    return last


def _forget_contents(graph: Graph, node: Node) -> None:
    """Replace an operation that takes a tensor for its dtype and shape alone by one that does not."""
    instead: Node | None = None
    if node.target is torch.ops.aten.copy.default:
        instead = _fitted(graph, node, node.args[1], node)
    elif kind_of(node) == CREATE and node.all_input_nodes:
        number = node.args[1] if "full" in str(node.target) else 0
        with graph.inserting_before(node):
            instead = graph.call_function(torch.ops.aten.full.default, (list(shape_of(node)), number))
        instead.meta["val"] = node.meta["val"]
    if instead is not None:
        node.replace_all_uses_with(instead)
        graph.erase_node(node)


def _fitted(graph: Graph, before: Node, value: Node, target: Node) -> Node:
    """Return a value in the dtype and shape of what it is written to."""
    with graph.inserting_before(before):
        if dtype_of(value) != dtype_of(target):
            value = _inserted(graph, torch.ops.aten._to_copy.default, value, dtype=dtype_of(target))
        if shape_of(value) != shape_of(target):
            value = _inserted(graph, torch.ops.aten.expand.default, value, list(shape_of(target)))
    return value


def _inserted(graph: Graph, target: Any, value: Node, *args: Any, **kwargs: Any) -> Node:
    node = graph.call_function(target, (value, *args), kwargs)
    node.meta["val"] = target(value.meta["val"], *args, **kwargs)
    return node


def kind_of(node: Node) -> str | None:
    """Return what a node does to positions; None of an input."""
    if node.target is operator.getitem:
        return kind_of(node.args[0])
    lowering = lowering_of(node)
    return lowering.kind if lowering is not None else None


def is_view(node: Node) -> bool:
    """Whether a node's elements are its first operand's as they are, so that it may come back as a view of it."""
    return kind_of(node) == MOVE


def root_of(node: Node) -> Node:
    """Return what a chain of views is of."""
    while is_view(node):
        node = node.args[0]
    return node


def tensors_of(node: Node) -> Iterator[Node]:
    """Yield the operands of a node that are tensors for nvFuser: numbers with a dtype are not."""
    return (operand for operand in node.all_input_nodes if not is_constant(operand))


def is_constant(node: Node) -> bool:
    """Whether a node is a number with a dtype."""
    return kind_of(node) == CREATE and node.op == "call_function" and not shape_of(node)
