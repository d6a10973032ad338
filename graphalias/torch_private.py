"""The private APIs of torch that capture and verification call, behind a small function each.

When a new torch moves one of them, this module and ``tests/test_torch_private.py`` are where it shows. Besides it only
`torch_guards` (what the guards of a call need), ``executors/inductor.py`` and ``executors/prefetch.py`` (the code
generator) import names of torch that begin with an underscore.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

# Why private: what tells an operator from a higher-order one has no public name.
from torch._ops import OpOverload

# Why private: torch has no public way to run a program on shapes alone.
from torch._subclasses import FakeTensor, FakeTensorMode
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
    disable_fake_tensor_cache,
)

# Why private: torch.utils._pytree is the only registry of containers that torch.export and users extend.
from torch.utils import _pytree as pytree

# Why private: the documented extension point for recorders lives in a module with an underscore.
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

__all__ = [
    "DATA_DEPENDENT",
    "FakeTensor",
    "FakeTensorMode",
    "OpOverload",
    "TorchDispatchMode",
    "decompose",
    "flatten",
    "flatten_plain",
    "forget_values",
    "has_no_fake_kernel",
    "holds_fake",
    "is_composite",
    "is_same_generator",
    "is_traced",
    "is_wrapped",
    "kept_generators",
    "map_tensors",
    "needs_values",
    "neg_view",
    "no_function_modes",
    "no_modes",
    "quiet_fakes",
    "real_operations",
    "rule_run_anew",
    "set_version",
    "storage_key",
    "trace_artefact",
    "unflatten",
    "version_of",
]

#: What fake tensors raise where the result depends on values.
DATA_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException)


def has_no_fake_kernel(error: Exception) -> bool:
    """Whether an operator failed on fakes for want of a shape rule.

    Why private: the exception is, and an operator made by ``torch.library.custom_op`` raises a plain RuntimeError.
    """
    return isinstance(error, UnsupportedOperatorException) or "no fake impl registered" in str(error)


def needs_values(error: Exception) -> bool:
    """Whether an operator failed on fakes because it looks at their values. Why private: some kernels just do."""
    return isinstance(error, DATA_DEPENDENT) or "its data is not allocated yet" in str(error)


def storage_key(tensor: torch.Tensor) -> int:
    """Return what identifies a tensor's storage while it lives.

    Why private: ``data_ptr`` of a fake storage is meaningless and ``is`` on storages compares wrappers.
    """
    return tensor.untyped_storage()._cdata


def is_same_generator(one: torch.Generator, other: torch.Generator) -> bool:
    """Whether two Python objects are one generator.

    Why private: the default generator comes back from the dispatcher as another object, and has no equality.
    """
    return one._cdata == other._cdata  # type: ignore[attr-defined]


def is_composite(operator: Any) -> bool:
    """Whether an operator is only a sequence of others.

    Why private: in inference mode such operators reach the recorder whole, and torch exposes no public question.
    """
    return torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd")


def decompose(operator: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run a composite operator as the sequence it is. Why private: `OpOverload.decompose` is not documented."""
    return operator.decompose(*args, **kwargs)


def version_of(tensor: torch.Tensor) -> int | None:
    """Return how often a tensor was written. Why private: the counter has no public reader.

    Tensors made in inference mode do not count.
    """
    return None if tensor.is_inference() else tensor._version


def set_version(tensor: torch.Tensor, version: int | None) -> None:
    """Put a tensor's version counter back. Why private: writing it is, so that nobody does it lightly."""
    if version is not None:
        torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


@contextlib.contextmanager
def no_modes() -> Iterator[None]:
    """Run what follows as if no mode were on. Why private: only torch's own code may leave all dispatch modes."""
    with _disable_current_modes(), no_function_modes():
        yield


@contextlib.contextmanager
def real_operations() -> Iterator[None]:
    """Run what follows on real tensors, whatever modes are on, and without recording gradients."""
    with no_modes(), torch.no_grad():
        yield


def no_function_modes() -> contextlib.AbstractContextManager[Any]:
    """Return a context in which Python calls of operators do not come back to function modes.

    Why private: a call from C++ that no function mode saw (the backward pass, ``from_numpy``) reaches a dispatch mode
    with the function modes still on, and the public switch is for subclasses only.
    """
    return torch._C.DisableTorchFunction()


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether ``torch.func`` or functionalization wraps the tensor. Why private: wrappers look like plain tensors."""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor) or torch._is_functional_tensor(tensor)


@contextlib.contextmanager
def quiet_fakes() -> Iterator[None]:
    """Silence torch's logger of fake tensors: it prints a traceback of each error that is raised anyway."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled


def flatten(tree: Any) -> tuple[list[tuple[tuple[Any, ...], Any]], Any]:
    """Return ``[(path, leaf), ...]`` and the structure. Each step of a path is a key, an index or an attribute.

    A ``torch.Size`` is a leaf: torch would put it together again as a tuple.
    """
    leaves, spec = pytree.tree_flatten_with_path(tree, is_leaf=lambda node: isinstance(node, torch.Size))
    return [(tuple(_step(key) for key in path), leaf) for path, leaf in leaves], spec


def flatten_plain(tree: Any) -> tuple[list[Any], Any]:
    """Return the leaves and the structure, without paths."""
    return pytree.tree_flatten(tree)


def unflatten(leaves: Sequence[Any], spec: Any) -> Any:
    """Return the tree that `flatten` took apart."""
    return pytree.tree_unflatten(list(leaves), spec)


def map_tensors(change: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """Return the tree with every tensor in it replaced by ``change(tensor)``."""
    return pytree.tree_map_only(torch.Tensor, change, tree)


def _step(key: Any) -> Any:
    for attribute in ("idx", "key", "name"):
        if hasattr(key, attribute):
            return getattr(key, attribute)
    return str(key)


def forget_values(fakes: Sequence[torch.Tensor], *, keep_literals: bool = False) -> None:
    """Make fake tensors forget the value they may know.

    Why private: fakes keep values of small literals and, in some versions of torch, of any tensor of one element they
    were made from. What torch does not see being changed, or a program must not depend on, is dropped here. Of the two
    only the first follows writes through every view.
    """
    for fake in fakes:
        fake.item_memo = None  # type: ignore[attr-defined]
        if not keep_literals:
            fake.constant = None  # type: ignore[attr-defined]


def rule_run_anew(outs: Sequence[torch.Tensor]) -> AbstractContextManager[None]:
    """Let a call with these ``out=`` fakes run its shape rule, whatever torch remembers of earlier calls.

    Why private: what fakes remember of a call is its results. Where a rule does not return the very ``out=`` it was
    given, the next call like it leaves that of its old size.
    """
    return disable_fake_tensor_cache(outs[0].fake_mode) if outs else contextlib.nullcontext()  # type: ignore[attr-defined]


def holds_fake(thing: Any) -> bool:
    """Whether a fake tensor is reached from a thing through attributes and containers."""
    seen: set[int] = set()
    waiting = [thing]
    while waiting:
        item = waiting.pop()
        if isinstance(item, FakeTensor):
            return True
        if id(item) in seen or isinstance(item, type):
            continue
        seen.add(id(item))
        waiting += item.values() if isinstance(item, dict) else ()
        waiting += item if isinstance(item, (list, tuple, set, frozenset)) else ()
        waiting += vars(item).values() if hasattr(item, "__dict__") else ()
        waiting += [getattr(item, name) for name in getattr(type(item), "__slots__", ()) if hasattr(item, name)]
    return False


def neg_view(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view with the neg bit flipped. Why private: torch makes such views only inside ``conj().imag``."""
    return torch._neg_view(tensor)


@contextlib.contextmanager
def kept_generators(things: Sequence[Any]) -> Iterator[None]:
    """Put back the default random generators, and those among some things, as they were."""
    generators = [thing for thing in things if isinstance(thing, torch.Generator)]
    states = [generator.get_state() for generator in generators]
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def is_traced() -> bool:
    """Whether torch writes a structured trace (``TORCH_TRACE=folder``), which tlparse reads.

    Why private: the logger of the trace has no public name.
    """
    return logging.getLogger("torch.__trace").isEnabledFor(logging.DEBUG) and bool(
        logging.getLogger("torch.__trace").handlers
    )


def trace_artefact(name: str, text: str) -> None:
    """Add a text to torch's structured trace. Why private: the only function that does so is."""
    torch._logging.trace_structured(
        "artifact", metadata_fn=lambda: {"name": name, "encoding": "string"}, payload_fn=lambda: text
    )
