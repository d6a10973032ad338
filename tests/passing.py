"""Programs on their way, for tests of what must hold at every step: captured, safe, partitioned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from graphalias import CaptureError, Program, capture
from graphalias.aliases import insert_update_aliases
from graphalias.dead import eliminate_dead_operations
from graphalias.executors import inductor
from graphalias.partition import partition_program


def steps_of(fn: Callable[..., Any], *args: Any) -> Iterator[Program]:
    """Yield a function's program as captured, without hazards, and in regions; nothing where it can't be captured."""
    try:
        captured = capture(fn, *args)
    except CaptureError:
        return
    yield captured
    safe = insert_update_aliases(captured)
    yield safe
    yield partition_program(eliminate_dead_operations(safe), inductor.why_not_fused)


def steps_of_case(case: Any) -> tuple[tuple[Any, ...], list[Program]]:
    """Return the arguments of a shared case and its program at each step."""
    args = case.make(torch.Generator().manual_seed(0))
    return args, list(steps_of(case.fn, *args))
