"""Helpers of the rewriting tests: a rewritten program beside eager PyTorch, on the same arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphalias import (
    Program,
    Rule,
    Steps,
    capture,
    check,
    find_hazards,
    insert_update_aliases,
    rewrite,
    rewrite_in_steps,
)
from graphalias.oracle import differences, is_same, soil_memory
from graphalias.orders import topological_orders
from graphalias.text import print_program
from graphalias.verify import scene_of


def reasons(fn: Callable[..., Any], rule: Rule, *args: Any) -> list[str]:
    """Return why a rule is refused on a function, and fail if it is applied anywhere."""
    program = capture(fn, *args)
    steps = rewrite_in_steps(program, rule)
    assert not steps.applied, str(steps)
    assert str(steps.program) == str(program)
    return [str(step.reason) for step in steps.refused]


def assert_as_eager(
    fn: Callable[..., Any], args: Sequence[Any], rules: Sequence[Rule], *, exact: bool = True, orders: int = 4
) -> Steps:
    """Fail unless the rewritten program shows what the function shows, in its own order and in others."""
    program = capture(fn, *args)
    before = print_program(program)
    steps = rewrite_in_steps(program, rules)
    assert print_program(program) == before
    for rewritten in (steps.program, rewrite(insert_update_aliases(program), rules)):
        check(rewritten)
    ordered = insert_update_aliases(steps.program)
    check(ordered)
    assert not find_hazards(ordered)
    assert not find_hazards(rewritten)
    scene = scene_of(program, args, {})
    soil_memory(0xA5)
    expected = scene.watch(lambda: fn(*args))
    soil_memory(0x5A)
    again = scene.watch(lambda: fn(*args))
    undetermined = [
        name for part in ("returned", "arguments") for name, look in getattr(expected, part).items()
        if not is_same(look, getattr(again, part).get(name))
    ]  # fmt: skip
    runs: list[tuple[Program, list[str] | None]] = [(steps.program, None)]
    runs += [(ordered, order) for order in topological_orders(ordered, orders)]
    for candidate, order in runs:
        found = scene.watch(lambda: candidate.run(*args, order=order))  # noqa: B023  # called at once
        lines = differences(expected, found, exact=exact, with_state_of_errors=False)
        lines = [line for line in lines if not line.startswith(tuple(f"{name}:" for name in undetermined))]
        assert not lines, "\n".join([*lines, str(steps), str(program), str(candidate)])
    return steps
