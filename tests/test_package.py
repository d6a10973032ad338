"""The package as a user meets it: its public names, their documentation, the README, what an install holds."""

import ast
import importlib.metadata
import inspect
import re
import sys

import pytest

import graphalias
from shared import ROOT

README = (ROOT / "README.md").read_text()
#: What each step of the way of a program is called. The rest of ``__all__`` is what they take, return and raise.
STEPS = (
    "capture", "check", "disabled", "draw", "eliminate_dead_operations", "explain", "find_hazards", "find_view_groups",
    "insert_update_aliases", "jit", "lower", "parse", "verify",
)  # fmt: skip


def public_objects():
    """Return what ``__all__`` names, by name."""
    return {name: getattr(graphalias, name) for name in graphalias.__all__}


def has_section(documentation, title):
    """Whether a numpydoc docstring has a section of that title."""
    return re.search(rf"^{title}\n-{{{len(title)}}}$", documentation, re.MULTILINE) is not None


def test_public_names_are_sorted_and_there():
    """``__all__`` is sorted, without repetition, and everything in it can be had."""
    assert list(graphalias.__all__) == sorted(set(graphalias.__all__))
    assert all(value is not None for value in public_objects().values())


def test_every_step_is_public():
    """Each step of the way of a program is a public name, a function."""
    missing = [name for name in STEPS if not callable(getattr(graphalias, name, None))]
    assert not missing
    assert set(STEPS) <= set(graphalias.__all__)


@pytest.mark.parametrize("name", graphalias.__all__)
def test_public_name_is_documented(name):
    """A public name says what it is, what it takes and returns, and shows it in an example that runs."""
    value = public_objects()[name]
    documentation = inspect.getdoc(value) or ""
    assert documentation.split("\n")[0].endswith("."), "begins with one sentence"
    if (
        inspect.isclass(value)
        and issubclass(value, graphalias.GraphAliasError)
        and value is not graphalias.GraphAliasError
    ):
        return  # a kind of error is made, printed and documented as its base is
    assert has_section(documentation, "Examples")
    assert ">>> " in documentation.split("Examples\n--------")[1]
    if inspect.isfunction(value):
        signature = inspect.signature(value)
        assert not signature.parameters or has_section(documentation, "Parameters")
        assert signature.return_annotation in (None, "None") or has_section(documentation, "Returns")


@pytest.mark.parametrize("name", graphalias.__all__)
def test_public_name_is_annotated(name):
    """Every parameter and every result of a public function has a type."""
    value = public_objects()[name]
    if not inspect.isfunction(value):
        pytest.skip("not a function")
    signature = inspect.signature(value)
    untyped = [key for key, parameter in signature.parameters.items() if parameter.annotation is parameter.empty]
    assert not untyped
    assert signature.return_annotation is not signature.empty


def test_readme_lists_the_files():
    """The README's file list is the package's: a line for every module, no line without one."""
    listed = set(re.findall(r"^  (\w+\.py|\w+/) +\S", README, re.MULTILINE))
    folder = ROOT / "graphalias"
    there = {path.name for path in folder.glob("*.py")} - {"__init__.py"}
    there |= {f"{path.parent.name}/" for path in folder.glob("*/*.py")}
    assert listed == there


def test_readme_has_the_two_commands():
    """The README gives one line for the main job and one for the tests, and CI can find the latter."""
    commands = re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)
    assert [command.split("&& ")[-1] for command in commands] == [
        ".venv/bin/python -m graphalias demo",
        ".venv/bin/pytest",
    ]


def test_version_is_the_installed_one():
    """``graphalias.__version__`` is what was installed, and the package says that it is typed."""
    assert graphalias.__version__ == importlib.metadata.version("graphalias")
    assert (ROOT / "graphalias" / "py.typed").exists()


def test_requirements_are_what_is_imported():
    """``install_requires`` names the packages that the code imports, no other and none forgotten."""
    trees = [ast.parse(path.read_text()) for path in (ROOT / "graphalias").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    packages = {name.split(".")[0] for name in imported} - set(sys.stdlib_module_names) - {"graphalias"}
    requirements = [line for line in importlib.metadata.requires("graphalias") if "extra ==" not in line]
    assert packages == {re.match(r"[\w-]+", line)[0] for line in requirements}


@pytest.mark.parametrize("name", ["CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "constraints.txt"])
def test_repository_has(name):
    """What a repository of a library should have is there, and not empty."""
    assert (ROOT / name).read_text().strip()
