"""Operations: what is called, with which handles, and what it reads, writes and reshapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from graphalias.values import Access, Value, map_values, values_in, whole

RAW, WAR, WAW = "RAW", "WAR", "WAW"

INPUT, CONSTANT, OUTPUT, UPDATE_ALIASES = "input", "constant", "output", "update_aliases"
REGION = "region"


@dataclass(frozen=True, slots=True)
class After:
    """An ORDER edge to an operation: what must have run before, and why.

    Parameters
    ----------
    operation : str
        Name of an earlier operation.
    reason : str
        ``RAW`` (it wrote what is now read), ``WAR`` (it read what is now written), ``WAW``.
    accesses : tuple of Access, optional
        The earlier and the later access. The text form leaves them out.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %add__1: f32[4] @s0 obj0 = aten.add_.Tensor(%x!, 1) reads(%x)
    ... output(%x) after(add__1 RAW)
    ... ''')
    >>> program.output.after
    (After(operation='add__1', reason='RAW', accesses=None),)
    """

    operation: str
    reason: str
    accesses: tuple[Access, Access] | None = None


class Effect(NamedTuple):
    """One access of an operation, through one of its operands."""

    value: Value
    access: Access
    is_write: bool


@dataclass(frozen=True, eq=False)
class Operation:
    """One node of the program.

    Parameters
    ----------
    name : str
        Unique in the program.
    target : str
        ``"aten.add_.Tensor"``, or one of ``input``, ``constant``, ``output``, ``update_aliases``. Only executors
        resolve it.
    args, kwargs
        Handles, numbers, strings, None, lists, slices, Symbols.
    results : tuple of Value or None
        The tensors it returns, flattened; the states it advanced come last. None where it returns None.
    reads, writes, reshapes : tuple of int
        Positions in `operands` whose bytes are read, whose bytes are written, and whose object's geometry is written.
    states : tuple of Value
        Newest handles of the storages without bytes it touches: implicit operands, not passed to the target.
    after : tuple of After
        Operations that must run before, though no value passes.
    location : str, optional
        ``file:line`` in the user's code.
    body : Program, optional
        Of a fusion region: its operations. The body's inputs are the first arguments, its outputs the first results.

    Examples
    --------
    >>> from graphalias import Storage
    >>> x = Value("x", "f32", (4,), storage=Storage("s0"), object="obj0")
    >>> y = Value("add__1", "f32", (4,), storage=Storage("s0"), object="obj0")
    >>> add = Operation("add__1", "aten.add_.Tensor", (x, 1), results=(y,), reads=(0,), writes=(0,))
    >>> add.written, add.result_of(x)
    ((%x: f32[4] @s0 obj0,), %add__1: f32[4] @s0 obj0)
    """

    name: str
    target: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[Value | None, ...] = ()
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    reshapes: tuple[int, ...] = ()
    states: tuple[Value, ...] = ()
    after: tuple[After, ...] = ()
    location: str | None = None
    body: Any = None

    @cached_property
    def operands(self) -> tuple[Value, ...]:
        """The handles among the arguments, in order."""
        return (*values_in(self.args), *values_in(self.kwargs))

    @property
    def is_compute(self) -> bool:
        """Whether an executor has something to call for it."""
        return self.target not in (INPUT, CONSTANT, OUTPUT, UPDATE_ALIASES)

    @property
    def written(self) -> tuple[Value, ...]:
        """The operands whose bytes are written."""
        return tuple(self.operands[position] for position in self.writes)

    def result_of(self, operand: Value) -> Value | None:
        """Return the result that is the same object as an operand, or None."""
        return next((result for result in self.results if result and result.object == operand.object), None)

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """Every access of bytes, of states, and every write of a geometry.

        Using an operand at all reads its geometry, which is not listed.
        """
        operands = self.operands
        effects = [Effect(operands[i], operands[i].access, False) for i in self.reads]
        for position in self.writes:
            operand = operands[position]
            effects.append(Effect(operand, operand.access, True))
            after = self.result_of(operand)
            if after is not None and after.geometry != operand.geometry:
                effects.append(Effect(operand, after.access, True))
        effects += [Effect(operands[i], whole(operands[i].object), True) for i in self.reshapes]
        effects += [Effect(state, whole(state.storage.name), True) for state in self.states]
        return tuple(effects)

    def replace(self, **changes: Any) -> Operation:
        """Return a copy with some fields changed."""
        return replace(self, **changes)

    def rename(self, change: Callable[[Value], Value]) -> Operation:
        """Return a copy whose operands are ``change(operand)``; the operation itself where that changes nothing."""
        if all(change(value) is value for value in (*self.operands, *self.states)):
            return self
        return replace(
            self,
            args=map_values(self.args, change),
            kwargs=map_values(dict(self.kwargs), change),
            states=tuple(change(state) for state in self.states),
        )
