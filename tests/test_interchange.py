"""Node-link JSON, GraphML and DOT: what is written is read back as the same program."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from typing import Any

import networkx as nx
import pygraphviz
import pytest
import torch

import graphalias
from graphalias import GraphAliasError, Operation, ParseError, Program, check, parse
from graphalias.oracle import differences
from graphalias.values import map_values
from passing import steps_of, steps_of_case
from shared import load_cases
from test_programs import scene_of
from test_text import EVERYTHING, REGIONS
from torch_programs import random_arguments, random_program

SHARED = list(getattr(load_cases(), "CASES", ()))


def through_json(program: Program, bindings: Any = None) -> Program:
    """Write node-link JSON and read it."""
    return graphalias.from_node_link(
        json.loads(json.dumps(graphalias.to_node_link(program), allow_nan=False)), bindings
    )


def through_graphml(program: Program, bindings: Any = None) -> Program:
    """Write GraphML and read it."""
    return graphalias.from_graphml(graphalias.to_graphml(program), bindings)


def through_dot(program: Program, bindings: Any = None) -> Program:
    """Write DOT, let Graphviz write it again in its own way, and read that."""
    return graphalias.from_dot(pygraphviz.AGraph(string=graphalias.to_dot(program)).to_string(), bindings)


def through_text(program: Program, bindings: Any = None) -> Program:
    """Print and parse."""
    return parse(str(program), bindings)


WHOLE = [through_json, through_graphml, through_dot]


def everything(program: Program) -> list[Any]:
    """Return all fields of all operations, whatever they are, handles as all of their fields; and the notes."""
    operations = [_fields(operation) for operation in program.operations]
    return [program.name, program.notes, list(program.graph.edges(data="kind")), operations]


def _fields(operation: Operation) -> dict[str, Any]:
    fields = {field.name: getattr(operation, field.name) for field in dataclasses.fields(operation)}
    body = fields.pop("body")
    shown = {key: repr(map_values(item, dataclasses.asdict)) for key, item in fields.items()}
    return {**shown, "body": body and everything(body)}


def assert_whole(program: Program, through: Callable[..., Program]) -> Program:
    """Fail unless every field of the program comes back."""
    again = through(program, program.bindings)
    assert everything(again) == everything(program)
    assert str(again) == str(program)
    return again


@pytest.mark.parametrize("through", WHOLE)
@pytest.mark.parametrize("text", [EVERYTHING, REGIONS], ids=["everything", "regions"])
def test_every_kind_of_argument(text: str, through: Callable[..., Program]) -> None:
    """Numbers stay the numbers they are, nan and complex ones too; marks, states, locations and bodies stay."""
    assert_whole(parse(text), through)


@pytest.mark.parametrize("case", SHARED, ids=lambda case: case.name)
def test_shared_cases(case: Any) -> None:
    """Each shared case comes back from every form at every step: sound, the same, and it runs with the same results."""
    args, steps = steps_of_case(case)
    for program in steps:
        again = [assert_whole(program, through) for through in WHOLE]
        again.append(through_text(program, program.bindings))
        assert str(again[-1]) == str(program)
        scene = scene_of((args, program.bindings))
        torch.manual_seed(0)
        expected = scene.watch(lambda: program.run(*args))  # noqa: B023  # called here
        for other in again:
            check(other)
            other.signature = program.signature
            torch.manual_seed(0)
            assert not differences(expected, scene.watch(lambda: other.run(*args))), str(program)  # noqa: B023
    assert steps or case.expect_error


@pytest.mark.parametrize("seeds", [range(i, i + 40) for i in (0, 40, 80)], ids=str)
def test_random_programs(seeds: range) -> None:
    """Random programs come back whole, in regions too."""
    for seed in seeds:
        for program in steps_of(random_program(seed, 2 + seed % 14), *random_arguments(seed)):
            for through in WHOLE:
                assert_whole(program, through)


def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Write x, then read it through a view that was made before."""
    row = x[0]
    x.mul_(y)
    return row + 1


def safe_step() -> Program:
    """Return the program of `step` without hazards."""
    return list(steps_of(step, torch.ones(2, 2), torch.ones(2)))[1]


