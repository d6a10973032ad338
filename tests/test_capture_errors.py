"""What can't be captured: refused with the user's line, and nothing is changed."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from graphalias import CaptureError, explain, verify
from graphalias.capture import capture

X = torch.ones(2, 3)
LEAF = torch.ones(3, requires_grad=True)
WITH_GRAD = torch.ones(3, requires_grad=True)
WITH_GRAD.grad = torch.ones(3)
WEIGHT = torch.ones(3, requires_grad=True)


def set_grad(x: torch.Tensor) -> None:
    """Write the gradient of an argument."""
    x.grad = torch.ones(3)


def set_attribute(x: torch.Tensor) -> None:
    """Give a tensor an attribute."""
    x.seen = True


def set_requires_grad(x: torch.Tensor) -> None:
    """Change what the argument is to autograd."""
    x.requires_grad = False


def swallow(x: torch.Tensor) -> torch.Tensor:
    """Catch what capture raises: in eager nothing would be caught."""
    try:
        return x + x.sum().item()
    except RuntimeError:
        return x


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "item": (lambda x: x.sum().item(), "depends on the values of tensors"),
    "swallowed": (swallow, "depends on the values of tensors"),
    "tolist": (lambda x: x.tolist(), "depends on the values of tensors"),
    "bool": (lambda x: 1 if x.sum() > 0 else 2, "depends on the values of tensors"),
    "nonzero": (lambda x: x.nonzero(), "depends on the values of tensors"),
    "mask": (lambda x: x[x > 0], "depends on the values of tensors"),
    "equal": (lambda x: torch.equal(x, x + 0), "depends on the values of tensors"),
    "print": (lambda x: print(x), "printing or formatting"),
    "repr": (lambda x: repr(x), "printing or formatting"),
    "format": (lambda x: f"{x}", "printing or formatting"),
    "numpy": (lambda x: x.numpy(), "Tensor.numpy"),
    "asarray": (lambda x: np.asarray(x), "numpy"),
    "deepcopy": (lambda x: copy.deepcopy(x), "copy.deepcopy"),
    "data_ptr": (lambda x: x.data_ptr(), "Tensor.data_ptr"),
    "storage": (lambda x: x.untyped_storage().nbytes(), "Tensor.untyped_storage"),
    "data of another kind": (lambda x: setattr(x, "data", 3), "eager PyTorch refuses this"),
    "typed storage": (lambda x: x.storage(), "Tensor.storage"),
    "attribute": (set_attribute, "new attribute of a tensor: .seen"),
    "cond": (lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), "which takes functions"),
    "sparse": (lambda x: x.to_sparse(), "expected a strided result, found torch.sparse_coo"),
    "containers": (lambda xs: xs.append(1), "container among its arguments"),
    "shapes": (lambda x: x + torch.ones(4), "eager PyTorch refuses this: RuntimeError"),
    "from_numpy": (lambda x: torch.from_numpy(np.zeros(3, dtype=np.float32)).add_(x[0]), "numpy array lent"),
}
GRADIENTS: dict[str, tuple[Callable[..., Any], str]] = {
    "backward": (lambda x: (x * 2).sum().backward(), "Tensor.backward"),
    "autograd.backward": (lambda x: torch.autograd.backward((x * 2).sum()), "backward pass into .grad"),
    "backward into a constant": (lambda x: torch.autograd.backward((WEIGHT * 2).sum()), "backward pass into .grad"),
    "write grad": (set_grad, "writing .grad"),
    "requires_grad_": (lambda x: x.requires_grad_(False), "requires_grad"),
    "requires_grad": (set_requires_grad, "requires_grad"),
    "detach_": (lambda x: x.detach_(), "requires_grad"),
    "leaf": (lambda x: x.add_(1), "leaf Variable"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    """Each is refused with what is wrong and the user's line; the argument is as it was."""
    fn, message = REFUSED[name]
    argument = [X] if name == "containers" else X
    with pytest.raises(CaptureError) as caught:
        capture(fn, argument)
    assert message in str(caught.value)
    if name not in ("containers", "attribute"):
        assert caught.value.location is not None
        assert caught.value.location.rpartition(":")[0] == __file__
        first = fn.__code__.co_firstlineno
        assert first <= int(caught.value.location.rpartition(":")[2]) <= first + 6
    assert torch.equal(X, torch.ones(2, 3))
    assert not hasattr(X, "seen")


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_refused(name: str) -> None:
    """A program computes values: what changes a gradient or a leaf is refused and has not happened."""
    fn, message = GRADIENTS[name]
    with pytest.raises(CaptureError, match=re.escape(message)):
        capture(fn, LEAF)
    assert LEAF.grad is None
    assert WEIGHT.grad is None
    assert LEAF.requires_grad
    assert LEAF.tolist() == [1, 1, 1]


