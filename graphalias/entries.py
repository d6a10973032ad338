"""What jit keeps of one kind of call: the program, lowered, and what it was made from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from graphalias.errors import ExecutorError
from graphalias.executors.eager import values_only
from graphalias.graph import Program
from graphalias.keys import module_of
from graphalias.lower import Compiled
from graphalias.signature import is_plain
from graphalias.torch_guards import module_dicts
from graphalias.torch_private import flatten
from graphalias.tracing.watch import Watch

#: In a program's text.
_STORAGES = re.compile(r" @s\d+ obj\d+")


@dataclass(frozen=True, eq=False)
class Entry:
    """One way to answer a kind of call: a program, or the original function (``compiled`` is None).

    ``watch`` is the Python state the program was made from, ``text`` the program as captured but for who shares memory,
    which its signature tells, and ``identities`` the ways in which arguments were the same tensor object in calls that
    gave this program: Python code may ask.
    """

    compiled: Compiled | None = None
    is_under_autocast: bool = False
    watch: Watch | None = None
    text: str = ""
    identities: set[tuple[int, ...]] = field(default_factory=set)

    def fits(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], identities: tuple[int, ...] | None = None
    ) -> dict[str, Any] | str:
        """Return the tensor of each input, or why the arguments do not fit."""
        if self.compiled is None:
            return {}
        changed = self.watch.change() if self.watch is not None else None
        if changed is not None:
            return f"{changed} changed"
        if identities is not None and identities not in self.identities:
            return "which arguments are the same tensor changed"
        try:
            return self.compiled.program.signature.bind(args, kwargs)
        except ExecutorError as error:
            return str(error)

    def run(self, tensors: Mapping[str, Any]) -> Any:
        """Run the program."""
        compiled = self.compiled
        assert compiled is not None
        arguments = [tensors[name] for name in compiled.inputs]
        try:
            if self.is_under_autocast:
                with values_only():
                    leaves = compiled.flat(*arguments)
            else:
                leaves = compiled.flat(*arguments)
        except Exception as error:
            raise compiled.explained(error) from error
        return compiled.program.signature.rebuild(leaves)


def text_of(program: Program) -> str:
    """Return a captured program's text without who shares memory, which its signature tells."""
    return _STORAGES.sub("", str(program))


def watch_of(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Watch:
    """Return a watch of the Python state that a function and its arguments hold.

    Tensors among the arguments may be others in the next call; a module's own are read anew.
    """
    leaves = [leaf for _, leaf in flatten((tuple(args), dict(kwargs)))[0]]
    holders = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor) and not is_plain(leaf)]
    return Watch([("", fn), *(("", holder) for holder in holders)], _read_anew(fn))


def _read_anew(fn: Callable[..., Any]) -> set[int]:
    """Return the ids of the dicts that hold a module's parameters and buffers: each call takes what is there."""
    module = module_of(fn)
    children = () if module is None else module.modules()
    return {id(held) for child in children for held in module_dicts(child)}
