"""Python state is frozen into a captured program, so a function that changes it can't be captured."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from graphalias.errors import CaptureError
from graphalias.location import describe, is_user_frame
from graphalias.reach import reachable_slots
from graphalias.slots import Slot
from graphalias.torch_private import no_modes

#: Where a module keeps what its users call ``module.weight``.
_MODULE_DICTS = re.compile(r"\._(?:buffers|parameters|modules)\['([^']*)'\]")

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
        self._slots = reachable_slots(roots)

    def restore(self) -> list[str]:
        """Put everything back as it was; return the names of what had changed."""
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
        now = dict(culprit.read())
        lost = "" if culprit.write is not None else " It can't be put back."
        name = culprit.changes()[0].removeprefix(culprit.label)
        shown = _show_change(dict(culprit.saved).get(name), now.get(name))
        changed = self.restore()
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
            self.restore()
        return found


def _show_change(before: Any, now: Any) -> str:
    if isinstance(before, (bool, int, float, str)) and isinstance(now, (bool, int, float, str)):
        return f" (expected {before!r}, found {now!r})"
    return ""
