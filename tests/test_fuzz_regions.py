"""Random programs through fusion regions whose functional form ATen runs; and what such programs have found."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import graphalias
from graphalias.aliases import insert_update_aliases
from graphalias.executors import inductor
from graphalias.graph import REGION
from graphalias.stages import AS_STRIDED
from tools.fuzz_regions import Source, functional_regions, is_faulty, minimal, random_source

needs_inductor = pytest.mark.skipif(not inductor.is_available(), reason="regions need Inductor's rules")


@needs_inductor
@pytest.mark.parametrize("seeds", [range(i, i + 100) for i in range(0, 2000, 100)], ids=str)
def test_random_programs(seeds: range) -> None:
    """Any order of the partitioned program, the lowered one, with views folded, and jit show what eager shows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            source = random_source(seed)
            assert not is_faulty(source, "functional"), source


@needs_inductor
@pytest.mark.parametrize("seed", [511, 1201, 1497, 1868])
def test_found(seed: int) -> None:
    """Programs that were faulty once."""
    assert not is_faulty(random_source(seed), "functional")


@needs_inductor
def test_finds_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A region that forgets a write is found, and the program is cut to the lines that show it."""
    lines = (("t0", "a0.sum(0)"), (None, "a0.add_(1)"), ("t1", "t0 * 2"), (None, "a0.mul_(2)"))
    source = Source((("a0", "make('float32', 4, 6)"), ("a1", "make('float32', 6)")), lines, ("t0", "t1", "a1"), 0)
    assert not is_faulty(source, "functional")
    monkeypatch.setattr(inductor, "_checked", lambda region, run: lambda *tensors: run([t.clone() for t in tensors]))
    assert "contents" in is_faulty(source, "functional")
    shortest = minimal(source, "functional")
    assert len(shortest.lines) == 2 < len(lines)
    assert [name for name, _ in shortest.arguments] == ["a0"]


@needs_inductor
def test_addresses_stay_outside(caplog: pytest.LogCaptureFixture) -> None:
    """as_strided of what a region makes is done outside: within, there are values and not memory."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = (x + 1).mul_(2)
        y.t().as_strided((2, 2), (2, 1), 1).mul_(3).add_(1)
        return y * 2 + 1

    x = torch.randn(4, 6)
    graphalias.verify(program, x, orders=2, executor="eager")
    partitioned = graphalias.partition(insert_update_aliases(graphalias.capture(program, x)), "inductor")
    regions = [op for op in partitioned.operations if op.target == REGION]
    inside = [op.target for region in regions for op in region.body.operations]
    assert inside and AS_STRIDED not in inside
    with functional_regions():
        torch.testing.assert_close(graphalias.lower(partitioned, "inductor")(x.clone()), program(x))
    assert "can't compile" not in caplog.text


@needs_inductor
@pytest.mark.parametrize("shape", [(1, 4, 6), (4, 1)], ids=str)
def test_strides_of_one_element(shape: tuple[int, ...], caplog: pytest.LogCaptureFixture) -> None:
    """What a region makes has eager's strides, also where dimensions have one element."""
    x = torch.empty_strided(shape, (4, 1, 4)[: len(shape)]).fill_(1)
    program = graphalias.capture(lambda x: torch.ones_like(x).mul_(x).add_(1), x)
    with functional_regions():
        found = graphalias.lower(graphalias.partition(program, "inductor"), "inductor")(x)
    assert found.stride() == torch.ones_like(x).stride() and not caplog.text


@needs_inductor
def test_versions_of_merged_inputs() -> None:
    """Two tensors that see the same bytes are one input of a region; the version that counts is the written one's."""
    x = torch.ones(4)
    y = x.data  # the same memory, and a version counter of its own
    with functional_regions():
        jitted = graphalias.jit(lambda x, y: (x * 2, y.mul_(2).add_(1))[0], executor="inductor")
        for _ in range(3):
            before = y._version
            jitted(x, y)
            assert y._version > before


def test_hooks_of_every_module() -> None:
    """A hook that torch runs for every module is seen, however warm the program is."""
    jitted = graphalias.jit(nn.Identity(), executor="eager")
    x = torch.ones(2)
    for _ in range(3):
        jitted(x)
    hook = nn.modules.module.register_module_forward_hook(lambda module, args, result: result + 1)
    try:
        assert torch.equal(jitted(x), x + 1)
    finally:
        hook.remove()
    assert torch.equal(jitted(x), x)


@needs_inductor
def test_compiler_errors_are_brief(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a C++ compiler writes is cut to its first line: the region's text stays in sight."""
    compiler_error = RuntimeError("C++ compile error\n\nCommand:\ng++ x.cpp\n" + "note: ...\n" * 1000)

    def generate(graph: object, fakes: object) -> None:
        raise compiler_error

    monkeypatch.setattr(inductor, "_generate", generate)
    x = torch.randn(5)
    program = graphalias.capture(lambda x: x.cos_().mul_(1.875).add_(0.3125), x)
    expected = x.cos().mul(1.875).add(0.3125)
    graphalias.lower(graphalias.partition(program, "inductor"), "inductor")(x)
    assert torch.equal(x, expected)
    assert "C++ compile error\n%x: f32[5]" in caplog.text and "g++" not in caplog.text


def test_scatter_at_an_offset(caplog: pytest.LogCaptureFixture) -> None:
    """The result of select_scatter keeps its operand's offset, which fakes don't know: the original function runs."""

    def program(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return torch.select_scatter(x[..., 1:], x[0, 1:] * 2, 0, 1)[1:]

    x, y = torch.randn(4, 6), torch.randn(4, 6)
    jitted = graphalias.jit(program, executor="eager")
    for _ in range(3):
        found, expected = jitted(x.copy_(y)), program(y.clone())
        assert torch.equal(found, expected) and found.storage_offset() == expected.storage_offset()
    assert "storage offset" in caplog.text
    assert graphalias.verify(lambda x: torch.select_scatter(x, x[0] * 2, 0, 1), y).error is None


@needs_inductor
def test_results_are_no_views() -> None:
    """What a region makes in another order of dimensions is a tensor of its own, as in eager."""
    x = torch.randn(3, 4).t()
    program = graphalias.capture(lambda x: (x * 2 + 1.25, x.float().neg().exp()), x)
    with functional_regions():
        compiled = graphalias.lower(graphalias.partition(program, "inductor"), "inductor")
        for made, expected in zip(compiled(x), (x * 2 + 1.25, x.neg().exp()), strict=True):
            assert not made._is_view() and made.stride() == expected.stride()
            torch.testing.assert_close(made, expected)
            made.requires_grad_().detach_()