def test_data_is_for_networkx() -> None:
    """The data is networkx's own node-link form; other libraries see targets, kinds and reasons."""
    program = safe_step()
    graph = nx.node_link_graph(graphalias.to_node_link(program), edges="edges")
    assert nx.utils.graphs_equal(nx.DiGraph(graph.edges), nx.DiGraph(program.graph.edges))
    assert graph.nodes["mul_"]["target"] == "aten.mul_.Tensor"
    assert graph.edges["mul_", "update_aliases_1"] == {"kind": "ORDER", "reason": "RAW"}
    drawn = pygraphviz.AGraph(string=graphalias.to_dot(program))
    assert drawn.get_node("add").attr["label"].startswith("%add: f32[2] @s2 obj3 = aten.add.Tensor(")
    assert nx.parse_graphml(graphalias.to_graphml(program)).edges["x", "select"]["kind"] == "DATA"


@pytest.mark.parametrize(
    ("through", "value"),
    [(through_json, {"ms": [1, 2.5]}), (through_graphml, 2.5), (through_dot, 'a \\ b " <c> \\l é')],
)
def test_what_others_add_is_kept(through: Callable[..., Program], value: Any) -> None:
    """Attributes that other tools give nodes and edges come back with the program, and go out again."""
    program = safe_step()
    program.graph.nodes["mul_"]["measured"] = value
    program.graph.edges["x", "mul_"]["weight"] = value
    again = through(through(program))
    assert again.graph.nodes["mul_"]["measured"] == value
    assert again.graph.edges["x", "mul_"]["weight"] == value
    assert "measured" not in again.graph.nodes["x"]
    assert everything(again) == everything(program)


def test_layout_comes_back() -> None:
    """Positions that Graphviz worked out are attributes of the nodes of the program."""
    laid_out = pygraphviz.AGraph(string=graphalias.to_dot(safe_step()))
    laid_out.layout(prog="dot")
    again = graphalias.from_dot(laid_out.to_string())
    assert everything(again) == everything(safe_step())
    assert all("," in position for _, position in again.graph.nodes(data="pos"))


def test_order_of_nodes_does_not_matter() -> None:
    """A tool may write the nodes in any order: program order is an attribute."""
    data = graphalias.to_node_link(safe_step())
    data["nodes"].reverse()
    data["edges"].reverse()
    assert everything(graphalias.from_node_link(data)) == everything(safe_step())


def test_long_strings() -> None:
    """Graphviz reads no string above 16 KiB; a program may hold one all the same, of backslashes and quotes too."""
    for filler in ("x", "\\", '"', '\\"', "é\n", "1, "):
        argument = filler * 20_000
        program = safe_step()
        changed = [op.replace(kwargs={"text": argument}) if op.name == "add" else op for op in program.operations]
        program = program.replace_operations(changed)
        assert graphalias.from_dot(graphalias.to_dot(program)).operation("add").kwargs["text"] == argument
        assert_whole(program, through_graphml)


def test_bindings() -> None:
    """Constants and opaque arguments are names; who reads the program says what they stand for."""
    weights, generator = torch.ones(3), torch.Generator()
    program = graphalias.capture(lambda x: x.mul_(weights).bernoulli_(0.5, generator=generator), torch.ones(3))
    data = graphalias.to_node_link(program)
    with pytest.raises(graphalias.ExecutorError, match="nothing is bound"):
        graphalias.from_node_link(data).run(torch.zeros(3))
    again = graphalias.from_node_link(data, program.bindings)
    returned = [generator.manual_seed(0) and item.run(torch.ones(3)) for item in (program, again)]
    assert returned[0].tolist() == returned[1][0].tolist()


