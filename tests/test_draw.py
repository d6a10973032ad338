"""Drawings: what is drawn how, what text survives, and which files come out."""

import os
import re
import subprocess
import sys
from functools import cache
from xml.etree import ElementTree

import pygraphviz
import pytest
import torch

import graphalias
from graphalias import GraphAliasError, insert_update_aliases, parse
from graphalias.draw import Drawing, draw
from graphalias.graph import CONSTANT, INPUT, OUTPUT, Operation, Program, Storage, Value
from graphalias.style import MOST_LISTED, PALETTE, RED, VIOLET
from shared import ROOT

VIEW_THEN_WRITE = """
%x: f32[4] @s0 obj0 = input()
%view_1: f32[2,2] @s0 obj1 = aten.view.default(%x, [2, 2])  # /home/me/model.py:11
%add__1: f32[4] @s0 obj0 = aten.add_.Tensor(%x!, 1) reads(%x)  # /home/me/model.py:12
%sin_1: f32[2,2] @s1 obj2 = aten.sin.default(%view_1) reads(%view_1)  # /home/me/model.py:13
output(%sin_1)
"""

TWO_GROUPS = """
%x: f32[4] @s0 obj0 = input()
%w: f32[4] @s9 obj9 = constant()
%rng: state @rng:cpu obj8 = input()
%a: f32[2] @s0 obj1 = aten.slice.Tensor(%x, 0, 0, 2)
%exp_1: f32[4] @s1 obj2 = aten.exp.default(%w) reads(%w)
%split_1: (%l: f32[2] @s1 obj3, %r: f32[2] offset(2) @s1 obj4) = aten.split.Tensor(%exp_1, 2)
%add__1: f32[2] @s0 obj1 = aten.add_.Tensor(%a!, 1) reads(%a)
%mul__1: f32[2] @s1 obj3 = aten.mul_.Tensor(%l!, %add__1) reads(%l, %add__1)
%rand_1: (%n: f32[4] @s2 obj5, %rng_1: state @rng:cpu obj8) = aten.rand.default([4]) states(%rng)
%view_1: f32[2,2] @s2 obj6 = aten.view.default(%n, [2, 2])
output(%mul__1, %view_1)
"""


SVG = "{http://www.w3.org/2000/svg}"


@cache  # a node of a graph that is gone has no attributes
def as_graph(drawing):
    """Return a drawing as Graphviz reads it."""
    return pygraphviz.AGraph(string=drawing.dot)


def ids_by_name(drawing):
    """Return for each operation name the node identities, left to right; a tooltip begins with ``%name:``."""
    found = {}
    for node in as_graph(drawing).nodes():
        name = node.attr["tooltip"].split(":")[0].split("(")[0].removeprefix("%")
        found.setdefault(name, []).append(node)
    return found


def arrow(drawing, source, target, panel=0):
    """Return the attributes of the arrow between two operations of a panel."""
    ids = ids_by_name(drawing)
    return as_graph(drawing).get_edge(ids[source][panel], ids[target][panel]).attr


def svg(drawing):
    """Return the SVG as XML."""
    return ElementTree.fromstring(drawing.svg.encode())


def words(drawing):
    """Return the texts of the SVG, in the order they are drawn."""
    texts = (element.text for element in svg(drawing).iter(f"{SVG}text"))
    return [text.replace("\N{NO-BREAK SPACE}", " ").strip() for text in texts]


def tooltips(drawing):
    """Return the texts the SVG shows under the mouse."""
    links = svg(drawing).iter(f"{SVG}a")
    return [link.get("{http://www.w3.org/1999/xlink}title").replace("\N{NO-BREAK SPACE}", " ") for link in links]


def positions(drawing):
    """Return where each text of the SVG is drawn, as (text, x, y)."""
    texts = svg(drawing).iter(f"{SVG}text")
    return [(text.text, float(text.get("x")), float(text.get("y"))) for text in texts]


@pytest.fixture
def before():
    """A view taken before a write and read after it."""
    return parse(VIEW_THEN_WRITE)


@pytest.fixture
def after(before):
    """The same with the missing dependency."""
    return insert_update_aliases(before)


