"""The demo: what the project does, on programs of the kinds that real code is made of."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from graphalias.aliases import insert_update_aliases
from graphalias.capture import capture
from graphalias.dead import eliminate_dead_operations
from graphalias.draw import draw
from graphalias.examples import Example, make_examples
from graphalias.explain import explain
from graphalias.graph import ORDER, REGION, UPDATE_ALIASES, Program
from graphalias.hazards import Hazard, find_hazards
from graphalias.labels import count
from graphalias.oracle import differences
from graphalias.orders import topological_orders
from graphalias.partition import partition
from graphalias.stages import is_view
from graphalias.terminal import HOW_TO_READ, hazard_table, program_table
from graphalias.verify import Report, scene_of, verify
from graphalias.views import find_view_groups

#: Source of at most so many lines is shown in full.
SHORT_LINES = 10
#: Hazards listed of one program.
MOST_HAZARDS = 6


@dataclass(frozen=True)
class Finding:
    """What the demo found of one example."""

    name: str
    before: Program
    after: Program
    partitioned: Program
    hazards: tuple[Hazard, ...]
    wrong_before: int
    report: Report
    seconds: float

    @property
    def figures(self) -> tuple[tuple[str, str], ...]:
        """What the summary says of it, with the names of the rows."""
        groups = [group for group in find_view_groups(self.before) if group.is_shared]
        views = sum(len({value.object for value in group.values}) - 1 for group in groups)
        compute = [operation for operation in self.before.operations if operation.is_compute]
        nodes = [operation for operation in self.after.operations if operation.target == UPDATE_ALIASES]
        edges = [kind for *_, kind in self.after.graph.edges(data="kind") if kind == ORDER]
        return (
            ("operations", str(len(compute))),
            ("of these, write in place", str(sum(bool(op.writes or op.reshapes) for op in compute))),
            ("view groups of several tensors", str(len(groups))),
            ("views in these", str(views)),
            ("hazards", str(len(self.hazards))),
            ("orders wrong before", f"{self.wrong_before} of {self.report.orders}"),
            ("update_aliases nodes", str(len(nodes))),
            ("ORDER edges", str(len(edges))),
            ("orders wrong after", f"0 of {self.report.orders}"),
            ("fusion regions", str(count_regions(self.partitioned))),
            ("calls, views not counted", str(count_calls(self.after))),
            ("the same in regions", str(count_calls(self.partitioned))),
            ("seconds", f"{self.seconds:.1f}"),
        )


def run_demo(console: Console, folder: Path, *, seed: int = 0, orders: int = 20) -> list[Finding]:
    """Capture, show, verify and draw every example.

    Parameters
    ----------
    console : Console
        Where to print.
    folder : Path
        Where the drawings go; it is made if it is not there.
    seed : int
        Of the arguments' values.
    orders : int
        Random topological orders to try of each program, besides the adversarial ones.

    Returns
    -------
    list of Finding

    Raises
    ------
    VerificationError
        If some order gives another result than eager PyTorch, which would be a bug.
    """
    folder.mkdir(parents=True, exist_ok=True)
    console.print(Text("How to read what follows", style="bold"))
    console.print(HOW_TO_READ, markup=False)
    examples = make_examples(seed)
    findings = []
    for number, example in enumerate(examples, start=1):
        _print_title(console, f"{number} of {len(examples)}: {example.name}", example.about)
        findings.append(_show(console, example, folder, orders))
    _print_title(console, "Summary", "the same programs, side by side")
    console.print(_summary(findings))
    return findings


def _show(console: Console, example: Example, folder: Path, orders: int) -> Finding:
    """Print what is found of one example, step by step, and draw it."""
    start = time.perf_counter()
    _print_source(console, example)
    before = capture(example.fn, *example.args)
    _print_part(console, f"Captured, {sum(operation.is_compute for operation in before.operations)} operations")
    console.print(program_table(before))
    hazards = find_hazards(before)
    _print_part(console, f"{len(hazards)} hazards, which no path in the graph orders")
    console.print(hazard_table(hazards, most=MOST_HAZARDS))
    after = insert_update_aliases(before)
    _print_part(console, "After insert_update_aliases: + is new, ~ is changed")
    console.print(program_table(after, before))
    partitioned = partition(eliminate_dead_operations(after))
    _print_regions(console, partitioned, after)
    _print_part(console, "Explained")
    console.print(explain(example.fn, *example.args))
    wrong = count_wrong_orders(example, before, orders)
    report = verify(example.fn, *example.args, orders=orders)
    seconds = time.perf_counter() - start
    _print_part(console, "Verified: values, arguments afterwards, identity, shared memory")
    console.print(
        f"before: [bold red]{wrong} of {report.orders}[/] topological orders give another result than eager PyTorch"
    )
    console.print(
        f"after:  [bold green]0 of {report.orders}[/], and the Python function generated from it gives the same as well"
    )
    compiled = verify(example.fn, *example.args, orders=0, executor="auto")
    console.print(f"in regions, by executor {compiled.executor}: the same, to the tolerance of its dtype")
    path = folder / f"{example.name}.svg"
    draw(before, after, path=path)
    console.print(Text.assemble(("drawn:  ", ""), (str(path), "underline")))
    return Finding(example.name, before, after, partitioned, hazards, wrong, report, seconds)


def count_regions(program: Program) -> int:
    """Return the number of fusion regions."""
    return sum(operation.target == REGION for operation in program.operations)


def count_calls(program: Program) -> int:
    """Return how many calls run a program: regions, and ATen calls that are no views."""
    live = eliminate_dead_operations(program)
    return sum(operation.is_compute and not is_view(operation) for operation in live.operations)


def _print_regions(console: Console, partitioned: Program, before: Program) -> None:
    """Print what the best executor that is here compiles as one."""
    regions = count_regions(partitioned)
    what = count(regions, "fusion region") if regions else "No fusion regions"
    _print_part(console, f"{what}: what an executor compiles as one")
    if regions:
        console.print(program_table(partitioned, before))


def count_wrong_orders(example: Example, program: Program, orders: int) -> int:
    """Return how many of the topological orders that `verify` tries give something else than eager PyTorch."""
    scene = scene_of(program, example.args, {})
    expected = scene.watch(lambda: example.fn(*example.args))
    found = (
        scene.watch(lambda: program.run(*example.args, order=order))  # noqa: B023  # called here
        for order in topological_orders(program, orders)
    )
    return sum(bool(differences(expected, seen)) for seen in found)


def _print_title(console: Console, title: str, about: str) -> None:
    console.print()
    console.rule(Text(title, style="bold"), align="left", style="dim")
    console.print(Text(about, style="italic"))


def _print_part(console: Console, title: str) -> None:
    console.print()
    console.print(Text(title, style="bold"))


def _print_source(console: Console, example: Example) -> None:
    code = inspect.getsource(example.fn if inspect.isfunction(example.fn) else type(example.fn))
    lines = [line for line in code.splitlines() if '"""' not in line]
    if len(lines) <= SHORT_LINES:
        console.print()
        console.print(Syntax("\n".join(lines), "python", theme="ansi_dark", background_color="default"))


def _summary(findings: Sequence[Finding]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    for finding in findings:
        table.add_column(finding.name, justify="right", no_wrap=True)
    for rows in zip(*(finding.figures for finding in findings), strict=True):
        table.add_row(rows[0][0], *(figure for _, figure in rows))
    return table
