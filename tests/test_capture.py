"""Capture: what is recorded, and the traps of issue 2, item 2."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from capturing import assert_as_eager, body, captured, geometries, targets
from graphalias import CaptureError
from graphalias.capture import capture


def test_in_place_operations_and_views_stay() -> None:
    """Nothing is made functional: the in-place result is the operand's object, a view its storage."""

    def step(x: torch.Tensor) -> torch.Tensor:
        v = x.t()
        v.mul_(2)
        return v

    assert captured(step, torch.ones(2, 3)) == (
        "%t: f32[3,2] stride(1,3) @s0 obj1 = aten.t.default(%x)\n"
        "%mul_: f32[3,2] stride(1,3) @s0 obj1 = aten.mul_.Tensor(%t!, 2) reads(%t)\n"
        "output(%mul_)"
    )


def test_every_operation_knows_the_line() -> None:
    """The location is the user's, not torch's: ``torch.nn.functional.softmax`` is Python inside torch."""
    program = capture(lambda x: torch.nn.functional.softmax(x, 0), torch.ones(2))
    line = test_every_operation_knows_the_line.__code__.co_firstlineno + 2
    assert program.operation("_softmax").location == f"{__file__}:{line}"


def test_closed_over_tensors_are_the_very_tensors_and_untouched() -> None:
    """Trap a and b: one constant for one object, replaced before anything runs on it; running mutates it."""
    weight = torch.ones(3)
    program = capture(lambda x: (weight.add_(x), weight * weight.shape[0]), torch.ones(3))
    assert weight.tolist() == [1, 1, 1]
    assert weight._version == 0
    assert list(program.bindings) == ["c0"]
    assert program.bindings["c0"] is weight
    assert program.constants[0].storage.lifetime == "constant"
    assert program.run(torch.ones(3))[0] is weight
    assert weight.tolist() == [2, 2, 2]


def test_a_constant_that_shares_an_inputs_memory() -> None:
    """A closed-over view of an argument lies on the input's storage, which is the input's."""
    x = torch.zeros(4)
    view = x[1:]
    program = capture(lambda x: view.add_(1), x)
    (constant,) = program.constants
    assert (constant.storage, constant.offset) == (program.inputs[0].storage, 1)
    assert constant.storage.lifetime == "input"


def test_identity_of_closed_over_tensors_holds_inside() -> None:
    """``w.add_(1) is w`` is true for a closed-over w, as in eager."""
    w = torch.ones(3)
    assert capture(lambda: w.add_(1) is w).outputs == (True,)


def test_the_same_tensor_twice_in_a_pure_program() -> None:
    """Trap c: two inputs, so that the program also fits different tensors."""
    x = torch.ones(3)
    program = capture(lambda a, b: a + b, x, x)
    assert [value.name for value in program.inputs] == ["a", "b"]
    assert program.inputs[0].object != program.inputs[1].object
    assert program.run(torch.ones(3), torch.zeros(3)).tolist() == [1, 1, 1]


