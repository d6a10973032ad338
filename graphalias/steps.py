"""The steps of a rewriting: what was replaced where, and what was refused and why."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

from graphalias.draw import draw
from graphalias.graph import Operation, Program

#: So many replacements, in programs of so many operations, are drawn one after the other; else before and after.
DRAWN_STEPS, DRAWN_OPERATIONS = 4, 60


@dataclass(frozen=True)
class Step:
    """One match of a rule: replaced, or refused.

    Parameters
    ----------
    rule : str
    place : str
        The operation it matched at.
    location : str or None
        ``file:line`` in the user's code.
    before, after : tuple of Operation
        What was taken out, operations that were left unused included; and what came instead, or would have.
    milliseconds : float
    reason : str or None
        Why it was refused; None where it was applied.

    Examples
    --------
    >>> print(Step("fuse", "add", "model.py:3", (), (), 0.1, "%mul, an intermediate, is returned"))
    fuse at %add (model.py:3): refused: %mul, an intermediate, is returned
    """

    rule: str
    place: str
    location: str | None
    before: tuple[Operation, ...]
    after: tuple[Operation, ...]
    milliseconds: float
    reason: str | None = None

    @property
    def is_applied(self) -> bool:
        """Whether the replacement took place."""
        return self.reason is None

    def __str__(self) -> str:
        at = f" ({os.path.basename(self.location)})" if self.location else ""
        text = f"{self.rule} at %{self.place}{at}: "
        if self.reason is not None:
            return f"{text}refused: {self.reason}"
        names = [" ".join(f"%{operation.name}" for operation in side) for side in (self.before, self.after)]
        return f"{text}{names[0]} -> {names[1] or 'nothing'}"


@dataclass(frozen=True)
class Steps(Sequence[Step]):
    """Every step of a rewriting, in order, and the programs at its two ends.

    Parameters
    ----------
    steps : tuple of Step
    before, program : Program
        As given, and as it came out.
    snapshots : tuple of Program
        After each of the first replacements, where the program is small.

    Examples
    --------
    >>> import torch, graphalias
    >>> twice = graphalias.Rule(lambda x: x.neg().neg(), lambda x: x.clone(), name="twice")
    >>> steps = graphalias.rewrite_in_steps(graphalias.capture(lambda x: x.neg().neg().exp(), torch.ones(2)), twice)
    >>> print(steps)
    twice at %neg_1 (...): %neg %neg_1 -> %clone
    >>> len(steps.applied), len(steps.refused)
    (1, 0)
    """

    steps: tuple[Step, ...]
    before: Program
    program: Program
    snapshots: tuple[Program, ...] = ()

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Step]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.steps[index]

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def applied(self) -> tuple[Step, ...]:
        """The steps that changed the program."""
        return tuple(step for step in self.steps if step.is_applied)

    @property
    def refused(self) -> tuple[Step, ...]:
        """The matches that were left as they are."""
        return tuple(step for step in self.steps if not step.is_applied)

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps)) or "no rule matches"

    def __repr__(self) -> str:
        return f"<Steps: {len(self.applied)} applied, {len(self.refused)} refused>"

    def to_dict(self) -> dict[str, Any]:
        """Return the steps as plain lists and dicts."""
        return {"steps": [
            {"rule": step.rule, "place": step.place, "location": step.location, "milliseconds": step.milliseconds,
             "before": [str(op.target) for op in step.before], "after": [str(op.target) for op in step.after],
             "reason": step.reason}
            for step in self.steps
        ]}  # fmt: skip

    def programs(self) -> dict[str, Program]:
        """Return the program before, after each replacement if they are few, and after all of them, with titles."""
        titles = [f"{i}. {step.rule} at %{step.place}" for i, step in enumerate(self.applied, 1)]
        if len(titles) != len(self.snapshots) or not titles:
            return {"before": self.before, "after": self.program}
        return {"before": self.before, **dict(zip(titles, self.snapshots, strict=True))}

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": str(self), "image/svg+xml": draw(self.programs()).svg}
