"""The work that `bench.py` times: programs with in-place operations, and what each must reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

#: What a processor moves at once between memory and its caches: writing every second float moves all of them.
CACHE_LINE_BYTES = 64

FULL, TINY = "full", "tiny"


@dataclass(frozen=True)
class Work:
    """A function and what it is called with.

    Parameters
    ----------
    fn : callable
        Takes ``args``. It is not bound to them: a `Work` made again is the same work on other tensors.
    args : tuple
        Tensors, lists of tensors, numbers.
    moved_bytes : int
        What must be read and written, each byte once, if nothing of it is in a cache.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    moved_bytes: int

    @property
    def state(self) -> list[Tensor]:
        """Every tensor that a call may write: the arguments, and what a module holds."""
        held = [*self.fn.parameters(), *self.fn.buffers()] if isinstance(self.fn, nn.Module) else []
        return [*tensors_of(self.args), *held]


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Parameters
    ----------
    make : callable
        Returns the `Work`, its tensors filled from the global random generator; takes FULL or TINY.
    title : str
    targets : dict
        Variant -> the time of ``graphalias.jit`` divided by that variant's must be at most this.
    first_call : float or None
        The same for the first call, against ``torch.compile``.
    sizes : tuple of int
        Of a row whose first call is measured over sizes, which ``make`` takes as ``size``.
    is_slow : bool
        ``torch.compile`` takes minutes for it.
    """

    make: Callable[..., Work]
    title: str
    targets: Mapping[str, float] = field(default_factory=dict)
    first_call: float | None = None
    sizes: tuple[int, ...] = ()
    is_slow: bool = False


def tensors_of(tree: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested tuples and lists, in order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from tensors_of(item)


def size_bytes(*tensors: Tensor) -> int:
    """Return how many bytes the elements of some tensors take."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def chunk(scale: str) -> Work:
    """Two column blocks of a matrix: one scaled, then added to the other."""
    n = {FULL: 2048, TINY: 4}[scale]

    def fn(x: Tensor) -> Tensor:
        y, z = x.chunk(2, dim=1)
        y.mul_(2)
        z.add_(y)
        return x

    x = torch.randn(n, n)
    return Work(fn, (x,), 2 * size_bytes(x))


def columns(scale: str) -> Work:
    """Three in-place operations on every second column: all cache lines are read and written."""
    n = {FULL: 4096, TINY: 4}[scale]

    def fn(x: Tensor) -> Tensor:
        x[:, ::2].add_(1).mul_(0.5).add_(1)
        return x

    x = torch.randn(n, n)
    assert 2 * x.element_size() < CACHE_LINE_BYTES
    return Work(fn, (x,), 2 * size_bytes(x))


def small(scale: str) -> Work:
    """One in-place operation on eight floats: the price of a call."""

    def fn(x: Tensor) -> Tensor:
        return x.add_(1)

    x = torch.randn(8)
    return Work(fn, (x,), 2 * size_bytes(x))


def cache_write(scale: str, *, length: int, is_read: bool) -> Work:
    """One token's keys into a KV cache, which a query may then be multiplied with."""
    heads, width, length = {FULL: (8, 64, length), TINY: (2, 4, 6)}[scale]
    position = length // 2

    def write(cache: Tensor, k: Tensor) -> None:
        cache[:, :, position : position + 1] = k

    def write_and_read(cache: Tensor, k: Tensor, q: Tensor) -> Tensor:
        cache[:, :, position : position + 1] = k
        return q @ cache.transpose(-1, -2)

    cache, k, q = torch.randn(1, heads, length, width), torch.randn(1, heads, 1, width), torch.randn(1, heads, 1, width)
    if is_read:
        scores_bytes = heads * length * cache.element_size()
        return Work(write_and_read, (cache, k, q), size_bytes(cache, k, k, q) + scores_bytes)
    return Work(write, (cache, k), 2 * size_bytes(k))


def batch_norm(scale: str) -> Work:
    """BatchNorm as written by hand for training: running statistics in place."""
    rows, width = {FULL: (256, 1024), TINY: (8, 4)}[scale]

    def fn(x: Tensor, weight: Tensor, bias: Tensor, running_mean: Tensor, running_var: Tensor) -> Tensor:
        mean = x.mean(0)
        var = x.var(0, unbiased=False)
        running_mean.mul_(0.9).add_(mean, alpha=0.1)
        running_var.mul_(0.9).add_(var, alpha=0.1 * rows / (rows - 1))
        return (x - mean) * torch.rsqrt(var + 1e-5) * weight + bias

    x = torch.randn(rows, width)
    weight, bias, running_mean, running_var = (torch.rand(width) for _ in range(4))
    moved_bytes = 2 * size_bytes(x) + size_bytes(weight, bias) + 2 * size_bytes(running_mean, running_var)
    return Work(fn, (x, weight, bias, running_mean, running_var), moved_bytes)


