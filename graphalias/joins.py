"""Joining nodes: operations that several nodes must wait for together are waited for once.

N readers followed by N writers of the same bytes need N*N edges between them, or 2N through one `update_aliases` node
without operands: the readers before it, the writers after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator

from graphalias.graph import UPDATE_ALIASES, WAR, After, Operation
from graphalias.ledger import Group

#: What each new `update_aliases` node waits for, before groups are resolved.
Pending = dict[str, tuple["PendingAfter", ...]]
PendingAfter = tuple["str | Group", After]


def emit(operations: Iterable[Operation], pending: Pending, taken: set[str]) -> list[Operation]:
    """Return the operations with their pending ``after`` filled in, and joining nodes where they pay."""
    return list(_Emitter(pending, taken).emit(operations))


class _Emitter:
    def __init__(self, pending: Pending, taken: set[str]) -> None:
        self.pending, self.taken = pending, taken
        self.position: dict[str, int] = {}
        self.names: dict[object, str] = {}
        self.count = 0
        self.group_uses: Counter[Group] = Counter()
        for afters in pending.values():
            self._count_groups(operation for operation, _ in afters)
        self.flat = {name: self._flatten(afters) for name, afters in pending.items()}
        self.set_uses = Counter(_key(afters) for afters in self.flat.values() if len(afters) > 1)

    def _count_groups(self, members: Iterable[str | Group]) -> None:
        for member in members:
            if isinstance(member, Group):
                self.group_uses[member] += 1
                if self.group_uses[member] == 1:
                    self._count_groups(member.members)

    def _flatten(self, afters: Iterable[PendingAfter]) -> tuple[PendingAfter, ...]:
        """Replace every group that only one node needs by its members."""
        flat: list[PendingAfter] = []
        for operation, after in afters:
            if isinstance(operation, Group) and self.group_uses[operation] == 1:
                flat += self._flatten((member, after) for member in operation.members)
            else:
                flat.append((operation, after))
        return tuple(flat)

    def emit(self, operations: Iterable[Operation]) -> Iterator[Operation]:
        for operation in operations:
            if operation.name in self.flat:
                afters = self.flat[operation.name]
                if self.set_uses[_key(afters)] > 1:
                    name = yield from self._join(_key(afters), afters)
                    # what keeps a member alive keeps the join alive
                    strongest = next((after for _, after in afters if after.reason != WAR), afters[0][1])
                    afters = ((name, strongest),)
                operation = operation.replace(after=(yield from self._resolve(afters)))
            self.position[operation.name] = len(self.position)
            yield operation

    def _resolve(self, afters: Iterable[PendingAfter]) -> Generator[Operation, None, tuple[After, ...]]:
        """Yield the joining nodes that are needed first; return the ``after`` in program order."""
        resolved: dict[str, After] = {}
        for operation, after in afters:
            if isinstance(operation, Group):
                members = ((member, after) for member in operation.members)
                operation = yield from self._join(operation, members)
            if operation not in resolved or resolved[operation].reason == WAR:
                resolved[operation] = After(operation, after.reason, after.accesses)
        return tuple(sorted(resolved.values(), key=lambda after: self.position[after.operation]))

    def _join(self, key: object, members: Iterable[PendingAfter]) -> Generator[Operation, None, str]:
        """Yield the joining node of a set of operations if it isn't there yet; return its name."""
        if key not in self.names:
            resolved = yield from self._resolve(self._flatten(members))
            self.names[key] = name = self._name()
            self.position[name] = len(self.position)
            yield Operation(name, UPDATE_ALIASES, after=resolved)
        return self.names[key]

    def _name(self) -> str:
        self.count += 1
        while (name := f"join_{self.count}") in self.taken:
            self.count += 1
        self.taken.add(name)
        return name


def _key(afters: Iterable[PendingAfter]) -> frozenset[tuple[str | Group, str]]:
    return frozenset((operation, after.reason) for operation, after in afters)
