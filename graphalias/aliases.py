"""Hazards, and the `update_aliases` nodes after which every topological order is valid."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import networkx as nx

from graphalias.errors import HazardError
from graphalias.graph import (
    CONSTANT,
    INPUT,
    OUTPUT,
    RAW,
    UPDATE_ALIASES,
    WAR,
    Access,
    After,
    Operation,
    Program,
    Value,
)
from graphalias.joins import Pending, emit
from graphalias.ledger import Conflict, Group, Ledger, Use


def insert_update_aliases(program: Program) -> Program:
    """Return the program with the `update_aliases` nodes after which every topological order is valid.

    ``b1 = update_aliases(b) after(t0 RAW, t1 WAR)`` is the identity: the same tensor object under a new name, which
    depends on the operations in ``after``. Who uses ``b1`` runs after them. A node is placed before a read through a
    handle that is not the newest name of the bytes it reads, and before a write that earlier readers or writers of
    overlapping bytes are not yet ordered before. The output node is ordered after the last writers of everything that
    outlives the program.

    Parameters
    ----------
    program : Program
        In program order. It is left as it was.

    Returns
    -------
    Program
        Idempotent: a program without hazards gets no node. Near-linear in operations plus pairs of overlapping handles.

    Notes
    -----
    ``update_aliases`` was introduced by Lightning Thunder; what is ordered, and the linear bookkeeping, are this
    project's own.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %add_1: f32[4] @s1 obj1 = aten.add.Tensor(%x, 1) reads(%x)
    ... %mul__1: f32[4] @s0 obj0 = aten.mul_.Tensor(%x!, 2) reads(%x)
    ... output(%add_1)
    ... ''')
    >>> print(graphalias.insert_update_aliases(program))
    %x: f32[4] @s0 obj0 = input()
    %add_1: f32[4] @s1 obj1 = aten.add.Tensor(%x, 1) reads(%x)
    %update_aliases_1: f32[4] @s0 obj0 = update_aliases(%x) after(add_1 WAR)
    %mul__1: f32[4] @s0 obj0 = aten.mul_.Tensor(%update_aliases_1!, 2) reads(%update_aliases_1)
    output(%add_1) after(mul__1 RAW)
    <BLANKLINE>
    """
    return _Inserter(program).run()


@dataclass
class _Names:
    """The newest names of one object, and what they carry.

    ``producer`` is the operation that resulted in the newest name for the bytes, `update_aliases` on it set aside.
    ``carried`` are operations known to run before that name, ``alive`` those of them that it also keeps alive (by an
    edge that is not WAR). ``writers_until`` and ``readers_until`` are times: every writer (reader) of these bytes from
    before is carried too, and need not be looked at again.
    """

    bytes: Value
    geometry: Value
    producer: str
    carried: set[str]
    alive: set[str]
    writers_until: int = 0
    readers_until: int = 0

    @classmethod
    def of(cls, value: Value, producer: str) -> _Names:
        """Return the names of a new object."""
        return cls(value, value, producer, {producer}, {producer})

    def carry(self, operation: str, reason: str | None) -> None:
        """Note that an operation runs before the newest name."""
        self.carried.add(operation)
        if reason != WAR:
            self.alive.add(operation)


@dataclass
class _Need:
    """What one operation needs before it may use one object."""

    names: _Names
    conflicts: dict[str | Group, Conflict] = field(default_factory=dict)
    touches_bytes: bool = False
    writes: bool = False
    reshapes: bool = False


class _Inserter:
    """One walk over a program that renames operands and inserts nodes."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.ledger = Ledger(program, with_groups=True)
        self.names: dict[str, _Names] = {}
        self.joined: dict[str, dict[str, str]] = {}
        self.producer: dict[str, Operation] = {}
        self.taken = set(program.graph)
        self.count = 0
        self.pending: Pending = {}
        self.operations: list[Operation] = []

    def run(self) -> Program:
        for time, operation in enumerate(self.program.operations):
            if operation.target == UPDATE_ALIASES:
                self._pass_update_aliases(operation)
            elif operation.target == OUTPUT:
                self._finish(operation)
            else:
                self._visit(operation, time)
        return self.program.replace_operations(emit(self.operations, self.pending, self.taken))

    def _visit(self, operation: Operation, time: int) -> None:
        needs = self._needs(operation)
        since = {use: self._since(use, needs[use.object].names)[1] for use in self.ledger.uses.get(operation.name, ())}
        self._settle(needs, time)
        operation = operation.rename(lambda value: self._name_for(value, needs))
        self._append(operation)
        if operation.is_compute:
            self.ledger.record(operation, time, since)
        for result in filter(None, operation.results):
            self._name_result(operation, result, needs.get(result.object), time)

    def _needs(self, operation: Operation) -> dict[str, _Need]:
        """Return, for each object an operation uses, what is not yet known to run before."""
        needs = {value.object: _Need(self.names[value.object]) for value in (*operation.operands, *operation.states)}
        for use in self.ledger.uses.get(operation.name, ()):
            need = needs[use.object]
            if use.key.place == use.object:
                need.reshapes |= use.is_write
            else:
                need.touches_bytes, need.writes = True, need.writes or use.is_write
            for conflict in self._conflicts(use, need.names):
                carried = need.names.carried if conflict.reason == WAR else need.names.alive
                if not _is_within([conflict.operation], carried):
                    _keep_strongest(need.conflicts, conflict)
        return needs

    def _conflicts(self, use: Use, names: _Names) -> Iterator[Conflict]:
        is_geometry = use.key.place == use.object
        if is_geometry:  # the newest names follow the geometry's writers by themselves; only its readers are left
            yield from (c for c in self.ledger.conflicts(use) if use.is_write and c.reason == WAR)
        else:
            yield from self.ledger.conflicts(use, *self._since(use, names))

    def _since(self, use: Use, names: _Names) -> tuple[int, int]:
        """Return from when on writers and readers are to be looked at. Of other bytes than the name's, all are."""
        return (names.writers_until, names.readers_until) if use.access == names.bytes.access else (0, 0)

    def _settle(self, needs: dict[str, _Need], time: int) -> None:
        """Insert the nodes that are needed before one operation, and note what the names then carry."""
        direct = {need.names.producer for need in needs.values() if self._newest(need) is need.names.bytes}
        direct |= {self.producer[self._newest(need).name].name for need in needs.values()}
        groups: dict[frozenset[str | Group], list[_Need]] = {}
        for need in needs.values():
            if not need.conflicts:
                self._advance(need, time)
            elif not _is_within(need.conflicts, direct):
                groups.setdefault(frozenset(need.conflicts), []).append(need)
        for group in groups.values():
            shared = len(group) > 1 and all(self._is_free(need) for need in group)
            for members in [group] if shared else [[need] for need in group]:
                self._insert(members, time)

    def _is_free(self, need: _Need) -> bool:
        """Whether sharing a node with another object orders nothing that isn't ordered anyway."""
        producer = self.producer[need.names.bytes.name]
        return producer.target in (INPUT, CONSTANT) or producer.name in need.conflicts

    def _insert(self, members: list[_Need], time: int) -> None:
        self.count += 1
        while (name := f"{UPDATE_ALIASES}_{self.count}") in self.taken:
            self.count += 1
        self.taken.add(name)
        operands = tuple(need.names.bytes for need in members)
        names = [name] if len(members) == 1 else [f"{name}.{i}" for i in range(len(members))]
        results = tuple(replace(value, name=new) for value, new in zip(operands, names, strict=True))
        conflicts: dict[str | Group, Conflict] = {}
        for conflict in (conflict for need in members for conflict in need.conflicts.values()):
            _keep_strongest(conflicts, conflict)
        self.pending[name] = tuple(
            (c.operation, After("", c.reason, (c.access, operands[0].access))) for c in conflicts.values()
        )
        self._append(Operation(name, UPDATE_ALIASES, args=operands, results=results))
        for need, result in zip(members, results, strict=True):
            need.names.bytes = result
            for operation, conflict in conflicts.items():
                if isinstance(operation, str):
                    need.names.carry(operation, conflict.reason)
            self._advance(need, time)

    def _advance(self, need: _Need, time: int) -> None:
        """Note that everything a use needed, up to now, is carried by its name."""
        if need.touches_bytes:
            need.names.writers_until = time
        if need.writes:
            need.names.readers_until = time

    def _newest(self, need: _Need) -> Value:
        """Return the name to use: for bytes and for changing a geometry the newest; for a view that of the geometry."""
        return need.names.bytes if need.touches_bytes or need.reshapes else need.names.geometry

    def _name_for(self, value: Value, needs: dict[str, _Need]) -> Value:
        return self._newest(needs[value.object])

    def _name_result(self, operation: Operation, result: Value, need: _Need | None, time: int) -> None:
        if need is None:
            self.names[result.object] = _Names.of(result, operation.name)
            return
        names, bytes_before = need.names, need.names.bytes.access
        if not (need.reshapes or need.writes):
            return  # returned as it was: any name of it serves
        names.bytes, names.producer = result, operation.name
        names.carry(operation.name, None)
        if need.reshapes:
            names.geometry = result
        if result.access != bytes_before:
            names.writers_until = names.readers_until = 0  # who wrote the bytes it has now, is not known
        elif need.writes:
            names.writers_until = names.readers_until = time + 1

    def _pass_update_aliases(self, operation: Operation) -> None:
        """Keep a node that is there already: its results carry its ``after``."""
        carried: dict[str, str] = {}
        for after in operation.after:
            for earlier, reason in (*self.joined.get(after.operation, {}).items(), (after.operation, after.reason)):
                if carried.get(earlier, WAR) == WAR:
                    carried[earlier] = reason
        self.joined[operation.name] = carried
        operation = operation.rename(lambda value: self.names[value.object].bytes)
        self._append(operation)
        for result in filter(None, operation.results):
            names = self.names[result.object]
            names.bytes = result
            for earlier, reason in {**carried, operation.name: None}.items():
                names.carry(earlier, reason)

    def _finish(self, output: Operation) -> None:
        """Order the output after the last writers of everything that outlives the program."""
        output = output.rename(lambda value: self.names[value.object].bytes)
        direct = {self.producer[value.name].name for value in output.operands} | {a.operation for a in output.after}
        returned = {value.object for value in output.operands}  # by names that follow their geometry
        places = [place for place in outliving_places(self.program) if place not in returned]
        conflicts = {c.operation: c for c in self.ledger.writers_in(places)}
        missing = [After(c.operation, c.reason, (c.access, c.access)) for c in conflicts.values()]
        missing = [after for after in missing if after.operation not in direct]
        position = {operation.name: i for i, operation in enumerate(self.operations)}
        after = sorted((*output.after, *missing), key=lambda after: position[after.operation])
        self._append(output.replace(after=tuple(after)))

    def _append(self, operation: Operation) -> None:
        self.operations.append(operation)
        for result in filter(None, operation.results):
            self.producer[result.name] = operation


def _keep_strongest(conflicts: dict[str | Group, Conflict], conflict: Conflict) -> None:
    """Add a conflict. With one operation there may be two: a WAR edge keeps nothing alive, so the other is kept."""
    known = conflicts.get(conflict.operation)
    if known is None or known.reason == WAR:
        conflicts[conflict.operation] = conflict


def _is_within(conflicts: Iterable[str | Group], known: set[str]) -> bool:
    """Whether every conflict is with a known predecessor. A group larger than those needs no look."""
    return all(
        conflict in known
        if isinstance(conflict, str)
        else len(conflict.members) <= len(known) and _is_within(conflict.members, known)
        for conflict in conflicts
    )


def outliving_places(program: Program) -> list[str]:
    """Return the places that can be seen after the program: storages, and objects whose geometry can be."""
    lasting = [value for op in program.operations if op.target in (INPUT, CONSTANT) for value in op.results if value]
    objects = dict.fromkeys(value.object for value in (*lasting, *program.output.operands))
    finally_ = {value.object: value for op in program.operations for value in op.results if value}
    storages = [value.storage.name for value in (*lasting, *(finally_[name] for name in objects))]
    return [*dict.fromkeys(storages), *objects]


@dataclass(frozen=True)
class Hazard:
    """Two accesses that some topological order would run the wrong way round.

    Parameters
    ----------
    before, after : Operation
        In program order. No path joins them.
    reason : str
        ``RAW`` (a read that may come before the write), ``WAR`` (a write that may come before the read), ``WAW``.
    accesses : tuple of Access
        Of the earlier and the later operation.
    """

    before: str
    after: str
    reason: str
    accesses: tuple[Access, Access]
    locations: tuple[str | None, str | None] = (None, None)

    def __str__(self) -> str:
        names = [
            f"%{name} ({os.path.basename(at)})" if at else f"%{name}"
            for name, at in zip((self.before, self.after), self.locations, strict=True)
        ]
        return f"{self.reason}: {names[0]} must run before {names[1]}, but no path joins them"


def find_hazards(program: Program) -> tuple[Hazard, ...]:
    """Return the pairs of accesses that some topological order runs wrongly.

    Each access is compared with the last writers of its bytes (and geometry) and, for a write, the readers since.

    Parameters
    ----------
    program : Program

    Returns
    -------
    tuple of Hazard
        In program order of the later operation; empty after `insert_update_aliases`.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %add_1: f32[4] @s1 obj1 = aten.add.Tensor(%x, 1) reads(%x)  # model.py:3
    ... %mul__1: f32[4] @s0 obj0 = aten.mul_.Tensor(%x!, 2) reads(%x)  # model.py:4
    ... output(%add_1)
    ... ''')
    >>> for hazard in graphalias.find_hazards(program):
    ...     print(hazard)
    WAR: %add_1 (model.py:3) must run before %mul__1 (model.py:4), but no path joins them
    RAW: %mul__1 (model.py:4) must run before %output, but no path joins them
    """
    ledger = Ledger(program)
    position = {name: i for i, name in enumerate(program.graph)}
    hazards: list[Hazard] = []
    for time, operation in enumerate(program.operations):
        needed: dict[str, Hazard] = {}
        for earlier, reason, (before, later) in _required(program, ledger, operation):
            if earlier not in needed or needed[earlier].reason == WAR:
                locations = (program.operation(earlier).location, operation.location)
                needed[earlier] = Hazard(earlier, operation.name, reason, (before, later), locations)
        reached = _reaching(program.graph, operation.name, needed, position)
        hazards += [needed[name] for name in sorted(needed, key=position.__getitem__) if name not in reached]
        if operation.is_compute:
            ledger.record(operation, time)
    return tuple(hazards)


def _required(program: Program, ledger: Ledger, operation: Operation) -> Iterator[tuple]:
    """Yield what must run before an operation: (earlier operation, reason, accesses)."""
    if operation.target == OUTPUT:
        for conflict in ledger.writers_in(outliving_places(program)):
            yield conflict.operation, RAW, (conflict.access, conflict.access)
    for use in ledger.uses.get(operation.name, ()):
        for conflict in ledger.conflicts(use):
            yield conflict.operation, conflict.reason, (conflict.access, use.access)


def _reaching(graph: nx.DiGraph, target: str, sources: Iterable[str], position: dict[str, int]) -> set[str]:
    """Return the sources from which a path leads to the target; looks no further back than the earliest of them."""
    wanted, found = set(sources), set()
    frontier, seen = [target], {target}
    earliest = min((position[name] for name in wanted), default=0)
    while frontier and wanted:
        ahead = []
        for name in frontier:
            for other in graph.predecessors(name):
                if other not in seen and position[other] >= earliest:
                    seen.add(other)
                    ahead.append(other)
        found |= wanted & set(ahead)
        wanted -= found
        frontier = ahead
    return found


def eliminate_dead_operations(program: Program) -> Program:
    """Return the program without the operations whose effects nobody can see.

    An operation is live if the output is reached from it along DATA, RAW and WAW edges. A WAR edge keeps nothing alive.

    Parameters
    ----------
    program : Program
        Without hazards. It is left as it was.

    Returns
    -------
    Program
        Inputs and constants stay. An `update_aliases` left without purpose goes, its users take its operand.

    Raises
    ------
    HazardError
        If the program has hazards: mutations that no path leads from would be deleted.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %mul_1: f32[4] @s1 obj1 = aten.mul.Tensor(%x, 2) reads(%x)
    ... %neg__1: f32[4] @s1 obj1 = aten.neg_.default(%mul_1!) reads(%mul_1)
    ... output(%x)
    ... ''')
    >>> print(graphalias.eliminate_dead_operations(program))
    %x: f32[4] @s0 obj0 = input()
    output(%x)
    <BLANKLINE>
    """
    if hazards := find_hazards(program):
        raise HazardError(
            f"{len(hazards)} hazards, the first: {hazards[0]}",
            node=hazards[0].after, location=hazards[0].locations[1],
            hint="run insert_update_aliases first; with hazards, mutations would be deleted",
        )  # fmt: skip
    keeping = nx.subgraph_view(
        program.graph, filter_edge=lambda before, after: program.graph.edges[before, after]["reason"] != WAR
    )
    live = nx.ancestors(keeping, OUTPUT) | {OUTPUT}
    for operation in reversed(program.operations):  # a joining node keeps nothing alive, but joins what is
        if operation.target == UPDATE_ALIASES and not operation.operands:
            live |= {operation.name} if not live.isdisjoint(program.graph.successors(operation.name)) else set()
    return program.replace_operations(_without_dead(program, live))


def _without_dead(program: Program, live: set[str]) -> Iterator[Operation]:
    """Yield the live operations; those after a dead one no longer are, and empty `update_aliases` are skipped."""
    renamed: dict[str, Value] = {}
    kept: set[str] = set()
    for operation in program.operations:
        if operation.name not in live and operation.target not in (INPUT, CONSTANT):
            continue
        after = tuple(after for after in operation.after if after.operation in kept)
        if operation.target == UPDATE_ALIASES and not after:
            results = [result for result in operation.results if result]
            renamed |= {r.name: renamed.get(v.name, v) for r, v in zip(results, operation.operands, strict=True)}
            continue
        kept.add(operation.name)
        changed = any(value.name in renamed for value in operation.operands)
        if changed or len(after) != len(operation.after):
            operation = operation.rename(lambda value: renamed.get(value.name, value))  # noqa: B023  # called here
            operation = operation.replace(after=after)
        yield operation
