"""Every program, the project's own and the shared ones, in many topological orders and jitted, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import graphalias
from graphalias import CaptureError, verify
from graphalias.oracle import Scene, differences
from graphalias.torch_private import flatten_plain
from programs import PROGRAMS, Case
from shared import load_cases

SHARED = list(getattr(load_cases(), "CASES", ()))
NAMED = [pytest.param(case, id=case.name) for case in PROGRAMS]
ORDERS = 20


def scene_of(*trees: Any) -> Scene:
    """Return the tensors and generators in some arguments, each object once."""
    leaves = flatten_plain(trees)[0]
    tensors = {id(leaf): leaf for leaf in leaves if isinstance(leaf, torch.Tensor)}
    generators = [leaf for leaf in leaves if isinstance(leaf, torch.Generator)]
    return Scene({f"tensor {i}": tensor for i, tensor in enumerate(tensors.values())}, generators)


def assert_jit_is_eager(fn: Any, args: tuple[Any, ...], *, calls: int = 2) -> graphalias.runtime.CacheInfo:
    """Fail unless the jitted function shows what the function shows, on the first call and on a repeated one."""
    jitted = graphalias.jit(fn, executor="eager", strict=True)
    scene = scene_of(args)
    expected = scene.watch(lambda: fn(*args))
    for _ in range(calls):
        assert not differences(expected, scene.watch(lambda: jitted(*args)))
    return jitted.cache_info()


@pytest.mark.parametrize("case", NAMED)
def test_any_order(case: Case) -> None:
    """Random and adversarial orders give what eager gives; memory is as before afterwards."""
    torch.manual_seed(0)
    args = case.make()
    before = scene_of(args)
    report = verify(case.fn, *args, orders=ORDERS)
    assert report.orders == ORDERS + 3 and not report.undetermined and report.error is None
    scene = scene_of(args)
    assert not differences(before.watch(lambda: None), scene.watch(lambda: None))


@pytest.mark.parametrize("case", NAMED)
def test_jit(case: Case) -> None:
    """The jitted function gives what eager gives, and the second call needs no second program."""
    torch.manual_seed(0)
    info = assert_jit_is_eager(case.fn, case.make())
    assert (info.hits, info.misses) == (1, 1)


def test_orders_could_fail() -> None:
    """Many of these programs go wrong in some order without update_aliases: the tests above test something."""
    wrong = []
    for case in PROGRAMS:
        torch.manual_seed(0)
        args = case.make()
        try:
            verify(graphalias.capture(case.fn, *args), *args, orders=ORDERS)
        except graphalias.VerificationError as error:
            assert "missing dependency" in str(error) and error.node
            wrong.append(case.name)
    assert len(wrong) > len(PROGRAMS) // 3


@pytest.mark.skipif(not SHARED, reason="the shared cases are not beside this checkout")
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in SHARED if not case.backward])
def test_shared_case(case: Any) -> None:
    """A shared case gives what eager gives in every order tried and jitted, or raises where eager raises."""
    torch.manual_seed(1)
    args = case.make(torch.Generator().manual_seed(0))
    try:
        report = verify(case.fn, *args, orders=ORDERS)
    except CaptureError as error:
        assert case.expect_error and "eager PyTorch refuses this" in str(error)
        with pytest.raises(Exception):  # noqa: B017  # whatever eager raises
            case.fn(*args)
        return
    assert (report.error is not None) == case.expect_error and not report.undetermined


@pytest.mark.skipif(not SHARED, reason="the shared cases are not beside this checkout")
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in SHARED])
def test_shared_case_jitted(case: Any) -> None:
    """The jitted function shows what the function shows, also after a call with other sharing (``warmup``)."""
    torch.manual_seed(1)
    args = case.make(torch.Generator().manual_seed(0))
    jitted = graphalias.jit(case.fn, executor="eager")
    if case.warmup:
        jitted(*case.warmup(torch.Generator().manual_seed(1)))
    scene = scene_of(args)
    expected = scene.watch(lambda: case.fn(*args))
    for _ in range(2):
        assert not differences(expected, scene.watch(lambda: jitted(*args)))
