"""Whether a replacement can be seen from outside: through an intermediate, the memory it writes, or what shares it.

A rule says that two pieces of code compute the same. Whether they also do the same to memory is decided here, for one
place of one program, from accesses and handles alone, so that no rule can get it wrong. Put side by side the matched
operations are one piece of code with inputs, results and writes. The replacement must

- write what they write, bytes that nobody reads any more aside,
- advance the same states,
- give results of the same geometry, on the same memory where that was there before, on new memory where it was new,
  unless nobody can tell.

*Nobody can tell* two tensors from one where neither is written while the other is still to be used, and only one of
them can be seen when the program is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from graphalias.draft import Draft, Touch
from graphalias.graph import Operation, Storage, Value
from graphalias.moves import Refused, describe, late_operations, made_objects, made_storages, place_of
from graphalias.overlap import Footprint, byte_range, footprint, footprint_covers, footprints_overlap
from graphalias.text import print_type


@dataclass(frozen=True)
class Proposal:
    """What a rule wants to do at one place.

    Parameters
    ----------
    matched : tuple of Operation
        What it takes out. One that is in ``made`` too is kept.
    made : tuple of Operation
        What it puts in, with names of their own.
    outputs : mapping of str to Value
        By the name of a matched operation's result: what takes its place.
    inputs : tuple of tuple of Value
        The handles the rule takes to be on memory of their own, as far as it writes them: one group for each memory.
    """

    matched: tuple[Operation, ...]
    made: tuple[Operation, ...]
    outputs: Mapping[str, Value]
    inputs: tuple[tuple[Value, ...], ...] = ()


@dataclass(frozen=True)
class Plan:
    """How to do it: what `Draft.replace` takes."""

    matched: tuple[str, ...]
    made: tuple[Operation, ...]
    late: list[str]
    renamed: dict[str, Value]


def plan_replacement(draft: Draft, proposal: Proposal) -> Plan:
    """Return how to put a replacement in, if nobody outside can tell.

    Raises
    ------
    Refused
        With the reason.
    """
    return _Review(draft, proposal).plan()


class _Review:
    """One look at one proposal."""

    def __init__(self, draft: Draft, proposal: Proposal) -> None:
        self.draft, self.made = draft, proposal.made
        names = draft.in_order({operation.name for operation in proposal.matched})
        self.matched = [draft.operations[name] for name in names]
        self.inputs, self.outputs = proposal.inputs, dict(proposal.outputs)
        self.inside = set(names)
        self.kept = self.inside & {operation.name for operation in proposal.made}
        self.old_storages, self.new_storages = made_storages(self.matched), made_storages(self.made)
        self.old_objects, self.new_objects = made_objects(self.matched), made_objects(self.made)
        self.late: list[str] = []
        self.storages: dict[str, Storage] = {}  # what a new storage is called from now on
        self.objects: dict[str, str] = {}
        self.adapted: dict[str, Value] = {}
        self.moved: list[_Moved] = []

    def plan(self) -> Plan:
        self.late = late_operations(self.draft, self.matched)
        self._compare_states()
        self._complete_outputs()
        results = {r.name: r for operation in self.matched for r in operation.results if r}
        pairs = [(results[name], new) for name, new in self.outputs.items()]
        for old, new in pairs:
            if not old.is_state:
                self._take_place(old, new)
        self._compare_writes()
        renamed: dict[str, Value] = {}
        for move in self.moved:
            renamed |= {name: move.value(value) for name, value in move.derived.items()}
        renamed |= {old.name: self._adapted(new) for old, new in pairs}
        made = tuple(self._adapt(operation) for operation in self.made)
        return Plan(tuple(self.inside), made, self.late, renamed)

    def _compare_states(self) -> None:
        """The same states are advanced, in the same order."""
        old = [state.storage.name for operation in self.matched for state in operation.states]
        new = [state.storage.name for operation in self.made for state in operation.states]
        if old != new:
            raise Refused(f"the pattern advances {old or 'no state'}, the replacement {new or 'no state'}")

    def _complete_outputs(self) -> None:
        """What is not an output can't be used outside; a name of an object from outside is replaced by its newest."""
        newest = {r.object: r for operation in self.made for r in operation.results if r}
        outer = {value.object: value for operation in reversed(self.matched) for value in operation.operands}
        for operation in self.matched:
            if operation.name in self.kept:
                continue
            for result in operation.results:
                if result is None or result.is_state or result.name in self.outputs:
                    continue
                users = [user for user in self.draft.users(result) if user.name not in self.inside]
                if not users:
                    continue
                if result.object in self.old_objects:
                    how = "returned" if users[0].name == "output" else f"used by {place_of(users[0])}"
                    raise Refused(f"%{result.name}, an intermediate, is {how}")
                self.outputs[result.name] = newest.get(result.object, outer[result.object])

    def _take_place(self, old: Value, new: Value) -> None:
        """Let a handle take another's place, or say why that would be seen."""
        if _seen_as(old) != _seen_as(new):
            raise Refused(f"%{old.name} is {print_type(old)}, the replacement's is {print_type(new)}")
        is_new = old.storage.name in self.old_storages
        if is_new and new.storage.name in self.new_storages:
            self._rename_storage(old, new)
        elif old.storage.name != new.storage.name:
            self.moved.append(_Moved(self, old, new))
        elif old.offset != new.offset:
            raise Refused(f"%{old.name} begins at {old.offset}, the replacement's at {new.offset} of the same memory")
        elif old.object not in self.old_objects:
            if old.object != new.object:
                raise Refused(f"%{old.name} would be another tensor object than {old.object}")
        elif new.object in self.new_objects:
            self._rename_object(old, new)
        else:
            self.moved.append(_Moved(self, old, new))

    def _rename_storage(self, old: Value, new: Value) -> None:
        """Two new storages: the replacement's takes the other's name, so that views made of it stay right."""
        if old.offset != new.offset:
            raise Refused(f"%{old.name} begins at {old.offset} of its memory, the replacement's at {new.offset}")
        known = self.storages.setdefault(new.storage.name, old.storage)
        others = [name for name, storage in self.storages.items() if storage.name == old.storage.name]
        if known.name != old.storage.name or others != [new.storage.name]:
            raise Refused(f"%{old.name} would share memory with other results than it does")
        sizes = [_end_bytes(old, self.old_storages), _end_bytes(new, self.new_storages)]
        if sizes[0] != sizes[1]:
            raise Refused(f"%{old.name} lies on {sizes[0]} bytes, the replacement's on {sizes[1]}")
        self._rename_object(old, new)

    def _rename_object(self, old: Value, new: Value) -> None:
        known = self.objects.setdefault(new.object, old.object)
        if known != old.object or list(self.objects.values()).count(old.object) > 1:
            raise Refused(f"%{old.name} would be the same tensor object as other results, or no longer be")

    def _compare_writes(self) -> None:
        """What outlives the matched operations is written as it was, bytes aside that nobody sees."""
        old = _writes(self.matched, self.draft.touches, self.old_storages)
        new = _writes(self.made, self.draft.touches_of, self.new_storages)
        for key, touch in chain(old.items(), new.items()):
            self._refuse_overlap(key, touch)
        for key, touch in new.items():
            if not any(footprint_covers(other, key) for other in old):
                own = [move.derived for move in self.moved if move.old.storage.name == key.place]
                self._refuse_seen(key, touch, own, "would write")
        gone = [move.derived for move in self.moved if move.new.storage.name != move.old.storage.name]
        for key, touch in old.items():
            if not any(footprint_covers(other, key) for other in new):
                self._refuse_seen(key, touch, gone, "would no longer write")

    def _refuse_overlap(self, key: Footprint, touch: Touch) -> None:
        """Refuse where what is written meets two inputs: a rule is written for inputs on memory of their own."""
        met = [group for group in self.inputs if any(footprints_meet(key, footprint(v.access)) for v in group)]
        if len(met) > 1:
            names = " and ".join(f"%{group[0].name}" for group in met)
            raise Refused(f"{names} overlap where %{touch.value.name} is written")

    def _refuse_seen(self, key: Footprint, touch: Touch, derived: list[dict[str, Value]], what: str) -> None:
        """Refuse a write too many, or one too few, of bytes that somebody still uses or sees."""
        known = set(chain.from_iterable(derived))
        value = touch.value
        if self.draft.is_lasting(value):
            raise Refused(f"it {what} %{value.name}, memory of {_whose(value)}")
        for operation, other in self.later(key.place):
            if other.value.name not in known and footprints_overlap(key, other.key):
                raise Refused(f"it {what} %{value.name}, and {place_of(operation)} {describe(other)}")
        for other_value in self.draft.returned_on(key.place):
            if other_value.name not in known:
                raise Refused(f"it {what} %{value.name}, and %{other_value.name} on that memory is returned")

    def later(self, place: str) -> Iterator[tuple[Operation, Touch]]:
        """Yield every touch of a place that comes after the replacement."""
        for name in self.late:
            for touch in self.draft.touches(self.draft.operations[name]):
                if touch.key.place == place:
                    yield self.draft.operations[name], touch
        yield from self.draft.touching(place, self.matched[-1].name)

    def later_conflicts(self, touch: Touch) -> Iterator[tuple[Operation, Touch]]:
        """Yield what comes after the replacement and has an order with a touch."""
        for name in self.late:
            for other in self.draft.touches(self.draft.operations[name]):
                if touch.conflicts(other):
                    yield self.draft.operations[name], other
        yield from self.draft.conflicting(touch, self.matched[-1].name)

    def _adapted(self, value: Value) -> Value:
        """Return a handle of the replacement with the names that its storage and object have from now on."""
        storage = self.storages.get(value.storage.name, value.storage)
        object_ = self.objects.get(value.object, value.object)
        if storage is value.storage and object_ == value.object:
            return value
        if value.name not in self.adapted:
            self.adapted[value.name] = replace(value, storage=storage, object=object_)
        return self.adapted[value.name]

    def _adapt(self, operation: Operation) -> Operation:
        results = tuple(result and self._adapted(result) for result in operation.results)
        renamed = operation.rename(self._adapted)
        is_same = all(mine is theirs for mine, theirs in zip(results, operation.results, strict=True))
        return renamed if is_same else renamed.replace(results=results)


