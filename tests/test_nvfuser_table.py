"""The page of the nvFuser executor says what the code does; this needs no nvFuser."""

from __future__ import annotations

import sys

import pytest
import torch

import graphalias
from graphalias import parse
from graphalias.executors import nvfuser
from graphalias.executors.nvfuser import loading
from graphalias.executors.nvfuser.table import TABLE
from tools import nvfuser_table


def test_table_is_current() -> None:
    """The table of docs/nvfuser.md is the code's: ``python -m tools.nvfuser_table`` renews it."""
    page = nvfuser_table.PAGE.read_text()
    assert page.split(nvfuser_table.START)[1].split(nvfuser_table.END)[0] == nvfuser_table.table_text()


@pytest.mark.parametrize("target", TABLE)
def test_targets_exist(target: str) -> None:
    """Everything in the table is an operator of torch."""
    found = torch.ops
    for name in target.split("."):
        found = getattr(found, name)
    assert str(found) == target


def test_not_imported_unless_asked_for() -> None:
    """Neither the package nor another executor imports nvFuser."""
    if loading.MODULE not in sys.modules:
        graphalias.jit(torch.neg, executor="eager")(torch.ones(2))
        assert loading.MODULE not in sys.modules


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (None, "not installed"),
        ("__version__ = '0.2.33+git1'", r"0\.2\.33 is too old: expected 0\.2\.34 or newer"),
        ("raise ImportError('lib.so: undefined symbol: _ZN3c10')", "can't be loaded beside torch .*undefined symbol"),
    ],
    ids=["missing", "too old", "not loadable"],
)
def test_unusable(source: str | None, reason: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a usable nvFuser the error says what is wrong and what to install, and flags of loading are put back."""
    name = f"nvfuser_stand_in_{abs(hash(reason))}"
    if source is not None:
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(loading, "MODULE", name)
    loading.load.cache_clear()
    flags = sys.getdlopenflags()
    try:
        with pytest.raises(graphalias.ExecutorError, match=reason) as caught:
            graphalias.jit(torch.neg, executor="nvfuser")
        assert "pip install" in str(caught.value) and sys.getdlopenflags() == flags
        assert not nvfuser.is_available()
    finally:
        loading.load.cache_clear()


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        ("%y: f32[4,4] @s1 o1 = aten.mm.default(%x, %x) reads(%x)", "a matrix product"),
        ("%y: f32[4,4] @s1 o1 = aten.clone.default(%x) reads(%x)", "pure data movement"),
        ("%y: f32[] @s1 o1 = aten.neg.default(%one) reads(%one)", "single elements"),
        ("%y: c64[4] @s1 o1 = aten.neg.default(%z) reads(%z)", "complex"),
        ("%y: u8[4] @s1 o1 = aten.bitwise_not.default(%n) reads(%n)", "no dtype u8"),
        ("%y: f32[0] @s1 o1 = aten.neg.default(%nothing) reads(%nothing)", "no elements"),
        ("%y: f32[4,4] @s1 o1 = mine.neg.default(%x) reads(%x)", "not an ATen operation"),
        ("%y: f32[4,4] @s1 o1 = aten.cumsum.default(%x, 0) reads(%x)", "no lowering of aten.cumsum"),
        ("%y: f32[4,4] @s1 o1 = aten.flip.default(%x, [0]) reads(%x)", "no lowering of aten.flip"),
        ("%y: i64[4] @s1 o1 = aten.remainder.Tensor(%i, %i) reads(%i)", "divided by what may be zero"),
        ("%y: i64[4] @s1 o1 = aten.pow.Tensor_Scalar(%i, 5) reads(%i)", "other powers"),
        ("%y: f32[4,4] @s1 o1 = aten.tanh.default(%x) reads(%x)", None),
    ],
)
def test_what_stays_outside(operation: str, reason: str | None) -> None:
    """What nvFuser can't take, or what ATen is better at, stays outside, and says why."""
    program = parse(f"""
    %x: f32[4,4] @s0 o0 = input()
    %one: f32[] @s2 o2 = input()
    %z: c64[4] @s3 o3 = input()
    %n: u8[4] @s4 o4 = input()
    %nothing: f32[0] @s5 o5 = input()
    %i: i64[4] @s6 o6 = input()
    {operation}
    output(%y)
    """)
    found = nvfuser.why_not_fused(program.operation("y"))
    assert found is None if reason is None else reason in found