def test_a_small_program_as_dot():
    """The DOT of a small program: one cluster, nodes, arrows and the row of the output."""
    program = parse(
        "%x: f32[2] @s0 obj0 = input()\n%neg_1: f32[2] @s1 obj1 = aten.neg.default(%x) reads(%x)\noutput(%neg_1)"
    )
    lines = [line.strip().split(" [")[0] for line in draw(program).dot.splitlines()]
    assert [line for line in lines if not line.partition("=")[1]] == [
        "digraph {", "node", "edge", "subgraph cluster_p0 {", "n0", "n1", "n2", "n0 -> n1", "n1 -> n2", "}",
        "subgraph {", "n2;", "}", "}",
    ]  # fmt: skip


def test_labels_say_what_an_operation_is(before):
    """A node shows name, call with the written operand marked, type with the group's storage, and source line."""
    shown = words(draw(before))
    at = shown.index("add__1")
    assert shown[at : at + 4] == ["add__1", "add_.Tensor(x!, 1)", "f32[4] @s0", "model.py:12"]
    assert shown[shown.index("sin_1") + 2] == "f32[2,2]"
    assert {"program", "2 hazards"} <= set(shown)


def test_long_calls_take_two_lines():
    """A call that does not fit a line goes on in a second, so that a written operand is seen; then it is cut."""
    inputs = "".join(f"%long_name_{i}: f32[2] @s{i} o{i} = input()\n" for i in range(9))
    operands = ", ".join(f"%long_name_{i}{'!' * (i == 3)}" for i in range(9))
    shown = words(draw(parse(f"{inputs}%f: f32[2] @s3 o3 = mine.f({operands})\noutput()")))
    first = shown.index("f") + 1
    assert shown[first] == "mine.f(long_name_0, long_name_1,"
    assert "long_name_3!" in shown[first + 1] and shown[first + 1].endswith("…")


def test_hazards_are_red_dashed_and_named(before):
    """A hazard is an arrow of its own, from the operation that must run first, with its kind."""
    look = arrow(draw(before), "add__1", "sin_1")
    assert (look["color"], look["style"], look["label"].strip()) == (RED, "dashed", "hazard RAW")


def test_a_hazard_on_an_edge_is_drawn_once(before, monkeypatch):
    """Where a hazard joins two operations that have an edge, the edge is redrawn, not doubled."""
    from graphalias.hazards import find_hazards

    hazard, *_ = find_hazards(before)
    doubled = type(hazard)(**{**vars(hazard), "before": "x", "after": "view_1"})
    monkeypatch.setattr("graphalias.dot.find_hazards", lambda program: (doubled, doubled))
    drawing = draw(before)
    assert arrow(drawing, "x", "view_1")["label"].strip() == "hazard RAW"
    assert as_graph(drawing).number_of_edges() == before.graph.number_of_edges()


def test_what_was_inserted_stands_out(before, after):
    """`update_aliases` nodes have their own shape, ORDER edges are dashed and named; neither is in the before."""
    drawing = draw(before, after)
    (inserted,) = ids_by_name(drawing)["update_aliases_1"]
    assert (inserted.attr["shape"], inserted.attr["fillcolor"]) == ("hexagon", VIOLET)
    graph, ids = as_graph(drawing), ids_by_name(drawing)
    look = graph.get_edge(ids["add__1"][1], inserted).attr
    assert (look["color"], look["style"], look["label"].strip()) == (VIOLET, "dashed", "RAW")
    assert not any(edge.attr["color"] == RED for edge in graph.edges() if edge[0] in ids["add__1"][1:])
    assert "no hazards, 1 update_aliases" in words(drawing)


def test_writes_are_marked(before):
    """The arrow to an operation that writes its operand is thick, and so is the operation's border."""
    drawing = draw(before)
    assert float(arrow(drawing, "x", "add__1")["penwidth"]) > 2
    assert not arrow(drawing, "x", "view_1")["penwidth"]
    assert float(ids_by_name(drawing)["add__1"][0].attr["penwidth"]) > 2


def test_only_written_view_groups_have_a_colour():
    """Each view group that is written has its colour; a group nobody writes, or of one object, has none."""
    drawing = draw(parse(TWO_GROUPS))
    fill = {name: nodes[0].attr["fillcolor"] for name, nodes in ids_by_name(drawing).items()}
    assert fill["x"] == fill["a"] == fill["add__1"] == PALETTE[0][0]
    assert fill["exp_1"] == fill["mul__1"] == PALETTE[1][0]
    assert fill["w"] == fill["output"] == "#FFFFFF"
    assert fill["view_1"] == "#FFFFFF"


