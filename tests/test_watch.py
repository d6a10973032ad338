"""Python state a program was made from: what counts as a change, and what does not."""

from __future__ import annotations

import gc
import random
import types
import weakref

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
