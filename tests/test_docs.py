"""What the README and the notebooks show is what their code gives: ``python tools/update_docs.py`` renews it."""

import importlib.util

import nbformat
import pytest

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


def texts_of(notebook):
    """Return what each code cell prints and shows, as plain text."""
    # What a cell prints comes in one piece or in several, as time allows.
    return [
        "".join(output.get("text") or output.get("data", {}).get("text/plain") for output in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_outputs(path):
    """A notebook's outputs are those of its code, and it is small enough to keep."""
    assert texts_of(update_docs.run_notebook(path)) == texts_of(nbformat.read(path, as_version=4))
    assert path.stat().st_size < MOST_BYTES
