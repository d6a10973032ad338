"""explain: what becomes of a function's views and mutations, which regions there are, and why."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console, ConsoleOptions, RenderResult

from graphalias.aliases import insert_update_aliases
from graphalias.capture import capture
from graphalias.decisions import (
    Decisions,
    RegionFacts,
    groups_of,
    mutations_of,
    outside_of,
    prevented_in,
    regions_of,
    shared_memory,
)
from graphalias.draw import Drawing, draw, show
from graphalias.executors import Executor, get_executor, name_of
from graphalias.executors.once import compiled_region, failure_of
from graphalias.graph import UPDATE_ALIASES, Program
from graphalias.hazards import find_hazards
from graphalias.lower import Compiled
from graphalias.passes import run_passes
from graphalias.summary import export_html, print_summary, summary
from graphalias.traffic import traffic_of_calls


@dataclass(frozen=True)
class Explanation(Decisions):
    """What was decided of a program, and why.

    Printed, it is a summary: what is alike is told once. `to_dict` has everything.

    Parameters
    ----------
    captured, lowered : Program
        The program as captured, and as it was lowered: in regions.
    executor : str
        Which runs the regions.
    shared_memory : tuple
        Inputs and constants that share memory.
    groups : tuple
        View groups of several tensors.
    mutations : tuple
        Each with its fate (``in place``, ``functional``, ``removed``) and why.
    inserted : tuple of str
        The `update_aliases` nodes.
    hazards : tuple of Hazard
        Of the captured program.
    prevented : tuple
        What each inserted node, and each ORDER edge to the output, keeps in order.
    regions : tuple
        Their operations, executor, kernels, and bytes moved, against eager's.
    outside : tuple
        What is in no region, by reason.
    traffic, eager : Traffic
        Bytes that a call reads and writes, and that eager PyTorch does: from the accesses, each operation's counted.
    times_ms : dict
        By stage: ``capture``, the passes, ``lower``. What a process does for the first time takes longer, since torch
        imports its code generator then; a region that was compiled before is not compiled again.
    remark : str or None
        Where `jit` would not run this program at all.

    Examples
    --------
    >>> import torch, graphalias
    >>> explanation = graphalias.explain(lambda x: x.add_(1).mul_(2), torch.ones(4), executor="eager")
    >>> [(mutation.operation, mutation.fate) for mutation in explanation.mutations]
    [('add_', 'in place'), ('mul_', 'in place')]
    >>> explanation.eager
    Traffic(read_bytes=32, written_bytes=32)
    """

    def to_dict(self) -> dict[str, Any]:
        """Return everything as dicts, lists, strings and numbers, as ``json`` takes them; the programs as text."""
        found = {
            field.name: to_plain(getattr(self, field.name))
            for field in dataclasses.fields(self) if field.name not in ("captured", "lowered")
        }  # fmt: skip
        return {
            "name": self.captured.name, **found,
            "captured": str(self.captured), "lowered": str(self.lowered),
        }  # fmt: skip

    def draw(self) -> Drawing:
        """Return a drawing of the program as captured beside the program as lowered."""
        return draw(self.captured, self.lowered)

    def __str__(self) -> str:
        return print_summary(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return show(str(self), self.draw(), export_html(summary(self)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from summary(self)


def explain(fn: Callable[..., Any] | Program, *args: Any, executor: str = "auto", **kwargs: Any) -> Explanation:
    """Explain what becomes of a function's views and mutations, which fusion regions there are, and why.

    The function is captured and compiled, and not run: its tensors stay as they are.

    Parameters
    ----------
    fn : callable or Program
        What `capture` takes; or a captured program, and then no arguments.
    *args, **kwargs
        What to call it with.
    executor : str
        Whose rules say what is fused, and which compiles the regions.

    Returns
    -------
    Explanation

    Raises
    ------
    CaptureError
        If the function can't be captured.
    ExecutorError
        If there is no such executor.

    Examples
    --------
    >>> import torch, graphalias
    >>> def step(x):
    ...     row = x[0]
    ...     x.mul_(2)
    ...     return row + 1
    >>> print(graphalias.explain(step, torch.ones(4, 4), executor="eager"))
    step: 3 operations, 1 of them in place, 2 hazards
    ...
    """
    start = time.perf_counter()
    captured = fn if isinstance(fn, Program) else capture(fn, *args, **kwargs)
    times_ms = {"capture": _since_ms(start)} if fn is not captured else {}
    runner = get_executor(executor, captured)
    passed = run_passes(captured, name_of(runner))
    lowered = passed[-1].program
    ordered = next(one.program for one in passed if one.name == insert_update_aliases.__name__)
    start = time.perf_counter()
    Compiled(lowered, runner)
    times_ms |= {one.name: one.ms for one in passed} | {"lower": _since_ms(start)}
    return Explanation(
        captured, lowered, name_of(runner), shared_memory(captured), groups_of(captured),
        mutations_of(captured, lowered),
        tuple(operation.name for operation in ordered.operations if operation.target == UPDATE_ALIASES),
        find_hazards(captured), prevented_in(ordered), _compiled_regions(lowered, runner), outside_of(lowered),
        traffic_of_calls(lowered.operations), traffic_of_calls(captured.operations), times_ms, _remark(captured),
    )  # fmt: skip


def _since_ms(start: float) -> float:
    return 1e3 * (time.perf_counter() - start)


def _compiled_regions(lowered: Program, executor: Executor) -> tuple[RegionFacts, ...]:
    """Return the facts of each region, with what is known since it was compiled: who runs it, its kernels."""
    found = []
    for facts in regions_of(lowered, name_of(executor)):
        region = lowered.operation(facts.name)
        if failure_of(region, executor) is not None:
            facts = dataclasses.replace(facts, executor="eager")
        else:
            kernels = getattr(compiled_region(region, executor), "kernels", None)
            facts = dataclasses.replace(facts, kernels=kernels)
        found.append(facts)
    return tuple(found)


def _remark(captured: Program) -> str | None:
    signature = captured.signature
    if signature is None or not (signature.returns_grad or (torch.is_grad_enabled() and signature.requires_grad)):
        return None
    return "a tensor requires grad: jit would call the original function, so that gradients are right"


def to_plain(thing: Any) -> Any:
    """Return a thing as JSON has it; a named tuple keeps the names of its fields."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return {field.name: to_plain(getattr(thing, field.name)) for field in dataclasses.fields(thing)}
    if isinstance(thing, tuple) and hasattr(thing, "_asdict"):
        return {key: to_plain(item) for key, item in thing._asdict().items()}
    if isinstance(thing, (list, tuple)):
        return [to_plain(item) for item in thing]
    if isinstance(thing, Mapping):
        return {key: to_plain(item) for key, item in thing.items()}
    return thing
