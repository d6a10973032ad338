"""Whole programs through the definitions of their regions, the real ones, run by the CPU oracle: equal to eager."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import graphalias
from graphalias import CaptureError
from graphalias.executors import nvfuser, once
from graphalias.oracle import differences
from nvfuser_oracle import WRITES, run_on_cpu
from nvfuser_rules import violations
from programs import PROGRAMS
from shared import load_cases
from test_programs import scene_of
from tools import nvfuser_cases
from tools.fuzz_regions import random_source
from torch_programs import random_arguments, random_program

pytestmark = pytest.mark.skipif(not nvfuser.is_available(), reason=f"nvFuser: {nvfuser.why_unavailable()}")

SHARED = [case for case in getattr(load_cases(), "CASES", ()) if not case.backward]


class BrokenRuleError(BaseException):
    """A definition breaks a static rule: not to be caught by a fallback."""


@contextlib.contextmanager
def run_by_oracle(writes: str) -> Iterator[list[Any]]:
    """Let the oracle run definitions in the place of a GPU, once the static rules find nothing; give those it ran."""
    ran: list[Any] = []

    def run(definition: Any, inputs: Any) -> list[torch.Tensor]:
        if lines := violations(definition, inputs):
            raise BrokenRuleError("\n".join([*lines, repr(definition)]))
        ran.append(definition)
        return run_on_cpu(definition, inputs, writes)

    def fall_back(region: Any) -> None:
        raise BrokenRuleError(f"nvFuser could not take a region:\n{region.body}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvfuser, "run_definition", run)
        patch.setattr(once, "eager", SimpleNamespace(compile_region=fall_back))
        yield ran


def faults(fn: Any, args: tuple[Any, ...]) -> list[str]:
    """Return what a jitted function shows other than eager, in any order of writes."""
    scene, jitted = scene_of(args), graphalias.jit(fn, executor="nvfuser")
    expected = scene.watch(lambda: fn(*args))
    lines = []
    for writes in (*WRITES, "late"):
        with run_by_oracle(writes):
            found = scene.watch(lambda: jitted(*args))
        lines += [f"writes {writes}: {line}" for line in differences(expected, found, exact=False)]
    return lines


@pytest.mark.skipif(not SHARED, reason="the shared cases are not beside this checkout")
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in SHARED])
def test_shared_case(case: Any) -> None:
    """A shared case shows what eager shows, whatever the order of writes; no region falls back."""
    torch.manual_seed(1)
    assert not faults(case.fn, case.make(torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in PROGRAMS])
def test_program(case: Any) -> None:
    """The project's own programs do so too."""
    torch.manual_seed(0)
    assert not faults(case.fn, case.make())


@pytest.mark.parametrize("seeds", [range(i, i + 25) for i in range(0, 100, 25)], ids=str)
def test_random_programs(seeds: range) -> None:
    """And random programs of views, in-place and pure operations."""
    for seed in seeds:
        args, fn = random_arguments(seed), random_program(seed, 2 + seed % 14)
        with contextlib.suppress(CaptureError):
            assert not faults(fn, args), f"seed {seed}"


@pytest.mark.parametrize("seeds", [range(i, i + 25) for i in range(0, 100, 25)], ids=str)
def test_random_sources(seeds: range) -> None:
    """And those made for regions, of many dtypes and operations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            source = random_source(seed)
            fn, make = source.functions()
            assert not faults(fn, make()), source


@pytest.mark.skipif(not SHARED, reason="the shared cases are not beside this checkout")
def test_page() -> None:
    """docs/nvfuser-cases.md says what nvFuser makes of these programs: ``python -m tools.nvfuser_cases`` renews it."""
    assert nvfuser_cases.PAGE.read_text() == nvfuser_cases.page()
