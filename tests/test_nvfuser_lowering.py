"""What nvFuser is told: each ATen operation means what it means in eager PyTorch, each write is as the rule has it."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # its usual name

import graphalias
from graphalias import Operation, capture
from graphalias.executors import nvfuser, once
from graphalias.executors.nvfuser.calling import FusedRegion
from graphalias.executors.nvfuser.loading import why_unavailable
from graphalias.graph import REGION
from graphalias.oracle import differences
from graphalias.passes import run_passes
from nvfuser_operations import KINDS, ONE, SHAPED, TWO, VALUES
from shared import ROOT
from test_programs import scene_of

if why_unavailable() is not None:  # once for the module, not for each of a thousand tests
    pytest.skip(str(why_unavailable()).splitlines()[0], allow_module_level=True)

GOLDEN = ROOT / "tests" / "nvfuser_discussion.txt"


def cases(table: dict[str, tuple[str, Any]]) -> list[Any]:
    """Return the functions of a table with each dtype they are of."""
    every = ((name, fn, dtype) for name, (kinds, fn) in table.items() for kind in kinds for dtype in KINDS[kind])
    return [pytest.param(fn, dtype, id=f"{name} {dtype}") for name, fn, dtype in every]


def region_of(fn: Callable[..., Any], *args: Any) -> Operation:
    """Return a function's whole program as one region."""
    program = capture(fn, *args)
    written = {value.object for op in program.operations for value in op.written}
    writes = tuple(i for i, value in enumerate(program.inputs) if value.object in written)
    fresh = tuple(value for value in program.output.operands)
    return Operation("region_1", REGION, program.inputs, results=fresh, writes=writes, body=program)


def fused(fn: Callable[..., Any], *args: Any) -> FusedRegion:
    """Return a function's whole program as one fusion."""
    return nvfuser.compile_region(region_of(fn, *args))


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let definitions run on CPU tensors, by the text nvFuser prints of them."""
    from nvfuser_oracle import run_on_cpu

    monkeypatch.setattr(nvfuser, "run_definition", run_on_cpu)


def check(fn: Callable[..., Any], *args: torch.Tensor) -> None:
    """Compare a fusion with eager PyTorch: values, dtypes and strides."""
    for operation in capture(fn, *args).operations:
        if operation.is_compute and operation.results[0].storage.lifetime != "input":
            reason = nvfuser.why_not_fused(operation)
            assert reason is None or "single" in reason or "movement" in reason, (operation, reason)
    expected = fn(*args)
    expected = expected if isinstance(expected, (list, tuple)) else [expected]
    found = fused(fn, *args)(*args)
    for mine, theirs in zip(expected, found, strict=True):
        torch.testing.assert_close(theirs, mine, equal_nan=True)
        assert theirs.stride() == mine.stride()


@pytest.mark.parametrize(("fn", "dtype"), cases(ONE))
def test_of_one(fn: Callable[..., Any], dtype: str, on_cpu: None) -> None:
    """An elementwise operation is eager's, also of NaN, infinities, zeros of both signs and negative numbers."""
    check(fn, VALUES[dtype])


@pytest.mark.parametrize(("fn", "dtype"), cases(TWO))
def test_of_two(fn: Callable[..., Any], dtype: str, on_cpu: None) -> None:
    """So is one of two tensors: every value with every other."""
    pairs = torch.tensor(list(itertools.product(range(16), repeat=2)))
    check(fn, *(VALUES[dtype][pairs[:, i]] for i in range(2)))


@pytest.mark.parametrize(("fn", "dtype"), cases(SHAPED))
def test_of_shapes(fn: Callable[..., Any], dtype: str, on_cpu: None) -> None:
    """Reductions, views, and what puts elements together are eager's in value, dtype and strides."""
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5)
    check(
        fn,
        (x > 0)
        if dtype == "bool"
        else (x * 4).to(VALUES[dtype].dtype)
        if dtype[0] == "i"
        else x.to(VALUES[dtype].dtype),
    )


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(VALUES, 2)))
def test_promotion(one: str, other: str, on_cpu: None) -> None:
    """Operands of two dtypes are promoted as torch does it, and the result has torch's dtype."""
    check(lambda x, y: (x * y, x < y, torch.where(x > 0, x, y)), VALUES[one], VALUES[other].flip(0))


def lowered(fn: Callable[..., Any], *args: Any, strict: bool = True) -> Any:
    """Return a function's program in regions, lowered."""
    return graphalias.lower(run_passes(capture(fn, *args), "nvfuser")[-1].program, "nvfuser", strict=strict)


