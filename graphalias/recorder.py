"""Records the ATen operations a function runs on fake tensors, in-place operations intact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from graphalias.constants import Constants
from graphalias.effects import WORLD, Effects, Operand, effects_of, operands_of
from graphalias.errors import CaptureError
from graphalias.graph import INPUT, Operation, Storage, Symbol, Value
from graphalias.handles import Handles
from graphalias.location import user_location
from graphalias.memory import DTYPE_NAMES, geometry_of
from graphalias.probe import refuse_what_eager_refuses
from graphalias.torch_private import (
    DATA_DEPENDENT,
    NO_FAKE_KERNEL,
    FakeTensorMode,
    TorchDispatchMode,
    decompose,
    forget_values,
    is_composite,
    map_tensors,
)

_SYMBOLS: dict[type, str] = {torch.device: "device", torch.layout: "layout", torch.memory_format: "memory_format"}


class Recorder(TorchDispatchMode):
    """A dispatch mode above fake tensors that makes an Operation of everything that reaches it.

    Attributes
    ----------
    operations : list of Operation
        What was recorded, without inputs, states and constants.
    states : list of Operation
        The input nodes of the states touched, in order of first need.
    failure : CaptureError or None
        The first thing that can't be captured. The function may have swallowed it, so it is kept.
    refusal : Exception or None
        The last error torch itself raised, and ``refusal_location`` where.
    """

    def __init__(self, fake_mode: FakeTensorMode, handles: Handles, constants: Constants) -> None:
        super().__init__()
        self.handles, self.constants = handles, constants
        self.fake_mode = fake_mode
        self.operations: list[Operation] = []
        self.states: list[Operation] = []
        self.opaque: dict[str, Any] = {}
        self.autograd_made: set[str] = set()
        self.failure: CaptureError | None = None
        self.refusal: Exception | None = None
        self.refusal_location: str | None = None
        self._newest_state: dict[str, Value] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if not isinstance(func, torch._ops.OpOverload):
            raise self.fail(f"higher-order operator {func}", hint="write the loop or branch in Python")
        if func.namespace == "prim":  # asks for the device of a tensor, computes nothing
            return func(*args, **kwargs)
        if func is torch.ops.aten.lift_fresh.default:
            return self._lift(args[0])
        args, kwargs = map_tensors(self.fake_of, (tuple(args), kwargs))
        if is_composite(func):
            with self:
                return decompose(func, args, kwargs)
        return self._record(func, args, kwargs)

    def fail(self, message: str, *, hint: str | None = None) -> CaptureError:
        """Return the error to raise for something that can't be captured; the capture fails even if it is caught."""
        error = CaptureError(f"can't capture {message}", location=user_location(), hint=hint)
        self.failure = self.failure or error
        return error

    def fake_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the fake that stands for a tensor: a real one met here becomes a constant."""
        try:
            return self.constants.fake_of(tensor)
        except CaptureError as error:
            error.location = error.location or user_location()
            self.failure = self.failure or error
            raise

    def note_refusal(self, error: Exception) -> None:
        """Keep an error torch raised: eager raises it too, so the function may catch it."""
        if error is not self.refusal:
            self.refusal, self.refusal_location = error, user_location()

    def set_data(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Record ``target.data = source``, which the dispatcher never sees."""
        operands = [Operand(tensor, "", False, False, False) for tensor in (target, source)]
        before = (self.value_of(target), self.value_of(source))
        torch.Tensor.data.__set__(target, source)  # type: ignore[attr-defined]
        forget_values([target, source])
        name = self.handles.names.fresh("set_data")
        self._append(name, "graphalias.set_data", before, {}, operands, (target,), Effects(reshapes=(0,)))

    def value_of(self, fake: torch.Tensor) -> Value:
        """Return the newest handle of a fake tensor."""
        value = self.handles.newest(fake)
        if value is None:
            raise self.fail("a tensor that no operation of the program made", hint="make it with PyTorch operations")
        return value

    def _lift(self, tensor: torch.Tensor) -> Any:
        """A literal is a fresh tensor in every run; memory of numpy's is that memory."""
        if self.handles.newest(tensor) is not None:
            return tensor
        fake = self.constants.fake_of(tensor, is_literal=True)
        if self.constants.is_foreign(tensor):
            return self._record(torch.ops.aten.alias.default, (fake,), {})
        # The fake mode remembers the value of a literal it lifts, so that shapes made from it stay known.
        made = torch.ops.aten.lift_fresh.default(tensor)
        name = self.handles.names.fresh("lift_fresh_copy")
        operand = Operand(fake, "self", False, False, False)
        self._append(
            name, "aten.lift_fresh_copy.default", (self.value_of(fake),), {}, [operand], made, Effects(reads=(0,))
        )
        return made

    def _record(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        operands = operands_of(func, args, kwargs)
        before = [geometry_of(operand.tensor) for operand in operands]
        shown_args = tuple(self._show(argument) for argument in args)
        shown_kwargs = {key: self._show(argument) for key, argument in kwargs.items()}
        result = self._call(func, args, kwargs, operands)
        leaves = flatten_results(result)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        after = [geometry_of(operand.tensor) for operand in operands]
        effects = effects_of(func, operands, before, after, {geometry_of(tensor).storage for tensor in tensors})
        if not tensors and leaves and not effects.writes and not effects.reshapes:
            return self._plain(func, result, leaves)
        self._check_results(func, leaves, operands, effects)
        if effects.reshapes:
            forget_values([operand.tensor for operand in operands])
        name = self.handles.names.fresh(func._schema.name.split("::")[1])
        states = self._touched(effects, (args, kwargs), tensors or [operand.tensor for operand in operands])
        self._append(name, str(func), shown_args, shown_kwargs, operands, result, effects, states)
        return result

    def _call(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], operands: Sequence[Operand]) -> Any:
        # Fakes draw nothing, and some shape rules don't take a generator.
        plain_args = tuple(None if isinstance(item, torch.Generator) else item for item in args)
        plain_kwargs = {key: None if isinstance(item, torch.Generator) else item for key, item in kwargs.items()}
        try:
            refuse_what_eager_refuses(func, args, kwargs, operands)
            return func(*plain_args, **plain_kwargs)
        except DATA_DEPENDENT as error:
            hint = "compute with tensors instead (torch.where, masked_fill), or call it outside the captured function"
            raise self.fail(f"{func}: what it returns depends on the values of tensors", hint=hint) from error
        except NO_FAKE_KERNEL as error:
            raise self.fail(f"{func}: it has no shape rule", hint="add one with torch.library.register_fake") from error
        except CaptureError:
            raise
        except Exception as error:
            self.note_refusal(error)
            raise

    def _plain(self, func: Any, result: Any, leaves: Sequence[Any]) -> Any:
        """Return a result without tensors: known from shapes, or from a literal's value, so it is no operation."""
        if all(isinstance(leaf, (bool, int, float, complex, type(None))) for leaf in leaves):
            return result
        raise self.fail(f"{func}: it returns {type(leaves[0]).__name__}, expected tensors")

    def _check_results(
        self, func: Any, leaves: Sequence[Any], operands: Sequence[Operand], effects: Effects
    ) -> None:
        for leaf in leaves:
            if not isinstance(leaf, (torch.Tensor, bool, int, float, complex, type(None))):
                raise self.fail(f"{func}: it returns {type(leaf).__name__}, expected tensors")
        for position in effects.reshapes:
            if not any(leaf is operands[position].tensor for leaf in leaves):
                raise self.fail(
                    f"{func}: it changes the size, stride or storage of {operands[position].name!r} without returning it",
                    hint="give the tensor its final size first",
                )

    def _touched(self, effects: Effects, call: Any, tensors: Sequence[torch.Tensor]) -> tuple[str, ...]:
        states = []
        if effects.is_random:
            states.append(self._random_state(call, tensors))
        if effects.is_worldly:
            states.append(WORLD)
        return tuple(states)

    def _random_state(self, call: Any, tensors: Sequence[torch.Tensor]) -> str:
        generators = [item for part in (call[0], call[1].values()) for item in part if isinstance(item, torch.Generator)]
        device = tensors[0].device if tensors else torch.device("cpu")
        if not generators or generators[0] is _default_generator(generators[0].device):
            return f"rng:{generators[0].device if generators else device}"
        return f"rng:{self._opaque_name(generators[0])}"

    def _newest_state_of(self, state: str) -> Value:
        if state not in self._newest_state:
            name = self.handles.names.fresh(state)
            value = Value(name, "state", (), Storage(state, "input"), self.handles.new_object())
            self.states.append(Operation(name, INPUT, results=(value,)))
            self._newest_state[state] = value
        return self._newest_state[state]

    def _append(
        self,
        name: str,
        target: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        operands: Sequence[Operand],
        result: Any,
        effects: Effects,
        states: Sequence[str] = (),
    ) -> None:
        leaves = flatten_results(result)
        is_single = sum(isinstance(leaf, torch.Tensor) for leaf in leaves) == 1
        results: list[Value | None] = []
        for index, leaf in enumerate(leaves):
            is_tensor = isinstance(leaf, torch.Tensor)
            results.append(self.handles.handle(leaf, name if is_single else f"{name}.{index}") if is_tensor else None)
        state_operands = tuple(self._newest_state_of(state) for state in states)
        for state, value in zip(states, state_operands, strict=True):
            newer = Value(f"{name}.{value.storage.name.replace(':', '_')}", "state", (), value.storage, value.object)
            results.append(newer)
            self._newest_state[state] = newer
        if torch.is_grad_enabled() and any(operand.tensor.requires_grad for operand in operands):
            self.autograd_made.add(name)
        self.operations.append(
            Operation(
                name, target, args, kwargs, tuple(results), effects.reads, effects.writes, effects.reshapes,
                state_operands, location=user_location(),
            )  # fmt: skip
        )

    def _show(self, argument: Any) -> Any:
        """Return an argument as the program shows it: handles, numbers, strings, lists, Symbols."""
        if isinstance(argument, torch.Tensor):
            return self.value_of(argument)
        if isinstance(argument, (list, tuple)):
            return [self._show(item) for item in argument]
        if argument is None or type(argument) in (bool, int, float, complex, str):
            return argument
        if isinstance(argument, torch.dtype):
            if argument not in DTYPE_NAMES:
                raise self.fail(f"{argument}", hint="use a dtype of a plain strided tensor")
            return Symbol("dtype", DTYPE_NAMES[argument])
        if type(argument) in _SYMBOLS:
            return Symbol(_SYMBOLS[type(argument)], str(argument).removeprefix("torch."))
        if isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool, torch.UntypedStorage)):
            raise self.fail(f"an argument of type {type(argument).__name__}", hint="pass a number or a tensor")
        return Symbol("opaque", self._opaque_name(argument))

    def _opaque_name(self, thing: Any) -> str:
        for key, known in self.opaque.items():
            if known is thing:
                return key.removeprefix("opaque:")
        name = self.handles.names.fresh(f"{type(thing).__name__.lower()}_1")
        self.opaque[f"opaque:{name}"] = thing
        return name


def flatten_results(result: Any) -> list[Any]:
    """Return what an operator returned, flattened: tensors, None, and numbers known from shapes."""
    if isinstance(result, (list, tuple)):
        return [leaf for item in result for leaf in flatten_results(item)]
    return [result]


def _default_generator(device: torch.device) -> torch.Generator:
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index or 0]
    return torch.default_generator
