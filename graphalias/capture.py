"""PyTorch program -> Program: the function runs once on fake tensors, and what it does is recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import torch

from graphalias.errors import CaptureError
from graphalias.graph import CONSTANT, INPUT, OUTPUT, Operation, Program, Symbol, Value
from graphalias.guards import sharing_of
from graphalias.signature import Signature, is_plain
from graphalias.switch import disabled
from graphalias.torch_private import FakeTensorMode, flatten, holds_fake, needs_values, quiet_fakes
from graphalias.tracing.call import Call, Inputs, read_call
from graphalias.tracing.constants import Constants
from graphalias.tracing.frozen import PythonState
from graphalias.tracing.handles import Handles
from graphalias.tracing.interceptor import Interceptor
from graphalias.tracing.recorder import Recorder


def capture(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Program:
    """Return the program a function runs on these arguments, with its in-place operations and views as they are.

    Parameters
    ----------
    fn : callable
        A function, ``nn.Module``, ``fx.GraphModule`` or ``torch.export.ExportedProgram``.
    *args, **kwargs
        What to call it with: any pytree of tensors, numbers and other values. None of them is touched.

    Returns
    -------
    Program
        Tensors among the arguments, and a module's parameters and buffers, are inputs; tensors the function closes
        over are constants: the very tensors. Nothing is inserted, nothing made functional.

    Raises
    ------
    CaptureError
        If the program depends on values of tensors, changes Python state, uses what can't be represented, or if
        eager PyTorch refuses it.

    Examples
    --------
    >>> import torch
    >>> def step(x):
    ...     return x.add_(1).t()
    >>> program = capture(step, torch.ones(2, 3))
    >>> [operation.target for operation in program.operations]
    ['input', 'aten.add_.Tensor', 'aten.t.default', 'output']
    """
    if isinstance(fn, torch.export.ExportedProgram):
        fn = fn.module()
    call = read_call(fn, args, kwargs)
    state = PythonState([("", fn), *call.leaves])
    try:
        repeated = _repeated(call)
        program = trace(call, merged=repeated)
        state.refuse_changes(lambda: trace(call, merged=repeated))
        state.refuse_new_generators(program.bindings.values())
        return _apart(call, program, repeated) if repeated else program
    finally:
        state.restore()


def trace(call: Call, *, merged: Collection[int]) -> Program:
    """Run a call on fakes and return what it did.

    Parameters
    ----------
    call : Call
    merged : collection of int
        Ids of the tensors that are passed more than once and are one input. Others are an input for each time.
    """
    fake_mode, handles = FakeTensorMode(), Handles()
    constants = Constants(fake_mode, handles)
    recorder = Recorder(handles, constants)
    inputs = Inputs(call, constants, handles, merged)
    try:
        leaves, out_spec = _run(call, inputs, fake_mode, recorder)
    except Exception as error:
        failure = recorder.failure or _refused(recorder, error)
        if failure is None or failure is error:
            raise
        raise failure from error
    finally:
        changed = constants.restore()
    if recorder.failure:  # the function caught it
        raise recorder.failure
    if changed:
        raise CaptureError(f"the function changed {', '.join(changed)} while it was captured; they are restored")
    return _program(call, inputs, recorder, leaves, out_spec)


def _run(call: Call, inputs: Inputs, fake_mode: FakeTensorMode, recorder: Recorder) -> tuple[list[Any], Any]:
    args, kwargs = inputs.arguments()
    with quiet_fakes():
        # jitted functions called on the way are captured with the rest
        with disabled(), fake_mode, recorder, Interceptor(recorder):
            returned = call.fn(*args, **kwargs)
        inputs.refuse_changed_containers((args, kwargs))
        _refuse_changed_tensors(recorder.constants)
        leaves, out_spec = flatten(returned)
        # A tensor the function only closed over and returned is met here.
        return [
            recorder.constants.fake_of(leaf) if isinstance(leaf, torch.Tensor) else leaf for _, leaf in leaves
        ], out_spec


def _refuse_changed_tensors(constants: Constants) -> None:
    """Refuse what a function did to its tensors beside operations."""
    if constants.has_new_gradient():
        raise CaptureError("can't capture a backward pass into .grad", hint="use torch.autograd.grad")
    attribute = constants.new_attribute()
    if attribute:
        raise CaptureError(f"can't capture a new attribute of a tensor: .{attribute}", hint="set it before the call")


def _program(call: Call, inputs: Inputs, recorder: Recorder, leaves: Sequence[Any], out_spec: Any) -> Program:
    constants = recorder.constants
    outputs = tuple(_output(recorder, leaf) for leaf in leaves)
    operations = [*constants.inputs, *recorder.states.inputs, *constants.operations, *_used(recorder, outputs)]
    operations.append(Operation(OUTPUT, OUTPUT, outputs))
    _refuse_lent_memory(constants.literal_storages, operations)
    tensors = [*call.tensors, *constants.bindings.values(), *leaves]
    requires_grad = any(isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors)
    outside = {value.object for op in operations if op.target in (INPUT, CONSTANT) for value in op.results if value}
    returns_grad = any(
        isinstance(value, Value) and value.object not in outside and leaf.requires_grad
        for leaf, value in zip(leaves, outputs, strict=True)
    )
    signature = Signature(
        call.in_spec, tuple(inputs.leaves), inputs.specs, call.module, inputs.module_tensors, out_spec, requires_grad,
        returns_grad, sharing_of(operations), constants.bindings,
    )  # fmt: skip
    bindings = {**constants.bindings, **recorder.arguments.opaque}
    name = getattr(call.fn, "__name__", type(call.fn).__name__)
    return Program(operations, bindings=bindings, signature=signature, name=name)


def _refused(recorder: Recorder, error: Exception) -> CaptureError | None:
    """Return the error for what torch itself refuses; the function's own errors stay what they are."""
    if error is not recorder.refusal:
        return None
    if needs_values(error):  # before it was dispatched
        return CaptureError(
            "can't capture what depends on the values of tensors: torch looks at them here",
            location=recorder.refusal_location,
            hint="pass numbers instead of a tensor, or call it outside the captured function",
        )
    return CaptureError(
        f"eager PyTorch refuses this: {type(error).__name__}: {error}", location=recorder.refusal_location
    )


