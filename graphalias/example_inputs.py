"""Example arguments from text: ``f32[4,6] stride(1,4)``, ``f32[4] offset(2) @buffer``, ``3``, ``[f32[2], f32[2]]``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from graphalias.errors import GraphAliasError, ParseError
from graphalias.graph import Value
from graphalias.overlap import byte_range
from graphalias.parser import parse
from graphalias.symbols import DTYPES
from graphalias.view_text import ViewText, read_view

#: Integers are drawn below this: small enough to be an index of most things.
LARGEST_INTEGER = 4

_KEYWORD = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)\s*")
_TENSOR = re.compile(r"([A-Za-z]\w*)\s*\[")
_PLACE = re.compile(r"@\s*([\w.:]+)\s*([\w.:]+)?\s*$")


def make_inputs(texts: Iterable[str], *, seed: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments that texts describe.

    Parameters
    ----------
    texts : iterable of str
        Each a tensor's type as in a printed program (``f32[4,6]``, ``f32[4,6] stride(1,4) offset(2)``), a Python
        literal, or a list of these in brackets. ``name=`` in front makes a keyword argument, and later texts may be
        views of it: ``x[1:]``, ``x.t()``. Tensors with the same ``@name`` behind them share a storage; with the same
        ``@name object`` they are one tensor.
    seed : int
        Of the values: floating-point numbers are normally distributed, integers are below 4.

    Returns
    -------
    args : tuple
    kwargs : dict

    Raises
    ------
    ParseError
        If a text is neither.

    Examples
    --------
    >>> (x, row, scale), options = make_inputs(["f32[2,3] @a", "f32[3] offset(3) @a", "0.5", "axis=1"])
    >>> bool((x[1] == row).all()), scale, options
    (True, 0.5, {'axis': 1})
    """
    maker, args, kwargs = _Maker(), [], {}
    for text in texts:
        keyword = _KEYWORD.match(text)
        if keyword is None:
            args.append(maker.read(text))
        else:
            kwargs[keyword[1]] = maker.read(text[keyword.end() :])
            maker.names.add(keyword[1])
    tensors = maker.make(torch.Generator().manual_seed(seed))
    named: dict[str, Any] = {}
    for key, arg in kwargs.items():  # a view is of what comes before it
        named[key] = _fill_in(arg, tensors, named)
    return tuple(_fill_in(arg, tensors, named) for arg in args), named


def _fill_in(argument: Any, tensors: dict[str, torch.Tensor], named: dict[str, Any]) -> Any:
    """Return an argument with the tensors in the place of their handles, and the views of named ones made."""
    if isinstance(argument, list):
        return [_fill_in(item, tensors, named) for item in argument]
    if isinstance(argument, ViewText):
        return argument.make(named)
    return tensors[argument.object] if isinstance(argument, Value) else argument


class _Maker:
    """Reads every text first, since the size of a storage is known only then."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.names: set[str] = set()

    def read(self, text: str) -> Any:
        """Return the handle of a tensor that is still to be made, a literal, or a list."""
        text = text.strip()
        tensor = _TENSOR.match(text)
        if tensor and tensor[1] not in self.names:
            if tensor[1] not in DTYPES:
                raise ParseError(
                    f"the input {text!r}: unknown dtype {tensor[1]!r}, and no input before it has that name",
                    hint="a view needs a named input before it: 'x=f32[4]', then 'y=x[1:]'; "
                    f"dtypes are {', '.join(DTYPES)}",
                )
            return self._read_tensor(text)
        if text.startswith("[") and text.endswith("]"):
            return [self.read(item) for item in _split(text[1:-1])]
        view = read_view(text, self.names)
        if view is not None:
            return view
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise ParseError(
                f"the input {text!r} is neither a tensor's type nor a Python literal",
                hint="write 'f32[4,6]' for a tensor, 'y=x[1:]' for a view of an earlier 'x=f32[4]', "
                "'3' or 'True' for a value, '\"mean\"' (with quotes) for a string",
            ) from error

    def _read_tensor(self, text: str) -> Value:
        unnamed = f"{len(self.values)}"
        place = _PLACE.search(text)
        kind = text[: place.start()] if place else text
        storage, name = (place[1], place[2] or unnamed) if place else (f"unnamed:{unnamed}", unnamed)
        value = _parse_type(kind.strip(), storage, f"{storage}.{name}")
        known = next((known for known in self.values if known.object == value.object), value)
        if known.geometry != value.geometry:
            raise ParseError(
                f"the input {text!r} is the tensor {name!r} on @{storage}, which has another type before it"
            )
        self.values.append(value)
        return value

    def make(self, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Return the tensors by their objects. The first tensor on a storage says what the storage is filled with."""
        ends: dict[str, int] = {}
        for value in self.values:
            span = byte_range(value.access)
            ends[value.storage.name] = max(ends.get(value.storage.name, 0), span[1] if span else 0)
        storages: dict[str, torch.UntypedStorage] = {}
        tensors: dict[str, torch.Tensor] = {}
        for value in self.values:
            name = value.storage.name
            if name not in storages:
                storages[name] = _storage_for(value, ends[name], generator)
            if value.object not in tensors:
                tensors[value.object] = _tensor_on(storages[name], value)
        return tensors


