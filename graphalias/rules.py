"""Rules that pay, and those that other packages offer. Whether one applies at a place is decided in `safety`.

They save copies, allocations and calls of the reference executor; what a fusing executor would save anyway inside a
region, it saves with or without them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any

import torch

from graphalias.draft import Draft
from graphalias.errors import RewriteError
from graphalias.executors.eager import resolve_argument
from graphalias.folding import is_plain_view
from graphalias.graph import Operation, Value
from graphalias.matching import Match
from graphalias.overlap import overlaps
from graphalias.patterns import Rule
from graphalias.rewrite import Rewriting
from graphalias.safety import Proposal
from graphalias.symbols import DTYPES
from graphalias.templates import Templates, fill_template
from graphalias.variants import in_place_target, operator_of, out_target
from graphalias.wildcards import Wildcard

#: The group of entry points that other packages offer rules under: each a rule, or a list of rules.
GROUP = "graphalias.rules"

aten = torch.ops.aten


def is_lossless(source: str, target: str) -> bool:
    """Whether every number of a dtype is one of another, so that casting there and on is casting at once.

    >>> is_lossless("bf16", "f32"), is_lossless("f16", "bf16"), is_lossless("i64", "f64"), is_lossless("i8", "f16")
    (True, False, False, True)
    """
    one, other = DTYPES[source], DTYPES[target]
    if source == "bool" or source == target:
        return True
    if target == "bool" or one.is_complex or other.is_complex or "f8" in (source + target):
        return False
    if one.is_floating_point:
        if not other.is_floating_point:
            return False
        mine, theirs = torch.finfo(one), torch.finfo(other)
        return theirs.eps <= mine.eps and theirs.max >= mine.max and theirs.smallest_normal <= mine.smallest_normal
    numbers = torch.iinfo(one)
    if other.is_floating_point:
        return max(numbers.max, -numbers.min) <= min(2 / torch.finfo(other).eps, torch.finfo(other).max)
    return torch.iinfo(other).min <= numbers.min and numbers.max <= torch.iinfo(other).max


def _clone(x: Any, memory_format: Any = Wildcard(torch.preserve_format, torch.contiguous_format)) -> Any:
    return x.clone(memory_format=memory_format)


def _cast(x: Any, dtype: Any = torch.float64) -> Any:
    return aten._to_copy.default(x, dtype=dtype)


def _cast_twice(x: Any, first: Any = torch.float64, second: Any = torch.float16) -> Any:
    return aten._to_copy.default(aten._to_copy.default(x, dtype=first), dtype=second)


def _goes_through_more(match: Match) -> bool:
    source, first, second = match["x"].dtype, match["first"].name, match["second"].name
    is_integral = [not (DTYPES[name].is_floating_point or DTYPES[name].is_complex) for name in (source, first, second)]
    # what a negative or large float becomes as an integer is not defined; an integer wraps
    return is_lossless(source, first) and is_integral != [True, False, True]


#: A clone whose reader may as well read what was cloned.
redundant_clone = Rule(_clone, lambda x: x, name="redundant_clone")

#: A cast to the dtype that is there.
redundant_cast = Rule(
    _cast, lambda x: x, name="redundant_cast", where=lambda match: match["x"].dtype == match["dtype"].name
)

#: A copy into memory that is not needed apart from it.
copy_into_dead = Rule(lambda buffer, x: buffer.copy_(x), lambda x: x, name="copy_into_dead")

#: A cast to a dtype that holds every number of the first, and on.
double_cast = Rule(
    _cast_twice, lambda x, second: aten._to_copy.default(x, dtype=second),
    name="double_cast", where=_goes_through_more, keeps_intermediates=True,
)  # fmt: skip


class _Made:
    """A rule whose replacement is made from the operation it looks at."""

    name = ""
    targets: Collection[str] | None = None

    def __init__(self) -> None:
        self._templates = Templates()

    def __repr__(self) -> str:
        return f"<Rule {self.name}>"

    def _proposal(
        self, key: Any, run: Any, tensors: Mapping[str, Value], matched: tuple[Operation, ...], draft: Draft
    ) -> Proposal | str:
        """Return the proposal of what a function does to some handles, in the place of the last operation's result."""
        template = self._templates.of(run, tensors, {}, key)
        if isinstance(template, str):
            return template
        filled = fill_template(template, tensors, matched, draft)
        if isinstance(filled, str):
            return filled
        result = matched[-1].results[0]
        assert result is not None
        return Proposal(matched, filled.operations, {result.name: filled.outputs[0], **filled.states})


