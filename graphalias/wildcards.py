"""A piece of code as a pattern: captured with examples of what its parameters stand for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from graphalias.errors import RewriteError
from graphalias.graph import Operation, Program, Storage, Symbol, Value
from graphalias.matching import ANY, Pattern, is_same_plain, wildcards_in
from graphalias.parser import parse
from graphalias.replay import function_of, parameters_of, replay
from graphalias.tracing.arguments import Arguments
from graphalias.tracing.handles import Handles

#: What a pattern's tensors are while it is captured, unless it says otherwise.
EXAMPLE_TYPE = "f32[4,4]"

Code = Callable[..., Any] | Program | str


class Wildcard(NamedTuple):
    """The default of a pattern's parameter that stands for any plain argument, with two examples of it.

    A number, a bool or a dtype as default does the same; the second example is found then.

    Attributes
    ----------
    example, other : object
        Two arguments that the pattern can be captured with.

    Examples
    --------
    >>> import torch, graphalias
    >>> def moved(x, dims=graphalias.Wildcard((0, 1), (1, 0))):
    ...     return x.permute(dims).clone()
    >>> graphalias.Rule(moved, lambda x, dims: torch.ops.aten.permute_copy(x, dims))
    <Rule moved: aten.permute.default, aten.clone.default>
    """

    example: Any
    other: Any


def as_pattern(code: Code, types: Mapping[str, str]) -> tuple[Program, dict[str, Any] | None]:
    """Return a pattern's program, with wildcards, and an example of each."""
    if not callable(code):
        return _program_of(code), {}
    examples = {p.name: p.default for p in _parameters(code)}
    plain = {name: _pair(name, default) for name, default in examples.items() if default is not inspect.Parameter.empty}
    tensors = {name: _example(name, types.get(name, EXAMPLE_TYPE)) for name in examples if name not in plain}
    if unknown := types.keys() - tensors.keys():
        raise RewriteError(f"a type of {min(unknown)!r}, which is no tensor of the pattern")
    first = {name: pair.example for name, pair in plain.items()}
    program = captured = replay(code, tensors, first)
    for name, pair in plain.items():
        other = replay(code, tensors, {**first, name: pair.other})
        program = _with_wildcard(program, (captured, other), name, pair)
    return program, first


def as_function(code: Code) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """Return a replacement as a function, and the names it takes."""
    if callable(code):
        return code, tuple(parameter.name for parameter in _parameters(code))
    program = _program_of(code)
    names = [value.name for value in program.inputs if not value.is_state]
    plain = [name for op in program.operations for name in wildcards_in([*op.args, *op.kwargs.values()])]
    return function_of(program), tuple(dict.fromkeys([*names, *plain]))


def _program_of(code: Program | str) -> Program:
    program = parse(code) if isinstance(code, str) else code
    if not isinstance(program, Program):
        raise RewriteError(f"expected functions, programs or their text, found {type(code).__name__}")
    return program


def _parameters(code: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(code).parameters.values())
    except ValueError as error:  # as of torch's own
        raise RewriteError(str(error), hint="call it in a function of your own: lambda x: torch.exp(x)") from error
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise RewriteError(f"a parameter {parameter}: expected parameters with a name each")
    return parameters


def _pair(name: str, default: Any) -> Wildcard:
    """Return two examples of a wildcard."""
    if isinstance(default, Wildcard):
        return default
    if isinstance(default, bool):
        return Wildcard(default, not default)
    if isinstance(default, (int, float)):
        return Wildcard(default, default + 1)
    if isinstance(default, torch.dtype):
        return Wildcard(default, torch.float64 if default is not torch.float64 else torch.float32)
    raise RewriteError(f"the default of {name!r} is {default!r}: expected a number, a bool, a dtype or a Wildcard",
                       hint="give two examples: Wildcard((0, 1), (1, 0))")  # fmt: skip


def _example(name: str, type_text: str) -> Value:
    program = parse(f"%x: {type_text} @s0 obj0 = input()\noutput(%x)")
    (value,) = program.inputs
    return Value(name, value.dtype, value.shape, storage=Storage(f"{name}:bytes", "input"),
                 object=f"{name}:object", stride=value.stride, offset=value.offset, device=value.device,
                 conj=value.conj, neg=value.neg)  # fmt: skip


def _with_wildcard(program: Program, captures: tuple[Program, Program], name: str, pair: Wildcard) -> Program:
    """Return a program with the wildcard where two captures, with two examples of it, differ."""
    show = Arguments(Handles()).show
    first, second = show(pair.example), show(pair.other)
    one, other = (capture.operations for capture in captures)
    if [op.target for op in one] != [op.target for op in other]:
        raise RewriteError(f"what the pattern runs depends on {name!r}", hint="make a rule for each case")
    operations, is_found = [], False
    for operation, *pairs in zip(program.operations, one, other, strict=True):
        parameters = parameters_of(operation.target)
        mine, theirs = (Pattern.arguments_of(capture, parameters) for capture in pairs)
        for key, argument in mine.items():
            if is_same_plain(_without_handles(argument), _without_handles(theirs[key])):
                continue
            if not (is_same_plain(argument, first) and is_same_plain(theirs[key], second)):
                raise RewriteError(f"the pattern computes with {name!r} before {operation.target} takes it",
                                   hint="pass it as it is, and compute in the replacement or in where")  # fmt: skip
            operation, is_found = _with_argument(operation, [n for n, _ in parameters], key, Symbol(ANY, name)), True
        operations.append(operation)
    if not is_found:
        raise RewriteError(f"the pattern never uses its parameter {name!r}", hint="remove it, or use it")
    return program.replace_operations(operations)


def _without_handles(argument: Any) -> Any:
    """Return an argument without its handles: two captures have handles of their own."""
    if isinstance(argument, Value):
        return argument.name
    return [_without_handles(item) for item in argument] if isinstance(argument, (list, tuple)) else argument


def _with_argument(operation: Operation, names: list[str], key: str, argument: Any) -> Operation:
    position = names.index(key) if key in names else int(key)
    if position < len(operation.args):
        args = (*operation.args[:position], argument, *operation.args[position + 1 :])
        return operation.replace(args=args)
    return operation.replace(kwargs={**operation.kwargs, key: argument})
