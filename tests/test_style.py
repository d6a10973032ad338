"""ruff, mypy, the import layers and the house style, as tests: one command checks everything."""

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from shared import ROOT

SOURCES = sorted((ROOT / "graphalias").rglob("*.py"))
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
CORE = SETUP["importlinter:contract:no-torch-in-the-core"]["source_modules"].split()
LONGEST_FUNCTION_LINES = 60


def run_tool(*command):
    """Run a tool in the repository; fail with what it printed."""
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        shown = " ".join(Path(word).name if index == 0 else word for index, word in enumerate(command))
        pytest.fail(f"{shown} found:\n{done.stdout}{done.stderr}", pytrace=False)


def test_ruff_check():
    """No rule of ruff.toml is broken, anywhere in the repository."""
    run_tool(sys.executable, "-m", "ruff", "check", "--output-format=concise", ".")


def test_ruff_format():
    """Everything is formatted as ``ruff format`` does it."""
    run_tool(sys.executable, "-m", "ruff", "format", "--check", "--output-format=concise", ".")


def test_mypy():
    """The package type-checks, strictly."""
    run_tool(sys.executable, "-m", "mypy")


def test_import_layers():
    """A module imports only what comes earlier on the way of a program, and the core never imports torch."""
    beside_python = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    run_tool(beside_python or "lint-imports", "--no-cache")


@pytest.mark.parametrize("module", CORE)
def test_core_works_without_torch(module):
    """A core module can be imported where torch can't."""
    # A bare package stands in for graphalias/__init__.py, which offers everything, torch's part included.
    program = f"""
        import sys, types
        package = sys.modules["graphalias"] = types.ModuleType("graphalias")
        package.__path__ = ["graphalias"]
        sys.modules["torch"] = None
        import {module}
    """
    run_tool(sys.executable, "-c", re.sub(r"\n +", "\n", program))


def functions_of(path):
    """Yield each function of a file with the number of its lines, the docstring's not counted."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node) is not None:
                lines -= first.end_lineno - first.lineno + 1
            yield node, lines


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_are_short(path):
    """No function is over sixty lines."""
    long = [
        f"{path.name}:{node.lineno} {node.name}: {n}" for node, n in functions_of(path) if n > LONGEST_FUNCTION_LINES
    ]
    assert not long


def test_most_functions_are_very_short():
    """Half of all functions have fewer than twelve lines."""
    assert median(lines for path in SOURCES for _, lines in functions_of(path)) < 12


def test_names_say_something():
    """No file is called after nothing in particular."""
    assert not {"utils", "util", "helpers", "common", "misc", "data", "process"} & {path.stem for path in SOURCES}
