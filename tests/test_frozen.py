"""Python state: what a captured function changes is named, with the line, and put back."""

from __future__ import annotations

import collections
import functools
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from graphalias import CaptureError
from graphalias.capture import capture
from graphalias.tracing.frozen import PythonState

COUNTER = 0
TABLE: dict[str, Any] = {"a": [1]}


class Settings:
    """A class whose attribute functions change."""

    calls = 0
    limit = 3


class Slotted:
    """An object without a ``__dict__``."""

    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class Net(nn.Module):
    """A module with one of each kind of state, and a step that changes one of them."""

    def __init__(self, change: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        self.n, self.seen, self.queue, self.kinds = 0, [], collections.deque([1]), {1}
        self.slotted, self.array, self.ordered = Slotted(), np.zeros(2), collections.OrderedDict(a=1, b=2)
        self.child = nn.Linear(3, 3)
        self.register_buffer("mean", torch.zeros(3))
        self.change = change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.add_(1)
        self.change(self, y)
        return y * 2


def set_item(thing: Any, key: Any, value: Any) -> None:
    """Assign an item; an assignment is no expression."""
    thing[key] = value


def change_global(net: Net, y: torch.Tensor) -> None:
    """Count in a global."""
    global COUNTER
    COUNTER += 1


MODULE_CHANGES: dict[str, tuple[Callable[[Net, torch.Tensor], Any], str]] = {
    "attribute": (lambda net, y: setattr(net, "n", net.n + 1), r"Net\.n \(expected 0, found 1\)"),
    "new attribute": (lambda net, y: setattr(net, "cache", y), r"Net\.cache"),
    "deleted attribute": (lambda net, y: delattr(net, "n"), r"Net\.n"),
    "list": (lambda net, y: net.seen.append(y), r"Net\.seen\[0\]"),
    "deque": (lambda net, y: net.queue.appendleft(2), r"Net\.queue\[0\]"),
    "set": (lambda net, y: net.kinds.add(2), r"Net\.kinds"),
    "ordered": (lambda net, y: net.ordered.move_to_end("a"), r"Net\.ordered"),
    "slots": (lambda net, y: setattr(net.slotted, "n", 1), r"Net\.slotted\.n"),
    "array": (lambda net, y: set_item(net.array, 0, 1), r"Net\.array"),
    "buffer": (lambda net, y: setattr(net, "mean", net.mean + 1), r"changes Net\.mean"),
    "parameter": (lambda net, y: setattr(net.child, "bias", None), r"Net\.child\.bias"),
    "training": (lambda net, y: net.child.eval(), r"Net\.child\.training"),
    "global": (change_global, r"the global COUNTER \(expected 0, found 1\)"),
    "nested global": (lambda net, y: TABLE["a"].append(2), r"TABLE\['a'\]\[1\]"),
    "class": (lambda net, y: setattr(Settings, "calls", 1), r"Settings\.calls"),
    "random": (lambda net, y: random.random(), r"Python's random state"),
    "numpy random": (lambda net, y: np.random.rand(), r"numpy's random state"),
    "seed": (lambda net, y: torch.manual_seed(3), r"torch's random state"),
    "grad mode": (lambda net, y: torch.set_grad_enabled(False), r"torch\.set_grad_enabled"),
    "autocast": (lambda net, y: torch.set_autocast_enabled("cpu", True), r"torch\.autocast"),
    "default dtype": (lambda net, y: torch.set_default_dtype(torch.float64), r"torch\.set_default_dtype"),
}


def state_of(net: Net) -> list[Any]:
    """Return everything a change above could have changed."""
    return [
        {key: value for key, value in vars(net).items() if not key.startswith("_")}, list(net.ordered), net.slotted.n,
        list(net.seen), list(net.queue), set(net.kinds), net.array.tolist(), net.mean, net.child.bias,
        net.child.training, COUNTER, TABLE["a"][:], Settings.calls, random.getstate(), repr(np.random.get_state()),
        torch.initial_seed(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_default_dtype(),
    ]  # fmt: skip


@pytest.mark.parametrize("name", MODULE_CHANGES)
def test_changes_are_named_located_and_put_back(name: str) -> None:
    """The error names what changed and the line of this file that did; everything is as before."""
    change, message = MODULE_CHANGES[name]
    net = Net(change)
    x = torch.zeros(3)
    before = state_of(net)
    with pytest.raises(CaptureError, match=message) as caught:
        capture(net, x)
    after = state_of(net)
    assert all(a is b or a == b for a, b in zip(before, after, strict=True))
    assert x.tolist() == [0, 0, 0]
    file, _, line = str(caught.value.location).rpartition(":")
    assert file == __file__
    first = change.__code__.co_firstlineno
    assert first <= int(line) <= first + 4 or int(line) == set_item.__code__.co_firstlineno + 2


def test_closure_cells_and_defaults() -> None:
    """A variable the function closes over and a mutable default are state."""
    n = 0

    def count(x: torch.Tensor, memory: list[int] = []) -> torch.Tensor:  # noqa: B006
        nonlocal n
        n += 1
        return x + n

    def remember(x: torch.Tensor, memory: list[int] = []) -> torch.Tensor:  # noqa: B006
        memory.append(1)
        return x

    with pytest.raises(CaptureError, match=r"the closed-over variable n \(expected 0, found 1\)"):
        capture(count, torch.ones(2))
    with pytest.raises(CaptureError, match=r"a default of remember\[0\]"):
        capture(remember, torch.ones(2))
    assert n == 0
    assert remember.__defaults__ == ([],)


def test_functions_called_on_the_way() -> None:
    """State of functions reached through globals, closures, partials and decorators is seen."""

    def counted(x: torch.Tensor) -> torch.Tensor:
        counted.calls += 1
        return x + 1

    counted.calls = 0
    with pytest.raises(CaptureError, match=r"counted\.calls"):
        capture(lambda x: counted(x), torch.ones(2))
    assert counted.calls == 0


def test_iterators_are_refused() -> None:
    """Where a generator stands can't be put back; the error says so."""
    numbers = (i for i in range(5))
    counter = itertools.count()
    for fn in (lambda x: x + next(numbers), lambda x: x + next(counter)):
        with pytest.raises(CaptureError, match="It can't be put back"):
            capture(fn, torch.ones(2))


def test_state_is_put_back_after_any_error() -> None:
    """An error of the function's own leaves no change behind either."""
    log: list[torch.Tensor] = []

    def step(x: torch.Tensor) -> None:
        log.append(x)
        raise KeyError("mine")

    with pytest.raises(KeyError):
        capture(step, torch.ones(2))
    assert not log


def test_reading_state_is_fine() -> None:
    """What is read is frozen; local containers are nobody's state."""

    def step(x: torch.Tensor) -> torch.Tensor:
        parts = [x]
        parts.append(x * Settings.limit + TABLE["a"][0] + COUNTER)
        return torch.stack(parts)

    assert capture(step, torch.ones(2)).operations[-2].target == "aten.stack.default"


def test_equal_values_are_no_change() -> None:
    """A plain value replaced by an equal one, and a value put back, are no change; an equal object is."""
    net = Net(lambda net, y: (setattr(net, "n", 0), net.seen.append(1), net.seen.pop()))
    capture(net, torch.zeros(3))
    with pytest.raises(CaptureError, match=r"Net\.slotted"):
        capture(Net(lambda net, y: setattr(net, "slotted", Slotted())), torch.zeros(3))


def test_generator_arguments_keep_their_state() -> None:
    """A generator the function only draws from is as before; one it seeds is a change."""
    generator = torch.Generator()
    before = generator.get_state()
    capture(lambda x, g: x.bernoulli_(generator=g), torch.ones(2), generator)
    assert torch.equal(generator.get_state(), before)
    with pytest.raises(CaptureError, match="the function changes g"):
        capture(lambda x, g: (g.manual_seed(5), x)[1], torch.ones(2), generator)
    assert torch.equal(generator.get_state(), before)


def test_cycles_end() -> None:
    """State that contains itself is looked at once."""
    loop: list[Any] = [1]
    loop.append(loop)
    state = PythonState([("loop", loop)])
    loop[0] = 2
    assert state.restore() == ["loop[0]"]
    assert loop[0] == 1


def test_seeding_is_refused() -> None:
    """A function that seeds, whether or not it puts the state back, or makes a generator, is refused."""

    def seeds(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return x + torch.rand(2)

    def forks(x: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return x + torch.rand(2)

    def makes(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(2, generator=torch.Generator().manual_seed(0))

    torch.manual_seed(0)  # the state it seeds to is the one there is
    state = torch.get_rng_state()
    for fn, message in ((seeds, "random state"), (forks, "random state"), (makes, "made inside the function")):
        with pytest.raises(CaptureError, match=message):
            capture(fn, torch.ones(2))
        assert torch.equal(torch.get_rng_state(), state)


def test_cached_functions() -> None:
    """What a cached function made while capturing is no tensor: it does not stay in the cache."""

    @functools.lru_cache
    def table(size: int) -> torch.Tensor:
        return torch.arange(size)

    with pytest.raises(CaptureError, match="changes table"):
        capture(lambda x: x + table(3), torch.ones(3))
    assert type(table(3)) is torch.Tensor
    assert capture(lambda x: x + table(3), torch.ones(3)).bindings["c0"] is table(3)
