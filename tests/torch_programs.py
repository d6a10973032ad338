"""Random PyTorch programs of views, in-place and pure operations, foreach, ``out=``, random and geometry changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

Tensors = list[torch.Tensor]


def random_arguments(seed: int) -> tuple[torch.Tensor, ...]:
    """Return a few small tensors, some of which share memory."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    base = torch.randn(4, 4)
    others = [
        lambda: base, lambda: base.t(), lambda: base[1:3], lambda: base[:, ::2], lambda: base.view(16)[3:11],
        lambda: torch.randn(4, 4), lambda: torch.randn(4), lambda: base.diagonal(), lambda: torch.randn(2, 4),
        lambda: base.view(torch.int32), lambda: torch.zeros(0, 4), lambda: torch.tensor(2.0),
    ]  # fmt: skip
    return base, *(choose.choice(others)() for _ in range(choose.randint(1, 3)))


def random_program(seed: int, steps: int) -> Callable[..., Any]:
    """Return a function of some tensors: the same for a seed, whatever it is called with twice alike."""

    def program(*arguments: torch.Tensor) -> Any:
        choose = random.Random(seed)
        tensors = list(arguments)
        for _ in range(steps):
            step = choose.choices(STEPS, WEIGHTS)[0]
            made = step(choose, tensors)
            if made is not None:
                tensors.append(made)
        return [choose.choice(tensors) for _ in range(choose.randint(0, 3))]

    program.__name__ = f"random_program_{seed}"
    return program


def view(choose: random.Random, tensors: Tensors) -> torch.Tensor:
    """Make a view."""
    x = choose.choice(tensors)
    kinds: list[Callable[[], torch.Tensor]] = [lambda: x.detach(), lambda: x.unsqueeze(0), lambda: x[...]]
    if x.dim():
        kinds += [lambda: x[:2], lambda: x[1:], lambda: x[::2], lambda: x.unfold(0, min(2, x.shape[0]), 1)]
        kinds += [lambda: x.movedim(0, -1), lambda: x.squeeze(), lambda: x.chunk(2)[-1]]
        kinds += [lambda: x[-1]] if x.shape[0] else []
    if x.dim() > 1:
        kinds += [lambda: x.transpose(0, 1), lambda: x.diagonal()]
    if x.is_contiguous():
        kinds += [lambda: x.view(-1), lambda: x.view(-1)]
    if x.dtype == torch.float32:
        kinds += [lambda: x.view(torch.int32)]
    return choose.choice(kinds)()


def like(choose: random.Random, tensors: Tensors, x: torch.Tensor) -> Any:
    """Return a number, or a tensor that broadcasts to ``x``."""
    fits = [t for t in tensors if t.shape == x.shape or t.dim() == 0]
    return choose.choice([2, 0.5, *fits])


def pure(choose: random.Random, tensors: Tensors) -> torch.Tensor:
    """Compute something new."""
    x = choose.choice(tensors)
    other = like(choose, tensors, x)
    kinds = [
        lambda: x + other, lambda: x * other, lambda: torch.where(x > 0, x, 0), lambda: x.clone(), lambda: x * 1,
        lambda: x.sum().float(), lambda: x.cumsum(0) if x.dim() else x + 1, lambda: x.abs().float().sqrt(),
        lambda: torch.cat([x, x]) if x.dim() else x + 1, lambda: x.contiguous(), lambda: x.reshape(-1),
        lambda: x.flip(0) if x.dim() else -x,
    ]  # fmt: skip
    return choose.choice(kinds)()


def in_place(choose: random.Random, tensors: Tensors) -> torch.Tensor | None:
    """Write a tensor."""
    x = choose.choice(tensors)
    other = like(choose, tensors, x)
    kinds: list[Callable[[], Any]] = [
        lambda: x.add_(other), lambda: x.mul_(2), lambda: x.zero_(), lambda: x.neg_(), lambda: x.clamp_(-1, 1),
        lambda: x.copy_(other) if torch.is_tensor(other) else x.fill_(1), lambda: x.sub_(x), lambda: x.abs_(),
        lambda: x.masked_fill_(x > 1, 0),
    ]  # fmt: skip
    if x.dim() and x.shape[0] > 1:
        kinds += [lambda: x[1:].copy_(x[:-1].clone()), lambda: x[0].add_(1)]
        kinds += [lambda: x.index_fill_(0, torch.tensor([1]), 3)]
    made = choose.choice(kinds)()
    return made if choose.random() < 0.5 else None


def several(choose: random.Random, tensors: Tensors) -> None:
    """Write several tensors at once, without a result."""
    chosen = [choose.choice(tensors) for _ in range(2)]
    if chosen[0] is not chosen[1]:
        choose.choice([torch._foreach_add_, torch._foreach_mul_])(chosen, 2)


def with_out(choose: random.Random, tensors: Tensors) -> torch.Tensor:
    """Write through ``out=``, sometimes to a tensor of another size."""
    x = choose.choice(tensors)
    out = choose.choice([torch.empty(0, dtype=x.dtype), torch.empty_like(x)])
    return choose.choice([lambda: torch.neg(x, out=out), lambda: torch.add(x, x, out=out)])()


def drawn(choose: random.Random, tensors: Tensors) -> torch.Tensor:
    """Draw random numbers."""
    floats = [t for t in tensors if t.is_floating_point()]
    x = choose.choice(floats)
    return choose.choice(
        [lambda: x.uniform_(), lambda: torch.rand(4), lambda: torch.nn.functional.dropout(x), lambda: x.bernoulli_(0.5)]
    )()


def geometry(choose: random.Random, tensors: Tensors) -> torch.Tensor | None:
    """Change a tensor's geometry in place."""
    x, other = choose.choice(tensors), choose.choice(tensors)
    kinds: list[Callable[[], Any]] = [lambda: x.unsqueeze_(0), lambda: x.squeeze_()]
    if x.dim() == 2:
        kinds += [lambda: x.t_()]
    if x.dtype == other.dtype and x is not other:
        kinds += [lambda: x.set_(other), lambda: setattr(x, "data", other)]
    if x.numel() > 1:
        kinds += [lambda: x.resize_(x.numel() - 1)]
    choose.choice(kinds)()
    return x if choose.random() < 0.3 else None


STEPS = (view, pure, in_place, several, with_out, drawn, geometry)
WEIGHTS = (8, 5, 8, 2, 1, 1, 2)
