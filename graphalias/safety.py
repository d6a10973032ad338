"""Whether a replacement can be seen from outside: through an intermediate, the memory it writes, or what shares it.

A rule says that two pieces of code compute the same. Whether they also do the same to memory is decided here, for one
place of one program, from accesses and handles alone, so that no rule can get it wrong. Put side by side the matched
operations are one piece of code with inputs, results and writes. The replacement must

- write what they write, bytes that nobody reads any more aside,
- advance the same states,
- give results of the same geometry, on the same memory where that was there before, on new memory where it was new,
  unless nobody can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from graphalias.draft import Draft, Touch
from graphalias.graph import Operation, Storage, Value
from graphalias.moves import Refused, Site, describe, end_bytes, made_objects, made_storages, place_of, whose
from graphalias.overlap import Footprint, footprint, footprint_covers, footprints_overlap
from graphalias.sharing import Move
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
        self.site = Site(draft, self.matched, dict(proposal.outputs))
        self.inputs, self.outputs = proposal.inputs, self.site.outputs
        self.inside = self.site.inside
        self.kept = self.inside & {operation.name for operation in proposal.made}
        self.old_storages, self.new_storages = self.site.storages, made_storages(self.made)
        self.old_objects, self.new_objects = made_objects(self.matched), made_objects(self.made)
        self.storages: dict[str, Storage] = {}  # what a new storage is called from now on
        self.objects: dict[str, str] = {}
        self.adapted: dict[str, Value] = {}
        self.moved: list[Move] = []

    def plan(self) -> Plan:
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
            new = self._adapted(move.new)
            renamed |= {name: move.value(value, new) for name, value in move.derived.items()}
        renamed |= {old.name: self._adapted(new) for old, new in pairs}
        made = tuple(self._adapt(operation) for operation in self.made)
        return Plan(tuple(self.inside), made, self.site.late, renamed)

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
            self.moved.append(Move(self.site, old, new, self.new_storages, self.moved))
        elif old.offset != new.offset:
            raise Refused(f"%{old.name} begins at {old.offset}, the replacement's at {new.offset} of the same memory")
        elif old.object not in self.old_objects:
            if old.object != new.object:
                raise Refused(f"%{old.name} would be another tensor object than {old.object}")
        elif new.object in self.new_objects:
            self._rename_object(old, new)
        else:
            self.moved.append(Move(self.site, old, new, self.new_storages, self.moved))

    def _rename_storage(self, old: Value, new: Value) -> None:
        """Two new storages: the replacement's takes the other's name, so that views made of it stay right."""
        if old.offset != new.offset:
            raise Refused(f"%{old.name} begins at {old.offset} of its memory, the replacement's at {new.offset}")
        known = self.storages.setdefault(new.storage.name, old.storage)
        others = [name for name, storage in self.storages.items() if storage.name == old.storage.name]
        if known.name != old.storage.name or others != [new.storage.name]:
            raise Refused(f"%{old.name} would share memory with other results than it does")
        sizes = [end_bytes(self.old_storages[old.storage.name]), end_bytes(self.new_storages[new.storage.name])]
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
            raise Refused(f"it {what} %{value.name}, memory of {whose(value)}")
        for operation, other in self.site.later(key.place):
            if other.value.name not in known and footprints_overlap(key, other.key):
                raise Refused(f"it {what} %{value.name}, and {place_of(operation)} {describe(other)}")
        for other_value in self.draft.returned_on(key.place):
            if other_value.name not in known:
                raise Refused(f"it {what} %{value.name}, and %{other_value.name} on that memory is returned")

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


def footprints_meet(a: Footprint, b: Footprint) -> bool:
    """Whether two footprints, of whatever places, may have a byte in common."""
    return a.place == b.place and footprints_overlap(a, b)


def _writes(
    operations: Iterable[Operation], touches_of: Callable[[Operation], Iterable[Touch]], own: Mapping[str, Value]
) -> dict[Footprint, Touch]:
    """Return what operations write of memory that is not their own, the first of each bytes."""
    found: dict[Footprint, Touch] = {}
    for touch in (touch for operation in operations if operation.writes for touch in touches_of(operation)):
        if touch.is_write and not touch.value.is_state and touch.key.place not in own:
            found.setdefault(touch.key, touch)  # of the names of those bytes, the one that the program has, too
    return found


def _seen_as(value: Value) -> tuple[object, ...]:
    return (value.dtype, value.shape, value.stride, value.device, value.conj, value.neg)
