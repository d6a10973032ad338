"""The program: a networkx DiGraph of operations over named tensor handles.

Nothing here knows torch: tensors are names, shapes and numbers, and what an operation reads and writes is
stated, so every pass is a function of what can be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import networkx as nx

from graphalias.errors import GraphAliasError
from graphalias.operation import (
    CONSTANT,
    INPUT,
    OUTPUT,
    RAW,
    REGION,
    UPDATE_ALIASES,
    WAR,
    WAW,
    After,
    Effect,
    Operation,
)
from graphalias.values import (
    ITEMSIZE_BYTES,
    Access,
    Storage,
    Symbol,
    Value,
    contiguous_stride,
    map_values,
    values_in,
    whole,
)

__all__ = [
    "CONSTANT",
    "DATA",
    "INPUT",
    "ITEMSIZE_BYTES",
    "ORDER",
    "OUTPUT",
    "RAW",
    "REGION",
    "UPDATE_ALIASES",
    "WAR",
    "WAW",
    "Access",
    "After",
    "Effect",
    "Operation",
    "Program",
    "Storage",
    "Symbol",
    "Value",
    "build_graph",
    "contiguous_stride",
    "map_values",
    "values_in",
    "whole",
]

DATA, ORDER = "DATA", "ORDER"


class Program:
    """A captured program: a ``networkx.DiGraph`` of operations, in program order.

    Parameters
    ----------
    operations : iterable of Operation
        In program order; the last is the output.
    bindings : mapping, optional
        The objects that constants (``"c0"``) and opaque arguments (``"opaque:generator_1"``) stand for.
    signature : optional
        How a call's arguments become the inputs, and the outputs what the function returned. Without one, a call
        takes the inputs in order and returns a tuple.
    name : str, optional
    notes : mapping, optional
        By node, what a pass has to say of it. `partition` says why an operation is in no region, and why a region could
        not join those before it. Programs of other operations keep the notes of the nodes they keep; the text form
        leaves them out.

    Attributes
    ----------
    graph : networkx.DiGraph
        Nodes carry ``op``; edges carry ``kind`` (``DATA`` or ``ORDER``), ORDER edges ``reason`` and ``accesses``.
    notes : dict of str to str

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %add__1: f32[4] @s0 obj0 = aten.add_.Tensor(%x!, 1) reads(%x)
    ... output(%add__1)
    ... ''')
    >>> list(program.graph.edges(data="kind"))
    [('x', 'add__1', 'DATA'), ('add__1', 'output', 'DATA')]
    """

    def __init__(
        self,
        operations: Iterable[Operation],
        *,
        bindings: Mapping[str, Any] | None = None,
        signature: Any = None,
        name: str = "program",
        notes: Mapping[str, str] | None = None,
    ) -> None:
        self.graph = build_graph(operations)
        self.notes = {node: note for node, note in (notes or {}).items() if node in self.graph}
        self.bindings = dict(bindings or {})
        self.signature = signature
        self.name = name

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Every operation, in program order."""
        return tuple(operation for _, operation in self.graph.nodes(data="op"))

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The input handles, states included, in order."""
        return self._results_of(INPUT)

    @property
    def constants(self) -> tuple[Value, ...]:
        """The handles of tensors the function closed over."""
        return self._results_of(CONSTANT)

    @property
    def output(self) -> Operation:
        """The output node."""
        return self.graph.nodes[OUTPUT]["op"]

    @property
    def outputs(self) -> tuple[Any, ...]:
        """What is returned, flattened: handles and plain values."""
        return self.output.args

    def _results_of(self, target: str) -> tuple[Value, ...]:
        return tuple(value for op in self.operations if op.target == target for value in op.results if value)

    def operation(self, name: str) -> Operation:
        """Return the operation of that name."""
        return self.graph.nodes[name]["op"]

    def replace_operations(self, operations: Iterable[Operation]) -> Program:
        """Return a program of other operations with the same bindings and signature; nodes keep their notes."""
        return Program(
            operations, bindings=self.bindings, signature=self.signature, name=self.name, notes=self.notes
        )  # fmt: skip

    def run(self, *args: Any, order: Iterable[str] | None = None, **kwargs: Any) -> Any:
        """Run with the reference interpreter: one ATen call an operation.

        Parameters
        ----------
        *args, **kwargs
            What the captured function took.
        order : iterable of str, optional
            Any topological sequence of the node names; program order when not given.

        Returns
        -------
        What the captured function returned. Gradients are not recorded.

        Raises
        ------
        ExecutorError
            If the order is no topological order, the inputs do not fit the program, or an operation fails.
        """
        from graphalias.executors.eager import run

        return run(self, args, kwargs, order)

    def __str__(self) -> str:
        from graphalias.text import print_program

        return print_program(self)

    def __repr__(self) -> str:
        counts = f"{len(self.inputs)} inputs, {sum(op.is_compute for op in self.operations)} operations"
        return f"<Program {self.name}: {counts}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from graphalias.draw import draw, show

        return show(str(self), draw(self))

    def _repr_svg_(self) -> str:
        return self._repr_mimebundle_()["image/svg+xml"]


def build_graph(operations: Iterable[Operation]) -> nx.DiGraph:
    """Return the graph of the operations: one edge a pair, DATA where a value passes, else ORDER with its reason."""
    graph = nx.DiGraph()
    producer: dict[str, str] = {}
    for operation in operations:
        if operation.name in graph:
            raise GraphAliasError("two operations of one name", node=operation.name, location=operation.location)
        graph.add_node(operation.name, op=operation)
        for after in operation.after:
            if after.operation not in graph:
                raise GraphAliasError(
                    f"ordered after {after.operation!r}, which is no earlier operation",
                    node=operation.name, location=operation.location,
                )  # fmt: skip
            graph.add_edge(after.operation, operation.name, kind=ORDER, reason=after.reason, accesses=after.accesses)
        for value in (*operation.operands, *operation.states):
            if value.name not in producer:
                raise GraphAliasError(
                    f"%{value.name} is used before any operation results in it",
                    node=operation.name, location=operation.location,
                )  # fmt: skip
            graph.add_edge(producer[value.name], operation.name, kind=DATA, reason=None, accesses=None)
        for result in operation.results:
            if result is not None:
                producer[result.name] = operation.name
    return graph


def require_program(given: object, taker: str) -> None:
    """Raise where something else than a program is given, such as the function that one is captured from.

    Raises
    ------
    GraphAliasError
        It says what makes a program.
    """
    if not isinstance(given, Program):
        raise GraphAliasError(
            f"{taker} takes a Program, not {type(given).__name__}", hint="graphalias.capture(fn, *args) makes one"
        )
