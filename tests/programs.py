"""Programs with in-place operations, views and arguments that share memory: where peers are wrong or refuse.

Each is ``fn(*make())``. The oracle is eager PyTorch on the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # its usual name


@dataclass(frozen=True)
class Case:
    """A program and the arguments to run it on."""

    name: str
    fn: Callable[..., Any]
    make: Callable[[], tuple[Any, ...]]


PROGRAMS: list[Case] = []


def program(make: Callable[[], tuple[Any, ...]], name: str | None = None) -> Callable[[Callable], Callable]:
    """Add a program to the list."""

    def add(fn: Callable) -> Callable:
        PROGRAMS.append(Case(name or fn.__name__, fn, make))
        return fn

    return add


def ramp(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return 1, 2, 3 ... in a shape, scaled to stay small."""
    count = int(torch.tensor(shape).prod()) if shape else 1
    values = torch.arange(1, count + 1, dtype=torch.float32).reshape(shape)
    return (values / 8 if dtype.is_floating_point else values).to(dtype)


@program(lambda: (ramp(4),))
def write_after_read(x):
    a = x + 1
    x.add_(1)
    return a


@program(lambda: (ramp(4, 4), ramp(4, 4)))
def write_after_slow_read(x, w):
    c = torch.relu(w) @ w
    a = x @ c
    x.add_(1)
    return a


@program(lambda: (ramp(2, 2),))
def return_must_wait(x):
    y = x * 2
    v = y.view(-1)
    v.add_(1)
    return y


@program(lambda: (ramp(2, 2),))
def views_of_views_written(x):
    y = x.view(-1)
    a = x.add_(1)
    b = a.view(-1)
    b.mul_(3)
    return y * 1


def sharing_of_three(kind: str) -> Callable[[], tuple[torch.Tensor, ...]]:
    """Return a maker of x, y, z that share memory in some way."""

    def make() -> tuple[torch.Tensor, ...]:
        base = ramp(8)
        x, y, z = ramp(4), ramp(4) / 2, ramp(4) / 4
        return {
            "none": (x, y, z), "x is y": (y, y, z), "y is z": (x, y, y), "x is z": (x, y, x), "all": (y, y, y),
            "x views y": (y.view(4), y, z), "z views y": (x, y, y[:]), "halves": (base[:4], base[4:], z),
            "x overlaps y": (base[2:6], base[:4], z), "z overlaps y": (x, base[:4], base[1:5]),
            "all overlap": (base[2:6], base[:4], base[1:5]), "strides": (base[::2], base[1::2], base[:4]),
        }[kind]  # fmt: skip

    return make


def exp_in_place_between(x, y, z):
    """The program of the original discussion."""
    return y.exp_().add(x) + z.exp()


for _kind in (
    "none", "x is y", "y is z", "x is z", "all", "x views y", "z views y", "halves", "x overlaps y", "z overlaps y",
    "all overlap", "strides",
):  # fmt: skip
    program(sharing_of_three(_kind), f"exp_in_place_between[{_kind}]")(exp_in_place_between)


@program(lambda: (ramp(4),))
def used_four_times_after(a):
    a.tanh_()
    return a * a * a * a


@program(lambda: (ramp(4),))
def clone_written(x):
    y = x.clone()
    y.sin_()
    return x + y


def _same_twice() -> tuple[torch.Tensor, ...]:
    x = ramp(4)
    return x, x


@program(_same_twice)
def same_tensor_twice(x, y):
    x.mul_(2)
    return x + y, y


def _halves() -> tuple[torch.Tensor, ...]:
    base = ramp(8)
    return base[:4], base[4:]


@program(_halves)
def disjoint_halves(x, y):
    x.add_(y)
    y.mul_(x)
    return x - y


def _matrix_and_transpose() -> tuple[torch.Tensor, ...]:
    m = ramp(3, 3)
    return m, m.t()


@program(_matrix_and_transpose)
def matrix_and_transpose(m, t):
    m[0].mul_(2)
    t[1].sub_(1)
    return t @ m


def _base_and_rows() -> tuple[torch.Tensor, ...]:
    base = ramp(4, 3)
    return base, base[1], base[2]


@program(_base_and_rows)
def base_with_two_rows(base, first, second):
    first.add_(second)
    base.mul_(2)
    second.sub_(first)
    return base.sum(0)


def _unused_first() -> tuple[torch.Tensor, ...]:
    x = ramp(6)
    return x[:4], x[2:], x


@program(_unused_first)
def unused_aliased_arguments_first(unused, also_unused, x):
    x.neg_()
    return x * 2


def _two_dtypes() -> tuple[torch.Tensor, ...]:
    x = ramp(4)
    return x, x.view(torch.int32)


@program(_two_dtypes)
def two_dtypes_over_the_same_bytes(x, bits):
    bits.bitwise_xor_(-(2**31))
    y = x * 1
    x.abs_()
    return y, bits + 1


