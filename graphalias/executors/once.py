"""Regions compiled once: those that differ in names only share what an executor made of the first."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from graphalias.canonical import canonical_text
from graphalias.errors import ExecutorError
from graphalias.executors import Executor, eager
from graphalias.graph import Operation

logger = logging.getLogger("graphalias")
_lock = threading.Lock()
_compiled: dict[Any, Callable[..., Any]] = {}
_failed: dict[Any, ExecutorError] = {}


@dataclass(frozen=True)
class LoweredRegion:
    """A fusion region and the function an executor made of it, for a look at both.

    Parameters
    ----------
    operation : Operation
        The region's node.
    run : callable
        Takes the region's inputs.
    """

    operation: Operation
    run: Callable[..., Any]

    @property
    def name(self) -> str:
        """The name of the region's node."""
        return self.operation.name

    @property
    def definition(self) -> str:
        """The Python text of the fusion, as nvFuser prints it."""
        return str(self._fusion.definition)

    @property
    def ir(self) -> str:
        """The fusion in nvFuser's own notation."""
        return str(self._fusion.ir)

    @property
    def repro(self) -> str:
        """A script that runs the fusion alone."""
        return str(self._fusion.repro)

    @property
    def fusion_definition(self) -> Any:
        """The real ``FusionDefinition``."""
        return self._fusion.fusion_definition

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What the fusion takes, as the region's own handles."""
        return tuple(self.operation.body.inputs[i] for i in self._fusion.arguments)

    @property
    def writes(self) -> tuple[Any, ...]:
        """How each written input is written, and by which clause of the break rule."""
        return tuple(write.of(self.operation.body.inputs[write.position]) for write in self._fusion.writes)

    @property
    def _is_fusion(self) -> bool:
        return hasattr(getattr(self.run, "fusion", self.run), "fusion_definition")

    @property
    def _fusion(self) -> Any:
        if not self._is_fusion:
            raise ExecutorError(
                "no fusion definition", node=self.name, location=self.operation.location,
                hint='lower the program with "nvfuser"; where that failed, a warning said why',
            )  # fmt: skip
        return getattr(self.run, "fusion", self.run)

    def __str__(self) -> str:
        lines = map(str, self.writes) if self._is_fusion else str(self.operation.body).splitlines()
        return "\n".join([f"{self.name}:", *(f"  {line}" for line in lines)])


class WithFallback:
    """A region whose executor may fail as late as its first run: its operations then run one by one, from the start.

    Attributes
    ----------
    fusion
        What the executor made.
    """

    def __init__(self, fusion: Any, region: Operation) -> None:
        self.fusion, self._region = fusion, region
        self._run: Callable[..., Any] = self._try

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """Run the region."""
        return self._run(*tensors)

    def _try(self, *tensors: torch.Tensor) -> Any:
        """Run it for the first time, ready to put back what it writes."""
        written = [tensors[i] for i in self._region.writes if i < len(tensors)]
        before = [tensor.clone() for tensor in written]
        try:
            results = self.fusion(*tensors)
            self._run = self.fusion
            return results
        except ExecutorError as error:
            logger.warning("%s: %s; its operations run one by one", self._region.name, error)
            for tensor, old in zip(written, before, strict=True):
                tensor.copy_(old)
            self._run = eager.compile_region(self._region)
            return self._run(*tensors)


def compiled_region(region: Operation, executor: Executor, strict: bool = False) -> Callable[..., Any]:
    """Return a region as a function; regions that differ in names only are compiled once.

    Where the executor can't, its operations run one by one, and a warning says so.
    """
    key = _key(region, executor)
    with _lock:
        if key not in _compiled and key not in _failed:
            try:
                _compiled[key] = executor.compile_region(region)
            except ExecutorError as error:
                _failed[key] = error
                if not strict:
                    logger.warning("%s; its operations run one by one", error)
        if key in _compiled:
            run = _compiled[key]
            return run if strict or not getattr(run, "may_fail_late", False) else WithFallback(run, region)
    if strict:
        raise _failed[key]
    return eager.compile_region(region)


def failure_of(region: Operation, executor: Executor) -> ExecutorError | None:
    """Return why a region that was to be compiled could not be; None where it was."""
    return _failed.get(_key(region, executor))


def _key(region: Operation, executor: Executor) -> tuple[object, ...]:
    return (id(executor), canonical_text(region.body), region.writes)
