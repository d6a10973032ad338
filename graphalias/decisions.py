"""What the passes decided of a program, and why: of each mutation, each `update_aliases`, each region, and the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from graphalias.graph import OUTPUT, REGION, UPDATE_ALIASES, After, Operation, Program, Value
from graphalias.hazards import Hazard
from graphalias.sweep import overlapping_pairs
from graphalias.text import print_type
from graphalias.traffic import Traffic, traffic_of, traffic_of_calls
from graphalias.views import find_view_groups

IN_PLACE, FUNCTIONAL, REMOVED = "in place", "functional", "removed"


@dataclass(frozen=True)
class SharedMemory:
    """Inputs and constants on one storage, and whether two of them have bytes in common."""

    storage: str
    names: tuple[str, ...]
    has_overlap: bool


@dataclass(frozen=True)
class Group:
    """A view group of several tensors: the handle that was there first, its type, and the other tensors."""

    base: str
    type: str
    storages: tuple[str, ...]
    views: tuple[str, ...]
    is_written: bool
    is_reshaped: bool


@dataclass(frozen=True)
class Mutation:
    """What became of an operation that writes a tensor in place, and why.

    ``fate`` is ``in place`` (called as it is), ``functional`` (inside a region) or ``removed``.
    """

    operation: str
    target: str
    location: str | None
    writes: tuple[str, ...]
    fate: str
    region: str | None
    why: str


@dataclass(frozen=True)
class Prevented:
    """Two operations that could have run the wrong way round, and the `update_aliases` node between them.

    Without a node, an ORDER edge to the output keeps them apart.
    """

    node: str | None
    reason: str
    before: str
    after: str
    locations: tuple[str | None, str | None]
    place: str | None


@dataclass(frozen=True)
class RegionFacts:
    """A fusion region: its operations, who runs it, and the bytes it moves against eager's."""

    name: str
    operations: tuple[str, ...]
    targets: tuple[str, ...]
    locations: tuple[str, ...]
    traffic: Traffic
    eager: Traffic
    apart: str | None
    executor: str
    kernels: int | None = None


@dataclass(frozen=True)
class Outside:
    """Operations that are in no region for the same reason."""

    why: str
    operations: tuple[str, ...]


@dataclass(frozen=True)
class Decisions:
    """All of them for one program; `Explanation` says what each field is."""

    captured: Program
    lowered: Program
    executor: str
    shared_memory: tuple[SharedMemory, ...]
    groups: tuple[Group, ...]
    mutations: tuple[Mutation, ...]
    inserted: tuple[str, ...]
    hazards: tuple[Hazard, ...]
    prevented: tuple[Prevented, ...]
    regions: tuple[RegionFacts, ...]
    outside: tuple[Outside, ...]
    traffic: Traffic
    eager: Traffic
    times_ms: Mapping[str, float]
    remark: str | None = None


def shared_memory(program: Program) -> tuple[SharedMemory, ...]:
    """Return the inputs and constants that share a storage.

    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %y: f32[2] offset(2) @s0 obj1 = input()
    ... output()
    ... ''')
    >>> shared_memory(program)
    (SharedMemory(storage='s0', names=('x', 'y'), has_overlap=True),)
    """
    places: dict[str, list[Value]] = {}
    for value in (*program.inputs, *program.constants):
        if not value.is_state:
            places.setdefault(value.storage.name, []).append(value)
    return tuple(
        SharedMemory(place, tuple(value.name for value in values), _has_overlap(values))
        for place, values in places.items() if len(values) > 1
    )  # fmt: skip


def _has_overlap(values: list[Value]) -> bool:
    return any(len(others) > 1 for others in overlapping_pairs([value.access for value in values]).values())


def groups_of(program: Program) -> tuple[Group, ...]:
    """Return the view groups of several tensors, those that are written first."""
    shared = [group for group in find_view_groups(program) if group.is_shared]
    found = []
    for group in sorted(shared, key=lambda group: not group.is_written):
        objects = {value.object: value.name for value in reversed(group.values)}
        views = [value.name for value in group.values if objects[value.object] == value.name][1:]
        storages = tuple(storage.name for storage in group.storages)
        base = group.base
        found.append(Group(base.name, print_type(base), storages, tuple(views), group.is_written, group.is_reshaped))
    return tuple(found)