def test_reading_a_gradient() -> None:
    """Reading a gradient is refused; where there is none, another call may find one."""
    for leaf in (WITH_GRAD, LEAF, X):
        with pytest.raises(CaptureError, match=r"reading \.grad"):
            capture(lambda x: x.grad, leaf)
    assert capture(lambda x: (x * 2).grad, X).outputs == (None,)


@pytest.mark.parametrize("number", [torch.tensor(3), torch.tensor(2.5), torch.tensor(True), torch.tensor([4])])
def test_numbers_in_tensors_are_values(number: torch.Tensor) -> None:
    """The value of a tensor of one element, passed or closed over, is not frozen into the program."""
    for fn, args in ((lambda n: X * n.item(), (number,)), (lambda: X * number.item(), ())):
        with pytest.raises(CaptureError, match="depends on the values of tensors"):
            capture(fn, *args)


def test_errors_of_the_function_are_its_own() -> None:
    """An exception the user's code raises comes out unchanged."""

    def step(x: torch.Tensor) -> None:
        x.add_(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        capture(step, X)
    assert torch.equal(X, torch.ones(2, 3))


def test_an_error_eager_raises_may_be_caught() -> None:
    """A function that expects torch's error and goes on is captured as it goes on in eager."""

    def step(x: torch.Tensor) -> torch.Tensor:
        try:
            return x + torch.ones(4)
        except RuntimeError:
            return x + 1

    assert [op.target for op in capture(step, X).operations][-2] == "aten.add.Tensor"


@pytest.mark.parametrize(
    "argument",
    [X.to_sparse(), np.ones(3), torch.empty(2, device="meta"), torch.nn.parameter.UninitializedParameter()],
    ids=["sparse", "numpy", "meta", "uninitialized"],
)
def test_unsupported_arguments(argument: Any) -> None:
    """An argument of a type a program can't hold is refused by its name."""
    with pytest.raises(CaptureError, match=r"argument pair\.0: expected a plain tensor or value"):
        capture(lambda pair: None, (argument,))


def test_unsupported_closed_over_tensors() -> None:
    """The same for what the function closes over, with the line."""
    sparse = X.to_sparse()
    with pytest.raises(CaptureError, match=r"layout torch\.sparse_coo that the function closed over") as caught:
        capture(lambda: sparse + sparse)
    assert caught.value.location is not None


def test_results_that_hide_tensors() -> None:
    """A returned object torch does not look into must not smuggle a fake tensor out."""

    class Result:
        def __init__(self, inner: Any) -> None:
            self.inner = [inner]

    with pytest.raises(CaptureError, match="returned a Result that holds tensors"):
        capture(lambda x: Result(x + 1), X)


def test_operators_without_a_shape_rule() -> None:
    """A custom operator that has no fake implementation: the error says what to add."""
    operator = torch.library.custom_op("graphalias_tests::shapeless", _shapeless, mutates_args=())
    with pytest.raises(CaptureError, match=r"graphalias_tests\.shapeless.*it has no shape rule"):
        capture(lambda x: operator(x), X)


def _shapeless(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_a_custom_operator_that_reshapes() -> None:
    """A geometry that changes behind the schema's back has no handle: refused."""
    operator = torch.library.custom_op("graphalias_tests::grow", _grow, mutates_args={"x"})
    operator.register_fake(_grow)
    with pytest.raises(CaptureError, match="changes the geometry of 'x' without returning it"):
        capture(lambda x: operator(x), torch.ones(2))


def _grow(x: torch.Tensor) -> None:
    x.resize_(5)


def test_out_that_torch_forgets_to_write() -> None:
    """A function that does not write its ``out=`` where tensors are fakes is refused; one that writes a view is not."""
    for out in (torch.tensor(0), torch.empty(0, dtype=torch.int64)):  # the second is resized, and not written either
        with pytest.raises(CaptureError, match="torch does not write it here"):
            capture(lambda out: torch.linalg.matrix_rank(torch.eye(2), out=out), out)
    capture(lambda x, out: torch.matmul(x, x[0], out=out), torch.ones(2, 2, 2), torch.ones(2, 2, 2))


def test_values_looked_at_before_dispatch() -> None:
    """A function of torch that reads a tensor by itself depends on its values; it is not said that eager refuses."""
    with pytest.raises(CaptureError, match="depends on the values of tensors"):
        capture(lambda x, at: torch.tensor_split(x, at), torch.ones(4), torch.tensor([1, 2]))


def test_results_that_are_refused() -> None:
    """A generator would run after the program, on fakes; a set would be the same one in each call."""
    with pytest.raises(CaptureError, match="returned a generator"):
        capture(lambda x: (row + 1 for row in x), torch.ones(2))
    with pytest.raises(CaptureError, match="returned a set"):
        capture(lambda x: {x.shape[0]}, torch.ones(2))


def test_what_is_no_function_is_said_to_be_none() -> None:
    """What can't be called is refused as such, by whatever captures."""
    for take in (capture, explain, verify):
        with pytest.raises(CaptureError, match=r"expected a function or an nn\.Module, found int"):
            take(3)
