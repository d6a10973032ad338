"""The commands of the command line: each prints what it found, and returns the exit status."""

from __future__ import annotations

import json
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from graphalias import demo
from graphalias.aliases import insert_update_aliases
from graphalias.capture import capture
from graphalias.compare import compare
from graphalias.dead import eliminate_dead_operations
from graphalias.draw import draw
from graphalias.example_inputs import make_inputs
from graphalias.explain import explain, to_plain
from graphalias.graph import REGION, UPDATE_ALIASES, Program
from graphalias.hazards import find_hazards
from graphalias.labels import count
from graphalias.partition import partition
from graphalias.terminal import hazard_table, make_console, program_table
from graphalias.user_code import check_arguments, load
from graphalias.verify import verify

FINE, WRONG, REFUSED = 0, 1, 2

#: What takes less needs no bar.
BAR_AFTER_SECONDS = 2.0

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def _call(options: Namespace) -> Call:
    fn = load(options.target, seed=options.seed)
    args, kwargs = make_inputs(options.inputs, seed=options.seed)
    check_arguments(fn, args, kwargs)
    return fn, args, kwargs


def _capture(options: Namespace) -> Program:
    fn, args, kwargs = _call(options)
    with _progress("capturing"):
        return capture(fn, *args, **kwargs)


def run_demo(console: Console, options: Namespace) -> int:
    """Run the demo."""
    demo.run_demo(console, options.out, seed=options.seed)
    console.print("\nThe drawings are for a web browser. For a function of your own, with its example inputs:")
    console.print("  python -m graphalias hazards model.py:step --input 'f32[4,4]'", markup=False)
    return FINE


def run_explain(console: Console, options: Namespace) -> int:
    """Print what is decided of a program, and why."""
    fn, args, kwargs = _call(options)
    with _progress("compiling"):
        explanation = explain(fn, *args, executor=options.executor, **kwargs)
    if options.json:
        return _print_json(console, explanation.to_dict())
    console.print(explanation)
    return FINE


def run_hazards(console: Console, options: Namespace) -> int:
    """Print a program and its hazards."""
    program = _capture(options)
    hazards = find_hazards(program)
    found = WRONG if hazards and options.fail else FINE
    if options.json:
        _print_json(console, {"name": program.name, "count": len(hazards), "hazards": to_plain(hazards)})
        return found
    console.print(program_table(program))
    console.print()
    if not hazards:
        console.print("no hazards: every topological order of this program gives what eager PyTorch gives")
        return FINE
    console.print(Text(f"{count(len(hazards), 'hazard')}, which no path in the graph orders", style="bold"))
    console.print(hazard_table(hazards))
    return found


def run_verify(console: Console, options: Namespace) -> int:
    """Check orders and an executor against eager PyTorch."""
    fn, args, kwargs = _call(options)
    with _progress("verifying"):
        report = verify(fn, *args, orders=options.orders, executor=options.executor, **kwargs)
    if options.json:
        return _print_json(console, report.to_dict())
    console.print(Text(str(report)))
    return FINE


def run_bench(console: Console, options: Namespace) -> int:
    """Time a function, compiled and not."""
    fn, args, kwargs = _call(options)
    with _progress("timing", options.rounds) as tick:
        found = compare(fn, args, kwargs, executor=options.executor, rounds=max(options.rounds, 1), tick=tick).to_dict()
    if options.json:
        return _print_json(console, found)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("", "median", "/ eager"):
        table.add_column(title, justify="right" if title else "left")
    for name, us in found["median_us"].items():
        ratio = found["over_eager"].get(name)
        table.add_row(name, f"{us:.1f} us", "" if ratio is None else f"{ratio:.2f}")
    for name, why in found["failed"].items():
        table.add_row(name, "failed", why)
    console.print(table)
    console.print("/ eager: the time divided by eager's of the same round, the median of all rounds")
    return FINE


@contextmanager
def _progress(what: str, steps: int | None = None) -> Iterator[Callable[[], None]]:
    """Show a bar on the error stream, if that is a terminal and it takes over two seconds; yield what moves it on."""
    bar = Progress(console=make_console(sys.stderr), transient=True, disable=not sys.stderr.isatty())
    task = bar.add_task(what, total=steps)
    timer = threading.Timer(BAR_AFTER_SECONDS, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda: bar.advance(task)
    finally:
        timer.cancel()
        bar.stop()


def run_draw(console: Console, options: Namespace) -> int:
    """Draw a program before and after."""
    before = _capture(options)
    after = _passed(before, options)
    path = options.out or Path(f"{options.target.rpartition(':')[2]}.svg")
    path.parent.mkdir(parents=True, exist_ok=True)
    with _progress("drawing"):
        draw(before, after, path=path, focus=options.focus, only=options.only, theme=options.theme)
    targets = [operation.target for operation in after.operations]
    made = f"{targets.count(UPDATE_ALIASES)} update_aliases"
    if options.partition is not None:
        made += f" and {count(targets.count(REGION), 'region')}"
    console.print(Text(f"drew {path}: {count(len(find_hazards(before)), 'hazard')} before, {made} after"))
    return FINE


def _passed(program: Program, options: Namespace) -> Program:
    """Return the program after insert_update_aliases, and in regions where that was asked for."""
    with _progress("ordering and partitioning"):
        program = insert_update_aliases(program)
        if options.partition is None:
            return program
        return partition(eliminate_dead_operations(program), options.partition)


def run_print(console: Console, options: Namespace) -> int:
    """Print a program as text."""
    program = _capture(options)
    if options.after or options.partition is not None:
        program = _passed(program, options)
    why = "".join(f"# {node}: {note}\n" for node, note in program.notes.items())
    console.out(str(program) + why, end="", highlight=False)
    return FINE


def _print_json(console: Console, found: Any) -> int:
    console.out(json.dumps(found, indent=2, default=str), highlight=False)
    return FINE
