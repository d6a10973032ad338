"""Fusion regions: convex, alias-safe, valid in any order; what stays outside, and why."""

from __future__ import annotations

import networkx as nx
import pytest
import torch

import graphalias
from graphalias import CaptureError, Operation, Program, capture, check, find_hazards, parse, verify
from graphalias.aliases import insert_update_aliases
from graphalias.dead import eliminate_dead_operations
from graphalias.graph import REGION
from graphalias.growing import SIZE_CAP, Sizes
from graphalias.oracle import differences
from graphalias.partition import partition_program
from graphalias.stages import assign_stages
from test_programs import scene_of
from torch_programs import random_arguments, random_program

FUSED = {"add", "sub", "mul", "neg", "exp", "relu", "sin", "abs", "gt", "where", "sum", "clamp", "zero", "sqrt"}


def why_not_fused(operation: Operation) -> str | None:
    """Fuse elementwise operations and sums, by their names: enough for these tests, and needs no code generator."""
    name = operation.target.split(".")[1].rstrip("_") if operation.target.count(".") else operation.target
    return None if name in FUSED else "not elementwise"


def partitioned(text: str) -> Program:
    """Return the partitioned program of a text."""
    return partition_program(insert_update_aliases(parse(text)), why_not_fused)


def regions(program: Program) -> list[list[str]]:
    """Return the operations inside each region."""
    return [
        [inner.name for inner in op.body.operations if inner.is_compute]
        for op in program.operations if op.target == REGION
    ]  # fmt: skip


def test_chain_is_one_region() -> None:
    """In-place operations on one input are one region, which writes the input and returns it."""
    program = partitioned("""
    %x: f32[4] @s0 obj0 = input()
    %add_: f32[4] @s0 obj0 = aten.add_.Tensor(%x!, 1) reads(%x)
    %mul_: f32[4] @s0 obj0 = aten.mul_.Tensor(%add_!, 2) reads(%add_)
    %exp: f32[4] @s1 obj1 = aten.exp.default(%mul_) reads(%mul_)
    output(%mul_, %exp)
    """)
    (region,) = [op for op in program.operations if op.target == REGION]
    assert [value.name for value in region.results] == ["exp", "mul_"]
    assert [value.name for value in region.written] == ["x"]
    assert str(region.body) == (
        "%x: f32[4] @s0 obj0 = input()\n"
        "%add_: f32[4] @s0 obj0 = aten.add_.Tensor(%x!, 1) reads(%x)\n"
        "%mul_: f32[4] @s0 obj0 = aten.mul_.Tensor(%add_!, 2) reads(%add_)\n"
        "%exp: f32[4] @s1 obj1 = aten.exp.default(%mul_) reads(%mul_)\n"
        "output(%exp)\n"
    )


def test_views_of_outside_memory_are_made_outside() -> None:
    """Two halves of an input enter one region as two strided inputs; the whole afterwards is another region's."""
    program = partitioned("""
    %x: f32[4,4] @s0 obj0 = input()
    %a: f32[4,2] stride(4,1) @s0 obj1 = aten.slice.Tensor(%x, 1, 0, 2)
    %b: f32[4,2] stride(4,1) offset(2) @s0 obj2 = aten.slice.Tensor(%x, 1, 2, 4)
    %a1: f32[4,2] stride(4,1) @s0 obj1 = aten.mul_.Tensor(%a!, 2) reads(%a)
    %b1: f32[4,2] stride(4,1) offset(2) @s0 obj2 = aten.add_.Tensor(%b!, %a1) reads(%b, %a1)
    %y: f32[4,4] @s1 obj3 = aten.exp.default(%x) reads(%x)
    %z: f32[4,4] @s2 obj4 = aten.neg.default(%y) reads(%y)
    output(%z)
    """)
    assert regions(program) == [["a1", "b1"], ["y", "z"]]
    assert [value.name for value in program.operation("region_1").written] == ["a", "b"]


def test_no_two_inputs_overlap_where_one_is_written() -> None:
    """A read of the whole does not join the region that writes a part of it."""
    for seed in range(150):
        for region in regions_of(random_partitioned(seed)):
            inputs = region.operands[: len(region.body.inputs)]
            for i in region.writes:
                others = [value for j, value in enumerate(inputs) if j != i and i < len(inputs)]
                assert not any(graphalias.overlaps(region.operands[i].access, other.access) for other in others)


