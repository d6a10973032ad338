"""Matching finds what networkx's DiGraphMatcher finds, near the anchor only."""

from __future__ import annotations

import random
from typing import Any

import networkx as nx
import pytest
from networkx.algorithms.isomorphism import DiGraphMatcher

from graphalias.draft import Draft
from graphalias.errors import RewriteError
from graphalias.graph import OUTPUT, Operation, Program, Storage, Value
from graphalias.matching import Pattern, is_same_plain


def handle(name: str, lifetime: str = "local") -> Value:
    """Return a handle of memory of its own."""
    return Value(name, "f32", (4,), Storage(f"{name}:bytes", lifetime), f"{name}:object")


def random_dag(seed: int, inputs: int, size: int, *, is_joined: bool = False) -> Program:
    """Return a program of pure operations of two kinds, of one or two operands, and now and then a number."""
    choose = random.Random(seed)
    values = [handle(f"x{i}", "input") for i in range(inputs)]
    operations = [Operation(value.name, "input", results=(value,)) for value in values]
    for i in range(size):
        # a pattern's operations each take the one before, so that they are joined and every input of use
        first = values[-1] if is_joined and i else choose.choice(values)
        args: list[Any] = [first, *(choose.choice(values) for _ in range(choose.randint(0, 1)))]
        args += [choose.randint(0, 1)] * (choose.random() < 0.1)
        reads = tuple(range(sum(isinstance(argument, Value) for argument in args)))
        values.append(handle(f"v{i}"))
        operations.append(Operation(f"v{i}", choose.choice("fg"), tuple(args), results=(values[-1],), reads=reads))
    return Program([*operations, Operation(OUTPUT, OUTPUT, (values[-1],))])


def without_unused_inputs(program: Program) -> Program:
    """Return the program without inputs that no operation takes."""
    used = {value.name for operation in program.operations if operation.is_compute for value in operation.operands}
    return program.replace_operations(op for op in program.operations if op.target != "input" or op.name in used)


def graph_of(program: Program) -> nx.DiGraph:
    """Return the graph of what is computed: nodes with target and plain arguments, edges with operand positions."""
    graph = nx.DiGraph()
    computed = {operation.name: operation for operation in program.operations if operation.is_compute}
    for name, operation in computed.items():
        form = tuple("handle" if isinstance(argument, Value) else argument for argument in operation.args)
        graph.add_node(name, like=(operation.target, form))
        for position, value in enumerate(operation.operands):
            if value.name in computed:
                graph.add_edge(value.name, name)
                graph.edges[value.name, name].setdefault("positions", set()).add(position)
    return graph


def expected_matches(pattern: Program, program: Program) -> set[tuple[tuple[str, str], ...]]:
    """Return the monomorphisms in which each input of the pattern is one handle, made outside the match."""
    matcher = DiGraphMatcher(
        graph_of(program), graph_of(pattern),
        node_match=lambda one, other: one["like"] == other["like"],
        edge_match=lambda one, other: one["positions"] >= other["positions"],
    )  # fmt: skip
    found = set()
    for images in matcher.subgraph_monomorphisms_iter():
        mapping = {mine: theirs for theirs, mine in images.items()}
        bound: dict[str, set[str]] = {}
        for mine, theirs in mapping.items():
            pairs = zip(pattern.operation(mine).operands, program.operation(theirs).operands, strict=True)
            for value, image in pairs:
                if value.name not in mapping:
                    bound.setdefault(value.name, set()).add(image.name)
        if all(len(names) == 1 and names.isdisjoint(mapping.values()) for names in bound.values()):
            found.add(tuple(sorted(mapping.items())))
    return found


def found_matches(pattern: Program, program: Program) -> list[tuple[tuple[str, str], ...]]:
    """Return what matching finds, anchor by anchor."""
    draft, looked_for = Draft(program), Pattern(pattern)
    names = [operation.name for operation in looked_for.operations]
    return [
        tuple(sorted(zip(names, (image.name for image in match.operations), strict=True)))
        for operation in program.operations if operation.is_compute
        for match in looked_for.matches(operation, draft)
    ]  # fmt: skip


def test_as_digraph_matcher() -> None:
    """On random programs and patterns the matches are networkx's, each once."""
    total = 0
    for seed in range(400):
        program = random_dag(seed, 1 + seed % 3, 8 + seed % 12)
        pattern = without_unused_inputs(random_dag(seed + 1000, 1 + seed % 2, 1 + seed % 4, is_joined=True))
        found = found_matches(pattern, program)
        assert len(found) == len(set(found))
        assert set(found) == expected_matches(pattern, program), f"seed {seed}\n{pattern}\n{program}"
        total += len(found)
    assert total > 100


def test_not_joined() -> None:
    """A pattern of two pieces is refused."""
    x, y = handle("x", "input"), handle("y", "input")
    inputs = [Operation("x", "input", results=(x,)), Operation("y", "input", results=(y,))]
    pieces = [Operation("a", "f", (x,), results=(handle("a"),)), Operation("b", "f", (y,), results=(handle("b"),))]
    with pytest.raises(RewriteError, match="not joined"):
        Pattern(Program([*inputs, *pieces, Operation(OUTPUT, OUTPUT, (pieces[1].results[0],))]))


def test_plain_arguments() -> None:
    """Plain arguments match by type and value."""
    assert is_same_plain([1, None, "a"], [1, None, "a"]) and is_same_plain(float("nan"), float("nan"))
    assert not is_same_plain(1, True) and not is_same_plain(0.0, -0.0) and not is_same_plain([1], [1, 2])
