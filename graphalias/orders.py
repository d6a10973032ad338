"""Topological orders of a program: random ones, and those most likely to show a missing dependency."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import networkx as nx

from graphalias.graph import Program


def topological_orders(program: Program, count: int = 20, *, seed: int = 0) -> Iterator[list[str]]:
    """Yield topological orders of the node names: the adversarial ones, then random ones.

    The adversarial ones take, of the ready nodes: the one latest in the program; a writer if there is one; anything
    but a reader if there is one. A random order draws a priority for every node.

    Parameters
    ----------
    program : Program
    count : int
        How many random orders.
    seed : int

    Yields
    ------
    list of str

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %add_1: f32[4] @s1 obj1 = aten.add.Tensor(%x, 1) reads(%x)
    ... %mul__1: f32[4] @s0 obj0 = aten.mul_.Tensor(%x!, 2) reads(%x)
    ... output(%add_1)
    ... ''')
    >>> next(topological_orders(program))
    ['x', 'mul__1', 'add_1', 'output']
    """
    position = {name: i for i, name in enumerate(program.graph)}
    operations = {operation.name: operation for operation in program.operations}
    adversaries: tuple[Callable[[str], tuple], ...] = (
        lambda name: (-position[name],),
        lambda name: (not operations[name].writes and not operations[name].reshapes, -position[name]),
        lambda name: (bool(operations[name].reads), not operations[name].writes, position[name]),
    )
    for adversary in adversaries:
        yield list(nx.lexicographical_topological_sort(program.graph, key=adversary))
    for number in range(count):
        source = random.Random(f"{seed} {number}")
        weight = {name: source.random() for name in position}
        yield list(nx.lexicographical_topological_sort(program.graph, key=weight.__getitem__))
