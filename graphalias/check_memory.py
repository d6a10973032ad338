"""The invariants of states, objects and storages, one function each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from graphalias.errors import CheckError
from graphalias.graph import CONSTANT, INPUT, OUTPUT, UPDATE_ALIASES, Operation, Program, Value

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
