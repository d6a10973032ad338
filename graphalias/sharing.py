"""A handle in another's place: what is made of it moves along, if nobody can tell.

*Nobody can tell* two tensors from one where neither is written while the other is still to be used, and only one of
them can be seen when the program is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphalias.draft import Touch
from graphalias.graph import Operation, Value
from graphalias.moves import Refused, Site, describe, end_bytes, place_of, whose
from graphalias.overlap import byte_range, footprint, footprints_overlap


class Move:
    """A handle that other memory, or another object, takes the place of; and all that is made of it."""

    def __init__(self, site: Site, old: Value, new: Value, made: Mapping[str, Value], others: Sequence[Move]) -> None:
        self.site, self.old, self.new, self.made, self.others = site, old, new, made, others
        self.draft = site.draft
        self.shift = new.offset - old.offset
        self.is_fresh = new.storage.name in made
        self.derived = {old.name: old}
        self.users: dict[str, Operation] = {}
        self.is_written = False
        self._derive()
        self._refuse_identity()
        if old.storage.name != new.storage.name:
            self._refuse_remains()
            self._refuse_sight()
            self._refuse_conflicts()

    def value(self, value: Value, new: Value) -> Value:
        """Return a derived handle as it is from now on, given the one that takes the place."""
        object_ = new.object if value.object == self.old.object else value.object
        return replace(value, storage=new.storage, offset=value.offset + self.shift, object=object_)

    def _derive(self) -> None:
        waiting = [self.old]
        while waiting:
            for user in self.draft.users(waiting.pop()):
                if user.name in self.users or user.name in self.site.inside:
                    continue
                self.users[user.name] = user
                for result in user.results:
                    if result is not None and result.storage.name == self.old.storage.name:
                        self.derived[result.name] = result
                        waiting.append(result)

    @property
    def returned(self) -> list[Value]:
        """The derived handles among the outputs."""
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
        if place in self.site.storages:
            others = [name for name in self.site.outputs if name not in self.derived]
            handles = [r for op in self.site.matched for r in op.results if r and r.name in others]
            if any(handle.storage.name == place for handle in handles):
                raise Refused(f"%{old.name} would no longer share memory with another result")
            return
        if self.draft.is_lasting(old):
            raise Refused(f"%{old.name} is memory of {whose(old)}, and would no longer be")
        keys = {footprint(value.access) for value in self.derived.values()}
        for operation, touch in self.site.later(place):
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
                raise Refused(f"%{name} is returned, and would share memory with {whose(new)}")
            others = [value for value in self.draft.returned_on(new.storage.name) if value.name not in self.derived]
            if others:
                raise Refused(f"%{name} is returned, and would share memory with %{others[0].name}")
        before = self.site.storages.get(self.old.storage.name) or self.draft.base(self.old.storage.name)
        after = self.made.get(new.storage.name) or self.draft.base(new.storage.name)
        is_resized = not {self.old.storage.name, new.storage.name}.isdisjoint(self.draft.resized)
        if self.shift or is_resized or before is None or after is None or end_bytes(before) != end_bytes(after):
            raise Refused(f"%{name} is returned, and would lie on memory of another size")

    def _refuse_conflicts(self) -> None:
        """Refuse where one of the two is written and the other used after that."""
        touches = [
            (user, touch) for user in self.users.values() for touch in self.draft.touches(user)
            if touch.value.name in self.derived and touch.key.place == self.old.storage.name
        ]  # fmt: skip
        self.is_written = any(touch.is_write for _, touch in touches)
        if self.is_written and self.draft.is_lasting(self.new):
            raise Refused(f"%{self.old.name} is written later, and would be memory of {whose(self.new)}")
        twins = [move for move in self.others if move.new.storage.name == self.new.storage.name]
        if self.is_written and twins:
            raise Refused(f"%{self.old.name} is written later, and would share memory with %{twins[0].old.name}")
        if any(twin.is_written for twin in twins if twin.old.storage.name != self.old.storage.name):
            raise Refused(f"%{twins[0].old.name} is written later, and would share memory with %{self.old.name}")
        if self.is_fresh:
            return
        others = [value for value in self.draft.returned_on(self.new.storage.name) if value.name not in self.derived]
        for user, touch in touches:
            here = touch._replace(key=footprint(self.value(touch.value, self.new).access))
            for value in others:
                if touch.is_write and footprints_overlap(here.key, footprint(value.access)):
                    raise Refused(f"%{value.name} is returned, and {place_of(user)} would write it")
            for other, theirs in self.site.later_conflicts(here):
                first, second = (user, other) if self.draft.comes_before(user.name, other.name) else (other, user)
                if user is other:
                    raise Refused(f"{place_of(user)} would take the memory it writes through another tensor, too")
                if (touch if first is user else theirs).is_write:
                    raise Refused(f"{place_of(first)} would write what {place_of(second)} uses, through another tensor")
        for value in self.returned:
            read = Touch(value, footprint(self.value(value, self.new).access), False)
            for other, _ in self.site.later_conflicts(read):
                raise Refused(f"%{value.name} is returned, and {place_of(other)} would write it")
