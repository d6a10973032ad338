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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from graphalias.crop import crop
from graphalias.dot import print_dot
from graphalias.errors import GraphAliasError
from graphalias.graph import Program, require_program
from graphalias.style import DARK, LIGHT

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
        return show(repr(self), self)

    def __repr__(self) -> str:
        nodes = re.findall(r"^n\d+ \[", self.dot, re.MULTILINE)
        arrows = re.findall(r"^n\d+ -> n\d+", self.dot, re.MULTILINE)
        return f"<Drawing: {len(nodes)} nodes, {len(arrows)} arrows>"


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


def show(text: str, drawing: Drawing, markup: str = "") -> dict[str, str]:
    """Return what a notebook shows of a thing: its text, its drawing, and both together where the text is to be seen.

    Parameters
    ----------
    text : str
        For who can't see pictures.
    drawing : Drawing
    markup : str
        The text as HTML, if it is to stand above the drawing.
    """
    bundle = {"text/plain": text, "image/svg+xml": drawing.svg}
    if markup:
        bundle["text/html"] = f"{markup}\n{drawing.svg[drawing.svg.index('<svg') :]}"
    return bundle


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
    program_or_before: Program | Sequence[Program] | Mapping[str, Program],
    after: Program | None = None,
    path: str | os.PathLike[str] | None = None,
    *,
    limit: int = 200,
    focus: str | None = None,
    only: str | None = None,
    distance: int = 2,
    theme: str = "light",
) -> Drawing:
    """Draw a program, or several side by side with operations of the same name in the same row.

    Parameters
    ----------
    program_or_before : Program, or several
        The program; its hazards are red. A sequence is drawn as steps, left to right; a mapping by its titles.
    after : Program, optional
        What a pass made of it.
    path : str or path, optional
        Where to save the drawing (``.svg``, ``.png`` or ``.dot``).
    limit : int, default 200
        Nodes drawn of each program. Regions are drawn open where they fit, and closed otherwise. If that is still too
        many, all operations of one line of source are one node; if that is too, the first operations are drawn, and
        one node says how many the rest are.
    focus : str, optional
        Draw only this operation and what is near it, where a program has it.
    only : str, optional
        Draw only what touches the view group of this handle or storage.
    distance : int, default 2
        Arrows from ``focus`` to what is still near.
    theme : str, default "light"
        Or ``"dark"``.

    Returns
    -------
    Drawing

    Raises
    ------
    GraphAliasError
        If what is given is no program, the path has another suffix, or ``focus`` or ``only`` names nothing.

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
    if theme not in (LIGHT, DARK):
        raise GraphAliasError(f"there is no theme {theme!r}", hint="use light or dark")
    programs = _titled(program_or_before, after)
    crops = [crop(program, limit, focus=focus, only=only, distance=distance) for program in programs.values()]
    drawing = Drawing(print_dot(programs, crops, theme))
    if path is not None:
        drawing.save(path)
    return drawing


def _titled(given: Any, after: Program | None) -> dict[str, Program]:
    """Return the programs by their titles."""
    if isinstance(given, Mapping):
        programs = dict(given)
    elif isinstance(given, Sequence) and not isinstance(given, str):
        programs = {f"{number} {getattr(program, 'name', '')}": program for number, program in enumerate(given, 1)}
    else:
        programs = {getattr(given, "name", ""): given} if after is None else {"before": given, "after": after}
    for program in programs.values():
        require_program(program, "draw")
    return programs


def _suffix(path: str | os.PathLike[str]) -> str:
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in (".svg", ".png", ".dot"):
        raise GraphAliasError(
            f"a drawing can't be saved as {os.fspath(path)!r}", hint="let the path end in .svg, .png or .dot"
        )
    return suffix
