"""jit: a function captured, ordered and lowered once for each kind of call, and guarded."""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

import torch

from graphalias.artefacts import leave_artefacts
from graphalias.capture import capture
from graphalias.entries import Entry, text_of, watch_of
from graphalias.errors import CaptureError
from graphalias.executors import get_executor
from graphalias.fastpath import MISS, FastCall, fast_call
from graphalias.keys import call_key, requires_grad
from graphalias.lower import lower
from graphalias.passes import run_passes
from graphalias.switch import is_disabled

logger = logging.getLogger("graphalias")


class CacheInfo(NamedTuple):
    """Calls answered by a program that was there, calls that needed a new one, and programs kept."""

    hits: int
    misses: int
    maxsize: int
    currsize: int


@overload
def jit(fn: None = None, *, executor: str = ..., strict: bool = ..., cache_limit: int = ...) -> Callable[..., Any]: ...
@overload
def jit(fn: Callable[..., Any], *, executor: str = ..., strict: bool = ..., cache_limit: int = ...) -> Jitted: ...
def jit(fn: Any = None, *, executor: str = "auto", strict: bool = False, cache_limit: int = 8) -> Any:
    """Compile a function or module, on its first call and for each kind of arguments it is called with.

    Parameters
    ----------
    fn : callable, optional
        A function, method or ``nn.Module``. Without it, a decorator is returned.
    executor : str
        ``"inductor"`` (regions compiled by PyTorch's code generator), ``"nvfuser"`` (by NVIDIA's, on its GPUs),
        ``"eager"`` (one ATen call an operation), or ``"auto"``: the best one that works for the arguments.
    strict : bool
        Raise where a call can't be captured, or a region not compiled. Otherwise the original function is called, or
        the region's operations one by one, and a warning is logged once.
    cache_limit : int
        Programs kept for this function. Beyond it one warning names the argument that keeps changing, and the
        original function is called.

    Returns
    -------
    Jitted
        Called as the function is. ``cache_info()``, ``cache_clear()``.

    Raises
    ------
    ExecutorError
        When called: if an operation fails. Storages then hold what the operations before it wrote, as in eager PyTorch.
    CaptureError
        When called, with ``strict``: if the call can't be captured.

    Notes
    -----
    Guarded are each tensor's type, dtype, shape, stride, storage offset, device, conj and neg bits, requires_grad,
    is_inference; grad and inference mode, autocast, default dtype and device; other arguments' equality; a module's
    ``training``; the globals, closed-over variables, attributes and containers the function can reach; and which
    arguments share memory that the program writes. While gradients are recorded and a tensor
    requires grad, the original function is called.

    Examples
    --------
    >>> import torch, graphalias
    >>> @graphalias.jit(executor="eager")
    ... def step(x):
    ...     y = x + 1
    ...     x.mul_(2)
    ...     return y
    >>> x = torch.ones(2)
    >>> step(x), x
    (tensor([2., 2.]), tensor([2., 2.]))
    >>> step.cache_info()
    CacheInfo(hits=0, misses=1, maxsize=8, currsize=1)
    """
    get_executor(executor)
    if fn is None:
        return functools.partial(jit, executor=executor, strict=strict, cache_limit=cache_limit)
    if not callable(fn):
        raise TypeError(f"jit takes a function or an nn.Module, not {type(fn).__name__}")
    return Jitted(fn, executor, strict, cache_limit)


@dataclass(slots=True)
class _Cache:
    """The programs of a function: by kind of call, and those the hot path answers."""

    entries: dict[Any, list[Entry]] = field(default_factory=dict)
    fast: tuple[FastCall, ...] = ()
    looked_at: list[Entry] = field(default_factory=list)
    hits: int = 0
    misses: int = 0


