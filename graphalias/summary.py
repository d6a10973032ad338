"""What was decided of a program, for reading: what is alike is told once, so that a large program fits a page."""

from __future__ import annotations

import io
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.filesize import decimal
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from graphalias.decisions import (
    FUNCTIONAL,
    IN_PLACE,
    REMOVED,
    Decisions,
    Group,
    Mutation,
    Outside,
    Prevented,
    RegionFacts,
    SharedMemory,
)
from graphalias.graph import OUTPUT
from graphalias.labels import count, cut, few
from graphalias.terminal import PLAIN_WIDTH, REASON_STYLES, source_line
from graphalias.traffic import Traffic, total

#: Rows of each part; what is alike is one row.
MOST_ROWS = 12
#: Source lines shown of a region.
MOST_LINES = 3

_FATES = {IN_PLACE: "yellow", FUNCTIONAL: "green", REMOVED: "dim"}

Row = tuple[str | Text, str | Text]
Item = TypeVar("Item")


def print_summary(decisions: Decisions) -> str:
    """Return the summary as plain text."""
    file = io.StringIO()
    console = Console(file=file, width=PLAIN_WIDTH, highlight=False)  # the same text everywhere
    console.print(*summary(decisions), sep="\n")
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def export_html(renderables: Iterable[RenderableType]) -> str:
    """Return what is printed in colour on a terminal as a piece of HTML."""
    console = Console(file=io.StringIO(), record=True, width=110, highlight=False, force_jupyter=False)
    console.print(*renderables, sep="\n")
    return console.export_html(
        inline_styles=True, code_format='<pre style="line-height:1.25;font-size:85%">{code}</pre>'
    )


def summary(decisions: Decisions) -> Iterator[RenderableType]:
    """Yield the parts of a summary: memory, mutations, order, regions, what is outside, compile times."""
    yield from _head(decisions)
    shared = [(_names(one.names), f"inputs on @{one.storage}, {_overlap(one)}") for one in decisions.shared_memory]
    yield from _part("Memory seen through several tensors", [*shared, *_listed(decisions.groups, _group_key, _group)])
    yield from _part("Mutations", _listed(decisions.mutations, _mutation_key, _mutation))
    title = f"Order where no value passes ({len(decisions.inserted)} update_aliases)"
    yield from _part(title, _listed(decisions.prevented, _hazard_key, _hazard))
    yield from _part("Fusion regions", _listed(decisions.regions, _region_key, _region))
    outside = [(count(len(one.operations), "call"), _because(one)) for one in decisions.outside]
    yield from _part("In no region", outside)
    times = ", ".join(f"{stage} {ms:.1f}" for stage, ms in decisions.times_ms.items())
    yield from _part("Compile time", [(f"{sum(decisions.times_ms.values()):.1f} ms", times)])


def _head(decisions: Decisions) -> Iterator[RenderableType]:
    compute = [operation for operation in decisions.captured.operations if operation.is_compute]
    counts = f"{count(len(compute), 'operation')}, {len(decisions.mutations)} of them in place"
    yield Text.assemble((decisions.captured.name, "bold"), f": {counts}, {count(len(decisions.hazards), 'hazard')}")
    calls = sum(len(one.operations) for one in decisions.outside)
    runs = f"{count(len(decisions.regions), 'region')} and {count(calls, 'call')} outside"
    moved, eager = decisions.traffic.total_bytes, decisions.eager.total_bytes
    ratio = f", {moved / eager:.2f} of that" if eager else ""
    yield Text(
        f"executor {decisions.executor}: {runs}; eager PyTorch moves {decimal(eager)}, this {decimal(moved)}{ratio}"
    )
    if decisions.remark is not None:
        yield Text(decisions.remark, style="bold yellow")


