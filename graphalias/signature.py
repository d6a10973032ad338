"""How a call's arguments become a program's inputs, and its outputs what the function returned."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from graphalias.errors import ExecutorError
from graphalias.guards import Sharing
from graphalias.memory import why_unsupported
from graphalias.torch_private import flatten, unflatten

CAPTURE_ANEW = "a program is for the kinds and values of arguments it was captured with: capture again, or use jit"


class _Word(str):
    """Shown without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


@dataclass(frozen=True)
class TensorSpec:
    """What a tensor must be like to be an input. ``offset`` is its own storage offset."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    device: torch.device
    conj: bool
    neg: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorSpec:
        """Return what a real tensor is like."""
        return cls(
            tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.device,
            tensor.is_conj(), tensor.is_neg(),
        )  # fmt: skip

    def difference(self, tensor: torch.Tensor) -> str | None:
        """Return what is expected and found where a tensor does not fit, or None."""
        found = TensorSpec.of(tensor)
        for name in self.__dataclass_fields__:
            if getattr(self, name) != getattr(found, name):
                return f"{name}: expected {getattr(self, name)}, found {getattr(found, name)}"
        return None


@dataclass(frozen=True)
class Leaf:
    """One leaf of the arguments: a tensor for an input, or a value that must stay the same.

    Parameters
    ----------
    label : str
        How messages name it: ``x``, ``params.0``.
    input : str or None
        The input it is, or None for a value.
    value : object
        What was passed, where it is no tensor.
    """

    label: str
    input: str | None = None
    value: Any = None

    @property
    def shown(self) -> _Word:
        """What messages show in its place."""
        return _Word("Tensor") if self.input else _shown(self.value)

    def accepts(self, found: Any) -> bool:
        """Whether a value is the one the program was captured for: equal, or the same object where it is not plain."""
        if isinstance(self.value, (float, complex)):  # nan is nan, and -0.0 is not 0.0
            return type(found) is type(self.value) and repr(found) == repr(self.value)
        if is_plain(self.value):
            return type(found) is type(self.value) and found == self.value
        return found is self.value


def is_plain(value: Any) -> bool:
    """Whether a value is compared by equality."""
    plain = (
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        type(None),
        torch.dtype,
        torch.device,
        torch.layout,
        enum.Enum,
        slice,
    )
    return isinstance(value, (*plain, torch.memory_format, torch.Size))


@dataclass(frozen=True)
class Signature:
    """How to call a captured program from PyTorch.

    Parameters
    ----------
    in_spec, out_spec : object
        Structure of ``(args, kwargs)`` and of what the function returned.
    leaves : tuple of Leaf
        Of the arguments, in order.
    inputs : dict
        What the tensor of each input must be like, by input name.
    module, module_tensors
        The module and ``{input name: qualified name}``: read again at each call.
    requires_grad : bool
        Whether an input, a constant or an output requires grad: a program computes values only.
    returns_grad : bool
        Whether a result that is neither input nor constant requires grad, as under ``torch.enable_grad()``.
    sharing : Sharing
        Which inputs and constants may share memory.
    constants : dict
        The constants, by name.

    Examples
    --------
    >>> import torch
    >>> from graphalias.capture import capture
    >>> program = capture(lambda x, n: (x.mul_(n), n), torch.ones(2), 3)
    >>> sorted(program.signature.bind((torch.zeros(2), 3), {}))
    ['x']
    >>> program.signature.bind((torch.zeros(3), 3), {})
    Traceback (most recent call last):
    ...
    graphalias.errors.ExecutorError: argument x does not fit the program: shape: expected (2,), found (3,)
      what to do: a program is for the kinds and values of arguments it was captured with: capture again, or use jit
    """

    in_spec: Any
    leaves: tuple[Leaf, ...]
    inputs: Mapping[str, TensorSpec]
    module: torch.nn.Module | None = None
    module_tensors: Mapping[str, str] = field(default_factory=dict)
    out_spec: Any = None
    requires_grad: bool = False
    returns_grad: bool = False
    sharing: Sharing = field(default_factory=Sharing)
    constants: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Return the tensor of each input that is no state.

        Raises
        ------
        ExecutorError
            If the arguments do not fit the program. Nothing has been touched then.
        """
        leaves, spec = flatten((tuple(args), dict(kwargs)))
        if spec != self.in_spec:
            expected = _as_call([leaf.shown for leaf in self.leaves], self.in_spec)
            found_text = _as_call([_shown(value) for _, value in leaves], spec)
            raise ExecutorError(
                f"the arguments' structure does not fit: expected {expected}, found {found_text}", hint=CAPTURE_ANEW
            )
        found: dict[str, torch.Tensor] = {}
        for leaf, (_, value) in zip(self.leaves, leaves, strict=True):
            self._bind_leaf(leaf, value, found)
        for name, qualified_name in self.module_tensors.items():
            tensor = module_tensor(self.module, qualified_name)
            self._check_tensor(name, qualified_name, tensor)
            if found.setdefault(name, tensor) is not tensor:
                raise ExecutorError(f"argument {name} is another tensor than the module's {qualified_name}")
        self.sharing.check({**found, **self.constants})
        return found

    def rebuild(self, leaves: Sequence[Any]) -> Any:
        """Return what the function returned, from the leaves of the program's outputs."""
        return unflatten(leaves, self.out_spec)

    def _bind_leaf(self, leaf: Leaf, value: Any, found: dict[str, torch.Tensor]) -> None:
        if leaf.input is None:
            if not leaf.accepts(value):
                raise ExecutorError(
                    f"argument {leaf.label}: expected {leaf.value!r}, found {value!r}", hint=CAPTURE_ANEW
                )
            return
        self._check_tensor(leaf.input, leaf.label, value)
        if found.setdefault(leaf.input, value) is not value:
            raise ExecutorError(f"argument {leaf.label}: expected the same tensor as argument {leaf.input}")

    def _check_tensor(self, name: str, label: str, value: Any) -> None:
        if not isinstance(value, torch.Tensor):
            raise ExecutorError(f"argument {label}: expected a tensor, found {type(value).__name__}")
        reason = why_unsupported(value)
        if reason:
            raise ExecutorError(f"argument {label}: expected a plain tensor, found {reason}")
        difference = self.inputs[name].difference(value)
        if difference:
            raise ExecutorError(f"argument {label} does not fit the program: {difference}", hint=CAPTURE_ANEW)


