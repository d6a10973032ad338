"""A program as a ``torch.fx.GraphModule``, in-place operations as they are."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.autograd.graph import increment_version

from graphalias.errors import ExecutorError
from graphalias.executors.eager import callable_of, flatten_results
from graphalias.graph import (
    CONSTANT,
    INPUT,
    OUTPUT,
    REGION,
    UPDATE_ALIASES,
    Operation,
    Program,
    Symbol,
    Value,
    require_program,
)
from graphalias.lower import NESTED, TENSOR, result_form
from graphalias.symbols import torch_object
from graphalias.text import print_operation

#: Where a node keeps its line of the text form: ``node.meta[META]``.
META = "graphalias"


def to_fx(program: Program) -> fx.GraphModule:
    """Return a program as a ``torch.fx.GraphModule``, in-place operations as they are.

    The nodes are in program order. `update_aliases` is a function that returns its tensors; what it comes after is an
    argument of it, so that passes which move nodes by their arguments keep what it orders. A region is a submodule.

    Parameters
    ----------
    program : Program
        Constants and opaque arguments must be bound.

    Returns
    -------
    torch.fx.GraphModule
        It takes the input tensors in order and returns the outputs as a tuple, as `Compiled.flat` does. Run it under
        ``torch.no_grad()`` for what the program computes: its operations record gradients where they are allowed to.

    Raises
    ------
    ExecutorError
        If something is not bound, or torch has no such operator.

    Examples
    --------
    >>> import torch, graphalias
    >>> def step(x):
    ...     row = x[0]
    ...     x.mul_(2)
    ...     return row + 1
    >>> program = graphalias.insert_update_aliases(graphalias.capture(step, torch.ones(2, 2)))
    >>> module = graphalias.to_fx(program)
    >>> [node.name for node in module.graph.nodes]
    ['x', 'select', 'mul_', 'update_aliases_1', 'add', 'output']
    >>> module(torch.ones(2, 2))
    (tensor([3., 3.]),)
    """
    require_program(program, "to_fx")
    return _Builder(program, program.bindings).module()


def update_aliases(*tensors: torch.Tensor, after: tuple[Any, ...] = ()) -> Any:
    """Return the tensors: the one, or the tuple of them.

    Parameters
    ----------
    *tensors : Tensor
    after : tuple
        What must have run before. It is not looked at.

    Examples
    --------
    >>> x = torch.ones(1)
    >>> update_aliases(x, after=(None,)) is x
    True
    """
    return tensors[0] if len(tensors) == 1 else tensors


def mark_written(tensor: torch.Tensor, writer: Any) -> torch.Tensor:
    """Return a tensor whose memory was written through another: autograd must see that too.

    Parameters
    ----------
    tensor : Tensor
    writer
        What must have run before. It is not looked at.

    Examples
    --------
    >>> x = torch.ones(1)
    >>> mark_written(x, None)._version
    1
    """
    increment_version(tensor)
    return tensor


class _Builder:
    """Builds the graph, one operation after the other."""

    def __init__(self, program: Program, bindings: Mapping[str, Any]) -> None:
        self.program, self.bindings = program, bindings
        self.graph = fx.Graph()
        self.nodes: dict[str, fx.Node] = {}  # by operation
        self.values: dict[str, fx.Node] = {}  # by handle
        self.held: dict[str, Any] = {}  # by target: what the module holds

    def module(self) -> fx.GraphModule:
        for operation in self.program.operations:
            node = self.add(operation)
            if node is not None:
                node.meta[META] = print_operation(operation)
                self.nodes[operation.name] = node
        self.graph.lint()
        return fx.GraphModule(self.held, self.graph)

    def add(self, operation: Operation) -> fx.Node | None:
        """Add the nodes of an operation; return the one that runs it. A state is nothing at run time."""
        if operation.target == OUTPUT:
            return self.graph.output(tuple(self.argument(leaf) for leaf in operation.args))
        if operation.target in (INPUT, CONSTANT):
            return self.add_source(operation)
        if operation.target == UPDATE_ALIASES:
            return self.add_update_aliases(operation)
        return self.add_region(operation) if operation.target == REGION else self.add_call(operation)

    def add_source(self, operation: Operation) -> fx.Node | None:
        (value,) = operation.results
        if value is None or value.is_state:
            return None
        if operation.target == CONSTANT:
            self.values[value.name] = self.hold(f"constants.{value.name}", value.name)
        else:
            name = operation.name if operation.name != "self" else "self_1"  # fx takes it for the module
            node = self.values[value.name] = self.graph.placeholder(name)
            node.target = node.name  # which is a name of Python, and no other's
        return self.values[value.name]

    def add_update_aliases(self, operation: Operation) -> fx.Node:
        args = tuple(self.values[value.name] for value in operation.operands if not value.is_state)
        # what it joins may be a state's initial node, which is nothing here
        after = tuple(self.nodes[edge.operation] for edge in operation.after if edge.operation in self.nodes)
        node = self.call(operation.name, update_aliases, args, {"after": after})
        self.name_results(operation, node, is_one=len(args) == 1)
        return node

    def add_call(self, operation: Operation) -> fx.Node:
        args = tuple(self.argument(argument) for argument in operation.args)
        kwargs = {key: self.argument(argument) for key, argument in operation.kwargs.items()}
        node = self.call(operation.name, callable_of(operation), args, kwargs)
        form = result_form(operation)
        flat = self.call(f"{operation.name}_flat", flatten_results, (node,)) if form == NESTED else node
        self.name_results(operation, flat, is_one=form == TENSOR)
        return node

    def add_region(self, operation: Operation) -> fx.Node:
        target, inputs = f"regions.{operation.name}", operation.body.inputs
        self.held[target] = _Builder(_returning_written(operation), self.bindings).module()
        entering = tuple(self.values[value.name] for value in operation.operands[: len(inputs)])
        node = self.graph.create_node("call_module", target, entering, {}, operation.name)
        self.name_results(operation, node, is_one=False)
        entered = {value.object for value in operation.operands[: len(inputs)]}
        for operand in operation.operands[len(inputs) :]:
            result = operation.result_of(operand)
            if result is not None and operand.object not in entered:
                args = (self.values[operand.name], node)
                self.values[result.name] = self.call(result.name, mark_written, args)
        return node

    def name_results(self, operation: Operation, node: fx.Node, *, is_one: bool) -> None:
        """Note which node each result is: the operation's own, or an item of what it returns."""
        results = [result for result in operation.results if result is None or not result.is_state]
        for position, result in enumerate(results):
            if result is not None:
                item = node if is_one else self.call(result.name, operator.getitem, (node, position))
                self.values[result.name] = item

    def call(self, name: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> fx.Node:
        return self.graph.create_node("call_function", target, args, kwargs, name)

    def hold(self, target: str, key: str) -> fx.Node:
        """Return a node for what is bound to a name; the module holds it.

        Raises
        ------
        ExecutorError
            If nothing is.
        """
        if key not in self.bindings:
            raise ExecutorError(f"nothing is bound to {key}", hint="pass it in the program's bindings")
        self.held[target] = self.bindings[key]
        return self.graph.get_attr(target)

    def argument(self, argument: Any) -> Any:
        if isinstance(argument, Value):
            return self.values[argument.name]
        if isinstance(argument, (list, tuple)):
            return [self.argument(item) for item in argument]
        if isinstance(argument, Symbol):
            if argument.kind == "opaque":
                return self.hold(f"opaque.{argument.name}", str(argument))
            return torch_object(argument, self.bindings)
        return argument


def _returning_written(region: Operation) -> Program:
    """Return a region's body that returns the inputs it writes after what it makes, as the region itself does."""
    *operations, output = region.body.operations
    newest = {value.object: value for operation in operations for value in operation.results if value}
    inside = {outer.object: inner.object for outer, inner in zip(region.operands, region.body.inputs, strict=False)}
    results = filter(None, region.results[len(output.args) :])
    written = [newest[inside[result.object]] if result.object in inside else None for result in results]
    return region.body.replace_operations([*operations, output.replace(args=(*output.args, *written))])
