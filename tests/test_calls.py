"""Methods are called instead of operators only where they are the same."""

from __future__ import annotations

import pytest
import torch

from graphalias import capture
from graphalias.calls import method_of


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda x: x.add_(1), "add_"),
        (lambda x: x.mul(x), "mul"),
        (lambda x: x.select(0, 1), "select"),
        (lambda x: x.as_strided((2,), (1,), 1), "as_strided"),
        (lambda x: x.copy_(x * 2), "copy_"),
        (lambda x: torch.where(x > 0, x, 0.0), None),  # the method's first argument is another
        (lambda x: x.add(x, alpha=2), None),  # it has keywords
        (lambda x: torch.cat([x, x]), None),  # no tensor comes first
        (lambda x: torch.ops.aten.add.Scalar(x, 1), None),  # the method means another overload
        (lambda x: x.new_zeros(3), None),
    ],
)
def test_method(fn, expected: str | None) -> None:
    """The method is named where what it dispatches is the very operator with the very arguments."""
    program = capture(fn, torch.ones(4, 3))
    operation = [operation for operation in program.operations if operation.is_compute][-1]
    assert method_of(operation, program.bindings) == expected
