"""Signatures: calls that fit a program are bound, others are refused before anything is touched."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from graphalias import ExecutorError
from graphalias.capture import capture

MISFITS: dict[str, tuple[Any, str]] = {
    "type": (3, "argument x: expected a tensor, found int"),
    "dtype": (torch.ones(2, 3, dtype=torch.float64), "dtype: expected torch.float32"),
    "shape": (torch.ones(2, 4), r"shape: expected \(2, 3\), found \(2, 4\)"),
    "stride": (torch.ones(3, 2).t(), r"stride: expected \(3, 1\), found \(1, 2\)"),
    "offset": (torch.ones(3, 3)[1:], "offset: expected 0, found 3"),
    "layout": (torch.ones(2, 3).to_sparse(), "found a tensor of layout torch.sparse_coo"),
    "device": (torch.ones(2, 3, device="meta"), "found a meta tensor"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_misfits_are_refused(name: str) -> None:
    """The error names the argument, what is expected and what is found."""
    argument, message = MISFITS[name]
    program = capture(lambda x: x.add_(1), torch.ones(2, 3))
    with pytest.raises(ExecutorError, match=message):
        program.signature.bind((argument,), {})


def test_bits() -> None:
    """The conj bit belongs to the type."""
    z = torch.ones(2, dtype=torch.complex64)
    program = capture(lambda z: z.mul_(2), z)
    with pytest.raises(ExecutorError, match="conj: expected False, found True"):
        program.signature.bind((z.conj(),), {})


def test_structure_and_values() -> None:
    """The containers and the plain values are those of the capture: equal, and of the same type."""
    signature = capture(lambda d, n, f: d["a"] * n, {"a": torch.ones(2)}, 2, float("nan")).signature
    signature.bind(({"a": torch.zeros(2)}, 2, float("nan")), {})
    for args, shown in (
        (({"b": torch.ones(2)}, 2, float("nan")), r"\(\{'b': Tensor\}, 2, nan\)"),
        (({"a": torch.ones(2)}, 2), r"\(\{'a': Tensor\}, 2\)"),
    ):
        expected = r"structure does not fit: expected \(\{'a': Tensor\}, 2, nan\)"
        with pytest.raises(ExecutorError, match=rf"{expected}, found {shown}\n.*capture again"):
            signature.bind(args, {})
    zeros = capture(lambda x, f: x * f, torch.ones(2), 0.0).signature
    with pytest.raises(ExecutorError, match=r"argument f: expected 0\.0, found -0\.0"):
        zeros.bind((torch.ones(2), -0.0), {})
    for n in (3, 2.0, True):
        with pytest.raises(ExecutorError, match="argument n: expected 2, found"):
            signature.bind(({"a": torch.ones(2)}, n, float("nan")), {})


def test_other_objects_are_the_same_object() -> None:
    """What has no plain equality must be the very object."""
    thing = object()
    signature = capture(lambda x, thing: x + 1, torch.ones(2), thing).signature
    signature.bind((torch.ones(2), thing), {})
    with pytest.raises(ExecutorError, match="argument thing"):
        signature.bind((torch.ones(2), object()), {})


def test_merged_arguments_stay_one() -> None:
    """Where the same tensor was passed twice and is written, a call passes the same tensor twice."""
    x = torch.ones(2)
    signature = capture(lambda a, b: a.add_(1) * b, x, x).signature
    assert list(signature.bind((torch.zeros(2),) * 2, {})) != ["a", "b"]
    with pytest.raises(ExecutorError, match="argument b: expected the same tensor as argument a"):
        signature.bind((torch.zeros(2), torch.zeros(2)), {})


def test_sharing_is_guarded_where_memory_is_written() -> None:
    """An argument that meets written memory is refused, wherever it was apart when captured."""
    program = capture(lambda a, b, c: (a.add_(1), b + c), torch.ones(4), torch.ones(4), torch.ones(4))
    buffer = torch.zeros(12)
    program.signature.bind((buffer[:4], buffer[4:8].clone(), torch.ones(4)), {})
    other = torch.ones(4)
    assert set(program.signature.bind((torch.ones(4), other, other), {})) == {"a", "b", "c"}
    x = torch.ones(4)
    for args in ((x, x, other), (x, other, x), (x, x.detach(), other), (x, torch.from_numpy(x.numpy()), other)):
        with pytest.raises(ExecutorError, match=r"argument [bc] shares memory with a, which the program writes"):
            program.signature.bind(args, {})


def test_distances_are_guarded() -> None:
    """Arguments that lay on one written memory lie there at the same distances."""

    def pair(buffer: torch.Tensor, distance: int) -> tuple[torch.Tensor, torch.Tensor]:
        return buffer[:4], buffer.as_strided((4,), (1,), distance)

    program = capture(lambda a, b: a.add_(1) + b, *pair(torch.zeros(8), 2))
    program.signature.bind(pair(torch.zeros(8), 2), {})
    with pytest.raises(ExecutorError, match="offset"):
        program.signature.bind(pair(torch.zeros(8), 3), {})
    with pytest.raises(ExecutorError, match="shared memory when the program was captured"):
        program.signature.bind((torch.zeros(8)[:4], torch.zeros(8)[2:6]), {})


def test_views_beyond_an_argument_count() -> None:
    """``as_strided`` reaches past its argument: what the program sees of the storage is guarded."""
    program = capture(lambda a, b: a.as_strided((8,), (1,)).zero_() + b.sum(), torch.ones(8)[:4], torch.ones(4))
    buffer = torch.ones(8)
    halves = buffer[:4], torch.from_numpy(buffer.numpy()[4:])
    with pytest.raises(ExecutorError, match="argument b shares memory"):
        program.signature.bind(halves, {})


def test_constants_count() -> None:
    """An argument on a closed-over tensor's memory that the program writes is refused."""
    weight = torch.zeros(4)
    signature = capture(lambda x: weight.add_(x), torch.ones(4)).signature
    signature.bind((torch.ones(4),), {})
    with pytest.raises(ExecutorError, match="argument x shares memory with c0"):
        signature.bind((weight,), {})


