"""Views of named tensors from text: ``x[1:]``, ``x.t()``, ``x[0].view(2, 3)``; nothing else is evaluated."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from graphalias.errors import ParseError
from graphalias.torch_private import storage_key


@dataclass(frozen=True)
class ViewText:
    """A view that is still to be made."""

    text: str
    tree: ast.expr

    def make(self, named: Mapping[str, Any]) -> torch.Tensor:
        """Return the view of one of some tensors.

        Raises
        ------
        ParseError
            If the tensor has no such view, or what is made is none.
        """
        try:
            result, root = _evaluate(self.tree, named), named[_root(self.tree)]
        except Exception as error:  # whatever PyTorch says to it
            raise ParseError(f"the input {self.text!r}: {type(error).__name__}: {error}") from error
        if not isinstance(result, torch.Tensor) or storage_key(result) != storage_key(root):
            raise ParseError(
                f"the input {self.text!r} is no view: it has memory of its own", hint="write its type, as in 'f32[4,6]'"
            )
        return result


def read_view(text: str, names: Collection[str]) -> ViewText | None:
    """Return the view that a text describes, None where it does not begin with one of the names.

    Examples
    --------
    >>> x = torch.arange(6).view(2, 3)
    >>> read_view("x.t()[1:]", {"x"}).make({"x": x}).tolist()
    [[1, 4], [2, 5]]
    >>> read_view("f32[4]", {"x"}) is None
    True
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return ViewText(text, tree) if _root(tree) in names else None


def _root(tree: ast.expr) -> str:
    """Return the name that an expression of views begins with; an empty one where it is no such expression."""
    while not isinstance(tree, ast.Name):
        if isinstance(tree, ast.Call):
            tree = tree.func
            if not isinstance(tree, ast.Attribute):
                return ""
        if not isinstance(tree, (ast.Attribute, ast.Subscript)):
            return ""
        tree = tree.value
    return tree.id


def _evaluate(tree: ast.expr, named: Mapping[str, Any]) -> Any:
    if isinstance(tree, ast.Name):
        return named[tree.id]
    if isinstance(tree, ast.Call):
        keywords = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in tree.keywords}
        return _evaluate(tree.func, named)(*map(ast.literal_eval, tree.args), **keywords)
    if isinstance(tree, ast.Attribute):
        if tree.attr.startswith("_"):
            raise AttributeError(tree.attr)
        return getattr(_evaluate(tree.value, named), tree.attr)
    assert isinstance(tree, ast.Subscript)
    return _evaluate(tree.value, named)[_index(tree.slice)]


def _index(tree: ast.expr) -> Any:
    """Return an index: a literal, a slice, an ellipsis, or several."""
    if isinstance(tree, ast.Tuple):
        return tuple(map(_index, tree.elts))
    if isinstance(tree, ast.Slice):
        parts = (tree.lower, tree.upper, tree.step)
        return slice(*(None if part is None else ast.literal_eval(part) for part in parts))
    return ast.literal_eval(tree)