def test_views_of_what_a_region_makes() -> None:
    """They are made inside where they are used inside, and again outside where they are used outside."""
    program = partitioned("""
    %x: f32[2,2] @s0 obj0 = input()
    %y: f32[2,2] @s1 obj1 = aten.mul.Tensor(%x, 2) reads(%x)
    %v: f32[4] @s1 obj2 = aten.view.default(%y, [4])
    %v1: f32[4] @s1 obj2 = aten.add_.Tensor(%v!, 1) reads(%v)
    output(%v1)
    """)
    assert regions(program) == [["y", "v", "v1"]]
    (region,) = regions_of(program)
    assert [value.name for value in region.results] == ["y"]
    assert str(program).endswith("%v: f32[4] @s1 obj2 = aten.view.default(%y, [4])\noutput(%v)\n")


def test_same_geometry_is_one_input() -> None:
    """Two objects that see the same bytes in the same way are one input, and both keep their identity."""
    program = partitioned("""
    %x: f32[4] @s0 obj0 = input()
    %y: f32[4] @s0 obj1 = input()
    %x1: f32[4] @s0 obj0 = aten.add_.Tensor(%x!, 1) reads(%x)
    %y1: f32[4] @s0 obj1 = aten.mul_.Tensor(%y!, 2) reads(%y)
    output(%x1, %y1)
    """)
    (region,) = regions_of(program)
    assert len(region.body.inputs) == 1 and [value.object for value in region.results] == ["obj0", "obj1"]


def test_unfusible_between_splits() -> None:
    """What goes through something that isn't fused is in a later region, so that regions make no cycle."""
    program = partitioned("""
    %x: f32[4,4] @s0 obj0 = input()
    %a: f32[4,4] @s1 obj1 = aten.exp.default(%x) reads(%x)
    %b: f32[4,4] @s2 obj2 = aten.sin.default(%a) reads(%a)
    %m: f32[4,4] @s3 obj3 = aten.mm.default(%a, %a) reads(%a)
    %c: f32[4,4] @s4 obj4 = aten.add.Tensor(%b, %m) reads(%b, %m)
    %d: f32[4,4] @s5 obj5 = aten.neg.default(%c) reads(%c)
    output(%d)
    """)
    assert regions(program) == [["a", "b"], ["c", "d"]]


def test_size_cap() -> None:
    """A region has a limited number of operations."""
    lines = ["%x0: f32[4] @s0 obj0 = input()"]
    lines += [f"%x{i + 1}: f32[4] @s0 obj0 = aten.add_.Tensor(%x{i}!, 1) reads(%x{i})" for i in range(2 * SIZE_CAP + 3)]
    program = partitioned("\n".join([*lines, f"output(%x{2 * SIZE_CAP + 3})"]))
    assert [len(names) for names in regions(program)] == [SIZE_CAP, SIZE_CAP, 3]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("%y: f32[4] @s1 obj1 = aten.mm.default(%x) reads(%x)", "not elementwise"),
        ("%y: f32[2,4] stride(0,1) @s0 obj1 = aten.expand.default(%x, [2, 4])", "a view of memory from outside"),
        ("%y: f32[1,4] @s0 obj0 = aten.unsqueeze_.default(%x~, 0)", "changes a tensor's geometry"),
        ("%y: f32[4] @s0 obj0 = aten.add_.Tensor(%e!, 1) reads(%e)", "elements may overlap"),
        ("%y: () = aten.add_.Tensor(%x!, %half) reads(%x, %half)", "its own operands overlap"),
    ],
)
def test_reasons(line: str, reason: str) -> None:
    """Whatever is left out says why."""
    program = parse(f"""
    %x: f32[4] @s0 obj0 = input()
    %half: f32[2] @s0 half = input()
    %e: f32[4] stride(0) @s2 obj2 = input()
    {line.replace("@s0 obj0 = aten.add_.Tensor(%e", "stride(0) @s2 obj2 = aten.add_.Tensor(%e")}
    output()
    """)
    place = assign_stages(program, why_not_fused).places["y"]
    assert not place.is_fused and reason in place.reason


