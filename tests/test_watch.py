"""Python state a program was made from: what counts as a change, and what does not."""

from __future__ import annotations

import gc
import random
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

from graphalias.tracing.watch import Watch


@pytest.mark.parametrize(
    ("before", "after", "is_change"),
    [
        (300, int("300"), False), (0.0, -0.0, True), (1, True, True), (float("nan"), float("nan"), False),
        ("ab", "".join("ab"), False), ((1, 2), tuple(range(1, 3)), False), ([1], [1], True),
        (torch.ones(1), torch.ones(1), True), (numpy.ones(1), numpy.zeros(1), True), (None, 1, True),
    ],
)  # fmt: skip
def test_attribute(before: object, after: object, is_change: bool) -> None:
    """Plain values are compared by type and value, other things by identity; a change is named."""
    holder = types.SimpleNamespace(thing=before)
    watch = Watch([("holder", holder)])
    assert watch.change() is None
    holder.thing = after
    assert watch.change() == ("holder.thing" if is_change else None)


def test_containers() -> None:
    """Lists, dicts and sets are looked into; so are arrays."""
    holder = types.SimpleNamespace(a=[1], b={"x": 1}, c={1}, d=numpy.zeros(2))
    for change in (lambda: holder.a.append(2), lambda: holder.b.update(y=1), lambda: holder.c.add(2)):
        watch = Watch([("holder", holder)])
        change()
        assert watch.change() is not None
    watch = Watch([("holder", holder)])
    holder.d[0] = 1
    assert watch.change() == "holder.d"


def test_random_generators_are_let_be() -> None:
    """A generator that was drawn from is the one it was."""
    holder = types.SimpleNamespace(mine=random.Random(0), torch=torch.Generator(), numpy=numpy.random.default_rng(0))
    watch = Watch([("holder", holder)])
    holder.mine.random(), torch.rand(2, generator=holder.torch), holder.numpy.random()
    assert watch.change() is None


def test_tensors_are_not_kept_alive() -> None:
    """A tensor that was replaced is freed, and missed."""
    holder = types.SimpleNamespace(weight=torch.ones(2))
    watch, alive = Watch([("holder", holder)]), weakref.ref(holder.weight)
    holder.weight = torch.ones(2)
    gc.collect()
    assert alive() is None and watch.change() is not None


def test_names_and_order_of_attributes() -> None:
    """The same objects under other names, or exchanged, are a change; so is one more, or one less."""
    first, second = object(), object()

    def rename(holder: types.SimpleNamespace) -> None:
        holder.c = holder.b
        del holder.b

    def exchange(holder: types.SimpleNamespace) -> None:
        holder.a, holder.b = holder.b, holder.a

    changes: list[Callable[[Any], object]] = [
        rename, exchange, lambda holder: delattr(holder, "b"), lambda holder: setattr(holder, "c", None)
    ]  # fmt: skip
    for kind in (types.SimpleNamespace, torch.nn.Module):
        for change in changes:
            holder = kind()
            holder.a, holder.b = first, second
            watch = Watch([("holder", holder)])
            change(holder)
            assert watch.change() is not None


def test_hooks() -> None:
    """A hook of any kind on any module is a change, also after one that came and went; one elsewhere is none."""
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    watch = Watch([("net", net)])
    torch.nn.ReLU().register_forward_hook(print)
    assert watch.change() is None
    net[1].register_forward_hook(print).remove()
    assert watch.change() is None
    register = ("forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook")
    for name in register:
        handle = getattr(net[1], f"register_{name}")(print)
        assert watch.change() is not None
        assert watch.change() is not None
        handle.remove()
    watch = Watch([("net", net)])
    net[0].register_forward_hook(print)
    assert watch.change() == "net._modules['0']._forward_hooks"


def test_a_deleted_variable() -> None:
    """A variable that is closed over and deleted is a change, no error."""
    factor = 2

    def scaled(x: Any) -> Any:
        return x * factor  # noqa: F821

    watch = Watch([("", scaled)])
    assert watch.change() is None
    del factor
    assert watch.change() is not None