@program(lambda: (ramp(4, 3), torch.zeros(3), torch.ones(3)))
def two_batch_norms_on_the_same_statistics(x, mean, var):
    a = F.batch_norm(x, mean, var, training=True)
    b = F.batch_norm(x * 2, mean, var, training=True)
    return a + b, mean * 1


@program(lambda: (ramp(4), torch.tensor(0)))
def counter_and_setitem(x, count):
    count.add_(1)
    x[0] = 3
    x[1:3] = x[2:4].clone()
    return x * count


@program(lambda: (ramp(4, 6),))
def nested_views(x):
    x[1:][:, ::2].view(3, 3)[0].mul_(2)
    x[1:].t()[0].sub_(1)
    return x.sum(), x[2]


@program(lambda: (ramp(4, 6),))
def views_of_every_kind_written(x):
    a, b = x.chunk(2, dim=1)
    a.mul_(2)
    b.sub_(a)
    for part in x.split([1, 3]):
        part.add_(1)
    for row in x.unbind(0):
        row.neg_()
    x.diagonal().zero_()
    x.unfold(1, 2, 3).add_(5)
    x.as_strided((2, 2), (6, 1), 3).mul_(3)
    x.narrow(0, 1, 2).squeeze().unsqueeze(0).permute(2, 0, 1).div_(2)
    return x.swapaxes(0, 1)


@program(lambda: (torch.complex(ramp(3), -ramp(3)),))
def complex_parts_written(z):
    z.real.mul_(2)
    z.imag.add_(1)
    z.conj().mul_(1j)
    y = z.conj() * 1
    z.zero_()
    torch.view_as_real(y).add_(1)
    return y, z.conj()


@program(lambda: (ramp(4), ramp(2, 3)))
def geometry_changed_in_place(x, m):
    row = m[0]
    m.t_()
    m[0].mul_(2)
    x.unsqueeze_(0)
    y = x + 1
    x.squeeze_(0).add_(1)
    return row * 1, y, m.sum(1), x


@program(lambda: (ramp(4), ramp(3)))
def resized_and_set(x, y):
    view = x[1:]
    x.resize_(2)
    x.add_(1)
    local = view * 2
    y.set_(local)
    y.mul_(3)
    return view, local, y


@program(lambda: (ramp(4), ramp(2, 2)))
def data_replaced(x, y):
    before = x[:2]
    x.data = y
    x.add_(1)
    before.mul_(2)
    return x.sum(0), before + 1


@program(lambda: (torch.zeros(4), torch.zeros(2, 4)))
def random_in_place(x, y):
    x.bernoulli_(0.5)
    noise = torch.rand(4)
    y[0].normal_()
    dropped = F.dropout(y + 1, 0.5, True)
    return x + noise, dropped, torch.randint(9, (2,)), torch.randn_like(x)


def _generator() -> tuple[Any, ...]:
    return torch.zeros(4), torch.Generator().manual_seed(3)


@program(_generator)
def explicit_generator(x, generator):
    x.uniform_(generator=generator)
    a = torch.rand(2)
    b = torch.randperm(4, generator=generator)
    return x, a, b


@program(lambda: (ramp(3), ramp(3)))
def mutation_nobody_reads(x, y):
    x.mul_(2)
    local = y + 1
    local.mul_(3)
    return y * 1


@program(lambda: (ramp(2, 2),))
def returned_objects_and_views(x):
    y = x.add_(1)
    return x, y, x.view(-1), x[1], {"again": x, "list": [x.t(), 3, None, "text"]}


@program(lambda: (ramp(4), torch.empty(0), torch.zeros(4)))
def out_arguments(x, empty, same):
    torch.neg(x, out=empty)
    torch.add(x, x, out=same)
    torch.mul(x, same, out=x)
    return empty, same * 2


@program(lambda: (ramp(2, 3), torch.zeros(0, 3), ramp()))
def empty_and_zero_dim(x, nothing, scalar):
    nothing.add_(1)
    scalar.mul_(2)
    x.mul_(scalar)
    return nothing, x[:0], scalar.view(1), torch.cat([x, nothing])


@program(lambda: ([ramp(3), ramp(2, 2)], [ramp(3), ramp(2, 2)]))
def foreach_lists(params, grads):
    torch._foreach_mul_(params, 0.9)
    torch._foreach_add_(params, grads, alpha=-0.1)
    norms = torch._foreach_norm(params)
    torch._foreach_zero_(grads)
    return norms, params[0]


@program(lambda: (ramp(3, 4), torch.tensor([0, 2]), ramp(2, 4)))
def indexed_writes(x, index, value):
    x[index] = value
    x[:, index] += 1
    x.index_add_(0, index, value)
    x.masked_fill_(x > 2, 0.0)
    x[x < 1] = 7.0
    return x.gather(1, torch.tensor([[0], [1], [2]]))


@program(lambda: (ramp(4),))
def literal_is_fresh_each_time(x):
    bias = torch.tensor([1.0, 2.0, 3.0, 4.0])
    bias.mul_(2)
    return x + bias, bias
