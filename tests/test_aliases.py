"""The promises of update_aliases: valid in any order, exact, idempotent; and what dead operations may go."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given

import graphalias
from brute import imposed_order, required_order, simulate
from graphalias import (
    GraphAliasError,
    HazardError,
    Program,
    eliminate_dead_operations,
    find_hazards,
    insert_update_aliases,
    parse,
)
from graphalias import ledger as bookkeeping
from graphalias.aliases import adds_nothing
from graphalias.graph import CONSTANT, INPUT, ORDER, UPDATE_ALIASES
from graphalias.orders import topological_orders
from strategies import programs, random_program

SEEDS = range(400)


def inserted(text: str) -> str:
    """Return the operations a pass gives, without the inputs."""
    lines = str(insert_update_aliases(parse(text))).splitlines()
    return "\n".join(line for line in lines if "= input()" not in line)


def assert_exact(program: Program) -> None:
    """Fail unless the pass imposes exactly the order that the accesses need.

    Inputs and constants are there before anything runs: an operation that comes after one of them has lost no freedom.
    """
    needed, imposed = required_order(program), imposed_order(insert_update_aliases(program))
    sources = {operation.name for operation in program.operations if operation.target in (INPUT, CONSTANT)}
    extra = {(before, after) for before, after in imposed - needed if before not in sources}
    assert not needed - imposed, f"missing {sorted(needed - imposed)} in\n{program}"
    assert not extra, f"extra {sorted(extra)} in\n{program}"


@pytest.mark.parametrize("group_size", [2, 16])
def test_exact(group_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order imposed is the closure of data dependencies and overlapping accesses: nothing less, nothing more."""
    monkeypatch.setattr(bookkeeping, "GROUP_SIZE", group_size)
    for seed in SEEDS:
        assert_exact(random_program(seed, 2 + seed % 11))


@given(programs(max_operations=12))
def test_exact_property(program: Program) -> None:
    """The same, over programs hypothesis makes up."""
    assert_exact(program)


def test_inputs_share_a_node() -> None:
    """Inputs that wait for the same operations share one node, though the output then comes after one not returned."""
    program = parse("""
    %x: f32[4] @s0 obj0 = input()
    %y: f32[4] @s0 obj1 = input()
    %z: f32[4] @s0 obj2 = input()
    %z1: f32[4] @s0 obj2 = aten.neg_.default(%z!) reads(%z)
    %add_1: f32[4] @s1 obj3 = aten.add.Tensor(%x, %y) reads(%x, %y)
    output(%x)
    """)
    result = insert_update_aliases(program)
    assert "update_aliases(%x, %y) after(z1 RAW)" in str(result)
    assert ("y", "output") in imposed_order(result) - required_order(program)
    assert_exact(program)


def test_nothing_added_means_no_hazards() -> None:
    """Where the pass would add nothing there are no hazards; it adds nothing to what it made."""
    for seed in SEEDS:
        program = random_program(seed, 1 + seed % 6)
        assert not (adds_nothing(program) and find_hazards(program))
        assert adds_nothing(insert_update_aliases(program))
    assert any(adds_nothing(random_program(seed, 1 + seed % 6)) for seed in SEEDS)


def test_every_order_is_valid() -> None:
    """Any topological order of the result leaves the memory that program order leaves."""
    for seed in SEEDS:
        program = random_program(seed, 12)
        expected = simulate(program)
        result = insert_update_aliases(program)
        for order in topological_orders(result, 4, seed=seed):
            assert simulate(result, order) == expected, f"seed {seed}, order {order}\n{result}"


def test_orders_of_the_captured_program_are_not_valid() -> None:
    """The test above could fail: without the nodes some order leaves other memory, and hazards are found before."""
    wrong = 0
    for seed in SEEDS:
        program = random_program(seed, 12)
        orders = topological_orders(program, 4, seed=seed)
        if any(simulate(program, order) != simulate(program) for order in orders):
            assert find_hazards(program)
            wrong += 1
    assert wrong > len(SEEDS) // 2


def test_hazards_are_what_is_missing() -> None:
    """Hazards are found where, and only where, the graph lacks an order that the accesses need."""
    for seed in SEEDS:
        program = random_program(seed, 10)
        missing = required_order(program) - imposed_order(program)
        hazards = {(hazard.before, hazard.after) for hazard in find_hazards(program)}
        assert hazards <= missing and bool(hazards) == bool(missing)
        assert not find_hazards(insert_update_aliases(program))


def test_idempotent_and_deterministic() -> None:
    """A program without hazards is left as it is; the same program gives the same text."""
    for seed in SEEDS:
        once = insert_update_aliases(random_program(seed, 12))
        assert str(insert_update_aliases(once)) == str(once)
        assert str(insert_update_aliases(random_program(seed, 12))) == str(once)
        graphalias.check(once)