def test_a_group_has_one_colour_before_and_after():
    """The colour goes with the storage, so it is the same in both programs, whatever else is in them."""
    one = "%{0}: f32[2] @s{0} o{0} = input()\n%v{0}: f32[1] @s{0} p{0} = aten.view.default(%{0})\n"
    one += "%add__{0}: f32[1] @s{0} p{0} = aten.add_.Tensor(%v{0}!, 1) reads(%v{0})\n"
    found = ids_by_name(
        draw(parse(one.format("b") + "output()"), parse(one.format("a") + one.format("b") + "output()"))
    )
    left, right = (node.attr["fillcolor"] for node in found["b"])
    assert left == right == PALETTE[0][0]
    assert found["a"][0].attr["fillcolor"] == PALETTE[1][0]


def test_kinds_of_nodes_differ_in_shape():
    """Inputs, constants, states, operations and the output differ without colour."""
    shape = {
        name: (nodes[0].attr["shape"], nodes[0].attr["peripheries"], nodes[0].attr["style"])
        for name, nodes in ids_by_name(draw(parse(TWO_GROUPS))).items()
    }
    assert len({shape[name] for name in ("x", "w", "rng", "exp_1", "output")}) == 5


def test_arrows_of_several_results_are_named():
    """Where an operation has several results, an arrow says which one passes; states pass in grey."""
    drawing = draw(parse(TWO_GROUPS))
    assert arrow(drawing, "split_1", "mul__1")["label"].strip() == "l"
    assert not (arrow(drawing, "x", "a")["label"] or "").strip()
    assert arrow(drawing, "rng", "rand_1")["color"] == "#8C8C8C"


def test_before_is_left_of_after_in_the_same_rows(before, after):
    """Operations of one name are in one row, the before's on the left, and the outputs in the last row."""
    groups = parse(TWO_GROUPS)
    for first, second in ((before, after), (after, before), (groups, insert_update_aliases(groups))):
        drawn = positions(draw(first, second))
        row = {text: y for text, _, y in drawn}
        for name in ("x", "add__1", "output"):
            (left, left_y), (right, right_y) = [(x, y) for text, x, y in drawn if text == name]
            assert left < right and left_y == right_y
        assert row["output"] == max(row[operation.name] for operation in (*first.operations, *second.operations))


REGIONS = """
%x: f32[4] @s0 obj0 = input()
%a: f32[2] @s0 obj1 = aten.slice.Tensor(%x, 0, 0, 2)
%m: f32[2] @s1 obj2 = aten.mm.default(%a) reads(%a)
%region_1: (%e: f32[2] @s2 obj3, %a1: f32[2] @s0 obj1) = region(%a!, %m) reads(%a, %m) after(m WAR) {
    %a: f32[2] @s0 obj1 = input()
    %m: f32[2] @s1 obj2 = input()
    %add_: f32[2] @s0 obj1 = aten.add_.Tensor(%a!, %m) reads(%a, %m)
    %e: f32[2] @s2 obj3 = aten.exp.default(%add_) reads(%add_)
    output(%e)
}
output(%e) after(region_1 RAW)
"""


def with_notes(text, **notes):
    """Return the program of a text, with what a pass noted of its nodes."""
    program = parse(text)
    program.notes |= notes
    return program


def test_regions_list_their_operations():
    """A region is a rounded box with its operations in it, what it writes marked, and no arrows of its own inside."""
    drawing = draw(parse(REGIONS))
    shown = words(drawing)
    at = shown.index("region_1")
    assert shown[at : at + 5] == [
        "region_1", "region(a!, m)", "add_ = add_.Tensor(a!, m)", "e = exp(add_)", "f32[2], f32[2] @s0",
    ]  # fmt: skip
    assert "no hazards, 1 region" in shown
    (node,) = ids_by_name(drawing)["region_1"]
    assert (node.attr["style"], node.attr["color"], node.attr["penwidth"]) == ("filled,rounded", VIOLET, "3")
    assert len(as_graph(drawing)) == 5
    assert float(arrow(drawing, "a", "region_1")["penwidth"]) > 2


def test_operations_of_a_region_have_their_groups_colour():
    """Inside a region an operation has the colour of the view group its result lies in, and no other has it."""
    label = ids_by_name(draw(parse(REGIONS)))["region_1"][0].attr["label"]
    (filled,) = [row for row in label.split("<tr>") if "bgcolor" in row]
    assert f'bgcolor="{PALETTE[0][0]}"' in filled and "add_.Tensor" in filled