class _Moved:
    """A handle that other memory, or another object, takes the place of; and all that is made of it."""

    def __init__(self, review: _Review, old: Value, new: Value) -> None:
        self.review, self.old, self.new = review, old, new
        self.draft = review.draft
        self.shift = new.offset - old.offset
        self.is_fresh = new.storage.name in review.new_storages
        self.derived = {old.name: old}
        self.users: dict[str, Operation] = {}
        self.is_written = False
        self._derive()
        self._refuse_identity()
        if old.storage.name != new.storage.name:
            self._refuse_remains()
            self._refuse_sight()
            self._refuse_conflicts()

    def value(self, value: Value) -> Value:
        """Return a derived handle as it is from now on."""
        object_ = self.new.object if value.object == self.old.object else value.object
        new = self.review._adapted(self.new)
        return replace(value, storage=new.storage, offset=value.offset + self.shift, object=object_)

    def _derive(self) -> None:
        waiting = [self.old]
        while waiting:
            for user in self.draft.users(waiting.pop()):
                if user.name in self.users or user.name in self.review.inside:
                    continue
                self.users[user.name] = user
                for result in user.results:
                    if result is not None and result.storage.name == self.old.storage.name:
                        self.derived[result.name] = result
                        waiting.append(result)

    @property
    def returned(self) -> list[Value]:
        return [value for value in self.draft.output.operands if value.name in self.derived]

    def _refuse_identity(self) -> None:
        """Refuse where it can be seen that a tensor object is another one."""
        objects = {value.object for value in self.derived.values()} | {self.new.object}
        if not objects.isdisjoint(self.draft.reshaped):
            raise Refused(f"the geometry of %{self.old.name}, or of %{self.new.name}, changes elsewhere")
        returned = [value for value in self.returned if value.object == self.old.object]
        if returned and self.old.storage.name == self.new.storage.name:
            raise Refused(f"%{returned[0].name} is returned, and would be the same object as %{self.new.name}")
        low, high = byte_range(self.old.access)
        spans = [byte_range(value.access) for value in self.derived.values()]
        if any(start < end and not (low <= start and end <= high) for start, end in spans):
            raise Refused(f"a view of %{self.old.name} reaches beyond it")
        if self.shift and len(objects - {self.new.object}) > 1:
            raise Refused(f"views of %{self.old.name} count their offset from its first element")

    def _refuse_remains(self) -> None:
        """Refuse where the memory that is left is still used by others."""
        old, place = self.old, self.old.storage.name
        if place in self.review.old_storages:
            others = [name for name in self.review.outputs if name not in self.derived]
            handles = [r for op in self.review.matched for r in op.results if r and r.name in others]
            if any(handle.storage.name == place for handle in handles):
                raise Refused(f"%{old.name} would no longer share memory with another result")
            return
        if self.draft.is_lasting(old):
            raise Refused(f"%{old.name} is memory of {_whose(old)}, and would no longer be")
        keys = {footprint(value.access) for value in self.derived.values()}
        for operation, touch in self.review.later(place):
            is_own = touch.value.name in self.derived
            if not is_own and any(footprints_overlap(key, touch.key) for key in keys):
                raise Refused(f"{place_of(operation)} {describe(touch)}, which shares memory with %{old.name}")
        for value in self.draft.returned_on(place):
            if value.name not in self.derived:
                raise Refused(f"%{value.name}, which shares memory with %{old.name}, is returned")

    def _refuse_sight(self) -> None:
        """Refuse where what is returned would share memory with something else, or lie on more or less of it."""
        if not self.returned:
            return
        name, new = self.returned[0].name, self.new
        if not self.is_fresh:
            if self.draft.is_lasting(new):
                raise Refused(f"%{name} is returned, and would share memory with {_whose(new)}")
            others = [value for value in self.draft.returned_on(new.storage.name) if value.name not in self.derived]
            if others:
                raise Refused(f"%{name} is returned, and would share memory with %{others[0].name}")
        before = self.review.old_storages.get(self.old.storage.name) or self.draft.base(self.old.storage.name)
        after = self.review.new_storages.get(new.storage.name) or self.draft.base(new.storage.name)
        is_resized = not {self.old.storage.name, new.storage.name}.isdisjoint(self.draft.resized)
        if self.shift or is_resized or before is None or after is None or _end(before) != _end(after):
            raise Refused(f"%{name} is returned, and would lie on memory of another size")

    def _refuse_conflicts(self) -> None:
        """Refuse where one of the two is written and the other used after that."""
        touches = [
            (user, touch) for user in self.users.values() for touch in self.draft.touches(user)
            if touch.value.name in self.derived and touch.key.place == self.old.storage.name
        ]  # fmt: skip
        self.is_written = any(touch.is_write for _, touch in touches)
        if self.is_written and self.draft.is_lasting(self.new):
            raise Refused(f"%{self.old.name} is written later, and would be memory of {_whose(self.new)}")
        twins = [move for move in self.review.moved if move.new.storage.name == self.new.storage.name]
        if self.is_written and twins:
            raise Refused(f"%{self.old.name} is written later, and would share memory with %{twins[0].old.name}")
        if any(twin.is_written for twin in twins if twin.old.storage.name != self.old.storage.name):
            raise Refused(f"%{twins[0].old.name} is written later, and would share memory with %{self.old.name}")
        if self.is_fresh:
            return
        for user, touch in touches:
            here = touch._replace(key=footprint(self.value(touch.value).access))
            for other, theirs in self.review.later_conflicts(here):
                first, second = (user, other) if self.draft.comes_before(user.name, other.name) else (other, user)
                if user is other:
                    raise Refused(f"{place_of(user)} would take the memory it writes through another tensor, too")
                if (touch if first is user else theirs).is_write:
                    raise Refused(f"{place_of(first)} would write what {place_of(second)} uses, through another tensor")
        for value in self.returned:
            read = Touch(value, footprint(self.value(value).access), False)
            for other, _ in self.review.later_conflicts(read):
                raise Refused(f"%{value.name} is returned, and {place_of(other)} would write it")


def footprints_meet(a: Footprint, b: Footprint) -> bool:
    """Whether two footprints, of whatever places, may have a byte in common."""
    return a.place == b.place and footprints_overlap(a, b)


def _writes(
    operations: Iterable[Operation], touches_of: Callable[[Operation], Iterable[Touch]], own: Mapping[str, Value]
) -> dict[Footprint, Touch]:
    """Return what operations write of memory that is not their own."""
    found = (touch for operation in operations if operation.writes for touch in touches_of(operation))
    return {t.key: t for t in found if t.is_write and not t.value.is_state and t.key.place not in own}


def _seen_as(value: Value) -> tuple[object, ...]:
    return (value.dtype, value.shape, value.stride, value.device, value.conj, value.neg)


def _end(value: Value) -> int:
    return byte_range(value.access)[1]


def _end_bytes(value: Value, storages: Mapping[str, Value]) -> int:
    return _end(storages[value.storage.name])


def _whose(value: Value) -> str:
    return f"an {value.storage.lifetime}" if value.storage.lifetime == "input" else f"a {value.storage.lifetime}"
