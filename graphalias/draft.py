"""A program while it is rewritten: operations in order, who uses what, and who touches which memory.

A `Program` is built once; here an operation is put in or taken out in a few steps, whatever the program's size.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from graphalias.folding import counted_alike
from graphalias.graph import CONSTANT, INPUT, OUTPUT, Access, Operation, Program, Value, whole
from graphalias.overlap import Footprint, footprint, footprints_overlap

#: Between the positions of neighbours there is room for what takes their place; when it is used up, all are renumbered.
GAP = 1 << 40


class Touch(NamedTuple):
    """An access of an operation, keyed by its bytes."""

    value: Value
    key: Footprint
    is_write: bool

    def conflicts(self, other: Touch) -> bool:
        """Whether the two have an order: common bytes, of which one is written."""
        is_near = (self.is_write or other.is_write) and self.key.place == other.key.place
        return is_near and footprints_overlap(self.key, other.key)


class Draft:
    """The operations of a program, in an order that changes.

    Parameters
    ----------
    program : Program
        Without `update_aliases`: in its own order it is right.

    Examples
    --------
    >>> import graphalias
    >>> draft = Draft(graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %exp_1: f32[4] @s1 obj1 = aten.exp.default(%x) reads(%x)
    ... %log_1: f32[4] @s2 obj2 = aten.log.default(%exp_1) reads(%exp_1)
    ... output(%log_1)
    ... '''))
    >>> exp = draft.operations["exp_1"]
    >>> draft.fresh("exp"), [user.name for user in draft.users(exp.results[0])]
    ('exp', ['log_1'])
    """

    def __init__(self, program: Program) -> None:
        self.operations: dict[str, Operation] = {}
        self.program, self.bindings = program, program.bindings
        self.reshaped = {op.operands[i].object for op in program.operations for i in op.reshapes}
        moving = [value for op in program.operations if op.reshapes for value in (*op.operands, *op.results) if value]
        self.resized = {value.storage.name for value in moving}
        self._next: dict[str, str] = {}
        self._previous: dict[str, str] = {}
        self._key: dict[str, int] = {}
        self._producer: dict[str, str] = {}
        self._users: dict[str, dict[str, None]] = {}
        self._touches: dict[str, tuple[Touch, ...]] = {}
        self._where: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}  # of each operation: places, those written
        self._footprints: dict[Access, Footprint] = {}
        self._toucher: dict[str, list[str]] = {}  # of each place, in order
        self._writers: dict[str, list[str]] = {}
        self._taken: set[str] = {OUTPUT, *program.graph}
        self._counts: dict[str, int] = {}
        self._base: dict[str, Value] = {}  # of each storage: its first handle
        last = ""
        for operation in program.operations:
            self._insert(operation, last)
            last = operation.name

    def __iter__(self) -> Iterator[str]:
        name = self._next.get("")
        while name:
            yield name
            name = self._next.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self.operations

    @property
    def output(self) -> Operation:
        """The output node."""
        return self.operations[OUTPUT]

    def has(self, value: Value) -> bool:
        """Whether an operation results in a handle of that name."""
        return value.name in self._producer

    def producer(self, value: Value) -> Operation:
        """Return the operation that results in a handle."""
        return self.operations[self._producer[value.name]]

    def users(self, value: Value) -> list[Operation]:
        """Return the operations that take a handle, in order."""
        return [self.operations[name] for name in self.in_order(self._users.get(value.name, ()))]

    def is_used(self, value: Value) -> bool:
        """Whether any operation takes a handle."""
        return bool(self._users.get(value.name))

    def comes_before(self, one: str, other: str) -> bool:
        """Whether an operation comes before another one."""
        return self._key[one] < self._key[other]

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Return the names in program order."""
        return sorted(names, key=self._key.__getitem__)

    def touches(self, operation: Operation) -> tuple[Touch, ...]:
        """Return what an operation of the draft reads and writes, geometries that change included."""
        return self._touches[operation.name]

    def touches_of(self, operation: Operation) -> tuple[Touch, ...]:
        """Return what any operation reads and writes."""
        found = [Touch(value, self._footprint(access), is_write) for value, access, is_write in operation.effects]
        if self.reshaped:
            objects = {value.object: value for value in operation.operands if value.object in self.reshaped}
            found += [Touch(value, self._footprint(whole(name)), False) for name, value in objects.items()]
        return tuple(touch for touch in found if touch.key.run_bytes)

    def _footprint(self, access: Access) -> Footprint:
        if access not in self._footprints:
            self._footprints[access] = footprint(access)
        return self._footprints[access]

    def conflicting(self, touch: Touch, after: str, before: str | None = None) -> Iterator[tuple[Operation, Touch]]:
        """Yield what, after one operation and before another, has an order with a touch; latest to the end."""
        names = (self._toucher if touch.is_write else self._writers).get(touch.key.place, [])
        key = self._key.__getitem__
        end = len(names) if before is None else bisect_left(names, key(before), key=key)
        for name in names[bisect_right(names, key(after), key=key) : end]:
            for other in self._touches[name]:
                if touch.conflicts(other):
                    yield self.operations[name], other

    def touching(self, place: str, after: str) -> Iterator[tuple[Operation, Touch]]:
        """Yield every touch of a place after an operation, in order."""
        names, key = self._toucher.get(place, []), self._key.__getitem__
        for name in names[bisect_right(names, key(after), key=key) :]:
            for touch in self._touches[name]:
                if touch.key.place == place:
                    yield self.operations[name], touch

    def base(self, storage: str) -> Value | None:
        """Return the first handle of a storage."""
        return self._base.get(storage)

    @cached_property
    def counted_alike(self) -> set[str]:
        """The storages of the given program on which it counts offsets as the tensors do."""
        return counted_alike(self.program)

    def is_lasting(self, value: Value) -> bool:
        """Whether a handle's storage outlives the program, returned or not."""
        return value.storage.lifetime != "local"

    def returned_on(self, storage: str) -> list[Value]:
        """Return the returned handles of a storage."""
        return [value for value in self.output.operands if value.storage.name == storage]

    def fresh(self, base: str) -> str:
        """Return a name like ``base`` that nothing in the program has or had."""
        name = base
        while name in self._taken:
            self._counts[base] = self._counts.get(base, 0) + 1
            name = f"{base}_{self._counts[base]}"
        self._taken.add(name)
        return name

    def replace(
        self, matched: Collection[str], made: Sequence[Operation], late: Sequence[str], renamed: Mapping[str, Value]
    ) -> None:
        """Put operations where the last of those matched is, and behind them what must follow; rename handles.

        Parameters
        ----------
        matched, made
            What goes, and what comes.
        late
            Operations between the matched ones that go behind what comes.
        renamed
            By the name of a handle: what it is from now on, also where an operation results in it.
        """
        anchor = self._previous[self.in_order(matched)[-1]]
        while anchor in matched or anchor in late:
            anchor = self._previous[anchor]
        moved = [self.operations[name] for name in self.in_order(late)]
        for name in (*matched, *late):
            self._remove(name)
        for operation in (*made, *moved):
            self._insert(operation, anchor)
            anchor = operation.name
        touched = {user for name in renamed for user in self._users.get(name, ())}
        touched |= {self._producer[name] for name in renamed if name in self._producer}
        for name in self.in_order(touched):
            self._renew(name, renamed)

    def erase_unused(self, values: Iterable[Value]) -> list[Operation]:
        """Take out operations that made these handles if nobody uses what they made and they did nothing else."""
        erased, waiting = [], [value for value in values if value.name in self._producer]
        while waiting:
            value = waiting.pop()
            operation = self.operations.get(self._producer.get(value.name, ""))
            if operation is None or operation.target in (INPUT, CONSTANT):
                continue
            does = operation.writes or operation.states or operation.reshapes
            if not does and not any(result and self.is_used(result) for result in operation.results):
                self._remove(operation.name)
                erased.append(operation)
                waiting += operation.operands
        return erased

    def _renew(self, name: str, renamed: Mapping[str, Value]) -> None:
        """Rename an operation's operands and results, where they are."""
        operation, anchor = self.operations[name], self._previous[name]
        changed = [v for v in (*operation.operands, *operation.states, *operation.results) if v and v.name in renamed]
        new = operation.rename(lambda value: renamed.get(value.name, value))
        if any(value.name in renamed for value in operation.results if value):
            results = tuple(result and renamed.get(result.name, result) for result in operation.results)
            new = new.replace(results=results)
        elif all(value.geometry == renamed[value.name].geometry for value in changed):
            self._touches[name] = tuple(
                touch._replace(value=renamed.get(touch.value.name, touch.value)) for touch in self._touches[name]
            )
            self.operations[name] = new
            for value in changed:
                self._users[value.name].pop(name, None)
                self._users.setdefault(renamed[value.name].name, {})[name] = None
            return
        self._remove(name)
        self._insert(new, anchor)

    def _insert(self, operation: Operation, after: str) -> None:
        name, behind = operation.name, self._next.get(after, "")
        self._next[after], self._previous[name] = name, after
        if behind:
            self._next[name], self._previous[behind] = behind, name
        low = self._key.get(after, 0)
        high = self._key[behind] if behind else low + 2 * GAP
        self._key[name] = (low + high) // 2
        self.operations[name] = operation
        if self._key[name] == low:
            self._key.update((other, (i + 1) * GAP) for i, other in enumerate(self))
        for value in (*operation.operands, *operation.states):
            self._users.setdefault(value.name, {})[name] = None
        for result in filter(None, operation.results):
            self._producer[result.name] = name
            self._base.setdefault(result.storage.name, result)
            self._taken |= {result.name, result.storage.name, result.object}
        touches = self._touches[name] = self.touches_of(operation)
        places = tuple({touch.key.place for touch in touches})
        self._where[name] = places, tuple({touch.key.place for touch in touches if touch.is_write})
        for index, place in self._indexed(name):
            names = index.setdefault(place, [])
            names.insert(bisect_left(names, self._key[name], key=self._key.__getitem__), name)

    def _remove(self, name: str) -> None:
        operation = self.operations[name]
        for index, place in self._indexed(name):
            names = index[place]
            del names[bisect_left(names, self._key[name], key=self._key.__getitem__)]
        for value in (*operation.operands, *operation.states):
            self._users[value.name].pop(name, None)
        for result in filter(None, operation.results):
            if self._producer.get(result.name) == name:
                del self._producer[result.name]
            if self._base.get(result.storage.name) is result:
                del self._base[result.storage.name]
        before, behind = self._previous.pop(name), self._next.pop(name, "")
        if behind:
            self._next[before], self._previous[behind] = behind, before
        else:
            del self._next[before]
        del self.operations[name], self._touches[name], self._where[name], self._key[name]

    def _indexed(self, name: str) -> Iterator[tuple[dict[str, list[str]], str]]:
        places, written = self._where[name]
        yield from ((self._toucher, place) for place in places)
        yield from ((self._writers, place) for place in written)
