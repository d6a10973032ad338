"""Print programs as DOT, the language of Graphviz: which nodes and arrows are drawn, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import networkx as nx
import pydot

from graphalias.crop import REST, Crop
from graphalias.graph import ORDER, OUTPUT, REGION, UPDATE_ALIASES, Operation, Program
from graphalias.hazards import find_hazards
from graphalias.labels import count, cut, few, label, quote, quote_tooltip
from graphalias.style import (
    ARROWS,
    DATA_INK,
    FONT,
    FRAME,
    INK,
    LIGHT,
    PAPER,
    QUIET,
    Colours,
    block_look,
    group_colours,
    in_theme,
    legend,
    node_look,
    region_look,
    rest_look,
)

#: From how many nodes on arrows are straight and the layout is searched less: curves take minutes then.
MANY_NODES = 150

#: For layouts of many nodes.
_HASTY = {"splines": "line", "nslimit": "2", "nslimit1": "2", "searchsize": "10", "mclimit": "0.3"}


def print_dot(programs: Mapping[str, Program], crops: Sequence[Crop], theme: str = LIGHT) -> str:
    """Return the DOT text of programs side by side.

    Parameters
    ----------
    programs : mapping
        By title.
    crops : sequence of Crop
        What is drawn of each.
    theme : str
        ``light`` or ``dark``.
    """
    colours = group_colours(programs.values())
    panels: list[_Panel] = []
    for (title, program), crop in zip(programs.items(), crops, strict=True):
        panels.append(_Panel(program, crop, title, first=sum(len(panel.ids) for panel in panels)))
    kinds = {arrow.kind for panel in panels for arrow in panel.arrows.values()}
    layout = _HASTY if sum(len(panel.ids) for panel in panels) > MANY_NODES else {}
    dot = pydot.Dot(
        "", graph_type="digraph", newrank=True, nodesep=0.3, ranksep=0.35, pad=0.2, fontname=quote(FONT),
        bgcolor=quote(PAPER), fontsize=10, labelloc="b", label=legend(kinds, colours, in_rows=len(panels) == 1),
        **layout,
    )  # fmt: skip
    dot.set_node_defaults(style="filled", fontname=quote(FONT), fontsize=10, margin=quote("0.1,0.05"), height=0.2)
    dot.set_edge_defaults(fontname=quote(FONT), fontsize=9, color=quote(DATA_INK), arrowsize=0.7)
    for panel in panels:
        dot.add_subgraph(panel.cluster(colours))
    for row in _rows(panels):
        dot.add_subgraph(row)
    return in_theme(str(dot.to_string()), theme)


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

    def __init__(self, program: Program, crop: Crop, title: str, first: int) -> None:
        self.program, self.crop, self.title, self.first = program, crop, title, first
        self.members = crop.members()
        nodes = sorted(self.members, key=lambda node: node == REST)
        # Names of ours: "graph", "split_1.0" and "a:b" mean other things in DOT.
        self.ids = {node: f"n{number}" for number, node in enumerate(nodes, start=first)}
        self.hazards = find_hazards(program)
        self.arrows: dict[tuple[str, str], _Arrow] = {}
        self._draw_arrows()

    def _between(self, source: str, target: str) -> _Arrow:
        """Return the arrow between the nodes of two operations; one that is not drawn where there is none."""
        home = self.crop.home
        pair = (home.get(source), home.get(target))
        if pair[0] is None or pair[1] is None or pair[0] == pair[1]:
            return _Arrow()
        return self.arrows.setdefault((pair[0], pair[1]), _Arrow())

    def _draw_arrows(self) -> None:
        graph = self.crop.program.graph
        for source, target, edge in graph.edges(data=True):
            arrow = self._between(source, target)
            if edge["kind"] == ORDER:
                arrow.reasons.append(edge["reason"])
            else:
                arrow.pass_values(graph.nodes[source]["op"], graph.nodes[target]["op"])
        for hazard in self.hazards:
            self._between(hazard.before, hazard.after).hazards.append(hazard.reason)

    def cluster(self, colours: Colours) -> pydot.Cluster:
        """Return the program as a framed part of the drawing."""
        cluster = pydot.Cluster(
            f"p{self.first}", label=self._title(), labeljust="l", labelloc="t", style="rounded",
            color=quote(FRAME), margin=14,
        )  # fmt: skip
        regions: dict[str, pydot.Cluster] = {}
        for node, identity in self.ids.items():
            region = self.crop.regions.get(node)
            inside = cluster if region is None else regions.setdefault(region, self._region(region, len(regions)))
            inside.add_node(pydot.Node(identity, **self._look(node, colours)))
        for region_cluster in regions.values():
            cluster.add_subgraph(region_cluster)
        for (source, target), arrow in self.arrows.items():
            tooltip = f"{source or 'the rest'} → {target or 'the rest'}"
            cluster.add_edge(pydot.Edge(self.ids[source], self.ids[target], **arrow.look(tooltip)))
        return cluster

    def _region(self, name: str, number: int) -> pydot.Cluster:
        look = region_look(self.program.operation(name), self.program.notes.get(name))
        return pydot.Cluster(f"p{self.first}r{number}", margin=10, **look)

    def _look(self, node: str, colours: Colours) -> dict[str, str]:
        names = self.members[node]
        if node == REST:
            return rest_look(len(names))
        if node not in self.crop.program.graph:
            return block_look(node, [self.crop.program.operation(name) for name in names], colours)
        return node_look(self.crop.program.operation(node), colours, self.program.notes.get(node))

    def _title(self) -> str:
        targets = Counter(operation.target for operation in self.program.operations)
        hazards, inserted, regions = len(self.hazards), targets[UPDATE_ALIASES], targets[REGION]
        notes = [count(hazards, "hazard") if hazards else "no hazards"]
        notes += [f"{inserted} update_aliases"] * bool(inserted)
        notes += [count(regions, "region")] * bool(regions)
        return label((self.title, 14, INK, "b"), (", ".join(notes), 10, QUIET, ""), align="left")


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
