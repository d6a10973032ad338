"""Random PyTorch programs: in many orders, jitted, as text; exact where brute force can tell."""

from __future__ import annotations

import pytest
import torch

import graphalias
from brute import imposed_order, required_order
from graphalias import CaptureError, capture, check, insert_update_aliases, parse, verify
from test_programs import assert_jit_is_eager
from torch_programs import random_arguments, random_program

BLOCKS = [range(start, start + 25) for start in range(0, 200, 25)]


@pytest.mark.parametrize("seeds", BLOCKS, ids=lambda seeds: f"{seeds.start}-{seeds.stop}")
def test_orders_and_jit(seeds: range) -> None:
    """Any order, and the jitted function, show what eager shows; what eager refuses is refused."""
    for seed in seeds:
        args, fn = random_arguments(seed), random_program(seed, 2 + seed % 14)
        try:
            report = verify(fn, *args, orders=6)
        except CaptureError:
            with pytest.raises(Exception):  # noqa: B017  # whatever eager raises
                fn(*args)
            continue
        if not report.undetermined:
            assert_jit_is_eager(fn, args)


def test_hazards_are_common() -> None:
    """Most of these programs have hazards, so that the test above tests something."""
    hazards = 0
    for seed in range(100):
        try:
            program = capture(random_program(seed, 2 + seed % 14), *random_arguments(seed))
        except CaptureError:
            continue
        hazards += bool(graphalias.find_hazards(program))
    assert hazards > 60


def test_exact_on_captured_programs() -> None:
    """The order imposed on captured programs is the closure of data dependencies and overlapping accesses."""
    for seed in range(60):
        try:
            program = capture(random_program(seed, 2 + seed % 7), *random_arguments(seed))
        except CaptureError:
            continue
        result = insert_update_aliases(program)
        assert required_order(program) == imposed_order(result), f"seed {seed}"
        assert str(insert_update_aliases(result)) == str(result)
        check(program)
        check(result)


def test_text_runs_as_the_program_does() -> None:
    """A captured program printed and parsed runs as it did, when its constants are bound again."""
    for seed in range(40):
        args, fn = random_arguments(seed), random_program(seed, 2 + seed % 14)
        try:
            program = capture(fn, *args)
        except CaptureError:
            continue
        again = parse(str(program), program.bindings)
        assert str(again) == str(program)
        if [value for value in program.inputs if not value.is_state] and len(again.inputs) == len(program.inputs):
            torch.manual_seed(0)
            leaves = again.run(*(program.signature.bind(args, {})).values())
            assert len(leaves) == len(program.outputs)
