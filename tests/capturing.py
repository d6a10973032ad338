"""Helpers of the capture tests: a program's text without noise, and eager's answer beside the program's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from graphalias import Program
from graphalias.capture import capture


def body(program: Program) -> str:
    """Return the text of what is computed: no inputs, no locations."""
    lines = [re.sub(r"  # \S+$", "", line) for line in str(program).splitlines()]
    return "\n".join(line for line in lines if line and not line.endswith("= input()"))


def captured(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Return the body of the program a function is."""
    return body(capture(fn, *args, **kwargs))


def targets(program: Program) -> list[str]:
    """Return the operations' targets, in program order."""
    return [operation.target for operation in program.operations if operation.is_compute]


def geometries(tree: Any) -> list[Any]:
    """Return value and geometry of every tensor of a tree, and the other leaves."""
    return [
        (leaf.tolist(), leaf.shape, leaf.stride(), leaf.storage_offset()) if isinstance(leaf, torch.Tensor) else leaf
        for leaf in pytree.tree_leaves(tree)
    ]


def assert_as_eager(fn: Callable[..., Any], make: Callable[[], tuple[Any, ...]], *, seed: int = 0) -> Program:
    """Fail unless the program returns and leaves behind what eager does; capture itself touches nothing."""
    args = make()
    before = geometries(args)
    torch.manual_seed(seed)
    program = capture(fn, *args)
    assert geometries(args) == before
    assert torch.initial_seed() == seed
    eager_args, program_args = make(), make()
    torch.manual_seed(seed)
    expected = fn(*eager_args)
    torch.manual_seed(seed)
    with torch.no_grad():
        found = program.run(*program_args)
    assert geometries((found, program_args)) == geometries((expected, eager_args)), str(program)
    return program
