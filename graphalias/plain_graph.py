"""A program as a graph of plain attributes, the form in which other tools get it, and back.

Each node carries its operation as a record, so the program comes back whole. The edges are there for the other tools;
what those add to nodes and edges is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import networkx as nx

from graphalias.errors import GraphAliasError, ParseError
from graphalias.graph import OUTPUT, REGION, Operation, Program
from graphalias.records import Record, operation_from, record_of
from graphalias.text import print_operation
from graphalias.values import Value

FORMAT, VERSION = "graphalias", 1

#: What is written of a node and of an edge; any other attribute is somebody's own.
NODE_FIELDS = {"op", "position", "target", "label", "note", "operation", "body"}
EDGE_FIELDS = {"kind", "reason", "accesses"}
#: Those that are JSON text where attributes are text and numbers.
JSON_FIELDS = ("operation", "body")


def graph_of(program: Program) -> nx.DiGraph:
    """Return the graph with plain attributes in the place of operations; those that others gave stay."""
    graph = nx.DiGraph(format=FORMAT, version=VERSION, name=program.name)
    for position, (name, attributes) in enumerate(program.graph.nodes(data=True)):
        operation: Operation = attributes["op"]
        fields = {"position": position, "target": operation.target, "label": print_operation(operation)}
        if name in program.notes:
            fields["note"] = program.notes[name]
        fields["operation"] = record_of(operation)
        if operation.body is not None:
            fields["body"] = node_link_of(operation.body)
        graph.add_node(name, **fields, **_others(attributes, NODE_FIELDS))
    for source, target, attributes in program.graph.edges(data=True):
        fields = {key: attributes[key] for key in ("kind", "reason") if attributes[key] is not None}
        graph.add_edge(source, target, **fields, **_others(attributes, EDGE_FIELDS))
    return graph


def node_link_of(program: Program) -> Record:
    """Return the graph as networkx node-link data."""
    return nx.node_link_data(graph_of(program), edges="edges")


def flat_graph_of(program: Program) -> nx.DiGraph:
    """Return the graph for formats whose attributes are text and numbers."""
    graph = graph_of(program)
    for attributes in graph.nodes.values():
        attributes.update({key: json.dumps(attributes[key]) for key in JSON_FIELDS if key in attributes})
    return graph


def _others(attributes: Mapping[str, Any], ours: set[str]) -> dict[str, Any]:
    return {key: item for key, item in attributes.items() if key not in ours}


def program_of_node_link(data: Mapping[str, Any], bindings: Mapping[str, Any] | None) -> Program:
    """Return the program that node-link data holds."""
    try:
        graph = nx.node_link_graph(dict(data), edges="edges")
    except (KeyError, TypeError, ValueError, AttributeError, nx.NetworkXError) as error:
        raise ParseError(f"no node-link data: {type(error).__name__}: {error}", hint="see to_node_link") from error
    return program_of(graph, bindings)


def program_of(graph: nx.Graph, bindings: Mapping[str, Any] | None) -> Program:
    """Return the program a graph of any of the formats holds, with the attributes that others gave."""
    _check_format(graph)
    values: dict[str, Value] = {}
    names = sorted(graph, key=lambda name: _position(name, graph.nodes[name]))
    operations = [_operation_of(name, graph.nodes[name], values, bindings) for name in names]
    if not operations or operations[-1].name != OUTPUT:
        raise ParseError(f"a program ends with the node {OUTPUT!r}")
    notes = {name: note for name, note in graph.nodes(data="note") if note}
    try:
        program = Program(operations, bindings=bindings, name=graph.graph.get("name", "program"), notes=notes)
    except ParseError:
        raise
    except GraphAliasError as error:
        raise ParseError(error.message, node=error.node, location=error.location) from error
    _check_edges(graph, program.graph)
    for name, attributes in graph.nodes(data=True):
        program.graph.nodes[name].update(_others(attributes, NODE_FIELDS))
    for source, target, attributes in graph.edges(data=True):
        program.graph.edges[source, target].update(_others(attributes, EDGE_FIELDS))
    return program


def _operation_of(
    name: str, attributes: Mapping[str, Any], values: dict[str, Value], bindings: Mapping[str, Any] | None
) -> Operation:
    operation = operation_from(name, _json(name, attributes, "operation"), values)
    if operation.target != REGION:
        return operation
    return operation.replace(body=program_of_node_link(_json(name, attributes, "body"), bindings))


def _json(name: str, attributes: Mapping[str, Any], key: str) -> Any:
    content = attributes.get(key)
    try:
        content = json.loads(content) if isinstance(content, str) else content
    except ValueError as error:
        raise ParseError(f"{key} is no JSON: {error}", node=name) from error
    if not isinstance(content, dict):
        raise ParseError(f"expected {key}, an object, found {content!r}", node=name)
    return content


def _position(name: str, attributes: Mapping[str, Any]) -> int:
    try:
        return int(attributes["position"])
    except (KeyError, TypeError, ValueError):
        raise ParseError(f"expected a position, found {attributes.get('position')!r}", node=str(name)) from None


def _check_format(graph: nx.Graph) -> None:
    hint = "only what to_node_link, to_graphml or to_dot wrote can be read back"
    for key, expected in (("format", FORMAT), ("version", VERSION)):
        found = graph.graph.get(key)
        if str(found) != str(expected):
            raise ParseError(f"no program of graphalias: expected {key} {expected!r}, found {found!r}", hint=hint)
    if not graph.is_directed() or graph.is_multigraph():
        kind = "multigraph" if graph.is_multigraph() else "undirected"
        raise ParseError(f"no program of graphalias: expected a directed graph, found one that is {kind}", hint=hint)


def _check_edges(found: nx.DiGraph, expected: nx.DiGraph) -> None:
    """Fail unless the edges are those of the operations: one that was added or removed would be without effect."""
    for pair in dict.fromkeys((*found.edges, *expected.edges)):
        kinds = [graph.edges[pair].get("kind") if pair in graph.edges else "none" for graph in (expected, found)]
        if kinds[0] != kinds[1]:
            raise ParseError(
                f"edge {pair[0]!r} -> {pair[1]!r}: the operations say {kinds[0]}, found {kinds[1]}",
                node=pair[1], hint="edges follow from the operations: change `operation`, not the edge",
            )  # fmt: skip
