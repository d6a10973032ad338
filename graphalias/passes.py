"""The passes between capture and lower: in order, timed, and with what each of them made."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from graphalias.absorb import absorb_views
from graphalias.aliases import insert_update_aliases
from graphalias.dead import eliminate_dead_operations
from graphalias.executors import get_executor
from graphalias.folding import counted_alike, fold_views
from graphalias.graph import Program
from graphalias.partition import partition_for


class Passed(NamedTuple):
    """A program after a pass, and how long the pass took."""

    name: str
    program: Program
    ms: float


def run_passes(program: Program, executor: str) -> tuple[Passed, ...]:
    """Return what each pass makes of a captured program; the last is ready to be lowered.

    Parameters
    ----------
    program : Program
        As captured. It is left as it was.
    executor : str
        Whose rules say what can be fused.

    Returns
    -------
    tuple of Passed

    Examples
    --------
    >>> import torch, graphalias
    >>> program = graphalias.capture(lambda x: x.add_(1).mul_(2), torch.ones(4))
    >>> [passed.name for passed in run_passes(program, "eager")]
    ['insert_update_aliases', 'eliminate_dead_operations', 'partition', 'absorb_views', 'fold_views']
    """
    # a program that was not captured says itself where its tensors lie
    alike = None if program.signature is None else counted_alike(program)
    passes: dict[str, Callable[[Program], Program]] = {
        "insert_update_aliases": insert_update_aliases,
        "eliminate_dead_operations": eliminate_dead_operations,
        "partition": lambda program: partition_for(program, executor),
        "absorb_views": absorb_views,
        "fold_views": lambda program: fold_views(program, alike),
    }
    if not getattr(get_executor(executor, program), "TAKES_VIEWS", True):
        del passes["absorb_views"]
    done = []
    for name, run in passes.items():
        start = time.perf_counter()
        program = run(program)
        done.append(Passed(name, program, 1e3 * (time.perf_counter() - start)))
    return tuple(done)
