"""Programs as torch.fx modules: the same results, in place, in an order that fx keeps."""

from __future__ import annotations

from typing import Any

import networkx as nx
import pytest
import torch

import graphalias
from graphalias import Program, parse
from graphalias.executors.eager import values_only
from graphalias.fx import META, update_aliases
from graphalias.oracle import differences
from passing import steps_of, steps_of_case
from shared import load_cases
from test_programs import scene_of
from torch_programs import random_arguments, random_program

SHARED = list(getattr(load_cases(), "CASES", ()))


def assert_same_in_fx(program: Program, args: tuple[Any, ...]) -> None:
    """Fail unless the module shows what the program shows."""
    module = graphalias.to_fx(program)
    names = [value.name for value in program.inputs if not value.is_state]

    def run_module() -> Any:
        tensors = program.signature.bind(args, {})
        with values_only():
            return program.signature.rebuild(list(module(*(tensors[name] for name in names))))

    scene = scene_of((args, program.bindings))
    torch.manual_seed(0)
    expected = scene.watch(lambda: program.run(*args))
    torch.manual_seed(0)
    found = scene.watch(run_module)
    assert not differences(expected, found, with_state_of_errors=False), module.code


@pytest.mark.parametrize("case", SHARED, ids=lambda case: case.name)
def test_shared_cases(case: Any) -> None:
    """Each shared case runs in fx as the program does, at every step: values, arguments, geometry, sharing, errors."""
    args, steps = steps_of_case(case)
    for program in steps:
        assert_same_in_fx(program, args)


@pytest.mark.parametrize("seeds", [range(i, i + 40) for i in (0, 40, 80)], ids=str)
def test_random_programs(seeds: range) -> None:
    """Random programs run in fx as they do here."""
    for seed in seeds:
        args = random_arguments(seed)
        for program in steps_of(random_program(seed, 2 + seed % 14), *args):
            assert_same_in_fx(program, args)


def step(x: torch.Tensor) -> torch.Tensor:
    """Write x, then read it through a view that was made before."""
    row = x[0]
    x.mul_(2).add_(1)
    return row + 1


def test_nodes() -> None:
    """In-place operations are called as they are, and `update_aliases` depends on what it comes after."""
    _, safe, _ = steps_of(step, torch.ones(2, 2))
    module = graphalias.to_fx(safe)
    nodes = {node.name: node for node in module.graph.nodes}
    assert list(nodes) == list(safe.graph)
    assert nodes["mul_"].target is torch.ops.aten.mul_.Tensor
    assert nodes["update_aliases_1"].target is update_aliases
    assert nodes["add_"] in nodes["update_aliases_1"].all_input_nodes
    assert nodes["mul_"].meta[META].startswith("%mul_: f32[2,2] @s0 obj0 = aten.mul_.Tensor(%x!, 2)")


def test_any_order_of_fx() -> None:
    """What fx may move by its arguments alone stays right: each order of its nodes that fx takes is one of ours."""
    _, safe, _ = steps_of(step, torch.ones(2, 2))
    nodes = list(graphalias.to_fx(safe).graph.nodes)
    edges = [(before.name, node.name) for node in nodes[:-1] for before in node.all_input_nodes]
    ours = nx.transitive_closure_dag(safe.graph.subgraph([node.name for node in nodes[:-1]]))
    assert nx.transitive_closure_dag(nx.DiGraph(edges)).edges == ours.edges


def test_fx_keeps_mutations() -> None:
    """The passes of fx itself, dead code elimination and a retrace, leave the mutations there."""
    _, safe, _ = steps_of(lambda x: (x.add_(1), None)[1], torch.ones(3))
    module = graphalias.to_fx(safe)
    module.graph.eliminate_dead_code()
    module.recompile()
    x = torch.zeros(3)
    module(x)
    assert x.tolist() == [1, 1, 1]


def test_regions_are_submodules() -> None:
    """A region is a module of its own, which writes in place and returns what it writes."""
    *_, partitioned = steps_of(step, torch.ones(2, 2))
    module = graphalias.to_fx(partitioned)
    assert [type(item).__name__ for item in module.regions.children()] == ["GraphModule"]
    x = torch.ones(2, 2)
    assert module(x)[0].tolist() == [4, 4] and x.tolist() == [[3, 3], [3, 3]]


def test_memory_written_through_another_handle() -> None:
    """Another object on memory that a region writes counts its version too."""
    program = parse("""
    %a: f32[4] @s0 obj0 = input()
    %b: f32[4] @s0 obj1 = input()
    %region_1: (%a1: f32[4] @s0 obj0, %b1: f32[4] @s0 obj1) = region(%a!, %b!) reads(%a) {
        %a: f32[4] @s0 obj0 = input()
        %a1: f32[4] @s0 obj0 = aten.add_.Tensor(%a!, 1) reads(%a)
        %b1: f32[4] @s0 obj0 = aten.mul_.Tensor(%a1!, 2) reads(%a1)
        output()
    }
    output(%a1, %b1)
    """)
    a = torch.zeros(4)
    b = torch.empty(0).set_(a)
    returned = graphalias.to_fx(program)(a, b)
    assert returned[0] is a and returned[1] is b
    assert b.tolist() == [2, 2, 2, 2] and b._version == 2  # set_ counts too


def test_constants_are_the_very_tensors() -> None:
    """A constant that is written is the caller's tensor; what is not bound is named."""
    total = torch.zeros(3)
    program = graphalias.capture(lambda x: total.add_(x), torch.ones(3))
    assert graphalias.to_fx(program)(torch.ones(3))[0] is total and total.tolist() == [1, 1, 1]
    program.bindings.clear()
    with pytest.raises(graphalias.ExecutorError, match="nothing is bound to c0"):
        graphalias.to_fx(program)


def test_names() -> None:
    """Names of operations that are none in Python, or mean something there, are no trouble."""
    program = parse("""
    %self: f32[2] @s0 obj0 = input()
    %split.0: f32[2] @s1 obj1 = input()
    %lambda: f32[2] @s2 obj2 = aten.add.Tensor(%self, %split.0, alpha=inf) reads(%self, %split.0)
    %return: f32[2] @s3 obj3 = aten.add.Tensor(%lambda, -inf) reads(%lambda)
    output(%return, complex(nan, -2.0), 1e-05)
    """)
    found, number, small = graphalias.to_fx(program)(torch.ones(2), torch.ones(2))
    assert found.isnan().all() and number.imag == -2 and small == 1e-5
