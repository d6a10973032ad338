"""The lowered form: readable source, memory freed at the last use, errors that name the operation."""

from __future__ import annotations

import gc
import linecache
import re
import traceback
import weakref

import pytest
import torch

import graphalias
from graphalias import ExecutorError, capture, lower, parse, partition


def source_of(text: str) -> str:
    """Return the source of a program given as text."""
    return lower(parse(text), "eager").source


def test_source() -> None:
    """One line an operation, with the user's file and line; in-place results bind no new name; ``del`` at last use."""
    text = """
    %x: f32[4,4] @s0 obj0 = input()
    %t: f32[4,4] stride(1,4) @s0 obj1 = aten.t.default(%x)
    %exp: f32[4,4] stride(1,4) @s1 obj2 = aten.exp.default(%t) reads(%t)  # model.py:3
    %add_: f32[4,4] @s0 obj0 = aten.add_.Tensor(%x!, %exp, alpha=2) reads(%x, %exp)  # model.py:4
    %update_aliases_1: f32[4,4] stride(1,4) @s0 obj1 = update_aliases(%t) after(add_ RAW)
    %sum: f32[] @s2 obj3 = aten.sum.default(%update_aliases_1, dtype=dtype:f64) reads(%update_aliases_1)
    output(%sum, %add_, 3)
    """
    assert source_of(text) == (
        "def program(x):\n"
        "    t = x.t()\n"
        "    exp = t.exp()  # model.py:3\n"
        "    aten_add__Tensor(x, exp, alpha=2)  # model.py:4\n"
        "    del exp\n"
        "    sum = aten_sum(t, dtype=dtype_f64)\n"
        "    del t\n"
        "    return (sum, x, 3)\n"
    )


def test_several_results() -> None:
    """Lists, tuples, lists of lists, None and in-place results among them are unpacked as the schema says."""

    def several(x: torch.Tensor, out: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = x.split([1, 3])
        low, high = torch.aminmax(x, dim=0)
        only = x.split(4)[0]
        roots = torch._foreach_sqrt([a, b])
        values, _ = torch.topk(x, 2, dim=0, out=(out, torch.empty(2, 2, dtype=torch.int64)))
        return a, low, high, only, *roots, values

    x, out = torch.rand(4, 2), torch.empty(2, 2)
    compiled = lower(capture(several, x, out))
    found, expected = compiled(x, out), several(x, torch.empty(2, 2))
    assert found[-1] is out
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_names_are_safe() -> None:
    """Names that are keywords, builtins of the source or no identifiers become others; text never becomes code."""
    text = """
    %device: f32[2] @s0 obj0 = input()
    %class: f32[2] @s1 obj1 = input()
    %0.x: f32[2] @s2 obj2 = input()
    %program: f32[2] @s3 obj3 = aten.add.Tensor(%device, %class, alpha=inf) reads(%device, %class)
    %_x: f32[2] @s4 obj4 = aten.mul.Tensor(%program, %0.x) reads(%program, %0.x)
    output(%_x, "\\"); import os #", nan, complex(1.0, -inf))
    """
    compiled = lower(parse(text))
    result = compiled(torch.ones(2), torch.zeros(2), torch.ones(2))
    assert torch.isnan(result[0]).all() and result[1] == '"); import os #' and result[3] == complex(1, float("-inf"))


def test_memory_is_freed_at_the_last_use() -> None:
    """An intermediate is gone before the next operation runs."""
    alive: list[int] = []
    tensors: list[weakref.ref] = []

    def watch(x: torch.Tensor) -> torch.Tensor:
        alive.append(sum(tensor() is not None for tensor in tensors))
        result = x + 1
        tensors.append(weakref.ref(result))
        return result

    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.add(x, x, alpha=2)  # a keyword: the operator is called, and can be watched
        return x

    compiled = lower(capture(program, torch.ones(3)))
    compiled.flat.__globals__["aten_add_Tensor"] = lambda x, other, alpha: watch(x)
    compiled(torch.ones(3))
    assert alive == [0, 1, 1, 1]


def test_constants_and_generators_are_the_very_objects() -> None:
    """A tensor the function closed over is written itself; a generator argument is advanced itself."""
    total, generator = torch.zeros(2), torch.Generator().manual_seed(0)
    compiled = lower(capture(lambda x: total.add_(x).bernoulli_(0.5, generator=generator), torch.ones(2)))
    state = generator.get_state()
    assert compiled(torch.ones(2)) is total
    assert not torch.equal(generator.get_state(), state)


def test_failure_names_the_operation() -> None:
    """The error says which operation failed and where it is in the user's code; the traceback shows generated code."""

    def take(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x[index] + 1

    compiled = lower(capture(take, torch.ones(2), torch.tensor([0])))
    with pytest.raises(ExecutorError, match=r"aten\.index\.Tensor failed: IndexError") as error:
        compiled(torch.ones(2), torch.tensor([5]))
    assert error.value.node == "index_1" and "test_lower.py" in error.value.location
    assert "aten_index_Tensor(x, [index])" in "".join(traceback.format_exception(error.value))


def test_source_goes_with_the_program() -> None:
    """The lines kept for tracebacks are dropped with the compiled program."""
    compiled = lower(capture(torch.neg, torch.ones(1)))
    file = compiled.flat.__code__.co_filename
    assert file in linecache.cache
    del compiled
    gc.collect()
    assert file not in linecache.cache


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%y: f32[2] @s1 obj1 = aten.nope.default(2)\noutput(%y)", "no operator 'aten.nope"),
        ("%y: f32[2] @s1 obj1 = aten.rand.default([2], generator=opaque:g)\noutput(%y)", "is bound to opaque:g"),
    ],
)  # fmt: skip
def test_what_is_not_there(text: str, message: str) -> None:
    """An operator torch does not have, or an object that is not bound, is named."""
    with pytest.raises(ExecutorError, match=message):
        lower(parse(text))


