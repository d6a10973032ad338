"""The library's rules, one by one: what each does, what it leaves, and the rules of other packages."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import torch

from graphalias import capture, rewrite_in_steps, rules
from graphalias.errors import RewriteError
from graphalias.rules import is_lossless
from graphalias.symbols import DTYPES
from graphalias.variants import in_place_target, out_target
from rewriting import assert_as_eager
from tools.bench_rewrite import RULES as TWENTY
from tools.bench_rewrite import SAVINGS, moved_bytes, stacked


def targets_after(rule: Any, fn: Callable[..., Any], *args: Any) -> list[str]:
    """Return what is computed after a rule, and fail unless it gives what eager gives."""
    steps = assert_as_eager(fn, args, [rule])
    return [operation.target.split(".")[1] for operation in steps.program.operations if operation.is_compute]


def ramp(*shape: int) -> torch.Tensor:
    """Return different numbers."""
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape) / 8


def buffered(x):
    """Copy something new into a buffer, and go on with that."""
    buffer = torch.empty_like(x)
    buffer.copy_(x + 1)
    return buffer.mul_(2)


@pytest.mark.parametrize(
    ("rule", "fn", "args", "expected"),
    [
        (rules.redundant_clone, lambda x: x.clone().exp(), (ramp(4),), ["exp"]),
        (rules.redundant_clone, lambda x: (x + 1).clone(), (ramp(4),), ["add"]),
        (rules.redundant_clone, lambda x: (x + 1)[1:].clone().exp(), (ramp(4),), ["add", "slice", "exp"]),
        (rules.redundant_clone, lambda x: (x + 1)[1:].clone(), (ramp(4),), ["add", "slice", "clone"]),
        (rules.redundant_cast, lambda x: torch.ops.aten._to_copy(x, dtype=torch.float32).exp(), (ramp(4),), ["exp"]),
        (rules.copy_into_dead, buffered, (ramp(4),), ["add", "mul_"]),
        (rules.double_cast, lambda x: x.double().half(), (ramp(4),), ["_to_copy"]),
        (rules.double_cast, lambda x: ((y := x.double()).half(), y), (ramp(4),), ["_to_copy", "_to_copy"]),
        (rules.double_cast, lambda x: x.half().double(), (ramp(4) / 7,), ["_to_copy", "_to_copy"]),
        (rules.view_of_view, lambda x: x[1:].t()[1:], (ramp(4, 4),), ["as_strided"]),
        (rules.view_of_view, lambda x: ((y := x[1:]).t(), y), (ramp(4, 4),), ["slice", "t"]),
        (rules.cat_in_place, lambda x: torch.cat([-x, x]), (ramp(4),),
         ["empty_strided", "slice", "neg", "slice", "copy_"]),
        (rules.cat_in_place, lambda x: torch.cat([x, x[1:]]), (ramp(4),), ["slice", "cat"]),
        (rules.cat_in_place, lambda x: ((y := -x), torch.cat([y, x])), (ramp(4),), ["neg", "cat"]),
        (rules.in_place, lambda x: (x + 1).exp().sin(), (ramp(4),), ["add", "exp_", "sin_"]),
        (rules.in_place, lambda x: x.exp(), (ramp(4),), ["exp"]),
        (rules.in_place, lambda x: ((y := x + 1), y.exp()), (ramp(4),), ["add", "exp"]),
        (rules.in_place, lambda x: (x + 1) > 2, (ramp(4),), ["add", "gt"]),
        (rules.in_place, lambda x: (x + 1)[1:].exp(), (ramp(4),), ["add", "slice", "exp"]),
        (rules.in_place, lambda x: (y := x + 1).t() * y.t().t(), (ramp(3, 3),), ["add", "t", "t", "t", "mul"]),
    ],
)  # fmt: skip
def test_rule(rule: Any, fn: Any, args: Any, expected: list[str]) -> None:
    """A rule does what it is for, leaves what would be seen, and changes no bit."""
    assert targets_after(rule, fn, *args) == expected


def test_casts_through_what_holds_all() -> None:
    """Where a cast is called lossless every number of the dtype is there; over all numbers of sixteen bits."""
    for source in ("i8", "u8", "i16", "f16", "bf16"):
        numbers = torch.arange(-(2**15), 2**15, dtype=torch.int16)
        numbers = numbers.view(DTYPES[source]) if source not in ("i8", "u8") else numbers.to(DTYPES[source])
        for target in ("i8", "u8", "i16", "i32", "f16", "bf16", "f32", "f64"):
            if numbers.is_floating_point() and not DTYPES[target].is_floating_point:
                assert not is_lossless(source, target)
                continue
            is_same = torch.equal(numbers.to(DTYPES[target]).double().nan_to_num(), numbers.double().nan_to_num())
            assert is_lossless(source, target) == is_same, (source, target)


def test_variants() -> None:
    """Variants are those of pointwise operators that take the same; others have none."""
    assert in_place_target("aten.masked_fill.Scalar") == "aten.masked_fill_.Scalar"
    assert (
        out_target("aten.clamp.default") == "aten.clamp.out" and out_target("aten.mul.Scalar") == "aten.mul.Scalar_out"
    )
    for target in ("aten.cumsum.default", "aten.mm.default", "aten.add_.Tensor", "aten.view.default", "test.read", "x"):
        assert in_place_target(target) is None and out_target(target) is None


@pytest.mark.parametrize(("rule", "fn"), [pytest.param(rule, fn, id=rule.name) for rule, fn, _, _ in SAVINGS])
def test_rules_pay(rule: Any, fn: Any) -> None:
    """On the benchmark's programs each rule saves bytes, allocations or operations, and costs none of the bytes."""
    args = (ramp(16, 16),)
    before = capture(fn, *args)
    after = assert_as_eager(fn, args, [rule]).program
    saved = [one - other for one, other in zip(moved_bytes(before), moved_bytes(after), strict=True)]
    assert max(saved) > 0 and min(saved[:2]) >= 0


def test_twenty_rules() -> None:
    """The benchmark's program is one that eager could run, and its twenty rules keep its values."""
    program = stacked(130)
    steps = rewrite_in_steps(program, TWENTY)
    assert len({step.rule for step in steps.applied}) >= 9
    x, w, b = ramp(4, 4), ramp(4, 4), ramp(4, 4)
    expected = program.run(x.clone(), w.clone(), b.clone())
    torch.testing.assert_close(steps.program.run(x, w, b), expected, equal_nan=True, rtol=1e-3, atol=1e-3)


def test_rules_of_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules come by entry point, one or a list; what is no rule, or can't be imported, is an error that says where."""

    def offer(*values: str) -> None:
        entries = [EntryPoint(f"rules{i}", value, rules.GROUP) for i, value in enumerate(values)]
        monkeypatch.setattr(rules, "entry_points", lambda group: entries)

    offer("graphalias.rules:RULES", "graphalias.rules:in_place")
    assert rules.load_rules() == [*rules.RULES, rules.in_place]
    offer("graphalias.rules:GROUP")
    with pytest.raises(RewriteError, match=r"'rules0' offers 'graphalias\.rules': expected a Rule"):
        rules.load_rules()
    offer("graphalias.nowhere:RULES")
    with pytest.raises(RewriteError, match="'rules0' can't be imported"):
        rules.load_rules()
