"""A function of the user's timed: eager PyTorch, `jit` and ``torch.compile`` in turns."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from graphalias.runtime import jit

#: A variant is called again and again for so long in each round.
BLOCK_SECONDS = 0.02


@dataclass(frozen=True)
class Comparison:
    """Seconds of a call by variant, and why a variant has none.

    Ratios are medians over the rounds, each of two times of one round: what else the machine does hits both.
    """

    seconds: Mapping[str, Sequence[float]]
    failed: Mapping[str, str]

    def ratio(self, one: str, other: str) -> float:
        """Return the time of a variant divided by that of another."""
        pairs = zip(self.seconds[one], self.seconds[other], strict=True)
        return statistics.median(a / b for a, b in pairs)

    def to_dict(self) -> dict[str, Any]:
        """Return medians in microseconds, and ratios to eager, as ``json`` takes them."""
        return {
            "median_us": {name: 1e6 * statistics.median(times) for name, times in self.seconds.items()},
            "over_eager": {name: self.ratio(name, "eager") for name in self.seconds if name != "eager"},
            "failed": dict(self.failed),
        }


def compare(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, executor: str = "auto", rounds: int = 15,
    tick: Callable[[], None] = lambda: None,
) -> Comparison:  # fmt: skip
    """Time a function as it is, through `jit` and through ``torch.compile``, in turns, without gradients.

    Parameters
    ----------
    fn : callable
    args, kwargs
        Called with again and again: what the function writes stays written.
    executor : str
    rounds : int
    tick : callable
        Called after each round.
    """
    variants = {"eager": fn, "jit": jit(fn, executor=executor), "torch.compile": torch.compile(fn, dynamic=False)}
    failed: dict[str, str] = {}
    calls: dict[str, Callable[[], Any]] = {}
    with torch.no_grad():
        for name, variant in variants.items():
            try:
                for _ in range(3):  # compiles, and comes to the path of later calls
                    variant(*args, **kwargs)
            except Exception as error:  # whatever a compiler raises, the others are still timed
                if name == "eager":
                    raise
                failed[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
                continue
            calls[name] = lambda variant=variant: variant(*args, **kwargs)  # type: ignore[misc]
        return Comparison(interleaved(calls, rounds, _block_seconds, tick), failed)


def interleaved(
    calls: Mapping[str, Callable[[], Any]],
    rounds: int,
    timed: Callable[[Callable[[], Any]], float],
    tick: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:
    """Return the seconds of a call by variant and round; the order changes from round to round.

    What runs before leaves its mark on the caches: no variant always comes after the same other one.

    Parameters
    ----------
    calls : mapping
        From variants to calls.
    rounds : int
    timed : callable
        Returns the seconds of a call.
    tick : callable, optional
        Called after every round.
    """
    turns = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name in turns.sample(list(calls), len(calls)):
                seconds[name].append(timed(calls[name]))
            tick()
    finally:
        gc.enable()
    return seconds


def _block_seconds(call: Callable[[], Any]) -> float:
    """Return the mean seconds of calls one after the other, as many as take some time together."""
    return _seconds(call, max(1, int(BLOCK_SECONDS / max(_seconds(call, 1), 1e-6))))


def _seconds(call: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats
