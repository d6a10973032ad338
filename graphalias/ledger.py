"""The bookkeeping behind every pass: the last writers of each place, and the readers since.

One walk in program order answers what an access must wait for, without any reachability search. Note *log*: an
object remembers until when its newest name is known to carry everything (a time), and the entries of a place are kept
in the order of their last change, so that reading one base again after N views were written once looks at what is new
only. Note *groups*: readers of a base that many partial writers each must wait for are handed out as one group, so that
N readers and N writers cost 2N, not N^2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, repeat, takewhile
from typing import NamedTuple

from graphalias.graph import CONSTANT, INPUT, RAW, WAR, WAW, Access, Operation, Program, whole
from graphalias.overlap import Footprint, footprint, footprint_covers
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


class Since(NamedTuple):
    """Times from which on writers, and readers, are to be looked at. The second is never the later."""

    writers: int
    readers: int


EVER = Since(0, 0)


class Entry:
    """What happened to one set of bytes: its last writer, the readers since, and when it last changed."""

    __slots__ = ("access", "changed", "key", "readers", "writer", "written")

    def __init__(self, key: Footprint, access: Access) -> None:
        self.key = key
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
        self.keys: dict[Access, Footprint] = {}
        self.uses = {op.name: tuple(self._uses_of(op)) for op in program.operations if op.is_compute}
        self.near = overlapping_keys(use for uses in self.uses.values() for use in uses)
        self.live: dict[str, dict[Footprint, Entry]] = {}

    def _uses_of(self, operation: Operation) -> Iterator[Use]:
        for value, access, is_write in operation.effects:
            key = self.keys.get(access) or self.keys.setdefault(access, footprint(access))
            if key.run_bytes:
                yield Use(value.object, key, access, is_write)
        if self.reshaped:
            for name in dict.fromkeys(value.object for value in operation.operands):
                if name in self.reshaped:
                    access = whole(name)
                    yield Use(name, footprint(access), access, False)

    def conflicts(self, use: Use, since: Since = EVER) -> Iterator[Conflict]:
        """Yield what a use must follow: the last writers and, for a write, the readers."""
        for entry in self._overlapping(use.key, since.readers if use.is_write else since.writers):
            if entry.writer is not None and entry.written >= since.writers:
                yield Conflict(entry.writer, WAW if use.is_write else RAW, entry.access)
            if use.is_write and entry.readers:
                yield from self._readers(use, entry, since.readers)

    def _readers(self, use: Use, entry: Entry, since: int) -> Iterator[Conflict]:
        """Yield the readers that a write must follow, the latest first; see note *groups*."""
        if self.with_groups and len(entry.readers) >= GROUP_SIZE and not footprint_covers(use.key, entry.key):
            entry.readers = [(entry.readers[-1][0], Group(reader for _, reader in entry.readers))]
        for time, reader in reversed(entry.readers):
            if time < since:
                break
            yield Conflict(reader, WAR, entry.access)

    def record(self, operation: Operation, time: int, since: Iterable[Since] | None = None) -> None:
        """Note what an operation at a time reads and writes. Times grow from call to call.

        ``since`` says for each use what needs no look: what the operation is known to follow already.
        """
        uses = self.uses[operation.name]
        writes = [use for use in uses if use.is_write]
        for use, known in zip(uses, since or repeat(EVER)):  # noqa: B905  # repeats for ever
            if use.is_write:
                self._forget_covered(use, known.readers)
        for use in writes:
            entry = self._touch(use, time)
            entry.writer, entry.written = operation.name, time
        for use in uses:
            if not use.is_write:
                entry = self._touch(use, time)
                if entry.written < time and not (entry.readers and entry.readers[-1][0] == time):
                    entry.readers.append((time, operation.name))

    def writers_in(self, places: Iterable[str]) -> Iterator[Conflict]:
        """Yield the last writers of everything in some places, as whoever reads all of it needs them."""
        for place in places:
            for entry in self.live.get(place, {}).values():
                if entry.writer is not None:
                    yield Conflict(entry.writer, RAW, entry.access)

    def _overlapping(self, key: Footprint, since: int) -> list[Entry]:
        """Return the entries that overlap and changed at a time or later; see note *log*."""
        live, near = self.live.get(key.place), self.near[key]
        if not live:
            return []
        recent = takewhile(lambda entry: entry[1].changed >= since, reversed(live.items()))
        walked = list(islice(recent, len(near) + 1))
        if len(walked) <= len(near):
            return [entry for other, entry in reversed(walked) if other in near]
        return [live[other] for other in near if other in live and live[other].changed >= since]

    def _touch(self, use: Use, time: int) -> Entry:
        live = self.live.setdefault(use.key.place, {})
        entry = live.pop(use.key, None) or Entry(use.key, use.access)
        entry.changed = time
        live[use.key] = entry
        return entry

    def _forget_covered(self, use: Use, since: int) -> None:
        """Drop the entries whose bytes are all written now: who needs them needs only this write."""
        live = self.live.get(use.key.place, {})
        for entry in self._overlapping(use.key, since):
            if footprint_covers(use.key, entry.key):
                del live[entry.key]


def overlapping_keys(uses: Iterable[Use]) -> dict[Footprint, dict[Footprint, None]]:
    """Return, for every key, the keys of the same place whose bytes overlap its own (itself included)."""
    places: dict[str, dict[Footprint, Access]] = {}
    for use in uses:
        places.setdefault(use.key.place, {}).setdefault(use.key, use.access)
    near: dict[Footprint, dict[Footprint, None]] = {}
    for keyed in places.values():
        keys = list(keyed)
        if len(keys) == 1:
            near[keys[0]] = dict.fromkeys(keys)
            continue
        pairs = overlapping_pairs(list(keyed.values()))
        near.update({key: {keys[other]: None for other in pairs[i]} for i, key in enumerate(keys)})
    return near


def outliving_places(program: Program) -> list[str]:
    """Return the places that can be seen after the program: storages, and objects whose geometry can be."""
    results = [(op.target, value) for op in program.operations for value in op.results if value]
    lasting = [value for target, value in results if target in (INPUT, CONSTANT)]
    objects = dict.fromkeys(value.object for value in (*lasting, *program.output.operands))
    finally_ = {value.object: value for _, value in results}
    storages = [value.storage.name for value in (*lasting, *(finally_[name] for name in objects))]
    return [*dict.fromkeys(storages), *objects]
