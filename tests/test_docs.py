"""What the README, the pages and the notebooks show is what their code gives; the site can be built.

``python tools/update_docs.py`` renews the README and the notebooks; the pages are written by hand.
"""

import doctest
import importlib.util
import re
import subprocess
import sys

import nbformat
import pytest

import graphalias
from shared import ROOT

SPEC = importlib.util.spec_from_file_location("update_docs", ROOT / "tools" / "update_docs.py")
update_docs = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(update_docs)

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_BYTES = 200_000


def test_readme_example(tmp_path):
    """The README's example prints and draws what is shown below it."""
    example = update_docs.EXAMPLE.search((ROOT / "README.md").read_text())
    assert update_docs.run_example(example["source"], tmp_path) == example["output"]
    drawn = update_docs.DRAWN_WORDS.findall((tmp_path / "step.svg").read_text())
    shown = update_docs.DRAWN_WORDS.findall((ROOT / "docs" / "images" / "step.svg").read_text())
    assert sorted(drawn) == sorted(shown)


#: Times, and ratios of times, differ from run to run.
MEASURED = re.compile(r"\d[\d.]* (us|x)\b")


def texts_of(notebook):
    """Return what each code cell prints and shows, as plain text without what was measured."""
    # What a cell prints comes in one piece or in several, as time allows.
    return [
        MEASURED.sub(
            r"\1", "".join(output.get("text") or output.get("data", {}).get("text/plain") for output in cell.outputs)
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_outputs(path):
    """A notebook's outputs are those of its code, and it is small enough to keep."""
    assert texts_of(update_docs.run_notebook(path)) == texts_of(nbformat.read(path, as_version=4))
    assert path.stat().st_size < MOST_BYTES


PAGES = sorted((ROOT / "docs").rglob("*.md"))
EXAMPLES = re.compile(r"^```pycon\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT / "docs")))
def test_examples_of_pages(path):
    """What a page's examples print is what the page shows. They run in one go, from top to bottom."""
    text = path.read_text()
    lines = [""] * (text.count("\n") + 1)
    for block in EXAMPLES.finditer(text):  # in their places, so that a failure says the line of the page
        first = text.count("\n", 0, block.start(1))
        for number, line in enumerate(block[1].splitlines(), first):
            lines[number] = line
    name = path.relative_to(ROOT).as_posix()
    test = doctest.DocTestParser().get_doctest("\n".join(lines), {"__name__": "__main__"}, name, str(path), 0)
    told = []
    results = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=told.append)
    assert not results.failed, "".join(told)


def test_every_example_runs():
    """No page shows a session that is not run: all are in fences of their own."""
    for path in PAGES:
        text = path.read_text()
        assert len(re.findall(r"^\s*>>> ", text, re.MULTILINE)) == sum(
            len(re.findall(r"^>>> ", block[1], re.MULTILINE)) for block in EXAMPLES.finditer(text)
        )


def test_reference_is_complete():
    """Every public name is in the reference, once."""
    pages = "\n".join(path.read_text() for path in (ROOT / "docs" / "reference").glob("*.md"))
    assert sorted(re.findall(r"^::: graphalias\.(\w+)$", pages, re.MULTILINE)) == sorted(graphalias.__all__)


@pytest.mark.slow
def test_site(tmp_path):
    """The site is built without a warning, and shows nothing that is not in it."""
    pytest.importorskip("mkdocs", reason="the site needs `pip install -e '.[docs]'`")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr
    pages = [path.read_text() for path in tmp_path.rglob("*.html")]
    assert len(pages) > len(PAGES)
    assert not [
        found
        for page in pages
        for found in re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=.http[^>]*>", page)
    ]
