"""explain: what it says of small programs, word for word, and that it fits a page for large ones."""

import json
import re

import pytest
import torch
from rich.console import Console

import graphalias
from graphalias import explain, insert_update_aliases, parse
from graphalias.decisions import FUNCTIONAL, IN_PLACE, REMOVED, groups_of, prevented_in, shared_memory
from graphalias.executors import inductor


def step(x):
    """Read a row after the matrix was written."""
    row = x[0]
    x.mul_(2)
    return row + 1


def update(param, mean, grad):
    """Write two tensors outside, one of the function's own that is returned, and one that nobody sees."""
    mean.mul_(0.5).add_(grad)
    scale = (mean * 2).add_(1)
    param.sub_(scale)
    unseen = torch.zeros(3)
    unseen.add_(1)
    return scale


STEP = """\
step: 3 operations, 1 of them in place, 2 hazards
executor eager: 0 regions and 3 calls outside; eager PyTorch moves 160 bytes, this 160 bytes, 1.00 of that

Memory seen through several tensors
  %x  @s0 f32[4,4], written; also %select

Mutations
  %mul_  in place: the eager executor runs one operation at a time
         test_explain.py:L  x.mul_(2)

Order where no value passes (1 update_aliases)
  RAW  %mul_ before %add, both on @s0: %update_aliases_1
       test_explain.py:L  x.mul_(2)
       test_explain.py:L  return row + 1
  RAW  %mul_ before the caller, both on @s0: an edge to the output
       test_explain.py:L  x.mul_(2)

In no region
  2 calls  the eager executor runs one operation at a time (%mul_, %add)
  1 call   a view of memory from outside is made outside (%select)

Compile time
  N ms  capture N"""

UPDATE = """\
update: 7 operations, 5 of them in place, 1 hazard
executor inductor: 1 region and 0 calls outside; eager PyTorch moves 516 bytes, this 240 bytes, 0.47 of that

Mutations
  %mul_    functional in region_1: written back once, at the region's end
           test_explain.py:L  mean.mul_(0.5).add_(grad)
  %add_    functional in region_1: written back once, at the region's end
           test_explain.py:L  mean.mul_(0.5).add_(grad)
  %add__1  functional in region_1: written once, as a result
           test_explain.py:L  scale = (mean * 2).add_(1)
  %sub_    functional in region_1: written back once, at the region's end
           test_explain.py:L  param.sub_(scale)
  %add__2  removed: nothing that is returned or outlives the call sees it
           test_explain.py:L  unseen.add_(1)

Order where no value passes (0 update_aliases)
  RAW  %add_ before the caller, both on @s1: an edge to the output
       test_explain.py:L  mean.mul_(0.5).add_(grad)
  RAW  %sub_ before the caller, both on @s0: an edge to the output
       test_explain.py:L  param.sub_(scale)

Fusion regions
  region_1  5 operations by inductor
            reads 120 bytes, writes 120 bytes; eager reads 280 bytes, writes 200 bytes
            mul_.Tensor, add_.Tensor, mul.Tensor, sub_.Tensor
            test_explain.py:L  mean.mul_(0.5).add_(grad)
            test_explain.py:L  scale = (mean * 2).add_(1)
            test_explain.py:L  param.sub_(scale)

Compile time
  N ms  capture N"""


def text_of(explanation):
    """Return the summary with L for each line and N for each time, which also decide where a line is wrapped."""
    text = re.sub(r"(test_explain\.py):\d+", r"\1:L", str(explanation))
    text = re.sub(r", \d+ kernels?$", "", text, flags=re.MULTILINE)  # depends on the code generator
    head, _, times = text.partition("Compile time\n")
    first = " ".join(times.split()).partition(",")[0]
    return f"{head}Compile time\n  {re.sub(r'[0-9.]+', 'N', first).replace('ms ', 'ms  ')}"


def test_one_operation_at_a_time():
    """Under the eager executor a mutation stays in place, and each hazard is told with both lines of source."""
    assert text_of(explain(step, torch.ones(4, 4), executor="eager")) == STEP


@pytest.mark.skipif(not inductor.is_available(), reason="no C++ compiler")
def test_in_regions():
    """In a region mutations are functional: what is written back, what is returned, what is removed, and the bytes."""
    args = [torch.ones(10) for _ in range(3)]
    assert text_of(explain(update, *args, executor="inductor")) == UPDATE


def test_nothing_is_run():
    """The function is not run: its tensors are as they were, their versions too, and so is the random state."""
    x = torch.arange(16.0).view(4, 4)
    kept, version, state = x.clone(), x._version, torch.random.get_rng_state()
    explain(lambda x: x.mul_(torch.rand(4)).add_(1), x)
    assert torch.equal(x, kept) and x._version == version
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_dict_for_json():
    """`to_dict` is what ``json`` takes, with every part, and names in what the objects have names for."""
    explanation = explain(update, *(torch.ones(10) for _ in range(3)))
    found = json.loads(json.dumps(explanation.to_dict()))
    assert found.keys() >= {"name", "executor", "groups", "mutations", "prevented", "regions", "outside", "times_ms"}
    assert [mutation["fate"] for mutation in found["mutations"]].count(REMOVED) == 1
    assert found["eager"]["read_bytes"] > found["traffic"]["read_bytes"] > 0
    assert str(parse(found["captured"])) == str(explanation.captured)
    assert next(iter(found["times_ms"])) == "capture" and all(ms > 0 for ms in found["times_ms"].values())