def mutations_of(captured: Program, partitioned: Program) -> tuple[Mutation, ...]:
    """Return what became of every operation that writes or reshapes a tensor, in program order."""
    homes = {op.name: region for region in _regions(partitioned) for op in region.body.operations if op.is_compute}
    found = []
    for operation in captured.operations:
        positions = dict.fromkeys((*operation.writes, *operation.reshapes))
        if positions:
            writes = tuple(operation.operands[i].name for i in positions)
            fate = _fate(operation, partitioned, homes.get(operation.name))
            found.append(Mutation(operation.name, operation.target, operation.location, writes, *fate))
    return tuple(found)


def _fate(operation: Operation, partitioned: Program, region: Operation | None) -> tuple[str, str | None, str]:
    if region is not None:
        return FUNCTIONAL, region.name, _why_functional(region, region.body.operation(operation.name))
    if operation.name in partitioned.graph:
        return IN_PLACE, None, partitioned.notes.get(operation.name, "nothing is fused here")
    return REMOVED, None, "nothing that is returned or outlives the call sees it"


def _why_functional(region: Operation, inner: Operation) -> str:
    """Return where the result of a mutation inside a region goes."""
    written = {value.storage.name for value in inner.written}
    outside = [value.name for value in region.body.inputs if value.storage.name in written]
    if outside:
        return "written back once, at the region's end"
    returned = {value.storage.name for value in region.body.outputs if isinstance(value, Value)}
    return "written once, as a result" if written & returned else "never written to memory"


def prevented_in(ordered: Program) -> tuple[Prevented, ...]:
    """Return what each `update_aliases` node, and each ORDER edge to the output, keeps in order.

    A joining node stands for what it joins.

    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %sin: f32[4] @s1 obj1 = aten.sin.default(%x) reads(%x)  # model.py:1
    ... %neg_: f32[4] @s0 obj0 = aten.neg_.default(%x!) reads(%x)  # model.py:2
    ... output(%sin)
    ... ''')
    >>> for one in prevented_in(graphalias.insert_update_aliases(program)):
    ...     print(one.reason, one.before, one.after, one.node)
    WAR sin neg_ update_aliases_1
    RAW neg_ output None
    """
    users = _first_users(ordered)
    found = []
    for operation in ordered.operations:
        node, later = (None, OUTPUT) if operation.target == OUTPUT else (operation.name, users.get(operation.name))
        if later is None:
            continue
        for edge in _unjoined(ordered, operation.after):
            locations = (ordered.operation(edge.operation).location, ordered.operation(later).location)
            place = edge.accesses[0].place if edge.accesses else None
            found.append(Prevented(node, edge.reason, edge.operation, later, locations, place))
    return tuple(found)


def _first_users(program: Program) -> dict[str, str]:
    """Return, by `update_aliases` node, the first operation that takes what it renamed, maybe renamed again."""
    users: dict[str, str] = {}
    for operation in reversed(program.operations):
        if operation.target == UPDATE_ALIASES and operation.operands:
            first = next(program.graph.successors(operation.name), None)  # edges come in program order
            if first is not None:
                users[operation.name] = users.get(first, first)
    return users


def _unjoined(program: Program, edges: Iterable[After]) -> Iterator[After]:
    for edge in edges:
        before = program.operation(edge.operation)
        if before.target == UPDATE_ALIASES and not before.operands:
            yield from _unjoined(program, before.after)
        else:
            yield edge


def regions_of(partitioned: Program, executor: str) -> tuple[RegionFacts, ...]:
    """Return what is known of each fusion region before it is compiled."""
    return tuple(
        RegionFacts(
            region.name, *_inner(region.body), traffic_of(region), traffic_of_calls(region.body.operations),
            partitioned.notes.get(region.name), executor,
        )
        for region in _regions(partitioned)
    )  # fmt: skip


def _inner(body: Program) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    compute = [operation for operation in body.operations if operation.is_compute]
    locations = dict.fromkeys(operation.location for operation in compute if operation.location)
    return tuple(op.name for op in compute), tuple(op.target for op in compute), tuple(locations)


def outside_of(partitioned: Program) -> tuple[Outside, ...]:
    """Return the operations that are in no region, by reason, the most frequent one first."""
    reasons: dict[str, list[str]] = {}
    for operation in partitioned.operations:
        if operation.is_compute and operation.target != REGION:
            reasons.setdefault(partitioned.notes.get(operation.name, ""), []).append(operation.name)
    most_first = sorted(reasons.items(), key=lambda item: -len(item[1]))
    return tuple(Outside(why, tuple(names)) for why, names in most_first)


def _regions(program: Program) -> Iterable[Operation]:
    return (operation for operation in program.operations if operation.target == REGION)