class Jitted:
    """A compiled function or module; see `jit`."""

    def __init__(self, fn: Callable[..., Any], executor: str, strict: bool, cache_limit: int) -> None:
        functools.update_wrapper(self, fn, updated=())
        self._executor, self._strict, self._cache_limit = executor, strict, cache_limit
        self._label = getattr(fn, "__qualname__", type(fn).__name__)
        self._lock = threading.RLock()
        self._bound: dict[int, Jitted] = {}
        self._said: set[str] = set()
        self.cache_clear()
        self._fn = fn  # last: from now on a new attribute is a module's

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled function."""
        if not kwargs:
            cache = self._cache
            for fast in cache.fast:
                result = fast(args)
                if result is not MISS:
                    cache.hits += 1
                    return result
        return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Find the program for a call, or make it."""
        if torch.compiler.is_compiling() or is_disabled():  # in this order: torch.compile looks no further
            return self._fn(*args, **kwargs)
        if torch.is_grad_enabled() and requires_grad(self._fn, args, kwargs):
            self._say(
                "autograd", "a tensor requires grad: the original function is called, so that gradients are right"
            )
            return self._fn(*args, **kwargs)
        key = call_key(self._fn, args, kwargs)
        for entry in self._cache.entries.get(key, ()):
            tensors = entry.fits(args, kwargs, key.identities)
            if not isinstance(tensors, str):
                self._cache.hits += 1
                if entry.compiled is None:
                    return self._fn(*args, **kwargs)
                self._add_fast(entry, args, kwargs)
                return entry.run(tensors)
        entry = self._add_entry(key, args, kwargs)
        if entry.compiled is None:
            return self._fn(*args, **kwargs)
        return entry.compiled.run_checked(args, kwargs)  # the first run

    def _add_fast(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Let the hot path answer calls like this one from now on, if it knows their kind."""
        with self._lock:
            if entry not in self._cache.looked_at and not kwargs and not entry.is_under_autocast:
                assert entry.compiled is not None
                self._cache.looked_at.append(entry)
                fast = fast_call(entry.compiled, entry.watch, args)
                self._cache.fast += (fast,) if fast is not None else ()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the compiled method of an instance."""
        if instance is None:
            return self
        # By address: equal instances are not the same one. What is bound keeps its instance alive.
        if id(instance) not in self._bound:
            bound = self._fn.__get__(instance, owner)
            self._bound[id(instance)] = Jitted(bound, self._executor, self._strict, self._cache_limit)
        return self._bound[id(instance)]

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the function or module, such as ``eval``."""
        if name == "_fn":
            raise AttributeError(name)
        return getattr(self._fn, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the module, such as ``scale``."""
        if "_fn" not in vars(self) or name in vars(self) or not isinstance(self._fn, torch.nn.Module):
            super().__setattr__(name, value)
        else:
            setattr(self._fn, name, value)

    def __reduce__(self) -> Any:
        """Copy and pickle what is compiled, without its programs; a decorated function by its name."""
        module = sys.modules.get(getattr(self._fn, "__module__", ""))
        if getattr(module, self._label, None) is self:
            return self._label
        options = {"executor": self._executor, "strict": self._strict, "cache_limit": self._cache_limit}
        return functools.partial(jit, **options), (self._fn,)

    def __repr__(self) -> str:
        return f"<graphalias.jit {self._label}>"

    def cache_info(self) -> CacheInfo:
        """Return how many calls hit, how many did not, and the programs kept."""
        return CacheInfo(self._cache.hits, self._cache.misses, self._cache_limit, self._count)

    def cache_clear(self) -> None:
        """Forget every program."""
        with self._lock:
            self._cache = _Cache()

    @property
    def _count(self) -> int:
        return sum(len(entries) for entries in self._cache.entries.values())

    def _add_entry(self, key: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Entry:
        """Compile for this call, unless another thread just has."""
        with self._lock:
            reasons = []
            for entry in self._cache.entries.get(key, ()):
                misfit = entry.fits(args, kwargs, key.identities)
                if not isinstance(misfit, str):
                    return entry
                reasons.append(misfit)
            if self._count >= self._cache_limit:
                self._cache.misses += 1
                reason = reasons[-1] if reasons else self._changing(key)
                self._say("cache_limit", f"{self._count} programs are kept, and {reason}: from now on the "
                          "original function is called for other arguments")  # fmt: skip
                return Entry()
            known = self._cache.entries.setdefault(key, [])
            entry = self._compile(args, kwargs, key.identities, known)
            if entry not in known:
                if self._count:
                    logger.info("%s: recompiling: %s", self._label, reasons[-1] if reasons else self._changing(key))
                self._cache.misses += 1
                known.append(entry)
            return entry

    def _compile(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], identities: tuple[int, ...], known: Sequence[Entry]
    ) -> Entry:
        """Return an entry for this call: a known one, if the same tensor passed twice makes no other program."""
        get_ready = getattr(get_executor(self._executor), "get_ready", None)
        if get_ready is not None:
            get_ready()  # in the background
        watch = watch_of(self._fn, args, kwargs)
        try:
            program = capture(self._fn, *args, **kwargs)
        except CaptureError as error:
            if self._strict:
                raise
            self._say(str(error), f"the original function is called: {error}")
            return Entry()
        signature = program.signature
        if signature.returns_grad or (torch.is_grad_enabled() and signature.requires_grad):
            self._say(
                "autograd", "a result requires grad: the original function is called, so that gradients are right"
            )
            return Entry()
        text = text_of(program)
        for entry in known:
            if entry.text == text and not isinstance(entry.fits(args, kwargs), str):
                entry.identities.add(identities)
                return entry
        is_under_autocast = any(torch.is_autocast_enabled(device) for device in ("cpu", "cuda"))
        passed = run_passes(program, self._executor)
        compiled = lower(passed[-1].program, self._executor, strict=self._strict)
        leave_artefacts(self._label, program, passed, compiled)
        return Entry(compiled, is_under_autocast, watch, text, {identities})

    def _changing(self, key: Any) -> str:
        """Return which part of the key differs from most of the programs kept."""
        changed = Counter(label for other in self._cache.entries for label in key.differences(other))
        return f"{changed.most_common(1)[0][0]} changed" if changed else "the sharing of memory changed"

    def _say(self, subject: str, message: str) -> None:
        """Log a warning, once for each subject."""
        if subject not in self._said:
            self._said.add(subject)
            logger.warning("%s: %s", self._label, message)
