"""How the passes grow: seconds, exponents, memory and graph sizes over families of programs built directly.

    python tools/bench_passes.py                              # everything
    python tools/bench_passes.py chain views --sizes 1000 10000

An exponent is the least-squares slope of log(seconds) over log(size), the median over the rounds. The cyclic garbage
collector is paused while a pass runs; the figure with it on is beside it.
Seconds are of CPU time, which other work on the machine disturbs less; the passes run in one thread.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import log
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from graphalias import eliminate_dead_operations, find_view_groups, insert_update_aliases
from graphalias.graph import INPUT, OUTPUT, UPDATE_ALIASES, Operation, Program, Storage, Value

T = TypeVar("T")

SIZES = (1_000, 10_000, 100_000)
#: Its pairs of overlapping accesses are quadratic, by nature.
GRID_SIZES = (30, 100, 300)
#: Building the program (its graph), find_view_groups, insert_update_aliases, eliminate_dead_operations.
PASSES = ("build", "groups", "insert", "dead")


def tensor(name: str, shape: tuple[int, ...] = (4,), **geometry: Any) -> Value:
    """Return a handle of a new local storage, unless one is given."""
    return Value(name, "f32", shape, **{"storage": Storage(f"{name}:bytes"), "object": f"{name}:object", **geometry})


def given(name: str, shape: tuple[int, ...] = (4,)) -> tuple[Value, Operation]:
    """Return an input and the operation it comes from."""
    value = tensor(name, shape, storage=Storage(f"{name}:bytes", INPUT))
    return value, Operation(name, INPUT, results=(value,))


def pure(name: str, *operands: Value) -> Operation:
    """Return an operation that reads its operands and makes a new tensor."""
    return Operation(name, "test.pure", operands, results=(tensor(name),), reads=tuple(range(len(operands))))


def in_place(name: str, *operands: Value) -> Operation:
    """Return an operation that reads its operands and writes the first."""
    results = (replace(operands[0], name=name),)
    return Operation(name, "test.in_place_", operands, results=results, reads=tuple(range(len(operands))), writes=(0,))


def row(base: Value, i: int) -> Operation:
    """Return the view of row i of a matrix."""
    width = base.shape[1]
    view = tensor(f"row{i}", (width,), storage=base.storage, offset=i * width)
    return Operation(view.name, "test.select", (base, 0, i), results=(view,))


def column(base: Value, i: int) -> Operation:
    """Return the view of column i of a matrix."""
    height, width = base.shape
    view = tensor(f"column{i}", (height,), storage=base.storage, offset=i, stride=(width,))
    return Operation(view.name, "test.select", (base, 1, i), results=(view,))


def output(*values: Value) -> Operation:
    """Return the output node."""
    return Operation(OUTPUT, OUTPUT, values)


def result(operation: Operation) -> Value:
    """Return the result of an operation that has one."""
    (value,) = operation.results
    assert value is not None
    return value


def chain(size: int) -> Iterator[Operation]:
    """N in-place operations on one tensor."""
    x, source = given("x")
    yield source
    for i in range(size):
        operation = in_place(f"write{i}", x)
        yield operation
        x = result(operation)
    yield output(x)


def views(size: int) -> Iterator[Operation]:
    """N views of one base, each written; the base is returned."""
    base, source = given("base", (size, 4))
    yield source
    for i in range(size):
        view = row(base, i)
        yield from (view, in_place(f"write{i}", result(view)))
    yield output(base)


def wide(size: int) -> Iterator[Operation]:
    """N tensors, each read by a pure operation, then written in place."""
    outputs = []
    for i in range(size):
        x, source = given(f"x{i}")
        read = pure(f"read{i}", x)
        yield from (source, read, in_place(f"write{i}", x))
        outputs.append(result(read))
    yield output(*outputs)


def optimizer(size: int) -> Iterator[Operation]:
    """N operations of Adam, eight a parameter, with one step counter that all of them read."""
    step, source = given("step", ())
    count = in_place("count", step)
    yield from (source, count)
    for i in range(size // 8):
        (p, *_), (g, *_), (m, *_), (v, *_) = sources = [given(f"{name}{i}") for name in ("p", "g", "m", "v")]
        yield from (source for _, source in sources)
        first = in_place(f"m_decayed{i}", m)
        first_done = in_place(f"m_done{i}", result(first), g)
        second = in_place(f"v_decayed{i}", v)
        second_done = in_place(f"v_done{i}", result(second), g, g)
        root = pure(f"root{i}", result(second_done))
        bounded = in_place(f"bounded{i}", result(root))
        correction = pure(f"correction{i}", result(count))
        yield from (first, first_done, second, second_done, root, bounded, correction)
        yield in_place(f"p_done{i}", p, result(first_done), result(bounded), result(correction))
    yield output()


def training(size: int) -> Iterator[Operation]:
    """N weights, all read on the way forward, all written at the end."""
    x, source = given("x")
    yield source
    weights = []
    for i in range(size):
        weight, source = given(f"weight{i}")
        layer = pure(f"layer{i}", x, weight)
        yield from (source, layer)
        x = result(layer)
        weights.append(weight)
    loss = pure("loss", x)
    yield loss
    for i, weight in enumerate(weights):
        yield in_place(f"write{i}", weight, result(loss))
    yield output(result(loss))


def grid(size: int) -> Iterator[Operation]:
    """N rows of a matrix written, then its N columns read."""
    base, source = given("base", (size, size))
    yield source
    for i in range(size):
        view = row(base, i)
        yield from (view, in_place(f"write{i}", result(view)))
    reads = []
    for i in range(size):
        view = column(base, i)
        read = pure(f"read{i}", result(view))
        yield from (view, read)
        reads.append(result(read))
    yield output(*reads)


def readers(size: int) -> Iterator[Operation]:
    """N reads of a base, then N writes of its rows."""
    base, source = given("base", (size, 4))
    yield source
    reads = [pure(f"read{i}", base) for i in range(size)]
    yield from reads
    for i in range(size):
        view = row(base, i)
        yield from (view, in_place(f"write{i}", result(view)))
    yield output(*map(result, reads))


def rereads(size: int) -> Iterator[Operation]:
    """N rows of a base written, then the base read N times through one handle."""
    base, source = given("base", (size, 4))
    yield source
    for i in range(size):
        view = row(base, i)
        yield from (view, in_place(f"write{i}", result(view)))
    reads = [pure(f"read{i}", base) for i in range(size)]
    yield from reads
    yield output(*map(result, reads))


FAMILIES: dict[str, Callable[[int], Iterable[Operation]]] = {
    family.__name__: family for family in (chain, views, wide, optimizer, training, readers, rereads, grid)
}


@dataclass
class Measurement:
    """What one family took at one size; seconds of each pass with the garbage collector paused, and with it on."""

    paused: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in PASSES})
    collecting: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in PASSES})
    operations: int = 0
    inserted: int = 0
    members: int = 0
    edges: int = 0
    peak_mib: float = 0.0


def members(program: Program) -> int:
    """Return how many handles its `update_aliases` nodes rename, and how many joining nodes it has."""
    nodes = [operation for operation in program.operations if operation.target == UPDATE_ALIASES]
    return sum(max(len(operation.operands), 1) for operation in nodes)


def measure(family: str, size: int, rounds: int) -> Measurement:
    """Run the passes over one program, in a process of its own: peak memory is that of a process."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_send, args=(sender, family, size, rounds), daemon=True)
    process.start()
    sender.close()
    measurement: Measurement = receiver.recv()
    process.join()
    return measurement