def _shown(value: Any) -> _Word:
    return _Word(type(value).__name__ if isinstance(value, torch.Tensor) else repr(value))


def _as_call(leaves: Sequence[_Word], spec: Any) -> str:
    """Return arguments as a call shows them: ``(Tensor, [Tensor, 3], scale=2)``."""
    args, kwargs = unflatten(leaves, spec)
    return f"({', '.join([*map(repr, args), *(f'{key}={value!r}' for key, value in kwargs.items())])})"


def module_tensor(module: torch.nn.Module | None, qualified_name: str) -> Any:
    """Return a module's parameter or buffer as it is now."""
    owner: Any = module
    *path, last = qualified_name.split(".")
    for part in path:
        owner = getattr(owner, part)
    return getattr(owner, last)


def argument_labels(function: Any, args: Sequence[Any], paths: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return a name for each leaf of ``(args, kwargs)``: the parameter's, and the path inside it.

    >>> argument_labels(lambda x, *rest: None, (1, 2, [3]), [(0, 0), (0, 1), (0, 2, 0), (1, "key")])
    ['x', 'rest.0', 'rest.1.0', 'key']
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}.{i}" for i in range(len(args) - len(names))]
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            names.append(parameter.name)
    names += [f"arg{i}" for i in range(len(names), len(args))]
    return [".".join(map(str, (names[path[1]] if path[0] == 0 else path[1], *path[2:]))) for path in paths]
