"""Rewriting: rules applied wherever they match and nobody can tell, until none does."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator
from typing import Protocol, runtime_checkable

from graphalias.aliases import adds_nothing, insert_update_aliases
from graphalias.draft import Draft
from graphalias.errors import RewriteError
from graphalias.graph import REGION, UPDATE_ALIASES, Operation, Program, Value, require_program
from graphalias.hazards import hazards
from graphalias.moves import Refused
from graphalias.safety import Proposal, plan_replacement
from graphalias.steps import DRAWN_OPERATIONS, DRAWN_STEPS, Step, Steps

logger = logging.getLogger("graphalias.rewrite")


@runtime_checkable
class Rewriting(Protocol):
    """What a rule offers; `Rule` is one of a pattern and a replacement.

    Attributes
    ----------
    name : str
    targets : collection of str or None
        Of the operations it looks at; None where it looks at all.
    """

    name: str
    targets: Collection[str] | None

    def proposals(self, anchor: Operation, draft: Draft) -> Iterator[Proposal | str]:
        """Yield what it would do at an operation; a string where it can't, the reason."""


def rewrite(program: Program, rules: Iterable[Rewriting] | Rewriting, *, limit: int | None = None) -> Program:
    """Return the program with rules applied wherever they match and nobody can tell, until none does.

    A match is left as it is where an operation outside is ordered between the matched ones by the bytes it reads or
    writes, where something made on the way is used elsewhere, or where other memory would be written, or results share
    memory with something else than before. `rewrite_in_steps` says where and why.

    Parameters
    ----------
    program : Program
        As captured, or after `insert_update_aliases`; not partitioned. It is left as it was.
    rules : Rule or iterable of Rule
        Tried in this order at each operation, in program order.
    limit : int, optional
        Replacements at most; ten for each operation when not given.

    Returns
    -------
    Program
        Without hazards if the given one had none: `update_aliases` are taken out first and inserted again. Its
        ``notes`` say which rule made an operation, and of what.

    Raises
    ------
    RewriteError
        If the program is partitioned, a rule's replacement does not fit its pattern, or the limit is reached.

    Examples
    --------
    >>> import torch, graphalias
    >>> fuse = graphalias.Rule(lambda x, y, z: x * y + z, lambda x, y, z: torch.addcmul(z, x, y), name="addcmul")
    >>> program = graphalias.capture(lambda a, b: (a * b + a).neg_(), torch.ones(2, 3), torch.ones(3))
    >>> [operation.target for operation in graphalias.rewrite(program, fuse).operations if operation.is_compute]
    ['aten.addcmul.default', 'aten.neg_.default']
    """
    return rewrite_in_steps(program, rules, limit=limit).program


def rewrite_in_steps(program: Program, rules: Iterable[Rewriting] | Rewriting, *, limit: int | None = None) -> Steps:
    """Rewrite a program, and return every step on the way: what was replaced where, and what was refused and why.

    Parameters
    ----------
    program, rules, limit
        As of `rewrite`.

    Returns
    -------
    Steps
        With the result as ``program``.

    Raises
    ------
    RewriteError
        As `rewrite`. What was done until then is in its ``steps``.

    Examples
    --------
    >>> import torch, graphalias
    >>> def step(x, y):
    ...     product = x * y
    ...     return product + 1, product
    >>> fuse = graphalias.Rule(lambda x, y: x * y + 1, lambda x, y: torch.addcmul(torch.ones_like(x), x, y), name="fma")
    >>> print(graphalias.rewrite_in_steps(graphalias.capture(step, torch.ones(2), torch.ones(2)), fuse))
    fma at %add (...): refused: %mul, an intermediate, is returned
    """
    require_program(program, "rewrite")
    rules = list(rules) if isinstance(rules, Iterable) else [rules]
    for rule in rules:
        if not isinstance(rule, Rewriting):
            raise RewriteError(f"expected rules, found {type(rule).__name__}", hint="make a graphalias.Rule of it")
    return _Rewriter(program, rules, limit).run()


