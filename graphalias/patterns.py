"""Rules of two pieces of code: what to look for, and what to put in its place, as functions over tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from graphalias.draft import Draft
from graphalias.errors import GraphAliasError, ParseError, RewriteError
from graphalias.graph import Operation, Program, Value
from graphalias.matching import Match, Pattern
from graphalias.replay import as_argument, parameters_of
from graphalias.safety import Proposal
from graphalias.templates import Templates, fill_template
from graphalias.text import print_type
from graphalias.wildcards import Code, as_function, as_pattern


class Rule:
    """A piece of code to look for, and one to put in its place, that computes the same.

    A parameter without a default stands for any tensor, of any geometry; one with a default for any plain argument, of
    which the default is an example. The replacement takes the same names, or some of them, and returns as many tensors.
    It is captured again for each geometry it is put in at, on fake tensors. That nothing else sees the difference is
    not the rule's business: `rewrite` refuses where it would be seen.

    Parameters
    ----------
    pattern, replacement : callable, Program or str
        Functions over tensors, captured like any program; or programs, or their text, whose inputs are the tensors and
        whose ``any:name`` are plain arguments.
    name : str, optional
        The pattern function's when not given.
    where : callable, optional
        Takes the `Match`; says whether to replace. ``match["x"].dtype`` is a tensor's, ``match["alpha"]`` an argument.
    inputs : mapping of str to str, optional
        What the tensors are while the pattern is captured, ``f32[4,4]`` where not given.
    keeps_intermediates : bool
        Whether an operation whose result is used elsewhere, too, stays. Otherwise that is a reason to refuse.

    Raises
    ------
    RewriteError
        If one of the two can't be captured, is empty, closes over tensors, or they do not fit each other.

    Examples
    --------
    >>> import torch, graphalias
    >>> def scaled_sum(x, y, alpha=2.0):
    ...     return x + y * alpha
    >>> rule = graphalias.Rule(scaled_sum, lambda x, y, alpha: torch.add(x, y, alpha=alpha),
    ...                        where=lambda match: match["x"].dtype == "f32")
    >>> program = graphalias.capture(lambda a, b: a + b * 3, torch.ones(2), torch.ones(2))
    >>> print(graphalias.rewrite(program, [rule]))
    %a: f32[2] @s0 obj0 = input()
    %b: f32[2] @s1 obj1 = input()
    %add_1: f32[2] @s3 obj3 = aten.add.Tensor(%a, %b, alpha=3) reads(%a, %b)  # ...
    output(%add_1)
    <BLANKLINE>
    """

    def __init__(
        self, pattern: Code, replacement: Code, *, name: str | None = None,
        where: Callable[[Match], bool] | None = None, inputs: Mapping[str, str] | None = None,
        keeps_intermediates: bool = False,
    ) -> None:  # fmt: skip
        self.name = name or str(getattr(pattern, "__name__", "rule"))
        self.where, self.keeps_intermediates = where, keeps_intermediates
        with _naming(self.name, "pattern"):
            made, examples = as_pattern(pattern, inputs or {})
            self.pattern = Pattern(made, {op.target: parameters_of(op.target) for op in made.operations})
        self.targets: Collection[str] | None = (self.pattern.anchor,)
        with _naming(self.name, "replacement"):
            self._run, self._takes = as_function(replacement)
        self._templates = Templates(self._refuse_bad)
        self._refuse_misfit(examples)

    def __repr__(self) -> str:
        return f"<Rule {self.name}: {', '.join(operation.target for operation in self.pattern.operations)}>"

    def proposals(self, anchor: Operation, draft: Draft) -> Iterator[Proposal | str]:
        """Yield what the rule would do at an operation; a string where it can't."""
        for match in self.pattern.matches(anchor, draft):
            if self.where is None or self._applies(match):
                yield self._proposal(match, draft)

    def _applies(self, match: Match) -> bool:
        assert self.where is not None
        try:
            return bool(self.where(match))
        except Exception as error:
            raise RewriteError(
                f"the condition of rule {self.name!r} failed: {type(error).__name__}: {error}",
                node=match.operations[-1].name, location=match.operations[-1].location,
            ) from error  # fmt: skip

    def _proposal(self, match: Match, draft: Draft) -> Proposal | str:
        tensors = {name: match.values[name] for name in self._takes if name in match.values}
        plain = {name: as_argument(match.plain[name], draft.bindings) for name in self._takes if name in match.plain}
        template = self._templates.of(self._run, tensors, plain, repr(plain))
        if isinstance(template, str):
            return template
        filled = fill_template(template, tensors, match.operations, draft)
        if isinstance(filled, str):
            return filled
        kept = self._kept(match, draft) if self.keeps_intermediates else ()
        outputs = [match.values[output.name] for output in self.pattern.program.outputs]
        renamed = dict(zip((output.name for output in outputs), filled.outputs, strict=True))
        groups: dict[str, list[Value]] = {}
        for value in self.pattern.inputs:
            groups.setdefault(value.storage.name, []).append(match.values[value.name])
        inputs = tuple(map(tuple, groups.values()))
        return Proposal(match.operations, (*kept, *filled.operations), {**renamed, **filled.states}, inputs)

    def _kept(self, match: Match, draft: Draft) -> list[Operation]:
        """Return the matched operations whose results are used outside, and what those need."""
        outputs = {match.values[output.name].name for output in self.pattern.program.outputs}
        inside = {operation.name for operation in match.operations}
        kept: list[Operation] = []
        needed: set[str] = set()
        for operation in (draft.operations[name] for name in draft.in_order(inside)[::-1]):
            names = {result.name for result in operation.results if result}
            used = {r.name for r in operation.results if r for user in draft.users(r) if user.name not in inside}
            is_needed = not used.isdisjoint(names - outputs) or not names.isdisjoint(needed)
            if is_needed and not operation.writes and not operation.states and used.isdisjoint(outputs):
                kept.append(operation)
                needed |= {value.name for value in operation.operands}
        return kept[::-1]

    def _refuse_bad(self, template: Program) -> None:
        """Refuse a replacement that could fit no place."""
        expected, found = len(self.pattern.program.outputs), len(template.outputs)
        message, hint = None, "return what the pattern returns, in its order"
        if expected != found:
            message = f"returns {found} tensors where its pattern returns {expected}"
        elif template.constants:
            message, hint = "uses a tensor that it closes over", "make it a parameter of both"
        elif any(operation.reshapes for operation in template.operations):
            message, hint = "changes a tensor's geometry", "use views instead of t_, resize_ and the like"
        if message:
            raise RewriteError(f"rule {self.name!r}: the replacement {message}", hint=hint)

    def _refuse_misfit(self, examples: Mapping[str, Any] | None) -> None:
        """Refuse a replacement that takes what the pattern doesn't have, or that fails on the pattern's own tensors."""
        names = {value.name for value in self.pattern.inputs}
        known = names | self.pattern.wildcards
        for name in self._takes:
            if name not in known:
                raise RewriteError(
                    f"rule {self.name!r}: the replacement takes {name!r}, which the pattern has not",
                    hint=f"the pattern has {', '.join(sorted(known))}",
                )
        if examples is None or not self.pattern.wildcards.intersection(self._takes) <= examples.keys():
            return
        tensors = {value.name: value for value in self.pattern.inputs if value.name in self._takes}
        plain = {name: value for name, value in examples.items() if name in self._takes}
        template = self._templates.of(self._run, tensors, plain, repr(plain))
        if isinstance(template, str):
            raise RewriteError(f"rule {self.name!r}: {template}", hint="it is tried on the pattern's own tensors first")
        if self.where is None:  # a condition may leave out just these
            self._refuse_other_types(template)

    def _refuse_other_types(self, template: Program) -> None:
        """Refuse a replacement that returns other shapes or dtypes than the pattern, of the pattern's own tensors."""
        for old, new in zip(self.pattern.program.outputs, template.outputs, strict=True):
            if (old.dtype, old.shape) != (new.dtype, new.shape):
                raise RewriteError(
                    f"rule {self.name!r}: the replacement returns {print_type(new)} where its pattern returns "
                    f"{print_type(old)}",
                    hint="compute the same; if that holds of other tensors only, say so with inputs={'x': 'f32[4,4]'}",
                )


@contextmanager
def _naming(rule: str, what: str) -> Iterator[None]:
    """Give errors the name of the rule, and of its part that they come from."""
    try:
        yield
    except RewriteError as error:
        raise RewriteError(f"rule {rule!r}: {error.message}", node=error.node, hint=error.hint) from error
    except GraphAliasError as error:
        verb = "parsed" if isinstance(error, ParseError) else "captured"
        raise RewriteError(f"rule {rule!r}: the {what} can't be {verb}: {error.message}", location=error.location,
                           hint=error.hint) from error  # fmt: skip
    except Exception as error:  # of any kind: the function is the user's, and torch raises what it likes
        # what torch refuses of a call is most often what its tensors are; a mistake in the code has a name of its own
        is_misfit = isinstance(error, (RuntimeError, IndexError, TypeError, ValueError))
        hint = "give its tensors a type with inputs={'x': 'f32[4,4]'}, its other parameters a Wildcard"
        raise RewriteError(f"rule {rule!r}: the {what} can't be captured: {type(error).__name__}: {error}",
                           hint=hint if is_misfit else None) from error  # fmt: skip