def writes_of(compiled: Any) -> list[tuple[str, str]]:
    """Return the means and the clause of each write, by region."""
    return [(write.means, write.clause) for region in compiled.regions for write in region.writes]


def check_jitted(fn: Callable[..., Any], *args: torch.Tensor) -> None:
    """Compare a jitted function with eager PyTorch: everything that can be seen of its calls."""
    jitted, scene = graphalias.jit(fn, executor="nvfuser", strict=True), scene_of(args)
    expected = scene.watch(lambda: fn(*args))
    for _ in range(3):
        assert not differences(expected, scene.watch(lambda: jitted(*args)), exact=False)


def ramp(*shape: int) -> torch.Tensor:
    """Return different numbers."""
    return torch.arange(1.0, math.prod(shape) + 1).reshape(shape) / 8


def _view_of_input() -> tuple[torch.Tensor, ...]:
    base = ramp(4)
    return ramp(2, 1, 2), base.view(2, 1, 2), base.view(1, 2, 2)


#: The programs of the original discussion, and one that returns what it wrote.
DISCUSSION: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "add, then add in place": (lambda x, y: (z := x + y, z.add_(1))[0], lambda: (ramp(4, 10), ramp(4, 10))),
    "an input written and returned": (lambda x: x.add_(1).mul_(2), lambda: (ramp(3, 3),)),
    "exp in place, then add: the alias is read": (
        lambda x, y, z: y.exp_().add(x) + z.exp(),
        lambda: (ramp(2, 1, 2), ramp(2, 1, 2), ramp(1, 2, 2)),
    ),
    "exp in place, then add: z is a view of y": (lambda x, y, z: y.exp_().add(x) + z.exp(), _view_of_input),
    "half of a chunk": (lambda x: (c := x.chunk(2, dim=1), c[0].mul_(2), c[0] + c[1])[2], lambda: (ramp(4, 10),)),
    "setitem on a view": (lambda x: (x.view(3, 2)[0].fill_(0), x * 2 + 1)[1], lambda: (ramp(2, 3),)),
    "tanh in place, then products": (lambda x: (x.tanh_(), x * x * x * x)[1], lambda: (ramp(4, 4),)),
    "a chain": (lambda x: x.add_(1).sin_().mul_(5), lambda: (ramp(8),)),
    "batch norm": (
        lambda x, m, v: F.batch_norm(x, m, v, training=True), lambda: (ramp(8, 4).sin(), torch.zeros(4), torch.ones(4))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DISCUSSION)
def test_discussion(name: str, on_cpu: None) -> None:
    """The programs of the original discussion are right, and their definitions are those of the file."""
    check_jitted(DISCUSSION[name][0], *DISCUSSION[name][1]())
    assert described(name) in GOLDEN.read_text()


def described(name: str) -> str:
    """Return what a program of the discussion is lowered to."""
    fn, make = DISCUSSION[name]
    compiled = lowered(fn, *make())
    return f"## {name}\n\n" + "\n".join(f"{region}\n{brief(region.definition)}\n" for region in compiled.regions)


def brief(definition: str) -> str:
    """Return the lines of a definition without what is always the same."""
    lines = [line for line in definition.splitlines() if line.startswith("    ")]
    return re.sub(r"DataType\.|, is_cpu=False", "", "\n".join(lines))


