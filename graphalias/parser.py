"""Parse the text form of a program. Nothing in it is evaluated."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from graphalias.errors import ParseError
from graphalias.graph import Program
from graphalias.operation import CONSTANT, INPUT, OUTPUT, REGION, After, Operation
from graphalias.values import ITEMSIZE_BYTES, Storage, Symbol, Value

T = TypeVar("T")


def parse(text: str, bindings: Mapping[str, Any] | None = None) -> Program:
    """Parse the text form of a program. Nothing in it is evaluated.

    Parameters
    ----------
    text : str
        One operation a line; empty lines and lines that begin with ``#`` are skipped. A region's line ends in ``{``;
        its body follows, a program with names of its own, and a line ``}``.
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
    lines = enumerate(text.splitlines(), start=1)
    written = ((number, line) for number, line in lines if line.strip() and not line.lstrip().startswith("#"))
    return _read(written, _Scope(), bindings)


class _Scope:
    """The names of a program, or of a region's body, so far."""

    def __init__(self, opened: _Line | None = None) -> None:
        self.opened = opened  # the line of the region
        self.values: dict[str, Value] = {}
        self.storages: dict[str, Storage] = {}
        self.operations: set[str] = set()


def _read(lines: Iterator[tuple[int, str]], scope: _Scope, bindings: Mapping[str, Any] | None) -> Program:
    """Read a program up to the end of the text, or a region's body up to its brace."""
    operations: list[Operation] = []
    line = scope.opened or _Line("", 1, scope)
    for number, text in lines:
        line = _Line(text, number, scope)
        if scope.opened and line.accept(r"\}\s*$"):
            break
        operation = line.operation()
        scope.operations.add(operation.name)
        if operation.target == REGION:
            body = _read(lines, _Scope(line), bindings)
            body.name = operation.name
            operation = operation.replace(body=body)
        operations.append(operation)
    else:
        if scope.opened:
            raise scope.opened.error("the region's body is not closed", "end it with a line }")
    if not operations or operations[-1].target != OUTPUT:
        raise line.error("a program ends with a line output(...)", "add it, with the values returned")
    return Program(operations, bindings=bindings)


NAME, HANDLE, INTEGER = r"[\w.:]+", r"%[\w.]+", r"-?\d+"
NUMBER = r"-?(?:\d+\.\d*(?:e[+-]?\d+)?|\d+(?:e[+-]?\d+)?|inf|nan)(?![\w.])"
STRING = r'"(?:[^"\\]|\\.)*"'
WORDS = {"None": None, "True": True, "False": False}


class _Line:
    """A cursor over one line, which knows the names of the lines before."""

    def __init__(self, line: str, number: int, scope: _Scope) -> None:
        self.line, self.number, self.column = line, number, 0
        self.scope, self.values, self.storages = scope, scope.values, scope.storages
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
        opening, closing = brackets[0], brackets[1]
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
        if name in self.scope.operations:
            raise self.error(f"two operations of one name, {name!r}")
        arguments = self.enclosed(self.argument)
        operation = Operation(
            name, target,
            args=tuple(item for key, item in arguments if key is None),
            kwargs={key: item for key, item in arguments if key is not None},
            results=tuple(results), **self.clauses(target),
        )  # fmt: skip
        return self.with_effects(operation)

    def clauses(self, target: str) -> dict[str, Any]:
        """Read the clauses after the call, in any order, a region's brace, and the location."""
        found: dict[str, Any] = {}
        while keyword := self.accept(r"states|reads|after"):
            if keyword == "after":
                found["after"] = tuple(self.enclosed(self.after))
            else:
                found[keyword] = tuple(self.enclosed(self.handle))
        if target == REGION:
            if self.scope.opened:
                raise self.error("a region in a region's body")
            self.expect(r"\{", "'{' and the region's body below")
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

    def after(self) -> After:
        name = self.expect(NAME, "an operation")
        if name not in self.scope.operations:
            raise self.error(f"ordered after {name!r}, which is no earlier operation")
        return After(name, self.expect("RAW|WAR|WAW", "RAW, WAR or WAW"))

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