def _parse_type(text: str, storage: str, name: str) -> Value:
    """Return the handle of that type, read as the type of a program's input is."""
    before = "%x: "
    try:
        value = parse(f"{before}{text} @{storage} {name} = input()\noutput()").inputs[0]
    except ParseError as error:
        message = _about_text(error.message, text, len(before))
        raise ParseError(f"the input {text!r}: {message}", hint=error.hint or "a tensor is e.g. 'f32[4,6]'") from error
    if min((*value.shape, *value.stride, value.offset), default=0) < 0:
        raise ParseError(f"the input {text!r}: sizes, strides and offsets are not negative")
    if value.neg or value.dtype not in DTYPES:
        raise ParseError(f"the input {text!r}: no such tensor can be made")
    return value


def _about_text(message: str, text: str, skipped: int) -> str:
    """Return a parser's message as one about the text alone, not about the line it was read in."""
    place = re.match(r"line 1, column (\d+): (.*)", message)
    if place is None:
        return message
    rest = text[int(place[1]) - 1 - skipped :].strip()
    expected = place[2].replace("expected @storage", "expected stride(...), offset(...), device(...) or @name")
    return re.sub(", found '.*", f", found {rest!r}" if rest else ", found the end", expected)


def _split(text: str) -> Iterator[str]:
    """Yield the items of a list; a comma within brackets or quotes separates none.

    >>> [item.strip() for item in _split("f32[2,3] stride(1,2), 'a,b', [1, 2]")]
    ['f32[2,3] stride(1,2)', "'a,b'", '[1, 2]']
    """
    depth, item = 0, ""
    for token in re.findall(r"'[^']*'|\"[^\"]*\"|.", text, re.DOTALL):
        depth += (token in "([{") - (token in ")]}") if len(token) == 1 else 0
        if token == "," and depth == 0:
            yield item
            item = ""
        else:
            item += token
    if item.strip():
        yield item


def _storage_for(value: Value, size_bytes: int, generator: torch.Generator) -> torch.UntypedStorage:
    """Return a storage filled with random elements of the value's dtype."""
    try:
        storage = torch.UntypedStorage(size_bytes)
        count = size_bytes // value.itemsize
        elements = torch.empty(0, dtype=DTYPES[value.dtype]).set_(storage, 0, (count,), (1,))  # type: ignore[call-overload]
        elements.copy_(_draw(elements, generator))
        return elements.to(value.device).untyped_storage()
    except (RuntimeError, AssertionError) as error:  # the latter: torch was built without that device
        raise GraphAliasError(f"can't make the input {value.dtype}{list(value.shape)}: {error}") from error


def _draw(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if like.is_complex():
        return torch.randn(like.shape, dtype=torch.complex64, generator=generator)
    if like.is_floating_point():
        return torch.randn(like.shape, generator=generator)
    return torch.randint(2 if like.dtype == torch.bool else LARGEST_INTEGER, like.shape, generator=generator)


def _tensor_on(storage: torch.UntypedStorage, value: Value) -> torch.Tensor:
    tensor = torch.empty(0, dtype=DTYPES[value.dtype], device=storage.device)
    tensor.set_(storage, value.offset, value.shape, value.stride)  # type: ignore[call-overload]
    return tensor.conj() if value.conj else tensor