class InPlace(_Made):
    """A pointwise operation writes its result over its first operand, if nobody needs that any more.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.capture(lambda x: (x + 1).exp(), torch.ones(2))
    >>> [op.target for op in graphalias.rewrite(program, in_place).operations if op.is_compute]
    ['aten.add.Tensor', 'aten.exp_.default']
    """

    name = "in_place"

    def proposals(self, anchor: Operation, draft: Draft) -> Iterator[Proposal | str]:
        """Yield the operation in place, where its first operand is the program's own and of the result's geometry."""
        target, result = in_place_target(anchor.target), anchor.results[0] if anchor.results else None
        if target is None or result is None or not anchor.args or not isinstance(anchor.args[0], Value):
            return
        operand = anchor.args[0]
        is_like = (operand.dtype, operand.shape, operand.stride) == (result.dtype, result.shape, result.stride)
        if not is_like or operand.storage.lifetime != "local" or result.storage.name == operand.storage.name:
            return
        others = [v for v in anchor.operands if v.geometry != operand.geometry and overlaps(v.access, operand.access)]
        if others or any(draft.comes_before(anchor.name, user.name) for user in draft.users(operand)):
            return  # the commonest reasons, and no news
        tensors = {value.name: value for value in anchor.operands}
        operator = operator_of(target)

        def run(**fakes: Any) -> Any:
            args = resolve_argument(anchor.args, fakes, draft.bindings)
            return operator(*args, **resolve_argument(dict(anchor.kwargs), fakes, draft.bindings))

        key = (target, _skeleton(anchor, tensors))
        yield self._proposal(key, run, tensors, (anchor,), draft)


class CatInPlace(_Made):
    """What is computed only to be concatenated is written to its place at once.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.capture(lambda x, y: torch.cat([x.neg(), y.exp()]), torch.ones(2), torch.ones(3))
    >>> [op.target for op in graphalias.rewrite(program, cat_in_place).operations if op.is_compute]
    ['aten.empty_strided.default', 'aten.slice.Tensor', 'aten.neg.out', 'aten.slice.Tensor', 'aten.exp.out']
    """

    name = "cat_in_place"
    targets: Collection[str] | None = ("aten.cat.default",)

    def proposals(self, anchor: Operation, draft: Draft) -> Iterator[Proposal | str]:
        """Yield slices of one buffer, written by the operations that make the parts."""
        result = anchor.results[0]
        parts = list(anchor.args[0])
        dim = anchor.args[1] if len(anchor.args) > 1 else 0
        assert result is not None
        if any(len(part.shape) != len(result.shape) or part.dtype != result.dtype for part in parts):
            return
        makers = {part.name: maker for part in parts if (maker := self._maker(part, parts, draft)) is not None}
        if not makers:
            return
        matched = (*makers.values(), anchor)
        made = {result.name for maker in makers.values() for result in maker.results if result}
        tensors = {v.name: v for op in matched for v in op.operands if v.name not in made}

        def run(**fakes: Any) -> Any:
            out = torch.empty_strided(result.shape, result.stride, dtype=DTYPES[result.dtype], device=result.device)
            start = 0
            for part in parts:
                place = out.narrow(dim, start, part.shape[dim])
                start += part.shape[dim]
                if part.name in makers:
                    maker = makers[part.name]
                    args = resolve_argument(maker.args, fakes, draft.bindings)
                    kwargs = resolve_argument(dict(maker.kwargs), fakes, draft.bindings)
                    operator_of(str(out_target(maker.target)))(*args, **kwargs, out=place)
                else:
                    place.copy_(fakes[part.name])
            return out

        key = tuple((op.target, _skeleton(op, tensors)) for op in matched)
        shown = (key, result.geometry[2:], tuple(part.shape for part in parts))
        yield self._proposal(shown, run, tensors, matched, draft)

    def _maker(self, part: Value, parts: list[Value], draft: Draft) -> Operation | None:
        maker = draft.producer(part)
        is_once = len(draft.users(part)) == 1 and [other.name for other in parts].count(part.name) == 1
        is_own = maker.is_compute and part.storage.name not in {value.storage.name for value in maker.operands}
        has_one = maker.results == (part,) and not maker.writes and not maker.states and maker.operands
        return maker if is_once and is_own and has_one and out_target(maker.target) else None


