"""Print a program, one line an operation and a region's body in braces; `parser` reads it back.

The text carries everything the passes use, so a pass is tested text in, text out, without torch::

    %x: f32[4,4] @s0 obj0 = input()
    %t_1: f32[4,4] stride(1,4) @s0 obj1 = aten.t.default(%x)
    %add__1: f32[4,4] @s0 obj0 = aten.add_.Tensor(%x!, 1) reads(%x)  # model.py:12
    %update_aliases_1: f32[4,4] stride(1,4) @s0 obj1 = update_aliases(%t_1) after(add__1 RAW)
    output(%update_aliases_1)

``!`` marks an operand whose bytes are written, ``~`` one whose object's geometry is. The body of a fusion region is a
program of its own, indented, whose names are its own too: its inputs are called as what enters::

    %add_: f32[4,4] @s0 obj0 = region(%x!) reads(%x) {
        %x: f32[4,4] @s0 obj0 = input()
        ...
        output()
    }
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

from graphalias.errors import GraphAliasError
from graphalias.graph import OUTPUT, Operation, Program, Symbol, Value, contiguous_stride

#: What the lines of a region's body begin with.
INDENT = "    "


def print_program(program: Program) -> str:
    """Return the text of a program, one line an operation, a region's body below its line."""
    return "\n".join(line for operation in program.operations for line in print_lines(operation)) + "\n"


def print_lines(operation: Operation) -> Iterator[str]:
    """Yield the lines of an operation: one, and of a region those of its body and the closing brace."""
    yield print_operation(operation)
    if operation.body is not None:
        for inner in operation.body.operations:
            for line in print_lines(inner):
                yield INDENT + line
        yield "}"


def print_operation(operation: Operation) -> str:
    """Return one operation as a line of text; of a region the first, which opens the brace."""
    marks = {i: "!" * (i in operation.writes) + "~" * (i in operation.reshapes) for i in range(len(operation.operands))}
    positions = iter(range(len(marks)))
    arguments = [_print_argument(argument, marks, positions) for argument in operation.args]
    arguments += [f"{key}={_print_argument(item, marks, positions)}" for key, item in operation.kwargs.items()]
    call = f"{operation.target}({', '.join(arguments)})"
    line = call if operation.target == OUTPUT else f"%{operation.name}: {_print_results(operation)} = {call}"
    if operation.states:
        line += f" states({_print_handles(operation.states)})"
    if operation.reads:
        line += f" reads({_print_handles([operation.operands[i] for i in operation.reads])})"
    if operation.after:
        line += f" after({', '.join(f'{after.operation} {after.reason}' for after in operation.after)})"
    if operation.body is not None:
        line += " {"
    if operation.location:
        line += f"  # {os.path.basename(operation.location)}"
    return line


def print_type(value: Value) -> str:
    """Return a handle's type, as in ``f32[4,4] stride(1,4)``; what is the default is left out."""
    if value.is_state:
        return "state"
    text = f"{value.dtype}[{','.join(map(str, value.shape))}]"
    if value.stride != contiguous_stride(value.shape):
        text += f" stride({','.join(map(str, value.stride))})"
    if value.offset:
        text += f" offset({value.offset})"
    if value.device != "cpu":
        text += f" device({value.device})"
    return text + " conj" * value.conj + " neg" * value.neg


def _print_handles(values: Iterable[Value]) -> str:
    return ", ".join(dict.fromkeys(f"%{value.name}" for value in values))


def _print_results(operation: Operation) -> str:
    def type_on(value: Value) -> str:
        return f"{print_type(value)} @{value.storage.name} {value.object}"

    if len(operation.results) == 1 and operation.results[0] and operation.results[0].name == operation.name:
        return type_on(operation.results[0])
    named = ("None" if value is None else f"%{value.name}: {type_on(value)}" for value in operation.results)
    return f"({', '.join(named)})"


def _print_argument(argument: Any, marks: dict[int, str], positions: Iterator[int]) -> str:
    if isinstance(argument, Value):
        return f"%{argument.name}{marks[next(positions)]}"
    if isinstance(argument, (list, tuple)):
        return f"[{', '.join(_print_argument(item, marks, positions) for item in argument)}]"
    if isinstance(argument, slice):
        parts = (argument.start, argument.stop, argument.step)
        return f"slice({', '.join(_print_argument(part, marks, positions) for part in parts)})"
    if isinstance(argument, complex):
        return f"complex({argument.real!r}, {argument.imag!r})"
    if isinstance(argument, str):
        return json.dumps(argument)
    if argument is None or isinstance(argument, (bool, int, float, Symbol)):
        return str(argument)
    raise GraphAliasError(f"an argument of type {type(argument).__name__} has no text", hint="bind it as opaque:name")
