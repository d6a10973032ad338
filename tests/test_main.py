"""The command line: what each command prints and returns, and what it says to wrong usage."""

import json
import os
import re
import subprocess
import sys

import pytest

import graphalias
from graphalias.__main__ import FINE, REFUSED, WRONG, main
from shared import ROOT

SOURCE = """
import torch
from torch import nn


def step(x):
    row = x[0]
    x.mul_(2)
    return row + 1


def accumulate(a, b, scale=1.0):
    a.add_(b)
    return b * scale


def decay(params, rate):
    for param in params:
        param.mul_(rate)


def branch(x):
    return x if x.sum() > 0 else -x


def fail(x):
    raise ValueError("no good")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).relu_()

    @staticmethod
    def double(x):
        return x.mul_(2)


class Sized(nn.Module):
    def __init__(self, size):
        super().__init__()


net = Net()
LIMIT = 3


def chain(x):
    return x.mul_(2).add_(1).exp()
"""


@pytest.fixture(autouse=True)
def user_code(tmp_path, monkeypatch):
    """Write a user's file, and be in its folder."""
    (tmp_path / "mine.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("import a_package_that_is_not_there\n")
    (tmp_path / "typo.py").write_text("def step(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("mine", "broken", "typo"):
        sys.modules.pop(name, None)


def run(capsys, *words):
    """Return the exit status of a command, and what it wrote to standard output and standard error."""
    status = main(words)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_hazards_shows_the_lines_of_source(capsys):
    """`hazards` prints the program, each hazard, and the two lines of the user's code it is about."""
    status, out, err = run(capsys, "hazards", "mine:step", "--input", "f32[4,4]")
    assert (status, err) == (FINE, "")
    assert "aten.mul_.Tensor(%x!, 2)" in out
    assert "2 hazards" in out
    assert re.search(r"RAW +%mul_ must run before %add; both touch @s0", out)
    assert re.search(r"mine\.py:8 +x\.mul_\(2\)", out)
    assert re.search(r"mine\.py:9 +return row \+ 1", out)
    assert "what the caller sees afterwards" in out


def test_hazards_says_when_there_are_none(capsys):
    """A program without hazards is said to have none."""
    status, out, _ = run(capsys, "hazards", "mine:Net", "--input", "f32[2,4]")
    assert status == FINE
    assert "no hazards" in out


def test_print_in_regions(capsys):
    """`print --partition` prints the program in regions and why the rest is outside; it can be parsed."""
    words = ("print", "mine:step", "-i", "f32[4,4]", "--partition")
    status, out, err = run(capsys, *words, "inductor")
    assert (status, err) == (FINE, "")
    assert str(graphalias.parse(out)) == out[: out.index("# select: ")]
    assert out.endswith("# add: it would be a region of one operation\n")
    status, out, _ = run(capsys, *words, "eager")
    assert status == FINE and "# mul_: the eager executor runs one operation at a time\n" in out
    status, out, _ = run(capsys, "print", "mine:chain", "-i", "f32[4]", "--partition")
    assert status == FINE and "= region(%x!) reads(%x) {\n    %x: f32[4]" in out


def test_print_can_be_parsed(capsys):
    """`print` prints the text form, whole, before and after."""
    for options, count in (((), 2), (("--after",), 0)):
        status, out, _ = run(capsys, "print", "mine:step", "--input", "f32[4,4]", *options)
        assert status == FINE
        program = graphalias.parse(out)
        assert str(program) == out
        assert len(graphalias.find_hazards(program)) == count


@pytest.mark.parametrize(
    ("target", "inputs"),
    [
        ("mine:step", ["f32[4,4]"]),
        ("mine.py:step", ["f32[4,6] stride(1,4)"]),
        ("mine:accumulate", ["f32[8] @buf", "f32[8] offset(8) @buf", "scale=2.0"]),
        ("mine:accumulate", ["f32[4] @buf a", "f32[4] @buf a", "3"]),
        ("mine:decay", ["[f32[2], f32[3]]", "0.5"]),
        ("mine:Net", ["f32[2,4]"]),
        ("mine:net", ["f32[2,4]"]),
        ("mine:Net.double", ["i64[3]"]),
        ("torch.nn:ReLU", ["bf16[3]"]),
    ],
)
def test_verify(capsys, target, inputs):
    """`verify` finds functions, methods, modules and their classes, and says how many orders were right."""
    words = [word for text in inputs for word in ("--input", text)]
    status, out, err = run(capsys, "verify", target, *words, "--orders", "4")
    assert (status, err) == (FINE, "")
    assert "7 topological orders and executor eager give what eager PyTorch gives" in out


def test_verify_tells_a_failure_by_its_status(capsys, monkeypatch):
    """What is not verified ends in 1, with the message of the error."""

    def refuse(*args, **kwargs):
        raise graphalias.VerificationError("an order differs", node="add_")

    monkeypatch.setattr("graphalias.commands.verify", refuse)
    status, out, err = run(capsys, "verify", "mine:step", "--input", "f32[4,4]")
    assert (status, out) == (WRONG, "")
    assert err == "error: an order differs\n  at operation: add_\n"


def test_draw_writes_where_it_says(capsys, tmp_path):
    """`draw` writes to the function's name, or to the path that is given, whose folder it makes."""
    assert run(capsys, "draw", "mine:step", "-i", "f32[4,4]")[:2] == (
        FINE,
        "drew step.svg: 2 hazards before, 1 update_aliases after\n",
    )
    assert run(capsys, "draw", "mine:step", "-i", "f32[4,4]", "--out", "new/step.dot")[0] == FINE
    status, out, _ = run(capsys, "draw", "mine:chain", "-i", "f32[4]", "--out", "chain.dot", "--partition", "inductor")
    assert (status, out) == (FINE, "drew chain.dot: 0 hazards before, 0 update_aliases and 1 region after\n")
    assert (tmp_path / "step.svg").read_text().rstrip().endswith("</svg>")
    assert (tmp_path / "new" / "step.dot").read_text().startswith("digraph")


def test_explain(capsys):
    """`explain` prints the summary, or with --json everything."""
    status, out, err = run(capsys, "explain", "mine:step", "-i", "f32[4,4]", "--executor", "eager")
    assert (status, err) == (FINE, "")
    assert out.startswith("step: 3 operations, 1 of them in place, 2 hazards\n")
    status, out, _ = run(capsys, "explain", "mine:step", "-i", "f32[4,4]", "--executor", "eager", "--json")
    assert status == FINE and json.loads(out)["mutations"][0]["operation"] == "mul_"


def test_hazards_and_reports_for_scripts(capsys):
    """`hazards --json` counts and lists them, --fail makes them a status; `verify --json` is the report."""
    status, out, _ = run(capsys, "hazards", "mine:step", "-i", "f32[4,4]", "--json", "--fail")
    found = json.loads(out)
    assert status == WRONG and found["count"] == 2
    assert (found["hazards"][0]["before"], found["hazards"][0]["reason"]) == ("mul_", "RAW")
    assert found["hazards"][0]["accesses"][0]["strides_bytes"] == [16, 4]  # named, as in `explain`
    assert run(capsys, "hazards", "mine:Net", "-i", "f32[2,4]", "--json", "--fail")[0] == FINE
    status, out, _ = run(capsys, "verify", "mine:step", "-i", "f32[4,4]", "--orders", "2", "--json")
    assert status == FINE and json.loads(out)["orders"] == 5


def test_bench(capsys, monkeypatch):
    """`bench` times the variants; one that fails is said to, and the others are timed all the same."""

    def refuse(fn, **options):
        def call(*args):
            raise RuntimeError("no compiler")

        return call

    monkeypatch.setattr("torch.compile", refuse)
    words = ("bench", "mine:step", "-i", "f32[4,4]", "--executor", "eager", "--rounds", "3")
    status, out, err = run(capsys, *words)
    assert (status, err) == (FINE, "")
    assert re.search(r"eager +[\d.]+ us", out) and re.search(r"jit +[\d.]+ us +[\d.]+", out)
    assert re.search(r"torch.compile +failed +RuntimeError: no compiler", out)
    found = json.loads(run(capsys, *words, "--json")[1])
    assert found["over_eager"].keys() == {"jit"} and found["median_us"]["eager"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["verify", "mine:step"], r"step\(x\) does not take the 0 inputs given: missing .*\n  what to do: .*--input"),
        (["verify", "mine:step", "-i", "f32[4"], r"the input 'f32\[4': expected ',' or '\]', found the end"),
        (["verify", "mine:step", "-i", "g32[4]"], "unknown dtype 'g32'"),
        (["verify", "mine:step", "-i", "f32[4,4]", "--executor", "foo"], "no executor 'foo'"),
        (["verify", "mine:step", "-i", "f32[4,4]", "--orders", "-3"], "expected a number of at least 0, found '-3'"),
        (["print", "mine:step", "-i", "f32[4,4]", "--partition", "foo"], "no executor 'foo'"),
        (["draw", "mine:step", "-i", "f32[4,4]", "--out", "a.jpg"], r"in \.svg, \.png or \.dot"),
        (["verify", "mine:stp"], "mine has no 'stp'\n  what to do: did you mean step?"),
        (["verify", "mine"], "'mine' names no function\n  what to do: write module:function"),
        (["verify", "mine:LIMIT"], "is of type int: expected a function"),
        (["verify", "mine:Sized"], "constructor takes arguments: missing a required argument: 'size'"),
        (["verify", "nowhere:step"], "no module 'nowhere'"),
        (["verify", "nowhere.py:step"], "no file 'nowhere.py'"),
        (["verify", "broken:step"], r"ModuleNotFoundError: .*'a_package_that_is_not_there'\n  from: .*broken.py:1"),
        (["verify", "typo:step"], r"SyntaxError: .*typo.py, line 1"),
        (["verify", "mine:fail", "-i", "f32[4]"], r"ValueError: no good\n  from: .*mine.py:27\n"),
        (["verify", "mine:branch", "-i", "f32[4]"], r"values of tensors\n  from: .*mine.py:23\n"),
        (["verify", "mine:accumulate", "-i", "f32[2]", "-i", "f32[3]"], "eager PyTorch refuses this: RuntimeError"),
        (["unknown"], "^error: .*invalid choice: 'unknown'"),
        (["verify", "mine:step", "--order"], "^error: .*--order"),
        ([], "what to do: python -m graphalias --help"),
    ],
)  # fmt: skip
def test_wrong_usage_is_explained(capsys, words, message):
    """What can't be done ends in 2 and one message that says what is wrong and where, without a traceback."""
    status, out, err = run(capsys, *words)
    assert (status, out) == (REFUSED, "")
    assert re.search(message, err)
    assert "Traceback" not in err


def test_traceback_on_demand(capsys):
    """With --traceback an error is shown with the way to it."""
    status, _, err = run(capsys, "verify", "mine:fail", "-i", "f32[4]", "--traceback")
    assert status == REFUSED
    assert "Traceback" in err
    assert err.rstrip().endswith("mine.py:27")


@pytest.mark.parametrize("words", [["--help"], ["demo", "--help"], ["verify", "--help"]])
def test_help(capsys, words):
    """Help is printed, and is no error."""
    status, out, _ = run(capsys, *words)
    assert status == FINE
    assert out.startswith("usage: python -m graphalias")


def test_version(capsys):
    """`--version` prints the package's, and is no error."""
    assert run(capsys, "--version") == (FINE, f"graphalias {graphalias.__version__}\n", "")


def test_as_a_process(tmp_path):
    """`python -m graphalias` works where there is no terminal: plain text, nothing on standard error, status 0."""
    done = subprocess.run(
        [sys.executable, "-m", "graphalias", "draw", "mine.py:step", "--input", "f32[4,4]"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (FINE, "")
    assert done.stdout == "drew step.svg: 2 hazards before, 1 update_aliases after\n"
