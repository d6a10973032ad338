"""One ATen call an operation: the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from typing import Any

import torch

from graphalias.errors import ExecutorError
from graphalias.graph import CONSTANT, INPUT, OUTPUT, REGION, UPDATE_ALIASES, Operation, Program, Symbol, Value
from graphalias.symbols import DTYPES, torch_object


def set_data(tensor: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Do ``tensor.data = source``, which no ATen operation does."""
    tensor.data = source
    return tensor


OWN_TARGETS = {"graphalias.set_data": set_data}


def is_available() -> bool:
    """Whether the executor works here: always."""
    return True


def why_not_fused(operation: Operation) -> str | None:
    """Return why an operation is not part of a region: none is."""
    return "the eager executor runs one operation at a time"


def gains_alone(operation: Operation) -> bool:
    """Return whether an operation is worth a region of its own: none is."""
    return False


def compile_region(region: Operation) -> Callable[..., Any]:
    """Return a function that runs a region's operations one by one."""

    def run_region(*tensors: torch.Tensor) -> list[Any]:
        inside = {value.name: tensor for value, tensor in zip(region.body.inputs, tensors, strict=True)}
        for inner in region.body.operations:
            run_operation(inner, inside, region.body.bindings, is_checked=False)
        return [inside[value.name] for value in region.body.outputs]

    return run_region


def callable_of(operation: Operation) -> Callable[..., Any]:
    """Return what an operation's target names.

    Raises
    ------
    ExecutorError
        If torch knows no such operator.
    """
    if operation.target in OWN_TARGETS:
        return OWN_TARGETS[operation.target]
    try:
        return attrgetter(operation.target)(torch.ops)
    except AttributeError:
        raise ExecutorError(
            f"torch has no operator {operation.target!r}",
            node=operation.name, location=operation.location,
            hint="load the library that defines it, or check its spelling: namespace.name.overload",
        ) from None  # fmt: skip


def resolve_argument(argument: Any, tensors: Mapping[str, Any], bindings: Mapping[str, Any]) -> Any:
    """Return an argument with tensors for handles and torch objects for symbols."""
    if isinstance(argument, Value):
        tensor = tensors[argument.name]
        if isinstance(tensor, ExecutorError):  # no handle that the program says
            raise tensor
        return tensor
    if isinstance(argument, Symbol):
        return torch_object(argument, bindings)
    if isinstance(argument, (list, tuple)):
        return [resolve_argument(item, tensors, bindings) for item in argument]
    if isinstance(argument, dict):
        return {key: resolve_argument(item, tensors, bindings) for key, item in argument.items()}
    return argument


def flatten_results(returned: Any) -> list[Any]:
    """Return the tensors (and Nones) an operator returned, through its lists and tuples, in order."""
    if isinstance(returned, (list, tuple)):
        return [leaf for item in returned for leaf in flatten_results(item)]
    return [returned]


