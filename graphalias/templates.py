"""A replacement captured once for each geometry, and put in the place of a match in the program's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphalias.draft import Draft
from graphalias.errors import RewriteError
from graphalias.graph import Operation, Program, Storage, Symbol, Value
from graphalias.replay import replay

#: Replacements a rule keeps, one for each geometry.
KEPT = 1000


class Templates:
    """What a function does, captured once for each geometry it meets.

    Parameters
    ----------
    check : callable, optional
        Called with each program captured; raises where it is of no use.
    """

    def __init__(self, check: Callable[[Program], None] = lambda program: None) -> None:
        self._check = check
        self._kept: dict[Any, Program | str] = {}

    def of(
        self, run: Callable[..., Any], tensors: Mapping[str, Value], plain: Mapping[str, Any], key: Any
    ) -> Program | str:
        """Return what a function does, called with tensors like some handles; or why it fails on them.

        ``key`` tells the function and its plain arguments from others.
        """
        numbers: dict[str, int] = {}
        geometries = tuple(
            (*value.geometry[1:], value.device, numbers.setdefault(f"@{value.storage.name}", len(numbers)),
             numbers.setdefault(value.object, len(numbers)))
            for value in tensors.values()
        )  # fmt: skip
        if (key, geometries) not in self._kept:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[key, geometries] = self._capture(run, tensors, plain)
        return self._kept[key, geometries]

    def _capture(
        self, run: Callable[..., Any], tensors: Mapping[str, Value], plain: Mapping[str, Any]
    ) -> Program | str:
        try:
            template = replay(run, tensors, plain)
        except Exception as error:  # of any kind: the function is the user's, and torch raises what it likes
            return f"the replacement fails here: {type(error).__name__}: {error}".splitlines()[0]
        self._check(template)
        return template


@dataclass(frozen=True)
class Filled:
    """A template's operations in the program's names, what it returns, and the states it leaves behind.

    Parameters
    ----------
    operations : tuple of Operation
    outputs : tuple of Value
    states : dict of str to Value
        By the name of the matched operations' last handle of a state.
    """

    operations: tuple[Operation, ...]
    outputs: tuple[Value, ...]
    states: dict[str, Value]


def fill_template(
    template: Program, tensors: Mapping[str, Value], matched: Sequence[Operation], draft: Draft
) -> Filled | str:
    """Return a template in the program's names.

    Parameters
    ----------
    template : Program
        Its inputs are called as in ``tensors``; of those that are one object, as the first.
    tensors : mapping of str to Value
        The handles it is given.
    matched : sequence of Operation
        What it takes the place of: their states enter it.
    draft : Draft
        Gives names that are free.

    Returns
    -------
    Filled or str
        The reason where it draws from a random generator, or acts on the world, and what is matched does not.
    """
    return _Filling(template, tensors, matched, draft).fill()


class _Filling:
    def __init__(
        self, template: Program, tensors: Mapping[str, Value], matched: Sequence[Operation], draft: Draft
    ) -> None:
        self.template, self.draft = template, draft
        self.values: dict[str, Value] = {}
        self.storages: dict[str, Storage] = {}
        self.objects: dict[str, str] = {}
        self.opaque = _opaque_names(template, draft.bindings)
        firsts = {value.object: value for value in reversed(list(tensors.values()))}
        inputs = [value for value in template.inputs if not value.is_state]
        for value, given in zip(inputs, dict.fromkeys(v.object for v in tensors.values()), strict=True):
            self._bind(value, firsts[given])
        names = draft.in_order(operation.name for operation in matched)
        operations = [draft.operations[name] for name in names]
        self.location = operations[-1].location
        self.entering = {s.storage.name: s for operation in operations[::-1] for s in operation.states}
        self.leaving = {r.storage.name: r for op in operations for r in op.results if r and r.is_state}

    def _bind(self, value: Value, given: Value) -> None:
        self.values[value.name] = given
        self.storages[value.storage.name] = given.storage
        self.objects[value.object] = given.object

    def fill(self) -> Filled | str:
        for state in self.template.inputs:
            if state.is_state:
                place = self._place(state)
                if place not in self.entering:
                    return f"the replacement advances {place}, which the pattern does not"
                self._bind(state, self.entering[place])
        operations = tuple(self._filled(op) for op in self.template.operations if op.is_compute)
        outputs = tuple(self.values[output.name] for output in self.template.outputs)
        newest = {r.storage.name: r for op in operations for r in op.results if r and r.is_state}
        states = {old.name: newest[place] for place, old in self.leaving.items() if place in newest}
        return Filled(operations, outputs, states)

    def _filled(self, operation: Operation) -> Operation:
        parts = operation.target.split(".")
        name = self.draft.fresh(parts[1] if len(parts) > 1 else parts[0])
        results = tuple(result and self._result(result, operation.name, name) for result in operation.results)
        return operation.replace(
            name=name, args=tuple(map(self._argument, operation.args)), results=results, location=self.location,
            kwargs={key: self._argument(argument) for key, argument in operation.kwargs.items()},
            states=tuple(self.values[state.name] for state in operation.states),
        )  # fmt: skip

    def _result(self, result: Value, operation: str, name: str) -> Value:
        storage = self.storages.setdefault(result.storage.name, None)  # type: ignore[arg-type]
        if storage is None:
            storage = self.storages[result.storage.name] = Storage(self.draft.fresh("s"))
        if result.object not in self.objects:
            self.objects[result.object] = self.draft.fresh("obj")
        own = name + result.name.removeprefix(operation)
        made = replace(result, name=own, storage=storage, object=self.objects[result.object])
        self.values[result.name] = made
        return made

    def _place(self, state: Value) -> str:
        kind, _, name = state.storage.name.partition(":")
        return f"{kind}:{self.opaque[name]}" if name in self.opaque else state.storage.name

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, Value):
            return self.values[argument.name]
        if isinstance(argument, Symbol) and argument.kind == "opaque":
            return Symbol("opaque", self.opaque[argument.name])
        return [self._argument(item) for item in argument] if isinstance(argument, (list, tuple)) else argument


def _opaque_names(template: Program, bindings: Mapping[str, Any]) -> dict[str, str]:
    """Return what the program calls the objects without a text that a template uses."""
    names: dict[str, str] = {}
    for key, thing in template.bindings.items():
        known = next((other for other, bound in bindings.items() if bound is thing), None)
        if known is None:
            raise RewriteError(f"the replacement uses a {type(thing).__name__}, which the program has not",
                               hint="make it a parameter of both, with a Wildcard as its default")  # fmt: skip
        names[key.removeprefix("opaque:")] = known.removeprefix("opaque:")
    return names
