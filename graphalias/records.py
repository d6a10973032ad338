"""An operation as a record of plain JSON, and back: loss-free, and nothing in it is evaluated.

Where the text form is for readers, a record is for other tools: every field has a name, nothing is left to defaults.
What JSON has no word for is an object of one key: ``{"handle": "x"}``, ``{"symbol": "dtype:f32"}``,
``{"float": "nan"}``, ``{"complex": [1.0, -2.0]}``, ``{"slice": [null, 2, null]}``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from graphalias.errors import GraphAliasError, ParseError
from graphalias.operation import RAW, WAR, WAW, After, Operation
from graphalias.values import ITEMSIZE_BYTES, Access, Storage, Symbol, Value

Record = dict[str, Any]

#: The fields of a handle that are one item.
VALUE_FIELDS = {"name": str, "dtype": str, "object": str, "device": str, "offset": int, "conj": bool, "neg": bool}

#: What makes the numbers and words that are objects of one key.
READERS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "complex": lambda parts: complex(*map(float, parts)),
    "symbol": lambda text: Symbol(*text.split(":", 1)),
}


def record_of(operation: Operation) -> Record:
    """Return an operation as plain JSON; a region without its body.

    Raises
    ------
    GraphAliasError
        If an argument is neither plain nor a `Symbol`.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %add__1: f32[4] @s0 obj0 = aten.add_.Tensor(%x!, inf) reads(%x)  # model.py:3
    ... output(%x) after(add__1 RAW)
    ... ''')
    >>> record = record_of(program.operation("add__1"))
    >>> record["target"], record["args"], record["writes"], record["results"][0]["storage"]
    ('aten.add_.Tensor', [{'handle': 'x'}, {'float': 'inf'}], [0], {'name': 's0', 'lifetime': 'input'})
    """
    return {
        "target": operation.target,
        "args": [_show(argument, operation) for argument in operation.args],
        "kwargs": {key: _show(argument, operation) for key, argument in operation.kwargs.items()},
        "results": [value and _lists(asdict(value)) for value in operation.results],
        "reads": list(operation.reads),
        "writes": list(operation.writes),
        "reshapes": list(operation.reshapes),
        "states": [value.name for value in operation.states],
        "after": [_after_record(after) for after in operation.after],
        "location": operation.location,
    }


def operation_from(name: str, record: Mapping[str, Any], values: dict[str, Value]) -> Operation:
    """Return the operation of a record.

    Parameters
    ----------
    name : str
    record : mapping
        As `record_of` makes it.
    values : dict
        The handles so far, by name; those the operation results in are added.

    Raises
    ------
    ParseError
        If the record is not of that form: says which field of which node.
    """

    def field(key: str, read: Callable[[Any], Any]) -> Any:
        try:
            return read(record[key])
        except ParseError as error:
            raise ParseError(f"{key}: {error.message}", node=name, hint=error.hint) from None
        except KeyError:
            raise ParseError(f"the field {key!r} is missing", node=name, hint=f"see {record_of.__name__}") from None
        except (TypeError, ValueError, AttributeError) as error:
            raise ParseError(
                f"{key}: expected what record_of makes, found {record[key]!r} ({error})", node=name
            ) from error

    arguments = {
        "args": field("args", lambda items: tuple(_read(item, values) for item in items)),
        "kwargs": field("kwargs", lambda items: {str(key): _read(item, values) for key, item in items.items()}),
        "states": field("states", lambda names: tuple(_handle(name, values) for name in names)),
    }
    operation = Operation(
        name, field("target", lambda item: _typed(item, str)),
        **arguments,
        results=field("results", lambda items: tuple(item and _new_value(item, values) for item in items)),
        after=field("after", lambda items: tuple(map(_after_from, items))),
        location=field("location", lambda item: item and _typed(item, str)),
    )  # fmt: skip
    count = len(operation.operands)
    effects = {key: field(key, lambda items: tuple(_below(i, count) for i in items)) for key in EFFECTS}
    return operation.replace(**effects)


EFFECTS = ("reads", "writes", "reshapes")


def _lists(item: Any) -> Any:
    """Return JSON's own: lists for tuples."""
    if isinstance(item, dict):
        return {key: _lists(part) for key, part in item.items()}
    return [_lists(part) for part in item] if isinstance(item, (list, tuple)) else item


def _show(argument: Any, operation: Operation) -> Any:
    if isinstance(argument, Value):
        return {"handle": argument.name}
    if isinstance(argument, Symbol):
        return {"symbol": str(argument)}
    if isinstance(argument, (list, tuple)):
        return [_show(item, operation) for item in argument]
    if isinstance(argument, slice):
        return {"slice": [_show(part, operation) for part in (argument.start, argument.stop, argument.step)]}
    if isinstance(argument, complex):
        return {"complex": [repr(argument.real), repr(argument.imag)]}
    if isinstance(argument, float) and not math.isfinite(argument):
        return {"float": repr(argument)}
    if argument is None or isinstance(argument, (bool, int, float, str)):
        return argument
    raise GraphAliasError(
        f"an argument of type {type(argument).__name__} has no record",
        node=operation.name, location=operation.location, hint="bind it as opaque:name",
    )  # fmt: skip


def _read(item: Any, values: Mapping[str, Value]) -> Any:
    if isinstance(item, list):
        return [_read(part, values) for part in item]
    if not isinstance(item, dict):
        return item
    if len(item) != 1:
        raise ValueError(f"an object of {len(item)} keys")
    ((kind, content),) = item.items()
    if kind == "handle":
        return _handle(content, values)
    if kind == "slice":
        return slice(*(_read(part, values) for part in content))
    if kind not in READERS:
        raise ParseError(f"unknown kind of argument {kind!r}", hint=f"known are handle, slice, {', '.join(READERS)}")
    return READERS[kind](content)


def _handle(name: str, values: Mapping[str, Value]) -> Value:
    if name not in values:
        raise ParseError(f"%{name} is used before any operation results in it")
    return values[name]


def _new_value(record: Mapping[str, Any], values: dict[str, Value]) -> Value:
    fields = dict(record)
    for key, kind in VALUE_FIELDS.items():
        _typed(fields[key], kind)
    if fields["name"] in values:
        raise ParseError(f"%{fields['name']} is the result of two operations")
    if fields["dtype"] not in ITEMSIZE_BYTES:
        raise ParseError(f"unknown dtype {fields['dtype']!r}", hint=f"known are {', '.join(ITEMSIZE_BYTES)}")
    fields["storage"] = Storage(**{key: _typed(item, str) for key, item in fields["storage"].items()})
    fields["shape"], fields["stride"] = (tuple(_typed(i, int) for i in fields[key]) for key in ("shape", "stride"))
    if len(fields["shape"]) != len(fields["stride"]):
        raise ParseError(f"shape {record['shape']} and stride {record['stride']} differ in length")
    value = values[fields["name"]] = Value(**fields)
    return value


def _after_record(after: After) -> Record:
    accesses = after.accesses and [_lists(access._asdict()) for access in after.accesses]
    return {"operation": after.operation, "reason": after.reason, "accesses": accesses}


def _after_from(record: Mapping[str, Any]) -> After:
    if record["reason"] not in (RAW, WAR, WAW):
        raise ParseError(f"unknown reason {record['reason']!r}", hint=f"known are {RAW}, {WAR}, {WAW}")
    accesses = record["accesses"] and tuple(Access(**_tuples(access)) for access in record["accesses"])
    return After(_typed(record["operation"], str), record["reason"], accesses or None)


def _tuples(record: Mapping[str, Any]) -> Record:
    return {key: tuple(item) if isinstance(item, list) else item for key, item in record.items()}


def _typed(item: Any, kind: type) -> Any:
    """Return the item, which must be of that very type: in JSON ``true`` is no number."""
    if type(item) is not kind:
        raise TypeError(f"no {kind.__name__}")
    return item


def _below(item: Any, count: int) -> int:
    if not 0 <= _typed(item, int) < count:
        raise ParseError(f"position {item}, where there are {count} operands")
    return item
