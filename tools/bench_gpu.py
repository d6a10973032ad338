"""Programs with in-place operations on a GPU: ``python -m tools.bench_gpu``.

Each against eager PyTorch, ``torch.compile``, and the floor: the bytes that must be read and written once, at the rate
of the largest copy. Variants take turns, the median of their paired ratios counts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  # its usual name

import graphalias

ROUNDS = 15
WARM_UP = 5


class Row(NamedTuple):
    """A program, its arguments, and the bytes it must move."""

    name: str
    fn: Callable[..., object]
    make: Callable[[], tuple[torch.Tensor, ...]]
    moved_bytes: int


def adam(*tensors: torch.Tensor) -> None:
    """Update parameters in place: each with its gradient and its two averages."""
    for p, g, m, v in zip(*(tensors[i::4] for i in range(4)), strict=True):
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.01)


def tanh_then_products(x: torch.Tensor) -> torch.Tensor:
    """Write once, read four times."""
    x.tanh_()
    return x * x * x * x


def rows() -> list[Row]:
    """Return the programs; sizes are beyond the caches."""
    n = 1 << 26
    made = torch.randn(n, device="cuda")
    batch = 64 * 256 * 56 * 56
    return [
        Row("x.add_(1).sin_().mul_(5)", lambda x: x.add_(1).sin_().mul_(5), lambda: (made.clone(),), 8 * n),
        Row("x.tanh_(); x * x * x * x", tanh_then_products, lambda: (made.clone(),), 12 * n),
        Row("x[:, ::2].mul_(2).add_(1)", lambda x: x[:, ::2].mul_(2).add_(1),
            lambda: (made.clone().view(8192, -1),), 8 * n),
        Row("Adam, 20 parameters", adam, lambda: tuple(torch.rand(1 << 20, device="cuda") for _ in range(80)),
            20 * 7 * 4 * (1 << 20)),
        Row("batch norm, training, relu", lambda x, m, v: F.relu(F.batch_norm(x, m, v, training=True)),
            lambda: (torch.randn(64, 256, 56, 56, device="cuda"), torch.zeros(256, device="cuda"),
                     torch.ones(256, device="cuda")), 12 * batch),
        Row("softmax in place", lambda x: x.sub_(x.amax(-1, keepdim=True)).exp_().div_(x.sum(-1, keepdim=True)),
            lambda: (made.clone().view(-1, 1024),), 8 * n),
        Row("x.add_(1) of 8 floats", lambda x: x.add_(1).mul_(2), lambda: (torch.ones(8, device="cuda"),), 64),
    ]  # fmt: skip


def time_ms(fn: Callable[..., object], args: tuple[torch.Tensor, ...]) -> float:
    """Return the time of a call on the device."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    fn(*args)
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def bytes_per_ms() -> float:
    """Return the rate of a large copy, both ways counted."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / median(time_ms(target.copy_, (source,)) for _ in range(ROUNDS))


def measured(row: Row, rate: float) -> str:
    """Return a row of the table."""
    variants = [row.fn, torch.compile(row.fn), graphalias.jit(row.fn, executor="nvfuser")]
    args = [row.make() for _ in variants]
    with torch.no_grad():
        for _ in range(WARM_UP):
            for fn, given in zip(variants, args, strict=True):
                fn(*given)
        rounds = [[time_ms(fn, given) for fn, given in zip(variants, args, strict=True)] for _ in range(ROUNDS)]
    ours = median(times[2] for times in rounds)
    ratios = [median(times[2] / times[i] for times in rounds) for i in (0, 1)]
    floor = row.moved_bytes / rate
    return f"| `{row.name}` | {ours:.3f} | {ratios[0]:.2f} | {ratios[1]:.2f} | {ours / floor:.2f} |"


def main() -> int:
    """Print the table; say why not where there is no GPU."""
    if not torch.cuda.is_available():
        print("no NVIDIA GPU: nothing to measure", file=sys.stderr)
        return 1
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print("| program | ms | / eager | / torch.compile | / memory floor |\n|---|---|---|---|---|")
    rate = bytes_per_ms()
    for row in rows():
        print(measured(row, rate), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
