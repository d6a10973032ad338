"""What an operation reads, writes, reshapes and touches: from its schema, its tags and the tensors it met.

Nothing here is a list of names, but for the holes of schemas below, each with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from graphalias.memory import Geometry

#: The outside world: what an operation without results and without declared writes must be there for.
WORLD = "world"

#: Note [Hidden writes]. Operators that write operands their schema does not mark, and when.
#: Batch norms of every backend update running statistics in training; the schemas predate ``Tensor(a!)``.
#: cuDNN's dropout state is a random generator in a tensor.
#: A ``c10d`` collective receives into the tensors it is given; ``wait_tensor`` makes them valid.
HIDDEN_WRITES: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any]], bool]]] = {
    "aten::native_batch_norm": (("running_mean", "running_var"), lambda call: call["training"]),
    "aten::cudnn_batch_norm": (("running_mean", "running_var"), lambda call: call["training"]),
    "aten::miopen_batch_norm": (("running_mean", "running_var"), lambda call: call["training"]),
    "aten::batch_norm_update_stats": (("running_mean", "running_var"), lambda call: True),
    "aten::batch_norm_gather_stats": (("running_mean", "running_var"), lambda call: True),
    "aten::batch_norm_gather_stats_with_counts": (("running_mean", "running_var"), lambda call: True),
    "aten::_cudnn_rnn": (("dropout_state",), lambda call: call["train"]),
    "_c10d_functional::wait_tensor": (("tensor",), lambda call: True),
}

#: Note [Unsaid views]. Operators that return views of an operand though their schema says fresh tensors: autograd
#: must not see the relation. They read no bytes.
UNSAID_VIEWS = frozenset(
    {"aten::_unsafe_view", "aten::unsafe_split", "aten::unsafe_split_with_sizes", "aten::unsafe_chunk"}
)

#: Namespaces of collectives. All processes must run them in the same order, so each touches the world.
COLLECTIVES = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd"})


@dataclass(frozen=True)
class Effects:
    """Positions of the operands that are read, written and reshaped, and the states an operation touches."""

    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    reshapes: tuple[int, ...] = ()
    is_worldly: bool = False


@dataclass(frozen=True)
class Operand:
    """A tensor among the arguments of a call, with what the schema says of its argument."""

    tensor: torch.Tensor
    name: str
    is_written: bool
    is_out: bool
    is_aliased: bool


def tensors_in(argument: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in an argument, in the order of `Operation.operands`."""
    if isinstance(argument, torch.Tensor):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for item in argument:
            yield from tensors_in(item)


def bind_schema(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """Return ``[(schema argument, what was passed), ...]``: positional ones first, then by name as given."""
    by_name = {argument.name: argument for argument in operator._schema.arguments}
    return [*zip(operator._schema.arguments, args, strict=False), *((by_name[key], kwargs[key]) for key in kwargs)]


def operands_of(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Operand]:
    """Return the tensors of a call with what its schema says of each.

    Examples
    --------
    >>> x = torch.zeros(2)
    >>> [(o.name, o.is_written, o.is_out) for o in operands_of(torch.ops.aten.add.out, (x, x), {"out": x})]
    [('self', False, False), ('other', False, False), ('out', True, True)]
    """
    hidden = _hidden_writes(operator, args, kwargs)
    operands = []
    for argument, passed in bind_schema(operator, args, kwargs):
        alias = argument.alias_info
        is_written = bool(alias and alias.is_write) or argument.name in hidden or operator.namespace == "c10d"
        operands += [
            Operand(tensor, argument.name, is_written, argument.is_out, alias is not None)
            for tensor in tensors_in(passed)
        ]
    return operands


def _hidden_writes(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    names, happens = HIDDEN_WRITES.get(operator._schema.name, ((), None))
    if happens is None:
        return ()
    call = {argument.name: passed for argument, passed in bind_schema(operator, args, kwargs)}
    return names if happens(call) else ()


def effects_of(
    operator: Any,
    operands: Sequence[Operand],
    before: Sequence[Geometry],
    after: Sequence[Geometry],
    result_storages: frozenset[int] | set[int],
) -> Effects:
    """Return what a call did.

    Parameters
    ----------
    operator : OpOverload
    operands : sequence of Operand
        From `operands_of`.
    before, after : sequence of Geometry
        Of each operand, before the call and after it.
    result_storages : set of int
        What the results lie on: "may alias" operations are told from copies by it.

    Returns
    -------
    Effects

    Examples
    --------
    >>> from graphalias.memory import geometry_of
    >>> x = torch.zeros(2)
    >>> operands = operands_of(torch.ops.aten.add_.Tensor, (x, 1), {})
    >>> effects_of(torch.ops.aten.add_.Tensor, operands, [geometry_of(x)], [geometry_of(x)], set())
    Effects(reads=(0,), writes=(0,), reshapes=(), is_worldly=False)
    """
    changes_geometry = torch.Tag.inplace_view in operator.tags
    # An operand that makes its storage grow writes what was not there before.
    writes = tuple(
        i for i, operand in enumerate(operands)
        if operand.is_written and (not changes_geometry or before[i].storage_bytes < after[i].storage_bytes)
    )  # fmt: skip
    reads = tuple(
        i for i, operand in enumerate(operands)
        if not changes_geometry and not operand.is_out
        and not _is_only_viewed(operator, operand, before[i].storage in result_storages)
    )  # fmt: skip
    reshapes = tuple(
        i for i, operand in enumerate(operands)
        if (changes_geometry and operand.is_written and operand.name == "self") or before[i][:-1] != after[i][:-1]
    )  # fmt: skip
    return Effects(reads, writes, reshapes, is_worldly(operator, operands))


def _is_only_viewed(operator: Any, operand: Operand, has_result: bool) -> bool:
    may_view = operand.is_aliased or operator._schema.name in UNSAID_VIEWS
    return may_view and has_result and not operand.is_written


def is_random(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call draws from a random generator. Attention that drops nothing does not, whatever its tag says."""
    arguments = operator._schema.arguments
    dropped = [argument.default_value for argument in arguments if argument.name == "dropout_p"]
    dropped += [passed for argument, passed in bind_schema(operator, args, kwargs) if argument.name == "dropout_p"]
    if dropped and dropped[-1] == 0:
        return False
    takes_generator = any(argument.name == "generator" for argument in arguments)
    return takes_generator or torch.Tag.nondeterministic_seeded in operator.tags


def is_factory(operator: Any) -> bool:
    """Whether an operator makes tensors of given options: ``empty``, ``rand_like``, ``new_zeros``."""
    return any(argument.name == "pin_memory" for argument in operator._schema.arguments)


def is_worldly(operator: Any, operands: Sequence[Operand]) -> bool:
    """Whether an operator acts outside the program: neither results nor declared writes, or a collective."""
    is_for_nothing = not operator._schema.returns and not any(operand.is_written for operand in operands)
    return operator.namespace in COLLECTIVES or is_for_nothing
