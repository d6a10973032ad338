"""Dead operations: those whose effects nobody can see."""

from __future__ import annotations

from collections.abc import Iterator

from graphalias.aliases import refuse_hazards
from graphalias.graph import CONSTANT, INPUT, OUTPUT, UPDATE_ALIASES, WAR, Operation, Program, Value, require_program


def eliminate_dead_operations(program: Program) -> Program:
    """Return the program without the operations whose effects nobody can see.

    An operation is live if the output is reached from it along DATA, RAW and WAW edges. A WAR edge keeps nothing alive.

    Parameters
    ----------
    program : Program
        Without hazards. It is left as it was.

    Returns
    -------
    Program
        Inputs and constants stay. An `update_aliases` left without purpose goes, its users take its operand.

    Raises
    ------
    HazardError
        If the program has hazards: mutations that no path leads from would be deleted.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %mul_1: f32[4] @s1 obj1 = aten.mul.Tensor(%x, 2) reads(%x)
    ... %neg__1: f32[4] @s1 obj1 = aten.neg_.default(%mul_1!) reads(%mul_1)
    ... output(%x)
    ... ''')
    >>> print(graphalias.eliminate_dead_operations(program))
    %x: f32[4] @s0 obj0 = input()
    output(%x)
    <BLANKLINE>
    """
    require_program(program, "eliminate_dead_operations")
    refuse_hazards(program, consequence="mutations would be deleted")
    return program.replace_operations(_without_dead(program, _live(program)))


def _live(program: Program) -> set[str]:
    """Return the names of the live operations. A joining node keeps nothing alive, but joins what is."""
    live, joining = {OUTPUT}, set[str]()
    for operation in reversed(program.operations):  # users come first, so one look at each is enough
        name = operation.name
        if name in live:
            edges = program.graph.in_edges(name, data="reason")
            live.update(before for before, _, reason in edges if reason != WAR)
        elif operation.target == UPDATE_ALIASES and not operation.operands:
            users = program.graph.successors(name)
            joining.update(name for user in users if user in live or user in joining)
    return live | joining


def _without_dead(program: Program, live: set[str]) -> Iterator[Operation]:
    """Yield the live operations; those after a dead one no longer are, and empty `update_aliases` are skipped."""
    renamed: dict[str, Value] = {}
    kept: set[str] = set()

    def newest(value: Value) -> Value:
        return renamed.get(value.name, value)

    for operation in program.operations:
        if operation.name not in live and operation.target not in (INPUT, CONSTANT):
            continue
        after = tuple(after for after in operation.after if after.operation in kept)
        if operation.target == UPDATE_ALIASES and not after:
            results = [result for result in operation.results if result]
            renamed |= {r.name: newest(v) for r, v in zip(results, operation.operands, strict=True)}
            continue
        kept.add(operation.name)
        operation = operation.rename(newest)
        yield operation if len(after) == len(operation.after) else operation.replace(after=after)
