"""Each invariant of a program, broken once; random programs break none."""

import re
from collections.abc import Callable

import networkx as nx
import pytest
from hypothesis import given

import graphalias
from graphalias import After, CheckError, Operation, Program, Storage, Symbol, Value
from graphalias.check import INVARIANTS, check
from strategies import programs

SOUND = """\
%x: f32[4,4] @s0 obj0 = input()
%y: f32[4] @s0 obj1 = input()
%c: f32[4] @c0 obj2 = constant()
%unused: f32[] @s2 obj6 = input()
%rng: state @rng:cpu obj3 = input()
%row: f32[4] @s0 obj4 = test.select(%x, slice(None, 2, None), dtype:f32)
%add_: f32[4] @s0 obj4 = test.add_(%row!, %c, scale=1.5) reads(%row, %c)  # model.py:7
%rand: (%rand.0: f32[4] @s1 obj5, %rng_1: state @rng:cpu obj3) = test.rand([4]) states(%rng)
%t_: f32[4,4] stride(1,4) @s0 obj0 = test.t_(%x~)
%y_1: f32[4] @s0 obj1 = update_aliases(%y) after(add_ RAW)
%join: () = update_aliases() after(add_ WAW)
output(%y_1, %rand.0, 3) after(join WAW)
"""


def value(name: str, storage: str = "s9", obj: str = "obj9", lifetime: str = "local", **fields: object) -> Value:
    """Return a handle, of nothing known unless said otherwise."""
    return Value(
        name, **{"dtype": "f32", "shape": (4,), "storage": Storage(storage, lifetime), "object": obj, **fields}
    )


def node(name: str) -> Value:
    """Return the first result of an operation of the sound program."""
    return graphalias.parse(SOUND).operation(name).results[0]


STATE = value("rng_1", "rng:cpu", "obj3", "input", dtype="state", shape=())


@given(programs())
def test_random_programs_are_sound(program: Program) -> None:
    """Every program the other tests are made of keeps every invariant, and so does its text."""
    check(program)
    text = str(program)
    again = graphalias.parse(text)
    check(again)
    assert str(again) == text


def test_sound() -> None:
    """A program with a bit of everything keeps every invariant."""
    check(graphalias.parse(SOUND))