def test_large_regions_are_cut():
    """Of a large region the first operations are listed, and the others counted."""
    more = [f"    %n{i + 1}: f32[2] @n{i} p{i} = aten.neg.default(%n{i}) reads(%n{i})" for i in range(40)]
    more[0] = more[0].replace("%n0", "%add_")
    shown = words(draw(parse(REGIONS.replace("    output(%e)", "\n".join([*more, "    output(%e)"])))))
    listed = [text for text in shown if " = " in text]
    assert len(listed) == MOST_LISTED - 1 and "… 29 more" in shown


def test_tooltips_say_why():
    """What a pass noted is in the tooltip: why an operation is in no region, what keeps a region apart."""
    shown = tooltips(draw(with_notes(REGIONS, m="a matrix product", region_1="%add_: it comes after %m")))
    assert any(tip.startswith("%m: f32[2]") and tip.endswith("in no region: a matrix product") for tip in shown)
    assert any(
        tip.startswith("%region_1: ") and tip.endswith("comes before: %add_: it comes after %m") for tip in shown
    )
    assert not any("region: " in tip for tip in tooltips(draw(parse(REGIONS))) if not tip.startswith("%region_1"))


def test_programs_that_disagree_on_an_order_are_drawn():
    """Two programs of the same names in another order can't share rows, and are drawn all the same."""
    line = "%{0}: f32[2] @{0} o{0} = aten.neg.default(%{1}) reads(%{1})\n"
    x, end = "%x: f32[2] @s0 obj0 = input()\n", "output(%{})"
    one = parse(x + line.format("a", "x") + line.format("b", "a") + end.format("b"))
    other = parse(x + line.format("b", "x") + line.format("a", "b") + end.format("a"))
    assert words(draw(one, other)).count("a") == 2


HOSTILE = [
    "<lambda>", "a->a", 'say "hi"', "back\\slash", "\\N and \\G", "naïve ∀ 🙂", "100%", "&lt; & &amp;", "graph", "node",
    "split_1.0", "a:b:c", "<b>", "]];", "tail\\", "-- comment", "/* c */", "two  spaces",
]  # fmt: skip


def hostile_program(name):
    """Return a program whose every text is a hostile one."""
    x = Value("x" + name, "f32", (2,), Storage("s" + name, INPUT), "obj0")
    view, other = (Value(prefix + name, "f32", (1,), x.storage, prefix) for prefix in "vw")
    return Program(
        [
            Operation("x" + name, INPUT, results=(x,)),
            Operation(name, name, (x, name), {"k": name}, (view, other), location=f"/a/{name}:3"),
            Operation(
                "f", "aten.fill_.Scalar", (view, 1), results=(view_of(view),), writes=(0,), location=f"C:\\a\\{name}:3"
            ),
            Operation(OUTPUT, OUTPUT, (other,)),
        ],
        name=name,
    )


def view_of(value):
    """Return the result of an in-place operation."""
    return Value("f", value.dtype, value.shape, value.storage, value.object)


@pytest.mark.parametrize("name", HOSTILE)
def test_labels_keep_every_character(name):
    """Whatever an operation, a value, a target or a file is called stands in the SVG as it is."""
    drawing = draw(hostile_program(name))
    assert {name, f"x{name}", f"v{name}", f"f32[1] @s{name}"} <= set(words(drawing))
    assert len(as_graph(drawing)) == 4
    assert any(tooltip.startswith(f"%{name}: ") for tooltip in tooltips(drawing))
    assert drawing.png


def test_what_xml_cannot_hold_is_replaced():
    """Control characters are shown as unknown ones, and a newline breaks the line."""
    shown = words(draw(hostile_program("bell\x07\x00\ud800 \x1b[0m\nnext")))
    assert "bell\ufffd\ufffd\ufffd \ufffd[0m" in shown and "next" in shown


def test_very_long_texts_are_cut():
    """A name or an argument list of any length is cut: Graphviz reads no string of over 16,384 characters."""
    drawing = draw(hostile_program("n" * 20_000))
    assert max(map(len, words(drawing))) <= 80


