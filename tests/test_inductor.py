"""Regions compiled by PyTorch's code generator: right where torch.compile is wrong; in place, fresh, as strided."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # its usual name

import graphalias
from graphalias import CaptureError, capture, parse, runtime, verify
from graphalias.aliases import insert_update_aliases
from graphalias.dead import eliminate_dead_operations
from graphalias.executors import inductor
from graphalias.graph import REGION, Program
from graphalias.lower import lower
from graphalias.oracle import differences
from programs import PROGRAMS, ramp
from shared import load_cases
from test_programs import scene_of
from torch_programs import random_arguments, random_program

pytestmark = pytest.mark.skipif(not inductor.is_available(), reason="Inductor needs a C++ compiler")

SHARED = list(getattr(load_cases(), "CASES", ()))

#: What torch.compile with Inductor gets wrong: a fresh result that equals an input, reads of old and new values at
#: other positions, dropped temporaries, lost factors, rounding.
KINDS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "x * 1 is fresh": (lambda x: (x * 1, x.add_(1).mul_(2))[0], lambda: (ramp(8),)),
    "x + 0 is fresh": (lambda x: (x + 0, x.exp_().neg_())[0], lambda: (ramp(8),)),
    "to of the same dtype": (lambda x: x.to(torch.float32).add_(1).mul_(3), lambda: (ramp(8),)),
    "slice_scatter of nothing": (
        lambda x: (torch.slice_scatter(x, x[:2], 0, 0, 2) * 1, x.neg_().add_(1))[0],
        lambda: (ramp(4, 2),),
    ),
    "shift through a temporary": (lambda x: (x[1:].copy_(x[:-1].clone()), x.mul_(2).add_(1))[1], lambda: (ramp(9),)),
    "flip of itself": (lambda x: x.mul_(2).sub_(x.flip(0)), lambda: (ramp(9),)),
    "roll of itself": (lambda x: x.add_(1).add_(x.roll(1, 0)).mul_(0.5), lambda: (ramp(6, 4),)),
    "broadcast of itself": (lambda x: (x.sub_(x[:, :1]), x.mul_(2)), lambda: (ramp(4, 5),)),
    "transpose of itself": (lambda x: x.mul_(2).add_(x.t() * 1).neg_(), lambda: (ramp(4, 4),)),
    "index_put, then a flip": (
        lambda x, i: x.index_put_((i,), x.square()).sub_(x.flip(1)).mul_(2),
        lambda: (ramp(3, 4), torch.tensor([2, 0, 1])),
    ),
    "foreach crosswise": (lambda x, y: torch._foreach_add_([x, y], [y * 1, x * 1]), lambda: (ramp(5), -ramp(5))),
    "exchange": (lambda a, b: (c := a.clone(), a.copy_(b), b.copy_(c), a + 2 * b)[3], lambda: (ramp(5), -ramp(5))),
    "exchange through * 1": (lambda a, b: (c := a * 1, a.copy_(b), b.copy_(c), a + b)[3], lambda: (ramp(5), -ramp(5))),
    "alpha of a product": (
        lambda w, x, d: w.add_(x.t() @ d, alpha=-0.5).mul_(2),
        lambda: (ramp(3, 3), ramp(2, 3), ramp(2, 3)),
    ),
    "f16 rounds at each step": (
        lambda x, y: x.add_(y).mul_(1.001).sub_(y),
        lambda: (torch.randn(64).half(), torch.randn(64).half()),
    ),
    "bf16 keeps its dtype": (
        lambda x, y: (x.add_(y).mul_(y), x * 3),
        lambda: (torch.randn(64).bfloat16(), torch.randn(64)),
    ),
    "int and bool": (
        lambda n, b: (n.add_(b).mul_(3), b.logical_not_().logical_or_(n > 4)),
        lambda: (torch.arange(6), torch.arange(6) > 2),
    ),
    "uint8 wraps": (lambda n: n.add_(200).mul_(3).sub_(7), lambda: (torch.arange(250, 256, dtype=torch.uint8),)),
    "random fill of a view": (lambda x: (x[:, ::2].uniform_(), x.mul_(2).add_(1))[1], lambda: (torch.zeros(3, 6),)),
    "windows": (lambda x: (x.unfold(0, 2, 3).mul_(2).add_(1), x * 1)[1], lambda: (ramp(11),)),
    "overlapping arguments": (
        lambda p, q: (p.sub_(3).mul_(2), p * q + 1)[1],
        lambda: (lambda b: (b[:5], b[3:8]))(ramp(10)),
    ),
    "same argument twice": (lambda p, q: (p.sub_(3).mul_(2), p * q + 1)[1], lambda: (lambda b: (b, b))(ramp(10))),
    "reductions of the old value": (lambda x: (x.sum(0), x.sum(1), x.add_(1).mul_(2)), lambda: (ramp(4, 5),)),
    "empty": (lambda x: (x.add_(1).mul_(2), x.sum(0)), lambda: (torch.zeros(0, 3),)),
    "channels last": (
        lambda x: (x.relu_().mul_(2), x.sigmoid() + 1),
        lambda: (torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),),
    ),
    "transposed": (lambda x: (x.mul_(2).sub_(1), x.exp() * 2), lambda: (torch.randn(5, 6).t(),)),
    "expanded": (lambda x: (x * 2 + 1).relu_(), lambda: (torch.randn(5, 1).expand(5, 6),)),
    "batch norm": (
        lambda x, m, v: F.relu_(F.batch_norm(x, m, v, training=True)),
        lambda: (torch.randn(8, 4), torch.zeros(4), torch.ones(4)),
    ),
    "softmax in place": (
        lambda s: s.sub_(s.amax(-1, keepdim=True)).exp_().div_(s.sum(-1, keepdim=True)),
        lambda: (torch.randn(3, 5),),
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_that_compilers_get_wrong(name: str) -> None:
    """Compiled regions, and any order of the program, show what eager shows."""
    fn, make = KINDS[name]
    torch.manual_seed(0)
    verify(fn, *make(), orders=3, executor="inductor")


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in PROGRAMS])
def test_programs(case: Any) -> None:
    """The project's own programs, compiled."""
    torch.manual_seed(0)
    verify(case.fn, *case.make(), orders=1, executor="inductor")


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in SHARED if not case.backward])
def test_shared_cases(case: Any) -> None:
    """The shared cases, compiled and jitted, the hot path too; what eager refuses is refused."""
    torch.manual_seed(1)
    args = case.make(torch.Generator().manual_seed(0))
    try:
        verify(case.fn, *args, orders=1, executor="inductor")
    except CaptureError as error:
        assert case.expect_error and "eager PyTorch refuses this" in str(error)
    jitted, scene = graphalias.jit(case.fn, executor="inductor"), scene_of(args)
    expected = scene.watch(lambda: case.fn(*args))
    for _ in range(3):
        assert not differences(expected, scene.watch(lambda: jitted(*args)), exact=False)


