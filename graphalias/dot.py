"""Print programs as DOT, the language of Graphviz: which nodes and arrows are drawn, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import networkx as nx
import pydot

from graphalias.graph import ORDER, OUTPUT, REGION, UPDATE_ALIASES, Operation, Program
from graphalias.hazards import find_hazards
from graphalias.style import (
    ARROWS,
    DATA_INK,
    FONT,
    FRAME,
    INK,
    QUIET,
    SOURCES,
    Colours,
    cut,
    few,
    group_colours,
    label,
    legend,
    node_look,
    quote,
    quote_tooltip,
    rest_look,
)

#: What the nodes beyond the limit are called together; no operation has this name.
REST = ""


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
    kinds = {arrow.kind for panel in panels for arrow in panel.arrows.values()}
    dot = pydot.Dot(
        "", graph_type="digraph", newrank=True, nodesep=0.3, ranksep=0.35, pad=0.2, fontname=quote(FONT),
        bgcolor="white", fontsize=10, labelloc="b", label=legend(kinds, colours, in_rows=len(panels) == 1),
    )  # fmt: skip
    dot.set_node_defaults(style="filled", fontname=quote(FONT), fontsize=10, margin=quote("0.1,0.05"), height=0.2)
    dot.set_edge_defaults(fontname=quote(FONT), fontsize=9, color=quote(DATA_INK), arrowsize=0.7)
    for panel in panels:
        dot.add_subgraph(panel.cluster(colours))
    for row in _rows(panels):
        dot.add_subgraph(row)
    return str(dot.to_string())


def _rows(panels: Sequence[_Panel]) -> Iterator[pydot.Subgraph]:
    """Yield what keeps the outputs in the last row, and operations of one name in one row.

    The latter only where all the programs agree on an order: rows that contradict the arrows are no help.
    """
    yield _row("sink", [panel.ids[OUTPUT] for panel in panels if OUTPUT in panel.ids])
    arrows = nx.DiGraph([pair for panel in panels for pair in panel.arrows])
    if nx.is_directed_acyclic_graph(arrows):
        for name in panels[0].ids:
            same = [panel.ids[name] for panel in panels if name in panel.ids]
            if len(same) > 1 and name not in (OUTPUT, REST):
                yield _row("same", same)


def _row(rank: str, ids: Iterable[str]) -> pydot.Subgraph:
    row = pydot.Subgraph("", rank=rank)
    for identity in ids:
        row.add_node(pydot.Node(identity))
    return row


class _Panel:
    """One program of the drawing: which nodes and arrows of it are drawn."""

    def __init__(self, program: Program, title: str, limit: int, first: int) -> None:
        self.program, self.title, self.first = program, title, first
        shown = _shown(program, limit)
        self.folded = len(program.graph) - len(shown)
        names = [*shown, REST] if self.folded else shown
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

    def cluster(self, colours: Colours) -> pydot.Cluster:
        """Return the program as a framed part of the drawing."""
        cluster = pydot.Cluster(
            f"p{self.first}", label=self._title(), labeljust="l", labelloc="t", style="rounded",
            color=quote(FRAME), margin=14,
        )  # fmt: skip
        for name, identity in self.ids.items():
            cluster.add_node(pydot.Node(identity, **self._look(name, colours)))
        for (source, target), arrow in self.arrows.items():
            tooltip = f"{source or 'the rest'} → {target or 'the rest'}"
            cluster.add_edge(pydot.Edge(self.ids[source], self.ids[target], **arrow.look(tooltip)))
        return cluster

    def _look(self, name: str, colours: Colours) -> dict[str, str]:
        if name == REST:
            return rest_look(self.folded)
        return node_look(self.program.operation(name), colours, self.program.notes.get(name))

    def _title(self) -> str:
        targets = Counter(operation.target for operation in self.program.operations)
        hazards, inserted, regions = len(self.hazards), targets[UPDATE_ALIASES], targets[REGION]
        notes = [f"{hazards or 'no'} hazard{'s' * (hazards != 1)}"]
        notes += [f"{inserted} update_aliases"] * bool(inserted)
        notes += [f"{regions} region{'s' * (regions != 1)}"] * bool(regions)
        return label((self.title, 14, INK, "b"), (", ".join(notes), 10, QUIET, ""), align="left")


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
        operands = {value.name for value in (*target.operands, *target.states)}
        passed = [value for value in source.results if value and value.name in operands]
        if len(source.results) > 1:
            self.values += [value.name for value in passed]
        self.is_write |= not {value.name for value in target.written}.isdisjoint(value.name for value in passed)
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
        text = cut(few({"hazard": self.hazards, "order": self.reasons}.get(self.kind, self.values)))
        if self.kind == "hazard":
            text = f"hazard {text}"
        if text:
            look |= {"label": f" {text} ", "fontcolor": look.get("color", QUIET)}
        quoted = {key: quote(value) for key, value in look.items()}
        return {**quoted, "tooltip": quote_tooltip(f"{tooltip} {text}".strip())}
