"""Records the ATen operations a function runs on fake tensors, in-place operations intact."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from graphalias.effects import Effects, Operand, effects_of, is_factory, operands_of, tensors_in
from graphalias.errors import CaptureError
from graphalias.graph import Operation, Value
from graphalias.memory import geometry_of
from graphalias.torch_private import (
    OpOverload,
    TorchDispatchMode,
    decompose,
    forget_values,
    has_no_fake_kernel,
    is_composite,
    map_tensors,
    needs_values,
    no_function_modes,
    rule_run_anew,
)
from graphalias.tracing.arguments import Arguments, call_without_generators, flatten_results
from graphalias.tracing.constants import Constants
from graphalias.tracing.handles import Handles
from graphalias.tracing.layout import kernel_strides, refuse_kept_offset, with_strides
from graphalias.tracing.location import user_location
from graphalias.tracing.probe import refuse_what_eager_refuses
from graphalias.tracing.states import States


class Recorder(TorchDispatchMode):
    """A dispatch mode above fake tensors that makes an Operation of everything that reaches it.

    Attributes
    ----------
    operations : list of Operation
        What was recorded, without inputs, states and constants.
    autograd_made : set of str
        Operations that may be views autograd made for itself.
    failure : CaptureError or None
        The first thing that can't be captured. The function may have swallowed it, so it is kept.
    refusal : Exception or None
        The last error torch itself raised, and ``refusal_location`` where.
    """

    supports_higher_order_operators = True  # so that they arrive here, to be refused with the user's line

    def __init__(self, handles: Handles, constants: Constants) -> None:
        super().__init__()
        self.handles, self.constants = handles, constants
        self.arguments = Arguments(handles)
        self.states = States(handles, self.arguments)
        self.operations: list[Operation] = []
        self.autograd_made: set[str] = set()
        self.failure: CaptureError | None = None
        self.refusal: Exception | None = None
        self.refusal_location: str | None = None
        self._factory_result: torch.Tensor | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        with self.located(), no_function_modes():
            if not isinstance(func, OpOverload):
                raise CaptureError(f"can't capture {func}, which takes functions", hint="write the loop in Python")
            if func.namespace in ("prim", "profiler"):  # asks for a tensor's device, or marks time: computes nothing
                return func(*args, **kwargs)
            if func is torch.ops.aten.lift_fresh.default:
                return self._lift(args[0])
            if func is torch.ops.aten.detach.default and args[0] is self._factory_result:
                return args[0]  # Note [Factories]
            args, kwargs = map_tensors(self.constants.fake_of, (tuple(args), kwargs))
            if is_composite(func):
                with self:
                    return decompose(func, args, kwargs)
            return self._record(func, args, kwargs)

    def new_call(self) -> None:
        """Say that the function calls PyTorch again.

        Note [Factories]: the Python binding of ``torch.empty`` detaches what the dispatcher gave it, so every factory
        would be two operations. A detach of a factory's result inside the same call is that one.
        """
        self._factory_result = None

    @contextlib.contextmanager
    def located(self) -> Iterator[None]:
        """Give a CaptureError the user's line, and keep the first: the function may swallow it."""
        try:
            yield
        except CaptureError as error:
            if error.location is None and error is not self.failure:
                error = CaptureError(error.message, location=user_location(), hint=error.hint)
            self.failure = self.failure or error
            raise error from error.__cause__

    def note_refusal(self, error: Exception) -> None:
        """Keep an error torch raised: eager raises it too, so the function may catch it."""
        if error is not self.refusal:
            self.refusal, self.refusal_location = error, user_location()

    def set_data(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Record ``target.data = source``, which the dispatcher never sees."""
        values = (self.arguments.value_of(target), self.arguments.value_of(source))
        torch.Tensor.data.__set__(target, source)  # type: ignore[attr-defined]
        forget_values([target, source])
        call = Recorded("set_data", "graphalias.set_data", values, {}, (target, source))
        self._append(call, Effects(reshapes=(0,)), (target,))

    def _lift(self, tensor: torch.Tensor) -> Any:
        """A literal is a fresh tensor in every run; memory of numpy's is that memory."""
        if self.handles.newest(tensor) is not None:
            return tensor
        fake = self.constants.fake_of(tensor, is_literal=True)
        if self.constants.is_foreign(tensor):
            return self._record(torch.ops.aten.alias.default, (fake,), {})
        # The fake mode remembers the value of a small literal it lifts, so that what is made from it stays known.
        made = torch.ops.aten.lift_fresh.default(self.constants.copy_of(tensor))
        forget_values([made], keep_literals=True)
        values = (self.arguments.value_of(fake),)
        call = Recorded("lift_fresh_copy", "aten.lift_fresh_copy.default", values, {}, (fake,))
        self._append(call, Effects(reads=(0,)), made)
        return made

    def _record(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        operands = operands_of(func, args, kwargs)
        refuse_kept_offset(func, operands)
        before = [geometry_of(operand.tensor) for operand in operands]
        shown = (
            tuple(self.arguments.show(argument) for argument in args),
            {key: self.arguments.show(argument) for key, argument in kwargs.items()},
        )
        result = self._call(func, args, kwargs, operands)
        leaves = flatten_results(result)
        _check_results(func, leaves)
        results = list(tensors_in(leaves))
        after = [geometry_of(operand.tensor) for operand in operands]
        effects = effects_of(func, operands, before, after, {geometry_of(tensor).storage for tensor in results})
        _check_reshapes(func, leaves, operands, effects)
        if leaves and not results and not effects.writes and None not in leaves:
            return result  # numbers known from shapes, or from a literal's value: nothing to run
        if effects.reshapes:
            forget_values([operand.tensor for operand in operands])
        call = Recorded(func._schema.name.split("::")[1], str(func), *shown, [operand.tensor for operand in operands])
        states = self.states.touched(func, args, kwargs, [*results, *call.tensors], is_worldly=effects.is_worldly)
        self._append(call, effects, result, states)
        self._factory_result = result if is_factory(func) else None
        return result

    def _call(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], operands: Sequence[Operand]) -> Any:
        plain_args, plain_kwargs = call_without_generators(args, kwargs)
        strides = kernel_strides(func, args, kwargs, operands)
        try:
            refuse_what_eager_refuses(func, args, kwargs, operands)
            with rule_run_anew([operand.tensor for operand in operands if operand.is_out]):
                result = func(*plain_args, **plain_kwargs)
            return with_strides(result, strides, operands)
        except Exception as error:
            if needs_values(error):
                raise CaptureError(
                    f"can't capture {func}: what it returns depends on the values of tensors",
                    hint="compute with tensors (torch.where, masked_fill), or call it outside the captured function",
                ) from error
            if has_no_fake_kernel(error):
                if not func._schema.returns:
                    return None  # nothing has a shape
                raise CaptureError(
                    f"can't capture {func}: it has no shape rule", hint="add one with torch.library.register_fake"
                ) from error
            self.note_refusal(error)
            raise

    def _append(self, call: Recorded, effects: Effects, result: Any, states: tuple[Value, ...] = ()) -> None:
        """Add an operation; its results become the newest handles of their objects."""
        name = self.handles.names.fresh(call.base_name)
        results = [*self._handles_of(flatten_results(result), name), *(self.states.advance(s, name) for s in states)]
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in call.tensors):
            self.autograd_made.add(name)
        positions = (effects.reads, effects.writes, effects.reshapes)
        operation = Operation(
            name, call.target, call.args, call.kwargs, tuple(results), *positions, states, location=user_location()
        )
        self.operations.append(operation)

    def _handles_of(self, leaves: Sequence[Any], name: str) -> list[Value | None]:
        is_single = sum(isinstance(leaf, torch.Tensor) for leaf in leaves) == 1
        return [
            self.handles.handle(leaf, name if is_single else f"{name}.{index}")
            if isinstance(leaf, torch.Tensor) else None
            for index, leaf in enumerate(leaves)
        ]  # fmt: skip


def _check_results(func: Any, leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if not isinstance(leaf, (torch.Tensor, bool, int, float, complex, type(None))):
            raise CaptureError(f"can't capture {func}: expected tensors as results, found {type(leaf).__name__}")
        if isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided:
            raise CaptureError(f"can't capture {func}: expected a strided result, found {leaf.layout}")


def _check_reshapes(func: Any, leaves: Sequence[Any], operands: Sequence[Operand], effects: Effects) -> None:
    for position in effects.reshapes:
        if not any(leaf is operands[position].tensor for leaf in leaves):
            raise CaptureError(
                f"can't capture {func}: it changes the geometry of {operands[position].name!r} without returning it",
                hint="give the tensor its final size first",
            )


class Recorded(NamedTuple):
    """A call as the program shows it, before its results are known."""

    base_name: str
    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    tensors: Sequence[torch.Tensor]
