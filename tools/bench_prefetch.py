"""Regions with loops that prefetch, and the same without: where it pays.

    python -m tools.bench_prefetch

What it finds is in `graphalias.executors.prefetch`: how far ahead, and from how many bytes of inputs on.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import graphalias
from graphalias.compare import interleaved
from graphalias.executors import once, prefetch
from tools.bench_measure import hot

MIB = (1, 2, 4, 8, 16, 64)
DISTANCES = 2048, 4096, 8192, 16384


def halves(x: Tensor) -> None:
    """Write both halves of each row."""
    y, z = x.chunk(2, dim=1)
    y.mul_(0.5)
    z.add_(y)


def chain(x: Tensor) -> None:
    """Three operations in place."""
    x.mul_(0.5).add_(1).clamp_(max=3)


def normalize(x: Tensor) -> Tensor:
    """Subtract the mean of each column."""
    return x - x.mean(0)


def softmax(x: Tensor) -> Tensor:
    """Scale each row, after a pass over it."""
    return x.softmax(-1)


def jitted(fn: Callable[..., Any], x: Tensor, *, from_bytes: int, distance: int) -> Callable[[], Any]:
    """Return a call of a jitted function whose loops prefetch from some size on, some bytes ahead."""
    patches = {"FROM_BYTES": from_bytes, "DISTANCE_BYTES": distance}
    with mock.patch.multiple(prefetch, **patches), mock.patch.dict(once._compiled, clear=True):
        prefetch._prefetching_scheduling.cache_clear()
        call = partial(graphalias.jit(fn, executor="inductor"), x)
        call()
    prefetch._prefetching_scheduling.cache_clear()
    return call


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    table = Table("region", "MiB", *map(str, DISTANCES), title="time with prefetching / without, by bytes ahead")
    with torch.no_grad():
        for fn in (halves, chain, normalize, softmax):
            for mib in MIB:
                x = torch.randn(mib * 256, 1024)
                calls = {0: jitted(fn, x, from_bytes=1 << 60, distance=0)}
                calls |= {distance: jitted(fn, x, from_bytes=0, distance=distance) for distance in DISTANCES}
                seconds = interleaved(calls, 15, partial(hot, block_seconds=0.02))
                ratios = [
                    statistics.median(one / other for one, other in zip(seconds[distance], seconds[0], strict=True))
                    for distance in DISTANCES
                ]
                table.add_row(fn.__name__, str(mib), *(f"{ratio:.2f}" for ratio in ratios))
    Console().print(table)


if __name__ == "__main__":
    main()
