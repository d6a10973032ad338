"""How fast programs with in-place operations run: graphalias, eager PyTorch, torch.compile, each against the others.

    python -m tools.bench --quick                        # a look, in minutes
    python -m tools.bench chunk columns                  # some rows
    python -m tools.bench --slow --out docs/benchmarks.md

One thread, whose CPU seconds are counted; the variants take turns in one process. A ratio is the median over the rounds
of two variants' times in the same round, its quartiles behind it. `compile` is torch.compile with Inductor,
dynamic=False; `jit` is graphalias.jit, `jit eager` the same with one ATen call an operation. Before a row is timed,
every variant's results, and what it leaves in its arguments, are compared with eager's, of the first call and of the
second. Calls follow each other for a while; with --cold each call finds the caches full of something else, which is
when the price of guards shows.

"MiB to move" is what has to be read and written, each byte once. The floor is one `add_` over as much memory, timed in
the same rounds: what lies in a cache is compared with what lies in a cache.
Peaks are of a steady call: bytes of tensors by the allocator's count, and the growth of the process.
A first call, by the clock on the wall, is of a fresh process with an empty cache of compiled code, after one small
function was compiled.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from tools import bench_report
from tools.bench_measure import VARIANTS, Found, first_call_seconds, measure
from tools.bench_rows import ROWS


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables, and write the page and the chart."""
    options = _parser().parse_args(arguments)
    if unknown := set(options.rows) - set(ROWS):
        _parser().error(f"no row {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    torch.set_num_threads(1)
    rounds = options.rounds or (5 if options.quick else 15)
    names = options.rows or [name for name, row in ROWS.items() if options.slow or not row.is_slow]
    found: dict[str, Found] = {}
    for name in names:
        print(name, file=sys.stderr, flush=True)
        found[name] = measure(
            ROWS[name], options.variants, rounds=rounds, block_seconds=0.01 if options.quick else 0.05,
            is_cold=options.cold,
        )  # fmt: skip
        if not (options.quick or options.cold):
            _measure_first_calls(name, found[name], options.variants)
    console = Console(width=None if sys.stdout.isatty() else 200)
    for sheet in bench_report.sheets(found, options.variants):
        console.print(sheet.rich())
    how = f"{rounds} paired rounds{', caches swept before every call' if options.cold else ''}"
    console.print(f"{bench_report.machine()}; {how}")
    if options.out:
        _write(options.out, found, options.variants, how)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help=f"of {', '.join(ROWS)}; all but slow ones when none is given")
    parser.add_argument("--rounds", type=int, help="paired rounds: 15 when not given")
    parser.add_argument("--quick", action="store_true", help="5 short rounds, no first calls: a look, no result")
    parser.add_argument("--slow", action="store_true", help="rows too that torch.compile takes minutes to compile")
    parser.add_argument("--cold", action="store_true", help="sweep the caches before every call; no first calls")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--out", type=Path, help="a Markdown page; the chart is written beside it, in images/")
    return parser


def _measure_first_calls(name: str, found: Found, variants: Sequence[str]) -> None:
    for size in ROWS[name].sizes or (0,):
        for variant in (bench_report.COMPILE, bench_report.JIT):
            if variant in variants and variant not in found.failed:
                print(f"{name}: first call, {variant} {size or ''}", file=sys.stderr, flush=True)
                try:
                    found.first_calls[variant, size] = first_call_seconds(name, variant, size)
                except EOFError:
                    found.failed[variant] = "its process failed at the first call"


def _write(page: Path, found: dict[str, Found], variants: Sequence[str], how: str) -> None:
    image = page.parent / "images" / f"{page.stem}.svg"
    image.parent.mkdir(parents=True, exist_ok=True)
    image.write_text(bench_report.chart(found, variants))
    page.write_text(bench_report.markdown(found, variants, how, image.relative_to(page.parent).as_posix()))


if __name__ == "__main__":
    main()
