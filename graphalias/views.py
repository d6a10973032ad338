"""Which handles may share memory: aliasing edges and view groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx

from graphalias.graph import UPDATE_ALIASES, Operation, Program, Storage, Value, require_program
from graphalias.overlap import Footprint, byte_range, covers, footprint, overlaps
from graphalias.sweep import overlapping_pairs

__all__ = [
    "AliasingEdge",
    "Footprint",
    "ViewGroup",
    "aliasing_edges",
    "byte_range",
    "covers",
    "find_view_groups",
    "footprint",
    "overlapping_pairs",
    "overlaps",
]

VIEW, IN_PLACE, SHARED = "view", "in_place", "shared"


class AliasingEdge(NamedTuple):
    """Two handles of one group, the earlier first.

    Parameters
    ----------
    source, target : str
        Names of the handles.
    kind : str
        ``"view"`` (target was made from source), ``"in_place"`` (target is the same object), ``"update_aliases"`` (the
        same object, renamed) or ``"shared"`` (inputs, constants or results of one operation that share a storage).
    """

    source: str
    target: str
    kind: str


def aliasing_edges(program: Program) -> tuple[AliasingEdge, ...]:
    """Return what joins handles to view groups, in program order.

    Every handle is joined to what it is the same object as, and to one earlier handle of its storage. An object moved
    to another storage is joined to both, since views made before and after are views of one object.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4,4] @s0 obj0 = input()
    ... %row: f32[4] @s0 obj1 = aten.select.int(%x, 0, 0)
    ... %add__1: f32[4] @s0 obj1 = aten.add_.Tensor(%row!, 1) reads(%row)
    ... output(%x)
    ... ''')
    >>> [tuple(edge) for edge in aliasing_edges(program)]
    [('x', 'row', 'view'), ('row', 'add__1', 'in_place')]
    """
    return tuple(_edges(program.operations))


def _edges(operations: Iterable[Operation]) -> Iterator[AliasingEdge]:
    first_on: dict[str, str] = {}
    for operation in operations:
        yield from _edges_of(operation, first_on)


def _edges_of(operation: Operation, first_on: dict[str, str]) -> Iterator[AliasingEdge]:
    """Yield an operation's edges and note the first handle of each storage."""
    operands = operation.operands[::-1]  # the first operand of an object or a storage is the one that stays
    objects = {operand.object: operand for operand in operands}
    storages = {operand.storage.name: operand.name for operand in operands}
    kind = UPDATE_ALIASES if operation.target == UPDATE_ALIASES else IN_PLACE
    for result in operation.results:
        if result is None or result.is_state:
            continue
        place = result.storage.name
        same = objects.get(result.object)
        if same is not None:
            yield AliasingEdge(same.name, result.name, kind)
        if same is None or same.storage.name != place:
            if place in storages:
                yield AliasingEdge(storages[place], result.name, VIEW)
            elif place in first_on:
                yield AliasingEdge(first_on[place], result.name, SHARED)
        first_on.setdefault(place, result.name)


@dataclass(frozen=True, slots=True)
class ViewGroup:
    """Handles that may share memory: a connected component of the aliasing edges.

    Parameters
    ----------
    name : str
        ``"group0"``, counted in program order.
    values : tuple of Value
        The handles, in program order.
    storages : tuple of Storage
        Where they lie; several where an object moved from one to another.
    is_written, is_reshaped : bool
        Whether an operation writes the bytes, or changes the geometry, of one of them.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4,4] @s0 obj0 = input()
    ... %row: f32[4] @s0 obj1 = aten.select.int(%x, 0, 0)
    ... output(%row)
    ... ''')
    >>> (group,) = find_view_groups(program)
    >>> group.base, group.is_shared, group.is_written
    (%x: f32[4, 4] @s0 obj0, True, False)
    """

    name: str
    values: tuple[Value, ...]
    storages: tuple[Storage, ...]
    is_written: bool
    is_reshaped: bool

    @property
    def base(self) -> Value:
        """The handle that was there first."""
        return self.values[0]

    @property
    def is_shared(self) -> bool:
        """Whether there is more than one tensor object in it."""
        return any(value.object != self.base.object for value in self.values)


def find_view_groups(program: Program) -> tuple[ViewGroup, ...]:
    """Return the view groups: connected components of the aliasing edges.

    Every handle is in exactly one group, one that aliases no other in a group of its own. Handles of storages without
    bytes (random generators, the outside world) are in none.

    Parameters
    ----------
    program : Program

    Returns
    -------
    tuple of ViewGroup
        In the order of their first handles.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4,4] @s0 obj0 = input()
    ... %row: f32[4] @s0 obj1 = aten.select.int(%x, 0, 0)
    ... %exp_1: f32[4] @s1 obj2 = aten.exp.default(%row) reads(%row)
    ... %add__1: f32[4] @s0 obj1 = aten.add_.Tensor(%row!, 1) reads(%row)
    ... output(%x)
    ... ''')
    >>> for group in find_view_groups(program):
    ...     print(group.name, [value.name for value in group.values], group.is_written)
    group0 ['x', 'row', 'add__1'] True
    group1 ['exp_1'] False
    """
    require_program(program, "find_view_groups")
    operations = program.operations
    handles = [value for op in operations for value in op.results if value and value.dtype != "state"]
    written = {op.operands[i].storage.name for op in operations if op.writes for i in op.writes}
    reshaped = {op.operands[i].storage.name for op in operations if op.reshapes for i in op.reshapes}
    home = _joined_storages(handles) if reshaped else {}  # objects move by changes of geometry only
    members: dict[str, list[Value]] = {}
    for value in handles:
        name = value.storage.name
        members.setdefault(home.get(name, name), []).append(value)
    return tuple(
        ViewGroup(f"group{i}", tuple(values), *_of_storages(values, written, reshaped))
        for i, values in enumerate(members.values())
    )


def _of_storages(values: list[Value], written: set[str], reshaped: set[str]) -> tuple[tuple[Storage, ...], bool, bool]:
    """Return the storages of a group's handles, and whether one is written or an object on it reshaped."""
    first = values[0].storage
    if len(values) == 1:
        return (first,), first.name in written, first.name in reshaped
    storages = {value.storage.name: value.storage for value in values}
    return tuple(storages.values()), not written.isdisjoint(storages), not reshaped.isdisjoint(storages)


def _joined_storages(handles: Iterable[Value]) -> dict[str, str]:
    """Return, for the storages that an object moved between, the one that stands for them.

    Every handle is joined by aliasing edges to the first one of its storage, so handles need no graph of their own.
    """
    last: dict[str, str] = {}
    moves = nx.Graph()
    for value in handles:
        before = last.setdefault(value.object, value.storage.name)
        if before != value.storage.name:
            moves.add_edge(before, value.storage.name)
            last[value.object] = value.storage.name
    return {name: min(component) for component in nx.connected_components(moves) for name in component}