def test_the_same_text_whatever_the_hash_seed():
    """The DOT text is the same in every process."""
    script = (
        "from tests.test_draw import TWO_GROUPS; from graphalias import *; from graphalias.draw import draw;"
        "p = parse(TWO_GROUPS); print(draw(p, insert_update_aliases(p)).dot)"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }  # fmt: skip
    assert len(texts) == 1


def chains(count):
    """Return a program of many independent inputs, each written in place and read."""
    inputs = [f"%x{i}: f32[2] @s{i} o{i} = input()" for i in range(count)]
    writes = [f"%add__{i}: f32[2] @s{i} o{i} = aten.add_.Tensor(%x{i}!, 1) reads(%x{i})" for i in range(count)]
    return parse("\n".join([*inputs, *writes, "output()"]))


def test_large_programs_are_folded():
    """Beyond the limit the first operations are drawn with their inputs, and the rest is one node that counts them."""
    program = chains(1000)
    drawing = draw(program, limit=10)
    names = ids_by_name(drawing)
    assert {"x0", "add__0", "x4", "add__4", "output"} <= names.keys() and not names.keys() & {"x5", "add__5"}
    assert len(as_graph(drawing)) == 12
    assert "… 1990 more" in words(drawing)
    assert "1000 hazards" in words(drawing)
    assert len(as_graph(draw(program, insert_update_aliases(program)))) == 202 + 3, (
        "the update_aliases of the second program are of no line"
    )


def test_pictures_of_large_programs_stay_handy(before):
    """A PNG has twice the SVG's pixels, unless those would be too many."""
    for program, least, most in ((before, 100_000, 3_000_000), (chains(190), 1_000_000, 40_500_000)):
        header = draw(program).png[16:24]
        width, height = int.from_bytes(header[:4], "big"), int.from_bytes(header[4:], "big")
        assert least < width * height < most and max(width, height) <= 32_100


@pytest.mark.parametrize("limit", [0, 1, 2, 5])
def test_any_limit_draws_the_output(limit, before):
    """Even a limit of none leaves the output and the node of the rest."""
    assert "output" in ids_by_name(draw(before, limit=limit))


