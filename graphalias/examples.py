"""The programs of the demo: small, and of the kinds that real code is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


class Example(NamedTuple):
    """A program, what to call it with, and what there is to see in it."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    about: str


def window(x: Tensor) -> tuple[Tensor, Tensor]:
    """Read the same two elements before and after a write, through a view."""
    head = x[:2]  # a view: the first bytes of x, nothing is copied
    before = head * 10  # reads them
    x.add_(1)  # writes them: must wait for `before`, though no value passes
    after = head * 10  # reads them again: must wait for `add_`
    return before, after


class ResidualBlock(nn.Module):
    """ReLU in place, convolution and batch normalisation, twice, beside a shortcut with a convolution of its own."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.shortcut = nn.Conv2d(channels, channels, 1, bias=False)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, f32[n, c, h, w]; in training mode the running statistics are updated."""
        shortcut = self.shortcut(x)  # reads x
        out = self.relu(x)  # and this overwrites it
        out = self.bn1(self.conv1(out))
        out = self.bn2(self.conv2(self.relu(out)))
        out += shortcut
        return out


def decode_step(x: Tensor, qkv: Tensor, proj: Tensor, keys: Tensor, values: Tensor, position: int) -> Tensor:
    """Attend with one new token: write its key and value into the caches, then read the caches up to it.

    Parameters
    ----------
    x : Tensor
        The token, f32[batch, 1, width].
    qkv, proj : Tensor
        Weights, f32[width, 3 * width] and f32[width, width].
    keys, values : Tensor
        The caches, f32[batch, heads, length, width // heads].
    position : int
        Where in the caches the token goes.
    """
    batch, heads = keys.shape[:2]
    query, key, value = (x @ qkv).view(batch, 1, heads, -1).transpose(1, 2).chunk(3, dim=-1)
    keys[:, :, position : position + 1] = key
    values[:, :, position : position + 1] = value
    seen = slice(position + 1)
    attended = scaled_dot_product_attention(query, keys[:, :, seen], values[:, :, seen])
    return attended.transpose(1, 2).reshape(batch, 1, -1) @ proj


class Moments(NamedTuple):
    """What Adam remembers of one parameter."""

    mean: Tensor
    square: Tensor
    step: Tensor


@torch.no_grad()
def adam_step(
    params: Sequence[Tensor], grads: Sequence[Tensor], moments: Sequence[Moments],
    lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
) -> None:  # fmt: skip
    """Update every parameter and its moments in place."""
    for param, grad, (mean, square, step) in zip(params, grads, moments, strict=True):
        step += 1
        mean.lerp_(grad, 1 - betas[0])
        square.mul_(betas[1]).addcmul_(grad, grad, value=1 - betas[1])
        scale = square.sqrt().div_((1 - betas[1] ** step).sqrt()).add_(eps)
        param.sub_(mean / scale * (lr / (1 - betas[0] ** step)))
        grad.zero_()


def make_examples(seed: int = 0) -> tuple[Example, ...]:
    """Return the programs with their arguments, the same ones for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        params = [torch.randn(6, 4), torch.randn(6)]
        moments = [Moments(torch.zeros_like(p), torch.zeros_like(p), torch.zeros(())) for p in params]
        heads, length, width = 2, 8, 8
        caches = [torch.randn(1, heads, length, width // heads) for _ in range(2)]
        weights = [torch.randn(width, 3 * width), torch.randn(width, width)]
        return (
            Example("window", window, (torch.arange(4.0),), "two reads through a view, and a write in between"),
            Example(
                "residual_block", ResidualBlock(), (torch.randn(2, 8, 6, 6),),
                "convolutions, BatchNorm in training mode, and a ReLU that overwrites what the shortcut reads",
            ),
            Example(
                "decode_step", decode_step, (torch.randn(1, 1, width), *weights, *caches, 3),
                "attention on one token: its key and value are written into slices of the caches, which are then read",
            ),
            Example(
                "adam_step", adam_step, (params, [torch.randn_like(p) for p in params], moments),
                "an optimizer over a list of parameters: nothing but updates in place",
            ),
        )  # fmt: skip