#: Dangerous ones: name: (function, arguments, what becomes of each write).
FUSED, BACK = ("fused", "A-C"), "written back"
Dangerous = tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]], list[tuple[str, str]]]
DANGEROUS: dict[str, Dangerous] = {
    "two reductions of the old value: written back": (
        lambda x: (x.sum(0), x.sum(1), x.add_(1)), lambda: (ramp(6, 4),), [(BACK, "C.2")],
    ),
    "one element for many: written back": (
        lambda y, s: y.copy_(s * 2).exp() * s, lambda: (ramp(4, 6), ramp(6)), [(BACK, "C.1")],
    ),
    "softmax in place: written back": (
        lambda x: x.sub_(x.amax(-1, keepdim=True)).exp_().div_(x.sum(-1, keepdim=True)), lambda: (ramp(3, 5),),
        [(BACK, "C.3")],
    ),
    "its own transpose: the sum outside": (
        lambda x: x.copy_(x.t() + 1).mul_(2), lambda: (ramp(4, 4),), [FUSED],
    ),
    "a shift by slice and pad: the shift outside": (
        lambda x: x.copy_(F.pad(x[1:] * 2, (0, 1))).add_(1), lambda: (ramp(9),), [FUSED],
    ),
    "its own product: the product outside": (
        lambda x, y: x.copy_(x @ y).add_(1), lambda: (ramp(4, 4), ramp(4, 4)), [FUSED],
    ),
    "a clone, then in place: cloned before": (lambda x: (x.clone(), x.exp_().neg_()), lambda: (ramp(8),), [FUSED]),
    "one value written to two inputs: a set for each": (
        lambda x, y, z: (v := z * 2, x.copy_(v), y.copy_(v), v)[3], lambda: (ramp(4), ramp(4), ramp(4)),
        [FUSED, FUSED],
    ),
    "bf16 written with f32: cast": (
        lambda x, y: x.add_(y).mul_(y), lambda: (ramp(8).bfloat16(), ramp(8) / 3), [FUSED],
    ),
    "old value read in another part: written back": (
        lambda x, y: (x.sin(), x.copy_(y), y.sin()), lambda: (ramp(8), -ramp(8)), [(BACK, "C.2")],
    ),
    "an exchange: written back": (
        lambda x, y: (a := x * 1, b := y * 1, x.copy_(b), y.copy_(a), None)[4], lambda: (ramp(8), -ramp(8)),
        [(BACK, "C.2"), (BACK, "C.2")],
    ),
    "read after products in between: written back": (
        lambda x, w: ((x @ w @ w) + x, x.add_(1).mul_(2))[0], lambda: (ramp(4, 4), ramp(4, 4)), [FUSED],
    ),
}  # fmt: skip


def test_repro_has_full_constants() -> None:
    """The script that runs a region alone is Python, and its constants are not rounded to six digits."""
    compiled = lowered(lambda x: x.add_(0.12345678901234567).mul_(3), ramp(4).double())
    repro = compiled.regions[0].repro
    compile(repro, "repro", "exec")
    assert repr(0.12345678901234567) in repro and "torch.float64" in repro
    assert "0.12345678901234" in compiled.regions[0].ir


@pytest.mark.parametrize("name", DANGEROUS)
def test_dangerous(name: str, on_cpu: None) -> None:
    """What nvFuser would race for, or run in another order, is right by the means that the name says."""
    fn, make, expected = DANGEROUS[name]
    assert writes_of(lowered(fn, *make())) == expected
    check_jitted(fn, *make())