@pytest.mark.parametrize("write", [lambda a: a.add_(1), lambda a: a.unsqueeze_(0), lambda a: a.view(-1).mul_(3)])
def test_the_same_tensor_twice_where_it_is_written(write) -> None:
    """Trap c: one input where bytes or geometry are written."""

    def make() -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.ones(3)
        return x, x

    def step(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        write(a)
        return b * 2

    program = assert_as_eager(step, make)
    assert [value.name for value in program.inputs] == ["a"]


def test_only_what_is_written_is_merged() -> None:
    """Of two repeated arguments the one that is only read stays two inputs."""
    x, y = torch.ones(3), torch.ones(3)
    program = capture(lambda a, b, c, d: (a.add_(1), b + c + d), x, x, y, y)
    assert [value.name for value in program.inputs] == ["a", "c", "d"]


def test_random_state_is_kept() -> None:
    """Trap d: capturing draws nothing; the program draws eager's numbers."""
    assert_as_eager(
        lambda x: torch.nn.functional.dropout(x, 0.5, True, True).add_(torch.rand(3)), lambda: (torch.ones(3),)
    )


def test_data_assignment() -> None:
    """Trap e: ``p.data = q`` changes the object's geometry; the storage is q's from then on."""

    def step(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        p.data = q
        p.add_(1)
        return q * 2

    assert body(assert_as_eager(step, lambda: (torch.zeros(2), torch.ones(3)))) == (
        "%set_data: f32[3] @s1 obj0 = graphalias.set_data(%p~, %q)\n"
        "%add_: f32[3] @s1 obj0 = aten.add_.Tensor(%set_data!, 1) reads(%set_data)\n"
        "%mul: f32[3] @s2 obj2 = aten.mul.Tensor(%q, 2) reads(%q)\n"
        "output(%mul)"
    )


def test_data_assignment_of_a_literal_forgets_its_value() -> None:
    """A literal whose storage became another's is not read as the number it was."""

    def step(x: torch.Tensor) -> int:
        literal = torch.tensor([1])
        x.data = literal
        x.add_(1)
        return literal.item()

    with pytest.raises(CaptureError, match="depends on the values"):
        capture(step, torch.tensor([5]))


@pytest.mark.parametrize("alias", [lambda t: t, lambda t: t.data, lambda t: t.detach(), lambda t: t.view(1)])
def test_literals_are_known_until_written(alias) -> None:
    """A literal's number is Python's; after a write through any alias it is a value of a tensor."""

    def step(x: torch.Tensor, is_written: bool) -> tuple[torch.Tensor, int]:
        literal = torch.tensor(3)
        if is_written:
            alias(literal).add_(x)
        return x * 2, literal.item()

    assert capture(step, torch.tensor(5), False).outputs[1] == 3
    with pytest.raises(CaptureError, match="depends on the values"):
        capture(step, torch.tensor(5), True)


def test_conjugate_and_negative_views() -> None:
    """Trap h: bits tell a conj view from its base; storage and geometry are the same."""

    def step(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return z.conj(), z.conj().imag

    conj, neg = assert_as_eager(step, lambda: (torch.complex(torch.ones(2), torch.ones(2)),)).outputs
    assert (conj.conj, conj.neg, conj.storage.name, conj.shape) == (True, False, "s0", (2,))
    assert (neg.conj, neg.neg, neg.storage.name, neg.offset) == (False, True, "s0", 1)


def test_conjugate_inputs() -> None:
    """An argument with the conj bit keeps it."""
    z = torch.complex(torch.ones(2), torch.ones(2))
    program = capture(lambda a, b: a.mul_(b), z, z.conj())
    assert [value.conj for value in program.inputs] == [False, True]
    assert program.inputs[0].storage == program.inputs[1].storage


def test_arguments_that_share_memory() -> None:
    """Slices, transposes, other dtypes and numpy's views of one memory are one storage."""
    base = torch.zeros(4, 4)
    array = np.zeros(8, dtype=np.float32)
    args = (base, base[1], base.t(), base.view(torch.int32), torch.from_numpy(array), torch.from_numpy(array[3:]))
    program = capture(lambda *xs: xs[0].add_(1), *args)
    assert [value.storage.name for value in program.inputs] == ["s0"] * 4 + ["s1"] * 2
    assert [value.offset for value in program.inputs] == [0, 4, 0, 0, 0, 3]
    assert [value.name for value in program.inputs] == [f"xs.{i}" for i in range(6)]


def test_out_arguments() -> None:
    """``out=`` is written and not read; another size changes its geometry too."""
    assert captured(lambda x, o: torch.neg(x, out=o), torch.ones(2), torch.ones(2)).splitlines()[0] == (
        "%neg: f32[2] @s1 obj1 = aten.neg.out(%x, out=%o!) reads(%x)"
    )
    program = assert_as_eager(lambda x, o: torch.neg(x, out=o), lambda: (torch.ones(2), torch.empty(0)))
    assert "aten.neg.out(%x, out=%o!~)" in body(program)


def test_factories_are_one_operation() -> None:
    """The detach inside a factory's binding is not the program's; one the user writes is."""
    assert targets(capture(lambda x: torch.ones(2) + torch.rand_like(x), torch.ones(2))) == [
        "aten.ones.default", "aten.rand_like.default", "aten.add.Tensor",
    ]  # fmt: skip
    assert targets(capture(lambda: torch.ones(2).detach())) == ["aten.ones.default", "aten.detach.default"]


def test_literals_are_fresh_each_time() -> None:
    """``torch.tensor([...])`` inside the function is a new tensor in every run."""

    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.tensor([1.0, 2.0]).add_(x)

    program = assert_as_eager(step, lambda: (torch.ones(2),))
    assert program.run(torch.ones(2)).tolist() == program.run(torch.ones(2)).tolist() == [2, 3]
    assert targets(program) == ["aten.lift_fresh_copy.default", "aten.add_.Tensor"]


def test_arrays_are_shared() -> None:
    """``from_numpy`` inside the function shares the array: a later change of it is seen."""
    array = np.ones(2, dtype=np.float32)
    program = capture(lambda x: x + torch.from_numpy(array), torch.ones(2))
    array[:] = 5
    assert program.run(torch.ones(2)).tolist() == [6, 6]


def test_states_are_handles() -> None:
    """Random generators and the outside world are inputs without bytes; each use makes a newer handle."""
    generator = torch.Generator()

    def step(x: torch.Tensor) -> torch.Tensor:
        x.normal_(generator=generator).bernoulli_(generator=torch.default_generator)
        torch._assert_async(x.sum() >= 0)
        return torch.rand(2)

    program = capture(step, torch.ones(2))
    assert [(value.name, value.storage.name) for value in program.inputs] == [
        ("x", "s0"), ("rng_generator_1", "rng:generator_1"), ("rng_cpu", "rng:cpu"), ("world", "world"),
    ]  # fmt: skip
    generator.manual_seed(7)
    assert torch.equal(program.bindings["opaque:generator_1"].get_state(), generator.get_state())
    assert [state.name for state in program.operation("rand").states] == ["bernoulli_.rng_cpu"]
    assert program.operation("_assert_async").states[0].name == "world"


def test_generators_without_a_shape_rule() -> None:
    """``exponential_(generator=...)`` has no shape rule for fakes; it is recorded all the same."""
    generator = torch.Generator()
    program = capture(lambda x: x.exponential_(generator=generator), torch.ones(2))
    assert targets(program) == ["aten.exponential_.default"]


def test_inference_mode() -> None:
    """There composite operators reach the recorder whole: they are taken apart."""
    with torch.inference_mode():
        assert targets(capture(lambda x: torch.nn.functional.linear(x, x).relu_(), torch.ones(2, 2))) == [
            "aten.t.default", "aten.mm.default", "aten.relu_.default",
        ]  # fmt: skip


def test_views_autograd_makes_for_itself_are_left_out() -> None:
    """Saving a result for the backward pass makes a detach that nothing uses."""
    x = torch.ones(2, requires_grad=True)
    program = capture(lambda x: x.exp().sin(), x)
    assert targets(program) == ["aten.exp.default", "aten.sin.default"]
    assert program.signature.requires_grad
    assert not capture(lambda x: x.exp(), torch.ones(2)).signature.requires_grad


def test_transforms_of_torch_func() -> None:
    """``vmap`` and ``grad`` inside the function are recorded as the operations they come to."""
    x = torch.rand(3, 2)
    for fn in (torch.vmap(lambda row: row.sin().sum()), torch.func.grad(lambda x: x.sin().sum())):
        assert torch.equal(capture(fn, x).run(x), fn(x))


def test_python_attributes_of_tensors() -> None:
    """Attributes the user gave a tensor are there."""
    x = torch.ones(2)
    x.scale = 3
    assert "aten.mul.Tensor(%x, 3)" in captured(lambda x: x * x.scale, x)


def test_dataclass_arguments() -> None:
    """Tensors hidden in an argument torch does not look into are constants: the very tensors."""

    @dataclasses.dataclass
    class Config:
        scale: float
        bias: torch.Tensor

    config = Config(2.0, torch.ones(2))
    program = capture(lambda x, config: config.bias.add_(x, alpha=config.scale), torch.ones(2), config)
    assert config.bias.tolist() == [1, 1]
    assert program.bindings["c0"] is config.bias
    program.run(torch.ones(2), config)
    assert config.bias.tolist() == [3, 3]


def test_structures_come_back() -> None:
    """Dicts, tuples, None and plain values are returned as the function returned them."""
    program = capture(lambda d, n: {"y": (d["x"] + n, None, n, "text")}, {"x": torch.ones(2)}, 3)
    found = program.run({"x": torch.zeros(2)}, 3)
    assert geometries(found) == geometries({"y": (torch.full((2,), 3.0), None, 3, "text")})
    assert [value.name for value in program.inputs] == ["d.x"]


def test_programs_are_deterministic() -> None:
    """Another PYTHONHASHSEED gives the same text."""
    code = (
        "import torch\n"
        "from graphalias.capture import capture\n"
        "net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.Dropout())\n"
        "print(capture(lambda d: {k: net(v) for k, v in d.items()}, {'b': torch.ones(2, 2), 'a': torch.ones(2, 2)}))"
    )
    texts = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert texts[0] == texts[1] != ""


def test_custom_operators() -> None:
    """A custom operator is believed by its schema: what it mutates is written, its result is fresh."""
    operator = torch.library.custom_op("graphalias_tests::scale_into", _scale_into, mutates_args={"out"})
    operator.register_fake(lambda x, out: x.new_empty(x.shape))
    program = assert_as_eager(lambda x, out: (operator(x, out[0]), out), lambda: (torch.ones(2), torch.ones(2, 2)))
    assert "graphalias_tests.scale_into.default(%x, %select!) reads(%x, %select)" in body(program)


def _scale_into(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    out.mul_(x)
    return x * 2
