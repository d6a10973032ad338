"""The demo: its programs are what they claim, it shows and verifies them, its drawings are there."""

import io
import re
from xml.etree import ElementTree

import pytest
import torch

import graphalias
from graphalias.demo import count_wrong_orders, run_demo
from graphalias.examples import ResidualBlock, adam_step, make_examples
from graphalias.terminal import make_console, program_table

EXAMPLES = {example.name: example for example in make_examples()}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Run the demo once; return what it found, what it printed, and the folder of its drawings."""
    printed, folder = io.StringIO(), tmp_path_factory.mktemp("demo") / "drawings"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "120")
        findings = run_demo(make_console(printed), folder, orders=5)
    return findings, printed.getvalue(), folder


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_verified_and_needs_it(name):
    """Every example has an order that goes wrong, and none once its update_aliases are there."""
    example = EXAMPLES[name]
    program = graphalias.capture(example.fn, *example.args)
    assert count_wrong_orders(example, program, 10) > 0
    assert count_wrong_orders(example, graphalias.insert_update_aliases(program), 10) == 0
    assert graphalias.verify(example.fn, *example.args).orders == 23


def test_examples_are_the_same_each_time():
    """The same seed gives the same arguments, another seed others, and torch's own random state is left alone."""
    state = torch.random.get_rng_state()
    again, other = make_examples(), make_examples(1)
    assert torch.equal(torch.random.get_rng_state(), state)
    residual = [examples[1].args[0] for examples in (tuple(EXAMPLES.values()), again, other)]
    assert torch.equal(residual[0], residual[1])
    assert not torch.equal(residual[0], residual[2])


def test_adam_step_is_adam():
    """The optimizer of the examples does what torch's does."""
    params, grads, moments = make_examples()[3].args
    expected = [torch.nn.Parameter(param.clone()) for param in params]
    for param, grad in zip(expected, grads, strict=True):
        param.grad = grad.clone()
    torch.optim.Adam(expected, foreach=False).step()
    adam_step(params, grads, moments)
    for param, other in zip(params, expected, strict=True):
        torch.testing.assert_close(param, other.detach())


def test_residual_block_updates_its_statistics():
    """The block is in training mode: its running statistics move, and it overwrites its argument."""
    block, x = ResidualBlock(), torch.randn(2, 8, 4, 4)
    kept = x.clone()
    block(x)
    assert torch.equal(x, kept.relu())
    assert int(block.bn1.num_batches_tracked) == 1
    assert block.bn2.running_mean.abs().sum() > 0


def test_demo_shows_every_step(demo):
    """The demo shows each program before and after, its hazards with their source, and what it verified."""
    findings, printed, _ = demo
    for finding in findings:
        assert finding.name in printed
        assert finding.report.orders == 8
    assert printed.count("After insert_update_aliases") == len(findings)
    assert "x.add_(1)  # writes them" in printed
    assert re.search(r"\+ %update_aliases_1: .* = update_aliases\(%x\) after\(mul WAR\)", printed)
    assert "\x1b" not in printed, "plain where there is no terminal"
    assert max(map(len, printed.splitlines())) <= 120


def test_demo_shows_regions(demo):
    """The demo shows the fusion regions with what is in them, and explains why the other operations are in none."""
    findings, printed, _ = demo
    assert printed.count("what an executor compiles as one") == len(findings)
    adam = printed.split("4 of 4: adam_step")[1]
    assert "2 fusion regions" in adam
    assert re.search(r"\+ %region_1: \(\) = region\(%moments.0.mean!, %grads.0!, .*\n.*\{ *\n", adam)
    assert re.search(r"examples.py:\d+ +\+     %lerp_: .* = aten.lerp_.Scalar\(%moments.0.mean!", adam)
    assert re.search(r"In no region\n +\d+ calls +\w", adam)
    figures = dict(findings[3].figures)
    assert (figures["fusion regions"], figures["calls, views not counted"]) == ("2", "36")
    assert figures["the same in regions"] == "18", "two regions of ten operations each"


def test_demo_sums_up(demo):
    """The summary has a row for each figure, with a number for each example."""
    findings, printed, _ = demo
    rows = printed.split("Summary")[1].splitlines()
    for label, value in findings[0].figures:
        row = next(row for row in rows if row.startswith(label))
        assert row.removeprefix(label).split()[0] == value.split()[0]
    figures = dict(findings[0].figures)
    assert (figures["operations"], figures["hazards"], figures["update_aliases nodes"]) == ("4", "3", "2")


def test_demo_draws(demo):
    """There is an SVG for each example, well-formed, with both sides and every operation's name."""
    findings, _, folder = demo
    assert {path.name for path in folder.iterdir()} == {f"{finding.name}.svg" for finding in findings}
    for finding in findings:
        root = ElementTree.parse(folder / f"{finding.name}.svg").getroot()
        words = {text for element in root.iter() if (text := (element.text or "").strip())}
        assert {"before", "after", "update_aliases_1"} <= words
        assert {operation.name for operation in finding.before.operations} <= words


def test_colours_on_a_terminal(monkeypatch):
    """On a terminal the same words are coloured."""
    program = graphalias.capture(EXAMPLES["window"].fn, *EXAMPLES["window"].args)
    texts = []
    for colours in ("1", ""):
        monkeypatch.setenv("FORCE_COLOR", colours)
        printed = io.StringIO()
        make_console(printed).print(program_table(program))
        texts.append(printed.getvalue())
    assert "\x1b[" in texts[0]
    assert re.sub(r"\x1b\[[\d;]*m", "", texts[0]) == texts[1]
