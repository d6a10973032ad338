"""Programs for other graph tools, and back: networkx node-link JSON, GraphML and DOT.

All three are spellings of one graph (`plain_graph`), and loss-free but for the bindings and the signature, which hold
tensors, modules and other live objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx as nx
import pydot

from graphalias.draw import graphviz
from graphalias.errors import GraphAliasError, ParseError
from graphalias.graph import Program, require_program
from graphalias.plain_graph import flat_graph_of, node_link_of, program_of, program_of_node_link
from graphalias.records import Record

#: A DOT string of more than 16,384 characters may be read by nobody, but strings can be added.
LONGEST_STRING = 8_000


def to_node_link(program: Program) -> Record:
    """Return a program as networkx node-link data, which ``json.dumps`` takes.

    Parameters
    ----------
    program : Program
        Any; the body of a region is node-link data in its node.

    Returns
    -------
    dict
        For ``networkx.node_link_graph(data, edges="edges")``. A node has its ``position`` in program order, ``target``,
        ``label`` (its line of the text form), ``note`` and ``operation`` (all of it); an edge ``kind`` and ``reason``.
        Attributes that others gave the nodes and edges of ``program.graph`` are there too.

    Raises
    ------
    GraphAliasError
        If an argument of an operation is neither plain nor a `Symbol`.

    Examples
    --------
    >>> import json, torch, graphalias
    >>> program = graphalias.capture(lambda x: x.add_(1), torch.ones(4))
    >>> data = json.loads(json.dumps(graphalias.to_node_link(program)))
    >>> [(node["id"], node["target"]) for node in data["nodes"]]
    [('x', 'input'), ('add_', 'aten.add_.Tensor'), ('output', 'output')]
    >>> graphalias.from_node_link(data).run(torch.zeros(4))
    (tensor([1., 1., 1., 1.]),)
    """
    require_program(program, "to_node_link")
    return node_link_of(program)


def from_node_link(data: Mapping[str, Any], bindings: Mapping[str, Any] | None = None) -> Program:
    """Return the program of node-link data. Nothing in it is evaluated.

    Parameters
    ----------
    data : mapping
        What `to_node_link` made, also after other tools have added attributes to nodes and edges.
    bindings : mapping, optional
        What constants (by name) and opaque arguments (``"opaque:name"``) stand for, as for `parse`.

    Returns
    -------
    Program
        It takes its inputs in order and returns a tuple; set ``program.signature`` to the original's for more.

    Raises
    ------
    ParseError
        If it is of another form or version, or if its edges are not those that its operations say.

    Examples
    --------
    >>> import torch, graphalias
    >>> program = graphalias.capture(lambda x: x.add_(1), torch.ones(4))
    >>> data = graphalias.to_node_link(program)
    >>> data["nodes"][1]["microseconds"] = 2.5  # as another tool might
    >>> again = graphalias.from_node_link(data)
    >>> str(again) == str(program), again.graph.nodes["add_"]["microseconds"]
    (True, 2.5)
    """
    return program_of_node_link(data, bindings)


def to_graphml(program: Program) -> str:
    """Return a program as GraphML, for Gephi, yEd, igraph and the like.

    Parameters
    ----------
    program : Program

    Returns
    -------
    str
        The attributes of `to_node_link`, where ``operation`` and ``body`` are JSON text.

    Raises
    ------
    GraphAliasError
        If an argument of an operation, or an attribute that others gave, has no GraphML.

    Examples
    --------
    >>> import torch, graphalias
    >>> program = graphalias.capture(lambda x: x.add_(1), torch.ones(4))
    >>> text = graphalias.to_graphml(program)
    >>> str(graphalias.from_graphml(text)) == str(program)
    True
    """
    require_program(program, "to_graphml")
    try:
        return "\n".join(nx.generate_graphml(flat_graph_of(program))) + "\n"
    except (nx.NetworkXError, TypeError) as error:
        raise GraphAliasError(f"no GraphML for this: {error}", hint="keep attributes to text and numbers") from error


def from_graphml(text: str, bindings: Mapping[str, Any] | None = None) -> Program:
    """Return the program of GraphML that `to_graphml` made, also after other tools have added attributes.

    Parameters
    ----------
    text : str
    bindings : mapping, optional
        As for `from_node_link`.

    Returns
    -------
    Program

    Raises
    ------
    ParseError
        As `from_node_link` does.

    Examples
    --------
    >>> import graphalias
    >>> graphalias.from_graphml("<graphml/>")
    Traceback (most recent call last):
    ...
    graphalias.errors.ParseError: no GraphML: NetworkXError: file not successfully read as graphml
    """
    try:
        graph = nx.parse_graphml(text, force_multigraph=False)
    except (SyntaxError, KeyError, TypeError, ValueError, nx.NetworkXError) as error:  # ParseError of xml is the first
        raise ParseError(f"no GraphML: {type(error).__name__}: {error}") from error
    return program_of(graph, bindings)


def to_dot(program: Program) -> str:
    """Return a program as DOT, for Graphviz's tools and whatever else reads it. For pictures there is `draw`.

    Parameters
    ----------
    program : Program

    Returns
    -------
    str
        The attributes of `to_node_link`, where ``operation`` and ``body`` are JSON text. DOT knows text alone, so
        attributes that others gave come back as text.

    Raises
    ------
    GraphAliasError
        If an argument of an operation is neither plain nor a `Symbol`.

    Examples
    --------
    >>> import torch, graphalias
    >>> program = graphalias.capture(lambda x: x.add_(1), torch.ones(4))
    >>> str(graphalias.from_dot(graphalias.to_dot(program))) == str(program)
    True
    """
    require_program(program, "to_dot")
    graph = flat_graph_of(program)
    dot = pydot.Dot("", graph_type="digraph", **_quoted(graph.graph))
    for name, attributes in graph.nodes(data=True):
        dot.add_node(pydot.Node(_quote(name), **_quoted(attributes)))
    for source, target, attributes in graph.edges(data=True):
        dot.add_edge(pydot.Edge(_quote(source), _quote(target), **_quoted(attributes)))
    return str(dot.to_string())


def from_dot(text: str, bindings: Mapping[str, Any] | None = None) -> Program:
    """Return the program of DOT that `to_dot` made, also after other tools have added attributes.

    Parameters
    ----------
    text : str
    bindings : mapping, optional
        As for `from_node_link`.

    Returns
    -------
    Program

    Raises
    ------
    ParseError
        As `from_node_link` does.
    GraphAliasError
        If pygraphviz is not there.

    Examples
    --------
    >>> import graphalias
    >>> graphalias.from_dot("digraph { a -> b }")
    Traceback (most recent call last):
    ...
    graphalias.errors.ParseError: no program of graphalias: expected format 'graphalias', found None
      what to do: only what to_node_link, to_graphml or to_dot wrote can be read back
    """
    graph = nx.DiGraph()
    with graphviz() as pygraphviz:
        try:
            read = pygraphviz.AGraph(string=text)
        except ValueError as error:
            raise ParseError(f"no DOT: {error}", hint="Graphviz says where on the standard error") from error
        graph.graph.update(_unquoted(read.graph_attr))
        graph.add_nodes_from((str(node), _unquoted(node.attr)) for node in read.nodes())
        graph.add_edges_from((*map(str, edge), _unquoted(edge.attr)) for edge in read.edges())
    return program_of(graph, bindings)


def _quoted(attributes: Mapping[str, Any]) -> dict[str, str]:
    return {key: _quote(str(item)) for key, item in attributes.items()}


def _quote(text: str) -> str:
    """Return a text as DOT strings, added together where it is long. Graphviz reads a backslash as two."""
    pieces = [text[start : start + LONGEST_STRING] for start in range(0, len(text), LONGEST_STRING)] or [""]
    return " + ".join('"' + piece.replace("\\", "\\\\").replace('"', '\\"') + '"' for piece in pieces)


def _unquoted(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes that are there: Graphviz gives every node those that any has."""
    return {key: str(item).replace("\\\\", "\\") for key, item in attributes.items() if item}