#: The same as one fusion each, which partitioning avoids: (function, arguments, means and clause of each write).
WHOLE: dict[str, Dangerous] = {
    "its own transpose": (lambda x: x.copy_(x.t() + 1), lambda: (ramp(4, 4),), [(BACK, "C.3")]),
    "a shift": (lambda x: x.copy_(F.pad(x[1:] * 2, (0, 1))), lambda: (ramp(9),), [(BACK, "C.3")]),
    "a gather": (
        lambda x, i: x.copy_(x.index_select(0, i) + 1), lambda: (ramp(4, 2), torch.tensor([3, 1, 0, 0])),
        [(BACK, "C.3")],
    ),
    "a broadcast": (lambda x: x.sub_(x[:1] * 1), lambda: (ramp(4, 2),), [(BACK, "C.3")]),
    "its own product": (lambda x, y: x.copy_(x @ y), lambda: (ramp(4, 4), ramp(4, 4)), [(BACK, "C.3")]),
    "another's product: a set of it": (
        lambda x, y: x.copy_(y @ y), lambda: (ramp(4, 4), ramp(4, 4)), [FUSED],
    ),
    "read after two products": (
        lambda x, w: ((x @ w @ w) + x, x.add_(1))[0], lambda: (ramp(4, 4), ramp(4, 4)), [(BACK, "C.2")],
    ),
    "an upcast read again by two sums": (
        lambda x: ((y := x.float()).sum(0), y.sum(1), x.add_(1))[:2], lambda: (ramp(4, 6).bfloat16(),), [(BACK, "C.2")],
    ),
    "clone of the old value": (lambda x: (x.clone(), x.add_(1))[0], lambda: (ramp(4),), [FUSED]),
    "exchange": (lambda x, y: (a := x.clone(), x.copy_(y), y.copy_(a))[0], lambda: (ramp(4), -ramp(4)),
                 [(BACK, "C.2"), (BACK, "C.2")]),
    "copied, then written": (
        lambda x, y: (x.copy_(y), y.mul_(y.sum()))[0], lambda: (ramp(4), -ramp(4)), [FUSED, (BACK, "C.3")],
    ),
    "copied, then written from elsewhere": (
        lambda x, y, z: (x.copy_(y), y.copy_(z * z.sum()))[0], lambda: (ramp(4), -ramp(4), ramp(4)),
        [FUSED, (BACK, "C.2")],
    ),
    "statistics": (
        lambda x, m: (m.mul_(0.9).add_(x.mean(0), alpha=0.1), x - m)[1], lambda: (ramp(6, 4), ramp(4)), [FUSED],
    ),
    "nothing changes": (lambda x, y: (x.copy_(x), y + 1)[1], lambda: (ramp(4), ramp(4)), [("unchanged", "A")]),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("writes", ["late", "early", "early, last first"])
def test_break_rule(name: str, writes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fusion is right whenever nvFuser writes its inputs, and each write is as the clause of the rule has it."""
    from nvfuser_oracle import run_on_cpu

    monkeypatch.setattr(nvfuser, "run_definition", lambda *both: run_on_cpu(*both, writes))
    fn, make, expected = WHOLE[name]
    args = make()
    region = fused(fn, *args)
    assert [(write.means, write.clause) for write in region.writes] == expected
    copies = [x.clone() for x in args]
    returned = fn(*copies)
    returned = [
        x for x in (returned if isinstance(returned, tuple) else (returned,)) if not any(x is c for c in copies)
    ]
    for mine, theirs in zip([*returned, *copies], [*region(*args)[: len(returned)], *args], strict=True):
        torch.testing.assert_close(theirs, mine)


def test_expanded_target_is_eagers_error() -> None:
    """A write to an expanded input is no fusion: eager PyTorch refuses it, and so does capture."""
    with pytest.raises(graphalias.CaptureError, match="eager PyTorch refuses this"):
        graphalias.jit(lambda x: x.add_(1).mul_(2), executor="nvfuser", strict=True)(torch.ones(1, 4).expand(3, 4))


def test_results_are_fresh(on_cpu: None) -> None:
    """Results that are views of one value, of an input, or equal to what is written are tensors of their own."""

    def several(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = y * 2
        x.copy_(made)
        return made, made.t().clone(), made.clone(), made[1:].clone(), y.clone(), x.t().clone()

    region = fused(several, ramp(3, 3), ramp(3, 3))
    x, y = ramp(3, 3), ramp(3, 3)
    results = region(x, y)
    expected = several(ramp(3, 3), ramp(3, 3))
    keys = {tensor.untyped_storage().data_ptr() for tensor in (x, y, *results)}
    assert len(keys) == 2 + len(results)
    for mine, theirs in zip(expected, results, strict=True):
        assert torch.equal(mine, theirs) and mine.stride() == theirs.stride()


def test_no_break_at_in_place_operations() -> None:
    """In-place chains, batch norm with both statistics, and an optimizer step are one fusion a piece."""

    def adam(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> None:
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.01)

    compiled = lowered(adam, ramp(64), ramp(64), ramp(64), ramp(64))
    assert len(compiled.regions) == 1
    assert writes_of(compiled) == [FUSED] * 3
    for name, count in (("tanh in place, then products", 1), ("a chain", 1), ("batch norm", 2)):
        compiled = lowered(DISCUSSION[name][0], *DISCUSSION[name][1]())
        assert len(compiled.regions) == 1 and writes_of(compiled) == [FUSED] * count


def test_isomorphic_regions_share_a_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regions that differ in names only are defined once, and are not put into one fusion."""

    def step(*parameters: torch.Tensor) -> None:
        for parameter in parameters:
            parameter.mul_(0.75).add_(0.3125).sin_()

    compiled = lowered(step, *(ramp(17) for _ in range(5)))
    assert len(compiled.regions) == 5
    assert len({id(region.fusion_definition) for region in compiled.regions}) == 1
    assert [str(region.writes[0].value.name) for region in compiled.regions] == [
        region.operation.operands[0].name for region in compiled.regions
    ]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: (x.add_(y).mul_(x), x * y - 2, y.sin_(), x + y),
        lambda x, y: (x.gt_(0.5), x.mul_(y), torch.atan2(x, y)),
        lambda x, y: (x.sub_(y[0, 0], alpha=2).clamp_(-1, 1), x.neg()),
        lambda x, y: (z := x.exp(), z.add_(y), z.mul(z)),
    ],
)
def test_elementwise_form_is_the_traced_one(fn: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A form made directly becomes the definition that tracing gives, for half precision too."""
    from graphalias.executors.nvfuser import form

    for dtype in (torch.float32, torch.bfloat16):
        args = ramp(4, 4).to(dtype), ramp(4, 4)
        direct = fused(fn, *args)
        with monkeypatch.context() as patch:
            patch.setattr(form, "elementwise_form", lambda body: None)
            traced = fused(fn, *args)
        assert [str(write) for write in direct.writes] == [str(write) for write in traced.writes]
        assert operations_of(direct.definition) == operations_of(traced.definition)


def operations_of(definition: str) -> list[str]:
    """Return the operations of a definition in order."""
    return re.findall(r"fd\.(?:ops\.)?(\w+)\(", definition)


def test_a_thousand_operations_lower_in_two_seconds() -> None:
    """A long program is lowered in under two seconds, the best of three."""

    def long(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for i in range(500):
            x.mul_(1 + i / 1000)
            y = y.sin() if i % 2 else y + x
        return y

    program = run_passes(capture(long, ramp(8, 8), ramp(8, 8)), "nvfuser")[-1].program
    best = math.inf
    for _ in range(3):
        once._compiled.clear()
        start = time.perf_counter()
        graphalias.lower(program, "nvfuser", strict=True)
        best = min(best, time.perf_counter() - start)
    assert best < 2


def test_regions_are_capped() -> None:
    """No region has more nvFuser operations than run in a few seconds for the first time."""

    def long(x: torch.Tensor) -> torch.Tensor:
        for i in range(400):
            x = x.mul_(1.5).sub(i)
        return x

    compiled = lowered(long, ramp(8))
    assert len(compiled.regions) > 4
    for region in compiled.regions:
        assert region.definition.count("fd.ops.") <= nvfuser.SIZE_CAP * 1.1


def test_cpu_tensors_are_an_error() -> None:
    """Tensors on the CPU are refused where the device is reached, in the first call of ``jit`` too."""
    compiled = lowered(lambda x: x.add_(1).mul_(3), ramp(4))
    with pytest.raises(graphalias.ExecutorError, match="expected CUDA tensors"):
        compiled(ramp(4))
    with pytest.raises(graphalias.ExecutorError, match=r"(?s)expected CUDA tensors.*region_1"):
        graphalias.jit(lambda x: x.add_(1).mul_(3), executor="nvfuser", strict=True)(ramp(4))


def test_failing_run_falls_back(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Where nvFuser fails when it first runs a region, a warning names it and ATen runs it from the state before."""

    def fail(definition: Any, inputs: list[torch.Tensor]) -> None:
        inputs[0].zero_()
        raise graphalias.ExecutorError("nvFuser can't run the fusion: out of registers")

    monkeypatch.setattr(nvfuser, "run_definition", fail)
    compiled = lowered(lambda x: x.add_(0.125).mul_(3), ramp(4), strict=False)
    for _ in range(2):
        x = ramp(4)
        compiled(x)
        assert torch.equal(x, (ramp(4) + 0.125) * 3)
    assert "region_1" in caplog.text and "out of registers" in caplog.text and caplog.text.count("one by one") == 1
    assert "add_output" in compiled.regions[0].definition


def test_refused_definition_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: Any
) -> None:
    """What nvFuser refuses is named with region, operation and reason, never with its assert; ``strict`` raises."""
    from graphalias.executors.nvfuser.builder import Builder

    def assertion(*_: Any) -> None:
        raise RuntimeError(' INTERNAL ASSERT FAILED at "f.cpp":1, please report a bug\nExpected something else .')

    monkeypatch.setattr(Builder, "constant", assertion)
    program = run_passes(capture(lambda x: x.mul_(2.75).add_(1.375), ramp(4)), "nvfuser")[-1].program
    x = ramp(4)
    graphalias.lower(program, "nvfuser")(x)
    assert torch.equal(x, ramp(4) * 2.75 + 1.375)
    assert "region_1" in caplog.text and "aten.mul" in caplog.text and "Expected something else" in caplog.text
    assert "INTERNAL ASSERT" not in caplog.text and not capsys.readouterr().out
    with pytest.raises(graphalias.ExecutorError, match="Expected something else"):
        graphalias.lower(program, "nvfuser", strict=True)


if __name__ == "__main__":  # renews the definitions of the discussion
    GOLDEN.write_text("\n".join(map(described, DISCUSSION)))
