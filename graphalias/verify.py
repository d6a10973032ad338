"""verify: topological orders and the executor against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import torch

from graphalias.capture import capture
from graphalias.draw import draw, show
from graphalias.errors import VerificationError
from graphalias.executors import get_executor, name_of
from graphalias.executors.eager import bind_inputs
from graphalias.graph import Program
from graphalias.hazards import find_hazards
from graphalias.lower import lower
from graphalias.oracle import Scene, Seen, differences, is_same, soil_memory
from graphalias.orders import topological_orders
from graphalias.passes import run_passes
from graphalias.trail import first_difference

Run = Callable[[], Any]


@dataclass(frozen=True)
class Report:
    """What `verify` found right.

    Parameters
    ----------
    program : Program
        With its `update_aliases`, as it was run.
    orders : int
        Topological orders that gave what eager gives, the adversarial ones included.
    executor : str
    hazards : int
        Of the program as captured: pairs that some order would have run wrongly.
    undetermined : tuple of str
        What differs between two runs of eager PyTorch itself, such as uninitialised memory, and is not compared.
    error : str or None
        The error that eager PyTorch raises on these arguments; every order and the executor raised as well.

    Examples
    --------
    >>> import torch, graphalias
    >>> print(graphalias.verify(lambda x: x.add_(1).t(), torch.ones(2, 3)))
    <lambda>: 23 topological orders and executor eager give what eager PyTorch gives; 0 hazards before
    """

    program: Program
    orders: int
    executor: str
    hazards: int
    undetermined: tuple[str, ...] = ()
    error: str | None = None

    def __str__(self) -> str:
        what = f"raise as eager PyTorch does ({self.error})" if self.error else "give what eager PyTorch gives"
        text = f"{self.program.name}: {self.orders} topological orders and executor {self.executor} {what}"
        text += f"; {self.hazards} hazards before"
        return text + (f"; not compared: {', '.join(self.undetermined)}" if self.undetermined else "")

    def to_dict(self) -> dict[str, Any]:
        """Return what was found, as ``json`` takes it; the program as text."""
        return {**vars(self), "program": str(self.program), "undetermined": list(self.undetermined)}

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return show(str(self), draw(self.program), f"<p>{escape(str(self))}</p>")


def verify(fn: Callable[..., Any], *args: Any, orders: int = 20, executor: str = "eager", **kwargs: Any) -> Report:
    """Check random topological orders, adversarial ones, and an executor against eager PyTorch.

    Compared are returned values, every argument's contents and geometry afterwards, object identity, which results
    share memory with what, random states, and errors.

    Parameters
    ----------
    fn : callable or Program
        What `capture` takes; or a program, which is run as it is: its own order is the reference then.
    *args, **kwargs
        What to call it with. Tensors are put back as they were after each run.
    orders : int
        How many random orders.
    executor : str

    Returns
    -------
    Report

    Raises
    ------
    VerificationError
        If something differs. Names the first operation that does and the dependency that is missing.
    CaptureError
        If the function can't be captured.

    Examples
    --------
    >>> import torch, graphalias
    >>> program = graphalias.capture(lambda x: (x * 1, x.add_(1)), torch.ones(2))
    >>> graphalias.verify(program, torch.ones(2))
    Traceback (most recent call last):
    ...
    graphalias.errors.VerificationError: <lambda>: a topological order differs from eager PyTorch ...
    """
    if isinstance(fn, Program):
        captured = program = lowered = fn
        executor = name_of(get_executor(executor, captured))  # what auto stands for
        reference: Run = lambda: fn.run(*args, **kwargs)  # noqa: E731  # beside the other one
    else:
        captured = capture(fn, *args, **kwargs)
        executor = name_of(get_executor(executor, captured))
        passed = {name: made for name, made, _ in run_passes(captured, executor)}  # as jit does
        program, lowered = passed["insert_update_aliases"], list(passed.values())[-1]
        reference = lambda: fn(*args, **kwargs)  # noqa: E731
    scene = scene_of(program, args, kwargs)
    expected, undetermined = _expected(scene, reference)
    tried = 0
    for order in topological_orders(program, orders):
        _compare_order(program, scene, expected, undetermined, order, args, kwargs)
        tried += 1
    _compare_executor(lowered, executor, scene, expected, undetermined, args, kwargs)
    error = type(expected.error).__name__ if expected.error else None
    return Report(program, tried, executor, len(find_hazards(captured)), undetermined, error)


def scene_of(program: Program, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Scene:
    """Return the tensors and random generators that a run of the program on these arguments may touch."""
    generators = [bound for bound in program.bindings.values() if isinstance(bound, torch.Generator)]
    generators = [g for i, g in enumerate(generators) if g is not torch.default_generator and g not in generators[:i]]
    return Scene(bind_inputs(program, args, kwargs), generators)


def _expected(scene: Scene, reference: Run) -> tuple[Seen, tuple[str, ...]]:
    """Return what the reference shows, and what it does not determine itself."""
    soil_memory(0xA5)
    first = scene.watch(reference)
    soil_memory(0x5A)
    second = scene.watch(reference)
    undetermined = [
        name
        for part in ("returned", "arguments")
        for name, look in getattr(first, part).items()
        if not is_same(look, getattr(second, part).get(name))
    ]
    return first, tuple(undetermined)


def _different(expected: Seen, found: Seen, undetermined: Sequence[str], **options: bool) -> list[str]:
    lines = differences(expected, found, **options)
    return [line for line in lines if not line.startswith(tuple(f"{name}:" for name in undetermined))]


def _compare_order(
    program: Program, scene: Scene, expected: Seen, undetermined: Sequence[str], order: list[str],
    args: Sequence[Any], kwargs: Mapping[str, Any],
) -> None:  # fmt: skip
    found = scene.watch(lambda: program.run(*args, order=order, **kwargs))
    lines = _different(expected, found, undetermined, with_state_of_errors=False)
    if lines:
        blame = first_difference(program, scene, order, args, kwargs)
        raise VerificationError(
            "\n  ".join([f"{program.name}: a topological order differs from eager PyTorch", *lines[:5], *blame.lines]),
            node=blame.node, location=blame.location,
            hint=blame.hint,
        )  # fmt: skip


def _compare_executor(
    program: Program, executor: str, scene: Scene, expected: Seen, undetermined: Sequence[str],
    args: Sequence[Any], kwargs: Mapping[str, Any],
) -> None:  # fmt: skip
    compiled = lower(program, executor)
    found = scene.watch(lambda: compiled(*args, **kwargs))
    lines = _different(expected, found, undetermined, exact=executor == "eager")
    if lines:
        message = f"{program.name}: executor {executor} differs from eager PyTorch"
        raise VerificationError("\n  ".join([message, *lines[:5]]))
