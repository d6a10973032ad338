"""Aliasing edges and view groups."""

import networkx as nx

import graphalias
from graphalias.views import aliasing_edges, find_view_groups
from strategies import random_program

PROGRAM = """\
%rng: state @rng:cpu g0 = input()
%x: f32[4,4] @s0 obj0 = input()
%y: f32[4] offset(4) @s0 obj1 = input()
%z: f32[4] @s1 obj2 = input()
%exp_1: f32[4] @s2 obj3 = test.exp(%z) reads(%z)
%row: f32[4] @s0 obj4 = test.select(%x, 0)
%split: (%a: f32[2] @s3 obj5, None, %b: f32[2] offset(2) @s3 obj6) = test.fresh_pair(%z) reads(%z)
%add_: f32[4] @s0 obj4 = test.add_(%row!, %exp_1) reads(%row, %exp_1)
%update: (%row_2: f32[4] @s0 obj4, %z_2: f32[4] @s1 obj2) = update_aliases(%row, %z) after(add_ RAW)
%each: () = test.foreach_([%a!, %b!])
"""


def test_aliasing_edges() -> None:
    """Edges go to the operand viewed, to the same object, and to the storage's first handle where there is neither."""
    program = graphalias.parse(PROGRAM + "output(%x)\n")
    assert [tuple(edge) for edge in aliasing_edges(program)] == [
        ("x", "y", "shared"),
        ("x", "row", "view"),
        ("a", "b", "shared"),
        ("row", "add_", "in_place"),
        ("row", "row_2", "update_aliases"),
        ("z", "z_2", "update_aliases"),
    ]


def test_view_groups() -> None:
    """Every handle with bytes is in one group; groups know their base, and whether they are written and shared."""
    groups = find_view_groups(graphalias.parse(PROGRAM + "output(%x)\n"))
    found = {group.name: [value.name for value in group.values] for group in groups}
    assert found == {
        "group0": ["x", "y", "row", "add_", "row_2"],
        "group1": ["z", "z_2"],
        "group2": ["exp_1"],
        "group3": ["a", "b"],
    }
    assert [group.base.name for group in groups] == ["x", "z", "exp_1", "a"]
    assert [group.is_written for group in groups] == [True, False, False, True]
    assert [group.is_shared for group in groups] == [True, False, False, True]
    assert [storage.name for storage in groups[0].storages] == ["s0"]


def test_moved_object_joins_groups() -> None:
    """An object that is given another storage joins the views of the old one and of the new one."""
    program = graphalias.parse("""
    %x: f32[4] @s0 obj0 = input()
    %y: f32[4] @s1 obj1 = input()
    %row: f32[2] @s0 obj2 = test.narrow(%x)
    %moved: f32[4] @s1 obj0 = test.set_(%x~, %y)
    %part: f32[2] @s1 obj3 = test.narrow(%moved)
    output(%row, %part)
    """)
    assert [tuple(edge) for edge in aliasing_edges(program)] == [
        ("x", "row", "view"),
        ("x", "moved", "in_place"),
        ("y", "moved", "view"),
        ("moved", "part", "view"),
    ]
    (group,) = find_view_groups(program)
    assert [value.name for value in group.values] == ["x", "y", "row", "moved", "part"]
    assert [storage.name for storage in group.storages] == ["s0", "s1"]
    assert group.is_reshaped and not group.is_written


def test_groups_are_the_components_of_the_aliasing_edges() -> None:
    """A view group is a connected component of the aliasing edges, on random programs with moved objects too."""
    moved = 0
    for seed in range(300):
        program = random_program(seed, 14)
        aliases = nx.Graph((edge.source, edge.target) for edge in aliasing_edges(program))
        aliases.add_nodes_from(v.name for op in program.operations for v in op.results if v and not v.is_state)
        components = {frozenset(names) for names in nx.connected_components(aliases)}
        groups = find_view_groups(program)
        assert {frozenset(value.name for value in group.values) for group in groups} == components
        moved += any(len(group.storages) > 1 for group in groups)
    assert moved > 20
