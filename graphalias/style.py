"""How a drawing looks: the colours, shapes and labels of nodes and arrows, and its legend.

Colour is never the only carrier of meaning: a view group is also named by its storage (``@s0``), a write by ``!`` and a
thick border, an ORDER edge and a hazard by dashes and a label.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from graphalias.graph import Operation, Program, Symbol, Value, map_values
from graphalias.labels import count, cut, few, label, quote, quote_tooltip, row, table
from graphalias.operation import CONSTANT, INPUT, OUTPUT, REGION, UPDATE_ALIASES
from graphalias.text import print_operation, print_type
from graphalias.views import find_view_groups

FONT = "Helvetica,Arial,sans-serif"
INK, DATA_INK, QUIET, GREY, PALE, PAPER = "#222222", "#4D4D4D", "#595959", "#8C8C8C", "#EEEEEE", "#FFFFFF"
#: On violet, in either theme.
WHITE = "#FEFEFE"
FRAME, VIOLET, LILAC, RED = "#BFBFBF", "#4B3F8F", "#F1EFFA", "#C00000"

#: Fill and border of the view groups: Okabe and Ito's colour-blind-safe set, less the reds, which mean hazards.
PALETTE = (
    ("#D3E8F6", "#0072B2"), ("#FBE5BC", "#A86F00"), ("#C9EBDF", "#00795A"),
    ("#F6DDEA", "#A8487F"), ("#F8F4B8", "#7D7400"),
)  # fmt: skip

LIGHT, DARK = "light", "dark"

#: What each colour becomes on dark paper. Inks get lighter, fills darker; the hues stay.
_ON_DARK = {
    PAPER: "#1B1D21", INK: "#F0F0F0", DATA_INK: "#B8B8B8", QUIET: "#A6A6A6", PALE: "#2C2F35", FRAME: "#55585E",
    LILAC: "#2A2740", VIOLET: "#9D8FF0", RED: "#FF6B6B",
    "#D3E8F6": "#123A52", "#0072B2": "#56B4E9", "#FBE5BC": "#4A3608", "#A86F00": "#E69F00", "#C9EBDF": "#0F4235",
    "#00795A": "#2FC79B", "#F6DDEA": "#4A2038", "#A8487F": "#E58BBF", "#F8F4B8": "#454210", "#7D7400": "#E6DC3C",
    WHITE: "#101010",
}  # fmt: skip

SOURCES = (INPUT, CONSTANT)
#: Operations listed of a region.
MOST_LISTED = 14
SHAPES = {INPUT: "ellipse", CONSTANT: "note", UPDATE_ALIASES: "hexagon"}

ARROWS: dict[str, dict[str, str]] = {
    "data": {},
    "write": {"color": INK, "penwidth": "2.5"},
    "order": {"color": VIOLET, "penwidth": "1.4", "style": "dashed"},
    "hazard": {"color": RED, "penwidth": "2", "style": "dashed"},
    "state": {"color": GREY},
}

Colours = Mapping[str, tuple[str, str]]


def group_colours(programs: Iterable[Program]) -> dict[str, tuple[str, str]]:
    """Return the fill and border of storages in view groups of several tensor objects, one of which is written.

    A storage has one colour in all the programs.
    """
    colours: dict[str, tuple[str, str]] = {}
    used = 0
    for program in programs:
        for group in find_view_groups(program):
            objects = {value.object for value in group.values}
            if len(objects) < 2 or not (group.is_written or group.is_reshaped):
                continue
            storages = [storage.name for storage in group.storages]
            known = [colours[storage] for storage in storages if storage in colours]
            colours.update(dict.fromkeys(storages, known[0] if known else PALETTE[used % len(PALETTE)]))
            used += not known
    return colours


def node_look(operation: Operation, colours: Colours, note: str | None = None) -> dict[str, str]:
    """Return the attributes an operation is drawn with; what a pass notes of it is in the tooltip."""
    handles = [value for value in operation.results if value]
    colour = next((colours[value.storage.name] for value in handles if value.storage.name in colours), None)
    fill, border = colour or (PAPER, QUIET)
    look = {"shape": SHAPES.get(operation.target, "box"), "fillcolor": fill, "color": border}
    ink = quiet = INK
    if operation.target == UPDATE_ALIASES:
        look |= {"fillcolor": VIOLET, "penwidth": "2.5", "margin": "0,0"}
        ink = quiet = WHITE
    elif handles and handles[0].is_state and operation.target in SOURCES:
        look |= {"fillcolor": PALE, "color": GREY, "style": "filled,dashed", "margin": "0.02,0"}
        ink = quiet = QUIET
    elif operation.target in SOURCES:
        look |= {"margin": "0.03,0.02"}
    elif operation.target == OUTPUT:
        look |= {"peripheries": "2", "color": INK}
    elif operation.target == REGION:
        look |= {"fillcolor": LILAC, "color": VIOLET, "style": "filled,rounded", "penwidth": "1"}
        look |= {"penwidth": "3"} if operation.writes else {}
    elif operation.writes or operation.reshapes:
        look |= {"penwidth": "3", "color": border if colour else INK}
    quoted = {key: quote(value) for key, value in look.items()}
    text = _region_label(operation, colours) if operation.body else _node_label(operation, colours, ink, quiet)
    return {**quoted, "label": text, "tooltip": quote_tooltip(_tooltip(operation, note))}


def _tooltip(operation: Operation, note: str | None) -> str:
    """Return the text of an operation, and why it is in no region, or why a region begins with it."""
    text = print_operation(operation)
    if note is None:
        return text
    what = "apart from what comes before" if operation.target == REGION else "in no region"
    return f"{cut(text.removesuffix(' {'), 300)}\n{what}: {note}"


def _region_label(region: Operation, colours: Colours) -> str:
    """Return a label that lists a region's operations, each in the colour of the memory its result lies on."""
    head = [row((region.name, 11, INK, "b")), *(row((call, 10, INK, "")) for call in _wrapped_call(region))]
    inner = [operation for operation in region.body.operations if operation.is_compute]
    rows = list(_listed(inner if len(inner) <= MOST_LISTED else inner[: MOST_LISTED - 1], colours))
    if len(inner) > len(rows):
        rows.append(row((f"… {len(inner) - len(rows)} more", 9, QUIET, ""), "left"))
    types = few([print_short_type(value, colours) for value in region.results if value])
    foot = ["<hr/>", row((types, 9, INK, ""))] if types else []
    return f"<{table(''.join([*head, '<hr/>', *rows, *foot]))}>"


