"""Rewriting: what is replaced, what is refused and why, and that nobody can tell."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import graphalias
from graphalias import (
    Rule,
    Wildcard,
    capture,
    check,
    find_hazards,
    insert_update_aliases,
    parse,
    partition,
    rewrite,
    rewrite_in_steps,
)
from graphalias.errors import RewriteError
from graphalias.rules import RULES
from programs import PROGRAMS
from rewriting import assert_as_eager, reasons
from shared import load_cases
from torch_programs import random_arguments, random_program

CASES = [(case.name, case.fn, case.make) for case in PROGRAMS]
CASES += [
    (case.name, case.fn, lambda case=case: case.make(torch.Generator().manual_seed(0)))
    for case in getattr(load_cases(), "CASES", ())
]


def is_wide(match: graphalias.Match) -> bool:
    """Whether addcmul rounds as mul and add do, near enough: f16 and bf16 keep more between the two."""
    return match["x"].dtype not in ("f16", "bf16")


ADDCMUL = (
    Rule(lambda x, y, z: x * y + z, lambda x, y, z: torch.addcmul(z, x, y), name="addcmul", where=is_wide),
    Rule(lambda x, y, z: z + x * y, lambda x, y, z: torch.addcmul(z, x, y), name="addcmul_right", where=is_wide),
    Rule(lambda x, y, z: z.add_(x * y), lambda x, y, z: z.addcmul_(x, y), name="addcmul_", where=is_wide),
)


def ones(*shape: int) -> torch.Tensor:
    """Return small different numbers."""
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape) / 8


def targets(program: graphalias.Program) -> list[str]:
    """Return what is computed."""
    return [operation.target for operation in program.operations if operation.is_compute]


def test_text_in_text_out() -> None:
    """Two operations become one, which keeps their memory's name, their place and the user's line."""
    program = parse("""
    %x: f32[4] @s0 obj0 = input()
    %y: f32[4] @s1 obj1 = input()
    %mul_1: f32[4] @s2 obj2 = aten.mul.Tensor(%x, %y) reads(%x, %y)  # model.py:3
    %add_1: f32[4] @s3 obj3 = aten.add.Tensor(%mul_1, %x) reads(%mul_1, %x)  # model.py:4
    %exp_: f32[4] @s3 obj3 = aten.exp_.default(%add_1!) reads(%add_1)  # model.py:5
    output(%exp_)
    """)
    rewritten = rewrite(program, ADDCMUL)
    assert (
        str(rewritten)
        == """\