def test_input_is_left_as_it_was() -> None:
    """The pass builds a new program; the captured one can still be compared with it."""
    program = random_program(3, 12)
    before = str(program)
    assert str(insert_update_aliases(program)) != before
    assert str(program) == before


def test_order_edges_end_where_they_may() -> None:
    """ORDER edges end only at update_aliases nodes and at the output, and name their reason and both accesses."""
    for seed in SEEDS:
        graph = insert_update_aliases(random_program(seed, 12)).graph
        for _, after, edge in graph.edges(data=True):
            if edge["kind"] == ORDER:
                assert graph.nodes[after]["op"].target in (UPDATE_ALIASES, "output")
                assert edge["reason"] in ("RAW", "WAR", "WAW") and len(edge["accesses"]) == 2


def test_write_after_read() -> None:
    """After ``a = x + 1; x.add_(1); return a`` the write waits for the read, and runs though nobody uses its result."""
    text = """
    %x: f32[4] @s0 obj0 = input()
    %a: f32[4] @s1 obj1 = aten.add.Tensor(%x, 1) reads(%x)
    %add__1: f32[4] @s0 obj0 = aten.add_.Tensor(%x!, 1) reads(%x)
    output(%a)
    """
    assert inserted(text) == (
        "%a: f32[4] @s1 obj1 = aten.add.Tensor(%x, 1) reads(%x)\n"
        "%update_aliases_1: f32[4] @s0 obj0 = update_aliases(%x) after(a WAR)\n"
        "%add__1: f32[4] @s0 obj0 = aten.add_.Tensor(%update_aliases_1!, 1) reads(%update_aliases_1)\n"
        "output(%a) after(add__1 RAW)"
    )


def test_return_waits() -> None:
    """In ``y = x * 2; v = y.view(-1); v.add_(1); return y`` the output waits for the write through the view."""
    text = """
    %x: f32[2,2] @s0 obj0 = input()
    %y: f32[2,2] @s1 obj1 = aten.mul.Tensor(%x, 2) reads(%x)
    %v: f32[4] @s1 obj2 = aten.view.default(%y, [-1])
    %add__1: f32[4] @s1 obj2 = aten.add_.Tensor(%v!, 1) reads(%v)
    output(%y)
    """
    assert inserted(text).endswith("output(%y) after(add__1 RAW)")


def test_no_node_where_data_orders_already() -> None:
    """A chain of in-place operations on one tensor needs no node, nor does a write that takes its readers' results."""
    chain = """
    %x: f32[4] @s0 obj0 = input()
    %add__1: f32[4] @s0 obj0 = aten.add_.Tensor(%x!, 1) reads(%x)
    %mul__1: f32[4] @s0 obj0 = aten.mul_.Tensor(%add__1!, 2) reads(%add__1)
    %sin_1: f32[4] @s1 obj1 = aten.sin.default(%mul__1) reads(%mul__1)
    output(%sin_1, %mul__1)
    """
    assert "update_aliases" not in inserted(chain)
    taken = """
    %x: f32[4] @s0 obj0 = input()
    %a: f32[4] @s1 obj1 = aten.exp.default(%x) reads(%x)
    %b: f32[4] @s2 obj2 = aten.sin.default(%x) reads(%x)
    %addcmul__1: f32[4] @s0 obj0 = aten.addcmul_.default(%x!, %a, %b) reads(%x, %a, %b)
    output(%addcmul__1)
    """
    assert "update_aliases" not in inserted(taken)


def test_disjoint_halves_are_not_ordered() -> None:
    """Writes to two halves of one buffer, interleaved or not, stay free of each other."""
    for offset, stride in ((4, 1), (1, 2)):
        text = f"""
        %a: f32[4] stride({stride}) @s0 obj0 = input()
        %b: f32[4] stride({stride}) offset({offset}) @s0 obj1 = input()
        %a1: f32[4] stride({stride}) @s0 obj0 = aten.add_.Tensor(%a!, 1) reads(%a)
        %b1: f32[4] stride({stride}) offset({offset}) @s0 obj1 = aten.add_.Tensor(%b!, 1) reads(%b)
        output(%a1, %b1)
        """
        assert "update_aliases" not in inserted(text)


def test_views_are_made_from_the_geometry() -> None:
    """A view made after a write does not wait for it; a view made after a transpose in place does wait for that."""
    program = parse("""
    %x: f32[2,4] @s0 obj0 = input()
    %add__1: f32[2,4] @s0 obj0 = aten.add_.Tensor(%x!, 1) reads(%x)
    %v: f32[8] @s0 obj1 = aten.view.default(%add__1, [8])
    %t__1: f32[4,2] stride(1,4) @s0 obj0 = aten.t_.default(%add__1~)
    %row: f32[2] stride(4) @s0 obj2 = aten.select.int(%add__1, 0, 0)
    output(%v, %row)
    """)
    graph = insert_update_aliases(program).graph
    assert not nx.has_path(graph, "add__1", "v")
    assert nx.has_path(graph, "t__1", "row") and nx.has_path(graph, "v", "t__1")


