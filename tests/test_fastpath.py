"""The hot path answers what it may, and nothing else: it says MISS before anything has happened."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import graphalias
from graphalias.fastpath import FEW, MISS

jit = functools.partial(graphalias.jit, executor="eager")


def warm(fn: Any, *args: Any) -> Any:
    """Return a jitted function whose hot path knows these arguments, and that hot path."""
    jitted = jit(fn, strict=True)
    for _ in range(2):
        jitted(*args)
    (fast,) = jitted._cache.fast
    return jitted, fast


def write(x: torch.Tensor, n: int = 1) -> torch.Tensor:
    """Write the argument."""
    return x.add_(n).mul(2)


def test_answers_the_same_kind_of_call() -> None:
    """It runs the program on new tensors of the same kind, and counts as a hit."""
    jitted, fast = warm(write, torch.ones(3))
    x = torch.zeros(3)
    assert torch.equal(fast((x,)), torch.full((3,), 2.0)) and torch.equal(x, torch.ones(3))
    hits = jitted.cache_info().hits
    jitted(x)
    assert jitted.cache_info().hits == hits + 1


@pytest.mark.parametrize(
    "args",
    [
        (torch.ones(4),), (torch.ones(3, dtype=torch.float64),), (torch.ones(6)[::2],), (torch.ones(4)[1:],), (), (3,),
        (torch.nn.Parameter(torch.ones(3)),), (torch.ones(3), 1), (torch.ones(1, 3),), ([torch.ones(3)],),
    ],
    ids=["shape", "dtype", "stride", "offset", "none", "number", "parameter", "more", "dims", "list"],
)  # fmt: skip
def test_misses_other_kinds(args: tuple[Any, ...]) -> None:
    """Another shape, dtype, stride, offset, type or structure is not its business, and is left as it was."""
    _, fast = warm(write, torch.ones(3))
    before = [a.detach().clone() for a in args if isinstance(a, torch.Tensor)]
    assert fast(args) is MISS
    assert all(torch.equal(a, b) for a, b in zip(args, before)), args  # noqa: B905  # some are no tensors


def test_misses_other_values() -> None:
    """Numbers compare by type and value."""
    _, fast = warm(write, torch.ones(3), 2)
    assert fast((torch.ones(3), 3)) is MISS and fast((torch.ones(3), True)) is MISS
    assert fast((torch.ones(3), 2)) is not MISS
    _, fast = warm(write, torch.ones(3), 1)
    assert fast((torch.ones(3), True)) is MISS


@pytest.mark.parametrize("others", [0, FEW], ids=["few", "many"])
def test_misses_shared_memory(others: int) -> None:
    """Memory that is written must meet no other argument's, be it the same tensor, a view or another storage."""

    def program(x: torch.Tensor, y: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * y + sum(more)

    more = [torch.ones(4) for _ in range(others)]
    _, fast = warm(program, torch.ones(4), torch.ones(4), *more)
    base = torch.zeros(16)
    assert fast((base[0:4].clone(), base[4:8].clone(), *more)) is not MISS
    same = torch.zeros(4)
    assert fast((same, same, *more)) is MISS
    alias = same.view(4)
    assert fast((same, alias, *more)) is MISS
    halves = torch.zeros(8).untyped_storage()
    low = torch.empty(0).set_(halves, 0, (4,), (1,))
    overlapping = torch.frombuffer(memoryview(low.numpy()), dtype=torch.float32)
    assert overlapping.data_ptr() == low.data_ptr() and fast((low, overlapping, *more)) is MISS
    assert not low.any()


@pytest.mark.parametrize("others", [0, FEW], ids=["few", "many"])
def test_reads_may_share(others: int) -> None:
    """A function that writes nothing is answered however its arguments share memory, but for one object twice."""
    more = [torch.ones(4) for _ in range(others)]
    _, fast = warm(lambda x, y, *more: x + y, torch.ones(4), torch.ones(4), *more)
    x = torch.ones(4)
    assert fast((x, x.view(4), *more)) is not MISS
    assert fast((x, x, *more)) is MISS  # the function may ask whether they are one


def test_misses_other_modes() -> None:
    """Grad, inference and autocast mode, another default dtype, modes that see operations, and the off switch."""
    _, fast = warm(write, torch.ones(3))
    with torch.no_grad():
        assert fast((torch.ones(3),)) is MISS
    with torch.inference_mode():
        assert fast((torch.ones(3),)) is MISS
    with torch.autocast("cpu"):
        assert fast((torch.ones(3),)) is MISS
    with torch.device("meta"):
        assert fast((torch.ones(3, device="cpu"),)) is MISS
    with graphalias.disabled():
        assert fast((torch.ones(3),)) is MISS
    torch.set_default_dtype(torch.float64)
    try:
        assert fast((torch.ones(3, dtype=torch.float32),)) is MISS
    finally:
        torch.set_default_dtype(torch.float32)
    assert fast((torch.ones(3),)) is not MISS


SCALE = [2.0]


def test_misses_other_python_state() -> None:
    """What the function can reach and may have read is what it was."""
    _, fast = warm(lambda x: x * SCALE[0], torch.ones(3))
    assert fast((torch.ones(3),)) is not MISS
    SCALE[0] = 3.0
    try:
        assert fast((torch.ones(3),)) is MISS
    finally:
        SCALE[0] = 2.0


def test_structures() -> None:
    """Lists and tuples of tensors, nested, and numbers among them; results of every shape."""

    def step(params: list, state: tuple, lr: int) -> Any:
        for p, (m, v) in zip(params, state, strict=True):
            p.add_(m.mul_(2) + v, alpha=lr)
        return {"first": params[0], "rest": (params[1], [None, lr])}

    def make() -> tuple:
        return [torch.ones(2), torch.ones(3)], ((torch.ones(2), torch.ones(2)), (torch.ones(3), torch.ones(3))), 2

    _, fast = warm(step, *make())
    found, expected = fast(make()), step(*make())
    assert torch.equal(found["first"], expected["first"]) and found["rest"][1] == [None, 2]
    params, state, lr = make()
    assert fast((params, list(state), lr)) is MISS and fast((params[:1], state, lr)) is MISS


def test_modules() -> None:
    """A module's tensors are read anew in each call, its buffers written; another mode of it is a miss."""
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.ReLU(inplace=True)).requires_grad_(False)
    _, fast = warm(module, torch.randn(4, 3))
    x, count = torch.randn(4, 3), int(module[0].num_batches_tracked)
    expected = torch.relu(torch.nn.functional.batch_norm(x, None, None, training=True))
    torch.testing.assert_close(fast((x,)), expected)
    assert module[0].num_batches_tracked == count + 1
    module.eval()
    assert fast((x,)) is MISS
    module.train()
    module[0].weight = torch.nn.Parameter(torch.full((3,), -1.0), requires_grad=False)
    torch.testing.assert_close(fast((x,)), torch.relu(-torch.nn.functional.batch_norm(x, None, None, training=True)))


