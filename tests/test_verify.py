"""verify finds what is wrong, says where, and leaves everything as it was."""

from __future__ import annotations

import pytest
import torch

import graphalias
from graphalias import CaptureError, VerificationError, capture, insert_update_aliases, parse, verify
from graphalias.graph import Operation, Program
from graphalias.oracle import Scene, differences
from graphalias.orders import topological_orders


def view_written(x: torch.Tensor) -> torch.Tensor:
    """Read through a view what was written through its base."""
    row = x[0]
    x.mul_(2)
    return row + 1


def test_wrong_order_is_blamed() -> None:
    """The error names the first operation that differs, the missing dependency, the line, and what to do."""
    x = torch.ones(2, 2)
    with pytest.raises(VerificationError) as error:
        verify(capture(view_written, x), x)
    text = str(error.value)
    assert "the first operation that differs: add" in text
    assert "the missing dependency: RAW: %mul_ (test_verify.py:" in text and "insert_update_aliases" in text
    assert error.value.node == "add" and error.value.location.startswith(__file__)
    assert torch.equal(x, torch.ones(2, 2))


def test_views_are_not_blamed() -> None:
    """The first operation that differs is one that read or wrote something wrong, not a view made after the write."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        head = x[:2]
        before = head * 10
        x.add_(1)
        return before, head * 10

    x = torch.ones(4)
    with pytest.raises(VerificationError, match="the first operation that differs: mul"):
        verify(capture(program, x), x)


def test_wrong_effects_are_blamed() -> None:
    """An operation that states less than it does is found out, and the hint says where to look."""
    x = torch.ones(2, 2)
    program = capture(view_written, x)
    lies = [op.replace(writes=(), reads=()) if op.name == "mul_" else op for op in program.operations]
    with pytest.raises(VerificationError, match="check what its operations say they read and write"):
        verify(insert_update_aliases(program.replace_operations(lies)), x)


@pytest.mark.parametrize("kind", ["RAW", "WAR", "WAW", "output"])
def test_each_kind_of_edge_is_needed(kind: str) -> None:
    """Without the edges of one kind some order gives something else: no edge is there for nothing."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = x[:3], x[2:]
        before = b * 1
        a.mul_(2)
        torch.full((3,), 7.0, out=b[:3])
        x[5:].zero_()
        return before, a * 1

    x = torch.ones(6)
    right = insert_update_aliases(capture(program, x))
    verify(right, x)

    def without(operation: Operation) -> Operation:
        if kind == "output":
            return operation.replace(after=()) if operation.target == "output" else operation
        return operation.replace(after=tuple(after for after in operation.after if after.reason != kind))

    broken = right.replace_operations(without(operation) for operation in right.operations)
    if kind == "output":  # an interpreter runs everything before it returns; a dead operation would not be
        with pytest.raises(graphalias.HazardError):
            graphalias.eliminate_dead_operations(broken)
    else:
        with pytest.raises(VerificationError):
            verify(broken, x, orders=50)


def test_report() -> None:
    """The report says what was tried; closed-over tensors, modules and random states are put back."""
    total, module = torch.zeros(3), torch.nn.BatchNorm1d(3)
    state = torch.get_rng_state()

    def step(x: torch.Tensor) -> torch.Tensor:
        total.add_(1)
        return torch.nn.functional.dropout(module(x) + total, 0.5, True)

    with torch.no_grad():
        report = verify(step, torch.ones(2, 3), orders=5)
        module_report = verify(module, torch.ones(2, 3), orders=5)
    assert (report.orders, report.executor, report.error, report.undetermined) == (8, "eager", None, ())
    assert report.hazards == len(graphalias.find_hazards(capture(step, torch.ones(2, 3))))
    assert "8 topological orders" in str(module_report)
    assert torch.equal(total, torch.zeros(3)) and module.num_batches_tracked == 0
    assert torch.equal(torch.get_rng_state(), state)


