"""Python state is frozen into a captured program, so a function that changes it can't be captured."""

from __future__ import annotations

import functools
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

import torch

from graphalias.errors import CaptureError
from graphalias.torch_private import is_same_generator, no_modes
from graphalias.tracing.location import describe, is_user_frame
from graphalias.tracing.reach import reachable_slots
from graphalias.tracing.slots import Slot, state_slot

#: Where a module keeps what its users call ``module.weight``.
_MODULE_DICTS = re.compile(r"\._(?:buffers|parameters|modules)\['([^']*)'\]")

#: What torch's generator is seeded with while a function runs: that the function seeds it, with anything, is seen.
_SEED = 0x67A1_1A5E5

_HINT = "pass it as a tensor argument or return it; if it is a cache, call the function once before capturing"
_RANDOM_HINT = "draw random numbers with torch operations, and seed outside the function"


class PythonState:
    """What a function can reach, as it was before it ran.

    Examples
    --------
    >>> counts = {"calls": 0}
    >>> state = PythonState([("counts", counts)])
    >>> counts["calls"] += 1
    >>> state.restore(), counts
    (["counts['calls']"], {'calls': 0})
    """

    def __init__(self, roots: list[tuple[str, Any]]) -> None:
        reachable = reachable_slots(roots)
        self._random_state = torch.get_rng_state()
        torch.default_generator.manual_seed(_SEED)
        self._slots = [*global_slots(), *reachable]

    def restore(self) -> list[str]:
        """Put everything back as it was; return the names of what had changed."""
        changed = self._put_back()
        torch.set_rng_state(self._random_state)
        return changed

    def refuse_new_generators(self, things: Iterable[Any]) -> None:
        """Raise a CaptureError if a random generator is among some things that was made since."""
        known = [slot.container for slot in self._slots if isinstance(slot.container, torch.Generator)]
        known += [torch.default_generator, *torch.cuda.default_generators]
        for thing in things:
            if isinstance(thing, torch.Generator) and not any(is_same_generator(thing, other) for other in known):
                raise CaptureError(
                    "can't capture a torch.Generator that was made inside the function: each run would go on drawing "
                    "from the same one",
                    hint="make it outside the function, and pass it",
                )

    def _put_back(self) -> list[str]:
        changed = []
        for slot in self._slots:
            names = slot.changes()
            changed += [_MODULE_DICTS.sub(r".\1", name) for name in names]
            if names and slot.write is not None:
                slot.write(slot.saved)
        return list(dict.fromkeys(changed))

    def refuse_changes(self, run: Callable[[], Any]) -> None:
        """Raise a CaptureError if something changed, with the line; everything is restored.

        Parameters
        ----------
        run : callable
            Runs the function again: only so is the line found.
        """
        culprit = next((slot for slot in self._slots if slot.changes()), None)
        if culprit is None:
            return
        lost = "" if culprit.write is not None else " It can't be put back."
        shown = _show_change(*culprit.first_change())
        changed = self._put_back()
        location = self._line_of(culprit, run) if culprit.write is not None else None
        raise CaptureError(
            f"the function changes {', '.join(changed[:5])}{shown}: a program would keep the value it had while "
            f"capturing.{lost}",
            location=location,
            hint=_RANDOM_HINT if culprit.label.endswith("random state") else _HINT,
        )

    def _line_of(self, slot: Slot, run: Callable[[], Any]) -> str | None:
        """Return where a slot first changes, by running again and looking after every line."""
        last: str | None = None
        found: str | None = None

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last, found
            if found is None:
                with no_modes():  # the state may be torch's, and modes are on
                    found = last if slot.changes() else None
            if found is not None or not is_user_frame(frame):
                return None
            if event == "line":
                last = describe(frame)
            return trace

        previous = sys.gettrace()
        sys.settrace(trace)
        try:
            run()
        except Exception:  # the first run told; this one only looks
            found = found or last
        finally:
            sys.settrace(previous)
            self._put_back()
        return found


def _show_change(before: Any, now: Any) -> str:
    if isinstance(before, (bool, int, float, str)) and isinstance(now, (bool, int, float, str)):
        return f" (expected {before!r}, found {now!r})"
    return ""


def global_slots() -> Iterator[Slot]:
    """Yield the slots of state that belongs to nobody: random numbers and torch's modes."""
    yield state_slot("Python's random state", random.getstate, random.setstate)
    if "numpy" in sys.modules:
        numpy_random = sys.modules["numpy"].random
        yield state_slot("numpy's random state", numpy_random.get_state, numpy_random.set_state)
    yield state_slot("torch's random state", torch.get_rng_state, torch.set_rng_state)
    if torch.cuda.is_initialized():
        yield state_slot("CUDA's random state", torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all)
    yield state_slot("torch.set_grad_enabled", torch.is_grad_enabled, torch.set_grad_enabled)
    for device in ("cpu", "cuda"):
        yield state_slot(
            f"torch.autocast({device!r})",
            functools.partial(torch.is_autocast_enabled, device),
            functools.partial(torch.set_autocast_enabled, device),
        )
    yield state_slot("torch.set_default_dtype", torch.get_default_dtype, torch.set_default_dtype)
