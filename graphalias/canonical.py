"""The canonical form of a region: equal for regions that differ in names only, so that one compiles for all."""

from __future__ import annotations

from dataclasses import replace

from graphalias.graph import Program, Storage, Value
from graphalias.text import print_program


def canonical_text(program: Program) -> str:
    """Return the text of a program with its names replaced by numbers in order, and without source lines.

    Two programs of equal text do the same on the same tensors.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s7 obj3 = input()
    ... %add_: f32[4] @s7 obj3 = aten.add_.Tensor(%x!, 1) reads(%x)  # model.py:7
    ... output(%add_)
    ... ''')
    >>> print(canonical_text(program))
    %v1: f32[4] @s0 o2 = input()
    %v4: f32[4] @s0 o2 = aten.add_.Tensor(%v1!, 1) reads(%v1)
    output(%v4)
    <BLANKLINE>
    """
    return print_program(_with_numbers(program))


def _with_numbers(program: Program) -> Program:
    """Return the program with numbers for names, those of its bodies too: each has its own."""
    values: dict[str, Value] = {}
    numbers: dict[str, int] = {}

    def number(kind: str, name: str) -> str:
        return f"{kind}{numbers.setdefault(f'{kind} {name}', len(numbers))}"

    def rename(value: Value) -> Value:
        if value.name not in values:
            storage = Storage(number("s", value.storage.name), value.storage.lifetime)
            values[value.name] = replace(
                value, name=number("v", value.name), storage=storage, object=number("o", value.object)
            )
        return values[value.name]

    operations = []
    names: dict[str, str] = {}
    for operation in program.operations:
        operation = operation.rename(rename)
        results = tuple(result and rename(result) for result in operation.results)
        name = next((result.name for result in results if result), number("v", f"op {operation.name}"))
        name = operation.name if operation.name == "output" else name
        names[operation.name] = name
        after = tuple(replace(edge, operation=names[edge.operation]) for edge in operation.after)
        body = operation.body and _with_numbers(operation.body)
        operations.append(operation.replace(name=name, results=results, after=after, location=None, body=body))
    return Program(operations)
