"""The text form: what is printed is read back as the same program."""

import math
import re

import pytest

import graphalias
from graphalias import ParseError
from graphalias.canonical import canonical_text
from graphalias.check import check
from graphalias.text import print_operation
from test_partition import random_partitioned

EVERYTHING = """\
%x: f32[4,4] @s0 obj0 = input()
%y: c64[2] stride(2) offset(1) device(cuda:0) conj neg @s0 obj1 = input()
%rng: state @rng:cpu obj2 = input()
%c0: bf16[] @s1 obj3 = constant()
%split_1: (%split_1.0: f32[2,4] @s0 obj4, None, %split_1.1: f32[2,4] offset(8) @s0 obj5) = aten.split.Tensor(%x, 2)
%_foreach_mul__1: () = aten._foreach_mul_.Scalar([%split_1.0!, %split_1.1!], 2.0) reads(%split_1.0, %split_1.1)
%bernoulli__1: (%bernoulli__1.0: f32[4,4] @s0 obj0, %bernoulli__1.1: state @rng:cpu obj2) = \
aten.bernoulli_.float(%x!, 0.5, generator=opaque:generator_1) states(%rng) reads(%x)  # model.py:12
%t__1: f32[4,4] stride(1,4) @s0 obj0 = aten.t_.default(%bernoulli__1.0~)
%add_1: f32[4,4] @s2 obj6 = aten.add.out(%x, "a \\"b\\" % # \\u00e9", inf, -inf, nan, 1e-05, -3, None, True, False, \
[1, [2]], slice(None, 2, None), complex(1.0, -2.0), dtype:f32, device:cuda:0, out=%c0!~) reads(%x)
%update_aliases_1: f32[4,4] stride(1,4) @s0 obj0 = update_aliases(%t__1) after(bernoulli__1 WAR, t__1 RAW)
output(%update_aliases_1, 3) after(_foreach_mul__1 RAW, add_1 WAW)
"""


def test_roundtrip() -> None:
    """Printing what was parsed gives the text back, whatever the arguments are."""
    assert str(graphalias.parse(EVERYTHING)) == EVERYTHING


def test_parsed_fields() -> None:
    """Marks become positions, numbers become numbers, and storages know how long they live."""
    program = graphalias.parse(EVERYTHING)
    out = program.operation("add_1")
    assert (out.reads, out.writes, out.reshapes) == ((0,), (1,), (1,))
    assert out.args[2:4] == (math.inf, -math.inf) and math.isnan(out.args[4])
    assert program.operation("_foreach_mul__1").writes == (0, 1)
    assert program.operation("bernoulli__1").location == "model.py:12"
    assert [value.storage.lifetime for value in program.constants] == ["constant"]
    assert program.operation("add_1").results[0].storage.lifetime == "local"
    assert program.graph.edges["t__1", "update_aliases_1"] == {"kind": "DATA", "reason": None, "accesses": None}
    assert program.graph.edges["bernoulli__1", "update_aliases_1"]["reason"] == "WAR"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%x f32[1] @s0 obj0 = input()", "line 1, column 3: expected ':'"),
        ("%x: q9[1] @s0 obj0 = input()", "unknown dtype 'q9'"),
        ("%x: f32[1] stride(1,2) @s0 obj0 = input()", "differ in length"),
        ("output(%x)", "%x is used before"),
        ("%x: f32[1] @s0 obj0 = input()\n%x: f32[1] @s0 obj0 = input()", "line 2, .*two lines"),
        ("%x: f32[1] @s0 obj0 = input()", "ends with a line output"),
        ("%x: f32[1] @s0 obj0 = input()\noutput(__import__('os'))", "expected an argument"),
        ("%x: f32[1] @s0 obj0 = input()\noutput(%x) nonsense", "expected reads"),
        ("%x: f32[1] @s0 obj0 = input()\n%y: f32[1] @s1 obj1 = f(1) reads(%x)\noutput()", "which is no operand"),
        ("%x: f32[1] @s0 obj0 = input()\noutput(%x) after(nobody RAW)", "no earlier operation"),
        ("%x: f32[1] @s0 obj0 = input()\n%x: () = f(%x)\noutput()", "two operations of one name"),
    ],
)
def test_parse_errors(text: str, message: str) -> None:
    """Text that is no program says where and what was expected."""
    with pytest.raises(ParseError, match=message):
        graphalias.parse(text)


