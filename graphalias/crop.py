"""What of a program is drawn: all of it, a neighbourhood, a view group, or a node for each line of source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import networkx as nx

from graphalias.errors import GraphAliasError
from graphalias.graph import CONSTANT, INPUT, OUTPUT, REGION, Operation, Program, Value
from graphalias.views import find_view_groups

#: What is left out together; no operation has this name.
REST = ""


@dataclass
class Crop:
    """A program, and which node of the drawing stands for each of its operations.

    Parameters
    ----------
    program : Program
        With the operations of regions in the place of the regions, where these are drawn as clusters.
    regions : dict of str to str
        The region of an operation, where it is drawn as a cluster.
    home : dict of str to str
        By operation, the node it is drawn as; what is not in it is not drawn.
    """

    program: Program
    regions: dict[str, str] = field(default_factory=dict)
    home: dict[str, str] = field(default_factory=dict)

    def members(self) -> dict[str, list[str]]:
        """Return the operations that each node stands for, in program order."""
        found: dict[str, list[str]] = {}
        for name, node in self.home.items():
            found.setdefault(node, []).append(name)
        return found


def crop(program: Program, limit: int, *, focus: str | None = None, only: str | None = None, distance: int = 2) -> Crop:
    """Return what is drawn of a program.

    Parameters
    ----------
    program : Program
    limit : int
        Nodes at most. With room, regions are opened. Without, operations of one source line are one node, and if that
        is not enough, only the first nodes are drawn.
    focus : str, optional
        An operation: it and what is near it is drawn.
    only : str, optional
        A handle or a storage: what touches its view group is drawn.
    distance : int
        How near.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %sin: f32[4] @s1 obj1 = aten.sin.default(%x) reads(%x)
    ... %cos: f32[4] @s2 obj2 = aten.cos.default(%sin) reads(%sin)
    ... %exp: f32[4] @s3 obj3 = aten.exp.default(%cos) reads(%cos)
    ... output(%exp)
    ... ''')
    >>> list(crop(program, 10, focus="exp", distance=1).home)
    ['cos', 'exp']
    >>> list(crop(program, 10, only="s1").home)
    ['sin', 'cos']
    """
    opened = open_regions(program)
    chosen = opened if len(opened.program.graph) <= limit else Crop(program)
    if focus is not None and focus not in chosen.program.graph:
        chosen = Crop(program)
    names = list(_near(chosen.program, focus, distance)) if focus is not None else list(chosen.program.graph)
    if only is not None:
        touching = set(_touching(chosen.program, only))
        names = [name for name in names if name in touching]
    chosen.home = {name: name for name in names}
    if len(names) > limit:
        chosen.home = _by_line(chosen.program, names)
        if len(set(chosen.home.values())) > limit:
            shown = _first(chosen.program, names, limit)
            chosen.home = {name: name if name in shown else REST for name in names}
    return chosen


def open_regions(program: Program) -> Crop:
    """Return a program with the operations of each region in the region's place.

    Names inside are those outside but for what enters; order edges go to a region's first operation, and come from its
    last.
    """
    last: dict[str, str] = {}
    newest: dict[str, Value] = {}
    regions: dict[str, str] = {}
    operations: list[Operation] = []
    for operation in program.operations:
        after = tuple(replace(edge, operation=last.get(edge.operation, edge.operation)) for edge in operation.after)
        inner = [] if operation.target != REGION else [op for op in operation.body.operations if op.is_compute]
        made = {result.name for op in inner for result in op.results if result}
        if not made.issuperset(result.name for result in operation.results if result) or not inner:
            operations.append(_renamed(operation, newest).replace(after=after))
            continue
        arguments = (newest.get(value.name, value) for value in operation.operands)
        entered = dict(zip((value.name for value in operation.body.inputs), arguments, strict=False))
        renamed = [_renamed(op, entered) for op in inner]
        operations += [renamed[0].replace(after=after), *renamed[1:]]
        final = {result.object: result for op in inner for result in op.results if result}
        newest |= {r.name: final[r.object] for r in operation.results if r and r.object in final}
        last[operation.name] = inner[-1].name
        regions |= {op.name: operation.name for op in inner}
    return Crop(program.replace_operations(operations), regions)


def _renamed(operation: Operation, names: Mapping[str, Value]) -> Operation:
    return operation.rename(lambda value: names.get(value.name, value))


def _near(program: Program, focus: str, distance: int) -> Iterator[str]:
    if focus not in program.graph:
        raise GraphAliasError(
            f"there is no operation {focus!r}", hint="focus takes a name as the printed program has it"
        )
    graph = nx.subgraph_view(
        program.graph, filter_node=lambda name: name == focus or name != OUTPUT
    )  # joins everything
    near = nx.single_source_shortest_path_length(graph.to_undirected(as_view=True), focus, cutoff=distance)
    return (name for name in program.graph if name in near)


def _touching(program: Program, only: str) -> Iterator[str]:
    """Yield what makes or uses a handle of the view group that has a handle or a storage of that name."""
    storages: set[str] = set()
    for group in find_view_groups(program):
        places = {storage.name for storage in group.storages}
        if only in places or any(value.name == only for value in group.values):
            storages |= places
    if not storages:
        raise GraphAliasError(f"there is no handle or storage {only!r}", hint="only takes a name, as in x or s0")
    for operation in program.operations:
        if any(value.storage.name in storages for value in _handles(operation)):
            yield operation.name


def _handles(operation: Operation) -> Iterable[Value]:
    return (*operation.operands, *filter(None, operation.results))


def _by_line(program: Program, names: list[str]) -> dict[str, str]:
    """Return a node for each line of source, for the inputs of a line, and for the `update_aliases` before it."""
    home: dict[str, str] = {}
    for name in reversed(names):  # users first: what has no line of its own goes with its first user
        operation = program.operation(name)
        user = next((home[user] for user in program.graph.successors(name) if user in home), name)
        if operation.target == OUTPUT:
            home[name] = name
        elif operation.location and operation.target != REGION:
            home[name] = operation.location
        elif operation.target in (INPUT, CONSTANT):
            home[name] = f"{operation.target}s of {user}" if user != name else name
        elif operation.target == REGION:
            lines = dict.fromkeys(inner.location or "" for inner in operation.body.operations if inner.is_compute)
            home[name] = f"regions of {', '.join(lines)}" if any(lines) else name
        else:
            before = f"{operation.target} before "  # one that waits for another goes with it
            home[name] = before + user.removeprefix(before) if user != name else name
    return {name: home[name] for name in names}


def _first(program: Program, names: list[str], limit: int) -> set[str]:
    """Return the first operations with the inputs they use, so that the rest can be one node; the output is drawn."""
    graph, among = program.graph, set(names)
    shown: set[str] = set()
    for name in names:
        operation = program.operation(name)
        if operation.target in (INPUT, CONSTANT, OUTPUT):
            continue
        used = [other for other in graph.predecessors(name) if graph.nodes[other]["op"].target in (INPUT, CONSTANT)]
        wanted = {*among.intersection(used), name}
        if len(shown | wanted) > limit:
            break
        shown |= wanted
    return shown | ({OUTPUT} & among)
