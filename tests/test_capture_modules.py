"""Capture of modules: parameters and buffers are inputs, read again at each call."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from capturing import assert_as_eager, targets
from graphalias import CaptureError, ExecutorError
from graphalias.capture import capture


class Block(nn.Module):
    """A layer, a BatchNorm and an in-place activation."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x)).relu_()


def test_parameters_and_buffers_are_named_inputs() -> None:
    """Their mutation is seen: BatchNorm in training writes its statistics, which no schema says."""
    program = capture(Block(), torch.ones(2, 3))
    assert [value.name for value in program.inputs] == [
        "x", "linear.weight", "linear.bias", "norm.weight", "norm.bias",
        "norm.running_mean", "norm.running_var", "norm.num_batches_tracked",
    ]  # fmt: skip
    written = [value.name for op in program.operations for value in op.written]
    assert written == ["norm.num_batches_tracked", "norm.running_mean", "norm.running_var", "native_batch_norm.0"]


def test_a_module_runs_as_in_eager() -> None:
    """Values, statistics and counters are eager's."""
    module = Block()
    other = copy.deepcopy(module)
    program = capture(module, torch.rand(2, 3))
    x = torch.rand(2, 3)
    with torch.no_grad():
        assert torch.equal(program.run(x), other(x))
    assert all(map(torch.equal, module.state_dict().values(), other.state_dict().values()))
    assert module.norm.num_batches_tracked == 1


def test_the_modules_tensors_are_read_again() -> None:
    """A parameter that was replaced is the one the next call uses; a refused call touches nothing."""
    module = nn.Linear(2, 1, bias=False)
    program = capture(module, torch.ones(1, 2))
    module.weight = nn.Parameter(torch.full((1, 2), 3.0))
    assert program.run(torch.ones(1, 2)).tolist() == [[6]]
    module.weight = nn.Parameter(torch.ones(1, 3))
    with pytest.raises(ExecutorError, match=r"weight does not fit the program: shape: expected \(1, 2\)"):
        program.run(torch.ones(1, 2))


def test_tied_weights_are_one_input() -> None:
    """The same parameter under two names is one object."""
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    module[1].weight = module[0].weight
    assert [value.name for value in capture(module, torch.ones(1, 2)).inputs] == [
        "input",
        "_0.weight",
    ]


def test_a_bound_method_of_a_module() -> None:
    """Its module's tensors are inputs as well."""
    assert "linear.weight" in [value.name for value in capture(Block().forward, torch.ones(2, 3)).inputs]


def test_a_module_in_a_closure_is_constants() -> None:
    """Met through a closure its tensors are the very tensors."""
    block = Block()
    program = capture(lambda x: block(x), torch.ones(2, 3))
    assert any(tensor is block.linear.weight for tensor in program.bindings.values())
    assert int(block.norm.num_batches_tracked) == 0


def test_graph_modules_and_exported_programs() -> None:
    """An ``fx.GraphModule`` and a ``torch.export.ExportedProgram`` come to the operations of the module."""
    module = Block().eval()
    x = torch.ones(2, 3)
    expected = targets(capture(module, x))
    assert targets(capture(torch.fx.symbolic_trace(module), x)) == expected
    exported = capture(torch.export.export(module, (x,)), x)
    assert targets(exported) == expected
    assert "linear.weight" in [value.name for value in exported.inputs]


def test_a_parameter_written_without_grad() -> None:
    """An optimizer's step on a parameter is its mutation; in grad mode eager refuses it, so capture does."""
    weight = nn.Parameter(torch.ones(2))

    def step(weight: torch.Tensor, grad: torch.Tensor) -> None:
        with torch.no_grad():
            weight.sub_(grad)

    assert_as_eager(step, lambda: (nn.Parameter(torch.ones(2)), torch.ones(2)))
    with pytest.raises(CaptureError, match=r"eager PyTorch refuses this.*leaf Variable"):
        capture(lambda w: w.add_(1), weight)


MODULES = (
    nn.LSTM(2, 3),
    nn.GRU(2, 3, 2, dropout=0.5),
    nn.MultiheadAttention(2, 1),
    nn.InstanceNorm1d(2, track_running_stats=True),
)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: type(module).__name__)
def test_modules_of_torch(module: nn.Module) -> None:
    """Whole modules of torch run as in eager."""
    x = torch.rand(4, 2, 2)
    args = (x, x, x) if isinstance(module, nn.MultiheadAttention) else (x,)
    program = capture(module, *args)
    torch.manual_seed(0)
    with torch.no_grad():  # where gradients are recorded oneDNN's kernels may round otherwise
        found = torch.utils._pytree.tree_leaves(program.run(*args))
        torch.manual_seed(0)
        expected = torch.utils._pytree.tree_leaves(module(*args))
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)