def edited(path: str, value: Any) -> dict[str, Any]:
    """Return the data of `step` with one item changed, or removed where the value is ``...``."""
    data = json.loads(json.dumps(graphalias.to_node_link(safe_step())))
    *way, last = (int(key) if key.isdigit() else key for key in path.split("."))
    place = data
    for key in way:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("nodes", ..., "no node-link data"),
        ("graph.format", "dagre", "expected format 'graphalias', found 'dagre'"),
        ("graph.version", 2, "expected version 1, found 2"),
        ("directed", False, "found one that is undirected"),
        ("nodes.3.position", "first", "expected a position, found 'first'"),
        ("nodes.3.operation", None, "expected operation, an object, found None"),
        ("nodes.3.operation.reads", ..., "the field 'reads' is missing"),
        ("nodes.3.operation.reads.0", 7, "reads: position 7, where there are 2 operands"),
        ("nodes.3.operation.args.0.handle", "nobody", "args: %nobody is used before"),
        ("nodes.3.operation.args.0", {"eval": "1"}, "args: unknown kind of argument 'eval'"),
        ("nodes.3.operation.results.0.dtype", "q9", "results: unknown dtype 'q9'"),
        ("nodes.3.operation.results.0.shape.0", "2", "results: expected what record_of makes"),
        ("nodes.3.operation.results.0.stride", [1], "differ in length"),
        ("nodes.3.operation.results.0.name", "x", "%x is the result of two operations"),
        ("nodes.4.operation.after.0.reason", "WHY", "after: unknown reason 'WHY'"),
        ("nodes.4.operation.after.0.operation", "nobody", "ordered after 'nobody', which is no earlier operation"),
        ("nodes.6.operation.after", [], "edge 'mul_' -> 'output': the operations say none, found ORDER"),
        ("edges.0", ..., "the operations say DATA, found none"),
        ("edges.0.kind", "ORDER", "the operations say DATA, found ORDER"),
        ("nodes.6.position", -1, "%add is used before"),
        ("nodes.3.operation.target", "region", "expected body, an object, found None"),
    ],
)  # fmt: skip
def test_errors(path: str, value: Any, message: str) -> None:
    """Data that is no program says what is wrong, and at which node."""
    with pytest.raises(ParseError, match=message):
        graphalias.from_node_link(edited(path, value))


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (graphalias.from_graphml, ""),
        (graphalias.from_graphml, "<graphml"),
        (graphalias.from_graphml, "<svg/>"),
        (graphalias.from_graphml, graphalias.to_graphml(safe_step()).replace("aten.add.Tensor", "<")),
        (graphalias.from_graphml, graphalias.to_graphml(safe_step()).replace('{"target"', '["target"')),
        (graphalias.from_dot, ""),
        (graphalias.from_dot, "digraph { a -> "),
        (graphalias.from_dot, "graph { a -- b }"),
        (graphalias.from_dot, graphalias.to_dot(safe_step()).replace("position", "place")),
        (graphalias.from_dot, graphalias.draw(safe_step()).dot),
    ],
)
def test_errors_of_texts(read: Callable[..., Program], text: str, capfd: Any) -> None:
    """Text of another kind is no program."""
    with pytest.raises(ParseError):
        read(text)


def test_no_graphml() -> None:
    """What GraphML can't hold is refused when it is written."""
    program = safe_step()
    program.graph.nodes["x"]["measured"] = [1, 2]
    with pytest.raises(GraphAliasError, match="no GraphML for this"):
        graphalias.to_graphml(program)


def paths_of(item: Any, path: str = "") -> list[str]:
    """Return the paths of all leaves of some JSON."""
    items = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else None
    if items is None or not item:
        return [path[1:]]
    return [leaf for key, part in items for leaf in paths_of(part, f"{path}.{key}")]


def test_random_edits() -> None:
    """Data with any one leaf changed or removed is read as a program or refused as one, never anything else."""
    choose = random.Random(0)
    paths = paths_of(json.loads(json.dumps(graphalias.to_node_link(safe_step()))))
    values = [..., None, -1, 2.5, "nonsense", [], {}, [None], {"handle": []}, choose.choice(["x", True])]
    refused = [is_refused(edited(path, value)) for path in paths for value in values]
    assert sum(refused) > 5 * len(paths)


def is_refused(data: dict[str, Any]) -> bool:
    """Whether data is refused; otherwise what was read is a program that prints."""
    try:
        str(graphalias.from_node_link(data))
    except ParseError:
        return True
    return False
