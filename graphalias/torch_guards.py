"""The private APIs of torch that the guards of a call need, behind a small function each.

When a new torch moves one of them, this module and ``tests/test_torch_guards.py`` are where it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

#: Each is true where a function mode or a dispatch mode is on, as under `torch.export`, or torch.compile is tracing.
#: Why private: modes have no public count.
MODE_COUNTS: tuple[Callable[[], Any], ...] = (
    torch.compiler.is_dynamo_compiling,  # first: it looks no further
    torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack,
)  # fmt: skip


def make_mode_guard() -> Callable[[], bool]:
    """Return a check that grad, inference and autocast mode, default dtype and the like are as they are now.

    Why private: the same check in Python takes ten times as long.
    """
    from torch._C._dynamo.guards import GlobalStateGuard

    check: Callable[[], bool] = GlobalStateGuard().check
    return check


def make_tensor_guard(tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
    """Return a check of tensors' type, dtype, device, sizes, strides, bits and requires_grad.

    Why private: the same check in Python takes ten times as long. Storage offsets and sharing it does not look at.
    """
    from torch._C._dynamo.guards import TensorGuards

    sizes: list[Any] = [list(tensor.shape) for tensor in tensors]
    strides: list[Any] = [list(tensor.stride()) for tensor in tensors]
    check: Callable[..., bool] = TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return check


def is_leaf_spec(spec: Any) -> bool:
    """Whether a structure is one leaf. Why private: see `pytree`."""
    leaf: bool = spec.is_leaf()
    return leaf


def children_of(spec: Any) -> list[Any]:
    """Return the structures inside a structure. Why private: their accessor was renamed between versions."""
    return list(spec.children() if hasattr(spec, "children") else spec.children_specs)


def global_hooks() -> tuple[dict[int, Any], ...]:
    """Return the hooks that run before and after every module's forward.

    Why private: there are public ways to register them, and none to ask for them.
    """
    module = torch.nn.modules.module
    return module._global_forward_pre_hooks, module._global_forward_hooks


def module_dicts(module: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the dicts that hold a module's own parameters and buffers. Why private: see `module_dict`."""
    return module._parameters, module._buffers


def module_dict(module: torch.nn.Module, qualified_name: str) -> tuple[dict[str, Any], str]:
    """Return the dict that holds a module's parameter or buffer, and its key there.

    Why private: looking it up through the module takes ten times as long.
    """
    path, _, name = qualified_name.rpartition(".")
    owner = module.get_submodule(path)
    return (owner._parameters if name in owner._parameters else owner._buffers), name