def _send(sender: Connection, family: str, size: int, rounds: int) -> None:
    sender.send(measure_here(family, size, rounds))


def measure_here(family: str, size: int, rounds: int) -> Measurement:
    """Run the passes over one program, in this process."""
    found = Measurement()
    gc.collect()
    gc.freeze()  # what is imported is not this family's garbage
    before = _peak_mib()
    for i in range(rounds + 1):
        is_paused = i > 0  # the round with the collector on comes first, and warms up
        seconds = found.paused if is_paused else found.collecting
        program, inserted = _round(family, size, seconds, is_paused=is_paused)
        if i == 0:
            nodes = [operation for operation in inserted.operations if operation.target == UPDATE_ALIASES]
            found.operations, found.edges = len(program.graph), inserted.graph.number_of_edges()
            found.inserted, found.members = len(nodes), members(inserted)
            found.peak_mib = _peak_mib() - before
    return found


def _round(family: str, size: int, seconds: dict[str, list[float]], *, is_paused: bool) -> tuple[Program, Program]:
    operations = list(FAMILIES[family](size))
    gc.collect()
    if is_paused:
        gc.disable()
    try:
        program = _timed(seconds["build"], lambda: Program(operations))
        _timed(seconds["groups"], lambda: find_view_groups(program))
        inserted = _timed(seconds["insert"], lambda: insert_update_aliases(program))
        _timed(seconds["dead"], lambda: eliminate_dead_operations(inserted))
    finally:
        gc.enable()
    return program, inserted


