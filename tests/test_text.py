"""The text form: what is printed is read back as the same program."""

import math

import pytest

import graphalias
from graphalias import ParseError

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
