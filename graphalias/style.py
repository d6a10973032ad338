"""How a drawing looks: the colours, shapes and labels of nodes and arrows, and its legend.

Colour is never the only carrier of meaning: a view group is also named by its storage (``@s0``), a write by ``!`` and a
thick border, an ORDER edge and a hazard by dashes and a label.
"""

from __future__ import annotations

import html
import math
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from graphalias.graph import Operation, Program, Symbol, Value, map_values
from graphalias.operation import CONSTANT, INPUT, OUTPUT, REGION, UPDATE_ALIASES
from graphalias.text import print_operation, print_type
from graphalias.views import find_view_groups

FONT = "Helvetica,Arial,sans-serif"
INK, DATA_INK, QUIET, GREY, PALE, WHITE = "#222222", "#4D4D4D", "#595959", "#8C8C8C", "#EEEEEE", "#FFFFFF"
FRAME, VIOLET, LILAC, RED = "#BFBFBF", "#4B3F8F", "#F1EFFA", "#C00000"

#: Fill and border of the view groups: Okabe and Ito's colour-blind-safe set, less the reds, which mean hazards.
PALETTE = (
    ("#D3E8F6", "#0072B2"), ("#FBE5BC", "#A86F00"), ("#C9EBDF", "#00795A"),
    ("#F6DDEA", "#A8487F"), ("#F8F4B8", "#7D7400"),
)  # fmt: skip

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
    fill, border = colour or (WHITE, QUIET)
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
    head = [_row((region.name, 11, INK, "b")), *(_row((call, 10, INK, "")) for call in _wrapped_call(region))]
    inner = [operation for operation in region.body.operations if operation.is_compute]
    rows = list(_listed(inner if len(inner) <= MOST_LISTED else inner[: MOST_LISTED - 1], colours))
    if len(inner) > len(rows):
        rows.append(_row((f"… {len(inner) - len(rows)} more", 9, QUIET, ""), "left"))
    types = few([print_short_type(value, colours) for value in region.results if value])
    foot = ["<hr/>", _row((types, 9, INK, ""))] if types else []
    return f"<{_table(''.join([*head, '<hr/>', *rows, *foot]))}>"


def _listed(operations: Sequence[Operation], colours: Colours) -> Iterator[str]:
    for operation in operations:
        storages = (value.storage.name for value in operation.results if value)
        fill = next((colours[storage][0] for storage in storages if storage in colours), "")
        yield _row((f"{operation.name} = {print_call(operation)}", 9, INK, ""), "left", fill)


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
        swatches = _table(f"<tr>{''.join(swatch.format(*colour) for colour in PALETTE[:2])}</tr>", spacing=1)
        entries.append(f'<td>{swatches}</td><td align="left"> view group that is written (@storage)</td>')
    if not entries:
        return quote("")
    rows = [f"<tr>{entry}</tr>" for entry in entries] if in_rows else [f"<tr>{''.join(entries)}</tr>"]
    return f'<<font color="{QUIET}" point-size="9">{_table("".join(rows), spacing=2)}</font>>'


def _line(kind: str) -> str:
    """Return a sample of an arrow's line: the lower border of a cell above an empty one."""
    look = {"color": DATA_INK, "penwidth": "1", "style": "solid"} | ARROWS[kind]
    border = f'sides="b" border="{math.ceil(float(look["penwidth"]))}" color="{look["color"]}" style="{look["style"]}"'
    return _table(f'<tr><td width="26" height="6" {border}></td></tr><tr><td height="6"></td></tr>')


def _table(rows: str, spacing: int = 0) -> str:
    return f'<table border="0" cellborder="0" cellspacing="{spacing}" cellpadding="0">{rows}</table>'


#: A line of a label: a text, a size in points, a colour and a tag.
Line = tuple[str, int, str, str]


def label(*lines: Line, align: str = "center") -> str:
    """Return a label of lines; empty ones are left out."""
    rows = [_row(line, align) for line in lines if line[0]]
    return f"<{_table(''.join(rows))}>" if rows else quote("")


def _row(line: Line, align: str = "center", fill: str = "") -> str:
    text, size, colour, tag = line
    inner = f"<{tag}>{escape(cut(text))}</{tag}>" if tag else escape(cut(text))
    background = f' bgcolor="{fill}"' if fill else ""
    return f'<tr><td align="{align}"{background}><font point-size="{size}" color="{colour}">{inner}</font></td></tr>'


#: Characters XML can't hold.
UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def escape(text: str) -> str:
    r"""Return a text as it stands in a label that is markup, where Graphviz still replaces ``\N`` by the node's name.

    >>> print(escape("<lambda> & \\N"))
    &lt;lambda&gt; &amp; \\N
    """
    printable = UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text).replace("\\", "\\\\")
    return html.escape(printable).replace("\r\n", "\n").replace("\n", "<br/>")


def quote(text: str) -> str:
    r"""Return a text as a quoted DOT string, in which neither backslashes nor entities mean anything.

    >>> print(quote('a->a & "\\N"'))
    "a->a &amp; \"\\N\""
    """
    printable = UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text).replace("&", "&amp;").replace("\\", "\\\\")
    return '"' + printable.replace('"', '\\"').replace("\r\n", "\n").replace("\n", "\\n") + '"'


def quote_tooltip(text: str) -> str:
    """Return a text as a quoted DOT string for a tooltip: Graphviz replaces escapes in it twice.

    It is cut: Graphviz reads no string longer than 16,384 characters.
    """
    return quote(cut(text, 600).replace("\\", "\\\\"))


def few(texts: Sequence[str], most: int = 3) -> str:
    """Return the first of the different texts, and how many more there are.

    >>> few(["a", "b", "a", "c", "d", "e"])
    'a, b, c, +2 more'
    """
    different = list(dict.fromkeys(texts))
    more = f", +{len(different) - most} more" if len(different) > most else ""
    return ", ".join(different[:most]) + more


def cut(text: str, most: int = 60) -> str:
    """Return a text, or its beginning.

    >>> cut("a long text", 7)
    'a long…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"