%x: f32[4] @s0 obj0 = input()
%y: f32[4] @s1 obj1 = input()
%addcmul: f32[4] @s3 obj3 = aten.addcmul.default(%x, %x, %y) reads(%x, %y)  # model.py:4
%exp_: f32[4] @s3 obj3 = aten.exp_.default(%addcmul!) reads(%addcmul)  # model.py:5
output(%exp_)
"""
    )
    assert rewritten.notes == {"addcmul": "addcmul: in place of %mul_1, %add_1"}


def ordered_between(x, y):
    """Write an operand between the two."""
    product = x * y
    x.add_(1)
    return product + x


def written_between(x, y):
    """Write the product between the two."""
    product = x * y
    product[0].zero_()
    return product + x


def used_elsewhere(x, y):
    """Use the product twice."""
    product = x * y
    return product + x, product.exp()


def read_between(t, w, z):
    """Write one factor between the two, with the other."""
    t = t + 1
    product = t * w
    w.copy_(t)
    return product + z


def returned(x, y):
    """Return the product."""
    product = x * y
    return product + x, product


def viewed_and_returned(x, y):
    """Return a view of the product."""
    product = x * y
    return product + x, product.view(-1)


FUSE = ADDCMUL[0]
COPY = Rule(lambda x: x.clone(), lambda x: x, name="no_clone")
WRITE = Rule(lambda x: x * 2, lambda x: x.mul_(2), name="write")
NO_WRITE = Rule(lambda x: x.mul_(2), lambda x: x * 2, name="no_write")
ONE = Rule(lambda x: (x.exp(), x.exp()), lambda x: [x.exp()] * 2, name="one")
SLICE = Rule(lambda x: x.exp(), lambda x: torch.cat([x, x]).exp()[: x.shape[0]], name="slice")
TRANSPOSED = Rule(lambda x: x.exp(), lambda x: (x + 1).t().contiguous().t(), name="transposed")
FRESH = Rule(lambda x: x.t(), lambda x: x.t().clone(), name="fresh")
SAME = Rule(lambda x: x.view(4, 4), lambda x: x, name="same")
RANDOM = Rule(lambda x: x * 0, lambda x: torch.rand_like(x) * 0, name="random")
DROP = Rule(lambda x: torch.rand_like(x) * x, lambda x: x * 0, name="drop")
OVER = Rule(lambda x, y, z: x * y + z, lambda x, y, z: x.mul_(y).add_(z), name="over")
UNWRITTEN_SUM = Rule(lambda x: x.mul_(2).sum(), lambda x: (x * 2).sum(), name="unwritten_sum")
BOTH_INPUT = Rule(lambda x: (x.exp(), x.exp()), lambda x: [x, x], name="both_input")
OTHER_HALF = Rule(lambda x: x[0:2], lambda x: x[2:4], name="other_half")
OTHER_OBJECT = Rule(lambda x: x.mul_(2), lambda x: x.mul_(2).view(x.shape), name="other_object")
LATE_HALF = Rule(lambda x: x.exp(), lambda x: torch.cat([x, x]).exp()[x.shape[0] :], name="late_half")
ONE_OBJECT = Rule(lambda x: ((y := x.exp()), y.view(4, 4)), lambda x: [x.exp()] * 2, name="one_object")
TWO_MEMORIES = Rule(
    lambda x: ((y := x.exp()), y.view(-1)), lambda x: (x.exp(), x.exp().view(-1)), name="two_memories"
)  # fmt: skip
INPUT_VIEW = Rule(lambda x: ((y := x.exp()), y.view(-1)), lambda x: (x.exp(), x.view(-1)), name="input_view")
UNCONJ = Rule(lambda x: x.conj(), lambda x: x.view(x.shape), name="unconj", inputs={"x": "c64[4]"})
TWO_WRITES = Rule(lambda x, y: x.mul_(2).add_(y), lambda x, y: x.copy_(x * 2 + y), name="two_writes")

SHARED = ones(4)

REFUSALS: list[tuple[str, Callable[..., Any], Rule, tuple[Any, ...], str | list[str]]] = [
    ("a write between", ordered_between, FUSE, (ones(4), ones(4)),
     "%add_ (test_rewrite.py:N) is ordered between %mul and %add, which uses %add_"),
    ("a write through a view between", written_between, FUSE, (ones(4), ones(4)),
     "%zero_ (test_rewrite.py:N) is ordered between %mul and %add, which reads %mul"),
    ("an intermediate used", used_elsewhere, FUSE, (ones(4), ones(4)),
     "%mul, an intermediate, is used by %exp (test_rewrite.py:N)"),
    ("an intermediate returned", returned, FUSE, (ones(4), ones(4)), "%mul, an intermediate, is returned"),
    ("an intermediate's view returned", viewed_and_returned, FUSE, (ones(2, 2), ones(2, 2)),
     "%mul, an intermediate, is used by %view (test_rewrite.py:N)"),
    ("an input returned", lambda x: x.clone(), COPY, (ones(4),),
     "%clone is returned, and would share memory with an input"),
    ("another result's memory", lambda x: ((y := x + 1), y.clone()), COPY, (ones(4),),
     "%clone is returned, and would share memory with %add"),
    ("the copy is written", lambda x: x.clone().add_(1).exp(), COPY, (ones(4),),
     "%clone is written later, and would be memory of an input"),
    ("what was copied is written", lambda x: ((y := x.clone()), x.add_(1), y.exp())[2], COPY, (ones(4),),
     "%add_ (test_rewrite.py:N) would write what %exp (test_rewrite.py:N) uses, through another tensor"),
    ("the copy is an operand beside what is written", lambda x: x[1:].copy_(x[:-1].clone()), COPY, (ones(4),),
     "%copy_ (test_rewrite.py:N) would take the memory it writes through another tensor, too"),
    ("an input would be written", lambda x: x * 2, WRITE, (ones(4),),
     "%mul is returned, and would share memory with an input"),
    ("an input would be written, unreturned", lambda x: (x * 2).exp(), WRITE, (ones(4),),
     "it would write %x, memory of an input"),
    ("a later reader", lambda x: ((y := x + 1), (y * 2).exp(), y.exp())[1:], WRITE, (ones(4),),
     "it would write %add, and %exp_1 (test_rewrite.py:N) reads %add"),
    ("a later reader through a view", lambda x: ((y := x + 1), (v := y.view(-1)), (y * 2).exp(), v.exp())[2:], WRITE,
     (ones(4),), "it would write %add, and %exp_1 (test_rewrite.py:N) reads %view"),
    ("a reader that goes behind", read_between, OVER, (ones(4), ones(4), ones(4)),
     "it would write %add, and %copy_ (test_rewrite.py:N) reads %add"),
    ("a returned view", lambda x: ((y := x + 1)[1:], (y * 2).exp()), WRITE, (ones(4),),
     "it would write %add, and %slice on that memory is returned"),
    ("a mutation lost", lambda x: x.mul_(2), NO_WRITE, (ones(4),),
     "%mul_ is memory of an input, and would no longer be"),
    ("results that would be one", lambda x: (x.exp(), x.exp()), ONE, (ones(4),),
     ["%exp would share memory with other results than it does",
      "%exp_1 would share memory with other results than it does"]),
    ("a result on more memory", lambda x: x.exp(), SLICE, (ones(4),), "%exp lies on 16 bytes, the replacement's on 32"),
    ("other strides", lambda x: x.exp(), TRANSPOSED, (ones(2, 3).expand(2, 3)[:, ::2],),
     "%exp is f32[2,2], the replacement's is f32[2,2] stride(1,2)"),
    ("a view that would be new memory", lambda x: x.t(), FRESH, (ones(2, 2),),
     "%t is memory of an input, and would no longer be"),
    ("an object that would be another", lambda x: (x, x.view(4, 4)), SAME, (ones(4, 4),),
     "%view is returned, and would be the same object as %x"),
    ("an object whose geometry changes", lambda x: x.view(4, 4).t_().exp(), SAME, (ones(4, 4),),
     "the geometry of %view, or of %x, changes elsewhere"),
    ("random numbers drawn", lambda x: x * 0, RANDOM, (ones(4),),
     "the replacement advances rng:cpu, which the pattern does not"),
    ("random numbers no longer drawn", lambda x: torch.rand_like(x) * x, DROP, (ones(4),),
     "the pattern advances ['rng:cpu'], the replacement no state"),
    ("operands that overlap", lambda x, y: (x[0].mul_(2).add_(y[0]), y)[1], TWO_WRITES, (SHARED, SHARED.view(4)),
     "%select and %select_1 overlap where %select is written"),
    ("another place of the same memory", lambda x: x[0:2].exp(), OTHER_HALF, (ones(4),),
     "%slice begins at 0, the replacement's at 2 of the same memory"),
    ("another object of what is written", lambda x: x.mul_(2), OTHER_OBJECT, (ones(4),),
     "%mul_ would be another tensor object than obj0"),
    ("another place of new memory", lambda x: x.exp(), LATE_HALF, (ones(4),),
     "%exp begins at 0 of its memory, the replacement's at 4"),
    ("objects that would be one", lambda x: ((y := x.exp()), y.view(4, 4)), ONE_OBJECT, (ones(4, 4),),
     "%view would be the same tensor object as other results, or no longer be"),
    ("results on memory of their own", lambda x: ((y := x.exp()), y.view(-1)), TWO_MEMORIES, (ones(4, 4),),
     "%view would share memory with other results than it does"),
    ("a result's view on an input", lambda x, z: ((y := x.exp()), y.view(-1) + z), INPUT_VIEW, (ones(2, 2), ones(4)),
     "%view would no longer share memory with another result"),
    ("another bit of a view", lambda x: x.conj().exp(), UNCONJ, (torch.ones(4, dtype=torch.complex64),),
     "%_conj is c64[4] conj, the replacement's is c64[4]"),
    ("a write lost to an input", lambda x: x.mul_(2).sum(), UNWRITTEN_SUM, (ones(4),),
     "it would no longer write %x, memory of an input"),
    ("a write lost to a later reader", lambda x: ((y := x + 1), y.mul_(2).sum(), y[1:].exp())[1:], UNWRITTEN_SUM,
     (ones(4),), "it would no longer write %add, and %exp (test_rewrite.py:N) reads %slice"),
    ("a write lost to what is returned", lambda x: ((y := x + 1), y.view(-1).mul_(2).sum()), UNWRITTEN_SUM, (ones(4),),
     "it would no longer write %view, and %add on that memory is returned"),
    ("a view of more than what moves", lambda x: (x + 1)[:2].mul_(2).as_strided((4,), (1,), 0).exp(), NO_WRITE,
     (ones(4),), "a view of %mul_ reaches beyond it"),
    ("a view at an offset of its own", lambda x: (x + 1)[1:].clone().as_strided((2,), (1,), 0).exp(), COPY, (ones(4),),
     "views of %clone count their offset from its first element"),
    ("what stays behind is read", lambda x: ((y := x + 1), (v := y[:2]), y.mul_(2).exp(), v.exp())[2:], NO_WRITE,
     (ones(4),), "%exp_1 (test_rewrite.py:N) reads %slice, which shares memory with %mul_"),
    ("what stays behind is returned", lambda x: ((y := x + 1), (v := y[:2]), y.mul_(2).exp(), v)[2:], NO_WRITE,
     (ones(4),), "%slice, which shares memory with %mul_, is returned"),
    ("a result on larger memory", lambda x: (x + 1)[:2].clone(), COPY, (ones(4),),
     "%clone is returned, and would lie on memory of another size"),
    ("a result on later elements", lambda x: (x + 1)[2:].clone(), COPY, (ones(4),),
     "%clone is returned, and would lie on memory of another size"),
    ("a result on memory that is resized", lambda x: ((y := x + 1).view(-1).clone(), y.resize_(2).sum()), COPY,
     (ones(4),), "%clone is returned, and would lie on memory of another size"),
    ("one of two results is written", lambda x: ((y := x + 1), (a := y.exp()), (b := y.exp()), a.mul_(2), a + b)[-1],
     BOTH_INPUT, (ones(4),), ["%exp is written later, and would share memory with %exp_1"] * 2),
    ("the other of two results is written",
     lambda x: ((y := x + 1), (a := y.exp()), (b := y.exp()), b.mul_(2), a + b)[-1],
     BOTH_INPUT, (ones(4),), ["%exp_1 is written later, and would share memory with %exp"] * 2),
    ("what was copied is written, the copy returned", lambda x: ((y := x + 1), y.clone(), y.mul_(2).sum())[1:], COPY,
     (ones(4),), "%clone is returned, and %mul_ (test_rewrite.py:N) would write it"),
    ("the copy is written, what was copied returned", lambda x: ((y := x + 1), y.clone().mul_(2).sum()), COPY,
     (ones(4),), "%add is returned, and %mul_ (test_rewrite.py:N) would write it"),
    ("the copy is written, a view of what was copied returned",
     lambda x: ((y := x + 1)[1:], y.clone()[:2].mul_(2).sum()), COPY, (ones(4),),
     "%slice is returned, and %mul_ (test_rewrite.py:N) would write it"),
    ("a shape the replacement can't take", lambda x: x.exp(),
     Rule(lambda x: x.exp(), lambda x: x.view(4, 4).exp(), name="square"), (ones(3),),
     "the replacement fails here: RuntimeError: shape '[4, 4]' is invalid for input of size 3"),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "rule", "args", "reason"), [pytest.param(*r[1:], id=r[0]) for r in REFUSALS])
def test_refused(fn: Callable[..., Any], rule: Rule, args: tuple[Any, ...], reason: Any) -> None:
    """A replacement that could be seen is refused, the program stays as it is, and the reason is said."""
    expected = [reason] if isinstance(reason, str) else reason
    found = [re.sub(r"\.py:\w+", ".py:N", text) for text in reasons(fn, rule, *args)]
    assert found == expected


def test_what_is_not_in_the_way_moves() -> None:
    """A write that must only follow the matched operations goes behind them; hazards or none as before."""

    def program(x, y):
        product = x * y
        x.add_(1)
        return product + y

    args = (ones(4), ones(4))
    steps = assert_as_eager(program, args, ADDCMUL, exact=False)
    assert targets(steps.program) == ["aten.addcmul.default", "aten.add_.Tensor"]
    assert find_hazards(steps.program)
    assert not find_hazards(rewrite(insert_update_aliases(capture(program, *args)), ADDCMUL))


def test_other_bytes_than_those_returned_may_be_written() -> None:
    """A copy may go though it is written later, if what is returned of what was copied are other bytes."""
    steps = assert_as_eager(lambda x: ((y := (x + 1).exp())[2:], y.clone()[:2].mul_(2).sum()), (ones(4),), [COPY])
    assert "aten.clone.default" not in targets(steps.program)


def test_update_aliases_are_looked_through() -> None:
    """On a program with update_aliases rules match as on the captured one, and it gets its own again, exactly."""

    def program(x, y):
        x[0].add_(1)
        return x * y + x

    captured = capture(program, ones(4), ones(4))
    ordered = insert_update_aliases(captured)
    rewritten = rewrite(ordered, ADDCMUL)
    assert str(rewritten) == str(insert_update_aliases(rewrite(captured, ADDCMUL)))
    assert "update_aliases" in str(rewritten) and "addcmul" in str(rewritten)


def test_without_hazards_it_stays_without() -> None:
    """A program that needed no update_aliases gets them if a rule makes it need them."""
    captured = capture(lambda x: ((y := x + 1), y.exp(), y * 2)[1:], ones(4))
    assert not find_hazards(captured)
    rewritten = rewrite(captured, WRITE)
    assert targets(rewritten) == ["aten.add.Tensor", "aten.exp.default", "aten.mul_.Tensor"]
    assert not find_hazards(rewritten) and "after(exp WAR)" in str(rewritten)
    check(rewritten)


def test_every_application_is_sound() -> None:
    """After each single step the program keeps every invariant and has no hazards."""

    def program(x, y):
        for _ in range(4):
            y = x * y + x
            x[1:].mul_(y[1:])
        return y

    ordered = insert_update_aliases(capture(program, ones(4), ones(4)))
    count = len(rewrite_in_steps(ordered, ADDCMUL).applied)
    assert count == 4
    for limit in range(count):
        with pytest.raises(RewriteError, match=f"no end after {limit} replacements: the next is 'addcmul'") as caught:
            rewrite(ordered, ADDCMUL, limit=limit)
        assert len(caught.value.steps.applied) == limit
        check(caught.value.steps.program)
        assert not find_hazards(caught.value.steps.program)
    assert len(rewrite_in_steps(ordered, ADDCMUL, limit=count).applied) == count


def test_rules_without_end() -> None:
    """Rules that undo each other end at the limit, with an error that says so."""
    there = Rule(lambda x, y: x + y, lambda x, y: torch.add(y, x), name="swap")
    with pytest.raises(RewriteError, match=r"no end after 40 replacements(?s:.*)rules undo each other"):
        rewrite(capture(lambda a, b: a + b, ones(2), ones(2)), there)


def test_random_numbers_are_the_same() -> None:
    """A rule over a random operation takes its state, in its place among the others."""
    rule = Rule(lambda x: torch.rand_like(x) + x, lambda x: x + torch.rand_like(x), name="turned")

    def program(x):
        a = torch.rand(4)
        b = torch.rand_like(x) + x
        return a, b, torch.rand(4)

    steps = rewrite_in_steps(capture(program, ones(4)), rule)
    assert len(steps.applied) == 1
    check(steps.program)
    x = ones(4)
    torch.manual_seed(0)
    expected = program(x)
    torch.manual_seed(0)
    for mine, theirs in zip(expected, steps.program.run(x), strict=True):
        assert torch.equal(mine, theirs)


def test_any_geometry_and_plain_arguments() -> None:
    """A pattern captured at one shape and dtype matches any; ``where`` can look at what a wildcard takes."""

    def moved(x, dims=Wildcard((0, 1), (1, 0)), scale=2.0):
        return x.permute(dims) * scale

    rule = Rule(moved, lambda x, dims, scale: (x * scale).permute(dims), where=lambda match: match["scale"] != 3)
    for dtype in (torch.float64, torch.int32):
        program = capture(lambda x: (x.permute(2, 0, 1) * 5).sum(), torch.ones(2, 3, 4, dtype=dtype))
        assert targets(rewrite(program, rule))[:2] == ["aten.mul.Tensor", "aten.permute.default"]
    program = capture(lambda x: (x.permute(2, 0, 1) * 3).sum(), torch.ones(2, 3, 4))
    assert rewrite(program, rule).operations == program.operations


def test_a_default_left_out_matches() -> None:
    """An argument that the program leaves out is its default to a wildcard."""
    rule = Rule(lambda x, y, a=2: torch.add(x, y, alpha=a).neg(), lambda x, y, a: torch.sub(-x, y, alpha=a), name="n")
    for alpha in (1, 3):
        program = capture(lambda x, y, a: torch.add(x, y, alpha=a).neg(), ones(2), ones(2), alpha)
        (step,) = rewrite_in_steps(program, rule)
        assert step.is_applied and step.after[-1].kwargs.get("alpha", 1) == alpha


def test_rules_as_text() -> None:
    """Pattern and replacement can be programs or their text, with any:name for plain arguments."""
    pattern = """
    %x: f32[2] @s0 obj0 = input()
    %mul: f32[2] @s1 obj1 = aten.mul.Tensor(%x, any:a) reads(%x)
    %mul_1: f32[2] @s2 obj2 = aten.mul.Tensor(%mul, any:a) reads(%mul)
    output(%mul_1)
    """
    rule = Rule(pattern, lambda x, a: x * (a * a), name="twice")
    (step,) = rewrite_in_steps(capture(lambda x: x * 3 * 3 * 4, ones(3)), rule)
    assert step.after[0].args[1] == 9
    text = "%x: f32[2] @s0 obj0 = input()\n%mul: f32[2] @s1 obj1 = aten.mul.Tensor(%x, any:a) reads(%x)\noutput(%mul)"
    (step,) = rewrite_in_steps(capture(lambda x: x * 3 * 3, ones(3)), Rule(pattern, text, name="once"))
    assert [operation.target for operation in step.after] == ["aten.mul.Tensor"]


def test_intermediates_can_be_kept() -> None:
    """A rule may say that what is used elsewhere stays."""
    rule = Rule(FUSE.pattern.program, lambda x, y, z: torch.addcmul(z, x, y), name="fma", keeps_intermediates=True)
    steps = assert_as_eager(used_elsewhere, (ones(4), ones(4)), [rule], exact=False)
    assert sorted(targets(steps.program)) == ["aten.addcmul.default", "aten.exp.default", "aten.mul.Tensor"]


closed_over = torch.ones(4)

BAD: list[tuple[Any, Any, dict[str, Any], str]] = [
    (lambda x: None, lambda x: None, {}, "the pattern is empty: it has no operations"),
    (lambda x: x, lambda x: x, {}, "the pattern is empty: it has no operations"),
    (lambda x: (x, x.exp()), lambda x: (x, x), {}, "the pattern returns %x"),
    (lambda x, y: x.exp(), lambda x: x, {}, "the pattern never uses its parameter 'y'"),
    (lambda x: x + closed_over, lambda x: x, {}, "the pattern uses a tensor that it closes over"),
    (lambda x: closed_over.add_(x[0]), lambda x: x, {}, "the pattern uses a tensor that it closes over"),
    (lambda x, y: (x.exp(), y.log()), lambda x, y: (x, y), {}, "not joined"),
    (lambda x: x.unsqueeze_(0), lambda x: x, {}, "changes a tensor's geometry"),
    (lambda x: x.sum().item(), lambda x: x, {}, "can't be captured"),
    (lambda *xs: xs[0].exp(), lambda x: x, {}, "expected parameters with a name each"),
    (lambda x, a=2: x * (a + 1), lambda x: x, {}, "computes with 'a' before aten.mul.Tensor takes it"),
    (lambda x, a="sum": x.exp(), lambda x: x, {}, "expected a number, a bool, a dtype or a Wildcard"),
    (lambda x, a=1: x.exp(), lambda x: x, {}, "the pattern never uses its parameter 'a'"),
    (lambda x, a=True: x.exp() if a else x.log(), lambda x: x, {}, "what the pattern runs depends on 'a'"),
    (lambda x: x.exp(), lambda x: x, {"inputs": {"y": "f32[2]"}}, "a type of 'y', which is no tensor of the pattern"),
    (lambda x: x.exp(), lambda x, z: x + z, {}, "the replacement takes 'z', which the pattern has not"),
    (lambda x: x.exp(), lambda x: (x, x), {}, "the replacement returns 2 tensors where its pattern returns 1"),
    (lambda x: x.exp(), lambda x: None, {}, "the replacement returns 0 tensors where its pattern returns 1"),
    (lambda x: x.exp(), lambda x: 3, {}, "it returns a int: expected tensors"),
    (lambda x: x.exp(), lambda x: x.add_(closed_over[0]), {}, "the replacement uses a tensor that it closes over"),
    (lambda x: x.exp(), lambda x: x.clone().unsqueeze_(0), {}, "the replacement changes a tensor's geometry"),
    (lambda x: x.exp(), lambda x: x.no_such(), {}, "the replacement fails here: AttributeError"),
    (lambda x: x.exp(), lambda x: x.exp().sum(0), {}, "returns f32[4] where its pattern returns f32[4,4]"),
    (lambda x: x.exp(), lambda x: x.exp().double(), {}, "returns f64[4,4] where its pattern returns f32[4,4]"),
    ("a", lambda x: x, {}, "the pattern can't be parsed: line 1, column 1"),
    (lambda x: x.exp(), "b", {}, "the replacement can't be parsed: line 1, column 1"),
    (3, lambda x: x, {}, "expected functions, programs or their text, found int"),
    (torch.exp, lambda x: x, {}, "call it in a function of your own"),
]


@pytest.mark.parametrize(("pattern", "replacement", "options", "message"), BAD)
def test_bad_rules(pattern: Any, replacement: Any, options: dict[str, Any], message: str) -> None:
    """A rule that could apply nowhere is an error when it is made, with its name and what is wrong."""
    with pytest.raises(RewriteError) as caught:
        Rule(pattern, replacement, name="bad", **options)
    assert message in str(caught.value) and "'bad'" in str(caught.value)


def test_hints_of_bad_patterns() -> None:
    """That other types of tensors might help is said where torch refuses the tensors, not of mistakes in the code."""
    for pattern, is_said in ((lambda x: x.view(3, 3), True), (lambda x: x.no_such(), False), ("a", False)):
        with pytest.raises(RewriteError) as caught:
            Rule(pattern, lambda x: x)
        assert ("give its tensors a type" in str(caught.value)) == is_said


def test_a_condition_may_leave_the_example_out() -> None:
    """A rule with a condition may return another dtype of the pattern's own tensors; where it applies it must not."""

    def cast(x, dtype=torch.float64):
        return x.to(dtype, copy=True)

    rule = Rule(cast, lambda x: x, where=lambda match: True)
    assert reasons(lambda x: x.to(torch.float64, copy=True).exp(), rule, ones(3)) == [
        "%_to_copy is f64[3], the replacement's is f32[3]"
    ]


