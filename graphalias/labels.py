"""Labels of a drawing as Graphviz reads them: lines of text as markup, quoted strings, texts cut to a length."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence


def table(rows: str, spacing: int = 0) -> str:
    """Return rows as a table without borders."""
    return f'<table border="0" cellborder="0" cellspacing="{spacing}" cellpadding="0">{rows}</table>'


#: A line of a label: a text, a size in points, a colour and a tag.
Line = tuple[str, int, str, str]


def label(*lines: Line, align: str = "center") -> str:
    """Return a label of lines; empty ones are left out."""
    rows = [row(line, align) for line in lines if line[0]]
    return f"<{table(''.join(rows))}>" if rows else quote("")


def row(line: Line, align: str = "center", fill: str = "") -> str:
    """Return a line as the row of a table, on a background where one is given."""
    text, size, colour, tag = line
    inner = f"<{tag}>{escape(cut(text))}</{tag}>" if tag else escape(cut(text))
    background = f' bgcolor="{fill}"' if fill else ""
    return f'<tr><td align="{align}"{background}><font point-size="{size}" color="{colour}">{inner}</font></td></tr>'


#: Characters XML can't hold.
UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def escape(text: str) -> str:
    r"""Return a text as it stands in a label that is markup, where Graphviz still replaces ``\N`` by the node's name.

    >>> print(escape("<lambda> & \\N"))
    &lt;lambda&gt; &amp; \\N
    """
    printable = UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text).replace("\\", "\\\\")
    return html.escape(printable).replace("\r\n", "\n").replace("\n", "<br/>")


def quote(text: str) -> str:
    r"""Return a text as a quoted DOT string, in which neither backslashes nor entities mean anything.

    >>> print(quote('a->a & "\\N"'))
    "a->a &amp; \"\\N\""
    """
    printable = UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text).replace("&", "&amp;").replace("\\", "\\\\")
    return '"' + printable.replace('"', '\\"').replace("\r\n", "\n").replace("\n", "\\n") + '"'


def quote_tooltip(text: str) -> str:
    """Return a text as a quoted DOT string for a tooltip: Graphviz replaces escapes in it twice.

    It is cut: Graphviz reads no string longer than 16,384 characters.
    """
    return quote(cut(text, 600).replace("\\", "\\\\"))


def few(texts: Sequence[str], most: int = 3) -> str:
    """Return the first of the different texts, and how many more there are.

    >>> few(["a", "b", "a", "c", "d", "e"])
    'a, b, c, +2 more'
    """
    different = list(dict.fromkeys(texts))
    more = f", +{len(different) - most} more" if len(different) > most else ""
    return ", ".join(different[:most]) + more


def count(number: int, what: str) -> str:
    """Return a number of things.

    >>> count(1, "call"), count(0, "call")
    ('1 call', '0 calls')
    """
    return f"{number} {what}{'s' * (number != 1)}"


def cut(text: str, most: int = 60) -> str:
    """Return a text, or its beginning.

    >>> cut("a long text", 7)
    'a long…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"
