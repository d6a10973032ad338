"""What `bench.py` found, as tables for a terminal, as Markdown, and as a chart."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from html import escape
from math import log, log10
from pathlib import Path

import torch
from rich.table import Table

import graphalias
from tools.bench_measure import FLOOR, Found
from tools.bench_rows import FLAT, ROWS, Row

#: Both sides of a "no slower" call the same code generator: what separates them then is noise.
NOISE = 1.05
JIT, COMPILE = "jit", "compile"
COLORS = {"compile": "#c0392b", "jit": "#2471a3", "thunder": "#7d8b8f"}


@dataclass
class Sheet:
    """A table of text, the first column to the left, the others to the right."""

    title: str
    headers: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)

    def rich(self) -> Table:
        """Return it for a terminal."""
        table = Table(title=self.title)
        for i, header in enumerate(self.headers):
            table.add_column(header, justify="right" if i else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        """Return it as Markdown."""
        lines = [self.headers, [":--", *["--:"] * (len(self.headers) - 1)], *self.rows]
        cells = "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
        return f"### {self.title}\n\n{cells}\n"


def verdict(ratio: float, limit: float) -> str:
    """Return whether a ratio is what it must be.

    >>> verdict(0.7, 0.7), verdict(1.04, 1.0), verdict(0.8, 0.7)
    ('pass', 'pass', 'miss')
    """
    return "pass" if ratio <= (NOISE if limit == 1.0 else limit) else "miss"


def duration(seconds: float) -> str:
    """Return seconds as people read them.

    >>> duration(12.345), duration(0.0123), duration(0.0000123)
    ('12.3 s', '12.3 ms', '12.3 us')
    """
    for unit, scale in (("s", 1), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def mebibytes(size: float) -> str:
    """Return bytes as MiB.

    >>> mebibytes(1 << 20), mebibytes(100)
    ('1', '0.0001')
    """
    return f"{size / (1 << 20):.3g}" if size >= 1 << 20 else f"{size / (1 << 20):.1g}"


def spread(ratios: Sequence[float]) -> str:
    """Return the median and the quartiles of paired ratios.

    >>> spread([1, 2, 3, 4, 5])
    '3.00 (2.00 to 4.00)'
    """
    if not ratios:
        return ""
    if len(ratios) < 3:
        return f"{statistics.median(ratios):.2f}"
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def sheets(found: Mapping[str, Found], variants: Sequence[str]) -> list[Sheet]:
    """Return the tables."""
    made = [steady(found, variants), ratios(found), memory(found, variants)]
    if any(each.first_calls for each in found.values()):
        made.append(first_calls(found))
    failures = [(name, variant, why) for name, each in found.items() for variant, why in each.failed.items()]
    if failures:
        made.append(Sheet("No numbers", ("work", "variant", "why"), list(failures)))
    return made


def steady(found: Mapping[str, Found], variants: Sequence[str]) -> Sheet:
    """Return the median seconds of a call, and the share of the machine's in-place bandwidth."""
    sheet = Sheet("Time of a call (median)", ("work", *variants, "MiB to move", "in-place floor", "share of it: jit"))
    for name, each in found.items():
        times = [_cell(each.seconds.get(variant), lambda s: duration(statistics.median(s))) for variant in variants]
        floor = _cell(each.seconds.get(FLOOR), lambda s: duration(statistics.median(s)))
        share = _cell(each.share(JIT), lambda share: f"{share:.0%}")
        sheet.rows.append((ROWS[name].title, *times, mebibytes(each.moved_bytes), floor, share))
    return sheet


def ratios(found: Mapping[str, Found]) -> Sheet:
    """Return the paired ratios and what they must be."""
    headers = ("work", "jit / eager", "at most", "", "jit / torch.compile", "at most", "")
    sheet = Sheet("Paired ratios: median (quartiles)", headers)
    for name, each in found.items():
        cells = [ROWS[name].title]
        for other in ("eager", COMPILE):
            values, limit = each.ratios(JIT, other), ROWS[name].targets.get(other)
            judged = verdict(statistics.median(values), limit) if values and limit else ""
            cells += [spread(values), f"{limit:g}" if limit else "", judged]
        sheet.rows.append(cells)
    if (flat := flatness(found)) is not None:
        sheet.rows.append(("KV cache slice write: slowest S / fastest S", f"{flat:.2f}", "", "", "", "", ""))
    return sheet


def flatness(found: Mapping[str, Found]) -> float | None:
    """Return the largest ratio between the rows that must take the same time."""
    medians = [
        statistics.median(found[name].seconds[JIT]) for name in FLAT if name in found and JIT in found[name].seconds
    ]
    return max(medians) / min(medians) if len(medians) > 1 else None


def memory(found: Mapping[str, Found], variants: Sequence[str]) -> Sheet:
    """Return how much a call allocates at its peak."""
    headers = ["work", *(f"tensors: {v}" for v in variants), *(f"process: {v}" for v in variants), "no more than eager"]
    sheet = Sheet("Peak during a call above what was there, MiB", headers)
    for name, each in found.items():
        cells = [
            _cell(sizes.get(variant), mebibytes)
            for sizes in (each.live_bytes, each.growth_bytes)
            for variant in variants
        ]
        sheet.rows.append((ROWS[name].title, *cells, _memory_verdict(each)))
    return sheet


def _memory_verdict(found: Found) -> str:
    """Pages and pools are coarser than tensors: the process may grow by a MiB that is no tensor's."""
    if JIT not in found.live_bytes:
        return ""
    is_less = found.live_bytes[JIT] <= found.live_bytes["eager"]
    return "pass" if is_less and found.growth_bytes[JIT] <= found.growth_bytes["eager"] + (1 << 20) else "miss"


