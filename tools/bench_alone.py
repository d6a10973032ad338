"""Operations one by one, as ATen runs them and as a region of their own: which are worth one.

    python -m tools.bench_alone

What it finds is in `graphalias.executors.inductor.gains_alone`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import graphalias
from graphalias.compare import interleaved
from graphalias.executors import inductor
from tools.bench_measure import hot

SHAPES = (64, 512), (1024, 1024), (8, 32, 32, 32)
OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": nn.functional.gelu,
    "silu": nn.functional.silu,
    "tanh": torch.tanh,
    "layer_norm": lambda x: nn.functional.layer_norm(x, x.shape[-1:]),
    "batch_norm": lambda x: nn.functional.batch_norm(x, None, None, training=True),
    "softmax": lambda x: x.softmax(-1),
    "var(0)": lambda x: x.var(0),
    "std(1)": lambda x: x.std(1),
    "sum(0)": lambda x: x.sum(0),
    "row @ matrix": lambda x: x[:, :1].unsqueeze(1) @ x.unsqueeze(1) if x.dim() == 2 else x[..., :1, :] @ x,
    "row @ matrix.T": lambda x: x.view(8, -1, 64)[:, :1] @ x.view(8, -1, 64).mT,
}


def jitted(fn: Callable[[Tensor], Tensor], *, alone: bool) -> Callable[[Tensor], Tensor]:
    """Return a jitted function whose single operations are regions, or are not."""
    original = inductor.gains_alone
    inductor.gains_alone = lambda operation: alone
    try:
        compiled = graphalias.jit(lambda x: fn(x), executor="inductor")
        for shape in SHAPES:
            compiled(torch.randn(shape))
    finally:
        inductor.gains_alone = original
    return compiled


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    table = Table("operation", *(str(list(shape)) for shape in SHAPES), title="time of a region / time of ATen")
    with torch.no_grad():
        for name, fn in OPERATIONS.items():
            region, aten = jitted(fn, alone=True), jitted(fn, alone=False)
            ratios = []
            for shape in SHAPES:
                x = torch.randn(shape)
                calls = {"region": partial(region, x), "aten": partial(aten, x)}
                seconds = interleaved(calls, 15, partial(hot, block_seconds=0.02))
                pairs = zip(seconds["region"], seconds["aten"], strict=True)
                ratios.append(f"{statistics.median(one / other for one, other in pairs):.2f}")
            table.add_row(name, *ratios)
    Console().print(table)


if __name__ == "__main__":
    main()
