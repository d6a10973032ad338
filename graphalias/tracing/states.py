"""States without bytes: random generators and the outside world, as handles that order what touches them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from graphalias.effects import WORLD, is_random
from graphalias.errors import CaptureError
from graphalias.graph import INPUT, Operation, Storage, Value
from graphalias.torch_private import is_same_generator
from graphalias.tracing.arguments import Arguments
from graphalias.tracing.handles import Handles


class States:
    """The newest handle of each state.

    Attributes
    ----------
    inputs : list of Operation
        The input nodes, in order of first need.
    """

    def __init__(self, handles: Handles, arguments: Arguments) -> None:
        self.inputs: list[Operation] = []
        self._handles, self._arguments = handles, arguments
        self._newest: dict[str, Value] = {}
        self._seed = torch.default_generator.initial_seed()

    def touched(
        self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[torch.Tensor], *,
        is_worldly: bool,
    ) -> tuple[Value, ...]:  # fmt: skip
        """Return the newest handles of the states a call touches; ``tensors`` tell on which device."""
        names = []
        if is_random(operator, args, kwargs):
            self._refuse_other_seed()
            names.append(self._random_state([*args, *kwargs.values()], tensors))
        if is_worldly:
            names.append(WORLD)
        return tuple(self._newest_of(name) for name in names)

    def advance(self, state: Value, operation_name: str) -> Value:
        """Return the state's next handle, a result of the operation."""
        name = f"{operation_name}.{state.storage.name.replace(':', '_')}"
        self._newest[state.storage.name] = Value(name, "state", (), state.storage, state.object)
        return self._newest[state.storage.name]

    def _newest_of(self, state: str) -> Value:
        if state not in self._newest:
            name = self._handles.names.fresh(state)
            value = Value(name, "state", (), Storage(state, "input"), self._handles.new_object())
            self.inputs.append(Operation(name, INPUT, results=(value,)))
            self._newest[state] = value
        return self._newest[state]

    def _refuse_other_seed(self) -> None:
        if torch.default_generator.initial_seed() != self._seed:
            raise CaptureError(
                "can't capture a change of torch's random state: it happens once, while capturing",
                hint="seed outside the function, or pass a torch.Generator",
            )

    def _random_state(self, given: Iterable[Any], tensors: Sequence[torch.Tensor]) -> str:
        generators = [item for item in given if isinstance(item, torch.Generator)]
        device = tensors[0].device if tensors else torch.device("cpu")
        if not generators or is_same_generator(generators[0], default_generator(generators[0].device)):
            return f"rng:{generators[0].device if generators else device}"
        return f"rng:{self._arguments.opaque_name(generators[0])}"


def default_generator(device: torch.device) -> torch.Generator:
    """Return the generator operations of a device draw from when none is given."""
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index or 0]
    return torch.default_generator