def test_what_torch_compile_leaves_is_no_change() -> None:
    """torch.compile hangs something of its own on parameters; a user's attribute is a change."""
    module = torch.nn.Linear(3, 3).requires_grad_(False)
    jitted, fast = warm(module, torch.ones(1, 3))
    module.weight._dynamo_static_input_type = "guarded"
    jitted(torch.ones(1, 3))  # found out once
    assert fast((torch.ones(1, 3),)) is not MISS and jitted.cache_info().misses == 1
    module.weight.mine = 3
    assert fast((torch.ones(1, 3),)) is MISS


def test_errors_name_the_operation() -> None:
    """An operation that fails on the hot path is named as everywhere."""
    jitted, _ = warm(lambda x, i: x.add_(1).index_select(0, i), torch.ones(3), torch.tensor([0]))
    for kind in (graphalias.ExecutorError, IndexError):  # what eager raises, too
        with pytest.raises(kind, match="index_select"):
            jitted(torch.ones(3), torch.tensor([9]))


@pytest.mark.parametrize("args", [({"a": torch.ones(2)},), (torch.ones(2), 1.5)], ids=["dict", "float"])
def test_kinds_it_does_not_know(args: tuple[Any, ...]) -> None:
    """Dicts, floats and the like get the general path, which is right too."""
    jitted = jit(lambda x, *rest: (x["a"] if isinstance(x, dict) else x) * 2)
    for _ in range(3):
        jitted(*args)
    assert jitted._cache.fast == () and jitted.cache_info().hits == 2