def adam(scale: str, *, count: int, width: int) -> Work:
    """A step of Adam, a parameter at a time, as one writes it; the step counter is a tensor all of them read."""
    count, width = {FULL: (count, width), TINY: (3, 5)}[scale]

    def fn(
        params: Sequence[Tensor], grads: Sequence[Tensor], first: Sequence[Tensor], second: Sequence[Tensor],
        step: Tensor,
    ) -> None:  # fmt: skip
        step.add_(1)
        first_scale = 1 - 0.9**step
        second_scale = (1 - 0.999**step).sqrt()
        for p, g, m, v in zip(params, grads, first, second, strict=True):
            m.mul_(0.9).add_(g, alpha=0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)
            p.addcdiv_(m / first_scale, (v.sqrt() / second_scale).add_(1e-8), value=-0.001)

    params, grads, first, second = ([torch.rand(width) for _ in range(count)] for _ in range(4))
    moved_bytes = 2 * size_bytes(*params, *first, *second) + size_bytes(*grads)
    return Work(fn, (params, grads, first, second, torch.zeros(())), moved_bytes)


def chain(scale: str, *, size: int, elements: int) -> Work:
    """N in-place operations on one tensor; the values stay bounded."""
    elements = {FULL: elements, TINY: 5}[scale]

    def fn(x: Tensor) -> Tensor:
        for i in range(size):
            if i % 2:
                x.mul_(0.5)
            else:
                x.add_(1)
        return x

    x = torch.randn(elements)
    return Work(fn, (x,), 2 * size_bytes(x))


class Residual(nn.Module):
    """Two convolutions with BatchNorm, joined to the input, in-place ReLU."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's result."""
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        out += x
        return self.relu(out)


def residual(scale: str) -> Work:
    """Blocks of a residual network in training mode, without gradients."""
    blocks, channels, width = {FULL: (4, 32, 32), TINY: (1, 2, 4)}[scale]
    model = nn.Sequential(*(Residual(channels) for _ in range(blocks))).requires_grad_(False)
    x = torch.randn(8 if scale == FULL else 2, channels, width, width)
    return Work(model, (x,), 2 * size_bytes(x) + size_bytes(*model.parameters()) + 2 * size_bytes(*model.buffers()))


class Layer(nn.Module):
    """A small transformer block that adds to its argument in place."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the argument, changed."""
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x += self.proj(seen.transpose(1, 2).reshape(batch, length, width))
        x += self.down(nn.functional.gelu(self.up(self.norm2(x))))
        return x


def transformer(scale: str) -> Work:
    """Identical layers of a small transformer, without gradients."""
    layers, length, width, heads = {FULL: (32, 64, 128, 4), TINY: (2, 3, 8, 2)}[scale]
    model = nn.Sequential(*(Layer(width, heads) for _ in range(layers))).requires_grad_(False).eval()
    x = torch.randn(1, length, width)
    return Work(model, (x,), 2 * size_bytes(x) + size_bytes(*model.parameters()))


def _kv_rows() -> Iterator[tuple[str, Row]]:
    for length in (128, 1024, 4096, 16_384):
        make = partial(cache_write, length=length, is_read=False)
        yield f"kv-{length}", Row(make, f"KV cache slice write, S={length:,}", {"eager": 2.5, "compile": 0.4})
    for length in (128, 1024, 4096, 16_384):
        make = partial(cache_write, length=length, is_read=True)
        title = f"KV cache write, then q @ cache.T, S={length:,}"
        yield f"kv-read-{length}", Row(make, title, {"eager": 1.05, "compile": 1.3})


#: By the name the command line takes.
ROWS: dict[str, Row] = {
    "chunk": Row(chunk, "y, z = chunk; y.mul_(2); z.add_(y), f32[2048,2048]", {"eager": 0.7, "compile": 0.3}),
    "columns": Row(columns, "x[:, ::2] chain of 3, f32[4096,4096]", {"eager": 0.4, "compile": 0.4}),
    "small": Row(small, "x.add_(1), f32[8]", {"eager": 1.6, "compile": 0.35}),
    **dict(_kv_rows()),
    "batch-norm": Row(batch_norm, "BatchNorm by hand, f32[256,1024]", {"compile": 1.0}),
    "adam-20": Row(partial(adam, count=20, width=100_000), "Adam step, 20 of f32[100,000]", {"compile": 1.0}),
    "adam-200": Row(
        partial(adam, count=200, width=100), "Adam step, 200 of f32[100]", {"compile": 0.6}, 0.1, is_slow=True
    ),
    "chain-3": Row(partial(chain, size=3, elements=1 << 24), "in-place chain of 3, f32[16M]", {"compile": 1.0}),
    "chain-8": Row(partial(chain, size=8, elements=1 << 24), "in-place chain of 8, f32[16M]", {"compile": 1.0}),
    "residual": Row(residual, "4 residual blocks, f32[8,32,32,32]", {"compile": 1.0}),
    "transformer": Row(transformer, "32 transformer layers, f32[1,64,128]", {"compile": 1.0}, 0.25, is_slow=True),
    "chain-1000": Row(
        partial(chain, size=1000, elements=1000), "in-place chain of 1,000, f32[1000]", {}, 1.0, (250, 500, 1000),
        is_slow=True,
    ),
}  # fmt: skip
#: Rows that must take the same time: a slice of a cache is written whatever the cache's size.
FLAT = tuple(name for name in ROWS if name.startswith("kv-") and not name.startswith("kv-read"))
