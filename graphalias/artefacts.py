"""What is left of a compilation for who looks for it: files, log records, an entry in torch's trace.

``GRAPHALIAS_DUMP=folder`` writes every stage, in order, as text, DOT and SVG, in a folder for each compiled program.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path

from graphalias.draw import draw
from graphalias.graph import REGION, UPDATE_ALIASES, Program
from graphalias.lower import Compiled
from graphalias.passes import Passed
from graphalias.torch_private import is_traced, trace_artefact

logger = logging.getLogger("graphalias.compile")

#: Of the dumps of this process, each in a folder of its own.
_NUMBERS = itertools.count()

#: The environment variable that says where to.
DUMP = "GRAPHALIAS_DUMP"


def leave_artefacts(label: str, captured: Program, passed: Sequence[Passed], compiled: Compiled) -> None:
    """Log what was compiled, dump its stages where ``GRAPHALIAS_DUMP`` says so, and add it to torch's trace.

    Parameters
    ----------
    label : str
        What the function is called.
    captured : Program
    passed : sequence of Passed
        What each pass made of it.
    compiled : Compiled
    """
    if logger.isEnabledFor(logging.INFO):
        times = ", ".join(f"{one.name} {one.ms:.1f} ms" for one in passed)
        logger.info("%s: compiled %s; %s", label, _counts(compiled.program), times)
    logger.debug("%s: the program\n%s", label, compiled.program)
    logger.debug("%s: the generated function\n%s", label, compiled.source)
    if folder := os.environ.get(DUMP):
        dump(Path(folder) / _folder_name(label), [Passed("capture", captured, 0.0), *passed], compiled.source)
    if is_traced():
        for one in (Passed("capture", captured, 0.0), *passed):
            trace_artefact(f"graphalias_{one.name}", str(one.program))
        trace_artefact("graphalias_source", compiled.source)


def dump(folder: Path, stages: Sequence[Passed], source: str) -> None:
    """Write each stage as ``0_capture.txt``, ``.dot`` and ``.svg``, and the generated function as ``source.py``.

    A picture that can't be drawn is left out, with a warning: a dump must not stop what it looks at.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number, stage in enumerate(stages):
        path = folder / f"{number}_{stage.name}"
        path.with_suffix(".txt").write_text(str(stage.program))
        drawing = draw(stage.program)
        path.with_suffix(".dot").write_text(drawing.dot)
        try:
            path.with_suffix(".svg").write_text(drawing.svg)
        except Exception as error:
            logger.warning("%s.svg is left out: %s", path, error)
    (folder / "source.py").write_text(source)
    logger.info("dumped %s", folder)


def _folder_name(label: str) -> str:
    """Return a name that is one in this process and of processes side by side.

    >>> _folder_name("Net.<locals>.step").partition("-")[2]
    'Net._locals_.step'
    """
    return f"{os.getpid()}_{next(_NUMBERS)}-{re.sub(r'[^A-Za-z0-9.-]', '_', label)}"


def _counts(program: Program) -> str:
    targets = [operation.target for operation in program.operations if operation.is_compute]
    inserted = sum(operation.target == UPDATE_ALIASES for operation in program.operations)
    regions = targets.count(REGION)
    return f"{regions} regions and {len(targets) - regions} calls, {inserted} update_aliases"