@pytest.mark.parametrize("seeds", [range(i, i + 25) for i in range(0, 100, 25)], ids=str)
def test_random_programs(seeds: range) -> None:
    """Random programs of views, in-place and pure operations, compiled."""
    for seed in seeds:
        with contextlib.suppress(CaptureError):
            verify(random_program(seed, 2 + seed % 14), *random_arguments(seed), orders=1, executor="inductor")


def partitioned(fn: Callable[..., Any], *args: Any) -> Program:
    """Return a function's program with regions."""
    program = eliminate_dead_operations(insert_update_aliases(capture(fn, *args)))
    return graphalias.partition(program, "inductor")


def test_sharing_that_is_not_guarded_merges_nothing() -> None:
    """Two arguments that see the same bytes are not one input of a region where nothing is written."""
    base = torch.arange(8.0)
    jitted = graphalias.jit(lambda x, y: (x * 2 + y).relu(), executor="inductor")
    for args in ((base[:4], base[:4]), (base[:4], base[4:].clone().view(4)), (base[:4], base[:4].view(4))):
        for _ in range(3):
            assert torch.equal(jitted(*args), args[0] * 2 + args[1])
    assert jitted.cache_info().misses == 1


def test_isomorphic_regions_compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regions that differ in names only are one compiled function."""
    compiled = []
    original = inductor.compile_region
    monkeypatch.setattr(inductor, "compile_region", lambda region: compiled.append(region) or original(region))

    def layers(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.sin(x).mul_(1.25).add_(0.375) @ w
        return x

    x, w = torch.randn(4, 4), torch.randn(4, 4)
    program = partitioned(layers, x, w)
    assert sum(op.target == REGION for op in program.operations) == 4
    torch.testing.assert_close(lower(program, "inductor")(x, w), layers(x, w))
    assert len(compiled) == 1


def test_one_row_product_is_a_region() -> None:
    """A query times cached keys is a region of its own; where its sums are long or strided the product is ATen's."""

    def decode(cache: torch.Tensor, k: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        cache[:, :, 1:2] = k
        return q @ (cache if q.shape[-1] == 16 else cache.transpose(-1, -2))

    for length, width, query, expected in ((16, 64, 64, 1), (1024, 64, 64, 1), (16, 256, 256, 0), (16, 64, 16, 0)):
        args = torch.randn(1, 2, length, width), torch.randn(1, 2, 1, width), torch.randn(1, 2, 1, query)
        assert sum(op.target == REGION for op in partitioned(decode, *args).operations) == expected
        verify(decode, *args, orders=2, executor="inductor")


def test_versions_count() -> None:
    """A tensor saved by an earlier eager forward and then written by a jitted function makes backward raise."""
    x, w = torch.ones(4), torch.ones(4, requires_grad=True)
    loss = (x * w).sum()
    graphalias.jit(lambda x: x.mul_(2).add_(1), executor="inductor")(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_no_copy_of_the_base() -> None:
    """A region that writes a slice takes the slice: the untouched part of its base is no operand of it."""
    program = partitioned(lambda x: x[:, ::2].add_(1).mul_(0.5).add_(1), torch.randn(8, 8))
    (region,) = [op for op in program.operations if op.target == REGION]
    assert [value.shape for value in region.operands] == [(8, 4)]
    assert not [op for op in program.operations if "copy" in op.target or "clone" in op.target]


def test_failing_compile_says_so(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A region that can't be compiled runs operation by operation, is named with its text, and is right."""
    monkeypatch.setattr(inductor, "_generate", lambda *_: 1 / 0)
    x = torch.randn(5)
    program = partitioned(lambda x: x.cos_().mul_(1.625).add_(0.1875), x)
    caplog.set_level(logging.WARNING, "graphalias")
    y = x.clone()
    assert torch.equal(lower(program, "inductor")(y), x.cos().mul(1.625).add(0.1875))
    with pytest.raises(graphalias.ExecutorError, match="ZeroDivisionError"):
        lower(program, "inductor", strict=True)
    assert "ZeroDivisionError" in caplog.text and "aten.cos_.default" in caplog.text and "one by one" in caplog.text


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        ("%y: f32[4,4] @s1 o1 = aten.mm.default(%x, %x) reads(%x)", "a matrix product"),
        ("%y: f32[4,4] @s1 o1 = aten.clone.default(%x) reads(%x)", "pure data movement"),
        ("%y: f32[] @s1 o1 = aten.neg.default(%one) reads(%one)", "single elements"),
        ("%y: c64[4] @s1 o1 = aten.neg.default(%z) reads(%z)", "complex"),
        ("%y: f32[4,4] @s1 o1 = mine.neg.default(%x) reads(%x)", "not an ATen operation"),
        ("%y: f32[4,4] @s1 o1 = aten.cumsum.default(%x, 0) reads(%x)", "made of aten.cumsum"),
    ],
)
def test_what_stays_outside(operation: str, reason: str) -> None:
    """Products, data movement, single elements, complex numbers and unknown operators stay outside, and say why."""
    program = parse(f"""
    %x: f32[4,4] @s0 o0 = input()
    %one: f32[] @s2 o2 = input()
    %z: c64[4] @s3 o3 = input()
    {operation}
    output(%y)
    """)
    assert reason in inductor.why_not_fused(program.operation("y"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_products_stay_outside(dtype: torch.dtype) -> None:
    """A product of half precision is rounded once, by ATen's kernel; a region would round each term of its sums."""
    q, k = torch.randn(2, 1, 64, dtype=dtype), torch.randn(2, 16, 64, dtype=dtype)
    program = partitioned(lambda q, k: q @ k.transpose(-1, -2), q, k)
    assert [op.target for op in program.operations if op.target in (REGION, "aten.bmm.default")] == ["aten.bmm.default"]


def test_statistics_are_a_region_of_their_own() -> None:
    """ATen takes twice as long for a layer norm and far longer for a variance: each is worth a region, a sum is not."""
    x = torch.randn(8, 16)
    for fn, expected in ((lambda x: torch.nn.functional.layer_norm(x, (16,)), 1), (torch.var, 1), (torch.sum, 0)):
        assert sum(op.target == REGION for op in partitioned(fn, x).operations) == expected
        verify(fn, x, orders=2, executor="inductor")


def test_the_generator_gets_ready_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes the code generator seconds the first time begins before capture, once in a process."""
    begun: list[str] = []
    ready, captured = inductor.get_ready, runtime.capture
    monkeypatch.setattr(inductor, "get_ready", lambda: begun.append("get_ready") or ready())
    monkeypatch.setattr(runtime, "capture", lambda *args: begun.append("capture") or captured(*args))
    graphalias.jit(lambda x: x.add_(1).mul_(2), executor="inductor")(torch.ones(4))
    assert begun[:2] == ["get_ready", "capture"]
    assert ready() is ready() and not ready().is_alive()
