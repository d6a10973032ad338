"""Views at once: a chain of them, of which only the last is used, is one ``as_strided`` of the first tensor.

It is also the view that costs Python least: a third of a slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from graphalias.graph import Operation, Program, Value
from graphalias.stages import AS_STRIDED, is_view


def fold_views(program: Program, storages: Collection[str] | None = None) -> Program:
    """Return the program with each view, or chain of views, replaced by one ``as_strided``.

    Parameters
    ----------
    program : Program
        It is left as it was.
    storages : collection of str, optional
        The storages whose tensors count their offsets as the program does; all when not given.

    Returns
    -------
    Program

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4,6] @s0 obj0 = input()
    ... %a: f32[2,6] offset(6) @s0 obj1 = aten.slice.Tensor(%x, 0, 1, 3)
    ... %b: f32[2] stride(6) offset(8) @s0 obj2 = aten.select.int(%a, 1, 2)
    ... output(%b)
    ... ''')
    >>> print(fold_views(program))
    %x: f32[4,6] @s0 obj0 = input()
    %b: f32[2] stride(6) offset(8) @s0 obj2 = aten.as_strided.default(%x, [2], [6], 8)
    output(%b)
    <BLANKLINE>
    """
    uses = Counter(value.name for op in program.operations for value in (*op.operands, *op.states))
    moving = moving_storages(program)
    links = {op.name: op for op in program.operations if is_plain_view(op, moving) and _is_counted(op, storages)}
    # kernels differ in the strides of dimensions of one element or none: what is returned shows them
    shown = [value for value in program.output.operands if min(value.shape, default=2) < 2]
    fixed = {value.object for value in shown} | {v.storage.name for v in shown if v.storage.lifetime == "local"}
    links = {name: op for name, op in links.items() if fixed.isdisjoint(_object_and_storage(op))}
    folded: set[str] = set()
    operations: list[Operation] = []
    for operation in reversed(program.operations):
        if operation.name in folded:
            continue
        if operation.name in links:
            root, passed = _root(operation, links, uses)
            folded |= passed
            operation = _as_strided(operation, root)
        operations.append(operation)
    return program.replace_operations(operations[::-1])


def moving_storages(program: Program) -> set[str]:
    """Return the storages of tensors whose geometry changes."""
    return {op.operands[i].storage.name for op in program.operations for i in op.reshapes}


def is_plain_view(operation: Operation, moving: Collection[str]) -> bool:
    """Whether an operation makes one view of one tensor, of the same dtype, on a storage not among ``moving``."""
    if not is_view(operation) or len(operation.results) != 1 or len(operation.operands) != 1:
        return False
    operand, result = operation.operands[0], operation.results[0]
    assert result is not None
    is_plain = not (operand.conj or operand.neg or result.conj or result.neg) and operand.dtype == result.dtype
    return is_plain and result.name == operation.name and result.storage.name not in moving


def counted_alike(program: Program) -> set[str]:
    """Return the storages of a captured program on which it counts offsets as the tensors do: one allocation each."""
    storages = {value.storage.name for op in program.operations for value in op.results if value}
    for value in (*program.inputs, *program.constants):
        if value.is_state:
            continue
        spec, tensor = (getattr(program.signature, name, {}).get(value.name) for name in ("inputs", "constants"))
        offset = spec.offset if spec is not None else tensor.storage_offset() if tensor is not None else None
        if offset != value.offset:
            storages.discard(value.storage.name)
    return storages


def _object_and_storage(view: Operation) -> tuple[str, str]:
    result = view.results[0]
    assert result is not None
    return result.object, result.storage.name


def _is_counted(operation: Operation, storages: Collection[str] | None) -> bool:
    return storages is None or operation.operands[0].storage.name in storages


def _root(operation: Operation, links: dict[str, Operation], uses: Counter[str]) -> tuple[Value, set[str]]:
    """Return what a chain of views begins with, and the views on the way that nothing else uses."""
    root, passed = operation.operands[0], set()
    while root.name in links and uses[root.name] == 1:
        link = links[root.name]
        passed.add(link.name)
        root = link.operands[0]
    return root, passed


def _as_strided(operation: Operation, root: Value) -> Operation:
    result = operation.results[0]
    assert result is not None
    return Operation(
        operation.name, AS_STRIDED, (root, list(result.shape), list(result.stride), result.offset),
        results=operation.results, location=operation.location,
    )  # fmt: skip