def test_bad_conditions_and_programs() -> None:
    """A condition that fails names its rule; a partitioned program is refused."""
    rule = Rule(lambda x: x.exp(), lambda x: x.exp(), name="asks", where=lambda match: match["nothing"])
    program = capture(lambda x: x.exp().log(), ones(2))
    with pytest.raises(RewriteError, match=r"the condition of rule 'asks' failed: KeyError"):
        rewrite(program, rule)
    with pytest.raises(RewriteError, match="rewrite before partition"):
        rewrite(partition(program, "inductor"), FUSE)


def test_deterministic() -> None:
    """The same program and rules give the same text and the same steps."""
    texts = set()
    for _ in range(2):
        steps = rewrite_in_steps(capture(random_program(8, 20), *random_arguments(8)), RULES)
        texts.add(f"{steps}\n{steps.program}")
    assert len(texts) == 1


def test_steps_are_shown() -> None:
    """Steps have a text, plain lists, and a picture of before and after."""
    steps = rewrite_in_steps(capture(lambda x, y: x * y + x, ones(2), ones(2)), FUSE)
    assert str(steps).startswith("addcmul at %add (test_rewrite.py:")
    assert steps.to_dict()["steps"][0]["after"] == ["aten.addcmul.default"]
    shown = steps._repr_mimebundle_()
    assert shown["text/plain"] == str(steps) and "<svg" in shown["image/svg+xml"]
    assert steps[0].milliseconds > 0 and len(steps[:1]) == 1 and "1 applied" in repr(steps)


