"""Measuring for `bench.py`: paired rounds, bytes of live tensors, growth of the process, seconds of first calls."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import profiler

import graphalias
from graphalias.compare import interleaved
from tools.bench_rows import FULL, ROWS, Row, Work, tensors_of

#: Not a variant: one in-place operation over as many bytes as must be moved.
FLOOR = "floor"
#: Bytes from which a share of the bandwidth says anything; below, a call costs more than its memory does.
WORTH_A_SHARE_BYTES = 1 << 20

#: Results may differ by this, absolutely and relatively: through a dozen layers a sum in another order adds up to more
#: than what `assert_close` allows of a single operation.
TOLERANCE = 1e-4
#: Written before each call that is to find the caches empty: more than the last one holds.
SWEEP_BYTES = 1 << 27


def eager(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function: eager PyTorch."""
    return fn


def compile_(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function compiled by Inductor, for its shapes."""
    return torch.compile(fn, backend="inductor", dynamic=False)


def operations(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as graphalias runs it one ATen call an operation."""
    return graphalias.jit(fn, executor="eager")


def auto(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as graphalias runs it."""
    return graphalias.jit(fn)


def thunder(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function compiled by lightning-thunder."""
    import thunder

    return thunder.jit(fn)


def _has_thunder() -> bool:
    try:
        import thunder  # noqa: F401
    except ImportError:
        return False
    return True


#: Title of a column -> what it does to a function.
VARIANTS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "eager": eager, "compile": compile_, "jit eager": operations, "jit": auto,
    **({"thunder": thunder} if _has_thunder() else {}),
}  # fmt: skip


@dataclass
class Found:
    """What was measured of one row, by variant.

    ``failed`` says why a variant has no numbers: an error, or results that are not eager's.
    """

    moved_bytes: int
    failed: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    live_bytes: dict[str, int] = field(default_factory=dict)
    growth_bytes: dict[str, int] = field(default_factory=dict)
    #: By variant and size; the size is 0 where the row has only one.
    first_calls: dict[tuple[str, int], float] = field(default_factory=dict)

    def ratios(self, one: str, other: str) -> list[float]:
        """Return, round by round, the time of one variant divided by that of another."""
        return [a / b for a, b in zip(self.seconds.get(one, ()), self.seconds.get(other, ()), strict=False)]

    def share(self, variant: str) -> float | None:
        """Return the share of the in-place bandwidth a variant reaches, None where that says nothing."""
        ratios = self.ratios(FLOOR, variant)
        return statistics.median(ratios) if ratios and self.moved_bytes >= WORTH_A_SHARE_BYTES else None


def measure(
    row: Row, variants: Sequence[str], *, rounds: int, block_seconds: float, is_cold: bool = False, scale: str = FULL
) -> Found:
    """Check a row's variants against eager, then time them in turns.

    Parameters
    ----------
    block_seconds : float
        A variant is called again and again for so long, in each round.
    is_cold : bool
        Sweep the caches before every call.
    scale : str
        FULL or TINY.
    """
    torch.manual_seed(0)
    torch.compiler.reset()
    work = row.make(scale)
    found = Found(work.moved_bytes)
    with torch.no_grad():
        calls = dict(_right_ones(work, variants, found))
        for name, call in calls.items():
            found.live_bytes[name] = live_bytes(call)
            found.growth_bytes[name] = growth_bytes(call)
        floor = torch.zeros(max(work.moved_bytes // 8, 1))
        calls[FLOOR] = lambda: floor.add_(1)
        found.seconds = interleaved(calls, rounds, cold if is_cold else partial(hot, block_seconds=block_seconds))
    return found


def _right_ones(work: Work, variants: Sequence[str], found: Found) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield a call of each variant that gives eager's results, its first call and its second: they may differ."""
    before = [tensor.clone() for tensor in work.state]
    expected = [_seen(work, work.fn, before, calls) for calls in (1, 2)]
    for name in variants:
        variant = VARIANTS[name](work.fn)
        try:
            for calls, want in enumerate(expected, 1):
                torch.testing.assert_close(_seen(work, variant, before, calls), want, rtol=TOLERANCE, atol=TOLERANCE)
        except Exception as error:  # whatever a compiler raises, the others are still measured
            found.failed[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            continue
        yield name, _bound(variant, work.args)


def _bound(fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: fn(*args)


def _seen(work: Work, fn: Callable[..., Any], before: Sequence[Tensor], calls: int) -> list[Tensor]:
    """Return copies of what some calls return and leave behind, from the same start."""
    for tensor, value in zip(work.state, before, strict=True):
        tensor.copy_(value)
    returned = [fn(*work.args) for _ in range(calls)]
    return [tensor.clone() for tensor in (*tensors_of(returned), *work.state)]


def hot(call: Callable[[], Any], block_seconds: float) -> float:
    """Return the mean seconds of calls one after the other: code and data are in the caches, as far as they fit."""
    once = min(_timed(call, 1) for _ in range(3))
    return _timed(call, max(1, ceil(block_seconds / max(once, 1e-6))))


def cold(call: Callable[[], Any], count: int = 5) -> float:
    """Return the median seconds of calls that each find the caches full of something else, as between large layers."""
    sweep = torch.zeros(SWEEP_BYTES // 4)
    seconds = []
    for _ in range(count):
        sweep.add_(1)
        seconds.append(_timed(call, 1))
    return statistics.median(seconds)


def _timed(call: Callable[[], Any], repeats: int) -> float:
    """Return the CPU seconds of a call: one thread does all the work, and what else runs here counts less."""
    start = time.thread_time()
    for _ in range(repeats):
        call()
    return (time.thread_time() - start) / repeats


def live_bytes(call: Callable[[], Any]) -> int:
    """Return by how much the bytes of live tensors rise at most during a call: the allocator's count.

    It sees the buffers of generated code too, which never reach the dispatcher.
    """
    with _quiet(), profiler.profile(profile_memory=True) as profile:
        call()
    live = peak = 0
    for event in profile.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak


@contextmanager
def _quiet() -> Iterator[None]:
    """Say nothing on the error stream, not from C++ either: some profilers announce themselves there."""
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


def growth_bytes(call: Callable[[], Any], rounds: int = 3) -> int:
    """Return by how much the process's memory rises at most during a steady call (the least of some)."""
    call()
    return min(_growth_bytes(call) for _ in range(rounds))


def _growth_bytes(call: Callable[[], Any]) -> int:
    ctypes.CDLL(None).malloc_trim(0)  # what earlier calls freed is not there for this one
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts from here
    before = _status_bytes("VmRSS")
    call()
    return max(_status_bytes("VmHWM") - before, 0)


def _status_bytes(label: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(label))


def first_call_seconds(name: str, variant: str, size: int = 0) -> float:
    """Return how long a row's first call takes in a process of its own, with an empty cache of compiled code.

    The process has compiled another small function before, the same way: loading a compiler is not what differs.

    Raises
    ------
    EOFError
        If the process fails; it has said why.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, _cache_in(folder):
        context = multiprocessing.get_context("spawn")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_send_first_call, args=(sender, name, variant, size))
        process.start()
        sender.close()
        try:
            seconds: float = receiver.recv()
        finally:
            process.join()
        return seconds


@contextmanager
def _cache_in(folder: str) -> Iterator[None]:
    """Processes started from here keep compiled code in a folder."""
    saved = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    try:
        yield
    finally:
        os.environ.pop("TORCHINDUCTOR_CACHE_DIR")
        if saved is not None:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = saved


def _send_first_call(sender: Connection, name: str, variant: str, size: int) -> None:
    torch.set_num_threads(1)
    make = ROWS[name].make
    work = make(FULL, size=size) if size else make(FULL)
    with torch.no_grad():
        VARIANTS[variant](_warm_up)(torch.ones(64))
        call = VARIANTS[variant](work.fn)
        start = time.perf_counter()
        call(*work.args)
        sender.send(time.perf_counter() - start)


def _warm_up(x: Tensor) -> Tensor:
    return x.mul_(3).sub_(2).exp_()
