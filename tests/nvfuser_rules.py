"""What every definition must keep to, so that no order nvFuser does not promise can show.

Worked out from the text nvFuser prints back, and apart from the executor's own rule: each function names what is
broken, in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import networkx as nx
import torch

from nvfuser_oracle import POINTWISE, UNARY, VIEWS, is_one_pointwise_kernel, viewed
from nvfuser_text import Printed, read_definition

#: Operations of a definition; the first execution takes more than linear time.
MOST_STEPS = 400


def violations(definition: Any, inputs: Sequence[Any] = ()) -> list[str]:
    """Return what is wrong with a definition, and with the memory of its inputs where they are given."""
    printed = read_definition(definition)
    names = [entry.name for entry in printed.inputs]
    rules = [_targets, _values, _once, _order, _readers, _paths, _results, _size]
    found = [line for rule in rules for line in rule(printed)]
    return found + list(_overlaps(printed, dict(zip(names, inputs, strict=False))))


def _targets(printed: Printed) -> Iterator[str]:
    """Every target is a tensor that enters, and each of its elements has a place of its own."""
    for _, target in printed.writes:
        entry = printed.input(target)
        if entry is None or entry.shape is None:
            yield f"{target} is written, and is no input"
            continue
        order = entry.stride_order or list(range(len(entry.shape)))[::-1]
        dims = sorted(range(len(entry.shape)), key=lambda dim: -order[dim])
        if any(flag is None and entry.shape[dim] != 1 for dim, flag in zip(dims, entry.contiguity, strict=True)):
            yield f"{target} is written, and is expanded"


def _values(printed: Printed) -> Iterator[str]:
    """What is written is a fresh ``set`` of the target's dtype and shape."""
    for value, target in printed.writes:
        step = printed.producer.get(value)
        if step is None or step.op != "set":
            yield f"{value}, written to {target}, is no fresh set but {step.op if step else 'an input'}"
        entry = printed.input(target)
        if entry is None or entry.shape is None:
            continue
        if printed.dtypes[value] != entry.dtype:
            yield f"{value} of {printed.dtypes[value]} is written to {target} of {entry.dtype}"
        if value in printed.shapes and printed.shapes[value] != printed.shapes.get(target, printed.shapes[value]):
            yield f"{value} of shape {printed.shapes[value]} is written to {target} of shape {printed.shapes[target]}"


def _once(printed: Printed) -> Iterator[str]:
    """An input is written once, a value is written once, and is not a result besides."""
    values, targets = [value for value, _ in printed.writes], [target for _, target in printed.writes]
    yield from (f"{name} is written twice" for name in sorted({t for t in targets if targets.count(t) > 1}))
    yield from (f"{name} is written to two inputs" for name in sorted({v for v in values if values.count(v) > 1}))
    visible = {value for value, target in printed.outputs if target is None}
    yield from (f"{name} is written and a result too" for name in values if name in visible)


def _order(printed: Printed) -> Iterator[str]:
    """Writes come last among the outputs: nvFuser then tends to launch them last."""
    kinds = [target is not None for _, target in printed.outputs]
    if kinds != sorted(kinds):
        yield "a result comes after a write"


def _readers(printed: Printed) -> Iterator[str]:
    """All that reads an input that is written leads to what is written, or all is one pointwise kernel."""
    if is_one_pointwise_kernel(printed):
        return
    for value, target in printed.writes:
        needed = nx.ancestors(printed.graph, value) | {value}
        for step in printed.steps:
            if not any(_reads(printed, operand, target) for operand in step.operands):
                continue
            yield from (
                f"{name} = {step.op} reads {target}, and is not needed for {value}, which is written there"
                for name in step.names[:1]
                if not needed.intersection(step.names)
            )


def _reads(printed: Printed, name: str, target: str) -> bool:
    """Whether a value is an input's old one, through unary operations and views only: nvFuser may read it again."""
    written = {value for value, _ in printed.writes}
    while name != target:
        step = printed.producer.get(name)
        tensors = [operand for operand in step.operands if operand.startswith("tv")] if step else []
        if name in written or step is None or step.op not in UNARY | VIEWS or len(tensors) != 1:
            return False
        (name,) = tensors
    return True


def _paths(printed: Printed) -> Iterator[str]:
    """Between an input and what is written to it there are pointwise operations only."""
    for value, target in printed.writes:
        if target not in printed.graph or target not in nx.ancestors(printed.graph, value):
            continue
        between = nx.descendants(printed.graph, target) & (nx.ancestors(printed.graph, value) | {value})
        for name in sorted(between):
            if printed.producer[name].op not in POINTWISE:
                yield f"{name} = {printed.producer[name].op} lies between {target} and {value}, which is written there"


def _results(printed: Printed) -> Iterator[str]:
    """No result is an input, or a view of one, or of what is written to one; no two are views of one value."""
    inputs = {entry.name for entry in printed.inputs}
    written = {value for value, _ in printed.writes}
    bases: dict[str, str] = {}
    for value, target in printed.outputs:
        if target is not None or value in written:
            continue
        seen = {value} | viewed(printed, value)
        if taken := seen & (inputs | written):
            yield f"the result {value} is {min(taken)} itself, or a view of it"
        base = next(name for name in seen if name in inputs or not viewed(printed, name))
        if base in bases:
            yield f"the results {bases[base]} and {value} share memory"
        bases[base] = value


def _size(printed: Printed) -> Iterator[str]:
    """A definition is not larger than nvFuser can take in reasonable time."""
    if len(printed.steps) > MOST_STEPS:
        yield f"{len(printed.steps)} operations, more than {MOST_STEPS}"


def _overlaps(printed: Printed, memory: dict[str, Any]) -> Iterator[str]:
    """What is written lies apart from every other input."""
    tensors = {name: item for name, item in memory.items() if isinstance(item, torch.Tensor)}
    for _, target in printed.writes:
        for name, tensor in tensors.items():
            if name != target and target in tensors and addresses(tensors[target]) & addresses(tensor):
                yield f"{target} is written, and shares memory with {name}"


def addresses(tensor: torch.Tensor) -> set[int]:
    """Return the address of every byte of a tensor."""
    firsts = torch.tensor([tensor.data_ptr()])
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        firsts = (firsts[:, None] + torch.arange(size) * stride * tensor.itemsize).flatten()
    return set((firsts[:, None] + torch.arange(tensor.itemsize)).flatten().tolist())
