"""Bytes read and written: by hand for small programs, and never more in a region than its operations move alone."""

import pytest
from hypothesis import given

from graphalias import insert_update_aliases, parse
from graphalias.dead import eliminate_dead_operations
from graphalias.graph import REGION
from graphalias.partition import partition_program
from graphalias.traffic import traffic_of, traffic_of_calls
from strategies import programs

OPERATIONS = """
%x: f32[4,4] @s0 obj0 = input()
%rng: state @rng:cpu rng = input()
%row: f32[4] offset(4) @s0 obj1 = aten.select.int(%x, 0, 1)
%wide: f32[3,4] stride(0,1) offset(4) @s0 obj2 = aten.expand.default(%row, [3, 4])
%square: f32[4] @s1 obj3 = aten.mul.Tensor(%row, %row) reads(%row)
%sum: f32[] @s2 obj4 = aten.sum.default(%wide) reads(%wide)
%fill_: f32[4] offset(4) @s0 obj1 = aten.fill_.Scalar(%row!, 1)
%rand: (%r: f64[2] @s3 obj5, %rng_1: state @rng:cpu rng) = aten.rand.default([2]) states(%rng)
%halves: (%l: f32[8] @s4 obj6, %h: f32[8] offset(8) @s4 obj7) = aten.mine.default(%x) reads(%x)
%t_: f32[4,4] stride(1,4) @s0 obj0 = aten.t_.default(%x~)
output(%square)
"""


@pytest.mark.parametrize(
    ("name", "read", "written"),
    [
        ("row", 0, 0), ("wide", 0, 0), ("square", 16, 16), ("sum", 16, 4), ("fill_", 0, 16), ("rand", 0, 16),
        ("halves", 64, 64), ("t_", 0, 0),
    ],
)  # fmt: skip
def test_operations(name, read, written):
    """Views and changes of geometry move nothing, the same bytes count once, a new tensor is written."""
    assert traffic_of(parse(OPERATIONS).operation(name)) == (read, written)


REGION_TEXT = """
%x: f32[8] @s0 obj0 = input()
%y: f32[8] @s1 obj1 = input()
%region_1: (%e: f32[8] @s2 obj2, %add_: f32[8] @s0 obj0) = region(%x!, %y) reads(%x, %y) {
    %x: f32[8] @s0 obj0 = input()
    %y: f32[8] @s1 obj1 = input()
    %copy_: f32[8] @s0 obj0 = aten.copy_.default(%x!, %y) reads(%y)
    %add_: f32[8] @s0 obj0 = aten.add_.Tensor(%copy_!, 1) reads(%copy_)
    %t: f32[8] @s3 obj3 = aten.exp.default(%add_) reads(%add_)
    %e: f32[8] @s2 obj2 = aten.mul.Tensor(%t, %y) reads(%t, %y)
    output(%e)
}
output(%e) after(region_1 RAW)
"""


def test_a_region_moves_what_crosses_its_border():
    """What a region wrote itself it does not read; what never leaves it is not written; a write-back counts once."""
    region = parse(REGION_TEXT).operation("region_1")
    assert traffic_of(region) == (32, 64), "reads y, writes x and e"
    assert traffic_of_calls(region.body.operations) == (5 * 32, 4 * 32)


@given(programs())
def test_a_region_moves_no_more_than_its_operations(program):
    """Fusing takes bytes away and never adds any."""
    live = eliminate_dead_operations(insert_update_aliases(program))
    partitioned = partition_program(live, lambda operation: None)
    for region in partitioned.operations:
        if region.target == REGION:
            alone, fused = traffic_of_calls(region.body.operations), traffic_of(region)
            assert fused.read_bytes <= alone.read_bytes and fused.written_bytes <= alone.written_bytes
