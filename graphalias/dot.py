"""Print programs as DOT, the language of Graphviz: what is drawn how.

Colour is never the only carrier of meaning: a view group is also named by its storage (``@s0``), a write by ``!`` and a
thick border, an ORDER edge and a hazard by dashes and a label.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import networkx as nx
import pydot

from graphalias.aliases import find_hazards
from graphalias.graph import (
    CONSTANT,
    INPUT,
    ORDER,
    OUTPUT,
    UPDATE_ALIASES,
    Operation,
    Program,
    Symbol,
    Value,
    map_values,
)
from graphalias.text import print_operation, print_type
from graphalias.views import find_view_groups

FONT = "Helvetica,Arial,sans-serif"
INK, QUIET, GREY, PALE, WHITE = "#222222", "#595959", "#8C8C8C", "#EEEEEE", "#FFFFFF"
VIOLET, RED = "#4B3F8F", "#C00000"

#: Fill and border of the view groups: Okabe and Ito's colour-blind-safe set, less the reds, which mean hazards.
PALETTE = (
    ("#D3E8F6", "#0072B2"), ("#FBE5BC", "#A86F00"), ("#C9EBDF", "#00795A"),
    ("#F6DDEA", "#A8487F"), ("#F8F4B8", "#7D7400"),
)  # fmt: skip

SOURCES = (INPUT, CONSTANT)
SHAPES = {INPUT: "ellipse", CONSTANT: "note", UPDATE_ALIASES: "hexagon"}

#: What the nodes beyond the limit are called together; no operation has this name.
REST = ""

Colours = Mapping[str, tuple[str, str]]


def print_dot(programs: Mapping[str, Program], limit: int) -> str:
    """Return the DOT text of programs side by side.

    Parameters
    ----------
    programs : mapping
        By title.
    limit : int
        Nodes drawn of each program.
    """
    colours = group_colours(programs.values())
    panels: list[_Panel] = []
    for title, program in programs.items():
        panels.append(_Panel(program, title, limit, first=sum(len(panel.ids) for panel in panels)))
    dot = pydot.Dot(
        "", graph_type="digraph", newrank=True, nodesep=0.3, ranksep=0.35, pad=0.2, fontname=quote(FONT),
        bgcolor="white", fontsize=10, labelloc="b", label=_legend(panels, bool(colours)),
    )  # fmt: skip
    dot.set_node_defaults(style="filled", fontname=quote(FONT), fontsize=10, margin=quote("0.1,0.05"), height=0.2)
    dot.set_edge_defaults(fontname=quote(FONT), fontsize=9, color=quote("#4D4D4D"), arrowsize=0.7)
    for panel in panels:
        dot.add_subgraph(panel.cluster(colours))
    for row in _rows(panels):
        dot.add_subgraph(row)
    return str(dot.to_string())


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


def _rows(panels: Sequence[_Panel]) -> Iterator[pydot.Subgraph]:
    """Yield what keeps operations of one name in one row, unless the programs order them differently."""
    both = nx.compose_all([panel.arrow_graph() for panel in panels])
    if len(panels) < 2 or not nx.is_directed_acyclic_graph(both):
        return
    for name in panels[0].ids:
        if all(name in panel.ids for panel in panels) and name != REST:
            row = pydot.Subgraph("", rank="same")
            for panel in panels:
                row.add_node(pydot.Node(panel.ids[name]))
            yield row


class _Panel:
    """One program of the drawing: which nodes and arrows of it are drawn."""

    def __init__(self, program: Program, title: str, limit: int, first: int) -> None:
        self.program, self.title, self.first = program, title, first
        shown = _shown(program, limit)
        self.folded = len(program.graph) - len(shown)
        names = [*shown[:-1], REST, *shown[-1:]] if self.folded else shown
        # Names of ours: "graph", "split_1.0" and "a:b" mean other things in DOT.
        self.ids = {name: f"n{number}" for number, name in enumerate(names, start=first)}
        self.hazards = find_hazards(program)
        self.arrows: dict[tuple[str, str], _Arrow] = {}
        self._draw_arrows()

    def _between(self, source: str, target: str) -> _Arrow:
        pair = (source if source in self.ids else REST, target if target in self.ids else REST)
        return self.arrows.setdefault(pair, _Arrow())

    def _draw_arrows(self) -> None:
        graph = self.program.graph
        for source, target, edge in graph.edges(data=True):
            arrow = self._between(source, target)
            if edge["kind"] == ORDER:
                arrow.reasons.append(edge["reason"])
            else:
                arrow.pass_values(graph.nodes[source]["op"], graph.nodes[target]["op"])
        for hazard in self.hazards:
            self._between(hazard.before, hazard.after).hazards.append(hazard.reason)
        self.arrows.pop((REST, REST), None)

    def arrow_graph(self) -> nx.DiGraph:
        """Return the drawn arrows between names."""
        return nx.DiGraph(list(self.arrows))

    def has(self, kind: str) -> bool:
        """Whether an arrow of this kind is drawn."""
        return any(arrow.kind == kind for arrow in self.arrows.values())

    def cluster(self, colours: Colours) -> pydot.Cluster:
        """Return the program as a framed part of the drawing."""
        cluster = pydot.Cluster(
            f"p{self.first}", label=self._title(), labeljust="l", labelloc="t", style="rounded",
            color=quote("#BFBFBF"), margin=14,
        )  # fmt: skip
        for name, identity in self.ids.items():
            look = _rest_look(self.folded) if name == REST else node_look(self.program.operation(name), colours)
            cluster.add_node(pydot.Node(identity, **look))
        for (source, target), arrow in self.arrows.items():
            tooltip = f"{source or 'the rest'} → {target or 'the rest'}"
            cluster.add_edge(pydot.Edge(self.ids[source], self.ids[target], **arrow.look(tooltip)))
        return cluster

    def _title(self) -> str:
        hazards, inserted = len(self.hazards), sum(op.target == UPDATE_ALIASES for op in self.program.operations)
        notes = [f"{hazards} hazard{'s' * (hazards != 1)}"] * bool(hazards)
        notes += [f"{inserted} update_aliases"] * bool(inserted)
        return _label((self.title, 14, INK, "b"), (", ".join(notes), 10, QUIET, ""), align="left")


def _shown(program: Program, limit: int) -> list[str]:
    """Return the nodes to draw: the first operations with the inputs they use, so that the rest can be one node."""
    graph = program.graph
    if len(graph) <= limit:
        return list(graph)
    shown: dict[str, None] = {}
    for operation in program.operations:
        if operation.target in SOURCES or operation.target == OUTPUT:
            continue
        used = [name for name in graph.predecessors(operation.name) if graph.nodes[name]["op"].target in SOURCES]
        if len(shown.keys() | {*used, operation.name}) > limit:
            break
        shown.update(dict.fromkeys([*used, operation.name]))
    return [name for name in graph if name in shown or name == OUTPUT]


@dataclass
class _Arrow:
    """What passes from one node to another, and what must not be overtaken."""

    values: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    hazards: list[str] = field(default_factory=list)
    is_data: bool = False
    is_write: bool = False
    is_state: bool = False

    def pass_values(self, source: Operation, target: Operation) -> None:
        """Note the values that pass; their names are drawn where there is a choice."""
        operands = (*target.operands, *target.states)
        passed = [value for value in source.results if value and value in operands]
        if len(source.results) > 1:
            self.values += [value.name for value in passed]
        self.is_write |= any(value in target.written for value in passed)
        self.is_state |= any(value.is_state for value in passed)
        self.is_data |= any(not value.is_state for value in passed)

    @property
    def kind(self) -> str:
        """What it is drawn as."""
        if self.hazards:
            return "hazard"
        if self.is_write:
            return "write"
        if self.is_data:
            return "data"
        return "order" if self.reasons else "state"

    def look(self, tooltip: str) -> dict[str, str]:
        """Return the attributes it is drawn with."""
        look = dict(ARROWS[self.kind])
        label = _few({"hazard": self.hazards, "order": self.reasons}.get(self.kind, self.values))
        if self.kind == "hazard":
            label = f"hazard {label}"
        if label:
            look |= {"label": f" {label} ", "fontcolor": look.get("color", QUIET)}
        return {key: quote(value) for key, value in {**look, "tooltip": f"{tooltip} {label}".strip()}.items()}


ARROWS: dict[str, dict[str, str]] = {
    "data": {},
    "write": {"color": INK, "penwidth": "2.5"},
    "order": {"color": VIOLET, "penwidth": "1.4", "style": "dashed"},
    "hazard": {"color": RED, "penwidth": "2", "style": "dashed"},
    "state": {"color": GREY},
}


def node_look(operation: Operation, colours: Colours) -> dict[str, str]:
    """Return the attributes an operation is drawn with."""
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
    elif operation.writes or operation.reshapes:
        look |= {"penwidth": "3", "color": border if colour else INK}
    look["tooltip"] = print_operation(operation)
    label = _node_label(operation, colours, ink, quiet)
    return {**{key: quote(value) for key, value in look.items()}, "label": label}


def _node_label(operation: Operation, colours: Colours, ink: str, quiet: str) -> str:
    name = (operation.name, 11, ink, "b")
    if operation.target == UPDATE_ALIASES:
        return _label((operation.name, 9, ink, "b"), (_few([value.name for value in operation.operands]), 9, ink, ""))
    types = _few([print_short_type(value, colours) for value in operation.results if value])
    if operation.target in SOURCES:
        return _label(name, (f"{operation.target} {types}", 9, quiet, ""))
    place = re.split(r"[/\\]", operation.location or "")[-1]
    call = _cut(print_call(operation), 44)
    return _label(name, (call, 10, ink, ""), (types, 9, quiet, ""), (place, 9, QUIET, "i"))


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


def _rest_look(count: int) -> dict[str, str]:
    label = _label((f"… {count} more", 11, INK, "b"), ("draw(…, limit=) shows more", 9, QUIET, ""))
    look = {"shape": "box", "style": "filled,dashed", "fillcolor": PALE, "color": GREY}
    return {**{key: quote(value) for key, value in look.items()}, "label": label}


LEGEND = {
    "data": "data", "write": "data, written in place (x!)", "order": "order only", "hazard": "hazard: order missing",
}  # fmt: skip


def _legend(panels: Sequence[_Panel], has_groups: bool) -> str:
    """Return a line that explains what the drawing holds, and nothing else."""
    cells = []
    for kind, text in LEGEND.items():
        if any(panel.has(kind) for panel in panels):
            look = {"color": "#4D4D4D", "penwidth": "1", "style": "solid"} | ARROWS[kind]
            line = (
                f'<td width="26" height="6" fixedsize="true" sides="b" border="{round(float(look["penwidth"]))}" '
                f'color="{look["color"]}" style="{look["style"]}"></td>'
            )
            cells.append(
                f'<td><table border="0" cellspacing="0" cellpadding="0"><tr>{line}</tr>'
                f'<tr><td height="6"></td></tr></table></td><td align="left">{escape(text)}   </td>'
            )
    if has_groups:
        swatch = '<td bgcolor="{}" color="{}" border="1" width="10"></td>'
        swatches = "".join(swatch.format(*colour) for colour in PALETTE[:3])
        cells.append(f"{swatches}<td>@storage: a view group that is written</td>")
    if not cells:
        return quote("")
    table = '<table border="0" cellborder="0" cellspacing="3" cellpadding="1">'
    return f'<<font color="{QUIET}" point-size="9">{table}<tr>{"".join(cells)}</tr></table></font>>'


def _label(*lines: tuple[str, int, str, str], align: str = "center") -> str:
    """Return a label of lines, each a text, a size in points, a colour and a tag; empty ones are left out."""
    rows = []
    for text, size, colour, tag in lines:
        if text:
            inner = f"<{tag}>{escape(text)}</{tag}>" if tag else escape(text)
            rows.append(f'<tr><td align="{align}"><font point-size="{size}" color="{colour}">{inner}</font></td></tr>')
    return f'<<table border="0" cellspacing="0" cellpadding="0">{"".join(rows)}</table>>' if rows else quote("")


#: Characters XML can't hold.
UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def escape(text: str) -> str:
    """Return a text as it stands in a label that is markup.

    >>> escape("<lambda> & co")
    '&lt;lambda&gt; &amp; co'
    """
    printable = UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    return html.escape(printable, quote=True).replace("\r\n", "\n").replace("\n", "<br/>")


def quote(text: str) -> str:
    r"""Return a text as a quoted DOT string, in which backslashes are just that.

    >>> print(quote('a\\b "c"'))
    "a\\b \"c\""
    """
    printable = UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    escaped = printable.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "").replace("\n", "\\n")
    return f'"{escaped}"'


def _few(texts: Sequence[str], most: int = 3) -> str:
    different = list(dict.fromkeys(texts))
    more = f", +{len(different) - most} more" if len(different) > most else ""
    return ", ".join(different[:most]) + more


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