def test_unbound_constant() -> None:
    """A parsed program whose constants are not bound says so when it is run."""
    program = parse("%c: f32[2] @s0 obj0 = constant()\noutput(%c)")
    for run in (program.run, lower(program)):
        with pytest.raises(ExecutorError, match="nothing is bound to the constant %c"):
            run()
    bound = parse(str(program), {"c": torch.ones(2)})
    assert bound.run()[0] is bound.bindings["c"]


def test_autocast_is_not_applied_twice() -> None:
    """Casts that autocast made are in the program; running it under autocast makes no others."""
    x = torch.ones(2, 2)
    program = capture(torch.mm, x, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = capture(torch.mm, x, x)
        for run in (program.run, lower(program)):
            assert run(x, x).dtype == torch.float32
    for run in (cast.run, lower(cast)):
        assert run(x, x).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda names: names[:-1], "leaves out a node"),
        (lambda names: [*names, names[0]], "twice"),
        (lambda names: [*names[:-1], "nobody"], "no node of the program"),
        (lambda names: names[::-1], "no topological order: .* comes before .*, which it depends on"),
    ],
)
def test_order_must_be_topological(change, message: str) -> None:
    """An order with a node missing, twice, unknown or too early is refused before anything runs."""
    x = torch.ones(2)
    program = graphalias.insert_update_aliases(capture(lambda x: x.add_(1).mul(2), x))
    with pytest.raises(ExecutorError, match=message):
        program.run(x, order=change(list(program.graph)))
    assert torch.equal(x, torch.ones(2))


def test_call_that_does_not_fit_touches_nothing() -> None:
    """Shapes or sharing that do not fit are refused before anything is written, naming the argument."""
    x, y = torch.ones(4), torch.ones(4)
    program = capture(lambda x, y: x.add_(y), x, y)
    for args, message in (
        ((x, torch.ones(3)), "argument y does not fit the program: shape"),
        ((x, x), "argument y shares memory with x"),
        ((x,), "structure"),
        ((x, 3), "argument y: expected a tensor, found int"),
    ):
        for run in (program.run, lower(program)):
            with pytest.raises(ExecutorError, match=message):
                run(*args)
    assert torch.equal(x, torch.ones(4))


def test_regions_show_what_is_in_them() -> None:
    """A region that is no fusion definition prints its body, and says so where its definition is asked for."""
    program = partition(capture(lambda x: x.add_(1).mul_(2), torch.ones(3)), "inductor")
    (region,) = lower(program, "inductor").regions
    assert re.match(r"region_1:\n  %x: f32\[3\] .*\n  %add_: .*\n  %mul_: .*\n  output\(\)$", str(region))
    with pytest.raises(ExecutorError, match="no fusion definition"):
        _ = region.definition