def _refuse_lent_memory(lent: Collection[str], operations: Sequence[Operation]) -> None:
    """Refuse a write to an array that was made a tensor inside the function, or its return.

    Whether another call would lend the same array can't be seen.
    """
    for operation in operations:
        handles = operation.operands if operation.target == OUTPUT else operation.written
        if any(handle.storage.name in lent for handle in handles):
            raise CaptureError(
                "can't capture a write to, or the return of, memory a numpy array lent inside the function",
                node=operation.name,
                location=operation.location,
                hint="make the tensor outside the function, or copy the array with torch.tensor",
            )


def _output(recorder: Recorder, leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return recorder.arguments.value_of(leaf)
    if is_plain(leaf) and not isinstance(leaf, (slice, torch.Size)):
        return recorder.arguments.show(leaf)
    if isinstance(leaf, torch.Size):  # a tuple would be another type
        return Symbol("opaque", recorder.arguments.opaque_name(leaf))
    if isinstance(leaf, (set, bytearray)):
        raise CaptureError(f"the function returned a {type(leaf).__name__}: each call would return the same one")
    if isinstance(leaf, Iterator):
        raise CaptureError(
            f"the function returned a {type(leaf).__name__}, which runs after it",
            hint="return a list of what it yields",
        )
    if holds_fake(leaf):
        raise CaptureError(
            f"the function returned a {type(leaf).__name__} that holds tensors: expected tuples, lists, dicts and "
            "registered pytree nodes",
            hint="return a tuple, or register it with torch.utils._pytree.register_dataclass",
        )
    return recorder.arguments.show(leaf)


def _used(recorder: Recorder, outputs: Iterable[Any]) -> list[Operation]:
    """Return the operations without the views autograd made for itself and nothing uses.

    Saving a result for the backward pass makes one. Whatever reads, writes or draws stays, used or not.
    """
    used = {value.name for value in outputs if isinstance(value, Value)}
    kept: list[Operation] = []
    for operation in reversed(recorder.operations):
        is_used = any(result is not None and result.name in used for result in operation.results)
        if not is_used and operation.name in recorder.autograd_made and not any(operation.effects):
            continue
        used.update(value.name for value in operation.operands)
        kept.append(operation)
    return kept[::-1]


def _repeated(call: Call) -> frozenset[int]:
    """Return the ids of tensors that are passed more than once."""
    counts = Counter(id(tensor) for tensor in call.tensors)
    return frozenset(key for key, count in counts.items() if count > 1)


def _apart(call: Call, together: Program, repeated: frozenset[int]) -> Program:
    """Return the program in which a tensor passed twice is two inputs, where that makes no difference.

    A function that writes neither its bytes nor its geometry fits every sharing of its inputs, unless it (or a kernel)
    looks whether two arguments are the same object: then another program comes out, and the tensor stays one input.
    """
    unique = dict.fromkeys(id(tensor) for tensor in call.tensors)
    values = [value for value in together.inputs if not value.is_state]
    written = {operand.storage.name for op in together.operations for operand in op.written}
    written |= {op.operands[i].object for op in together.operations for i in op.reshapes}
    mutated = {k for k, v in zip(unique, values, strict=True) if not written.isdisjoint((v.storage.name, v.object))}
    if repeated <= mutated:
        return together
    try:
        apart = trace(call, merged=repeated & mutated)
    except CaptureError:
        return together
    return apart if _computed(call, apart) == _computed(call, together) else together


def _computed(call: Call, program: Program) -> list[Any]:
    """Return what a program computes, an input that is the same tensor as another one under the other's name."""
    signature = program.signature
    names = [*(leaf.input for leaf in signature.leaves if leaf.input), *signature.module_tensors]
    first: dict[int, str] = {}
    same = {name: first.setdefault(id(tensor), name) for tensor, name in zip(call.tensors, names, strict=True)}
    operations = [operation for operation in program.operations if operation.is_compute]
    return [
        (operation.target, [same.get(operand.name, operand.name) for operand in operation.operands])
        for operation in operations
    ]