class ViewOfView(_Made):
    """A view of a view is a view of the first tensor.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.capture(lambda x: x[1].t()[0] * 2, torch.ones(3, 4, 5))
    >>> [op.target for op in graphalias.rewrite(program, view_of_view).operations if op.is_compute]
    ['aten.as_strided.default', 'aten.mul.Tensor']
    """

    name = "view_of_view"

    def proposals(self, anchor: Operation, draft: Draft) -> Iterator[Proposal | str]:
        """Yield one ``as_strided`` in the place of two views, where offsets count from what the tensors say."""
        if not is_plain_view(anchor, draft.resized):
            return
        view, result = draft.producer(anchor.operands[0]), anchor.results[0]
        storage = anchor.operands[0].storage
        is_counted = storage.lifetime == "local" or storage.name in draft.counted_alike
        if not is_counted or not is_plain_view(view, draft.resized) or len(draft.users(anchor.operands[0])) > 1:
            return
        root = view.operands[0]
        assert result is not None
        # kernels differ in the strides of dimensions of one element or none, and what is returned shows them
        if not {root.object, result.object}.isdisjoint(draft.reshaped) or min(result.shape, default=2) < 2:
            return
        shown = (result.shape, result.stride, result.offset)
        tensors = {root.name: root}
        yield self._proposal(shown, lambda **fakes: fakes[root.name].as_strided(*shown), tensors, (anchor,), draft)


in_place, cat_in_place, view_of_view = InPlace(), CatInPlace(), ViewOfView()

#: All of them, in the order in which each leaves most to the next.
RULES: tuple[Rewriting, ...] = (
    double_cast, redundant_cast, redundant_clone, copy_into_dead, view_of_view, cat_in_place, in_place,
)  # fmt: skip


def load_rules() -> list[Rewriting]:
    """Return the rules that installed packages offer under the entry point group ``graphalias.rules``.

    Returns
    -------
    list of Rule
        In the order of the entry points' names.

    Raises
    ------
    RewriteError
        If one can't be imported, or is no rule.

    Examples
    --------
    >>> load_rules()
    []
    """
    found: list[Rewriting] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            loaded = entry.load()
        except Exception as error:
            raise RewriteError(f"the rules of entry point {entry.name!r} can't be imported: {error}",
                               hint=f"see {entry.value}") from error  # fmt: skip
        rules = list(loaded) if isinstance(loaded, (list, tuple)) else [loaded]
        for rule in rules:
            if not isinstance(rule, Rewriting):
                raise RewriteError(f"entry point {entry.name!r} offers {rule!r}: expected a Rule, or a list of them")
        found += rules
    return found


def _skeleton(operation: Operation, tensors: Mapping[str, Value]) -> str:
    """Return an operation's arguments with numbers for handles."""
    numbers = {name: i for i, name in enumerate(tensors)}
    made = {result.name: -1 for result in operation.results if result}

    def show(argument: Any) -> Any:
        if isinstance(argument, Value):
            return ("handle", numbers.get(argument.name, made.get(argument.name, argument.shape)))
        return [show(item) for item in argument] if isinstance(argument, (list, tuple)) else argument

    return repr((show(list(operation.args)), {key: show(item) for key, item in operation.kwargs.items()}))
