"""Draw a program, or two side by side, as SVG, PNG or DOT.

pygraphviz renders: its wheel carries Graphviz, so no ``dot`` is needed on the machine.
"""

from __future__ import annotations

import math
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from graphalias.dot import print_dot
from graphalias.errors import GraphAliasError
from graphalias.graph import Program

#: A bitmap of more takes over ten seconds, or is more than Cairo can hold.
MOST_PIXELS, MOST_PIXELS_A_SIDE = 40_000_000, 32_000

# Graphviz keeps global state: two threads may not lay out at once.
_graphviz = threading.Lock()


@dataclass(frozen=True)
class Drawing:
    """A drawing, rendered when it is looked at.

    Parameters
    ----------
    dot : str
        The DOT text: the same for the same programs.

    Examples
    --------
    >>> drawing = Drawing("digraph { before -> after }")
    >>> "</svg>" in drawing.svg
    True
    """

    dot: str

    @cached_property
    def svg(self) -> str:
        """The drawing as SVG."""
        return self._render("svg").decode()

    @cached_property
    def png(self) -> bytes:
        """The drawing as PNG: twice the size of the SVG on the screen, less where that would be enormous."""
        width, height = (float(size) for size in re.findall(r'="([\d.]+)pt"', self.svg)[:2])
        scale = min(2.0, math.sqrt(MOST_PIXELS / (width * height)), MOST_PIXELS_A_SIDE / max(width, height))
        return self._render("png", f"-Gdpi={72 * scale:.1f}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the drawing, as what the path's suffix says.

        Parameters
        ----------
        path : str or path
            Ends in ``.svg``, ``.png`` or ``.dot``.

        Raises
        ------
        GraphAliasError
            For any other suffix.
        """
        suffix = _suffix(path)
        content = self.png if suffix == ".png" else (self.svg if suffix == ".svg" else self.dot).encode()
        with open(path, "wb") as file:
            file.write(content)

    def _render(self, kind: str, options: str = "") -> bytes:
        with graphviz() as pygraphviz, _without_font_warnings():
            return pygraphviz.AGraph(string=self.dot).draw(format=kind, prog="dot", args=options)

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": repr(self), "image/svg+xml": self.svg}

    def __repr__(self) -> str:
        return f"<Drawing: {len(self.dot)} characters of DOT>"


@contextmanager
def graphviz() -> Iterator[Any]:
    """Give pygraphviz to one thread at a time.

    Raises
    ------
    GraphAliasError
        If it is not there.
    """
    try:
        import pygraphviz
    except ImportError as error:
        raise GraphAliasError(
            f"pygraphviz can't be imported: {error}",
            hint="pip install 'pygraphviz>=2.0.4', whose wheel carries Graphviz; `.dot` needs neither",
        ) from error
    with _graphviz:
        yield pygraphviz


@contextmanager
def _without_font_warnings() -> Iterator[None]:
    """Drop what fontconfig writes to the process's standard error, and nothing else.

    The one in pygraphviz's wheel is older than the configuration of many systems, and complains of each new word in it.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as written:
        kept = os.dup(2)
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            written.seek(0)
            rest = [line for line in written if not line.startswith(b"Fontconfig warning:")]
            os.write(2, b"".join(rest))


def draw(
    program_or_before: Program,
    after: Program | None = None,
    path: str | os.PathLike[str] | None = None,
    *,
    limit: int = 400,
) -> Drawing:
    """Draw a program, or two side by side with operations of the same name in the same row.

    Parameters
    ----------
    program_or_before : Program
        The program; its hazards are red.
    after : Program, optional
        What a pass made of it.
    path : str or path, optional
        Where to save the drawing (``.svg``, ``.png`` or ``.dot``).
    limit : int, default 400
        Nodes drawn of each program. The first operations in program order are, with the inputs they use; the rest
        is one node that says how many it stands for.

    Returns
    -------
    Drawing

    Raises
    ------
    GraphAliasError
        If what is given is no program, or the path has another suffix.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %view_1: f32[2,2] @s0 obj1 = aten.view.default(%x, [2, 2])
    ... %add__1: f32[4] @s0 obj0 = aten.add_.Tensor(%x!, 1) reads(%x)
    ... %sin_1: f32[2,2] @s1 obj2 = aten.sin.default(%view_1) reads(%view_1)
    ... output(%sin_1)
    ... ''')
    >>> drawing = draw(program, graphalias.insert_update_aliases(program))
    >>> print(drawing.dot.splitlines()[0])
    digraph {
    >>> "hazard RAW" in drawing.svg
    True
    """
    if path is not None:
        _suffix(path)
    given = [program_or_before] if after is None else [program_or_before, after]
    for program in given:
        if not isinstance(program, Program):
            raise GraphAliasError(
                f"draw takes a Program, not {type(program).__name__}", hint="graphalias.capture(fn, *args) makes one"
            )
    titles = [program_or_before.name] if after is None else ["before", "after"]
    drawing = Drawing(print_dot(dict(zip(titles, given, strict=True)), limit))
    if path is not None:
        drawing.save(path)
    return drawing


def _suffix(path: str | os.PathLike[str]) -> str:
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in (".svg", ".png", ".dot"):
        raise GraphAliasError(
            f"a drawing can't be saved as {os.fspath(path)!r}", hint="let the path end in .svg, .png or .dot"
        )
    return suffix
