"""Executors: what they can fuse, and regions as callables.

``eager`` is always there: one ATen call an operation, the reference. ``inductor`` compiles regions with PyTorch's own
code generator, ``nvfuser`` with NVIDIA's, on NVIDIA GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from graphalias.errors import ExecutorError
from graphalias.graph import Operation, Program


class Executor(Protocol):
    """What an executor offers: a module with these functions."""

    def is_available(self) -> bool:
        """Whether it works on this machine."""

    def why_not_fused(self, operation: Operation) -> str | None:
        """Return why an operation can't be part of a region; None where it can."""

    def gains_alone(self, operation: Operation) -> bool:
        """Whether an operation is worth a region of its own."""

    def compile_region(self, region: Operation) -> Callable[..., Any]:
        """Return a function of the region's input tensors that writes what it writes and returns what it makes."""


def get_executor(name: str, program: Program | None = None) -> Executor:
    """Return the executor of a name.

    Parameters
    ----------
    name : str
        ``auto`` is the best one that works here: nvfuser for a program on NVIDIA GPUs, else inductor.
    program : Program, optional
        What is to be run.

    Raises
    ------
    ExecutorError
        If there is none of that name, or it does not work here.
    """
    from graphalias.executors import eager, inductor, nvfuser

    executors = {
        "nvfuser": cast(Executor, nvfuser), "inductor": cast(Executor, inductor), "eager": cast(Executor, eager)
    }  # fmt: skip
    if name == "auto":
        usable = [executor for key, executor in executors.items() if key != "nvfuser" or _is_on_gpu(program)]
        return next(executor for executor in usable if executor.is_available())
    if name not in executors:
        raise ExecutorError(f"no executor {name!r}", hint=f"use one of {', '.join(executors)}, or auto")
    if name == "nvfuser":
        nvfuser.load()  # says why it can't
    if not executors[name].is_available():
        raise ExecutorError(f"executor {name!r} does not work here", hint="use auto or eager")
    return executors[name]


def _is_on_gpu(program: Program | None) -> bool:
    values = (value for op in (program.operations if program is not None else ()) for value in op.results if value)
    return any(value.device.startswith("cuda") for value in values)


def name_of(executor: Executor) -> str:
    """Return an executor's name: that of its module.

    >>> name_of(get_executor("eager"))
    'eager'
    """
    return str(getattr(executor, "__name__", executor)).rpartition(".")[2]
