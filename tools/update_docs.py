"""Bring up to date what the documentation shows: ``python tools/update_docs.py``.

Runs the README's example, and writes what it printed below it and what it drew to docs/images/. Runs the notebooks and
keeps their outputs. tests/test_docs.py fails where this would change something a reader sees.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
README, NOTEBOOKS = ROOT / "README.md", ROOT / "notebooks"
#: The example, and what it prints.
EXAMPLE = re.compile(r"```python\n(?P<source>.*?)```\n\n```text\n(?P<output>.*?)```\n", re.DOTALL)
#: What Graphviz draws depends on the fonts of the machine, but for the words.
DRAWN_WORDS = re.compile(r"<text[^>]*>([^<]*)</text>")


def run_example(source: str, folder: Path) -> str:
    """Run an example as ``model.py`` in a folder, where it leaves its drawing, and return what it printed."""
    (folder / "model.py").write_text(source)
    environment = {key: value for key, value in os.environ.items() if key != "GRAPHALIAS_DISABLE"}
    return subprocess.run(
        [sys.executable, "model.py"], cwd=folder, env={**environment, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip


def run_notebook(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with its outputs, and without what differs from run to run."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", ()):
            if "text" in output:  # a cell's file lies in a folder with the number of the process
                output["text"] = re.sub(r"\S*/ipykernel_\d+/", "", output["text"])
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def main() -> None:
    """Write the README, its picture and the notebooks."""
    text = README.read_text()
    example = EXAMPLE.search(text)
    with tempfile.TemporaryDirectory() as folder:
        output = run_example(example["source"], Path(folder))
        README.write_text(text[: example.start("output")] + output + text[example.end("output") :])
        (ROOT / "docs" / "images" / "step.svg").write_bytes((Path(folder) / "step.svg").read_bytes())
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        nbformat.write(run_notebook(path), path)


if __name__ == "__main__":
    main()
