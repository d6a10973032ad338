"""Programs and hazards on a terminal: in colour there, plain where the output goes elsewhere."""

from __future__ import annotations

import itertools
import linecache
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from graphalias.graph import INPUT, OUTPUT, Operation, Program
from graphalias.hazards import Hazard
from graphalias.labels import count
from graphalias.style import group_colours
from graphalias.text import INDENT, print_operation

#: Where the output is no terminal, and the environment does not say how wide it is.
PLAIN_WIDTH = 120

#: What a program's text is coloured by; later ones win.
_STYLES = (
    (r"%[\w.:]+", "cyan"),
    (r"aten\.[\w.]+", "bold"),
    (r"update_aliases[\w.]*", "bold magenta"),
    (r" (?:reads|states)\([^)]*\)", "dim"),
    (r" after\([^)]*\)", "magenta"),
    (r"(?<=\w)[!~]+(?=[,)\]])", "bold red"),
)
REASON_STYLES = {"RAW": "bold red", "WAR": "bold yellow", "WAW": "bold magenta"}

HOW_TO_READ = """\
%y: f32[4] @s0 obj1 = aten.op(%x!, 2) reads(%x)
    f32[4]        data type and shape; stride(...) and offset(...) if unusual
    @s0 obj1      the storage its bytes lie in, and the tensor object: a view
                  is another object on the same storage
    %x!           an operand that is written in place
    after(a WAR)  waits for operation a, though no value passes: an ORDER edge
A hazard is a pair that some topological order runs the wrong way round:
    RAW  read after write: the read may come too early
    WAR  write after read: the write may come too early
    WAW  write after write"""


def make_console(file: TextIO | None = None) -> Console:
    """Return a console for standard output, or for another file."""
    file = sys.stdout if file is None else file
    width = None if file.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    return Console(file=file, width=width, highlight=False, soft_wrap=False)


def program_table(program: Program, before: Program | None = None) -> Table:
    """Return a program as a table of source lines and operations.

    Parameters
    ----------
    program : Program
    before : Program, optional
        Another program, of which this one was made: what is as it was there is only counted.
    """
    known = {} if before is None else {operation.name: print_operation(operation) for operation in before.operations}
    storages = group_colours([program])
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for is_new, run in itertools.groupby(program.operations, lambda op: known.get(op.name) != print_operation(op)):
        operations = list(run)
        if not is_new:
            table.add_row("", Text(f"… {count(len(operations), 'line')} as before", style="dim italic"))
            continue
        for operation in operations:
            mark = "" if before is None else "~ " if operation.name in known else "+ "
            for line in _lines(operation):
                text, _, place = line.partition("  # ")
                table.add_row(place, _coloured(mark + text, {name: border for name, (_, border) in storages.items()}))
    return table


def _lines(operation: Operation) -> Iterator[str]:
    """Yield the line of an operation, and of a region those of what it does: what enters is on its own line."""
    yield print_operation(operation)
    if operation.body is not None:
        yield from (INDENT + print_operation(inner) for inner in operation.body.operations if inner.target != INPUT)
        yield "}"


def _coloured(line: str, storages: dict[str, str]) -> Text:
    text = Text(line)
    for storage, colour in storages.items():
        text.highlight_regex(rf"@{re.escape(storage)}(?!\w)", f"bold {colour}")
    for pattern, style in _STYLES:
        text.highlight_regex(pattern, style)
    return text


def hazard_table(hazards: Sequence[Hazard], *, most: int | None = None) -> Table:
    """Return hazards as a table, each with the two lines of source it comes from; the first of them, or all."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    shown = hazards[:most]
    for hazard in shown:
        table.add_row(Text(hazard.reason, style=REASON_STYLES[hazard.reason]), _sentence(hazard))
        for name, location in zip((hazard.before, hazard.after), hazard.locations, strict=True):
            table.add_row("", Text(f"  {_source(name, location)}", style="dim"))
    if len(shown) < len(hazards):
        table.add_row("", Text(f"… and {len(hazards) - len(shown)} more", style="dim italic"))
    return table


def _sentence(hazard: Hazard) -> Text:
    place = hazard.accesses[0].place
    later = "the output" if hazard.after == OUTPUT else f"%{hazard.after}"
    return _coloured(f"%{hazard.before} must run before {later}; both touch @{place}", {})


def _source(name: str, location: str | None) -> str:
    """Return where an operation comes from, and the line of source that is there."""
    if location is None:
        return "what the caller sees afterwards" if name == OUTPUT else f"%{name}"
    return source_line(location)


def source_line(location: str) -> str:
    """Return the end of a ``path/file.py:12``, and the line of source that is there."""
    file, _, line = location.rpartition(":")
    code = linecache.getline(file, int(line)).strip() if line.isdigit() else ""
    return f"{os.path.basename(location)}  {code}".rstrip()
