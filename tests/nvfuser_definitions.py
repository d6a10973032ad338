"""Definitions written by hand: dangerous ones, and what makes each safe. ``make`` yields them for the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

nvfuser_direct = pytest.importorskip("nvfuser_direct", reason="nvFuser is not installed: pip install '.[nvfuser]'")
from nvfuser_direct import DataType, FusionDefinition  # noqa: E402

FLOAT, BF16, INT = DataType.Float, DataType.BFloat16, DataType.Int
Made = tuple[Any, list[torch.Tensor]]


def define(*tensors: torch.Tensor) -> Callable[[Callable[..., None]], Made]:
    """Decorate a function of a FusionDefinition and one input for each tensor: it becomes the definition and inputs."""

    def decorate(body: Callable[..., None]) -> Made:
        with FusionDefinition() as fd:
            names = {torch.float32: FLOAT, torch.bfloat16: BF16, torch.int64: INT, torch.bool: DataType.Bool}
            sizes = [
                fd.define_tensor(
                    sizes=list(tensor.shape),
                    strides=list(tensor.stride()),
                    dtype=names[tensor.dtype],
                    static_sizes=True,
                )
                for tensor in tensors
            ]
            body(fd, *sizes)
        return fd, list(tensors)

    return decorate


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return numbers that are the same every time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape))).to(dtype)


def seed(*, reads_the_input: bool) -> Made:
    """``y.exp_().add(x) + z.exp()``, with the read after ``exp_`` of the input itself or of what is written to it."""

    @define(randn(2, 1, 2), randn(2, 1, 2), randn(1, 2, 2))
    def made(fd: Any, y: Any, x: Any, z: Any) -> None:
        new = fd.ops.set(fd.ops.exp(y))
        left = fd.ops.broadcast_in_dim(fd.ops.add(y if reads_the_input else new, x), [2, 2, 2], [0, 1, 2])
        right = fd.ops.broadcast_in_dim(fd.ops.exp(z), [2, 2, 2], [0, 1, 2])
        fd.add_output(fd.ops.add(left, right))
        fd.add_output(new, y)

    return made


@define(randn(8, 12))
def two_reductions(fd: Any, x: Any) -> None:
    """``a, b = x.sum(0), x.sum(1); x.add_(1)``: neither sum is needed for the write."""
    fd.add_output(fd.ops.sum(x, [0]))
    fd.add_output(fd.ops.sum(x, [1]))
    fd.add_output(fd.ops.set(fd.ops.add(x, 1.0)), x)


@define(randn(8, 8))
def transposed(fd: Any, x: Any) -> None:
    """``x.copy_(x.t() + 1)``: elements are read elsewhere than they are written."""
    fd.add_output(fd.ops.set(fd.ops.add(fd.ops.permute(x, [1, 0]), 1.0)), x)


@define(randn(64))
def shifted(fd: Any, x: Any) -> None:
    """``x.copy_(pad(x[1:]))``."""
    fd.add_output(fd.ops.set(fd.ops.pad(fd.ops.slice(x, [1], [64]), [0, 1])), x)


@define(randn(8, 8), randn(8, 8))
def bare_product(fd: Any, x: Any, y: Any) -> None:
    """``x.copy_(x @ y)`` without a set: the write is lost."""
    fd.add_output(fd.ops.matmul(x, y), x)


@define(randn(8))
def clone_before(fd: Any, x: Any) -> None:
    """``y = x.clone(); x.add_(1); return y`` within: the clone is x."""
    fd.add_output(fd.ops.set(x))
    fd.add_output(fd.ops.set(fd.ops.add(x, 1.0)), x)


@define(randn(8), randn(8))
def one_value_twice(fd: Any, x: Any, y: Any) -> None:
    """One value written to two inputs: the first is forgotten, and the value comes back."""
    value = fd.ops.set(fd.ops.add(x, y))
    fd.add_output(value, x)
    fd.add_output(value, y)


@define(randn(8))
def written_twice(fd: Any, x: Any) -> None:
    """An input with two values: whichever comes last."""
    fd.add_output(fd.ops.set(fd.ops.add(x, 1.0)), x)
    fd.add_output(fd.ops.set(fd.ops.mul(x, 2.0)), x)


@define(randn(8, dtype=torch.bfloat16))
def float_into_half(fd: Any, x: Any) -> None:
    """An f32 value written to a bf16 input: bytes beyond its end."""
    fd.add_output(fd.ops.set(fd.ops.add(x, 1.0)), x)


@define(randn(4), randn(8))
def longer(fd: Any, x: Any, y: Any) -> None:
    """Eight elements written to four."""
    fd.add_output(fd.ops.set(fd.ops.add(y, 1.0)), x)


@define(randn(8, 1).expand(8, 6))
def expanded(fd: Any, x: Any) -> None:
    """An expanded target: six elements in one place."""
    fd.add_output(fd.ops.set(fd.ops.add(x, 1.0)), x)


@define(randn(8, 8), randn(8, 4))
def read_two_segments_later(fd: Any, x: Any, w: Any) -> None:
    """``x @ w`` beside ``x.add_(1)``."""
    fd.add_output(fd.ops.matmul(x, w))
    fd.add_output(fd.ops.set(fd.ops.add(x, 1.0)), x)


@define(randn(8, 12, dtype=torch.bfloat16))
def cast_read_again(fd: Any, x: Any) -> None:
    """Sums of x in float, and a write of x: each kernel casts x again."""
    wide = fd.ops.cast(x, FLOAT)
    fd.add_output(fd.ops.sum(wide, [0]))
    fd.add_output(fd.ops.sum(wide, [1]))
    fd.add_output(fd.ops.set(fd.ops.cast(fd.ops.add(wide, 1.0), BF16)), x)


@define(randn(8, 4), randn(8, 4))
def pieces(fd: Any, x: Any, y: Any) -> None:
    """``a = x.exp(); x.copy_(y)``: one shape and pointwise, yet two kernels, since they have nothing in common."""
    fd.add_output(fd.ops.exp(x))
    fd.add_output(fd.ops.set(fd.ops.neg(y)), x)


@define(randn(8, 4))
def view_of_written(fd: Any, x: Any) -> None:
    """A result that is a view of what is written: a view of the input, in truth."""
    value = fd.ops.set(fd.ops.add(x, 1.0))
    fd.add_output(fd.ops.permute(value, [1, 0]))
    fd.add_output(value, x)


@define(randn(8, 4))
def input_returned(fd: Any, x: Any) -> None:
    """An input that comes back: it may have been written by then."""
    fd.add_output(x)


@define(randn(8, 4))
def two_views(fd: Any, x: Any) -> None:
    """Two results that are views of one value."""
    value = fd.ops.add(x, 1.0)
    fd.add_output(fd.ops.permute(value, [1, 0]))
    fd.add_output(fd.ops.reshape(value, [32]))


@define(randn(8, 4))
def twice(fd: Any, x: Any) -> None:
    """One value that is a result twice."""
    value = fd.ops.add(x, 1.0)
    fd.add_output(value)
    fd.add_output(value)


@define(randn(8, 4))
def write_first(fd: Any, x: Any) -> None:
    """A write before a result."""
    value = fd.ops.set(fd.ops.add(x, 1.0))
    fd.add_output(value, x)
    fd.add_output(fd.ops.mul(value, 2.0))


@define(randn(8, 4))
def unsafe_softmax(fd: Any, x: Any) -> None:
    """A reduction and a broadcast of x on the way to what is written to it."""
    largest = fd.ops.max(x, [1], keepdim=True)
    fd.add_output(fd.ops.set(fd.ops.sub(x, fd.ops.broadcast_in_dim(largest, [8, 4], [0, 1]))), x)


@define(randn(8, 4))
def chain(fd: Any, x: Any) -> None:
    """``x.add_(1).sin_().mul_(5)``: one read, one kernel, one write."""
    fd.add_output(fd.ops.set(fd.ops.mul(fd.ops.sin(fd.ops.add(x, 1.0)), 5.0)), x)


@define(randn(8, 4))
def tanh_then_products(fd: Any, x: Any) -> None:
    """``x.tanh_(); return x * x * x * x``."""
    value = fd.ops.set(fd.ops.tanh(x))
    fd.add_output(fd.ops.mul(fd.ops.mul(fd.ops.mul(value, value), value), value))
    fd.add_output(value, x)


@define(randn(16, 6), randn(6), randn(6).abs())
def batch_norm(fd: Any, x: Any, mean: Any, var: Any) -> None:
    """A batch norm in training: both running statistics are written."""
    batch_var, batch_mean = fd.ops.var_mean(x, [0], 0, False)
    wide_mean = fd.ops.broadcast_in_dim(batch_mean, [16, 6], [1])
    scale = fd.ops.broadcast_in_dim(fd.ops.rsqrt(fd.ops.add(batch_var, 1e-5)), [16, 6], [1])
    fd.add_output(fd.ops.mul(fd.ops.sub(x, wide_mean), scale))
    fd.add_output(fd.ops.set(fd.ops.add(fd.ops.mul(mean, 0.9), fd.ops.mul(batch_mean, 0.1))), mean)
    fd.add_output(fd.ops.set(fd.ops.add(fd.ops.mul(var, 0.9), fd.ops.mul(batch_var, 0.1 * 16 / 15))), var)


@define(*(randn(5, 7) for _ in range(4)))
def adam(fd: Any, p: Any, g: Any, m: Any, v: Any) -> None:
    """One Adam step: three writes, and the parameter's reads the other two."""
    new_m = fd.ops.set(fd.ops.add(fd.ops.mul(m, 0.9), fd.ops.mul(g, 0.1)))
    new_v = fd.ops.set(fd.ops.add(fd.ops.mul(v, 0.999), fd.ops.mul(fd.ops.mul(g, g), 0.001)))
    step = fd.ops.div(new_m, fd.ops.add(fd.ops.sqrt(fd.ops.abs(new_v)), 1e-8))
    new_p = fd.ops.set(fd.ops.sub(p, fd.ops.mul(step, 0.012345678901)))
    for value, target in ((new_p, p), (new_m, m), (new_v, v)):
        fd.add_output(value, target)


SAFE = {
    "seed": seed(reads_the_input=False), "chain": chain, "tanh_then_products": tanh_then_products,
    "batch_norm": batch_norm, "adam": adam,
}  # fmt: skip
UNSAFE = {
    name: item
    for name, item in list(globals().items())
    if isinstance(item, tuple) and len(item) == 2 and name not in SAFE and isinstance(item[0], FusionDefinition)
}


def make(*names: str) -> Iterator[tuple[str, Any, list[torch.Tensor]]]:
    """Yield definitions by name, all without names."""
    for name, (definition, inputs) in {**SAFE, **UNSAFE}.items():
        if not names or name in names:
            yield name, definition, inputs


def make_late() -> Iterator[tuple[str, Any, list[torch.Tensor]]]:
    """Yield two reductions again, with the write first among the outputs: nvFuser then launches it first."""

    @define(randn(64, 96))
    def made(fd: Any, x: Any) -> None:
        fd.add_output(fd.ops.add(x, 1.0), x)
        fd.add_output(fd.ops.sum(x, [0]))
        fd.add_output(fd.ops.sum(x, [1]))

    yield "late", *made
