"""The bookkeeping behind every pass: the last writers of each place, and the readers since.

One walk in program order answers what an access must wait for, without any reachability search. Note *log*: an
object remembers until when its newest name is known to carry everything (a time), and the entries of a place are kept
in the order of their last change, so that reading one base again after N views were written once looks at what is new
only. Note *groups*: readers of a base that many partial writers each must wait for are handed out as one group, so that
N readers and N writers cost 2N, not N^2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from typing import NamedTuple

from graphalias.graph import RAW, WAR, WAW, Access, Operation, Program, whole
from graphalias.overlap import Footprint, covers, footprint
from graphalias.sweep import overlapping_pairs

#: From how many readers on a group is made of them.
GROUP_SIZE = 16


class Group:
    """Operations that several others must wait for together."""

    def __init__(self, members: Iterable[str | Group]) -> None:
        self.members = tuple(members)


class Conflict(NamedTuple):
    """An earlier operation (or a group of them) that an access must follow."""

    operation: str | Group
    reason: str
    access: Access


class Use(NamedTuple):
    """How an operation uses one object: its access of bytes or geometry, keyed by its bytes."""

    object: str
    key: Footprint
    access: Access
    is_write: bool


class Entry:
    """What happened to one set of bytes: its last writer, the readers since, and when it last changed."""

    __slots__ = ("access", "changed", "readers", "writer", "written")

    def __init__(self, access: Access) -> None:
        self.access = access
        self.writer: str | None = None
        self.written = -1
        self.readers: list[tuple[int, str | Group]] = []
        self.changed = -1


class Ledger:
    """Last writers and readers since, for every place of a program.

    Parameters
    ----------
    program : Program
        Its accesses are looked at once, to know which of them overlap.
    with_groups : bool
        Whether many readers may be handed out as a `Group`.
    """

    def __init__(self, program: Program, *, with_groups: bool = False) -> None:
        self.with_groups = with_groups
        #: Objects whose geometry some operation writes; of others nothing need be noted.
        self.reshaped = {op.operands[i].object for op in program.operations for i in op.reshapes}
        self.uses = {op.name: tuple(self._uses_of(op)) for op in program.operations if op.is_compute}
        self.near = overlapping_keys(use for uses in self.uses.values() for use in uses)
        self.live: dict[str, dict[Footprint, Entry]] = {}

    def _uses_of(self, operation: Operation) -> Iterator[Use]:
        for value, access, is_write in operation.effects:
            key = footprint(access)
            if key.run_bytes:
                yield Use(value.object, key, access, is_write)
        if self.reshaped:
            for name in dict.fromkeys(value.object for value in operation.operands):
                if name in self.reshaped:
                    access = whole(name)
                    yield Use(name, footprint(access), access, False)

    def conflicts(self, use: Use, writers_since: int = 0, readers_since: int = 0) -> Iterator[Conflict]:
        """Yield what a use must follow: writers from a time on and, for a write, readers from another time on."""
        since = readers_since if use.is_write else writers_since
        for entry in self._overlapping(use.key, since):
            if entry.writer is not None and entry.written >= writers_since:
                yield Conflict(entry.writer, WAW if use.is_write else RAW, entry.access)
            if use.is_write and entry.readers:
                if self.with_groups and len(entry.readers) >= GROUP_SIZE and not covers(use.access, entry.access):
                    entry.readers = [(entry.readers[-1][0], Group(reader for _, reader in entry.readers))]
                for time, reader in reversed(entry.readers):
                    if time < readers_since:
                        break
                    yield Conflict(reader, WAR, entry.access)

    def record(self, operation: Operation, time: int, readers_since: dict[Use, int] | None = None) -> None:
        """Note what an operation at a time reads and writes. Times grow from call to call."""
        uses = sorted(self.uses[operation.name], key=lambda use: not use.is_write)
        for use in uses:
            if use.is_write:
                self._forget_covered(use, readers_since[use] if readers_since else 0)
        for use in uses:
            entry = self._touch(use, time)
            if use.is_write:
                entry.writer, entry.written = operation.name, time
            elif entry.written < time and not (entry.readers and entry.readers[-1][0] == time):
                entry.readers.append((time, operation.name))

    def writers_in(self, places: Iterable[str]) -> Iterator[Conflict]:
        """Yield the last writers of everything in some places, as whoever reads all of it needs them."""
        for place in places:
            for entry in self.live.get(place, {}).values():
                if entry.writer is not None:
                    yield Conflict(entry.writer, RAW, entry.access)

    def _overlapping(self, key: Footprint, since: int) -> list[Entry]:
        """Return the entries that overlap and changed at a time or later; see note *log*."""
        live, near = self.live.get(key.place, {}), self.near[key]
        recent = takewhile(lambda entry: entry[1].changed >= since, reversed(live.items()))
        walked = list(islice(recent, len(near) + 1))
        if len(walked) <= len(near):
            return [entry for other, entry in reversed(walked) if other in near]
        return [live[other] for other in near if other in live and live[other].changed >= since]

    def _touch(self, use: Use, time: int) -> Entry:
        live = self.live.setdefault(use.key.place, {})
        entry = live.pop(use.key, None) or Entry(use.access)
        entry.changed = time
        live[use.key] = entry
        return entry

    def _forget_covered(self, use: Use, since: int) -> None:
        """Drop the entries whose bytes are all written now: who needs them needs only this write."""
        live = self.live.get(use.key.place, {})
        for entry in self._overlapping(use.key, since):
            if covers(use.access, entry.access):
                del live[footprint(entry.access)]


def overlapping_keys(uses: Iterable[Use]) -> dict[Footprint, dict[Footprint, None]]:
    """Return, for every key, the keys of the same place whose bytes overlap its own (itself included)."""
    places: dict[str, dict[Footprint, Access]] = {}
    for use in uses:
        places.setdefault(use.key.place, {}).setdefault(use.key, use.access)
    near: dict[Footprint, dict[Footprint, None]] = {}
    for keyed in places.values():
        keys = list(keyed)
        pairs = overlapping_pairs(list(keyed.values()))
        near.update({key: {keys[other]: None for other in pairs[i]} for i, key in enumerate(keys)})
    return near
