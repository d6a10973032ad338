"""The project's errors: one base, a few kinds."""

from __future__ import annotations


class GraphAliasError(RuntimeError):
    """Base of every error this project raises.

    A message says what is wrong, at which operation, what was expected and found, where in the user's
    code, and what to do. It is a ``RuntimeError`` so that code written for eager PyTorch still catches it.

    Parameters
    ----------
    message : str
        What is wrong, with what was expected and found.
    node : str, optional
        Name of the operation in the program.
    location : str, optional
        ``file:line`` in the user's code.
    hint : str, optional
        What to do about it.

    Examples
    --------
    >>> print(GraphAliasError("two writers of %x", node="add__1", location="model.py:12", hint="write once"))
    two writers of %x
      at operation: add__1
      from: model.py:12
      what to do: write once
    """

    def __init__(
        self, message: str, *, node: str | None = None, location: str | None = None, hint: str | None = None
    ) -> None:
        self.message = message
        self.node = node
        self.location = location
        self.hint = hint
        details = (("at operation", node), ("from", location), ("what to do", hint))
        super().__init__("\n  ".join([message, *(f"{label}: {text}" for label, text in details if text)]))


class CaptureError(GraphAliasError):
    """A PyTorch program can't be captured faithfully."""


class HazardError(GraphAliasError):
    """A pass needs a program without hazards and was given one that has them."""


class ParseError(GraphAliasError):
    """The text is no program."""


class CheckError(GraphAliasError):
    """An invariant of the program does not hold."""


class VerificationError(GraphAliasError):
    """Some topological order, or the executor, gives another result than eager PyTorch."""


class RewriteError(GraphAliasError):
    """A rule can't be used, or rewriting does not come to an end: ``steps`` are what was done until then."""

    steps: object = None


class ExecutorError(GraphAliasError):
    """A program can't be run: an operation failed, or its inputs do not fit."""