def test_errors_are_compared() -> None:
    """Where eager raises at run time every order must; where it refuses the program, capture does."""
    index = torch.tensor([9])
    report = verify(lambda x, i: x.add_(1).index_select(0, i), torch.ones(2), index)
    assert report.error == "IndexError" and "raise as eager PyTorch does (IndexError)" in str(report)
    with pytest.raises(CaptureError, match="eager PyTorch refuses"):
        verify(lambda x: x.expand(2, 2).add_(1), torch.ones(1, 2))


def test_uninitialised_memory_is_not_compared() -> None:
    """What two runs of eager PyTorch do not agree on themselves is said not to be compared."""
    runs = iter(range(100))
    program = parse("""
    %full: f32[2] @s0 obj0 = aten.full.default([2], 1.0)
    output(%full)
    """)

    class Flaky(Program):
        def run(self, *args, **kwargs):
            return (torch.full((2,), float(next(runs))),)

    report = verify(Flaky(program.operations), orders=2)
    assert report.undetermined == ("result 0 (contents)",)


def test_scene_puts_back_geometry_and_storage() -> None:
    """Bytes, shape, stride, offset, storage and size of every tensor are put back after a run."""
    x, y = torch.arange(6.0).view(2, 3), torch.ones(3)
    scene = Scene({"x": x, "y": y})
    pointers = (x.data_ptr(), y.data_ptr())

    def ruin() -> None:
        x.t_()
        x.resize_(100).zero_()
        y.set_(torch.zeros(2))

    seen = scene.watch(ruin)
    assert (tuple(x.shape), tuple(y.shape)) == ((2, 3), (3,)) and torch.equal(x, torch.arange(6.0).view(2, 3))
    assert y.data_ptr() == pointers[1]
    assert any("x (geometry)" in line for line in differences(scene.watch(lambda: None), seen))


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x * 1, lambda x: x.view(-1), lambda x: x[:1], lambda x: (x,), lambda x: x.add(1), lambda x: 1,
    ],
    ids=["object", "geometry", "rows", "structure", "values", "type"],
)  # fmt: skip
def test_differences_see(other) -> None:
    """Identity, geometry, structure, values and types are told apart."""
    x = torch.ones(2, 1)
    scene = Scene({"x": x})
    assert differences(scene.watch(lambda: x), scene.watch(lambda: other(x)))
    assert not differences(scene.watch(lambda: x), scene.watch(lambda: x))


def test_sharing_between_results_is_seen() -> None:
    """Two results on one storage are not two results on two, and a view of the argument is no copy."""
    x = torch.ones(4)
    scene = Scene({"x": x})
    shared = scene.watch(lambda: (lambda y: (y[:2], y[2:]))(x * 1))
    apart = scene.watch(lambda: (torch.ones(4)[:2], torch.ones(4)[2:]))
    assert differences(shared, apart)
    assert differences(scene.watch(lambda: x[:2]), scene.watch(lambda: x[:2].clone()))


def test_orders_are_topological_and_varied() -> None:
    """Every order is one; the first takes the latest ready node; random ones differ; the same seed gives the same."""
    program = insert_update_aliases(capture(lambda x: [x[i] * 2 for i in range(6)], torch.ones(6, 2)))
    orders = list(topological_orders(program, 10, seed=1))
    for order in orders:
        program.run(torch.ones(6, 2), order=order)
    assert len({tuple(order) for order in orders}) > 10
    assert orders == list(topological_orders(program, 10, seed=1))
    assert orders[3:] != list(topological_orders(program, 10, seed=2))[3:]


def test_results_nobody_uses() -> None:
    """A shape rule that is wrong about a result matters only where the result is used."""

    @torch.library.custom_op("graphalias_test::two", mutates_args=())
    def two(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, x.new_ones(3)

    @two.register_fake
    def _(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.empty_like(x), x.new_empty(2)

    assert verify(lambda x: two(x)[0], torch.ones(2)).error is None
    with pytest.raises(VerificationError, match=r"two\.default returned torch\.float32 \[3\]"):
        verify(lambda x: two(x)[1] * 2, torch.ones(2))
