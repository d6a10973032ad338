"""Views at the edges of a region go inside it: there they are index arithmetic, outside each is a call.

A region takes the handles it touches, so that it writes only their bytes. What it only reads, it can as well take as a
tensor that sees the same bytes in another shape, and what it makes it can return in the shape that is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from graphalias.folding import is_plain_view, moving_storages
from graphalias.graph import INPUT, OUTPUT, REGION, UPDATE_ALIASES, Operation, Program, Value
from graphalias.stages import AS_STRIDED, is_view


def absorb_views(program: Program) -> Program:
    """Return the program with views that only a region uses, or that are all that is used of its result, inside it.

    Views of other bytes than their base stay outside: parameters that are slices of one buffer share a compiled region.

    Parameters
    ----------
    program : Program
        With regions. It is left as it was.

    Returns
    -------
    Program

    Examples
    --------
    >>> import torch, graphalias
    >>> program = graphalias.capture(lambda x: x.t().mul(2).add(1).t(), torch.ones(2, 3))
    >>> partitioned = graphalias.partition(program, "inductor")
    >>> [op.name for op in partitioned.operations if op.is_compute]
    ['t', 'region_1', 't_1']
    >>> print(absorb_views(partitioned))
    %x: f32[2,3] @s0 obj0 = input()
    %region_1: (%t_1: f32[2,3] @s2 obj4) = region(%x) reads(%x) {
        %x: f32[2,3] @s0 obj0 = input()
        %t: f32[3,2] stride(1,3) @s0 obj1 = aten.t.default(%x)  # ...
        %mul: f32[3,2] stride(1,3) @s1 obj2 = aten.mul.Tensor(%t, 2) reads(%t)  # ...
        %add: f32[3,2] stride(1,3) @s2 obj3 = aten.add.Tensor(%mul, 1) reads(%mul)  # ...
        %t_1: f32[2,3] @s2 obj4 = aten.t.default(%add)  # ...
        output(%t_1)
    }
    output(%t_1)
    <BLANKLINE>
    """
    uses = Counter(value.name for op in program.operations for value in (*op.operands, *op.states))
    moving = moving_storages(program)
    waited_for = {edge.operation for op in program.operations for edge in op.after}
    candidates = (op for op in program.operations if op.name not in waited_for and _is_movable(op, moving))
    movable = {_one(op.results).name: op for op in candidates if uses[_one(op.results).name] == 1}
    users = {value.name: op for op in program.operations for value in op.operands}
    inside: set[str] = set()
    regions: dict[str, Operation] = {}
    for operation in program.operations:
        if operation.target == REGION:
            region = _absorb_results(_absorb_operands(operation, movable, inside), movable, uses, users, inside)
            regions[operation.name] = region
    operations = (regions.get(op.name, op) for op in program.operations if op.name not in inside)
    return program.replace_operations(operations)


def _is_movable(operation: Operation, moving: Collection[str]) -> bool:
    """Whether an operation is a view of all the bytes of its operand and of no others, or a new name of it."""
    if operation.target == UPDATE_ALIASES:
        return len(operation.operands) == 1
    if not is_plain_view(operation, moving) or operation.target == AS_STRIDED:
        return False
    return _span(operation.operands[0]) == _span(_one(operation.results))


def _one(results: Sequence[Value | None]) -> Value:
    """Return the only result."""
    (result,) = results
    assert result is not None
    return result


def _span(value: Value) -> tuple[int, int] | None:
    """Return the first and last element of a storage that a handle sees; None of an empty one, equal to no other."""
    if 0 in value.shape:
        return None
    steps = zip(value.shape, value.stride, strict=True)
    return value.offset, value.offset + sum((size - 1) * stride for size, stride in steps)


def _absorb_operands(region: Operation, movable: dict[str, Operation], inside: set[str]) -> Operation:
    """Return the region with the views it reads made inside, from what they are views of."""
    count = len(region.body.inputs)
    args, entering = list(region.args), [op for op in region.body.operations if op.target == INPUT]
    written = {region.operands[i].storage.name for i in region.writes}
    names = {value.name for op in region.body.operations for value in op.results if value}
    made: list[Operation] = []
    after = list(region.after)
    for i, operand in enumerate(region.operands[:count]):
        chain = _chain(operand, movable, inside)
        views = [link for link in chain if link.target != UPDATE_ALIASES]
        if not views or operand.storage.name in written or (root := chain[0].operands[0]).name in names:
            continue
        names.add(root.name)
        args[i] = root
        last = _one(entering[i].results)
        entered = replace(root, storage=last.storage)
        made += _made_inside(views, entered, last)
        entering[i] = Operation(root.name, INPUT, results=(entered,))
        after += [edge for link in chain for edge in link.after]
        inside |= {link.name for link in chain}
    rest = [op for op in region.body.operations if op.target != INPUT]
    body = region.body.replace_operations([*entering, *made, *rest])
    return region.replace(args=tuple(args), after=tuple(after), body=body)


def _chain(value: Value, movable: dict[str, Operation], inside: set[str]) -> list[Operation]:
    """Return the views and new names that lead to a handle, first the one that comes first, and are in no region."""
    chain: list[Operation] = []
    while value.name in movable and movable[value.name].name not in inside:
        chain.insert(0, movable[value.name])
        value = chain[0].operands[0]
    return chain


def _made_inside(views: list[Operation], base: Value, last: Value) -> list[Operation]:
    """Return the views of an input of a body; the last is what the body calls it."""
    made = []
    for view in views:
        result = last if view is views[-1] else replace(_one(view.results), storage=base.storage)
        made.append(_of(view, base).replace(name=result.name, results=(result,)))
        base = result
    return made


def _of(view: Operation, base: Value) -> Operation:
    """Return a view of another tensor."""
    return view.rename(lambda _: base).replace(after=())


def _absorb_results(
    region: Operation, movable: dict[str, Operation], uses: Counter[str], users: dict[str, Operation], inside: set[str]
) -> Operation:
    """Return the region with what is used of its results made inside."""
    outputs, results = list(region.body.outputs), list(region.results)
    known = {op.name: op for op in region.body.operations}
    made: list[Operation] = []
    for i in range(len(outputs)):
        while (view := _only_view(results[i], movable, uses, users)) is not None:
            if view.name not in known:  # else it is made there already, and again outside
                known[view.name] = _of(view, outputs[i])
                made.append(known[view.name])
            outputs[i], results[i] = _one(known[view.name].results), _one(view.results)
            inside.add(view.name)
    *operations, _ = region.body.operations
    body = region.body.replace_operations([*operations, *made, Operation(OUTPUT, OUTPUT, tuple(outputs))])
    return region.replace(results=tuple(results), body=body)


def _only_view(
    value: Value | None, movable: dict[str, Operation], uses: Counter[str], users: dict[str, Operation]
) -> Operation | None:
    """Return the view that is all that is used of a value; None where it is expanded: no tensor of its own."""
    if value is None or uses[value.name] != 1:
        return None
    user = users[value.name]
    is_it = is_view(user) and user.name in movable and _one(user.results).size_bytes == value.size_bytes
    return user if is_it else None