def _listed(operations: Sequence[Operation], colours: Colours) -> Iterator[str]:
    for operation in operations:
        storages = (value.storage.name for value in operation.results if value)
        fill = next((colours[storage][0] for storage in storages if storage in colours), "")
        yield row((f"{operation.name} = {print_call(operation)}", 9, INK, ""), "left", fill)


def _wrapped_call(operation: Operation) -> list[str]:
    return textwrap.wrap(print_call(operation), 44, max_lines=2, placeholder=" …", break_on_hyphens=False)


def _node_label(operation: Operation, colours: Colours, ink: str, quiet: str) -> str:
    name = (operation.name, 11, ink, "b")
    if operation.target == UPDATE_ALIASES:
        return label((operation.name, 9, ink, "b"), (few([value.name for value in operation.operands]), 9, ink, ""))
    types = few([print_short_type(value, colours) for value in operation.results if value])
    if operation.target in SOURCES:
        return label(name, (f"{operation.target} {types}", 9, quiet, ""))
    place = re.split(r"[/\\]", operation.location or "")[-1]
    calls = ((call, 10, ink, "") for call in _wrapped_call(operation))
    return label(name, *calls, (types, 9, quiet, ""), (place, 9, QUIET, "i"))


def print_short_type(value: Value, colours: Colours) -> str:
    """Return a handle's dtype and shape, and its storage where that is coloured."""
    if value.is_state:
        return "state"
    text = print_type(value).split(" ")[0]
    return f"{text} @{value.storage.name}" if value.storage.name in colours else text


class _Bare(str):
    """Text that is printed without quotes, also in a list."""

    __slots__ = ()
    __repr__ = str.__str__


def print_call(operation: Operation) -> str:
    """Return a call as in ``add_.Tensor(x!, 1)``: what is written is marked."""
    positions = iter(range(len(operation.operands)))

    def mark(value: Value) -> _Bare:
        position = next(positions)
        return _Bare(value.name + "!" * (position in operation.writes) + "~" * (position in operation.reshapes))

    args, kwargs = map_values(operation.args, mark), map_values(dict(operation.kwargs), mark)
    texts = [item.name if isinstance(item, Symbol) else repr(item) for item in (*args, *kwargs.values())]
    keys = [""] * len(args) + [f"{key}=" for key in kwargs]
    target = operation.target.removeprefix("aten.").removesuffix(".default")
    return f"{target}({', '.join(key + text for key, text in zip(keys, texts, strict=True))})"