@contextmanager
def values_only() -> Any:
    """No gradients are recorded and no autocast casts again: a program holds all that happens to values."""
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def bind_inputs(program: Program, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensor of each input and constant, by name. Nothing is touched.

    Raises
    ------
    ExecutorError
        If the arguments do not fit the program, or a constant is not bound.
    """
    if program.signature is not None:
        tensors = dict(program.signature.bind(args, kwargs))
    else:
        inputs = [value for value in program.inputs if not value.is_state]
        if kwargs or len(args) != len(inputs):
            raise ExecutorError(f"{program.name} takes {len(inputs)} tensors, found {len(args)}")
        tensors = {value.name: tensor for value, tensor in zip(inputs, args, strict=True)}
        for value in inputs:
            _check_input(value, tensors[value.name])
    for value in program.constants:
        if value.name not in program.bindings:
            raise ExecutorError(f"nothing is bound to the constant %{value.name}", node=value.name)
        tensors[value.name] = program.bindings[value.name]
    return tensors


def _check_input(value: Value, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor) or (tuple(tensor.shape), tensor.stride()) != (value.shape, value.stride):
        found = f"shape {list(tensor.shape)}, stride {tensor.stride()}" if isinstance(tensor, torch.Tensor) else tensor
        raise ExecutorError(f"expected {value!r}, stride {value.stride}, found {found}", node=value.name)


def returned_by(program: Program, leaves: list[Any]) -> Any:
    """Return what the captured function would, from the flat outputs."""
    return tuple(leaves) if program.signature is None else program.signature.rebuild(leaves)


def run(
    program: Program, args: Sequence[Any], kwargs: Mapping[str, Any], order: Iterable[str] | None = None,
    regions: Mapping[str, Callable[..., Any]] | None = None,
) -> Any:  # fmt: skip
    """Run a program operation by operation, see `Program.run`; regions by the functions given, where they are."""
    names = list(program.graph) if order is None else checked_order(program, order)
    tensors = bind_inputs(program, args, kwargs)
    with values_only():
        for name in names:
            run_operation(program.operation(name), tensors, program.bindings, regions=regions)
    leaves = [resolve_argument(leaf, tensors, program.bindings) for leaf in program.outputs]
    return returned_by(program, leaves)


def run_operation(
    operation: Operation, tensors: dict[str, Any], bindings: Mapping[str, Any], *, is_checked: bool = True,
    regions: Mapping[str, Callable[..., Any]] | None = None,
) -> None:  # fmt: skip
    """Run one operation, and name its results; check that each is the handle the program says.

    Raises
    ------
    ExecutorError
        If it fails. What the operations before it wrote stays written, as in eager PyTorch.
    """
    if operation.target in (INPUT, CONSTANT, OUTPUT):
        return
    if operation.target == UPDATE_ALIASES:
        returned: Any = [tensors[value.name] for value in operation.operands if not value.is_state]
    elif operation.target == REGION:
        returned = _run_region(operation, tensors, (regions or {}).get(operation.name) or compile_region(operation))
    else:
        target = callable_of(operation)
        args = resolve_argument(operation.args, tensors, bindings)
        kwargs = resolve_argument(dict(operation.kwargs), tensors, bindings)
        try:
            returned = target(*args, **kwargs)
        except Exception as error:
            raise failed(operation, error) from error
    results = [result for result in operation.results if result is None or not result.is_state]
    if results:
        for result, tensor in zip(results, flatten_results(returned), strict=True):
            if result is not None and tensor is not None:  # a kernel may leave out what nothing uses
                misfit = _misfit(operation, result, tensor) if is_checked else None
                if misfit is not None and any(result.object == operand.object for operand in operation.operands):
                    raise misfit
                tensors[result.name] = misfit or tensor  # of a new object it does not matter unless it is used


def _run_region(operation: Operation, tensors: Mapping[str, Any], run_region: Callable[..., Any]) -> list[Any]:
    """Run a region; return what it makes, and the operands it writes."""
    passed = [tensors[value.name] for value in operation.operands]
    try:
        made = list(run_region(*passed[: len(operation.body.inputs)]))
    except ExecutorError as error:
        raise error if error.node is not None else failed(operation, error) from error
    torch.autograd.graph.increment_version(passed[len(operation.body.inputs) :])  # written through another handle
    objects = {value.object: tensor for value, tensor in zip(operation.operands, passed, strict=True)}
    return made + [objects[result.object] for result in operation.results[len(made) :] if result]


def _misfit(operation: Operation, result: Value, tensor: torch.Tensor) -> ExecutorError | None:
    """Return the error of a result that is not the handle the program says: overlap is worked out from handles."""
    if operation.target == UPDATE_ALIASES:
        return None
    steps = [step for size, step in zip(result.shape, result.stride, strict=True) if size > 1]
    found = [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
    is_same = tuple(tensor.shape) == result.shape and tensor.dtype == DTYPES[result.dtype]
    if not is_same or (tensor.numel() and (found != steps or tensor.storage_offset() != result.offset)):
        return ExecutorError(
            f"expected {result!r}, stride {result.stride}, offset {result.offset}; {operation.target} returned "
            f"{tensor.dtype} {list(tensor.shape)}, stride {tensor.stride()}, offset {tensor.storage_offset()}",
            node=operation.name, location=operation.location,
            hint="torch's shape rule for this operator differs from its kernel: report it, or call it outside",
        )  # fmt: skip
    return None


def failed(operation: Operation, error: Exception) -> ExecutorError:
    """Return the error that says which operation failed, and why. It is also of the kind that eager PyTorch raises."""
    kind = _error_kind(type(error))
    return kind(
        f"{operation.target} failed: {type(error).__name__}: {error}", node=operation.name, location=operation.location
    )


def _error_kind(raised: type[Exception]) -> type[ExecutorError]:
    """Return ExecutorError as a kind of another error too: ``except IndexError`` catches what it caught in eager.

    >>> issubclass(_error_kind(IndexError), IndexError), _error_kind(RuntimeError) is ExecutorError
    (True, True)
    """
    if raised not in _error_kinds:
        try:
            _error_kinds[raised] = type(
                ExecutorError.__name__, (ExecutorError, raised), {"__module__": ExecutorError.__module__}
            )
        except TypeError:  # the two can't be one class
            _error_kinds[raised] = ExecutorError
    return _error_kinds[raised]


_error_kinds: dict[type[Exception], type[ExecutorError]] = {RuntimeError: ExecutorError}


def checked_order(program: Program, order: Iterable[str]) -> list[str]:
    """Return the order as a list.

    Raises
    ------
    ExecutorError
        If it is no topological order of all nodes: names the first node out of place.
    """
    names = list(order)
    position = {name: i for i, name in enumerate(names)}
    if unknown := [name for name in names if name not in program.graph]:
        raise ExecutorError(f"the order has {unknown[0]!r}, which is no node of the program")
    if missing := [name for name in program.graph if name not in position]:
        raise ExecutorError("the order leaves out a node", node=missing[0])
    if len(names) != len(position):
        raise ExecutorError("the order has a node twice", node=next(n for n in names if names.count(n) > 1))
    for before, after in program.graph.edges:
        if position[before] > position[after]:
            raise ExecutorError(
                f"no topological order: {after!r} comes before {before!r}, which it depends on",
                node=after, location=program.operation(after).location,
                hint="take one from networkx.all_topological_sorts(program.graph)",
            )  # fmt: skip
    return names
