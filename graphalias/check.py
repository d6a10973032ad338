"""Every invariant of a program, one function each; those of objects, storages and regions are in `check_memory`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphalias.check_memory import (
    SOURCES,
    fail,
    identity,
    objects_are_seen_as_they_are,
    objects_keep_their_geometry,
    regions_fit_their_bodies,
    regions_have_bodies,
    regions_return_what_they_make,
    regions_say_what_they_touch,
    regions_take_memory_once,
    results_lie_where_operands_do,
    results_of,
    states_advance,
    storages_live_as_said,
    update_aliases_rename,
)
from graphalias.errors import CheckError
from graphalias.graph import (
    ITEMSIZE_BYTES,
    ORDER,
    OUTPUT,
    RAW,
    REGION,
    UPDATE_ALIASES,
    WAR,
    WAW,
    Operation,
    Program,
    Symbol,
    Value,
    build_graph,
    require_program,
)

PLAIN_TYPES = (bool, int, float, complex, str, Symbol, Value, type(None))

#: What ORDER edges may end at. A region node, which inherits the edges of what it absorbs, adds its own target.
ORDER_ENDS = {UPDATE_ALIASES, OUTPUT, REGION}


def check(program: Program) -> None:
    """Check every invariant of a program.

    Parameters
    ----------
    program : Program

    Raises
    ------
    CheckError
        With the operation, what was expected and found, the user's line, and what to do.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %add__1: f32[4] @s0 obj0 = aten.add_.Tensor(%x!, 1) reads(%x)
    ... output(%add__1)
    ... ''')
    >>> check(program)
    >>> program.graph.remove_edge("x", "add__1")
    >>> check(program)
    Traceback (most recent call last):
    graphalias.errors.CheckError: expected a DATA edge from 'x', found none
      at operation: add__1
      what to do: change operations and build a new program with replace_operations; edges follow from them
    """
    require_program(program, "check")
    for invariant in INVARIANTS:
        invariant(program)


def nodes_carry_operations(program: Program) -> None:
    """Every node carries the operation of its name."""
    hint = "change operations with replace_operations, not nodes by hand"
    for node, operation in program.graph.nodes(data="op"):
        if not isinstance(operation, Operation):
            raise CheckError(f"expected an Operation in op, found {operation!r}", node=str(node), hint=hint)
        if operation.name != node:
            fail(operation, f"the operation of node {node!r}", repr(operation.name), hint)


def output_is_last(program: Program) -> None:
    """There is one output node; it is the last, and results in nothing."""
    operations = program.operations
    outputs = [operation for operation in operations if operation.target == OUTPUT]
    if len(outputs) != 1:
        names = ", ".join(operation.name for operation in outputs) or "none"
        raise CheckError(f"expected one output node, found {names}", hint="end the program with one output(...)")
    (output,) = outputs
    if output is not operations[-1] or output.name != OUTPUT:
        fail(output, f"the output to be named {OUTPUT!r} and last", f"{operations[-1].name!r} after it")
    if output.results or output.writes or output.reshapes:
        fail(output, "an output without results and writes", output.results or output.writes or output.reshapes)


def sources_take_nothing(program: Program) -> None:
    """Inputs and constants have one result, and neither operands nor effects."""
    for operation in program.operations:
        if operation.target not in SOURCES:
            continue
        if len(operation.results) != 1 or operation.results[0] is None:
            fail(operation, f"one result of {operation.target}()", operation.results)
        taken = (operation.operands, operation.states, operation.after, operation.effects)
        if any(taken):
            fail(operation, f"{operation.target}() to take nothing", next(filter(None, taken)))


def arguments_have_text(program: Program) -> None:
    """Arguments are handles, numbers, strings, None, lists, dicts, slices and symbols."""

    def odd_one(argument: Any) -> Any:
        if isinstance(argument, (list, tuple)):
            return next(filter(None, map(odd_one, argument)), None)
        if isinstance(argument, dict):
            return odd_one([*argument.keys(), *argument.values()])
        if isinstance(argument, slice):
            parts = [argument.start, argument.stop, argument.step]
            # a handle in a slice would be no operand
            return next((part for part in parts if part is not None and not isinstance(part, int)), None)
        return None if isinstance(argument, PLAIN_TYPES) else (argument,)

    for operation in program.operations:
        odd = odd_one(operation.args) or odd_one(dict(operation.kwargs))
        if odd is not None:
            found = odd[0] if isinstance(odd, tuple) else odd
            fail(operation, "arguments that have a text", f"{found!r} of type {type(found).__name__}",
                 "bind it, and pass Symbol('opaque', name)")  # fmt: skip


def handles_are_well_formed(program: Program) -> None:
    """Dtypes are known; shape and stride have one length; sizes, strides and offsets are not negative."""
    for operation in program.operations:
        for value in results_of(operation):
            if value.dtype not in ITEMSIZE_BYTES:
                fail(operation, f"a dtype of {', '.join(ITEMSIZE_BYTES)}", f"{value.dtype!r} of %{value.name}")
            if len(value.shape) != len(value.stride):
                fail(operation, f"shape and stride of %{value.name} of one length", f"{value.shape} and {value.stride}")
            if min((*value.shape, *value.stride, value.offset)) < 0:
                fail(operation, f"no negative size, stride or offset of %{value.name}", value.geometry)
            if value.is_state and value.shape:
                fail(operation, f"no shape of the state %{value.name}", value.shape)


def handles_are_results_of_before(program: Program) -> None:
    """A name is the result of one operation, and is used after it as what it is."""
    results: dict[str, Value] = {}
    for operation in program.operations:
        for operand in (*operation.operands, *operation.states):
            result = results.get(operand.name)
            if result is None:
                fail(operation, f"%{operand.name} to be a result of an earlier operation", "none")
            if operand is not result and identity(operand) != identity(result):
                fail(operation, f"%{operand.name} as it was made: {result}", operand)
        for value in results_of(operation):
            if value.name in results:
                fail(operation, f"a new name, not %{value.name} again", "two results of that name")
            results[value.name] = value


def edges_are_what_operations_say(program: Program) -> None:
    """Edges go forward, and are those the operands, the states and ``after`` give, with their kind and reason."""
    hint = "change operations and build a new program with replace_operations; edges follow from them"
    graph = program.graph
    positions = {name: position for position, name in enumerate(graph)}
    for operation in program.operations:
        for after in operation.after:
            if positions.get(after.operation, len(positions)) >= positions[operation.name]:
                fail(operation, f"{after.operation!r} in after to be an earlier operation", "no such")
    expected = build_graph(program.operations)
    for source, target, edge in expected.edges(data=True):
        if not graph.has_edge(source, target):
            fail(graph.nodes[target]["op"], f"{_text(edge)} from {source!r}", "none", hint)
        found = graph.edges[source, target]
        if (found.get("kind"), found.get("reason")) != (edge["kind"], edge["reason"]):
            fail(graph.nodes[target]["op"], f"{_text(edge)} from {source!r}", _text(found), hint)
    for source, target, edge in graph.edges(data=True):
        if not expected.has_edge(source, target):
            fail(graph.nodes[target]["op"], f"no edge from {source!r}", _text(edge), hint)


def _text(edge: dict[str, Any]) -> str:
    kind = edge.get("kind")
    return f"{'an' if kind == ORDER else 'a'} {kind} edge" + (f" ({edge['reason']})" if edge.get("reason") else "")


def orders_are_named(program: Program) -> None:
    """ORDER edges have a reason, and end only at `update_aliases` and output nodes."""
    for operation in program.operations:
        if operation.after and operation.target not in ORDER_ENDS:
            fail(operation, "ORDER edges to end at update_aliases or the output", operation.target,
                 "rename its operands by an update_aliases that has the edges")  # fmt: skip
        for after in operation.after:
            if after.reason not in (RAW, WAR, WAW):
                fail(operation, "RAW, WAR or WAW", repr(after.reason))


def positions_are_operands(program: Program) -> None:
    """What is read, written and reshaped are positions of operands, each named once."""
    for operation in program.operations:
        for name in ("reads", "writes", "reshapes"):
            positions = getattr(operation, name)
            if len(set(positions)) != len(positions):
                fail(operation, f"each position once in {name}", positions)
            if any(not 0 <= position < len(operation.operands) for position in positions):
                fail(operation, f"{name} to be positions of {len(operation.operands)} operands", positions)


def bodies_are_sound(program: Program) -> None:
    """The body of a region keeps every invariant, as a program of its own."""
    for operation in program.operations:
        if operation.body is None:
            continue
        try:
            check(operation.body)
        except CheckError as error:
            message = f"in its body, at {error.node}: {error.message}"
            raise CheckError(message, node=operation.name, location=error.location, hint=error.hint) from error


#: In this order: each relies on those before.
INVARIANTS: tuple[Callable[[Program], None], ...] = (
    nodes_carry_operations,
    output_is_last,
    arguments_have_text,
    handles_are_results_of_before,
    handles_are_well_formed,
    sources_take_nothing,
    edges_are_what_operations_say,
    orders_are_named,
    positions_are_operands,
    states_advance,
    update_aliases_rename,
    objects_keep_their_geometry,
    objects_are_seen_as_they_are,
    results_lie_where_operands_do,
    storages_live_as_said,
    regions_have_bodies,
    bodies_are_sound,
    regions_fit_their_bodies,
    regions_return_what_they_make,
    regions_say_what_they_touch,
    regions_take_memory_once,
)
