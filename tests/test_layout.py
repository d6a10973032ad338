"""Results have the strides that the kernels give them, also where fake tensors say otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphalias import CaptureError, capture, verify
from graphalias.graph import Value

X = torch.arange(12.0).reshape(3, 4)

CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "copysign of a transpose": lambda x: x.t().copysign(torch.ones(4, 3)),
    "out of a transpose": lambda x: torch.neg(x.t(), out=torch.empty(0)),
    "two outs": lambda x: torch.sort(x.t(), out=(torch.empty(0), torch.empty(0, dtype=torch.int64)))[0],
    "every other column": lambda x: x[:, ::2] * 2,
    "permuted": lambda x: x.view(3, 2, 2).permute(2, 0, 1).exp(),
    "reduced": lambda x: x.view(3, 2, 2).permute(2, 0, 1).sum(0, keepdim=True),
    "product": lambda x: x.t() @ x,
    "cat": lambda x: torch.cat([x.t(), x.t()]),
    "cumulative": lambda x: x.t().cumsum(0),
    "flipped": lambda x: x.t().flip(0),
    "channels last": lambda x: torch.relu(x.view(1, 3, 2, 2).contiguous(memory_format=torch.channels_last)),
    "expanded": lambda x: x[:1].expand(5, 4).sigmoid(),
    "where": lambda x: torch.where(x.t() > 1, x.t(), 0.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_strides_are_the_kernels(name: str) -> None:
    """The captured result has the shape and strides of the real one."""
    real, program = CALLS[name](X.clone()), capture(CALLS[name], X)
    (value,) = program.outputs
    assert isinstance(value, Value)
    assert (value.shape, value.stride) == (tuple(real.shape), real.stride())


def test_views_of_such_results() -> None:
    """What is a view and what a copy follows from the real strides: reshape of a column-major result copies."""
    program = capture(lambda x: x.t().copysign(torch.ones(4, 3)).reshape(-1).add_(1), X)
    assert "aten.clone.default" in [operation.target for operation in program.operations]
    assert torch.equal(program.run(X.clone()), X.t().reshape(-1) + 1)


def test_random_state_and_arguments_are_left_alone() -> None:
    """Asking the kernel draws from no random state and reads no user memory."""
    state, x = torch.get_rng_state(), X.clone()
    capture(lambda x: torch.nn.functional.dropout(x.t(), 0.5, True), x)
    assert torch.equal(torch.get_rng_state(), state) and torch.equal(x, X)


@pytest.mark.parametrize(
    ("fn", "count"),
    [(torch.linalg.qr, 2), (torch.geqrf, 2), (torch.linalg.eigh, 2), (torch.linalg.householder_product, 1)],
)
def test_out_that_is_resized(fn: Any, count: int) -> None:
    """An empty ``out=`` gets the shape and the strides its kernel gives it."""

    def step(*args: torch.Tensor) -> Any:
        out = args[-count:]
        views = [tensor.view_as(tensor) for tensor in out]
        fn(*args[:-count], out=out if count > 1 else out[0])
        return [tensor.t() * 2 for tensor in out], views

    inputs = [torch.eye(3), torch.ones(3)] if count == 1 else [torch.eye(3)]
    verify(step, *inputs, *(torch.empty(0) for _ in range(count)))


def test_out_of_no_elements() -> None:
    """The strides of an ``out=`` without elements are the kernel's, too: they can be seen."""
    verify(lambda x, out: torch.linalg.eigvals(x, out=out), torch.ones(0, 5, 5), torch.empty(5, 0).t().cfloat())
    verify(lambda x, out: torch.linalg.eigvals(x, out=out), torch.ones(0, 0), torch.empty(2).cfloat()[1::2][:0])


def test_out_is_not_forgotten_the_second_time() -> None:
    """What torch remembers of a shape rule's results leaves no ``out=`` of its old size."""
    for _ in range(2):
        with pytest.raises(CaptureError, match="changes the geometry of 'result' without returning it"):
            capture(
                lambda x, out, info: torch.linalg.solve_ex(x, x, out=(out, info)),
                torch.eye(3), torch.empty(0), torch.empty(0, dtype=torch.int32),
            )  # fmt: skip


def test_views_with_dimensions_of_one_element() -> None:
    """What a view's strides say of dimensions of one element is what its kernel says: a clone of it shows them."""
    for x in (torch.ones(4)[1::2][:1], torch.ones(4).as_strided((1, 4), (9, 1)), torch.ones(1, 1).t()):
        real, program = x.view(1, -1), capture(lambda x: x.view(1, -1), x)
        (value,) = program.outputs
        assert isinstance(value, Value)
        assert value.stride == real.stride()
        verify(lambda x: (x.view(1, -1).clone(), x.view(1, -1).view(-1)), x)
