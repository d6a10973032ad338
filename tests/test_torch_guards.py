"""What the guards of a call need of torch's private parts: each test says what broke when torch changes."""

from __future__ import annotations

import pytest
import torch
from torch.overrides import TorchFunctionMode

from graphalias import torch_guards as private
from graphalias.torch_private import TorchDispatchMode, flatten_plain


@pytest.mark.parametrize(
    "other",
    [
        torch.ones(4), torch.ones(1, 3), torch.ones(3, dtype=torch.float64), torch.ones(6)[::2],
        torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.ones(3), requires_grad=False),
        torch._neg_view(torch.ones(3)), torch.ones(3, device="meta"), 3,
    ],
    ids=["shape", "dims", "dtype", "stride", "requires_grad", "type", "neg", "device", "number"],
)  # fmt: skip
def test_tensor_guard_tells_tensors_apart(other: object) -> None:
    """Shape, stride, dtype, device, bits, type and requires_grad are looked at; storage offsets are not."""
    guard = private.make_tensor_guard([torch.ones(3)])
    assert guard(torch.zeros(3)) and guard(torch.ones(5)[2:])
    assert not guard(other)


def test_tensor_guard_knows_inference_tensors() -> None:
    """A tensor made in inference mode is another kind of tensor."""
    guard = private.make_tensor_guard([torch.ones(3)])
    with torch.inference_mode():
        made = torch.ones(3)
    assert not guard(made)


@pytest.mark.parametrize(
    "mode",
    [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu")],
    ids=["no_grad", "inference", "autocast"],
)
def test_mode_guard_tells_modes_apart(mode) -> None:
    """Grad, inference and autocast mode are looked at."""
    guard = private.make_mode_guard()
    with mode():
        assert not guard()
    assert guard()


def test_mode_guard_knows_the_default_dtype() -> None:
    """The default dtype is looked at."""
    guard = private.make_mode_guard()
    torch.set_default_dtype(torch.float64)
    try:
        assert not guard()
    finally:
        torch.set_default_dtype(torch.float32)
    assert guard()


@pytest.mark.parametrize("mode", [TorchFunctionMode, TorchDispatchMode], ids=["function", "dispatch"])
def test_modes_are_counted(mode) -> None:
    """A function mode or a dispatch mode that is on is seen, and seen to be gone."""
    assert not any(is_on() for is_on in private.MODE_COUNTS)
    with mode():
        assert any(is_on() for is_on in private.MODE_COUNTS)
    assert not any(is_on() for is_on in private.MODE_COUNTS)


def test_structures_are_taken_apart() -> None:
    """The structures inside a structure come in order, leaves are told."""
    _, spec = flatten_plain(((1, [2, 3]), {}))
    positional, keywords = private.children_of(spec)
    leaf, pair = private.children_of(positional)
    assert private.is_leaf_spec(leaf) and not private.is_leaf_spec(pair)
    assert len(private.children_of(pair)) == 2 and private.children_of(keywords) == []


def test_dicts_of_a_module() -> None:
    """They are the very dicts that attributes are looked up in."""
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(2))
    for name in ("0.weight", "0.running_mean"):
        held, key = private.module_dict(module, name)
        assert held[key] is module.get_parameter(name) if name == "0.weight" else held[key] is module.get_buffer(name)
        assert any(held is other for other in private.module_dicts(module[0]))


def test_global_hooks_are_seen() -> None:
    """A hook of every module appears in one of the dicts, and goes with its handle."""
    assert not any(private.global_hooks())
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert any(private.global_hooks())
    handle.remove()
    assert not any(private.global_hooks())