def test_notes_say_why() -> None:
    """Each operation in no region says why, and each region what keeps it from those before."""
    program = partitioned("""
    %x: f32[4,4] @s0 obj0 = input()
    %v: f32[16] @s0 obj8 = aten.view.default(%x, [16])
    %a: f32[4,4] @s1 obj1 = aten.exp.default(%x) reads(%x)
    %b: f32[4,4] @s2 obj2 = aten.sin.default(%a) reads(%a)
    %m: f32[4,4] @s3 obj3 = aten.mm.default(%a, %a) reads(%a)
    %c: f32[4,4] @s4 obj4 = aten.add.Tensor(%b, %m) reads(%b, %m)
    %d: f32[4,4] @s5 obj5 = aten.neg.default(%c) reads(%c)
    %w: f32[16] @s5 obj6 = aten.view.default(%d, [16])
    %x1: f32[4,4] @s0 obj0 = aten.mul_.Tensor(%x!, %c) reads(%x, %c)
    %v1: f32[16] @s0 obj8 = aten.add_.Tensor(%v!, 1) reads(%v)
    %v2: f32[16] @s0 obj8 = aten.neg_.default(%v1!) reads(%v1)
    %n: f32[4,4] @s6 obj7 = aten.mm.default(%d, %d) reads(%d)
    %e: f32[4,4] @s7 obj9 = aten.exp.default(%n) reads(%n)
    output(%w, %v2, %e)
    """)
    assert regions(program) == [["a", "b"], ["c", "d", "w", "x1"], ["v1", "v2"]]
    assert program.notes == {
        "v": "a view of memory from outside is made outside",
        "m": "not elementwise",
        "n": "not elementwise",
        "region_2": "%c: it comes after %m, which is not fused",
        "w": "a view of what region_2 makes, made again for what is outside",
        "region_3": "%v1: it uses memory of s0 that the region accesses through another handle",
        "e": "it would be a region of one operation",
    }


def test_every_operation_outside_says_why() -> None:
    """In random programs: every operation outside has a note, every note a node, and other programs keep them."""
    for seed in range(100):
        program = random_partitioned(seed)
        outside = {op.name for op in program.operations if op.is_compute and op.target != REGION}
        assert outside <= program.notes.keys() <= {op.name for op in program.operations if op.is_compute}
        kept = [op for op in program.operations if program.graph.out_degree(op.name) != 0 or op.target == "output"]
        less = program.replace_operations(kept)
        assert less.notes == {name: note for name, note in program.notes.items() if name in less.graph}


def random_partitioned(seed: int) -> Program:
    """Return a random captured program, partitioned; an empty one where eager refuses it."""
    try:
        program = capture(random_program(seed, 2 + seed % 14), *random_arguments(seed))
    except CaptureError:
        return parse("output()")
    return partition_program(eliminate_dead_operations(insert_update_aliases(program)), why_not_fused)


def regions_of(program: Program) -> list[Operation]:
    """Return the region nodes."""
    return [operation for operation in program.operations if operation.target == REGION]


@pytest.mark.parametrize("seeds", [range(i, i + 40) for i in range(0, 160, 40)], ids=str)
def test_any_order_of_random_programs(seeds: range) -> None:
    """Partitioned random programs keep every invariant, have no hazard, and run right in any order."""
    found = 0
    for seed in seeds:
        program = random_partitioned(seed)
        check(program)
        assert not find_hazards(program) and nx.is_directed_acyclic_graph(program.graph)
        found += len(regions_of(program))
        if program.inputs:
            args = random_arguments(seed)
            report = verify(program, *args, orders=5)
            scene, fn = scene_of(args), random_program(seed, 2 + seed % 14)
            if not report.undetermined:
                assert not differences(scene.watch(lambda: fn(*args)), scene.watch(lambda: program.run(*args)))  # noqa: B023
    assert found > 4


def test_input_is_left_as_it_was() -> None:
    """Partitioning builds a new program."""
    program = insert_update_aliases(capture(lambda x: x.add_(1).mul_(2), torch.ones(3)))
    before = str(program)
    assert regions(partition_program(program, why_not_fused)) == [["add_", "mul_"]]
    assert str(program) == before


SINKING = """
%x: f32[8,8] @s0 obj0 = input()
%w: f32[8,8] @s1 obj1 = input()
%mm: f32[8,8] @s2 obj2 = aten.mm.default(%x, %w) reads(%x, %w)
%exp: f32[8,8] @s3 obj3 = aten.exp.default(%SOURCE) reads(%SOURCE)
%add: f32[8,8] @s4 obj4 = aten.add.Tensor(%exp, 1) reads(%exp)
%BETWEEN
%sin: f32[8,8] @s5 obj5 = aten.sin.default(%w) reads(%w)
%mm_1: f32[8,8] @s6 obj6 = aten.mm.default(%sin, %sin) reads(%sin)
%mul: f32[8,8] @s7 obj7 = aten.mul.Tensor(%mm_1, %add) reads(%mm_1, %add)
output(%mul)
"""


