"""A region in functional form: one pure graph, and one write-back for each handle it writes.

PyTorch's own functionalisation and decompositions make it, so that in-place operations keep eager's meaning: the
operand's dtype, its rounding, views written through.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from graphalias.executors import eager
from graphalias.executors.eager import run_operation
from graphalias.graph import INPUT, OUTPUT, Operation, Program, Value
from graphalias.symbols import DTYPES
from graphalias.torch_private import FakeTensorMode, no_modes, quiet_fakes

Decompositions = Mapping[Any, Callable[..., Any]]


def functional_form(
    body: Program, decompositions: Decompositions, *, keeps_views: bool = False
) -> tuple[GraphModule, list[torch.Tensor]]:
    """Return the graph of a region's body, and the fake tensors it was made with.

    Parameters
    ----------
    body : Program
        Of a region node.
    decompositions : mapping
        From operators to functions.
    keeps_views : bool
        Leave views in the graph, and what the region makes in the order of its dimensions. Otherwise views are copies,
        and results row-major: a code generator may choose the strides of others.

    Returns
    -------
    GraphModule
        Takes the region's inputs; at its end ``copy_`` writes each new value back; returns what the region makes.
    list of Tensor
        Fakes of the inputs' geometry, each on memory of its own.
    """

    def run(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        names = {value.name: tensor for value, tensor in zip(body.inputs, tensors, strict=True)}
        for operation in body.operations:
            run_operation(operation, names, body.bindings, is_checked=False)
        if keeps_views:
            return tuple(names[value.name] for value in body.outputs)
        return tuple(row_major(names[value.name], value) for value in body.outputs)

    removed = "mutations" if keeps_views else "mutations_and_views"
    with no_modes(), quiet_fakes(), FakeTensorMode(), torch.no_grad():
        fakes = [empty_like_value(value) for value in body.inputs]
        graph = make_fx(torch.func.functionalize(run, remove=removed), dict(decompositions))(*fakes)
    return graph, fakes


def alone(operation: Operation) -> Program:
    """Return the program that is one operation."""
    operands = {value.name: value for value in operation.operands}
    inputs = [Operation(value.name, INPUT, results=(value,)) for value in operands.values()]
    storages = {value.storage.name for value in operands.values()}
    made = tuple(result for result in operation.results if result and result.storage.name not in storages)
    return Program([*inputs, operation.replace(after=()), Operation(OUTPUT, OUTPUT, made)])


def dims_by_stride(value: Value) -> list[int]:
    """Return a handle's dimensions from the one of the largest stride to the one of the smallest.

    >>> from graphalias import Storage
    >>> dims_by_stride(Value("x", "f32", (2, 3, 4), Storage("s"), "o", stride=(3, 1, 6)))
    [2, 0, 1]
    """
    return sorted(range(len(value.shape)), key=lambda dim: (-value.stride[dim], dim))


def row_major(tensor: torch.Tensor, value: Value) -> torch.Tensor:
    """Return what a region makes with its dimensions in the order of their strides: row-major memory, as in eager.

    Code generators choose strides of their own; row-major ones they keep. The caller permutes it back.
    """
    order = dims_by_stride(value)
    if order == sorted(order):
        return tensor
    return tensor.permute(order).clone(memory_format=torch.contiguous_format)


def is_as_eager(tensor: torch.Tensor, value: Value, stride: tuple[int, ...]) -> bool:
    """Whether a result of `row_major` is, with its dimensions back in their places, of the strides eager gives.

    Then ``as_strided_`` puts them back: what a region makes is a tensor of its own, and no view.

    >>> from graphalias import Storage
    >>> value = Value("x", "f32", (1, 2, 3), Storage("s"), "o", stride=(2, 1, 2))
    >>> is_as_eager(row_major(torch.zeros(1, 2, 3), value), value, (2, 1, 2))
    True
    """
    if tensor.stride() == stride and tuple(tensor.shape) == value.shape:
        return True
    order = dims_by_stride(value)
    moved = tensor.permute([order.index(dim) for dim in range(len(order))])
    steps = zip(value.shape, moved.stride(), stride, strict=True)
    # the stride of a dimension with one element says nothing, but can be seen
    return tensor.numel() <= 1 or all(size == 1 or step == eager for size, step, eager in steps)


def empty_like_value(value: Value) -> torch.Tensor:
    """Return a tensor of a handle's dtype, shape, stride and device, on memory of its own."""
    return torch.empty_strided(value.shape, value.stride, dtype=DTYPES[value.dtype], device=value.device)


def scratch_like(values: Sequence[Value]) -> list[torch.Tensor]:
    """Return real tensors like some handles, full of ones."""
    tensors = [empty_like_value(value) for value in values]
    for tensor in tensors:
        tensor.fill_(1)
    return tensors


def eager_strides(
    region: Operation, made: Sequence[Value], inputs: Sequence[torch.Tensor] | None = None
) -> list[tuple[int, ...]]:
    """Return the strides of what a region makes; those of dimensions of one element only kernels know.

    Parameters
    ----------
    region : Operation
    made : sequence of Value
        The results that are new.
    inputs : sequence of Tensor, optional
        Like the region's inputs; they may be written.
    """
    if any(1 in value.shape and len(value.shape) > 1 for value in made):
        with contextlib.suppress(Exception):  # what an operation thinks of these values does not matter
            tensors = scratch_like(region.body.inputs) if inputs is None else inputs
            return [tensor.stride() for tensor in eager.compile_region(region)(*tensors)]
    return [value.stride for value in made]