REGIONS = """\
%x: f32[4,4] @s0 obj0 = input()
%y: f32[4] @s1 obj1 = input()
%exp: f32[4] @s2 obj2 = aten.exp.default(%y) reads(%y)
%region_1: (%mul: f32[4,4] @s3 obj3, %add_: f32[4,4] @s0 obj0) = region(%x!, %exp) reads(%x, %exp) {
    %x: f32[4,4] @s0 obj0 = input()
    %exp: f32[4] @s2 obj2 = input()
    %add_: f32[4,4] @s0 obj0 = aten.add_.Tensor(%x!, %exp) reads(%x, %exp)  # model.py:7
    %mul: f32[4,4] @s3 obj3 = aten.mul.Tensor(%add_, 2) reads(%add_)  # model.py:8
    output(%mul)
}
%region_2: (%y_1: f32[4] @s1 obj1) = region(%y!) after(exp WAR) {  # model.py:9
    %y: f32[4] @s1 obj1 = input()
    %y_1: f32[4] @s1 obj1 = aten.zero_.default(%y!)
    output()
}
output(%mul, %add_, %y_1)
"""


def test_roundtrip_of_regions() -> None:
    """A region's body stands in braces below its line; it is a program, whose names are its own."""
    program = graphalias.parse(REGIONS)
    assert str(program) == REGIONS
    region, other = program.operation("region_1"), program.operation("region_2")
    assert [value.name for value in region.body.inputs] == ["x", "exp"]
    assert region.body.inputs[0] is not region.operands[0]
    assert (region.body.name, region.body.outputs[0].name) == ("region_1", "mul")
    assert [value.storage.lifetime for value in region.body.inputs] == ["input", "input"]
    assert (region.writes, region.location, other.location) == ((0,), None, "model.py:9")
    assert print_operation(other).endswith("{  # model.py:9"), "of a region the first line"


@pytest.mark.parametrize("seeds", [range(i, i + 60) for i in (0, 60, 120)], ids=str)
def test_roundtrip_of_random_regions(seeds: range) -> None:
    """Partitioned random programs are read back, as sound as they were, and of the same canonical form."""
    for seed in seeds:
        program = random_partitioned(seed)
        again = graphalias.parse(str(program))
        check(again)
        assert str(again) == str(program)
        assert canonical_text(again) == canonical_text(program)


def test_canonical_form_of_bodies() -> None:
    """Programs that differ in names only, those inside regions too, have one canonical form; others have not."""
    renamed = re.sub(r"(?<=[%@ (])(x|y|exp|mul|add_|y_1|region_\d|s\d|obj\d)\b", r"other_\1", REGIONS)
    form = canonical_text(graphalias.parse(REGIONS))
    assert canonical_text(graphalias.parse(renamed)) == form
    assert canonical_text(graphalias.parse(REGIONS.replace("%add_, 2", "%add_, 3"))) != form


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{\n    %x", "\n    %x", "line 4, column 99: expected '{' and the region's body"),
        ("%y: f32[4] @s1 obj1 = input()\n%exp", "%y: f32[4] @s1 obj1 = input() {\n%exp", "line 2, .*found '{'"),
        ("    output(%mul)\n", "", "line 9, column 2: a program ends with a line output"),
        ("    output()\n}\noutput(%mul, %add_, %y_1)\n", "", "line 11, column 80: the region's body is not closed"),
        ("output(%mul, %add_, %y_1)", "}", "line 16, column 1: expected %name or output"),
        ("aten.mul.Tensor(%add_, 2)", "aten.mul.Tensor(%y, 2)", "line 8, .*%y is used before"),
        ("aten.exp.default(%y)", "aten.exp.default(%add_)", "line 3, .*%add_ is used before"),
        ("%exp: f32[4] @s2 obj2 = input()", "%x: f32[4] @s2 obj2 = input()", "line 6, .*the result of two lines"),
        ("aten.zero_.default(%y!)", "region(%y!) {", "line 13, .*a region in a region's body"),
        ("after(exp WAR)", "after(add_ WAR)", "line 11, .*'add_', which is no earlier operation"),
        ("output(%mul, %add_, %y_1)", "output(%mul, 1+1)", "line 16, column 15: expected ','"),
    ],
)  # fmt: skip
def test_parse_errors_of_regions(old: str, new: str, message: str) -> None:
    """What is wrong in a body, or with its braces, is said with line and column."""
    assert old in REGIONS
    with pytest.raises(ParseError, match=message):
        graphalias.parse(REGIONS.replace(old, new))