def _part(title: str, rows: Iterable[Row]) -> Iterator[RenderableType]:
    """Yield a title and the rows below it; nothing where there are none."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for left, right in rows:
        table.add_row(left, right)
    if table.row_count:
        yield Text(f"\n{title}", style="bold")
        yield Padding(table, (0, 0, 0, 2))


def _listed(items: Iterable[Item], key: Callable[[Item], Hashable], row: Callable[[list[Item]], Row]) -> Iterator[Row]:
    """Yield a row for all items of one key; of many keys the first, and how many there are more."""
    alike: dict[Hashable, list[Item]] = {}
    for item in items:
        alike.setdefault(key(item), []).append(item)
    groups = list(alike.values())
    yield from map(row, groups[:MOST_ROWS])
    more = groups[MOST_ROWS:]
    if more:
        rest = sum(map(len, more))
        yield Text("…", style="dim"), Text(f"and {rest} more; to_dict() has all", style="dim italic")


def _group_key(group: Group) -> Hashable:
    named = group.is_written or group.is_reshaped
    return (named, group.type, len(group.views)) if named else (named,)


def _group(alike: list[Group]) -> Row:
    views = [view for group in alike for view in group.views]
    what = [few([f"@{place}" for group in alike for place in group.storages]), alike[0].type]
    what.append("written" if alike[0].is_written else "geometry changes" if alike[0].is_reshaped else "only read")
    return _names([group.base for group in alike]), Text(f"{' '.join(what[:2])}, {what[2]}; also {_names(views)}")


def _mutation_key(mutation: Mutation) -> Hashable:
    return mutation.location, mutation.target, mutation.fate, mutation.why


def _mutation(alike: list[Mutation]) -> Row:
    first = alike[0]
    regions = list(dict.fromkeys(one.region for one in alike if one.region))
    where = f" in {_span(regions)}" if regions else ""
    fate = Text.assemble((f"{first.fate}{where}", _FATES[first.fate]), f": {first.why}")
    return _names([one.operation for one in alike]), _with_lines(fate, [first.location])


def _hazard_key(hazard: Prevented) -> Hashable:
    return hazard.reason, hazard.locations, hazard.node is None


def _hazard(alike: list[Prevented]) -> Row:
    """Return which operation must run before which, what keeps them in order, and where both are."""
    first = alike[0]
    places = dict.fromkeys(f"@{one.place}" for one in alike if one.place)
    later = "the caller" if first.after == OUTPUT else _names([one.after for one in alike])
    text = Text(f"{_names([one.before for one in alike])} before {later}, both on {few(list(places))}: ")
    nodes = [one.node for one in alike if one.node]
    text.append(_names(nodes) if nodes else "an edge to the output", style="magenta")
    return Text(first.reason, style=REASON_STYLES[first.reason]), _with_lines(text, first.locations)


def _region_key(region: RegionFacts) -> Hashable:
    return region.targets, region.locations, region.executor


def _region(alike: list[RegionFacts]) -> Row:
    first, together = alike[0], " together" * (len(alike) > 1)
    kernels = [one.kernels for one in alike if one.kernels is not None]
    text = Text(f"{count(len(first.targets), 'operation')}{' each' * bool(together)} by {first.executor}")
    text.append(f", {count(sum(kernels), 'kernel')}{together}\n" if len(kernels) == len(alike) else "\n")
    moved, eager = total(one.traffic for one in alike), total(one.eager for one in alike)
    text.append(f"{_moved(moved)}; eager {_moved(eager)}{together}\n")
    text.append(few([target.removeprefix("aten.") for target in first.targets], 6), style="cyan")
    if first.apart:
        text.append(f"\napart from what comes before: {first.apart}", style="dim")
    return Text(_span([region.name for region in alike]), style="bold"), _with_lines(text, first.locations)


def _moved(traffic: Traffic) -> str:
    return f"reads {decimal(traffic.read_bytes)}, writes {decimal(traffic.written_bytes)}"


def _because(outside: Outside) -> Text:
    names = _names(outside.operations)
    return Text.assemble(outside.why or "nothing is fused here", (f" ({names})", "dim"))


def _overlap(shared: SharedMemory) -> str:
    return "which overlap" if shared.has_overlap else "side by side"


def _with_lines(text: Text, locations: Sequence[str | None]) -> Text:
    """Return a text with lines of the user's source below it."""
    known = list(dict.fromkeys(location for location in locations if location))
    for location in known[:MOST_LINES]:
        text.append(f"\n{source_line(location)}", style="dim")
    if len(known) > MOST_LINES:
        text.append(f"\n… {len(known) - MOST_LINES} more lines", style="dim")
    return text


def _names(names: Iterable[str]) -> str:
    """Return the names of operations or handles, of many the first.

    >>> _names(["x", "y", "z", "v"])
    '%x, %y, +2 more'
    """
    return few([f"%{cut(name, 24)}" for name in names], 2)


def _span(names: Sequence[str]) -> str:
    """Return the first and the last of several names.

    >>> _span(["region_1"]), _span(["region_1", "region_2", "region_7"])
    ('region_1', 'region_1 … region_7 (3)')
    """
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)})"
