"""A region as a function: what ATen does before the fusion, the fusion, and what ATen does after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from graphalias.executors.functional import eager_strides
from graphalias.executors.nvfuser.break_rule import WRITTEN_BACK
from graphalias.executors.nvfuser.definition import Definition, source_of
from graphalias.executors.nvfuser.form import root_of
from graphalias.graph import Operation

Run = Callable[[Any, list[torch.Tensor]], Sequence[torch.Tensor]]


class FusedRegion:
    """A region's fusion as a function of the region's inputs.

    Attributes
    ----------
    definition : str
        The Python text that nvFuser prints of it.
    ir : str
        The same in nvFuser's own notation: constants are in full.
    repro : str
        A script that runs it alone.
    fusion_definition
        The real ``FusionDefinition``.
    arguments : list of int
        Which of the region's inputs the fusion takes.
    inputs : tuple of Value
        These.
    constants : set of float
        The numbers in it, in full.
    writes : tuple of Write
        How each written input is written, and by which clause of the break rule.
    """

    #: nvFuser compiles a fusion when it is run for the first time.
    may_fail_late = True

    def __init__(self, region: Operation, made: Definition, run: Run) -> None:
        self.region, self.fusion_definition, self._run = region, made.fusion_definition, run
        self.arguments, self.constants = made.arguments, made.constants
        self.inputs = tuple(region.body.inputs[i] for i in made.arguments)
        self.writes = tuple(made.writes)
        self._form = form = made.form
        self._position = {node: i for i, node in enumerate(form.inputs)}
        self._output = {node: i for i, node in enumerate(made.outputs)}
        written_back = [write.position for write in made.writes if write.means == WRITTEN_BACK]
        #: Values that are an input as it was: cloned before anything is written.
        self._kept = [node for node in self._wanted(written_back) if root_of(node).op == "placeholder"]
        self._written_back = [(position, form.writes[position]) for position in written_back]
        self._counted = [w.position for w in made.writes if w.means != WRITTEN_BACK]
        self._results = [(node, source_of(form, node)) for node in form.outputs]
        self._made = [value for value in region.results[: len(form.outputs)] if value]
        self._strides: list[tuple[int, ...]] | None = None

    def _wanted(self, written_back: Sequence[int]) -> list[Node]:
        return list(dict.fromkeys([*self._form.outputs, *(self._form.writes[i] for i in written_back)]))

    @property
    def definition(self) -> str:
        """The Python text that nvFuser prints."""
        return repr(self.fusion_definition)

    @property
    def ir(self) -> str:
        """The fusion in nvFuser's own notation."""
        return str(self.fusion_definition.fusion.print_math())

    @property
    def repro(self) -> str:
        """A script that runs alone."""
        from graphalias.executors.nvfuser.repro import repro_script

        return repro_script(self)

    def __call__(self, *tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        """Run the region; return what it makes."""
        kept = {node: self._view(node, tensors[self._position[root_of(node)]]).clone() for node in self._kept}
        outputs: Sequence[torch.Tensor] = ()
        if self.arguments or self._output:
            outputs = self._run(self.fusion_definition, [tensors[i] for i in self.arguments])
        for position, node in self._written_back:
            tensors[position].copy_(kept[node] if node in kept else self._value(node, outputs))
        if self._counted:
            torch.autograd.graph.increment_version([tensors[i] for i in self._counted])
        if self._strides is None:
            self._strides = eager_strides(self.region, self._made)
        return self._fresh(kept, outputs)

    def _value(self, node: Node, outputs: Sequence[torch.Tensor]) -> torch.Tensor:
        source = source_of(self._form, node)
        return self._view(node, outputs[self._output[source]], source)

    def _view(self, node: Node, root: torch.Tensor, source: Node | None = None) -> torch.Tensor:
        """Return a chain of views of a tensor, as the graph has it."""
        if node is source or node.op == "placeholder":
            return root
        args = [self._view(node.args[0], root, source), *node.args[1:]]
        return node.target(*args, **node.kwargs)

    def _fresh(self, kept: dict[Node, torch.Tensor], outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the results as tensors of their own, of the strides eager gives."""
        results: list[torch.Tensor] = []
        given: set[Node] = set()
        assert self._strides is not None
        for (node, source), stride in zip(self._results, self._strides, strict=True):
            tensor = kept[node] if node in kept else self._value(node, outputs)
            is_own = (node in kept or node is source) and node not in given
            given.add(node)
            results.append(as_eager(tensor, stride) if is_own else copied(tensor, stride))
        return results


def as_eager(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """Return a tensor that nothing else has, in the strides eager gives; a copy only where the elements lie otherwise.

    >>> as_eager(torch.ones(2, 3).t(), (2, 1)).stride()
    (2, 1)
    """
    steps = zip(tensor.shape, tensor.stride(), stride, strict=True)
    is_alike = tensor.numel() <= 1 or all(size == 1 or found == wanted for size, found, wanted in steps)
    if not is_alike or tensor.untyped_storage().nbytes() != tensor.nbytes:
        return copied(tensor, stride)
    return tensor if tensor.stride() == stride else tensor.as_strided_(tensor.shape, stride)  # in place: it is no view


def copied(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """Return a copy of a tensor in other strides."""
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
