"""The invariants of states, objects, storages and fusion regions, one function each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from graphalias.errors import CheckError
from graphalias.graph import CONSTANT, INPUT, OUTPUT, REGION, UPDATE_ALIASES, Operation, Program, Value
from graphalias.overlap import overlaps
from graphalias.text import print_type

SOURCES = (INPUT, CONSTANT)


def fail(operation: Operation, expected: str, found: object, hint: str | None = None) -> NoReturn:
    """Raise the error of an operation."""
    message = f"expected {expected}, found {found}"
    raise CheckError(message, node=operation.name, location=operation.location, hint=hint)


def results_of(operation: Operation) -> Iterator[Value]:
    """Yield the results that are handles."""
    return (result for result in operation.results if result is not None)


def identity(value: Value) -> tuple[Any, ...]:
    """Return what a handle is, whatever its name."""
    return (value.object, value.device, value.storage, value.geometry)


def states_advance(program: Program) -> None:
    """States are taken by ``states`` alone, and each comes back under a new name as one of the last results."""
    for operation in program.operations:
        odd = [value for value in operation.operands if value.is_state]
        odd += [value for value in operation.states if not value.is_state]
        if odd:
            fail(operation, "states, and only states, in states", odd)
        if operation.target in (*SOURCES, OUTPUT):
            continue
        found = [value for value in results_of(operation) if value.is_state]
        last = operation.results[len(operation.results) - len(operation.states) :]
        taken = [(value.object, value.storage) for value in operation.states]
        if [(value.object, value.storage) for value in found] != taken or tuple(found) != last:
            fail(operation, f"the states {list(operation.states)} as the last results", list(operation.results))


def update_aliases_rename(program: Program) -> None:
    """An `update_aliases` results in its operands: the same objects, one to one, and does nothing else."""
    for operation in program.operations:
        if operation.target != UPDATE_ALIASES:
            continue
        if operation.effects or operation.states:
            fail(operation, "update_aliases to read and write nothing", operation.effects or operation.states)
        found = [value and identity(value) for value in operation.results]
        if found != [identity(value) for value in operation.operands]:
            fail(operation, f"the operands {list(operation.operands)} as results", list(operation.results))


def objects_keep_their_geometry(program: Program) -> None:
    """A result that is the object of an operand has its geometry, except where the operation says it writes that."""
    for operation in program.operations:
        operands = {operand.object: operand for operand in operation.operands}
        reshaped = {operation.operands[position].object for position in operation.reshapes}
        for result in results_of(operation):
            operand = operands.get(result.object)
            if operand is None or result.object in reshaped:
                continue
            if identity(result) != identity(operand):
                fail(operation, f"%{result.name} as its operand {operand}", result, "mark the operand in reshapes")
        missing = reshaped.difference(result.object for result in results_of(operation))
        if missing:
            fail(operation, "reshaped objects among the results", f"none of {min(missing)}")


def objects_are_seen_as_they_are(program: Program) -> None:
    """An object that is no operand's is new, and an operand has the geometry its object has by then."""
    current: dict[str, Value] = {}
    for operation in program.operations:
        own = {operand.object for operand in (*operation.operands, *operation.states)}
        for operand in operation.operands:
            newest = current[operand.object]
            if operand.geometry != newest.geometry:
                fail(operation, f"{operand.object} as %{newest.name} has it: {newest.geometry}", operand.geometry)
        for result in results_of(operation):
            if result.object in current and result.object not in own:
                fail(operation, f"a new object of %{result.name}, or an operand's", result.object)
        current.update((result.object, result) for result in results_of(operation))


def results_lie_where_operands_do(program: Program) -> None:
    """A result lies on a storage of an operand, or on a new local one. Storages and objects are one namespace."""
    seen: set[str] = set()
    objects = {result.object for operation in program.operations for result in results_of(operation)}
    for operation in program.operations:
        own = {operand.storage.name for operand in (*operation.operands, *operation.states)}
        for result in results_of(operation):
            place = result.storage.name
            if place in seen and place not in own and operation.target not in SOURCES:
                fail(operation, f"%{result.name} on a storage of an operand, or a new one", place)
            if place in objects:
                fail(operation, f"a storage of %{result.name} that is named like no object", place)
        seen.update(result.storage.name for result in results_of(operation))


