"""The `update_aliases` nodes after which every topological order is valid.

One walk in program order. For each operation:

1. The *ledger* knows which earlier operations touched the bytes that it touches: those it must follow.
2. The *names* of its operands know which of them they come after anyway. What is left is a *need*.
3. Before the operation a node renames the operand for which something is left, and waits for that.
4. The operation takes the newest names of its operands, its accesses go into the ledger, its results become names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from graphalias.errors import HazardError
from graphalias.graph import CONSTANT, INPUT, OUTPUT, UPDATE_ALIASES, After, Operation, Program, require_program
from graphalias.hazards import hazards
from graphalias.joins import Pending, emit
from graphalias.ledger import Conflict, Group, Ledger, outliving_places
from graphalias.names import Carried, Names, Need, keep_strongest


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
    require_program(program, "insert_update_aliases")
    return _Inserter(program).run()


def refuse_hazards(program: Program, *, consequence: str) -> None:
    """Raise where a program has hazards. Where `insert_update_aliases` adds nothing, that needs no search.

    Raises
    ------
    HazardError
        It names the first of them, and what would come of going on.
    """
    hazard = None if adds_nothing(program) else next(hazards(program), None)
    if hazard:
        raise HazardError(
            str(hazard), node=hazard.after, location=hazard.locations[1],
            hint=f"run insert_update_aliases first; with hazards, {consequence}",
        )  # fmt: skip


def adds_nothing(program: Program) -> bool:
    """Whether `insert_update_aliases` would leave a program as it is: it has no hazards then.

    Not every program without hazards is left so: the pass doesn't search for paths, and adds an edge beside a long one.
    """
    inserter = _Inserter(program)
    for time, operation in enumerate(program.operations):
        inserter.take(operation, time)
        if len(inserter.operations) > time + 1 or inserter.operations[-1] is not operation:
            return False
    return True


class _Inserter:
    """One walk over a program that renames operands and inserts nodes."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.ledger = Ledger(program, with_groups=True)
        self.names: dict[str, Names] = {}  # of each object
        self.nodes: dict[str, Carried] = {}  # of each `update_aliases` that was there already
        self.producer: dict[str, Operation] = {}  # of each handle
        self.taken = set(program.graph)
        self.count = 0
        self.operations: list[Operation] = []  # the new program, where the nodes' ``after`` is still pending
        self.pending: Pending = {}

    def run(self) -> Program:
        self.walk()
        return self.program.replace_operations(emit(self.operations, self.pending, self.taken))

    def walk(self) -> None:
        for time, operation in enumerate(self.program.operations):
            self.take(operation, time)

    def take(self, operation: Operation, time: int) -> None:
        """Add an operation of the program, and before it the nodes it needs."""
        if operation.target == UPDATE_ALIASES:
            self._keep_node(operation)
        elif operation.target == OUTPUT:
            self._finish(operation)
        else:
            self._visit(operation, time)

    def _visit(self, operation: Operation, time: int) -> None:
        """Take the four steps of this module for one operation."""
        needs = {value.object: Need(self.names[value.object]) for value in (*operation.operands, *operation.states)}
        uses = self.ledger.uses.get(operation.name, ())
        since = [needs[use.object].names.since(use.access) for use in uses]
        for use, known in zip(uses, since, strict=True):
            needs[use.object].look(use, known, self.ledger)
        self._meet(needs.values(), time)
        operation = operation.rename(lambda value: needs[value.object].newest)
        self._append(operation)
        if operation.is_compute:
            self.ledger.record(operation, time, since)
        for result in filter(None, operation.results):
            need = needs.get(result.object)
            if need is None:
                self.names[result.object] = Names(result, result, operation.name)
            elif need.writes or need.reshapes:  # otherwise it is returned as it was: any name of it serves
                need.names.follow(result, operation.name, time, writes=need.writes, reshapes=need.reshapes)

    def _meet(self, needs: Iterable[Need], time: int) -> None:
        """Insert the nodes that are needed before one operation."""
        waiting: dict[frozenset[str | Group], list[Need]] = {}
        direct: set[str] = set()
        for need in needs:
            direct.add(self.producer[need.newest.name].name)
            if need.newest is need.names.bytes:
                direct.add(need.names.producer)
            if need.conflicts:
                waiting.setdefault(frozenset(need.conflicts), []).append(need)
            else:
                need.settle(time)
        for conflicts, alike in waiting.items():
            if _is_within(conflicts, direct):
                continue  # another operand brings the order
            is_shared = all(self._may_share(need) for need in alike)
            for members in [alike] if is_shared else [[need] for need in alike]:
                self._insert(members, time)

    def _may_share(self, need: Need) -> bool:
        """Whether sharing a node with another object orders nothing that isn't ordered anyway."""
        producer = self.producer[need.names.bytes.name]
        return producer.target in (INPUT, CONSTANT) or producer.name in need.conflicts

    def _insert(self, needs: Sequence[Need], time: int) -> None:
        """Insert one node that renames the objects of some needs, all with the same conflicts."""
        name = self._new_name()
        operands = tuple(need.names.bytes for need in needs)
        names = [name] if len(needs) == 1 else [f"{name}.{i}" for i in range(len(needs))]
        results = tuple(replace(value, name=new) for value, new in zip(operands, names, strict=True))
        conflicts: dict[str | Group, Conflict] = {}
        for need in needs:
            for conflict in need.conflicts.values():
                keep_strongest(conflicts, conflict)
        self.pending[name] = tuple(
            (c.operation, After("", c.reason, (c.access, operands[0].access))) for c in conflicts.values()
        )
        self._append(Operation(name, UPDATE_ALIASES, args=operands, results=results))
        for need, result in zip(needs, results, strict=True):
            need.names.bytes = result
            for conflict in conflicts.values():
                need.names.carried.add(conflict.operation, conflict.reason)
            need.settle(time)

    def _new_name(self) -> str:
        self.count += 1
        while (name := f"{UPDATE_ALIASES}_{self.count}") in self.taken:
            self.count += 1
        self.taken.add(name)
        return name

    def _keep_node(self, node: Operation) -> None:
        """Keep a node that is there already: its results carry what it comes after."""
        node = node.rename(lambda value: self.names[value.object].bytes)
        self._append(node)
        carried = [self.names[result.object].carried for result in node.results if result]
        carried.append(self.nodes.setdefault(node.name, Carried()))
        for each in carried:
            each.add(node.name, None)
            for after in node.after:
                each.add(after.operation, after.reason)
                if after.operation in self.nodes:
                    each.include(self.nodes[after.operation])
        for result in filter(None, node.results):
            self.names[result.object].bytes = result

    def _finish(self, output: Operation) -> None:
        """Order the output after the last writers of everything that outlives the program."""
        output = output.rename(lambda value: self.names[value.object].bytes)
        direct = {self.producer[value.name].name for value in output.operands} | {a.operation for a in output.after}
        returned = {value.object for value in output.operands}  # by names that follow their geometry
        places = [place for place in outliving_places(self.program) if place not in returned]
        conflicts = {str(c.operation): c for c in self.ledger.writers_in(places)}
        missing = [After(name, c.reason, (c.access, c.access)) for name, c in conflicts.items() if name not in direct]
        if missing:
            position = {operation.name: i for i, operation in enumerate(self.operations)}
            after = sorted((*output.after, *missing), key=lambda after: position[after.operation])
            output = output.replace(after=tuple(after))
        self._append(output)

    def _append(self, operation: Operation) -> None:
        self.operations.append(operation)
        for result in operation.results:
            if result is not None:
                self.producer[result.name] = operation


def _is_within(conflicts: Iterable[str | Group], known: set[str]) -> bool:
    """Whether every conflict is with a known predecessor. A group larger than those needs no look."""
    return all(
        conflict in known
        if isinstance(conflict, str)
        else len(conflict.members) <= len(known) and _is_within(conflict.members, known)
        for conflict in conflicts
    )