class _Rewriter:
    """One rewriting of one program."""

    def __init__(self, program: Program, rules: list[Rewriting], limit: int | None) -> None:
        self.program, self.rules = program, rules
        self.is_ordered = _is_ordered(program)
        self.draft = Draft(without_update_aliases(program))
        self.limit = limit if limit is not None else 10 * len(self.draft.operations)
        self.by_target: dict[str, list[Rewriting]] = {}
        self.notes: dict[str, str] = {}
        self.steps: list[Step] = []
        self.refused: set[tuple[str, tuple[str, ...]]] = set()
        self.count = 0
        self.snapshots: list[Program] = []

    def run(self) -> Steps:
        """Go over the program until nothing is replaced any more."""
        is_changed = True
        while is_changed:
            is_changed = False
            for name in list(self.draft):
                waiting = [name]
                while waiting:
                    near = self._visit(waiting.pop())
                    is_changed |= near is not None
                    waiting += near or []
        return self._so_far()

    def _so_far(self) -> Steps:
        return Steps(tuple(self.steps), self.program, self.finish(), tuple(self.snapshots))

    def finish(self) -> Program:
        """Return the draft as a program, ordered if the given one was; that one itself where nothing was replaced."""
        if not self.count:
            return self.program
        program = self.program.replace_operations(self.draft.operations[name] for name in self.draft)
        program.notes |= {name: note for name, note in self.notes.items() if name in program.graph}
        return insert_update_aliases(program) if self.is_ordered else program

    def _visit(self, name: str) -> list[str] | None:
        """Apply the first rule that applies at an operation; return what to look at again then, None if none does."""
        operation = self.draft.operations.get(name)
        if operation is None or not operation.is_compute:
            return None
        for rule in self._rules_for(operation.target):
            start = time.perf_counter()
            for proposal in rule.proposals(operation, self.draft):
                if isinstance(proposal, str):
                    self._refuse(rule, operation, (operation,), (), proposal, start)
                    continue
                near = self._try(rule, operation, proposal, start)
                if near is not None:
                    return near
                start = time.perf_counter()
        return None

    def _rules_for(self, target: str) -> list[Rewriting]:
        if target not in self.by_target:
            self.by_target[target] = [rule for rule in self.rules if rule.targets is None or target in rule.targets]
        return self.by_target[target]

    def _try(self, rule: Rewriting, anchor: Operation, proposal: Proposal, start: float) -> list[str] | None:
        try:
            plan = plan_replacement(self.draft, proposal)
        except Refused as refusal:
            self._refuse(rule, anchor, proposal.matched, proposal.made, str(refusal), start)
            return None
        if self.count >= self.limit:
            error = RewriteError(
                f"no end after {self.limit} replacements: the next is {rule.name!r}",
                node=anchor.name, location=anchor.location, hint="rules undo each other, or raise the limit",
            )  # fmt: skip
            error.steps = self._so_far()
            raise error
        operands = [value for operation in proposal.matched for value in operation.operands]
        self.draft.replace(plan.matched, plan.made, plan.late, plan.renamed)
        erased = self.draft.erase_unused(operands)
        self.count += 1
        before = (*proposal.matched, *erased)
        note = f"{rule.name}: in place of {', '.join(f'%{operation.name}' for operation in before)}"
        kept = set(plan.matched)
        self.notes |= {operation.name: note for operation in plan.made if operation.name not in kept}
        self._add(Step(rule.name, anchor.name, anchor.location, before, plan.made, _since(start)))
        if self.count <= DRAWN_STEPS and len(self.draft.operations) <= DRAWN_OPERATIONS:
            self.snapshots.append(self.finish())
        return self._near(operands, plan.made)

    def _near(self, values: Iterable[Value], made: Iterable[Operation]) -> list[str]:
        """Return the operations whose matches may be others now, the first to be looked at last."""
        names = {operation.name for operation in made}
        for value in values:
            if self.draft.has(value):
                names.add(self.draft.producer(value).name)
        return self.draft.in_order(names)[::-1]

    def _refuse(
        self, rule: Rewriting, anchor: Operation, before: tuple[Operation, ...], made: tuple[Operation, ...],
        reason: str, start: float,
    ) -> None:  # fmt: skip
        """Note that a match is left as it is, once."""
        key = (rule.name, tuple(operation.name for operation in before))
        if key not in self.refused:
            self.refused.add(key)
            self._add(Step(rule.name, anchor.name, anchor.location, before, made, _since(start), reason))

    def _add(self, step: Step) -> None:
        self.steps.append(step)
        logger.debug("%s", step)


def without_update_aliases(program: Program) -> Program:
    """Return the program without `update_aliases` nodes and ORDER edges; in its own order it does the same.

    Raises
    ------
    RewriteError
        If it is partitioned.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %add_1: f32[4] @s1 obj1 = aten.add.Tensor(%x, 1) reads(%x)
    ... %update_aliases_1: f32[4] @s0 obj0 = update_aliases(%x) after(add_1 WAR)
    ... %mul__1: f32[4] @s0 obj0 = aten.mul_.Tensor(%update_aliases_1!, 2) reads(%update_aliases_1)
    ... output(%add_1) after(mul__1 RAW)
    ... ''')
    >>> print(without_update_aliases(program))
    %x: f32[4] @s0 obj0 = input()
    %add_1: f32[4] @s1 obj1 = aten.add.Tensor(%x, 1) reads(%x)
    %mul__1: f32[4] @s0 obj0 = aten.mul_.Tensor(%x!, 2) reads(%x)
    output(%add_1)
    <BLANKLINE>
    """
    renamed: dict[str, Value] = {}
    operations = []

    def original(value: Value) -> Value:
        return renamed.get(value.name, value)

    for operation in program.operations:
        if operation.target == REGION:
            raise RewriteError("a partitioned program can't be rewritten", node=operation.name,
                               hint="rewrite before partition")  # fmt: skip
        operation = operation.rename(original)
        if operation.target == UPDATE_ALIASES:
            renamed |= {r.name: v for r, v in zip(operation.results, operation.operands, strict=True) if r}
        else:
            operations.append(operation.replace(after=()) if operation.after else operation)
    is_same = operations == list(program.operations)  # each the very same
    return program if is_same else program.replace_operations(operations)


def _is_ordered(program: Program) -> bool:
    """Whether the result is to have its `update_aliases`: the program has some, or no hazards."""
    if any(operation.after or operation.target == UPDATE_ALIASES for operation in program.operations):
        return True
    return adds_nothing(program) or next(hazards(program), None) is None


def _since(start: float) -> float:
    return (time.perf_counter() - start) * 1000
