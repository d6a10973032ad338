"""The nvFuser executor on a GPU: the same programs with the real kernels. Skipped without one."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import graphalias
from nvfuser_operations import ONE, SHAPED, TWO, VALUES
from programs import PROGRAMS
from shared import load_cases

HAS_NVFUSER = importlib.util.find_spec("nvfuser_direct") is not None
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available() or not HAS_NVFUSER, reason="no NVIDIA GPU, or no nvfuser_direct"),
]

CASES = [case for case in getattr(load_cases(), "CASES", ()) if not (case.backward or case.expect_error or case.rng)]
MOST_RUNS = 3


def on_gpu(args: Any) -> Any:
    """Return arguments on the GPU, each storage once, so that tensors share memory as they did."""
    storages: dict[int, torch.UntypedStorage] = {}

    def moved(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        storage = leaf.untyped_storage()
        if storage.data_ptr() not in storages:
            storages[storage.data_ptr()] = storage.cuda()
        made = torch.empty(0, dtype=leaf.dtype, device="cuda")
        return made.set_(storages[storage.data_ptr()], leaf.storage_offset(), leaf.shape, leaf.stride())

    made: dict[int, Any] = {}  # the same tensor twice stays the same
    return pytree.tree_map(lambda leaf: made.setdefault(id(leaf), moved(leaf)), args)


def check(fn: Callable[..., Any], args: Any, executor: str = "nvfuser") -> None:
    """Compare calls of a jitted function with eager PyTorch's: what is returned and what is written, and strides."""
    jitted = graphalias.jit(fn, executor=executor)
    for _ in range(MOST_RUNS):
        theirs, mine = on_gpu(args), on_gpu(args)
        expected, found = fn(*theirs), jitted(*mine)
        for one, other in zip(pytree.tree_leaves((expected, theirs)), pytree.tree_leaves((found, mine)), strict=True):
            if isinstance(one, torch.Tensor):
                torch.testing.assert_close(other, one, equal_nan=True)
                assert other.stride() == one.stride() and other.storage_offset() == one.storage_offset()


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_shared_cases(case: Any) -> None:
    """The shared cases."""
    with torch.device("cuda"):
        check(case.fn, case.make(torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in PROGRAMS])
def test_programs(case: Any) -> None:
    """The project's own programs, by the executor that auto takes."""
    if "random" in case.name or "generator" in case.name or "empty" in case.name:
        pytest.skip("its values are not determined by its arguments")
    with torch.device("cuda"):
        check(case.fn, case.make(), executor="auto")


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("name", [*ONE, *TWO, *SHAPED])
def test_operations(name: str, dtype: str) -> None:
    """Each operation twice over, so that it is a region, in each dtype it is of."""
    kinds, fn = (ONE | TWO | SHAPED)[name]
    kind = {"i": "i", "b": "b"}.get(dtype[0] if dtype != "bf16" else "f", "f")
    if kind not in kinds and not (kinds == "r" and kind == "f"):
        pytest.skip("not of this dtype")
    x = VALUES[dtype]
    args = (x,) if name in ONE else (x.repeat_interleave(16), x.repeat(16))
    if fn is SHAPED.get(name, (None, None))[1]:
        args = (torch.randn(3, 4, 5).to(x.dtype),)
    with torch.device("cuda"):
        check(lambda *given: [fn(*given), fn(*(one.clone() for one in given))], args)


def test_own_stream() -> None:
    """A region runs in the current stream: what is queued there before it is seen."""
    step = graphalias.jit(lambda x: x.mul_(2).add_(1), executor="nvfuser")
    x = torch.ones(1 << 22, device="cuda")
    for _ in range(MOST_RUNS):
        step(x)
    x.fill_(1)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        x.mul_(3)
        step(x)
    stream.synchronize()
    assert bool((x == 7).all())
