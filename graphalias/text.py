"""Print a program, one line an operation, and parse it back.

The text carries everything the passes use, so a pass is tested text in, text out, without torch::

    %x: f32[4,4] @s0 obj0 = input()
    %t_1: f32[4,4] stride(1,4) @s0 obj1 = aten.t.default(%x)
    %add__1: f32[4,4] @s0 obj0 = aten.add_.Tensor(%x!, 1) reads(%x)  # model.py:12
    %update_aliases_1: f32[4,4] stride(1,4) @s0 obj1 = update_aliases(%t_1) after(add__1 RAW)
    output(%update_aliases_1)

``!`` marks an operand whose bytes are written, ``~`` one whose object's geometry is.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from graphalias.errors import GraphAliasError, ParseError
from graphalias.graph import (
    CONSTANT,
    INPUT,
    ITEMSIZE_BYTES,
    OUTPUT,
    After,
    Operation,
    Program,
    Storage,
    Symbol,
    Value,
    contiguous_stride,
)

T = TypeVar("T")

def print_program(program: Program) -> str:
    """Return the text of a program, one line an operation."""
    return "\n".join(print_operation(operation) for operation in program.operations) + "\n"


def print_operation(operation: Operation) -> str:
    """Return one operation as a line of text."""
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


def parse(text: str, bindings: Mapping[str, Any] | None = None) -> Program:
    """Parse the text form of a program. Nothing in it is evaluated.

    Parameters
    ----------
    text : str
        One operation a line; empty lines and lines that begin with ``#`` are skipped.
    bindings : mapping, optional
        What constants (by name) and opaque arguments (``"opaque:name"``) stand for. Unbound ones parse but do not run.

    Returns
    -------
    Program

    Raises
    ------
    ParseError
        With the line and column, what was expected and found.

    Examples
    --------
    >>> program = parse('''
    ... %x: f32[2] @s0 obj0 = input()
    ... %neg_1: f32[2] @s1 obj1 = aten.neg.default(%x) reads(%x)
    ... output(%neg_1)
    ... ''')
    >>> program.outputs
    (%neg_1: f32[2] @s1 obj1,)
    """
    values: dict[str, Value] = {}
    storages: dict[str, Storage] = {}
    operations = [
        _Line(line, number, values, storages).operation()
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not operations or operations[-1].target != OUTPUT:
        raise ParseError("a program ends with a line output(...)", hint="add it, with the values returned")
    try:
        return Program(operations, bindings=bindings)
    except GraphAliasError as error:
        raise ParseError(f"the text is no program: {error}", node=error.node) from error


NAME, HANDLE, INTEGER = r"[\w.:]+", r"%[\w.]+", r"-?\d+"
NUMBER = r"-?(?:\d+\.\d*(?:e[+-]?\d+)?|\d+(?:e[+-]?\d+)?|inf|nan)(?![\w.])"
STRING = r'"(?:[^"\\]|\\.)*"'
WORDS = {"None": None, "True": True, "False": False}


class _Line:
    """A cursor over one line, which knows the handles and storages of the lines before."""

    def __init__(self, line: str, number: int, values: dict[str, Value], storages: dict[str, Storage]) -> None:
        self.line, self.number, self.column = line, number, 0
        self.values, self.storages = values, storages
        self.marks: list[str] = []

    def error(self, message: str, hint: str | None = None) -> ParseError:
        return ParseError(f"line {self.number}, column {self.column + 1}: {message}", hint=hint)

    def accept(self, pattern: str) -> str | None:
        """Consume what matches the pattern here, after blanks."""
        match = re.compile(rf"\s*({pattern})").match(self.line, self.column)
        if match is None:
            return None
        self.column = match.end()
        return match[1]

    def sees(self, pattern: str) -> bool:
        """Whether the pattern matches here, after blanks."""
        return re.compile(rf"\s*(?:{pattern})").match(self.line, self.column) is not None

    def expect(self, pattern: str, what: str) -> str:
        found = self.accept(pattern)
        if found is None:
            rest = self.line[self.column :].strip()[:30]
            raise self.error(f"expected {what}, found {rest!r}" if rest else f"expected {what}, found the line's end")
        return found

    def enclosed(self, item: Callable[[], T], brackets: str = "()") -> list[T]:
        """Read ``(item, item, ...)``."""
        opening, closing = brackets
        self.expect(re.escape(opening), repr(opening))
        items: list[T] = []
        while not self.accept(re.escape(closing)):
            if items:
                self.expect(",", f"',' or {closing!r}")
            items.append(item())
        return items

    def operation(self) -> Operation:
        results: list[Value | None] = []
        if self.accept(rf"{OUTPUT}(?=\s*\()"):
            name = target = OUTPUT
        else:
            name = self.expect(HANDLE, "%name or output(...)")[1:]
            self.expect(":", "':'")
            is_tuple = self.sees(r"\(")
            types = self.enclosed(self.named) if is_tuple else [(name, self.type())]
            self.expect("=", "'='")
            target = self.expect(NAME, "the target")
            results = [self.result(target, *item) if item else None for item in types]
        arguments = self.enclosed(self.argument)
        operation = Operation(
            name, target,
            args=tuple(item for key, item in arguments if key is None),
            kwargs={key: item for key, item in arguments if key is not None},
            results=tuple(results), **self.clauses(),
        )  # fmt: skip
        return self.with_effects(operation)

    def clauses(self) -> dict[str, Any]:
        """Read the clauses after the call, in any order, and the location."""
        found: dict[str, Any] = {}
        while keyword := self.accept(r"states|reads|after"):
            if keyword == "after":
                found["after"] = tuple(self.enclosed(lambda: After(self.expect(NAME, "an operation"), self.reason())))
            else:
                found[keyword] = tuple(self.enclosed(self.handle))
        location = self.accept(r"#.*")
        if location is None and self.line[self.column :].strip():
            self.expect("#", "reads(...), states(...), after(...) or # location")
        return {**found, "location": location[1:].strip() if location else None}

    def with_effects(self, operation: Operation) -> Operation:
        """Turn the names of reads(...) and the marks into positions."""
        read = {value.name for value in operation.reads}  # type: ignore[attr-defined]  # still handles here
        if unknown := read - {operand.name for operand in operation.operands}:
            raise self.error(f"reads(%{min(unknown)}), which is no operand of %{operation.name}")
        return operation.replace(
            reads=tuple(i for i, operand in enumerate(operation.operands) if operand.name in read),
            writes=tuple(i for i, mark in enumerate(self.marks) if "!" in mark),
            reshapes=tuple(i for i, mark in enumerate(self.marks) if "~" in mark),
        )

    def reason(self) -> str:
        return self.expect("RAW|WAR|WAW", "RAW, WAR or WAW")

    def integer(self) -> int:
        return int(self.expect(INTEGER, "an integer"))

    def handle(self) -> Value:
        name = self.expect(HANDLE, "%name")[1:]
        if name not in self.values:
            raise self.error(f"%{name} is used before any line results in it")
        return self.values[name]

    def named(self) -> tuple[str, dict[str, Any]] | None:
        if self.accept(r"None\b"):
            return None
        name = self.expect(HANDLE, "%name or None")[1:]
        self.expect(":", "':'")
        return name, self.type()

    def type(self) -> dict[str, Any]:
        dtype = self.expect(NAME, "a dtype")
        if dtype not in ITEMSIZE_BYTES:
            raise self.error(f"unknown dtype {dtype!r}", hint=f"known are {', '.join(ITEMSIZE_BYTES)}")
        fields: dict[str, Any] = {"dtype": dtype, "shape": ()}
        if dtype != "state":
            fields["shape"] = tuple(self.enclosed(self.integer, "[]"))
        while attribute := self.accept(r"(?:stride|offset|device|conj|neg)\b"):
            fields[attribute] = self.attribute(attribute)
        if len(fields.get("stride", fields["shape"])) != len(fields["shape"]):
            raise self.error(f"shape {list(fields['shape'])} and stride {list(fields['stride'])} differ in length")
        fields["storage"] = self.expect("@" + NAME, "@storage")[1:]
        fields["object"] = self.expect(NAME, "an object")
        return fields

    def attribute(self, attribute: str) -> Any:
        if attribute == "stride":
            return tuple(self.enclosed(self.integer))
        if attribute == "offset":
            return self.enclosed(self.integer)[0]
        return True if attribute in ("conj", "neg") else self.enclosed(lambda: self.expect(NAME, "a device"))[0]

    def result(self, target: str, name: str, fields: dict[str, Any]) -> Value:
        if name in self.values:
            raise self.error(f"%{name} is the result of two lines")
        lifetime = target if target in (INPUT, CONSTANT) else "local"
        storage = self.storages.setdefault(fields["storage"], Storage(fields["storage"], lifetime))
        self.values[name] = Value(name, **{**fields, "storage": storage})
        return self.values[name]

    def argument(self) -> tuple[str | None, Any]:
        key = self.accept(r"[A-Za-z_]\w*=")
        return (key[:-1] if key else None), self.value()

    def value(self) -> Any:
        if self.sees("%"):
            operand = self.handle()
            self.marks.append(self.accept("[!~]+") or "")
            return operand
        if self.sees(r"\["):
            return self.enclosed(self.value, "[]")
        for call, build in (("slice", slice), ("complex", complex)):
            if self.accept(rf"{call}(?=\()"):
                return build(*self.enclosed(self.value))
        if (text := self.accept(STRING)) is not None:
            return json.loads(text)
        if (text := self.accept(NUMBER)) is not None:
            return int(text) if re.fullmatch(INTEGER, text) else float(text)
        if (text := self.accept(r"[a-z_]+:[\w.:]+")) is not None:
            return Symbol(*text.split(":", 1))
        return WORDS[self.expect(r"None\b|True\b|False\b", "an argument")]
