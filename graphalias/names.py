"""The newest names of an object, what is known to come before them, and what else a use of the object needs."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphalias.graph import WAR, Access, Value
from graphalias.ledger import EVER, Conflict, Group, Ledger, Since, Use


class Carried:
    """Operations that a name is known to come after, and whether it also keeps them alive.

    A WAR edge keeps nothing alive, so it is not enough for who reads what the operation wrote.
    """

    __slots__ = ("nodes", "operations", "size")

    def __init__(self) -> None:
        self.operations: dict[str | Group, bool] = {}
        self.nodes: list[Carried] = []
        self.size = 0

    def add(self, operation: str | Group, reason: str | None) -> None:
        """Note an operation; its reason is None where a value passes."""
        self.size += operation not in self.operations
        self.operations[operation] = self.operations.get(operation, False) or reason != WAR

    def include(self, node: Carried) -> None:
        """Note all that an `update_aliases` node carries, by reference: N names that share one take N steps, not N²."""
        self.nodes.append(node)
        self.size += node.size

    def holds(self, operation: str | Group, reason: str) -> bool:
        """Whether whoever must follow an operation for a reason already does."""
        keeps_alive = self.operations.get(operation)
        if keeps_alive or (keeps_alive is not None and reason == WAR):
            return True
        if any(node.holds(operation, reason) for node in reversed(self.nodes)):
            return True
        if isinstance(operation, str) or len(operation.members) > self.size:
            return False
        if holds_all := all(self.holds(member, reason) for member in operation.members):
            self.add(operation, reason)  # the next who asks needs no look at the members
        return holds_all


@dataclass(slots=True)
class Names:
    """The newest names of one object.

    Parameters
    ----------
    bytes, geometry : Value
        The newest name to use for the bytes, and to make views from.
    producer : str
        The operation that resulted in the newest name for the bytes, `update_aliases` on it set aside.
    carried : Carried
        Operations that the newest name for the bytes comes after.
    until : Since
        Every writer (reader) of the object's bytes from before is carried too, and need not be looked at again.
    """

    bytes: Value
    geometry: Value
    producer: str
    carried: Carried = field(default_factory=Carried)
    until: Since = EVER

    def __post_init__(self) -> None:
        self.carried.add(self.producer, None)

    def since(self, access: Access) -> Since:
        """Return from when on writers and readers are to be looked at. Of other bytes than the name's, all are."""
        return self.until if access == self.bytes.access else EVER

    def advance(self, time: int, *, writers: bool, readers: bool) -> None:
        """Note that all writers (readers) before a time are carried."""
        self.until = Since(time if writers else self.until.writers, time if readers else self.until.readers)

    def follow(self, result: Value, operation: str, time: int, *, writes: bool, reshapes: bool) -> None:
        """Take the name that a write, or a change of geometry, at a time results in."""
        is_same_bytes = result.access == self.bytes.access
        self.bytes, self.producer = result, operation
        self.carried.add(operation, None)
        if reshapes:
            self.geometry = result
        if not is_same_bytes:
            self.until = EVER  # who wrote the bytes it has now is not known
        elif writes:
            self.until = Since(time + 1, time + 1)


@dataclass(slots=True)
class Need:
    """What one operation needs before it may use one object."""

    names: Names
    conflicts: dict[str | Group, Conflict] = field(default_factory=dict)
    touches_bytes: bool = False
    writes: bool = False
    reshapes: bool = False

    @property
    def newest(self) -> Value:
        """The name to use: for bytes and for changing a geometry the newest; for a view that of the geometry."""
        return self.names.bytes if self.touches_bytes or self.reshapes else self.names.geometry

    def look(self, use: Use, since: Since, ledger: Ledger) -> None:
        """Add what a use of the object must follow, as far as it isn't known to."""
        is_geometry = use.key.place == use.object
        if is_geometry:
            self.reshapes |= use.is_write
        else:
            self.touches_bytes = True
            self.writes |= use.is_write
        for conflict in ledger.conflicts(use, since):
            if is_geometry and conflict.reason != WAR:
                continue  # the newest names follow the geometry's writers by themselves
            if not self.names.carried.holds(conflict.operation, conflict.reason):
                keep_strongest(self.conflicts, conflict)

    def settle(self, time: int) -> None:
        """Note that everything the use needs, up to now, is carried by the object's name."""
        self.names.advance(time, writers=self.touches_bytes, readers=self.writes)


def keep_strongest(conflicts: dict[str | Group, Conflict], conflict: Conflict) -> None:
    """Add a conflict. With one operation there may be two: a WAR edge keeps nothing alive, so the other is kept."""
    known = conflicts.get(conflict.operation)
    if known is None or known.reason == WAR:
        conflicts[conflict.operation] = conflict
