"""Views at the edges of regions: inside where they see all the bytes, outside where something else needs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphalias import Program, capture, insert_update_aliases, jit, partition, verify
from graphalias.absorb import absorb_views
from graphalias.check import check


def absorbed(fn: Callable[..., Any], *args: Tensor) -> Program:
    """Return the program in regions, its views absorbed, checked and verified in any order."""
    program = absorb_views(partition(insert_update_aliases(capture(fn, *args)), "inductor"))
    check(program)
    verify(program, *args)
    return program


def outside(program: Program) -> list[str]:
    """Return the targets of what is called."""
    return [op.target for op in program.operations if op.is_compute]


def test_views_go_inside() -> None:
    """A region takes what its operands are views of, and returns the view that is used of its result."""
    program = absorbed(lambda x: (x.view(6).unsqueeze(0) * 2 + 1).view(3, 2).t(), torch.randn(2, 3))
    assert outside(program) == ["region"]
    assert program.outputs[0].stride == (1, 2)


def test_order_goes_along() -> None:
    """Where the view waits for a write, the region does."""

    def write_and_read(cache: Tensor, k: Tensor, q: Tensor) -> Tensor:
        cache[:, 1:2] = k
        return q @ cache.transpose(-1, -2)

    args = torch.randn(2, 4, 8), torch.randn(2, 1, 8), torch.randn(2, 1, 8)
    program = absorbed(write_and_read, *args)
    region = program.operations[-2]
    assert outside(program) == ["aten.slice.Tensor", "aten.copy_.default", "region"]
    assert [(edge.operation, edge.reason) for edge in region.after] == [("copy_", "RAW")]
    assert region.operands[1].name == "cache"


def test_what_stays_outside() -> None:
    """Views of fewer bytes, views others use, and views of what the region writes are made outside."""
    x = torch.randn(4, 4)
    assert outside(absorbed(lambda x: x[1:] * 2 + 1, x)) == ["aten.slice.Tensor", "region"]
    two_uses = absorbed(lambda x: (y := x.t()).mul(2).add(1) @ y, x)
    assert outside(two_uses)[:2] == ["aten.t.default", "region"]
    assert outside(absorbed(lambda x: x.t().mul_(2).add_(1), x)) == ["aten.t.default", "region"]


def test_between_two_regions() -> None:
    """A view of what one region makes, used by another only, goes into the first and not into both."""

    def program(x: Tensor) -> Tensor:
        y = x * 2 + 1
        x.t_()
        return x * y.t() + 1

    partitioned = absorbed(program, torch.randn(2, 8))
    assert outside(partitioned) == ["region", "aten.t_.default", "region"]
    assert partitioned.operations[-2].operands[1].name == "t"


def test_expanded_results_stay_outside() -> None:
    """A region returns tensors of their own: an expanded view of its result is made outside."""
    program = absorbed(lambda x: (x.sum(1, keepdim=True) * 2 + 1).expand(3, 5), torch.randn(3, 4))
    assert outside(program) == ["region", "aten.expand.default"]


def test_slices_of_one_buffer_share_a_region() -> None:
    """Gradients that are slices of a buffer stay strided inputs, so that all parameters compile once."""

    def step(flat: Tensor, p: Tensor, q: Tensor) -> None:
        p.add_(flat[:3].mul(2))
        q.add_(flat[3:].mul(2))

    program = absorbed(step, torch.randn(6), torch.randn(3), torch.randn(3))
    assert outside(program).count("aten.slice.Tensor") == 2


def test_one_tensor_through_two_views() -> None:
    """A tensor and its transpose are two inputs still, and jit gives eager's values."""
    x = torch.randn(3, 3)
    program = absorbed(lambda x: x * 2 + x.t(), x)
    assert [value.name for value in program.operations[-2].operands] == ["x", "t"]
    torch.testing.assert_close(jit(lambda x: x * 2 + x.t())(x), x * 2 + x.t())