@pytest.mark.parametrize(("fn", "make"), [pytest.param(fn, make, id=name) for name, fn, make in CASES])
@pytest.mark.parametrize("rules", [ADDCMUL, RULES], ids=["addcmul", "library"])
def test_cases(fn: Any, make: Any, rules: Any) -> None:
    """On every program the rules change no result, in any order tried; the library's not by a bit."""
    torch.manual_seed(1)
    try:
        assert_as_eager(fn, make(), rules, exact=rules is not ADDCMUL, orders=1)
    except graphalias.CaptureError:
        pytest.skip("eager PyTorch refuses it, or it needs gradients")


def test_random_programs() -> None:
    """The library's rules change no bit of random programs of views, writes, out= and random numbers."""
    counts: dict[str, int] = {}
    for seed in range(60):
        args, fn = random_arguments(seed), random_program(seed, 2 + seed % 16)
        try:
            steps = assert_as_eager(fn, args, RULES, orders=1)
        except graphalias.CaptureError:
            continue
        for step in steps.applied:
            counts[step.rule] = counts.get(step.rule, 0) + 1
    assert {"redundant_clone", "view_of_view", "in_place"} <= counts.keys()


def test_half_precision_keeps_its_rounding() -> None:
    """A rule's condition on dtypes holds at each place: addcmul rounds once where f16 and bf16 round twice."""
    for dtype, expected in ((torch.float16, 0), (torch.bfloat16, 0), (torch.float32, 1)):
        program = capture(lambda x, y, z: x * y + z, *(torch.ones(3, dtype=dtype) for _ in range(3)))
        assert targets(rewrite(program, ADDCMUL)).count("aten.addcmul.default") == expected


def test_steps_are_drawn_one_by_one() -> None:
    """Few replacements of a small program are a sequence of programs; many are before and after."""
    twice = Rule(lambda x: x.neg().neg(), lambda x: x.clone(), name="twice")
    for count, expected in ((2, ["before", "1. twice at %neg_1", "2. twice at %neg_3"]), (9, ["before", "after"])):

        def negate(x: torch.Tensor, count: int = count) -> torch.Tensor:
            for _ in range(count):
                x = x.neg().neg().exp()
            return x

        steps = rewrite_in_steps(capture(negate, torch.ones(2)), twice)
        assert list(steps.programs()) == expected
        assert str(list(steps.programs().values())[-1]) == str(steps.program)
        assert "image/svg+xml" in steps._repr_mimebundle_()


def test_what_is_no_rule_is_refused() -> None:
    """A pattern and a replacement alone are no rule."""
    program = capture(lambda x: x + 1, torch.ones(2))
    with pytest.raises(RewriteError, match="expected rules, found tuple"):
        rewrite(program, [(torch.neg, torch.abs)])  # type: ignore[list-item]
