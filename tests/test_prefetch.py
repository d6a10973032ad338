"""Loops that prefetch: only over much memory, the same values, and never another's cached code."""

from __future__ import annotations

import os

import pytest
import torch
from torch._inductor import config
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.utils import fresh_inductor_cache
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import graphalias
from graphalias.executors import inductor
from graphalias.executors.prefetch import DISTANCE_BYTES, FROM_BYTES, prefetching

pytestmark = pytest.mark.skipif(not inductor.is_available() or os.name == "nt", reason="Inductor needs a C++ compiler")

ENOUGH = FROM_BYTES // 4  # numbers of four bytes


def code(fn, *inputs, prefetch=True):
    """Return the code generated for a function, or what the generator has in its cache for it."""
    graph = make_fx(lambda *inputs: (fn(*inputs),))(*inputs)
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(tensor) for tensor in inputs]
    with prefetching(fakes if prefetch else []):
        return compile_fx_inner(graph, fakes).source_code


@pytest.fixture(autouse=True)
def _own_cache():
    with fresh_inductor_cache(), config.patch(fx_graph_cache=True):
        yield


def test_what_is_read_of_much_memory_is_asked_for_once():
    """Each address is asked for once, though read twice; nothing is where inputs are smaller."""
    source = code(lambda x, y: (x + y) * x, torch.zeros(ENOUGH), torch.zeros(ENOUGH))
    assert source.count("__builtin_prefetch") == 2
    assert source.count(f"+ {DISTANCE_BYTES})") == 2
    assert "__builtin_prefetch" not in code(lambda x: x + 1, torch.zeros(ENOUGH - 1))


def test_the_two_kinds_of_loops_are_not_mixed_up_in_the_cache():
    """The generator's cache gives each kind of loop its own."""

    def double(x):
        return x * 2

    x = torch.zeros(ENOUGH)
    for prefetch in (True, False, True, False):
        assert ("__builtin_prefetch" in code(double, x, prefetch=prefetch)) is prefetch


def test_gathered_reads_are_not_asked_for():
    """Where an index is itself read, nobody knows the address ahead."""
    table, index = torch.zeros(ENOUGH), torch.zeros(64, dtype=torch.int64)
    source = code(lambda table, index: table[index] + 1, table, index)
    assert source.count("__builtin_prefetch") == 1  # the index


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_large_regions_are_right_to_their_last_row(dtype):
    """Asking for what lies beyond the end does no harm, whatever the dtype."""
    x = torch.arange(4 * ENOUGH // dtype.itemsize + 3).remainder(5).to(dtype)
    expected = x.clone()

    def step(x):
        x.logical_not_().logical_xor_(x.flip(0)) if dtype is torch.bool else x.add_(3).mul_(2)

    step(expected)
    graphalias.jit(step, executor="inductor", strict=True)(x)
    assert torch.equal(x, expected)