@pytest.mark.parametrize("kind", ["grid", "readers"])
def test_edges_stay_linear(kind: str) -> None:
    """N writers that N readers wait for (or the other way round) share one joining node: no N * N edges."""
    size = 40
    lines = [f"%x: f32[{size},{size}] @s0 obj0 = input()"]
    for i in range(size):
        row = f"f32[{size}] offset({i * size}) @s0 row{i}"
        lines.append(f"%row{i}: {row} = aten.select.int(%x, 0, {i})")
        if kind == "grid":
            lines.append(f"%w{i}: {row} = aten.add_.Tensor(%row{i}!, 1) reads(%row{i})")
        else:
            lines.append(f"%r{i}: f32[{size},{size}] @o{i} out{i} = aten.neg.default(%x) reads(%x)")
    for i in range(size):
        if kind == "grid":
            lines.append(f"%col{i}: f32[{size}] stride({size}) offset({i}) @s0 col{i} = aten.select.int(%x, 1, {i})")
            lines.append(f"%r{i}: f32[{size}] @o{i} out{i} = aten.neg.default(%col{i}) reads(%col{i})")
        else:
            row = f"f32[{size}] offset({i * size}) @s0 row{i}"
            lines.append(f"%w{i}: {row} = aten.add_.Tensor(%row{i}!, 1) reads(%row{i})")
    program = parse("\n".join([*lines, f"output({', '.join(f'%r{i}' for i in range(size))})"]))
    result = insert_update_aliases(program)
    assert not find_hazards(result)
    assert result.graph.number_of_edges() < 10 * size
    assert str(insert_update_aliases(result)) == str(result)


def test_dead_operations_change_nothing_that_is_seen() -> None:
    """What can be seen after the program is the same with its dead operations gone, in any order; something does go."""
    removed = 0
    for seed in SEEDS:
        program = random_program(seed, 12)
        result = eliminate_dead_operations(insert_update_aliases(program))
        graphalias.check(result)
        removed += len(program.graph) - sum(op.target != UPDATE_ALIASES for op in result.operations)
        for order in topological_orders(result, 2, seed=seed):
            assert simulate(result, order) == simulate(program), f"seed {seed}\n{program}\n{result}"
        assert str(eliminate_dead_operations(result)) == str(result)
    assert removed > len(SEEDS)


def test_dead_mutation_of_a_local_goes_and_of_an_input_stays() -> None:
    """A mutation nobody reads on an input still happens; one on a dead local is removed, and so is a dead reader."""
    program = parse("""
    %x: f32[4] @s0 obj0 = input()
    %a: f32[4] @s1 obj1 = aten.neg.default(%x) reads(%x)
    %relu__1: f32[4] @s1 obj1 = aten.relu_.default(%a!) reads(%a)
    %mul__1: f32[4] @s0 obj0 = aten.mul_.Tensor(%x!, 2) reads(%x)
    output()
    """)
    assert str(eliminate_dead_operations(insert_update_aliases(program))) == (
        "%x: f32[4] @s0 obj0 = input()\n"
        "%mul__1: f32[4] @s0 obj0 = aten.mul_.Tensor(%x!, 2) reads(%x)\n"
        "output() after(mul__1 RAW)\n"
    )


def test_dead_operations_need_a_program_without_hazards() -> None:
    """On a program with hazards the pass raises: it would delete mutations. The error names the user's line."""
    program = parse("""
    %x: f32[4] @s0 obj0 = input()
    %add__1: f32[4] @s0 obj0 = aten.add_.Tensor(%x!, 1) reads(%x)  # model.py:7
    output(3)
    """)
    with pytest.raises(HazardError, match=r"add__1 \(model.py:7\) must run before %output"):
        eliminate_dead_operations(program)


def test_what_takes_a_program_says_so_of_a_function() -> None:
    """Who gives a pass the function instead of its program is told how to capture one."""
    takers = (
        graphalias.find_view_groups, find_hazards, insert_update_aliases, eliminate_dead_operations,
        graphalias.partition, graphalias.lower, graphalias.draw, graphalias.check, graphalias.to_fx,
        graphalias.to_node_link, graphalias.to_graphml, graphalias.to_dot,
    )  # fmt: skip
    for take in takers:
        with pytest.raises(GraphAliasError, match=rf"{take.__name__} takes a Program, not function\n.*capture"):
            take(lambda x: x)
    with pytest.raises(GraphAliasError, match="rewrite takes a Program, not function"):
        graphalias.rewrite(lambda x: x, ())
