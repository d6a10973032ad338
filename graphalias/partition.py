"""Fusion regions: sets of operations an executor runs as one, as nodes of the graph that hold a sub-program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import networkx as nx

from graphalias.aliases import refuse_hazards
from graphalias.canonical import canonical_text
from graphalias.graph import REGION, UPDATE_ALIASES, WAR, After, Operation, Program, Value, require_program
from graphalias.growing import TILE_CAP, Sizes
from graphalias.region import Region
from graphalias.sinking import find_later_stages
from graphalias.stages import Stages, assign_stages, is_view


def partition(program: Program, executor: str = "auto") -> Program:
    """Return the program with its fusible operations in regions.

    A region is a convex set of operations that an executor runs as one: it writes outside memory in place and once,
    and what happens inside is functional. No two inputs of a region overlap where one is written.

    Parameters
    ----------
    program : Program
        Without hazards. It is left as it was.
    executor : str
        Whose rules say what can be fused; ``auto`` is the best one present.

    Returns
    -------
    Program
        Region nodes (target ``region``) hold sub-programs as ``body``. Any topological order is valid. Its ``notes``
        say why operations are in no region, and why regions are apart.

    Raises
    ------
    ExecutorError
        If there is no such executor.
    HazardError
        If the program has hazards: a region may run later than its first operation did.

    Examples
    --------
    >>> import torch, graphalias
    >>> program = graphalias.capture(lambda x: x.add_(1).mul_(2), torch.ones(4))
    >>> partitioned = graphalias.partition(graphalias.insert_update_aliases(program))
    >>> [operation.target for operation in partitioned.operations]
    ['input', 'region', 'output']
    >>> print(partitioned.operation("region_1").body)
    %x: f32[4] @s0 obj0 = input()
    %add_: f32[4] @s0 obj0 = aten.add_.Tensor(%x!, 1) reads(%x)  # ...
    %mul_: f32[4] @s0 obj0 = aten.mul_.Tensor(%add_!, 2) reads(%add_)  # ...
    output()
    <BLANKLINE>
    """
    require_program(program, "partition")
    refuse_hazards(program, consequence="a region would run before or after what it must not")
    return partition_for(program, executor)


def partition_for(program: Program, executor: str) -> Program:
    """Return what `partition` does, of a program that is known to have no hazards."""
    from graphalias.executors import get_executor

    chosen = get_executor(executor, program)
    return partition_program(program, chosen.why_not_fused, chosen.gains_alone, Sizes.of(chosen))


def partition_program(
    program: Program,
    why_not_fused: Callable[[Operation], str | None],
    gains_alone: Callable[[Operation], bool] = lambda operation: False,
    sizes: Sizes = Sizes(),  # noqa: B008  # it can't be changed
) -> Program:
    """Return the program with its fusible operations in regions.

    Parameters
    ----------
    program : Program
        Without hazards. It is left as it was.
    why_not_fused : callable
        Returns why an operation can't be part of a region, None where it can.
    gains_alone : callable
        Returns whether an operation is worth a region of its own.
    sizes : Sizes
        How large regions may be.

    Returns
    -------
    Program
        Region nodes hold sub-programs; any topological order is valid. Its ``notes`` say why operations are in no
        region, and why regions are apart.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4,4] @s0 obj0 = input()
    ... %mm: f32[4,4] @s1 obj1 = aten.mm.default(%x, %x) reads(%x)
    ... output(%mm)
    ... ''')
    >>> partition_program(program, lambda operation: "not elementwise").notes
    {'mm': 'not elementwise'}
    """
    stages = assign_stages(program, why_not_fused, sizes)
    later = find_later_stages(program, stages.places)
    if later:
        stages = assign_stages(program, why_not_fused, sizes, later)
    members: dict[int, list[Operation]] = {}
    for operation in program.operations:
        region = stages.regions.get(operation.name)
        if region is not None:
            members.setdefault(id(region.root()), []).append(operation)
    useful = [_without_loose_ends(program, operations) for operations in members.values()]
    worthwhile = [ops for ops in useful if _is_worthwhile(ops, gains_alone)]
    tiled = _tiled(program, stages, worthwhile, sizes)
    regions = [Region(program, f"{REGION}_{i}", ops) for i, ops in enumerate(tiled, 1)]
    partitioned = program.replace_operations(_in_order(program, regions))
    partitioned.notes |= _notes(partitioned, stages, regions)
    return partitioned


def _notes(program: Program, stages: Stages, regions: list[Region]) -> dict[str, str]:
    """Return why operations are in no region, and why regions could not join those before."""
    notes = {}
    for region in regions:
        splits: dict[str, str] = {}
        for operation in region.operations:
            split = stages.places[operation.name].split
            if split is not None:
                splits.setdefault(split, f"%{operation.name}: {split}")
        if splits:
            notes[region.name] = "; ".join(splits.values())
        again = (operation.name for operation in region.again if operation.is_compute)
        notes.update(dict.fromkeys(again, f"a view of what {region.name} makes, made again for what is outside"))
    for operation in program.operations:
        if operation.is_compute and operation.target != REGION and operation.name not in notes:
            alone = "a view touches no bytes" if is_view(operation) else "it would be a region of one operation"
            notes[operation.name] = stages.places[operation.name].reason or alone
    return notes


def _is_worthwhile(operations: list[Operation], gains_alone: Callable[[Operation], bool]) -> bool:
    computing = [operation for operation in operations if operation.is_compute and not is_view(operation)]
    return len(computing) > 1 or any(map(gains_alone, computing))


def _tiled(program: Program, stages: Stages, regions: list[list[Operation]], sizes: Sizes) -> list[list[Operation]]:
    """Return the regions, with isomorphic ones of one stage put together, as many as compile fast as one.

    Regions of one stage are independent: were there a path between them, they would be one region or of two stages.
    """
    alike: dict[tuple[int, str], list[list[Operation]]] = {}
    for operations in regions:
        place = stages.places[operations[-1].name]
        form = canonical_text(Region(program, REGION, operations).node.body)
        alike.setdefault((place.stage, form), []).append(operations)
    position = {name: i for i, name in enumerate(program.graph)}
    tiles = []
    for group in alike.values():
        count = tile_size(len(group), len(group[0]), sizes.tile)
        for start in range(0, len(group), count):
            tile = [operation for operations in group[start : start + count] for operation in operations]
            tiles.append(sorted(tile, key=lambda operation: position[operation.name]))
    return sorted(tiles, key=lambda tile: position[tile[-1].name])


def tile_size(regions: int, operations: int, cap: int = TILE_CAP) -> int:
    """Return how many of some isomorphic regions go into one tile: evenly, if that leaves the tiles large.

    >>> tile_size(200, 9), tile_size(7, 9), tile_size(3, 100)
    (8, 7, 1)
    """
    largest = max(1, min(regions, cap // operations))
    even = [count for count in range(largest, largest // 2, -1) if regions % count == 0]
    return even[0] if even else largest


def _without_loose_ends(program: Program, operations: list[Operation]) -> list[Operation]:
    """Return the members of a region without the `update_aliases` that nothing in it uses."""
    used: set[str] = set()
    kept = []
    for operation in reversed(operations):
        if operation.target != UPDATE_ALIASES or operation.name in used:
            used.update(program.graph.predecessors(operation.name))
            kept.append(operation)
    return kept[::-1]


def _in_order(program: Program, regions: list[Region]) -> Iterator[Operation]:
    """Yield the nodes of the partitioned program, each as near as can be to where its last operation was."""
    home = {operation.name: region for region in regions for operation in region.operations}
    position = {operation.name: i for i, operation in enumerate(program.operations)}
    position |= {region.name: position[region.operations[-1].name] for region in regions}
    renamed = {name: value for region in regions for name, value in region.renamed.items()}
    nodes = [operation for operation in program.operations if operation.name not in home]
    nodes += [node for region in regions for node in (region.node, *region.again)]
    nodes = [_relinked(node, home, renamed) for node in nodes]
    by_name = {node.name: node for node in nodes}
    graph = _dependencies(by_name.values())
    for name in nx.lexicographical_topological_sort(graph, key=lambda name: (position[name], name)):
        yield by_name[name]


def _relinked(node: Operation, home: dict[str, Region], renamed: dict[str, Value]) -> Operation:
    """Return a node with the names and the order edges that are left."""
    after: dict[str, After] = {}
    for edge in node.after:
        region = home.get(edge.operation)
        name = region.name if region is not None and edge.operation in region.absorbed else edge.operation
        if name != node.name and (name not in after or after[name].reason == WAR):
            after[name] = After(name, edge.reason, edge.accesses)
    return node.rename(lambda value: renamed.get(value.name, value)).replace(after=tuple(after.values()))


def _dependencies(nodes: Iterable[Operation]) -> nx.DiGraph:
    nodes = list(nodes)
    producer = {result.name: node.name for node in nodes for result in node.results if result}
    graph = nx.DiGraph()
    graph.add_nodes_from(node.name for node in nodes)
    for node in nodes:
        graph.add_edges_from((producer[value.name], node.name) for value in (*node.operands, *node.states))
        graph.add_edges_from((edge.operation, node.name) for edge in node.after)
    return graph
