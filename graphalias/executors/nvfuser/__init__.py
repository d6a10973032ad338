"""Regions through NVIDIA's nvFuser: one fusion definition a region, writes of inputs fused where that is safe.

nvFuser is imported when this executor is asked for, and not before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import torch

from graphalias.errors import ExecutorError
from graphalias.executors.nvfuser.builder import DTYPES
from graphalias.executors.nvfuser.calling import FusedRegion
from graphalias.executors.nvfuser.definition import define, first_line
from graphalias.executors.nvfuser.form import form_of
from graphalias.executors.nvfuser.loading import load, why_unavailable
from graphalias.executors.nvfuser.outside import count_operations, why_not_inside, why_outside
from graphalias.graph import Operation
from graphalias.torch_private import no_modes

__all__ = [
    "DTYPES",
    "FusedRegion",
    "compile_region",
    "gains_alone",
    "is_available",
    "load",
    "run_definition",
    "size_of",
    "why_not_fused",
    "why_unavailable",
]  # fmt: skip

logger = logging.getLogger("graphalias")

#: Whether matrix products are part of regions. nvFuser calls ATen for most, or takes long to compile its own.
fuse_products = False

#: nvFuser operations of one region at most: its first execution takes 0.3 s with one, 3.4 s with 200, 100 s with 1,000.
SIZE_CAP = 150

#: Regions without an edge between them gain nothing in one fusion: each of its outputs would be a kernel.
TILE_CAP = 1

#: Views at the edges stay outside: a fusion elementwise over one shape is one kernel, whatever it writes.
TAKES_VIEWS = False

#: From how many nvFuser operations on ATen takes several kernels.
OF_SEVERAL_KERNELS = 10

_lock = threading.RLock()  # a definition is made through state that nvFuser keeps


def is_available() -> bool:
    """Whether nvFuser can be loaded here. Definitions need no GPU."""
    return why_unavailable() is None


def why_not_fused(operation: Operation) -> str | None:
    """Return why an operation can't be part of a region; None where it can."""
    return why_outside(operation, fuse_products)


def why_not_viewed(operation: Operation) -> str | None:
    """Return why a view can't be made inside a region; None where it can."""
    return why_not_inside(operation)


def gains_alone(operation: Operation) -> bool:
    """Return whether an operation is worth a region of its own: one that normalises and updates statistics.

    ATen takes several kernels for it. For others it has one.
    """
    return bool(operation.writes) and why_not_fused(operation) is None and size_of(operation) >= OF_SEVERAL_KERNELS


def size_of(operation: Operation) -> int:
    """Return how many nvFuser operations an operation becomes, about."""
    return count_operations(operation)


def run_definition(definition: Any, inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Run a fusion on the device: the one place where it is reached.

    Parameters
    ----------
    definition : nvfuser_direct.FusionDefinition
    inputs : sequence of Tensor
        In the order of the fusion's inputs.

    Returns
    -------
    sequence of Tensor
        The visible outputs.

    Raises
    ------
    ExecutorError
        If a tensor is on another device than a GPU, or nvFuser can't run the fusion.
    """
    for tensor in inputs:
        if not tensor.is_cuda:
            raise ExecutorError(
                f"executor nvfuser runs on NVIDIA GPUs: expected CUDA tensors, found one on {tensor.device}",
                hint="move the tensors to a GPU, or use executor inductor or auto",
            )
    try:
        return definition.execute(list(inputs))
    except Exception as error:
        raise ExecutorError(f"nvFuser can't run the fusion: {first_line(error)}") from error


def _run(definition: Any, inputs: list[torch.Tensor]) -> Sequence[torch.Tensor]:
    return run_definition(definition, inputs)  # looked up at each call, so that another can stand in its place


def compile_region(region: Operation) -> FusedRegion:
    """Return a region as a function of its inputs that returns what it makes, and writes what it writes.

    Raises
    ------
    ExecutorError
        If nvFuser refuses the definition.
    """
    nvfuser = load()
    with _lock, no_modes(), torch.no_grad():
        try:
            form = form_of(region.body)
            return FusedRegion(region, define(nvfuser, region, form), _run)
        except ExecutorError:
            raise
        except Exception as error:
            raise ExecutorError(
                f"nvFuser can't take {region.name}: {type(error).__name__}: {first_line(error)}\n{region.body}",
                node=region.name, location=region.location,
            ) from error  # fmt: skip
