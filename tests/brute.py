"""What order a program needs, worked out from first principles: every pair of operations, every address."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import lru_cache

import networkx as nx

from graphalias.graph import CONSTANT, INPUT, OUTPUT, UPDATE_ALIASES, Access, Operation, Program, whole
from graphalias.ledger import outliving_places

Touch = tuple[Access, bool]


@lru_cache(maxsize=100_000)
def addresses(access: Access) -> frozenset[tuple[str, int]]:
    """Return every byte of an access."""
    starts = [access.offset_bytes]
    for size, stride in zip(access.shape, access.strides_bytes, strict=True):
        starts = [start + index * stride for start in starts for index in range(size)]
    return frozenset((access.place, start + byte) for start in starts for byte in range(access.itemsize))


def touches(operation: Operation) -> list[Touch]:
    """Return what an operation reads (False) and writes (True), geometry included."""
    found = [(access, is_write) for _, access, is_write in operation.effects]
    return found + [(whole(value.object), False) for value in operation.operands]


def conflicts(earlier: list[Touch], later: list[Touch]) -> bool:
    """Whether two operations touch the same byte, one of them writing."""
    return any(
        (writes or rewrites) and addresses(one) & addresses(other)
        for one, writes in earlier
        for other, rewrites in later
    )


def required_order(program: Program) -> set[tuple[str, str]]:
    """Return the transitive closure of what must come before what, `update_aliases` left out."""
    operations = [operation for operation in program.operations if operation.target != UPDATE_ALIASES]
    creator: dict[str, str] = {}
    graph = nx.DiGraph()
    for operation in operations:
        graph.add_node(operation.name)
        for value in (*operation.operands, *operation.states):
            graph.add_edge(creator[value.object], operation.name)
        for result in operation.results:
            if result is not None:
                creator.setdefault(result.object, operation.name)
    for earlier, later in itertools.combinations(operations, 2):
        if earlier.target in (INPUT, CONSTANT):
            continue
        if later.target == OUTPUT:
            lasting = set(outliving_places(program))
            if any(is_write and addresses(access) and access.place in lasting for access, is_write in touches(earlier)):
                graph.add_edge(earlier.name, OUTPUT)
        elif conflicts(touches(earlier), touches(later)):
            graph.add_edge(earlier.name, later.name)
    return set(nx.transitive_closure(graph).edges)


def imposed_order(program: Program) -> set[tuple[str, str]]:
    """Return what the graph puts before what, `update_aliases` left out."""
    kept = {operation.name for operation in program.operations if operation.target != UPDATE_ALIASES}
    closure = nx.transitive_closure(program.graph)
    return {(before, after) for before, after in closure.edges if before in kept and after in kept}


def simulate(program: Program, order: Iterable[str] | None = None) -> dict[str, object]:
    """Run a program on symbolic memory, in any order, and return everything that can be seen afterwards.

    A byte holds the hash of who wrote it and of what that operation had read; an object holds its geometry and the
    hash of who gave it. An operation run too early or too late leaves another hash.
    """
    memory: dict[tuple[str, int], int] = {}
    objects: dict[str, tuple[Access, int]] = {}
    for name in order or program.graph:
        operation = program.operation(name)
        if operation.target == UPDATE_ALIASES:
            continue
        operands = [objects[value.object] for value in (*operation.operands, *operation.states)]
        read = [memory.get(byte, 0) for i in operation.reads for byte in sorted(addresses(operands[i][0]))]
        state = [memory.get((value.storage.name, 0), 0) for value in operation.states]
        token = hash((name, tuple(geometry for _, geometry in operands), tuple(read), tuple(state)))
        reshaped = {operation.operands[i].object for i in operation.reshapes}
        written = [operands[i][0] for i in operation.writes] + [whole(value.storage.name) for value in operation.states]
        for result in operation.results:
            if result is not None and (result.object not in objects or result.object in reshaped):
                objects[result.object] = (result.access, token)
        written += [objects[operation.operands[i].object][0] for i in operation.writes]
        memory.update({byte: hash((token, byte)) for access in written for byte in addresses(access)})
    return _visible(program, memory, objects)


def _visible(program: Program, memory: dict, objects: dict) -> dict[str, object]:
    places = outliving_places(program)
    seen: dict[str, object] = {place: objects[place] for place in places if place in objects}
    seen |= {f"{place}+{at}": value for (place, at), value in memory.items() if place in places}
    return seen
