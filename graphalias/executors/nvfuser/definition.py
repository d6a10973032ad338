"""One region as a fusion definition: its inputs, operations, plain outputs, and last the writes of inputs."""

from __future__ import annotations

import io
import math
import operator
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from torch.fx import Node

from graphalias.errors import ExecutorError
from graphalias.executors.nvfuser.break_rule import Write, decide_writes
from graphalias.executors.nvfuser.builder import Builder, Number, Operand
from graphalias.executors.nvfuser.form import Form, is_view, root_of
from graphalias.executors.nvfuser.table import dtype_of, lowering_of, shape_of, why_not_lowered
from graphalias.graph import Operation, Value
from graphalias.symbols import DTYPES


@dataclass
class Definition:
    """A region's fusion, and what is done around it.

    Attributes
    ----------
    fusion_definition
        The real ``FusionDefinition``.
    form : Form
    writes : list of Write
    arguments : list of int
        The inputs of the region that the fusion takes, by position.
    outputs : list of Node
        What the fusion returns.
    constants : set of float
        In full.
    """

    fusion_definition: Any
    form: Form
    writes: list[Write]
    arguments: list[int] = field(default_factory=list)
    outputs: list[Node] = field(default_factory=list)
    constants: set[float] = field(default_factory=set)


def define(nvfuser: ModuleType, region: Operation, form: Form) -> Definition:
    """Return the definition of a region.

    Raises
    ------
    ExecutorError
        If nvFuser refuses it.
    """
    writes = decide_writes(form, region.body.inputs)
    fusion_definition = nvfuser.FusionDefinition()
    made = Definition(fusion_definition, form, writes)
    made.outputs = _fused_outputs(form, writes)
    writer = _Writer(nvfuser, made, region.body.inputs)
    try:
        with redirect_stdout(io.StringIO()), fusion_definition:  # it prints a traceback
            writer.write()
    except Exception as error:
        at = f" at {writer.at.name} = {writer.at.target}" if writer.at is not None else ""
        raise ExecutorError(
            f"nvFuser can't define {region.name}{at}: {first_line(error)}\n{region.body}",
            node=region.name, location=region.location,
        ) from error  # fmt: skip
    made.constants = writer.builder.numbers
    return made


def first_line(error: Exception) -> str:
    r"""Return what an nvFuser error says, without its internal assert and stack.

    >>> first_line(RuntimeError("INTERNAL ASSERT FAILED at f.cpp:3, please report\nExpected a . \nframe #0"))
    'Expected a .'
    """
    lines = [line.strip() for line in str(error).splitlines()]
    said = [
        line for line in lines if line and not any(noise in line for noise in ("INTERNAL ASSERT", "Exception raised"))
    ]
    return said[0] if said else type(error).__name__


def _fused_outputs(form: Form, writes: list[Write]) -> list[Node]:
    """Return what the fusion returns.

    A view of a value that is wanted otherwise too is made of it after the fusion: nvFuser may return two views of one
    memory.
    """
    wanted = dict.fromkeys(form.outputs)
    wanted |= dict.fromkeys(form.writes[write.position] for write in writes if write.means == "written back")
    return list(dict.fromkeys(source_of(form, node) for node in wanted if root_of(node).op != "placeholder"))


def source_of(form: Form, node: Node) -> Node:
    """Return the output of the fusion that a value comes from: itself, or what it is a view of."""
    root = root_of(node)
    uses = Counter(root_of(value) for value in (*form.outputs, *form.writes.values()))
    is_whole = math.prod(shape_of(node)) == math.prod(shape_of(root))
    return node if not is_view(node) or (uses[root] == 1 and is_whole) else root


class _Writer:
    """Emits one definition."""

    def __init__(self, nvfuser: ModuleType, made: Definition, inputs: tuple[Value, ...]) -> None:
        self.made, self.form, self.inputs = made, made.form, inputs
        self.builder = Builder(nvfuser, made.fusion_definition)
        self.fused = {write.position: made.form.writes[write.position] for write in made.writes if write.is_fused}
        self.values: dict[Node, Any] = {}
        self.plain: dict[Node, Any] = {}
        self.tensors: dict[int, Any] = {}
        self.aliases: dict[int, Any] = {}
        self.at: Node | None = None

    def write(self) -> None:
        """Emit the inputs, the operations, the outputs."""
        live = self.form.live([*self.made.outputs, *self.fused.values()])
        for position, node in enumerate(self.form.inputs):
            if node in live or position in self.fused:
                self._define_input(position, node)
        for node in live:
            self.at = node
            if node.op != "placeholder":
                self._emit(node)
            self._write_value(node)
        self.at = None
        for node in self.made.outputs:
            self.made.fusion_definition.add_output(self.builder.tensor(self.plain[node]))
        for position, alias in self.aliases.items():
            self.made.fusion_definition.add_output(alias, self.tensors[position])

    def _define_input(self, position: int, node: Node) -> None:
        value = self.inputs[position]
        dtype = DTYPES[value.dtype]
        tensor = self.made.fusion_definition.define_tensor(
            sizes=list(value.shape), strides=list(value.stride), dtype=self.builder.dtype(dtype), static_sizes=True
        )
        self.tensors[position] = tensor
        self.made.arguments.append(position)
        self.values[node] = self.plain[node] = Operand(tensor, dtype, value.shape)

    def _emit(self, node: Node) -> None:
        arguments = _mapped(node.args, self.values)
        if node.target is operator.getitem:
            self.values[node] = self.plain[node] = arguments[0][arguments[1]]
            return
        lowering, reason = lowering_of(node), why_not_lowered(node)
        if lowering is None or reason is not None:
            raise ExecutorError(f"it has {node.target}: {reason}")
        emitted = lowering.emit(self.builder, node, *arguments, **_mapped(dict(node.kwargs), self.values))
        meta = node.meta["val"]
        if isinstance(emitted, list):
            made: Any = [self._operand(value, fake) for value, fake in zip(emitted, meta, strict=True)]
        else:
            made = self._operand(emitted, meta)
        self.values[node] = self.plain[node] = made

    def _operand(self, value: Any, fake: Any) -> Operand:
        if not isinstance(value, Number):
            value = self.builder.cast(value, fake.dtype)
        return Operand(value, fake.dtype, tuple(fake.shape))

    def _write_value(self, node: Node) -> None:
        """Emit the writes of a value: a fresh one for each, which later operations read.

        What is returned is the value itself: an aliased output comes back as the input's memory.
        """
        for position, value in self.fused.items():
            if value is node:
                alias = self.builder.ops.set(self.builder.tensor(self.plain[node]))
                self.aliases[position] = alias
                if node.op != "placeholder":
                    self.values[node] = Operand(alias, dtype_of(node), shape_of(node))


def _mapped(argument: Any, values: dict[Node, Any]) -> Any:
    if isinstance(argument, Node):
        return values[argument]
    if isinstance(argument, (list, tuple)):
        return [_mapped(item, values) for item in argument]
    if isinstance(argument, dict):
        return {key: _mapped(item, values) for key, item in argument.items()}
    return argument