def sunk(source: str = "x", between: str = "") -> Program:
    """Return a program that exponentiates a tensor long before it uses that."""
    return partitioned(SINKING.replace("%SOURCE", source).replace("%BETWEEN", between))


def test_what_is_used_later_is_computed_later() -> None:
    """An operation, and what is computed for it alone, goes to the region that uses it: nothing of it is kept."""
    program = sunk("%x")
    assert regions(program) == [["exp", "add", "mul"]]
    assert program.notes["region_1"].startswith("%exp: nothing uses it earlier")
    verify(program, torch.randn(8, 8), torch.randn(8, 8))


@pytest.mark.parametrize(
    ("source", "between"),
    [
        ("%x", "%neg_: f32[8,8] @s0 obj0 = aten.neg_.default(%x!) reads(%x)"),
        ("%x", "%early: f32[8,8] @s8 obj8 = aten.mm.default(%add, %w) reads(%add, %w)"),
        ("%mm", ""),
    ],
    ids=["its source is written", "it is used early", "its source would live longer"],
)
def test_what_stays_where_it_is(source: str, between: str) -> None:
    """A write of what is read, an early user, or a source that would have to be kept, keeps an operation early."""
    program = sunk(source, between)
    assert ["exp", "add"] in [names[:2] for names in regions(program)]
    assert not any("mul" in names for names in regions(program))
    verify(program, torch.randn(8, 8), torch.randn(8, 8))


def test_views_that_an_executor_can_not_make() -> None:
    """A view of what a region makes stays outside where the executor says so, and what writes through it too."""
    program = parse("""
    %x: f32[4,6] @s0 o0 = input()
    %y: f32[4,6] @s1 o1 = aten.exp.default(%x) reads(%x)
    %z: f32[4,6] @s1 o1 = aten.neg_.default(%y!) reads(%y)
    %v: f32[2,6] stride(12,1) @s1 o2 = aten.slice.Tensor(%z, 0, 0, 4, 2)
    %w: f32[2,6] stride(12,1) @s1 o2 = aten.mul_.Tensor(%v!, 2) reads(%v)
    output(%z)
    """)
    program = insert_update_aliases(program)
    for reason, expected in ((None, [["y", "z", "v", "w"]]), ("a slice of step 2", [["y", "z"]])):
        sizes = Sizes(why_not_viewed=lambda view, reason=reason: reason)
        assert regions(partition_program(program, why_not_fused, sizes=sizes)) == expected


def test_a_program_with_hazards_is_refused() -> None:
    """A region may come later than its first operation did, and would then read what was written in between."""

    def late(x: torch.Tensor) -> torch.Tensor:
        a = (x + 1).exp()
        x.copy_(x.flip(0))
        return a * 2

    program = capture(late, torch.ones(4))
    with pytest.raises(graphalias.HazardError, match=r"WAR: %add .* before %copy_(.|\n)*insert_update_aliases first"):
        graphalias.partition(program, "inductor")
    x = torch.arange(4.0)
    expected = late(x.clone())
    assert torch.equal(graphalias.partition(insert_update_aliases(program), "inductor").run(x), expected)


def test_writes_do_not_sink() -> None:
    """A write stays where it is, though what it writes is only used later: the caller's memory is written once."""
    program = partitioned("""
    %x: f32[8,8] @s0 obj0 = input()
    %w: f32[8,8] @s1 obj1 = input()
    %y: f32[8,8] @s2 obj2 = input()
    %exp_: f32[8,8] @s2 obj2 = aten.exp_.default(%y!) reads(%y)
    %neg_: f32[8,8] @s2 obj2 = aten.neg_.default(%exp_!) reads(%exp_)
    %sin: f32[8,8] @s5 obj5 = aten.sin.default(%w) reads(%w)
    %mm: f32[8,8] @s6 obj6 = aten.mm.default(%sin, %sin) reads(%sin)
    %mul: f32[8,8] @s7 obj7 = aten.mul.Tensor(%mm, %neg_) reads(%mm, %neg_)
    %add: f32[8,8] @s8 obj8 = aten.add.Tensor(%mul, 1) reads(%mul)
    output(%add)
    """)
    assert regions(program) == [["exp_", "neg_"], ["mul", "add"]]
