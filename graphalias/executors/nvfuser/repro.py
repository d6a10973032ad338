"""A fusion as a script that runs alone, with constants in full: nvFuser prints six digits of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from graphalias.symbols import DTYPES


def repro_script(region: Any) -> str:
    """Return a script that defines a region's fusion and runs it on random inputs of its geometry."""
    lines = [
        "import torch",
        "from nvfuser_direct import DataType, FusionDefinition",
        "",
        with_full_constants(region.definition.rstrip(), region.constants),
        "",
        "with FusionDefinition() as fd:",
        "    nvfuser_fusion(fd)",
        "",
        "inputs = [",
        *(f"    {_random(value)},  # %{value.name}" for value in region.inputs),
        "]",
        "print(fd.execute(inputs))",
    ]
    return "\n".join(lines) + "\n"


def with_full_constants(text: str, constants: Iterable[float]) -> str:
    """Return a text with its six-digit numbers as the constants they stand for, where that is one alone.

    >>> with_full_constants("fd.ops.add(tv0, 0.333333)", [1 / 3, 1.0])
    'fd.ops.add(tv0, 0.3333333333333333)'
    """
    meant: dict[str, set[float]] = {}
    for number in constants:
        meant.setdefault(f"{number:#.6g}", set()).add(number)

    def full(found: re.Match[str]) -> str:
        known = meant.get(found[0], set())
        return repr(next(iter(known))) if len(known) == 1 else found[0]

    return re.sub(r"(?<![\w.])-?\d+\.\d*(?:e[+-]?\d+)?", full, text)


def _random(value: Any) -> str:
    """Return the text of a tensor of a handle's geometry."""
    size = f"{list(value.shape)}, {list(value.stride)}, dtype={DTYPES[value.dtype]}, device='cuda'"
    return f"torch.empty_strided({size}).random_(0, 2)"
