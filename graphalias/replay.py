"""A function run on handles: what it does to tensors of some geometries, as a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch

from graphalias.errors import CaptureError
from graphalias.executors.eager import run_operation
from graphalias.graph import INPUT, OUTPUT, Operation, Program, Symbol, Value
from graphalias.memory import extent_bytes
from graphalias.switch import disabled
from graphalias.symbols import DTYPES, torch_object
from graphalias.torch_private import FakeTensorMode, flatten, neg_view, quiet_fakes
from graphalias.tracing.constants import Constants
from graphalias.tracing.handles import Handles
from graphalias.tracing.interceptor import Interceptor
from graphalias.tracing.recorder import Recorder


def replay(fn: Callable[..., Any], tensors: Mapping[str, Value], plain: Mapping[str, Any]) -> Program:
    """Return what a function does, called with tensors like some handles.

    Parameters
    ----------
    fn : callable
        Called with names.
    tensors : mapping of str to Value
        Handles of one storage are given as tensors that share memory, those of one object as one tensor.
    plain : mapping
        The other arguments.

    Returns
    -------
    Program
        Its inputs are called as the arguments are; bindings hold closed-over tensors and objects without a text.

    Raises
    ------
    CaptureError
        If the function can't be captured, or returns something else than tensors.

    Examples
    --------
    >>> from graphalias import Storage
    >>> x = Value("add_7", "f32", (2, 3), Storage("s4"), "obj9")
    >>> print(replay(lambda x, n: (x + n).t(), {"x": x}, {"n": 2}))
    %x: f32[2,3] @s0 obj0 = input()
    %add: f32[2,3] @s1 obj1 = aten.add.Tensor(%x, 2) reads(%x)...
    %t: f32[3,2] stride(1,3) @s1 obj2 = aten.t.default(%add)...
    output(%t)
    <BLANKLINE>
    """
    fake_mode, handles = FakeTensorMode(), Handles()
    constants = Constants(fake_mode, handles)
    recorder = Recorder(handles, constants)
    try:
        with quiet_fakes(), disabled(), torch.no_grad(), fake_mode:
            fakes, inputs = _as_inputs(tensors, handles)
            with recorder, Interceptor(recorder):
                returned = fn(**fakes, **plain)
            leaves = [leaf for _, leaf in flatten(returned)[0] if leaf is not None]
            leaves = [constants.fake_of(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    finally:
        constants.restore()
    if recorder.failure:
        raise recorder.failure
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            raise CaptureError(f"it returns a {type(leaf).__name__}: expected tensors", hint="return tensors only")
    outputs = tuple(recorder.arguments.value_of(leaf) for leaf in leaves)
    operations = [*inputs, *recorder.states.inputs, *constants.operations, *recorder.operations]
    bindings = {**constants.bindings, **recorder.arguments.opaque}
    return Program([*operations, Operation(OUTPUT, OUTPUT, outputs)], bindings=bindings)


def function_of(program: Program) -> Callable[..., Any]:
    """Return a function that does what a program does, of its inputs and its ``any:`` wildcards, by name.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[2] @s0 obj0 = input()
    ... %mul_1: f32[2] @s1 obj1 = aten.mul.Tensor(%x, any:factor) reads(%x)
    ... output(%mul_1)
    ... ''')
    >>> function_of(program)(x=torch.ones(2), factor=3)
    [tensor([3., 3.])]
    """

    def run(**given: Any) -> list[Any]:
        tensors = dict(given)
        bindings = {**program.bindings, **{f"any:{name}": value for name, value in given.items()}}
        for operation in program.operations:
            run_operation(operation, tensors, bindings, is_checked=False)
        return [tensors[value.name] for value in program.outputs]

    return run


def as_argument(plain: Any, bindings: Mapping[str, Any]) -> Any:
    """Return a plain argument as torch takes it, from how a program shows it."""
    if isinstance(plain, Symbol):
        return torch_object(plain, bindings)
    return [as_argument(item, bindings) for item in plain] if isinstance(plain, (list, tuple)) else plain


def parameters_of(target: str) -> list[tuple[str, Any]]:
    """Return the names and defaults of an operator's parameters, as a program shows them; none where it has no schema.

    >>> parameters_of("aten.add.Tensor")
    [('self', None), ('other', None), ('alpha', 1)]
    """
    try:
        schema = attrgetter(target)(torch.ops)._schema
    except (AttributeError, RuntimeError):
        return []
    return [(argument.name, argument.default_value) for argument in schema.arguments]


def _as_inputs(tensors: Mapping[str, Value], handles: Handles) -> tuple[dict[str, Any], list[Operation]]:
    """Return a fake for each handle, and the input nodes."""
    bases = {place: _base(values) for place, values in _by_storage(list(tensors.values())).items()}
    storages = {place: handles.new_storage("input") for place in bases}
    objects: dict[str, torch.Tensor] = {}
    inputs = []
    for name, value in tensors.items():
        if value.object not in objects:
            objects[value.object] = fake = _fake(value, bases[value.storage.name])
            handle = handles.handle_at(fake, handles.names.fresh(name), storages[value.storage.name], 0)
            inputs.append(Operation(handle.name, INPUT, results=(handle,)))
    return {name: objects[value.object] for name, value in tensors.items()}, inputs


def _by_storage(values: Sequence[Value]) -> dict[str, list[Value]]:
    found: dict[str, list[Value]] = {}
    for value in values:
        found.setdefault(value.storage.name, []).append(value)
    return found


def _base(values: Sequence[Value]) -> torch.Tensor:
    """Return fake bytes for what some handles see of one storage."""
    size = max(v.offset * v.itemsize + extent_bytes(v.shape, v.stride, v.itemsize) for v in values)
    return torch.empty(-(-size // 16) * 16, dtype=torch.uint8, device=values[0].device)


def _fake(value: Value, base: torch.Tensor) -> torch.Tensor:
    tensor = torch.empty(0, dtype=DTYPES[value.dtype], device=value.device)
    tensor.set_(base.untyped_storage(), value.offset, value.shape, value.stride)
    tensor = tensor.conj() if value.conj else tensor
    return neg_view(tensor) if value.neg else tensor