def test_files_by_suffix(tmp_path, before):
    """The suffix says what is written; ``draw(path=)`` saves too."""
    drawing = draw(before, path=tmp_path / "a.svg")
    drawing.save(tmp_path / "a.PNG")
    drawing.save(str(tmp_path / "a.dot"))
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == drawing.svg
    assert (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert (tmp_path / "a.dot").read_text(encoding="utf-8") == drawing.dot


@pytest.mark.parametrize("path", ["a.pdf", "a", "svg", "a.svg.gz"])
def test_other_suffixes_are_refused(tmp_path, before, path):
    """Any other suffix is an error that names the path and the choices, and nothing is written."""
    for save in (draw(before).save, lambda path: draw(before, path=path)):
        with pytest.raises(GraphAliasError, match=rf"{path}'\n.*\.svg, \.png or \.dot"):
            save(tmp_path / path)
    assert not list(tmp_path.iterdir())


def test_only_programs_are_drawn(before):
    """What is no program is refused, with what makes one."""
    for arguments in ((print,), (before, "after")):
        with pytest.raises(GraphAliasError, match=r"takes a Program, not \w+\n.*graphalias\.capture"):
            draw(*arguments)


def test_without_pygraphviz(before, monkeypatch):
    """Without pygraphviz the error says what to install, and the DOT text is there all the same."""
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    drawing = draw(before)
    assert drawing.dot.startswith("digraph")
    with pytest.raises(GraphAliasError, match=r"pip install 'pygraphviz"):
        drawing.svg  # noqa: B018


def test_notebooks_show_the_picture(before):
    """A drawing and a program are shown as SVG in a notebook, with text for who can't see it."""
    drawing = draw(before)
    bundle = drawing._repr_mimebundle_()
    assert bundle["image/svg+xml"] == drawing._repr_svg_() == drawing.svg
    assert bundle["text/plain"] == repr(drawing)
    assert before._repr_mimebundle_() == {"text/plain": str(before), "image/svg+xml": drawing.svg}


def test_drawing_leaves_the_programs(before, after):
    """Drawing changes neither program."""
    texts = str(before), str(after)
    draw(before, after)
    assert (str(before), str(after)) == texts


def test_the_legend_explains_what_is_drawn_only(before):
    """The legend has a line for what is in the drawing, and none for what isn't."""
    pure = parse(f"%x: f32[2] @s0 obj0 = {CONSTANT}()\noutput(%x)")
    assert words(draw(pure))[0] == "data"
    assert not any("order only" in word for word in words(draw(before)))
    assert any("hazard: order missing" in word for word in words(draw(before)))
    assert isinstance(draw(before), Drawing)


def test_regions_are_clusters_where_there_is_room():
    """A region's operations are drawn inside it, in the rows of the program before; closed where they do not fit."""
    text = REGIONS.replace("%a1: f32[2] @s0 obj1) = region", "%add_: f32[2] @s0 obj1) = region")
    drawing = draw(parse(text))
    panels = as_graph(drawing).subgraphs()
    (cluster,) = [part for panel in panels for part in panel.subgraphs() if (part.name or "").endswith("r0")]
    assert {node.attr["tooltip"].split(":")[0] for node in cluster.nodes()} == {"%add_", "%e"}
    assert "region_1" in words(drawing) and "region(a!, m)" in words(drawing)
    assert not arrow(drawing, "e", "output")["style"]
    assert "add_ = add_.Tensor(a!, m)" in words(draw(parse(text), limit=5))


def layers(count):
    """Return a program of many layers, each from the same lines of source."""
    lines, last = ["%x: f32[4] @s0 obj0 = input()"], "x"
    for i in range(count):
        lines.append(f"%neg_{i}: f32[4] @s0 obj0 = aten.neg_.default(%{last}!) reads(%{last})  # model.py:3")
        lines.append(f"%sin_{i}: f32[4] @t{i} sin{i} = aten.sin.default(%neg_{i}) reads(%neg_{i})  # model.py:4")
        last = f"neg_{i}"
    return parse("\n".join([*lines, "output()"]))


def test_large_programs_are_drawn_by_line():
    """Where the operations are too many, those of one line of source are one node that counts them."""
    drawing = draw(layers(500))
    assert len(as_graph(drawing)) == 4
    shown = words(drawing)
    assert {"model.py:3", "model.py:4", "neg_.default", "500 nodes, 500 in place", "500 nodes"} <= set(shown)
    assert len(as_graph(draw(layers(50)))) == 102


def test_focus_and_only():
    """`focus` draws an operation and what is near it, `only` what touches a view group; a wrong name is refused."""
    near = ids_by_name(draw(layers(20), focus="sin_7", distance=1))
    assert near.keys() == {"sin_7", "neg_7"}
    group = ids_by_name(draw(parse(TWO_GROUPS), only="s1"))
    assert group.keys() == {"exp_1", "split_1", "mul__1", "output"}
    assert ids_by_name(draw(parse(TWO_GROUPS), only="l")).keys() == group.keys()
    for options in ({"focus": "nothing"}, {"only": "nothing"}):
        with pytest.raises(GraphAliasError, match=r"there is no .* 'nothing'"):
            draw(parse(TWO_GROUPS), **options)


def test_steps_are_drawn_side_by_side(before, after):
    """A sequence of programs is drawn from left to right, with numbers; a mapping with its titles."""
    shown = words(draw([before, after, after]))
    assert [title for title in shown if title.endswith(" program")] == ["1 program", "2 program", "3 program"]
    assert {"old", "new"} <= set(words(draw({"old": before, "new": after})))


def test_dark(before, after):
    """The dark theme has the same words on dark paper, and no colour of the light one; another theme is refused."""
    light, dark = draw(before, after), draw(before, after, theme="dark")
    assert words(light) == words(dark)
    assert as_graph(dark).graph_attr["bgcolor"] == "#1B1D21"
    assert not {"#FFFFFF", "#222222", PALETTE[0][0]} & set(re.findall("#[0-9A-F]{6}", dark.dot))
    with pytest.raises(GraphAliasError, match="no theme 'red'"):
        draw(before, theme="red")


def test_what_notebooks_show(before):
    """Explanations, reports and lowered programs are shown as text and picture together."""
    x = torch.ones(2)
    for thing in (
        graphalias.explain(torch.neg, x, executor="eager"),
        graphalias.verify(torch.neg, x, orders=1),
        graphalias.lower(graphalias.capture(torch.neg, x), "eager"),
    ):
        bundle = thing._repr_mimebundle_()
        assert bundle.keys() == {"text/plain", "text/html", "image/svg+xml"}
        assert "neg" in bundle["text/html"].split("<svg")[0]
