"""The shared cases: each is captured as it is, or refused where eager refuses it."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

import shared
from capturing import geometries
from graphalias import CaptureError
from graphalias.capture import capture

NAMES = [case.name for case in cases.CASES] if (cases := shared.load_cases()) else []

#: Eager's error depends on values: it comes when the program runs.
ON_RUNNING = {"index_copy_out_of_range"}


@pytest.mark.parametrize("name", NAMES)
def test_case(shared_cases: ModuleType, name: str) -> None:
    """Capture touches no argument, and raises exactly where the call itself raises in eager."""
    case = shared_cases.BY_NAME[name]
    args = case.make(torch.Generator().manual_seed(0))
    before = geometries(args)
    if case.expect_error and not case.backward and name not in ON_RUNNING:
        with pytest.raises(CaptureError, match="eager PyTorch refuses this"):
            capture(case.fn, *args)
    else:
        program = capture(case.fn, *args)
        assert set(program.signature.bind(args, {})) == {v.name for v in program.inputs if not v.is_state}
    assert geometries(args) == before