def region_look(region: Operation, note: str | None) -> dict[str, str]:
    """Return the attributes of the cluster that a region's operations are drawn in."""
    look = {"style": "rounded,filled", "fillcolor": LILAC, "color": VIOLET, "labeljust": "l", "labelloc": "t"}
    look |= {"penwidth": "2.5" if region.writes else "1"}
    calls = ((call, 9, QUIET, "") for call in _wrapped_call(region))
    text = label((region.name, 11, VIOLET, "b"), *calls, align="left")
    quoted = {key: quote(value) for key, value in look.items()}
    return {**quoted, "label": text, "tooltip": quote_tooltip(_tooltip(region, note))}


def block_look(name: str, operations: Sequence[Operation], colours: Colours) -> dict[str, str]:
    """Return the attributes of a node that stands for several operations: those of a line of source, or alike."""
    writes = sum(bool(operation.writes or operation.reshapes) for operation in operations)
    handles = [value for operation in operations for value in operation.results if value]
    fill, border = next((colours[v.storage.name] for v in handles if v.storage.name in colours), (PAPER, QUIET))
    look = {"shape": "box3d", "margin": "0.2,0.12", "fillcolor": fill, "color": INK if writes else border}
    look |= {"penwidth": "3"} if writes else {}
    targets = few([operation.target.removeprefix("aten.") for operation in operations])
    counts = count(len(operations), "node") + f", {writes} in place" * bool(writes)
    title = re.sub(r"[^ ]*[/\\]", "", name)
    text = label((title, 11, INK, "b"), (targets, 10, INK, ""), (counts, 9, QUIET, ""))
    first = "\n".join(print_operation(operation) for operation in operations[:3])
    tooltip = quote_tooltip(f"{name}\n{first}" + "\n…" * (len(operations) > 3))
    return {**{key: quote(value) for key, value in look.items()}, "label": text, "tooltip": tooltip}


def in_theme(dot: str, theme: str) -> str:
    """Return a DOT text in the colours of a theme.

    >>> in_theme('color="#222222"', "dark")
    'color="#F0F0F0"'
    """
    return dot if theme == LIGHT else re.sub("#[0-9A-F]{6}", lambda found: _ON_DARK.get(found[0], found[0]), dot)


def rest_look(count: int) -> dict[str, str]:
    """Return the attributes of the node that stands for all that is not drawn."""
    look = {"shape": "box", "style": "filled,dashed", "fillcolor": PALE, "color": GREY}
    text = label((f"… {count} more", 11, INK, "b"), ("draw(…, limit=) shows more", 9, QUIET, ""))
    return {**{key: quote(value) for key, value in look.items()}, "label": text}


LEGEND = {
    "data": "data", "write": "data, written in place (x!)", "order": "order only", "hazard": "hazard: order missing",
}  # fmt: skip


def legend(kinds: Collection[str], colours: Colours, *, in_rows: bool) -> str:
    """Return a label that explains the kinds of arrows and the colours that are drawn, below or beside each other."""
    entries = [
        f'<td>{_line(kind)}</td><td align="left"> {text}   </td>' for kind, text in LEGEND.items() if kind in kinds
    ]
    if colours:
        swatch = '<td bgcolor="{}" color="{}" border="1" width="12" height="10"></td>'
        swatches = table(f"<tr>{''.join(swatch.format(*colour) for colour in PALETTE[:2])}</tr>", spacing=1)
        entries.append(f'<td>{swatches}</td><td align="left"> view group that is written (@storage)</td>')
    if not entries:
        return quote("")
    rows = [f"<tr>{entry}</tr>" for entry in entries] if in_rows else [f"<tr>{''.join(entries)}</tr>"]
    return f'<<font color="{QUIET}" point-size="9">{table("".join(rows), spacing=2)}</font>>'


def _line(kind: str) -> str:
    """Return a sample of an arrow's line: the lower border of a cell above an empty one."""
    look = {"color": DATA_INK, "penwidth": "1", "style": "solid"} | ARROWS[kind]
    border = f'sides="b" border="{math.ceil(float(look["penwidth"]))}" color="{look["color"]}" style="{look["style"]}"'
    return table(f'<tr><td width="26" height="6" {border}></td></tr><tr><td height="6"></td></tr>')
