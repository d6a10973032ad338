"""The hot path of jit: one generated Python function that guards a call and runs its program.

It knows calls with positional arguments, in lists and tuples at most. It answers, or it says that it can't
(`MISS`) before anything has happened; the general path then finds the reason.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from graphalias.guards import Sharing
from graphalias.keys import attributes_of
from graphalias.lower import Compiled
from graphalias.switch import is_switched_off
from graphalias.torch_guards import (
    MODE_COUNTS,
    children_of,
    is_leaf_spec,
    make_mode_guard,
    make_tensor_guard,
    module_dict,
)
from graphalias.tracing.watch import Watch

#: Up to how many tensors the guards of their memory are written one by one.
FEW = 4

#: What a fast call returns where it does not answer.
MISS = object()

FastCall = Callable[[tuple[Any, ...]], Any]


class _CantBeFast(Exception):  # noqa: N818  # it is no error: the general path does it
    """A kind of call the hot path does not know."""


def fast_call(compiled: Compiled, watch: Watch | None, args: Sequence[Any]) -> FastCall | None:
    """Return a function of the tuple of arguments that runs a program on them, or returns `MISS`.

    Parameters
    ----------
    compiled : Compiled
        A captured program, lowered.
    watch : Watch or None
        The Python state it was made from.
    args : sequence
        Arguments that it fits.

    Returns
    -------
    callable or None
        None where the call is of a kind the hot path does not know.
    """
    try:
        writer = _Writer(compiled, watch, args)
        source = "\n".join(writer.lines())
    except _CantBeFast:
        return None
    exec(compile(source, f"<graphalias fast {compiled.program.name}>", "exec"), writer.names)
    fast: FastCall = writer.names["fast"]
    return fast


class _Writer:
    """Writes the source of a fast call."""

    def __init__(self, compiled: Compiled, watch: Watch | None, args: Sequence[Any]) -> None:
        self.compiled, self.signature = compiled, compiled.program.signature
        self.watch, self.args = watch, args
        self.names: dict[str, Any] = {"MISS": MISS, "compiled": compiled}
        self.tensors: list[str] = []  # expressions, in the order of the program's inputs
        self.examples: list[torch.Tensor] = []
        self.leaves = iter(self.signature.leaves)
        self.count = 0

    def lines(self) -> Iterator[str]:
        positional, keywords = children_of(self.signature.in_spec)
        if children_of(keywords) or len(self.signature.inputs) != len(self.compiled.inputs):
            raise _CantBeFast
        yield "def fast(args):"
        off = " or ".join(f"{self._name(is_on)}()" for is_on in (*MODE_COUNTS, is_switched_off))
        yield f"    if {off} or len(args) != {len(self.args)}: return MISS"
        for i, (spec, value) in enumerate(zip(children_of(positional), self.args, strict=True)):
            yield from self._argument(f"args[{i}]", spec, value)
        self._module_tensors()
        yield from self._guards()
        yield from self._call()

    def _argument(self, expression: str, spec: Any, value: Any) -> Iterator[str]:
        """Write the check of one argument, and note its tensors."""
        if is_leaf_spec(spec):
            yield from self._leaf(expression, next(self.leaves), value)
            return
        if type(value) not in (list, tuple):
            raise _CantBeFast
        name = self._variable()
        yield f"    {name} = {expression}"
        yield f"    if type({name}) is not {type(value).__name__} or len({name}) != {len(value)}: return MISS"
        specs = children_of(spec)
        if all(is_leaf_spec(child) and type(item) is torch.Tensor for child, item in zip(specs, value, strict=True)):
            for item in value:
                self._note(f"*{name}", item)
                next(self.leaves)
            return
        for i, (child, item) in enumerate(zip(specs, value, strict=True)):
            yield from self._argument(f"{name}[{i}]", child, item)

    def _leaf(self, expression: str, leaf: Any, value: Any) -> Iterator[str]:
        if isinstance(value, torch.Tensor):
            self._note(expression, value)
        elif isinstance(value, (bool, int, str)) or value is None:
            name = self._variable()
            yield f"    {name} = {expression}"
            yield f"    if type({name}) is not {self._name(type(value))} or {name} != {self._name(value)}: return MISS"
        else:
            raise _CantBeFast

    def _note(self, expression: str, tensor: torch.Tensor) -> None:
        if not self.tensors or self.tensors[-1] != expression:
            self.tensors.append(expression)
        self.examples.append(tensor)

    def _module_tensors(self) -> None:
        for qualified_name in self.signature.module_tensors.values():
            mapping, key = module_dict(self.signature.module, qualified_name)
            self._note(f"{self._name(mapping)}[{key!r}]", mapping[key])

    def _guards(self) -> Iterator[str]:
        """Write the guards of torch's state, of the Python state, of the tensors and of their sharing."""
        if len({id(tensor) for tensor in self.examples}) != len(self.examples):
            raise _CantBeFast  # one tensor passed twice: who asks for identities gets the general path
        constants = list(self.signature.constants.values())
        yield f"    if not {self._name(make_mode_guard())}(): return MISS"
        if self.watch is not None and self.watch.parts:
            yield f"    if {self._name(self.watch.change)}() is not None: return MISS"
        elif self.watch is not None and self.watch.empty:
            yield f"    if {self._name(any)}({self._name(self.watch.empty)}): return MISS"
        yield from self._named_tensors()
        every = [*self.examples, *constants]
        if not every:
            return
        guarded = ", ".join([*self.passed, *map(self._name, constants)])
        yield f"    if not {self._name(make_tensor_guard(every))}({guarded}): return MISS"
        memory = _Memory(every, self.signature)
        if self.is_few and len(every) <= FEW:
            self.names["attributes_of"] = attributes_of
            yield from _few_memory_guards(memory, guarded.split(", "))
        else:
            yield f"    if not {self._name(_memory_guard(memory))}(({guarded},)): return MISS"

    def _named_tensors(self) -> Iterator[str]:
        """Give few tensors a name each, many one together: a call with names is the faster one."""
        self.is_few = len(self.examples) <= FEW
        if not self.is_few:
            yield f"    tensors = ({', '.join(self.tensors)},)"
            self.passed = ["*tensors"]
            return
        self.passed = [f"t{i}" for i in range(len(self.examples))]
        if len(self.tensors) == len(self.examples) and not any(e.startswith("*") for e in self.tensors):
            yield from (f"    {name} = {e}" for name, e in zip(self.passed, self.tensors, strict=True))
        else:
            yield f"    {', '.join(self.passed)}, = ({', '.join(self.tensors)},)"

    def _call(self) -> Iterator[str]:
        yield "    try:"
        yield f"        results = {self._name(self.compiled.flat)}({', '.join(self.passed)})"
        yield "    except Exception as error:"
        yield "        raise compiled.explained(error) from error"
        yield f"    return {self._rebuilt()}"

    def _rebuilt(self) -> str:
        """Return the expression that puts the results into what the function returned."""
        spec = self.signature.out_spec
        if is_leaf_spec(spec):
            return "results[0]"
        children = children_of(spec)
        if spec.type in (tuple, list) and all(map(is_leaf_spec, children)):
            return "results" if spec.type is tuple else "list(results)"
        return f"{self._name(self.signature.rebuild)}(results)"

    def _variable(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def _name(self, thing: Any) -> str:
        """Return a global name for an object."""
        self.count += 1
        self.names[f"g{self.count}"] = thing
        return f"g{self.count}"


class _Memory:
    """What is guarded of tensors' memory: storage offsets, and which bytes are touched through each."""

    def __init__(self, tensors: Sequence[torch.Tensor], signature: Any) -> None:
        sharing: Sharing = signature.sharing
        if any(len(storage.members) > 1 for storage in sharing.written):
            raise _CantBeFast
        names = [*signature.inputs, *signature.constants]
        written = {name: storage for storage in sharing.written for name in storage.members}
        self.offsets = [tensor.storage_offset() for tensor in tensors]
        self.is_written = [name in written for name in names]
        self.spans = [(0, (sharing.size_bytes or {})[name]) for name in names]
        for i, name in enumerate(names):
            if name in written:  # the program may reach beyond the tensor it was given
                storage = written[name]
                self.spans[i] = (storage.start - storage.members[name], storage.end - storage.members[name])


def _few_memory_guards(memory: _Memory, names: Sequence[str]) -> Iterator[str]:
    """Write the guards of few tensors one by one."""
    count = len(names)
    attributes = " or ".join(f"{name}.__dict__ and attributes_of({name})" for name in names)
    offsets = " or ".join(
        f"{name}.storage_offset() != {offset}" for name, offset in zip(names, memory.offsets, strict=True)
    )
    yield f"    if {attributes} or {offsets}: return MISS"
    for i in range(count):
        for j in range(i):
            yield f"    if {names[i]} is {names[j]}: return MISS"  # who asks for identities gets the general path
            if memory.is_written[i] or memory.is_written[j]:
                (start, end), (other_start, other_end) = memory.spans[i], memory.spans[j]
                yield f"    distance = {names[i]}.data_ptr() - {names[j]}.data_ptr()"
                yield f"    if {other_start - end} < distance < {other_end - start}: return MISS"


def _memory_guard(memory: _Memory) -> Callable[[tuple[torch.Tensor, ...]], bool]:
    """Return the guards of many tensors."""
    offset_of, address_of = torch.Tensor.storage_offset, torch.Tensor.data_ptr
    dict_of = operator.attrgetter("__dict__")
    is_pure = not any(memory.is_written)
    apart: list[int] = []  # different addresses that were found to be apart: most calls bring the same ones

    def check(found: tuple[torch.Tensor, ...]) -> bool:
        nonlocal apart
        if [*map(offset_of, found)] != memory.offsets:
            return False
        if any(map(dict_of, found)) and any(map(attributes_of, found)):
            return False
        addresses = [*map(address_of, found)]
        if addresses == apart:
            return True
        if len({*map(id, found)}) != len(found):
            return False
        if not is_pure and not _is_apart(addresses, memory.spans, memory.is_written):
            return False
        if len({*addresses}) == len(addresses):  # then no two of them are one object
            apart = addresses
        return True

    return check


def _is_apart(addresses: list[int], spans: list[tuple[int, int]], is_written: list[bool]) -> bool:
    """Whether memory that is written meets no other. Of two devices, addresses that meet are only a miss."""
    order = sorted(range(len(addresses)), key=addresses.__getitem__)
    furthest = furthest_written = 0
    for i in order:
        start, end = addresses[i] + spans[i][0], addresses[i] + spans[i][1]
        if start < (furthest if is_written[i] else furthest_written) and start < end:
            return False
        furthest = max(furthest, end)
        if is_written[i]:
            furthest_written = max(furthest_written, end)
    return True
