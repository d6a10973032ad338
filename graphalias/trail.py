"""Where a wrong order goes wrong: the first operation that reads something else, and the dependency that is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from graphalias.executors.eager import bind_inputs, run_operation, values_only
from graphalias.graph import Operation, Program
from graphalias.hazards import find_hazards
from graphalias.oracle import Scene, is_same


@dataclass(frozen=True)
class Blame:
    """What to say of a wrong order."""

    lines: tuple[str, ...]
    node: str | None = None
    location: str | None = None
    hint: str | None = None


def first_difference(
    program: Program, scene: Scene, order: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Blame:
    """Return the first operation, in program order, that an order gives another result, and why."""
    expected = _trail(program, scene, list(program.graph), args, kwargs)
    found = _trail(program, scene, order, args, kwargs)
    wrong = next((name for name in expected if not _is_same_trail(expected[name], found.get(name))), None)
    position = {name: i for i, name in enumerate(order)}
    broken = [hazard for hazard in find_hazards(program) if position[hazard.before] > position[hazard.after]]
    missing = next((hazard for hazard in broken if wrong in (hazard.before, hazard.after)), next(iter(broken), None))
    lines = [] if wrong is None else [f"the first operation that differs: {wrong}"]
    if missing is not None:
        lines.append(f"the missing dependency: {missing}")
        hint = "run insert_update_aliases on the program"
    else:
        hint = "the program states no access that this order breaks: check what its operations say they read and write"
    name = wrong or (missing.after if missing else None)
    return Blame(tuple(lines), name, program.operation(name).location if name else None, hint)


def _trail(
    program: Program, scene: Scene, order: Iterable[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, list[Any]]:
    """Return what each operation left in its results and written operands, right after it had run."""
    trail: dict[str, list[Any]] = {}
    with scene.restored():
        tensors = bind_inputs(program, args, kwargs)
        with values_only():
            for name in order:
                operation = program.operation(name)
                try:
                    run_operation(operation, tensors, program.bindings)
                except Exception as error:
                    trail[name] = [type(error).__name__]
                    break
                if operation.effects:  # a view that shows other contents is not to blame for them
                    # a kernel may leave out what nothing uses
                    left = [tensors.get(value.name) for value in _touched(operation)]
                    trail[name] = [_look(tensor) for tensor in left if isinstance(tensor, torch.Tensor)]
    return trail


def _touched(operation: Operation) -> list[Any]:
    results = [value for value in operation.results if value is not None and not value.is_state]
    return [*results, *operation.written]


def _look(tensor: torch.Tensor) -> Any:
    return tensor.detach().resolve_conj().resolve_neg().clone()


def _is_same_trail(expected: Sequence[Any], found: Sequence[Any] | None) -> bool:
    return found is not None and all(is_same(a, b) for a, b in zip(expected, found, strict=False))