def _timed(seconds: list[float], run: Callable[[], T]) -> T:
    start = time.process_time()
    found = run()
    seconds.append(time.process_time() - start)
    return found


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the growth exponent: the least-squares slope of log(seconds) over log(size).

    >>> round(slope([10, 100, 1000], [2, 200, 20000]), 3)
    2.0
    """
    return statistics.linear_regression([log(size) for size in sizes], [log(each) for each in seconds]).slope


def exponent(sizes: Sequence[int], rounds: Sequence[Sequence[float]]) -> float:
    """Return the median, over the rounds, of the growth exponent; ``rounds`` are the seconds of each size."""
    return statistics.median(slope(sizes, seconds) for seconds in zip(*rounds, strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help=f"of {', '.join(FAMILIES)}; all when none is given")
    parser.add_argument("--sizes", nargs="+", type=int, help="N; of a grid 30, 100 and 300 when not given")
    parser.add_argument("--rounds", type=int, default=5, help="with the garbage collector paused; one more is with it")
    options = parser.parse_args(arguments)
    if unknown := set(options.families) - set(FAMILIES):
        parser.error(f"no family {', '.join(sorted(unknown))}; there are {', '.join(FAMILIES)}")
    seconds, growth = _tables()
    console = Console(width=None if sys.stdout.isatty() else 120)
    for family in options.families or FAMILIES:
        sizes = options.sizes or (GRID_SIZES if family == "grid" else SIZES)
        found = []
        for size in sizes:
            print(f"{family} {size:,}", file=sys.stderr, flush=True)
            found.append(measure(family, size, options.rounds))
            _add_seconds(seconds, family, size, found[-1])
        if len(sizes) > 1:
            _add_growth(growth, family, sizes, found)
    console.print(seconds)
    if growth.rows:
        console.print(growth)


def _tables() -> tuple[Table, Table]:
    seconds = Table(title="CPU seconds, the garbage collector paused (median)")
    growth = Table(title="Growth exponents, paused (collecting)")
    for table, columns in (
        (seconds, ("N", *PASSES, "nodes", "update_aliases", "members", "edges", "peak MiB")),
        (growth, (*PASSES, "members", "edges")),
    ):
        table.add_column("family")
        for title in columns:
            table.add_column(title, justify="right")
    return seconds, growth


def _add_seconds(table: Table, family: str, size: int, found: Measurement) -> None:
    medians = [f"{statistics.median(found.paused[name]):.3f}" for name in PASSES]
    counts = [f"{count:,}" for count in (found.operations, found.inserted, found.members, found.edges)]
    table.add_row(family, f"{size:,}", *medians, *counts, f"{found.peak_mib:,.0f}")


def _add_growth(table: Table, family: str, sizes: Sequence[int], found: Sequence[Measurement]) -> None:
    cells = []
    for name in PASSES:
        paused = exponent(sizes, [measurement.paused[name] for measurement in found])
        collecting = exponent(sizes, [measurement.collecting[name] for measurement in found])
        cells.append(f"{paused:.2f} ({collecting:.2f})")
    counts = [[max(getattr(each, name), 1) for each in found] for name in ("members", "edges")]
    table.add_row(family, *cells, *(f"{slope(sizes, each):.2f}" for each in counts))


if __name__ == "__main__":
    main()