BROKEN = {
    "nameless operand": ("row", {"args": (object(),)}, "arguments that have a text.*type object"),
    "handle in a slice": ("row", {"args": (node("x"), slice(node("y"), None))}, "arguments that have a text"),
    "object in a list": ("row", {"args": (node("x"), [1, (set(),)])}, "found set.. of type set"),
    "another handle of that name": ("row", {"args": (value("x", "s0", "obj0", "input"),)},
                                    "%x as it was made"),
    "name twice": ("t_", {"results": (value("y", "s0", "obj0", "input"),)}, "a new name, not %y again"),
    "dtype": ("rand", {"results": (value("rand.0", dtype="f7"), STATE)}, "found 'f7' of %rand.0"),
    "stride length": ("row", {"results": (value("row", stride=(1, 2)),)}, "of one length"),
    "negative stride": ("row", {"results": (value("row", stride=(-1,)),)}, "no negative"),
    "negative size": ("row", {"results": (value("row", shape=(-1,)),)}, "no negative"),
    "input with operand": ("y", {"args": (node("x"),)}, "to take nothing"),
    "input without result": ("unused", {"results": (None,)}, "one result of input"),
    "order at an operation": ("row", {"after": (After("x", "RAW"),)}, "end at update_aliases or the output"),
    "reason": ("output", {"after": (After("t_", "RAR"),)}, "RAW, WAR or WAW.*'RAR'"),
    "reads out of range": ("add_", {"reads": (2,)}, "reads to be positions of 2 operands"),
    "writes out of range": ("add_", {"writes": (-1,)}, "writes to be positions"),
    "reads twice": ("add_", {"reads": (0, 0)}, "each position once"),
    "state as operand": ("row", {"args": (node("rng"),)}, "only states, in states"),
    "handle as state": ("row", {"states": (node("x"),)}, "only states, in states"),
    "state with a shape": ("rng", {"results": (value("rng", dtype="state"),)}, "no shape of the state %rng"),
    "state that does not advance": ("t_", {"states": (node("rng"),)}, "as the last results"),
    "update_aliases of another object": ("y_1", {"results": (value("y_1", "s0"),)}, "as results"),
    "update_aliases without result": ("join", {"args": (node("x"),)}, "as results"),
    "update_aliases that reads": ("y_1", {"reads": (0,)}, "to read and write nothing"),
    "geometry changed unsaid": ("t_", {"reshapes": ()}, "mark the operand in reshapes"),
    "reshaped object not returned": ("add_", {"reshapes": (1,)}, "reshaped objects among the results.*obj2"),
    "object of another": ("row", {"results": (value("row", "s0", "obj1", "input"),)}, "a new object of %row"),
    "storage of another": ("row", {"results": (value("row", "c0", lifetime="constant"),)}, "on a storage of"),
    "storage named like an object": ("rand", {"results": (value("rand.0", "obj0"), STATE)}, "named like no object"),
    "storage that lives longer": ("rand", {"results": (value("rand.0", lifetime="input"), STATE)}, "local as lifetime"),
    "input that dies": ("unused", {"results": (value("unused"),)}, "input as lifetime of s9"),
    "output with results": ("output", {"results": (value("z"),)}, "without results"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_operation(name: str, changes: dict, message: str) -> None:
    """An operation that breaks an invariant is named, with what was expected and found."""
    program = graphalias.parse(SOUND)
    position = list(program.graph).index(name)
    *before, one = program.operations[: position + 1]
    one = one.replace(**changes)
    results = {result.name: result for op in (*before, one) for result in op.results if result}
    # operands of later operations follow, so that only the one thing is broken
    after = [op.rename(lambda operand: results.get(operand.name, operand)) for op in program.operations[position + 1 :]]
    program = Program([*before, one, *after])
    with pytest.raises(CheckError, match=message) as caught:
        check(program)
    assert caught.value.node == name


def put(graph: nx.DiGraph, at: str, **changes: object) -> None:
    """Change an operation behind the graph's back."""
    graph.nodes[at]["op"] = graph.nodes[at]["op"].replace(**changes)


CHANGED_BY_HAND = [
    (lambda graph: graph.add_node("row_2"), "row_2", "expected an Operation in op, found None"),
    (lambda graph: put(graph, "t_", name="other"), "other", "the operation of node 't_', found 'other'"),
    (lambda graph: graph.remove_edge("c", "add_"), "add_", "a DATA edge from 'c', found none"),
    (
        lambda graph: graph.add_edge("rand", "t_", kind="ORDER", reason="WAR"),
        "t_",
        "no edge from 'rand', found an ORDER",
    ),
    (lambda graph: graph.add_edge("t_", "x", kind="DATA"), "x", "no edge from 't_'"),
    (lambda graph: graph.edges["x", "t_"].update(kind="ORDER"), "t_", "a DATA edge from 'x', found an ORDER edge"),
    (lambda graph: graph.edges["add_", "y_1"].update(reason="WAW"), "y_1", "an ORDER edge (RAW) from 'add_'"),
    (lambda graph: graph.add_node("late", op=Operation("late", "f")), "output", "last, found 'late' after it"),
    (lambda graph: graph.add_node("end", op=Operation("end", "output")), None, "one output node, found output, end"),
    (lambda graph: put(graph, "row", args=(node("t_"),)), "row", "%t_ to be a result of an earlier operation"),
    (
        lambda graph: put(graph, "y_1", after=(After("join", "RAW"),)),
        "y_1",
        "'join' in after to be an earlier operation",
    ),
    (lambda graph: put(graph, "join", after=(After("gone", "RAW"),)), "join", "'gone' in after to be an earlier"),
]


@pytest.mark.parametrize(("change", "name", "message"), CHANGED_BY_HAND)
def test_graph_changed_by_hand(change: Callable[[nx.DiGraph], None], name: str | None, message: str) -> None:
    """A graph that says something else than its operations is refused, at the node where it does."""
    program = graphalias.parse(SOUND)
    change(program.graph)
    with pytest.raises(CheckError, match=re.escape(message)) as caught:
        check(program)
    assert caught.value.node == name


REGIONS = """\
%x: f32[4,4] @s0 obj0 = input()
%y: f32[4] @s1 obj1 = input()
%y2: f32[4] @s1 obj9 = input()
%unused: f32[4] @s4 obj4 = input()
%half: f32[2] @s1 obj8 = aten.slice.Tensor(%y, 0, 0, 2)
%region: (%mul: f32[4,4] @s3 obj3, %add_: f32[4,4] @s0 obj0, %y3: f32[4] @s1 obj9) = \
region(%x!, %y!, %unused, %y2!) reads(%x, %y, %y2) {
    %x: f32[4,4] @s0 obj0 = input()
    %y: f32[4] @s1 obj1 = input()
    %unused: f32[4] @s4 obj4 = input()
    %y_: f32[4] @s1 obj1 = aten.neg_.default(%y!) reads(%y)  # model.py:8
    %zeros: f32[4] @s5 obj5 = aten.zeros_like.default(%unused)
    %add_: f32[4,4] @s0 obj0 = aten.add_.Tensor(%x!, %y_) reads(%x, %y_)
    %mul: f32[4,4] @s3 obj3 = aten.mul.Tensor(%add_, %zeros) reads(%add_, %zeros)
    output(%mul)
}
output(%mul, %add_, %y3)
"""

BROKEN_REGIONS = {
    "input of another shape": ("region(%x!, %y!, %unused", "region(%x!, %y!, %half",
                               "%unused: f32[4], found %half: f32[2]"),
    "fewer operands": ("    %y_: f32",
                       "    %p: f32[4] @s7 obj7 = input()\n    %q: f32[4] @s8 q = input()\n    %y_: f32",
                       "operands for 5 of its body, found 4"),
    "input of other bits": ("    %unused: f32[4] @s4", "    %unused: f32[4] neg @s4",
                            "%unused: f32[4] neg, found %unused: f32[4]"),
    "input elsewhere": ("    %unused: f32[4] @s4", "    %unused: f32[4] device(cuda:0) @s4", "device(cuda:0), found"),
    "result of another stride": ("(%mul: f32[4,4] @s3", "(%mul: f32[4,4] stride(1,4) @s3",
                                 "%mul: f32[4,4], found %mul: f32[4,4] stride(1,4)"),
    "a number made": ("    output(%mul)", "    output(1)", "the result of its body as it is there, 1"),
    "result missing": ("    output(%mul)", "    output(%mul, %zeros, %zeros, %zeros)",
                       "results for 4 of its body, found 3"),
    "result that is not fresh": ("    output(%mul)", "    output(%add_)", "%mul on memory the region made"),
    "further result not written": ("%y3: f32[4] @s1 obj9) =", "%y3: f32[4] @s1 obj9, %other: f32[4] @s4 obj4) =",
                                   "to be operands that are written, found %other"),
    "read that is not said": ("reads(%x, %y, %y2)", "reads(%x)", "reads [0, 1, 3], as its body does, found [0]"),
    "read that is not done": ("reads(%x, %y, %y2)", "reads(%x, %y, %unused, %y2)", "found [0, 1, 2, 3]"),
    "write that is not said": ("region(%x!, %y!, %unused, %y2!)", "region(%x!, %y, %unused, %y2!)",
                               "writes [0, 1, 3], as its body does, found [0, 3]"),
    "write that is not done": ("%unused, %y2!)", "%unused!, %y2!)",
                               "writes [0, 1, 3], as its body does, found [0, 1, 2, 3]"),
    "view of outside memory inside": ("%zeros: f32[4] @s5 obj5 = aten.zeros_like.default(%unused)",
                                      "%zeros: f32[4] @s4 obj5 = aten.view.default(%unused, [4])\n"
                                      "    %fill: f32[4] @s4 obj5 = aten.fill_.Scalar(%zeros!, 1)",
                                      "to be made outside, found %zeros in its body"),
    "update_aliases inside": ("%zeros: f32[4] @s5 obj5 = aten.zeros_like.default(%unused)",
                              "%zeros: f32[4] @s4 obj4 = update_aliases(%unused)",
                              "without states and order in its body, found %zeros"),
    "order inside": ("    output(%mul)", "    output(%mul) after(y_ RAW)", "without states and order in its body"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), BROKEN_REGIONS.values(), ids=BROKEN_REGIONS)
def test_broken_region(old: str, new: str, message: str) -> None:
    """A region that is not what its body is, is named, with what was expected and found."""
    check(graphalias.parse(REGIONS))
    assert REGIONS.count(old) == 1
    with pytest.raises(CheckError, match=re.escape(message)) as caught:
        check(graphalias.parse(REGIONS.replace(old, new)))
    assert caught.value.node == "region"


def test_inputs_of_a_region_overlap() -> None:
    """Two inputs of a region that overlap are refused where one is written, and only there."""
    text = """
    %x: f32[4] @s0 obj0 = input()
    %half: f32[2] offset(1) @s0 obj1 = aten.slice.Tensor(%x, 0, 1, 3)
    %region: (%exp: f32[2] @s1 obj2) = region(%x, %half) reads(%x, %half) {
        %x: f32[4] @s0 obj0 = input()
        %half: f32[2] offset(1) @s0 obj1 = input()
        %exp: f32[2] @s1 obj2 = aten.exp.default(%half) reads(%half)
        %sum: f32[2] @s2 obj3 = aten.dot.default(%exp, %x) reads(%exp, %x)
        output(%exp)
    }
    output(%exp)
    """
    check(graphalias.parse(text))
    written = text.replace("region(%x, ", "region(%x!, ").replace("(%exp, %x)", "(%exp, %x!)", 1)
    with pytest.raises(CheckError, match="nothing that overlaps %x, which it writes, found %half") as caught:
        check(graphalias.parse(written))
    assert caught.value.node == "region"


def test_unsound_body() -> None:
    """A body keeps every invariant, and the error says where in it one is broken, with the user's line."""
    program = graphalias.parse(REGIONS)
    body = program.operation("region").body
    broken = body.replace_operations(
        op.replace(reads=(0, 7)) if op.name == "y_" else op for op in body.operations
    )  # fmt: skip
    with pytest.raises(CheckError, match="in its body, at y_: expected reads to be positions") as caught:
        check(changed(program, "region", body=broken))
    assert (caught.value.node, caught.value.location) == ("region", "model.py:8")


@pytest.mark.parametrize(
    ("name", "body"), [("region", None), ("half", graphalias.parse("output()")), ("region", "text")]
)
def test_regions_only_have_bodies(name: str, body: object) -> None:
    """A region without a program in it is refused, and a program in anything else."""
    with pytest.raises(CheckError, match="expected a Program as body of regions, and of nothing else") as caught:
        check(changed(graphalias.parse(REGIONS), name, body=body))
    assert caught.value.node == name


def test_regions_take_handles_only() -> None:
    """A region changes no geometry: such operations stay outside."""
    with pytest.raises(CheckError, match="changes no state or geometry"):
        check(changed(graphalias.parse(REGIONS), "region", reshapes=(0,)))


def changed(program: Program, name: str, **changes: object) -> Program:
    """Return a program with one operation changed."""
    return program.replace_operations(op.replace(**changes) if op.name == name else op for op in program.operations)


def test_stale_geometry() -> None:
    """An operand is seen with the geometry its object has by then, not with an earlier one."""
    program = graphalias.parse("""
    %x: f32[2,4] @s0 obj0 = input()
    %t_: f32[4,2] stride(1,4) @s0 obj0 = test.t_(%x~)
    %exp: f32[2,4] @s1 obj1 = test.exp(%x) reads(%x)  # model.py:9
    output(%exp)
    """)
    with pytest.raises(CheckError, match=re.escape("obj0 as %t_ has it")) as caught:
        check(program)
    assert (caught.value.node, caught.value.location) == ("exp", "model.py:9")


def test_output_is_found() -> None:
    """A program without output is refused."""
    program = Program([Operation("f", "test.f", args=(Symbol("dtype", "f32"),))])
    with pytest.raises(CheckError, match="expected one output node, found none"):
        check(program)


def test_invariants_say_what_holds() -> None:
    """Every invariant is a function of the program with a docstring of what holds."""
    assert all(invariant.__doc__ for invariant in INVARIANTS)
    assert len(set(INVARIANTS)) == len(INVARIANTS)