def test_an_object_whose_geometry_changes_is_one_argument() -> None:
    """Another argument must not be the tensor that is given another geometry."""
    signature = capture(lambda a, b: (a.unsqueeze_(0), b + 1), torch.ones(2), torch.ones(2)).signature
    x = torch.ones(2)
    signature.bind((x, x.detach()), {})
    with pytest.raises(ExecutorError, match="arguments a and b are the same tensor"):
        signature.bind((x, x), {})


def test_what_a_signature_says() -> None:
    """Names, module tensors and gradients are there for whoever calls the program."""
    module = nn.Linear(2, 2)
    signature = capture(module, torch.ones(1, 2)).signature
    assert [leaf.input for leaf in signature.leaves] == ["input"]
    assert signature.module_tensors == {"weight": "weight", "bias": "bias"}
    assert signature.requires_grad
    assert signature.rebuild([torch.ones(1)]).tolist() == [1]


def test_empty_arguments_meet_nothing() -> None:
    """Tensors without elements share no memory."""
    program = capture(lambda a, b: a.add_(1), torch.ones(0), torch.ones(0))
    program.signature.bind((torch.ones(0), torch.ones(5)[:0]), {})


def test_sizes_are_sizes() -> None:
    """A ``torch.Size`` that is passed or returned stays one."""
    program = capture(lambda x, size: (x.view(size), x.shape, size), torch.ones(4), torch.Size([2, 2]))
    view, shape, size = program.run(torch.zeros(4), torch.Size([2, 2]))
    assert (view.shape, shape, size) == ((2, 2), (4,), (2, 2)) and type(shape) is type(size) is torch.Size
    with pytest.raises(ExecutorError, match=r"expected torch\.Size"):
        program.run(torch.zeros(4), torch.Size([4, 1]))