def test_mutations_are_counted_once():
    """Every operation that writes or reshapes has one fate, under every executor."""
    for executor in ("eager", "auto"):
        explanation = explain(update, *(torch.ones(10) for _ in range(3)), executor=executor)
        writing = [op.name for op in explanation.captured.operations if op.writes or op.reshapes]
        assert [mutation.operation for mutation in explanation.mutations] == writing
        fates = {mutation.operation: mutation.fate for mutation in explanation.mutations}
        for name, fate in fates.items():
            assert (name in explanation.lowered.graph) == (fate == IN_PLACE)
        assert (FUNCTIONAL in fates.values()) == (explanation.executor != "eager")


def decay(params):
    """Write views of many tensors in a loop."""
    for param in params:
        param.mul_(2)
        param[0].add_(1)


def test_five_hundred_operations_fit_a_page():
    """What comes from the same lines for the same reason is told once."""
    text = str(explain(decay, [torch.ones(4, 3) for _ in range(166)], executor="eager"))
    assert "decay: 498 operations, 332 of them in place" in text
    assert "%mul_, %mul__1, +164 more" in text
    assert len(text.splitlines()) < 40
    assert max(map(len, text.splitlines())) <= 120


def test_many_different_things_are_counted():
    """Beyond a dozen rows of a part the rest is counted, and `to_dict` has all."""
    lines = "\n".join(f"    x.add_({i})" for i in range(30))
    scope = {}
    exec(compile(f"def unrolled(x):\n{lines}", "unrolled.py", "exec"), scope)
    explanation = explain(scope["unrolled"], torch.ones(2), executor="eager")
    assert str(explanation).count("in place: ") == 12
    assert "and 18 more; to_dict() has all" in str(explanation)
    assert len(explanation.to_dict()["mutations"]) == 30


def test_a_captured_program():
    """A captured program is explained as it is, without arguments; one that was parsed too."""
    program = graphalias.capture(step, torch.ones(4, 4))
    explanation = explain(program, executor="eager")
    assert explanation.mutations == explain(step, torch.ones(4, 4), executor="eager").mutations
    assert "capture" not in explanation.times_ms
    assert explain(parse(str(program)), executor="eager").prevented[0].node == "update_aliases_1"


def test_where_gradients_are_recorded_it_says_so():
    """Where `jit` would call the original function, the explanation says so; without gradients it does not."""
    x = torch.ones(3, requires_grad=True)
    assert "jit would call the original function" in str(explain(lambda x: x * 2, x))
    with torch.no_grad():
        assert explain(lambda x: x * 2, x).remark is None


def test_in_colour():
    """On a terminal rich prints it in colour, with the same words."""
    console = Console(record=True, width=120, force_terminal=True, file=open("/dev/null", "w"))  # noqa: SIM115
    explanation = explain(step, torch.ones(4, 4), executor="eager")
    console.print(explanation)
    coloured = console.export_text(styles=True, clear=False)
    assert "\x1b[" in coloured
    plain = [line.rstrip() for line in console.export_text().splitlines()]
    assert plain == str(explanation).splitlines()


def test_a_region_that_could_not_be_compiled(monkeypatch):
    """A region whose compilation failed is said to be run by eager PyTorch."""

    def refuse(region):
        raise graphalias.ExecutorError("no")

    monkeypatch.setattr(inductor, "compile_region", refuse)
    monkeypatch.setattr(inductor, "is_available", lambda: True)
    explanation = explain(lambda x: x.add_(17).mul_(19), torch.ones(23), executor="inductor")
    assert [region.executor for region in explanation.regions] == ["eager"]


SHARED = """
%x: f32[4,4] @s0 obj0 = input()
%y: f32[4] offset(4) @s0 obj1 = input()
%p: f32[2] @s1 obj2 = input()
%q: f32[2] offset(2) @s1 obj3 = input()
%alone: f32[2] @s2 obj4 = input()
%v: f32[4] @s0 obj5 = aten.select.int(%x, 0, 0)
%neg_: f32[4] @s0 obj5 = aten.neg_.default(%v!) reads(%v)
output()
"""


def test_shared_memory_and_groups():
    """Inputs on one storage are told, and whether they overlap; groups of several tensors, the written first."""
    program = parse(SHARED)
    assert [(one.names, one.has_overlap) for one in shared_memory(program)] == [(("x", "y"), True), (("p", "q"), False)]
    assert [(one.base, one.views, one.is_written) for one in groups_of(program)] == [
        ("x", ("y", "v"), True), ("p", ("q",), False),
    ]  # fmt: skip


def test_joining_nodes_stand_for_what_they_join():
    """Many readers that many writers wait for are each told, with the writer and the node before it."""
    rows = range(20)
    lines = ["%x: f32[20,2] @s0 base = input()"]
    lines += [f"%r{i}: f32[2] offset({2 * i}) @s0 row{i} = aten.select.int(%x, 0, {i})" for i in rows]
    lines += [f"%s{i}: f32[20,2] @t{i} sin{i} = aten.sin.default(%x) reads(%x)" for i in rows]
    lines += [f"%n{i}: f32[2] offset({2 * i}) @s0 row{i} = aten.neg_.default(%r{i}!) reads(%r{i})" for i in rows]
    program = insert_update_aliases(parse("\n".join([*lines, "output()"])))
    assert any(operation.name.startswith("join") for operation in program.operations)
    pairs = {(one.before, one.after) for one in prevented_in(program) if one.reason == "WAR"}
    assert pairs == {(f"s{i}", f"n{j}") for i in rows for j in rows}
