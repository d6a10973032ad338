"""Where a small program occurs in a large one: anchored at its last operation, joined to the others by values.

What is found is what ``networkx.algorithms.isomorphism.DiGraphMatcher`` finds as subgraph monomorphisms of the two
graphs: every operation of the pattern has one of its own, and every value passes where it does in the pattern. From
the anchor on, an operand names its producer, so a look at an anchor is a few steps and not a search of the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import networkx as nx

from graphalias.aliases import insert_update_aliases
from graphalias.errors import RewriteError
from graphalias.graph import REGION, UPDATE_ALIASES, Operation, Program, Symbol, Value, values_in

#: The kind of a Symbol that stands for any plain argument: ``any:alpha``.
ANY = "any"

#: Names and defaults of a target's parameters, in order: an argument left out is its default.
Parameters = Sequence[tuple[str, Any]]


class Uses(Protocol):
    """What matching asks of a program."""

    def producer(self, value: Value) -> Operation: ...  # noqa: D102
    def users(self, value: Value) -> Sequence[Operation]: ...  # noqa: D102
    def comes_before(self, one: str, other: str) -> bool: ...  # noqa: D102


@dataclass(frozen=True)
class Match:
    """A place where a pattern occurs.

    Parameters
    ----------
    operations : tuple of Operation
        What the pattern's operations are here, in the pattern's order.
    values : dict of str to Value
        The handles here, by the names the pattern has for them: its inputs and what its operations result in.
    plain : dict
        What the pattern's wildcards for plain arguments are here, as a program shows it: a number, a ``Symbol``.

    Examples
    --------
    >>> import graphalias
    >>> def scaled(x, alpha=2.0):
    ...     return x * alpha
    >>> halving = graphalias.Rule(scaled, lambda x: x / 2, where=lambda match: match["alpha"] == 0.5)
    >>> halving.name
    'scaled'
    """

    operations: tuple[Operation, ...]
    values: Mapping[str, Value]
    plain: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name] if name in self.values else self.plain[name]


class Pattern:
    """A program to look for. Its inputs stand for any handle of any geometry, ``any:name`` for any plain argument.

    Parameters
    ----------
    program : Program
    parameters : mapping
        By target, so that an argument left out is known to be its default.

    Raises
    ------
    RewriteError
        If it has no operations, changes geometries, or its operations are not joined by values.

    Examples
    --------
    >>> import graphalias
    >>> pattern = Pattern(graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %exp_1: f32[4] @s1 obj1 = aten.exp.default(%x) reads(%x)
    ... %log_1: f32[4] @s2 obj2 = aten.log.default(%exp_1) reads(%exp_1)
    ... output(%log_1)
    ... '''))
    >>> pattern.anchor, [operation.name for operation in pattern.in_order]
    ('aten.log.default', ['log_1', 'exp_1'])
    """

    def __init__(self, program: Program, parameters: Mapping[str, Parameters] | None = None) -> None:
        self.program = program
        self.parameters = parameters or {}
        self.operations = [operation for operation in program.operations if operation.is_compute]
        self.inputs = tuple(value for value in program.inputs if not value.is_state)
        self.producers = {r.name: op.name for op in self.operations for r in op.results if r and not r.is_state}
        _refuse_bad(self)
        self.in_order = _matching_order(self.operations)
        self.anchor = self.in_order[0].target
        # what makes the anchor's operands: one look at them rules out most places
        targets = {operation.name: operation.target for operation in self.operations}
        made = [self.producers.get(value.name) for value in self.in_order[0].operands]
        self._makers = [(i, targets[name]) for i, name in enumerate(made) if name is not None]
        self.must_precede = list(_order_between(program, self.operations))
        self.arguments = {op.name: self.named_arguments(op, op.target) for op in self.operations}

    @property
    def wildcards(self) -> set[str]:
        """The names of its wildcards for plain arguments."""
        return {name for arguments in self.arguments.values() for name in wildcards_in(list(arguments.values()))}

    def named_arguments(self, operation: Operation, target: str) -> dict[str, Any]:
        """Return an operation's arguments by name, with those left out."""
        return self.arguments_of(operation, self.parameters.get(target, ()))

    @staticmethod
    def arguments_of(operation: Operation, parameters: Parameters) -> dict[str, Any]:
        """Return an operation's arguments by the names of its target's parameters, with those left out."""
        names = [name for name, _ in parameters]
        names += [str(i) for i in range(len(names), len(operation.args))]
        return {**dict(parameters), **dict(zip(names, operation.args, strict=False)), **operation.kwargs}

    def matches(self, anchor: Operation, program: Uses) -> Iterator[Match]:
        """Yield the matches whose last operation is the anchor."""
        operands = anchor.operands
        if anchor.target == self.anchor and all(
            i < len(operands) and program.producer(operands[i]).target == target for i, target in self._makers
        ):
            yield from _Search(self, program).run(anchor)


class _Search:
    """One look at an anchor: what is bound so far, and what is tried next."""

    def __init__(self, pattern: Pattern, program: Uses) -> None:
        self.pattern, self.program = pattern, program
        self.images: dict[str, Operation] = {}
        self.values: dict[str, Value] = {}
        self.plain: dict[str, Any] = {}

    def run(self, anchor: Operation) -> Iterator[Match]:
        for _ in self._with(0, anchor):
            if self._is_sound():
                images = tuple(self.images[operation.name] for operation in self.pattern.operations)
                yield Match(images, dict(self.values), dict(self.plain))

    def _with(self, index: int, image: Operation) -> Iterator[None]:
        """Bind a pattern's operation to one of the program, then those after it; unbind what was bound."""
        operation = self.pattern.in_order[index]
        if operation.target != image.target or any(image is other for other in self.images.values()):
            return
        before = (dict(self.images), dict(self.values), dict(self.plain))
        if self._fits(operation, image):
            self.images[operation.name] = image
            if index + 1 == len(self.pattern.in_order):
                yield
            else:
                for candidate in self._candidates(self.pattern.in_order[index + 1]):
                    yield from self._with(index + 1, candidate)
        self.images, self.values, self.plain = before

    def _candidates(self, operation: Operation) -> Sequence[Operation]:
        for result in operation.results:
            if result is not None and result.name in self.values:
                return (self.program.producer(self.values[result.name]),)
        known = next(value for value in operation.operands if value.name in self.values)
        return [user for user in self.program.users(self.values[known.name]) if user.target == operation.target]

    def _fits(self, operation: Operation, image: Operation) -> bool:
        """Whether an operation of the program is like one of the pattern, given what is bound; binds the rest."""
        if len(operation.results) != len(image.results):
            return False
        theirs = self.pattern.named_arguments(image, image.target)
        mine = self.pattern.arguments[operation.name]
        if mine.keys() != theirs.keys() or not all(self._unify(mine[key], theirs[key]) for key in mine):
            return False
        return all(map(self._unify, operation.results, image.results)) and _is_alias_alike(operation, image)

    def _unify(self, mine: Any, theirs: Any) -> bool:
        if isinstance(mine, Value):
            if mine.is_state:
                return isinstance(theirs, Value) and theirs.is_state
            return isinstance(theirs, Value) and self.values.setdefault(mine.name, theirs).name == theirs.name
        if isinstance(mine, Symbol) and mine.kind == ANY:
            is_plain = next(values_in(theirs), None) is None
            return is_plain and is_same_plain(self.plain.setdefault(mine.name, theirs), theirs)
        if isinstance(mine, (list, tuple)):
            is_list = isinstance(theirs, (list, tuple)) and len(mine) == len(theirs)
            return is_list and all(map(self._unify, mine, theirs))
        return is_same_plain(mine, theirs)

    def _is_sound(self) -> bool:
        """Whether inputs come from outside the match, and what has an order in the pattern has it here."""
        inside = {image.name for image in self.images.values()}
        if any(self.program.producer(self.values[value.name]).name in inside for value in self.pattern.inputs):
            return False
        pairs = ((self.images[one].name, self.images[other].name) for one, other in self.pattern.must_precede)
        return all(self.program.comes_before(one, other) for one, other in pairs)


def is_same_plain(mine: Any, theirs: Any) -> bool:
    """Whether two plain arguments are the same: of one type, nan is nan, and -0.0 is not 0.0.

    >>> is_same_plain(1, 1.0), is_same_plain([1, float("nan")], [1, float("nan")])
    (False, True)
    """
    if isinstance(mine, (list, tuple)) and isinstance(theirs, (list, tuple)):
        return len(mine) == len(theirs) and all(map(is_same_plain, mine, theirs))
    return type(mine) is type(theirs) and repr(mine) == repr(theirs)


def wildcards_in(argument: Any) -> Iterator[str]:
    """Yield the names of the wildcards in an argument."""
    if isinstance(argument, Symbol) and argument.kind == ANY:
        yield argument.name
    elif isinstance(argument, (list, tuple)):
        for item in argument:
            yield from wildcards_in(item)


def _is_alias_alike(operation: Operation, image: Operation) -> bool:
    """Whether results lie on operands' storages, and are operands' objects, where they do in the pattern."""
    return _aliasing(operation) == _aliasing(image) and len(operation.states) == len(image.states)


def _aliasing(operation: Operation) -> list[tuple[list[int], list[int]]]:
    pairs = [(value.storage.name, value.object) for value in operation.operands]
    return [
        ([i for i, (place, _) in enumerate(pairs) if place == result.storage.name][:1],
         [i for i, (_, object_) in enumerate(pairs) if object_ == result.object][:1])
        for result in operation.results if result is not None and not result.is_state
    ]  # fmt: skip


def _matching_order(operations: Sequence[Operation]) -> list[Operation]:
    """Return the operations so that each but the first is reached from those before it: by an operand if it can be."""
    order, rest = [operations[-1]], list(operations[:-1])
    while rest:
        known = {value.name for op in order for value in (*op.operands, *op.results) if value}
        makes = [op for op in rest if any(r and r.name in known for r in op.results)]
        takes = [op for op in rest if any(value.name in known for value in op.operands)]
        if not makes and not takes:
            raise RewriteError(
                f"a pattern whose operations are not joined: no value of {rest[-1].name!r} is one of the others'",
                hint="make two rules of it",
            )
        order.append((makes or takes)[-1])
        rest.remove(order[-1])
    return order


def _order_between(program: Program, operations: Sequence[Operation]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of operations that some overlap or state orders, as `insert_update_aliases` would."""
    names = {operation.name for operation in operations}
    closure = nx.transitive_closure_dag(insert_update_aliases(program).graph)
    for one, other in closure.edges:
        if one in names and other in names:
            yield one, other


def _refuse_bad(pattern: Pattern) -> None:
    """Refuse what can't be looked for."""
    if not pattern.operations:
        raise RewriteError("the pattern is empty: it has no operations", hint="compute something in it")
    for operation in pattern.program.operations:
        if operation.target in (UPDATE_ALIASES, REGION) or operation.after:
            raise RewriteError("a pattern with update_aliases, order edges or regions", node=operation.name,
                               hint="write it as it is captured: matching looks through update_aliases")  # fmt: skip
        if operation.reshapes:
            raise RewriteError("a pattern that changes a tensor's geometry", node=operation.name,
                               hint="use views instead of t_, resize_ and the like")  # fmt: skip
    if pattern.program.constants:
        raise RewriteError("the pattern uses a tensor that it closes over", node=pattern.program.constants[0].name,
                           hint="make it a parameter")  # fmt: skip
    used = {value.name for operation in pattern.operations for value in operation.operands}
    for value in pattern.inputs:
        if value.name not in used:
            raise RewriteError(f"the pattern never uses its parameter {value.name!r}", hint="remove it, or use it")
    for output in pattern.program.outputs:
        if not isinstance(output, Value) or output.name not in pattern.producers:
            raise RewriteError(f"the pattern returns {output}, which none of its operations makes",
                               hint="return tensors that it computes")  # fmt: skip
