"""The definition as nvFuser itself understood it, read from the text it prints back.

``repr(fd)`` is Python text of six digits; ``fd.fusion.print_math()`` has every tensor's dtype, numbers in full, and
tells ``set`` and ``segment_set`` from casts. tvN of the one is TN of the other.
"""

from __future__ import annotations

import ast
import functools
import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import networkx as nx
import torch

#: What print_math calls a dtype.
DTYPES = {
    "float": torch.float32, "double": torch.float64, "__half": torch.float16, "__bfloat": torch.bfloat16,
    "int64_t": torch.int64, "int": torch.int32, "nvfuser_index_t": torch.int64, "bool": torch.bool,
}  # fmt: skip
#: And what the Python text does.
DATA_TYPES = {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16,
    "Int": torch.int64, "Int32": torch.int32, "Index": torch.int64, "Bool": torch.bool,
}  # fmt: skip


class OracleError(BaseException):
    """The text has something the oracle does not know, or inputs that are not those of the definition.

    No ``except Exception`` catches it: an executor that falls back on an error must not hide it from the tests.
    """


@dataclass(frozen=True)
class Ref:
    """The name of a value in the text."""

    name: str


@dataclass
class Step:
    """One line: ``names = fd.ops.op(*args, **kwargs)``."""

    names: list[str]
    op: str
    args: list[Any]
    kwargs: dict[str, Any]

    @property
    def operands(self) -> list[str]:
        """The names it reads, in order."""
        return [leaf.name for leaf in leaves([*self.args, *self.kwargs.values()]) if isinstance(leaf, Ref)]


@dataclass
class Input:
    """A tensor or, without a shape, a number that enters."""

    name: str
    dtype: torch.dtype
    shape: list[int] | None = None
    contiguity: list[bool | None] = field(default_factory=list)
    stride_order: list[int] = field(default_factory=list)


@dataclass
class Printed:
    """A definition: what enters, its lines, and ``(value, input it is written to or None)`` for each output."""

    inputs: list[Input] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    outputs: list[tuple[str, str | None]] = field(default_factory=list)
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)
    shapes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @functools.cached_property
    def producer(self) -> dict[str, Step]:
        """The line that makes each value."""
        return {name: step for step in self.steps for name in step.names}

    @functools.cached_property
    def graph(self) -> nx.DiGraph:
        """Values; an edge where one is an operand of the line that makes the other."""
        graph = nx.DiGraph()
        graph.add_nodes_from(entry.name for entry in self.inputs)
        for step in self.steps:
            graph.add_nodes_from(step.names)
            graph.add_edges_from((operand, name) for operand in step.operands for name in step.names)
        return graph

    @property
    def writes(self) -> list[tuple[str, str]]:
        """The values written to inputs, and those inputs."""
        return [(value, target) for value, target in self.outputs if target is not None]

    def input(self, name: str) -> Input | None:
        """Return the input of a name, or None."""
        return next((entry for entry in self.inputs if entry.name == name), None)


def leaves(tree: Any) -> Iterator[Any]:
    """Yield what lists hold, in order."""
    if isinstance(tree, (list, tuple)):
        for item in tree:
            yield from leaves(item)
    else:
        yield tree


def read_definition(definition: Any) -> Printed:
    """Return what a FusionDefinition says of itself."""
    return read_text(repr(definition), definition.fusion.print_math())


@functools.lru_cache(maxsize=512)
def read_text(text: str, mathematics: str) -> Printed:
    """Return what the two texts say."""
    printed = Printed()
    for number, dtype, dims in re.findall(r"\bT(\d+)_[a-z]+_([\w:<>]+?)\[([^\]]*)\]", mathematics):
        printed.dtypes.setdefault(f"tv{number}", DTYPES.get(dtype))
        kept = [dim.strip() for dim in re.findall(r"\b[a-z]+[A-Z]*\d+\{[^}]*\}\w*", dims) if not dim.startswith("r")]
        printed.shapes.setdefault(f"tv{number}", tuple(re.search(r"\{(.*)\}", dim)[1].strip() for dim in kept))
    statements = _statements(mathematics)
    (function,) = ast.parse(text.strip()).body
    for line in function.body:
        _read_line(line, printed, statements)
    for value, _ in printed.writes:
        step = printed.producer[value]
        if (
            step.op == "stride_order"
        ):  # a written value takes the layout of its target, and prints as if it were asked to
            step.op, step.kwargs = "set", {}
    return printed


def _statements(mathematics: str) -> dict[str, str]:
    """Return print_math's statement for each number of a name."""
    body = mathematics.partition("%kernel_math {")[2]
    starts = [match.start() for match in re.finditer(r"^(?:T\d+_|[a-z]\d+ = )", body, re.MULTILINE)]
    pieces = [body[start:end] for start, end in itertools.pairwise([*starts, None])]
    found = {}
    for i, piece in enumerate(pieces):  # several results: the statement ends with the last of them
        whole = next((later for later in pieces[i:] if "=" in later), piece)
        found[re.match(r"[A-Za-z](\d+)", piece)[1]] = whole
    return found


def _read_line(line: ast.stmt, printed: Printed, statements: dict[str, str]) -> None:
    if isinstance(line, ast.Pass):
        return
    call = line.value
    path = ast.unparse(call.func)
    args = [_read_value(arg) for arg in call.args]
    kwargs = {keyword.arg: _read_value(keyword.value) for keyword in call.keywords}
    if path == "fd.add_output":
        printed.outputs.append((args[0].name, args[1].name if len(args) > 1 else None))
        return
    (target,) = line.targets
    names = [item.id for item in (target.elts if isinstance(target, ast.Tuple) else [target])]
    if path == "fd.define_tensor":
        printed.inputs.append(
            Input(names[0], kwargs["dtype"], kwargs["shape"], kwargs["contiguity"], kwargs.get("stride_order", []))
        )
        printed.dtypes.setdefault(names[0], kwargs["dtype"])
        return
    if path == "fd.define_scalar" and args[0] is None:
        printed.inputs.append(Input(names[0], kwargs["dtype"]))
        return
    op = "scalar" if path == "fd.define_scalar" else path.removeprefix("fd.ops.")
    statement = statements.get(re.search(r"\d+", names[0])[0], "")
    if op == "cast" and (kind := re.search(r"= (Set|SegmenterSet)\(", statement)):
        op, kwargs = {"Set": "set", "SegmenterSet": "segment_set"}[kind[1]], {}
    numbers = statement if op != "scalar" else "\n".join(statements.values())
    printed.steps.append(
        Step(names, op, [_in_full(arg, numbers) for arg in args], {k: _in_full(v, numbers) for k, v in kwargs.items()})
    )


def _read_value(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return Ref(node.id)
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_read_value(item) for item in node.elts]
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "DataType":
        return DATA_TYPES.get(node.attr, node.attr)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "float":
        return float(ast.literal_eval(node.args[0]))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_read_value(node.operand)
    return ast.literal_eval(node)


def _in_full(argument: Any, statement: str) -> Any:
    """Return an argument with its numbers in full, where print_math's statement has them."""
    if isinstance(argument, list):
        return [_in_full(item, statement) for item in argument]
    if not isinstance(argument, float) or not math.isfinite(argument):
        return argument
    full = {float(text) for text in re.findall(r"\b(?:double|float)\(([^()]+)\)", statement)}
    fits = {number for number in full if math.isfinite(number) and float(f"{number:.5e}") == float(f"{argument:.5e}")}
    if len(fits) > 1:
        raise OracleError(f"{argument} may be any of {sorted(fits)}")
    return fits.pop() if fits else argument
