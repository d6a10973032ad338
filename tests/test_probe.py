"""Eager's errors that fake tensors do not raise are raised at capture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphalias import CaptureError
from graphalias.capture import capture

N = torch.arange(6)
X = torch.arange(6.0)
IX = torch.tensor([0, 1, 1])

REFUSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "expanded": (lambda x: x.unsqueeze(0).expand(3, 6).add_(1), (X,)),
    "expanded argument": (lambda x: x.add_(1), (X[:1].expand(4),)),
    "partly overlapping operand": (lambda x: x[1:].add_(x[:-1]), (X,)),
    "partly overlapping arguments": (lambda x, y: x.add_(y), (X[:4], X[2:])),
    "transpose into itself": (lambda x: x.copy_(x.t()), (torch.ones(3, 3),)),
    "out over an operand": (lambda x: torch.add(x[1:], x[:-1], out=x[1:]), (X,)),
    "index_add_ of itself": (lambda x: x.index_add_(0, IX, x[:3]), (X,)),
    "float into int": (lambda n, x: n.mul_(x), (N, X)),
    "float number into int": (lambda n: n.add_(0.5), (N,)),
    "division of ints": (lambda n: n.div_(n + 1), (N,)),
    "bool plus int": (lambda b, n: b.add_(n), (N > 1, N)),
    "complex into float": (lambda x: x.add_(torch.ones(6, dtype=torch.complex64)), (X,)),
    "out of an int": (lambda x, n: torch.sin(x, out=n), (X, N)),
}
ALLOWED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "the same operand": (lambda x: x.add_(x), (X,)),
    "a copy of an overlap": (lambda x: x[1:].copy_(x[:-1].clone()), (X,)),
    "overlapping windows": (lambda x: x.as_strided((3, 3), (1, 1)).clamp_(min=0), (X,)),
    "interleaved": (lambda x: x[::2].add_(x[1::2]), (X,)),
    "bool into int": (lambda n, x: n.add_(x > 2), (N, X)),
    "copy into int": (lambda n, x: n.copy_(x), (N, X)),
    "fill of an expanded tensor": (lambda x: x.unsqueeze(0).expand(3, 6).zero_(), (X,)),
    "remainder of ints": (lambda n: n.remainder_(n + 1), (N,)),
    "bf16 plus f32": (lambda x, y: x.add_(y), (X.bfloat16(), X)),
    "drawn ints": (lambda n: n.random_(5), (N,)),
    "a big index": (lambda n: n.index_fill_(0, torch.tensor([5]), 1), (N,)),
    "itself twice in a list": (lambda x: torch._foreach_mul_([x[:4], x[2:]], 2), (X,)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_in_eager(name: str) -> None:
    """Eager raises a RuntimeError, and so does capture, with the same words and the user's line."""
    fn, args = REFUSED[name]
    with pytest.raises(RuntimeError) as eager:
        fn(*(arg.clone() if not arg._is_view() else arg for arg in args))
    with pytest.raises(CaptureError, match="eager PyTorch refuses this") as found:
        capture(fn, *args)
    assert str(eager.value).split("\n")[0][:40] in str(found.value)
    assert str(found.value.location).startswith(__file__)


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed_as_in_eager(name: str) -> None:
    """What eager lets pass is captured; asking the kernel has drawn no random numbers and touched nothing."""
    fn, args = ALLOWED[name]
    before = [arg.clone() for arg in args]
    state = torch.get_rng_state()
    capture(fn, *args)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, args, before))
    fn(*(arg.clone() for arg in args))


def test_the_refusal_may_be_caught() -> None:
    """A function that tries a write eager refuses, and goes on, is captured as it goes on."""

    def step(x: torch.Tensor) -> torch.Tensor:
        try:
            x[1:].add_(x[:-1])
        except RuntimeError:
            x.mul_(2)
        return x

    program = capture(step, X)
    assert [op.target for op in program.operations if op.writes] == ["aten.mul_.Tensor"]


def test_far_away_memory_is_not_allocated() -> None:
    """Scratch memory is what the operands see, not the storage before it."""
    base = torch.empty(1).expand(10_000_000_000)  # no memory, a huge extent
    program = capture(lambda x: x[9_999_999_990:].numel(), base)
    assert program.outputs == (10,)
    big = torch.zeros(1_000_000, dtype=torch.int64)
    assert capture(lambda n: n[-4:-2].add_(n[-2:]), big).operations[-2].target == "aten.add_.Tensor"