def storages_live_as_said(program: Program) -> None:
    """A storage lives as long as the inputs and constants that lie on it; local if there are none."""
    sources: dict[str, set[str]] = {}
    for operation in program.operations:
        if operation.target in SOURCES:
            for result in results_of(operation):
                sources.setdefault(result.storage.name, set()).add(operation.target)
    for operation in program.operations:
        for result in results_of(operation):
            lifetimes = sources.get(result.storage.name, {"local"})
            if result.storage.lifetime not in lifetimes:
                fail(operation, f"{' or '.join(sorted(lifetimes))} as lifetime of {result.storage.name}",
                     result.storage.lifetime)  # fmt: skip


def regions_have_bodies(program: Program) -> None:
    """Regions, and nothing else, have a body: a program of inputs and plain operations."""
    for operation in program.operations:
        if isinstance(operation.body, Program) != (operation.target == REGION):
            fail(operation, "a Program as body of regions, and of nothing else", repr(operation.body))
        for inner in operation.body.operations if operation.body else ():
            is_plain = (inner.is_compute and inner.target != REGION) or inner.target in (INPUT, OUTPUT)
            if not is_plain or inner.states or inner.reshapes or inner.after:
                fail(operation, "inputs and operations without states and order in its body", f"%{inner.name}")
        if operation.target == REGION and (operation.kwargs or operation.states or operation.reshapes):
            fail(operation, "a region that takes handles, and changes no state or geometry", operation.effects)


def _regions(program: Program) -> Iterator[Operation]:
    return (operation for operation in program.operations if operation.target == REGION)


def regions_fit_their_bodies(program: Program) -> None:
    """A region's first operands are as its body's inputs are, its first results as the body's outputs."""
    for region in _regions(program):
        for what, outside, inside in (
            ("operand", region.operands, region.body.inputs),
            ("result", region.results, region.body.outputs),
        ):
            if len(outside) < len(inside):
                fail(region, f"{what}s for {len(inside)} of its body", len(outside))
            for one, other in zip(outside, inside, strict=False):
                if one is None or not isinstance(other, Value) or print_type(one) != print_type(other):
                    fail(region, f"the {what} of its body as it is there, {_typed(other)}", _typed(one))


def _typed(value: Any) -> str:
    return f"%{value.name}: {print_type(value)}" if isinstance(value, Value) else repr(value)


def regions_return_what_they_make(program: Program) -> None:
    """A region's first results are on memory of their own; further ones are objects of operands that it writes."""
    for region in _regions(program):
        outputs = region.body.outputs
        taken = {value.storage.name for value in region.operands}
        entered = {value.storage.name for value in region.body.inputs}
        for result, output in zip(region.results, outputs, strict=False):
            assert result is not None  # it fits the body's
            if result.storage.name in taken or output.storage.name in entered:
                fail(region, f"%{result.name} on memory the region made", f"@{result.storage.name}")
            taken.add(result.storage.name)
        written = {value.object for value in region.written}
        for result in region.results[len(outputs) :]:
            if result is None or result.object not in written:
                fail(region, "further results to be operands that are written", result)


def regions_say_what_they_touch(program: Program) -> None:
    """A region reads and writes the operands that its body does, and those that are the same memory."""
    for region in _regions(program):
        operands = dict(zip((value.object for value in region.body.inputs), region.operands, strict=False))
        entered = dict(operands)  # by object of the body, views included: what it is memory of
        touched: dict[bool, set[Any]] = {False: set(), True: set()}
        for inner in region.body.operations:
            for value, _, is_write in inner.effects:
                if value.object in entered:
                    touched[is_write].add(entered[value.object].geometry)
                if is_write and value.object in entered and value.object not in operands:
                    fail(region, "views that it writes through to be made outside", f"%{value.name} in its body")
            for result in filter(None, inner.results if inner.is_compute else ()):
                base = next((value for value in inner.operands if value.storage is result.storage), None)
                if base is not None and base.object in entered:
                    entered.setdefault(result.object, entered[base.object])
        for name, is_write in (("reads", False), ("writes", True)):
            positions = {i for i, operand in enumerate(region.operands) if operand.geometry in touched[is_write]}
            if set(getattr(region, name)) != positions:
                fail(region, f"{name} {sorted(positions)}, as its body does", list(getattr(region, name)))


def regions_take_memory_once(program: Program) -> None:
    """No two inputs of a region overlap where one of them is written."""
    for region in _regions(program):
        inputs = region.operands[: len(region.body.inputs)]
        for i in set(region.writes) & set(range(len(inputs))):
            for other in inputs[:i] + inputs[i + 1 :]:
                if overlaps(inputs[i].access, other.access):
                    fail(region, f"nothing that overlaps %{inputs[i].name}, which it writes", f"%{other.name}")