def first_calls(found: Mapping[str, Found]) -> Sheet:
    """Return the seconds of first calls, and how they grow."""
    sheet = Sheet("First call", ("work", COMPILE, JIT, "jit / compile", "at most", ""))
    for name, each in found.items():
        row = ROWS[name]
        for size in sorted({size for _, size in each.first_calls}):
            title = f"{row.title} ({size} operations)" if row.sizes else row.title
            times = [each.first_calls.get((variant, size)) for variant in (COMPILE, JIT)]
            is_last = size == max(row.sizes, default=0)
            sheet.rows.append((title, *(_cell(s, duration) for s in times), *_judged(times, row, is_last=is_last)))
        if row.sizes:
            sheet.rows.append((f"{row.title}: growth exponent", *_exponents(each, row.sizes)))
    return sheet


def _judged(times: Sequence[float | None], row: Row, *, is_last: bool) -> tuple[str, str, str]:
    if None in times:
        return "", "", ""
    ratio = times[1] / times[0]  # type: ignore[operator]
    if row.first_call is None or not is_last:
        return f"{ratio:.2f}", "", ""
    return f"{ratio:.2f}", f"{row.first_call:g}", verdict(ratio, row.first_call)


def _exponents(found: Found, sizes: Sequence[int]) -> tuple[str, ...]:
    cells = []
    for variant in (COMPILE, JIT):
        seconds = [found.first_calls.get((variant, size)) for size in sizes]
        cells.append("" if None in seconds else f"{_slope(sizes, seconds):.2f}")  # type: ignore[arg-type]
    return (*cells, "", "1.1", "" if not cells[1] else verdict(float(cells[1]), 1.1))


def _slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    return statistics.linear_regression([log(size) for size in sizes], [log(each) for each in seconds]).slope


def _cell(value: object, show: Callable[..., str]) -> str:
    return "" if value is None else show(value)


def machine() -> str:
    """Return what the machine is, for those who read the numbers elsewhere."""
    model = next((line.partition(":")[2].strip() for line in _cpu_lines() if line.startswith("model name")), "")
    gpu = f", {torch.cuda.get_device_name()} (not used)" if torch.cuda.is_available() else ""
    return (
        f"{model or platform.machine()}, {os.cpu_count()} cores, one thread used{gpu}; "
        f"Python {platform.python_version()}, torch {torch.__version__.partition('+')[0]}, "
        f"graphalias {graphalias.__version__}; {date.today()}"
    )


def _cpu_lines() -> Iterable[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else ()


def chart(found: Mapping[str, Found], variants: Sequence[str]) -> str:
    """Return an SVG of the paired ratios to eager: bars to the left are faster, to the right slower."""
    drawn = [variant for variant in variants if variant in COLORS]
    bars = list(_bars(found, drawn))
    height = bars[-1][2] + 30 if bars else 60
    size = f'width="900" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect {size} fill="white"/>',
        '<text x="10" y="18">time of a call / eager PyTorch\'s (logarithmic; left of 1 is faster)</text>',
    ]
    for i, variant in enumerate(drawn):
        lines.append(f'<rect x="{560 + 110 * i}" y="8" width="12" height="12" fill="{COLORS[variant]}"/>')
        lines.append(f'<text x="{577 + 110 * i}" y="18">{_label(variant)}</text>')
    for ratio in (0.1, 0.2, 0.5, 1, 2, 5, 10):
        x = _x(ratio)
        lines.append(
            f'<line x1="{x}" x2="{x}" y1="45" y2="{height - 10}" stroke="{"#555" if ratio == 1 else "#ddd"}"/>'
        )
        lines.append(f'<text x="{x}" y="40" text-anchor="middle">{ratio:g}</text>')
    for title, variant, y, ratio in bars:
        if title:
            lines.append(f'<text x="340" y="{y + 10}" text-anchor="end" font-size="11">{escape(title)}</text>')
        left, right = sorted((_x(1), _x(ratio)))
        lines.append(f'<rect x="{left}" y="{y}" width="{right - left:.1f}" height="11" fill="{COLORS[variant]}"/>')
        lines.append(f'<text x="{right + 4}" y="{y + 10}" font-size="10">{ratio:.2f}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _bars(found: Mapping[str, Found], drawn: Sequence[str]) -> Iterator[tuple[str, str, int, float]]:
    """Yield a row's title before its first bar, the variant, where it is, and how long."""
    y = 50
    for name, each in found.items():
        title = ROWS[name].title
        for variant in drawn:
            if values := each.ratios(variant, "eager"):
                yield title, variant, y, statistics.median(values)
                title, y = "", y + 12
        y += 8


def _label(variant: str) -> str:
    return {"compile": "torch.compile", "jit": "graphalias"}.get(variant, variant)


def _x(ratio: float) -> float:
    """Return where a ratio is: from 0.05 to 20."""
    return round(610 + 200 * max(-1.3, min(1.3, log10(ratio))), 1)


def markdown(found: Mapping[str, Found], variants: Sequence[str], how: str, image: str) -> str:
    """Return the page of a run."""
    return f"""# Benchmarks

One run of `python -m tools.bench`; run it again for your machine. What the columns mean is in its `--help`.

{machine()}; {how}.

![Time of a call relative to eager PyTorch]({image})

""" + "\n".join(sheet.markdown() for sheet in sheets(found, variants))
