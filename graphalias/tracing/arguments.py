"""Arguments as a program shows them: handles, numbers, strings, lists, Symbols."""

from __future__ import annotations

from typing import Any

import torch

from graphalias.errors import CaptureError
from graphalias.graph import Symbol, Value
from graphalias.symbols import symbol_of
from graphalias.torch_private import is_same_generator
from graphalias.tracing.handles import Handles


class Arguments:
    """Shows arguments, and remembers the objects that have no text.

    Attributes
    ----------
    opaque : dict
        ``{"opaque:generator_1": the generator}``.

    Examples
    --------
    >>> arguments = Arguments(Handles())
    >>> [str(arguments.show(item)) for item in (2, torch.float32, torch.device("cpu"), torch.Generator())]
    ['2', 'dtype:f32', 'device:cpu', 'opaque:generator_1']
    """

    def __init__(self, handles: Handles) -> None:
        self.opaque: dict[str, Any] = {}
        self._handles = handles

    def show(self, argument: Any) -> Any:
        """Return an argument as the program shows it.

        Raises
        ------
        CaptureError
            If it depends on the run: symbolic sizes, storages, tensors the program does not know.
        """
        if isinstance(argument, torch.Tensor):
            return self.value_of(argument)
        if isinstance(argument, (list, tuple)):
            return [self.show(item) for item in argument]
        if argument is None or type(argument) in (bool, int, float, complex, str):
            return argument
        symbol = symbol_of(argument)
        if symbol is not None:
            return symbol
        if isinstance(argument, torch.dtype):
            raise CaptureError(f"can't capture {argument}", hint="use a dtype of plain strided tensors")
        if isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool, torch.UntypedStorage)):
            raise CaptureError(
                f"can't capture an argument of type {type(argument).__name__}", hint="pass a number or a tensor"
            )
        return Symbol("opaque", self.opaque_name(argument))

    def value_of(self, fake: torch.Tensor) -> Value:
        """Return the newest handle of a fake tensor."""
        value = self._handles.newest(fake)
        if value is None:
            raise CaptureError(
                "can't capture a tensor that no operation of the program made", hint="make it with PyTorch operations"
            )
        return value

    def opaque_name(self, thing: Any) -> str:
        """Return the name of an object that has no text; the same for the same object."""
        for key, known in self.opaque.items():
            is_generator = isinstance(thing, torch.Generator) and isinstance(known, torch.Generator)
            if known is thing or (is_generator and is_same_generator(known, thing)):
                return key.removeprefix("opaque:")
        name = self._handles.names.fresh(f"{type(thing).__name__.lower()}_1")
        self.opaque[f"opaque:{name}"] = thing
        return name


def call_without_generators(args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments without random generators: fakes draw nothing, and some shape rules don't take one."""
    plain_args = tuple(None if isinstance(item, torch.Generator) else item for item in args)
    return plain_args, {key: None if isinstance(item, torch.Generator) else item for key, item in kwargs.items()}


def flatten_results(result: Any) -> list[Any]:
    """Return what an operator returned, flattened: tensors, None, and numbers known from shapes."""
    if isinstance(result, (list, tuple)):
        return [leaf for item in result for leaf in flatten_results(item)]
    return [result]
