"""Names of torch's dtypes, devices, layouts and memory formats, there and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from graphalias.errors import ExecutorError
from graphalias.graph import ITEMSIZE_BYTES, Symbol

_LONG = {"u": "uint", "i": "int", "f": "float", "bf": "bfloat", "c": "complex"}


def _torch_dtype(name: str) -> torch.dtype | None:
    """Return the dtype of a short name (``f32``, ``f8e4m3fn``), None where this torch has none."""
    kind = name.rstrip("0123456789")
    long = name.replace("f8", "float8_") if name.startswith("f8") else _LONG.get(kind, kind) + name[len(kind) :]
    return getattr(torch, long, None)


DTYPES: dict[str, torch.dtype] = {name: dtype for name in ITEMSIZE_BYTES if (dtype := _torch_dtype(name))}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def symbol_of(argument: Any) -> Symbol | None:
    """Return the name of a torch object that text can carry, None for anything else.

    >>> str(symbol_of(torch.bfloat16)), str(symbol_of(torch.device("cuda", 1)))
    ('dtype:bf16', 'device:cuda:1')
    """
    if isinstance(argument, torch.dtype) and argument in DTYPE_NAMES:
        return Symbol("dtype", DTYPE_NAMES[argument])
    if isinstance(argument, torch.device):
        return Symbol("device", str(argument))
    for kind, type_ in (("layout", torch.layout), ("memory_format", torch.memory_format)):
        if isinstance(argument, type_):
            return Symbol(kind, str(argument).removeprefix("torch."))
    return None


def torch_object(symbol: Symbol, bindings: Mapping[str, Any]) -> Any:
    """Return the torch object, or the bound object, that a symbol names.

    Raises
    ------
    ExecutorError
        If nothing is bound to an opaque name.
    """
    if symbol.kind == "dtype":
        return DTYPES[symbol.name]
    if symbol.kind == "device":
        return torch.device(symbol.name)
    if symbol.kind in ("layout", "memory_format"):
        return getattr(torch, symbol.name)
    if str(symbol) not in bindings:
        raise ExecutorError(f"nothing is bound to {symbol}", hint="pass it in the program's bindings")
    return bindings[str(symbol)]
