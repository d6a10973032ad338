"""What a compilation leaves: a folder of stages, log records, entries in torch's trace; nothing without being asked."""

import logging
import os
import subprocess
import sys

import pytest
import torch

import graphalias
from graphalias import parse
from shared import ROOT


def step(x):
    """Write a tensor after a view of it was made."""
    row = x[0]
    x.mul_(2)
    return row + 1


STAGES = ["0_capture", "1_insert_update_aliases", "2_eliminate_dead_operations", "3_partition"]


def test_a_dump_has_every_stage_in_order(tmp_path, monkeypatch):
    """Each compiled program has a folder with each stage as text, DOT and SVG, and the generated function."""
    monkeypatch.setenv("GRAPHALIAS_DUMP", str(tmp_path))
    jitted = graphalias.jit(step, executor="eager")
    jitted(torch.ones(4, 4))
    jitted(torch.ones(4, 4))
    jitted(torch.ones(3, 3))
    folders = sorted(tmp_path.iterdir(), key=lambda path: int(path.name.split("_")[1].split("-")[0]))
    assert [folder.name.partition("-")[2] for folder in folders] == ["step", "step"]
    first = folders[0]
    assert sorted({path.stem for path in first.glob("*.txt")})[:4] == STAGES
    assert {path.suffix for path in first.glob("0_*")} == {".txt", ".dot", ".svg"}
    program = parse((first / "0_capture.txt").read_text())
    assert len(graphalias.find_hazards(program)) == 2
    assert not graphalias.find_hazards(parse((first / "1_insert_update_aliases.txt").read_text()))
    assert (first / "source.py").read_text().startswith("def program(x):")
    assert (first / "3_partition.svg").read_text().rstrip().endswith("</svg>")


def test_a_picture_that_fails_does_not_stop_the_call(tmp_path, monkeypatch, caplog):
    """Without pygraphviz the text and the DOT are there, the call works, and a warning says what is missing."""
    monkeypatch.setenv("GRAPHALIAS_DUMP", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    assert torch.equal(graphalias.jit(torch.neg, executor="eager")(torch.ones(2)), -torch.ones(2))
    (folder,) = tmp_path.iterdir()
    assert list(folder.glob("*.dot")) and not list(folder.glob("*.svg"))
    assert "svg is left out" in caplog.text


def test_log_records(caplog):
    """At INFO a line says what was compiled and how long it took, at DEBUG there are the program and its function."""
    with caplog.at_level(logging.DEBUG, logger="graphalias"):
        graphalias.jit(step, executor="eager")(torch.ones(4, 4))
    info = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert any(line.startswith("step: compiled 0 regions and 3 calls, 1 update_aliases; insert_") for line in info)
    assert "def program(x):" in caplog.text and "update_aliases(%select) after(mul_ RAW)" in caplog.text


@pytest.mark.parametrize("setting", ["+graphalias", "graphalias"])
def test_torch_logs(setting):
    """``TORCH_LOGS=+graphalias`` shows the debug records, ``TORCH_LOGS=graphalias`` the lines at INFO."""
    program = "import torch, graphalias; graphalias.jit(torch.neg, executor='eager')(torch.ones(2))"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "TORCH_LOGS": setting, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "neg: compiled 0 regions and 1 calls" in done.stderr
    assert ("def program" in done.stderr) == setting.startswith("+")


def test_torch_trace(tmp_path):
    """With ``TORCH_TRACE`` every stage is an artefact of the structured trace that tlparse reads."""
    program = "import torch, graphalias; graphalias.jit(torch.neg, executor='eager')(torch.ones(2))"
    subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TORCH_TRACE": str(tmp_path), "PYTHONPATH": str(ROOT)}, check=True,
    )  # fmt: skip
    text = "".join(path.read_text() for path in tmp_path.iterdir())
    assert '"name": "graphalias_capture"' in text and '"name": "graphalias_source"' in text
    assert "aten.neg.default" in text
