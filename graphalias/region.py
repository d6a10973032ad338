"""One fusion region: what enters it, what it writes, what it returns, and what is done again outside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from graphalias.graph import INPUT, OUTPUT, REGION, UPDATE_ALIASES, After, Operation, Program, Storage, Value
from graphalias.growing import Geometry
from graphalias.stages import is_view


class Region:
    """The operations of a region, and how they look from outside.

    Inside, `update_aliases` is a renaming, and handles of the same geometry are one input where that sharing is
    guarded. What the region makes is
    returned fresh and whole; a view of it that is used outside is made again there. A handle it writes is its own
    result.

    Attributes
    ----------
    operations : list of Operation
        The members, in program order.
    again : list of Operation
        Those that are done again outside: views of what the region makes, `update_aliases` that others wait for.
    renamed : dict of str to Value
        What a name given inside is called outside.
    node : Operation
        The region as one operation.
    """

    def __init__(self, program: Program, name: str, operations: list[Operation]) -> None:
        self.name, self.operations = name, operations
        self._members = {operation.name for operation in operations}
        self._graph = program.graph
        self._written_storages = {value.storage.name for op in program.operations for value in op.written}
        self._inputs: dict[tuple[object, ...], Value] = {}
        self._entered: dict[str, Value] = {}  # by object: its first handle from outside
        self._inner: dict[str, Value] = {}  # by outer name
        self._made: dict[str, Value] = {}  # by storage: its first handle
        self._views: dict[str, Value] = {}  # by object: its first handle, of views made inside
        self._written: dict[str, Value] = {}  # by object from outside: the last name given inside
        self._read_geometries: set[Geometry] = set()
        self._written_geometries: set[Geometry] = set()
        self._body: list[Operation] = []
        for operation in operations:
            self._absorb(operation)
        self.renamed = dict(self._renames())
        self._needed = self._used_outside()
        self.again = self._done_again()
        self.node = self._as_operation()

    @property
    def absorbed(self) -> set[str]:
        """The members that are no longer nodes: an edge from one of them is one from the region."""
        return self._members - {operation.name for operation in self.again}

    def _absorb(self, operation: Operation) -> None:
        """Note what an operation brings in and makes, and add it to the body."""
        for operand in operation.operands:
            if operand.name not in self._inner:
                self._enter(operand)
        if operation.target == UPDATE_ALIASES:
            for operand, renamed in zip(operation.operands, operation.results, strict=True):
                if renamed is not None:
                    self._inner[renamed.name] = self._inner[operand.name]
            return
        for result in filter(None, operation.results):
            self._note_result(operation, result)
        for value, access, is_write in operation.effects:
            if access.place not in self._made:
                (self._written_geometries if is_write else self._read_geometries).add(value.geometry)
        results = tuple(self._inner[result.name] if result else None for result in operation.results)
        inner = operation.rename(lambda value: self._inner[value.name])
        self._body.append(inner.replace(results=results, after=()))

    def _enter(self, value: Value) -> None:
        inside = replace(value, storage=Storage(value.storage.name, INPUT))
        self._inner[value.name] = self._inputs.setdefault(self._input_key(value), inside)
        self._entered.setdefault(value.object, value)

    def _input_key(self, value: Value) -> tuple[object, ...]:
        """Return what makes two handles one input: their geometry, where a call can't come that tells them apart.

        Who shares memory that nothing writes is not guarded: the next call may bring two tensors.
        """
        is_guarded = value.storage.lifetime == "local" or value.storage.name in self._written_storages
        return value.geometry if is_guarded else (*value.geometry, value.object)

    def _note_result(self, operation: Operation, result: Value) -> None:
        operand = next((value for value in operation.operands if value.object == result.object), None)
        self._inner[result.name] = result
        if is_view(operation):
            self._views[result.object] = result
        elif operand is None:
            self._made.setdefault(result.storage.name, result)
        elif result.storage.name not in self._made:
            self._written[result.object] = result
            entered = self._inner[operand.name]
            self._inner[result.name] = replace(result, object=entered.object, storage=entered.storage)

    def _renames(self) -> Iterator[tuple[str, Value]]:
        for operation in self.operations:
            for result in filter(None, operation.results):
                if operation.target != UPDATE_ALIASES:
                    made = self._views.get(result.object) or self._made.get(result.storage.name)
                    yield result.name, made or self._written[result.object]

    def _used_outside(self) -> list[Value]:
        """Return the handles given inside that operations outside use."""
        users = (user for name in self._members for user in self._graph.successors(name) if user not in self._members)
        operands = {value.name for user in dict.fromkeys(users) for value in self._graph.nodes[user]["op"].operands}
        return [r for op in self.operations for r in op.results if r and r.name in operands]

    def _done_again(self) -> list[Operation]:
        again: list[Operation] = []
        for operation in reversed(self.operations):
            results = [result for result in operation.results if result]
            if is_view(operation):
                is_needed = not {v.object for v in self._needed}.isdisjoint(result.object for result in results)
            elif operation.target == UPDATE_ALIASES and operation.operands:
                is_needed = not {v.name for v in self._needed}.isdisjoint(result.name for result in results)
            else:  # a joining node is needed where something outside waits for it
                users = self._graph.successors(operation.name)
                is_needed = operation.target == UPDATE_ALIASES and not self._members.issuperset(users)
            if is_needed:
                again.append(operation)
                self._needed += operation.operands
        return again[::-1]

    def _as_operation(self) -> Operation:
        used = {self.renamed.get(value.name, value).name for value in self._needed}
        fresh = [base for base in self._made.values() if base.name in used]
        kept = [value for value in self._written.values() if value.name in used]
        operands = [self._entered[value.object] for value in self._inputs.values()]
        # other objects on memory that is written: their memory enters through another handle, their versions count
        known = {operand.object for operand in operands}
        operands += [self._entered[v.object] for v in self._written.values() if v.object not in known]
        return Operation(
            self.name, REGION, tuple(operands), results=(*fresh, *kept),
            reads=tuple(i for i, value in enumerate(operands) if value.geometry in self._read_geometries),
            writes=tuple(i for i, value in enumerate(operands) if value.geometry in self._written_geometries),
            after=tuple(self._after()), body=self._program(fresh),
        )  # fmt: skip

    def _after(self) -> Iterator[After]:
        """Yield the order edges that come from outside. A joining node inside stands for what it joins."""
        joins = {op.name: op.after for op in self.operations if op.target == UPDATE_ALIASES and not op.operands}
        waiting = [edge for op in self.operations if op.name not in joins for edge in op.after]
        while waiting:
            edge = waiting.pop()
            if edge.operation in joins:
                waiting += joins[edge.operation]
            elif edge.operation not in self._members:
                yield edge

    def _program(self, fresh: list[Value]) -> Program:
        inputs = [Operation(value.name, INPUT, results=(value,)) for value in self._inputs.values()]
        newest = {value.object: value for op in self._body for value in op.results if value}
        outputs = tuple(newest[value.object] for value in fresh)
        return Program([*inputs, *self._body, Operation(OUTPUT, OUTPUT, outputs)], name=self.name)
