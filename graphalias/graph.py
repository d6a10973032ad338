"""The program: a networkx DiGraph of operations over named tensor handles.

Nothing here knows torch: tensors are names, shapes and numbers, and what an operation reads and writes is
stated, so every pass is a function of what can be seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import networkx as nx

from graphalias.errors import GraphAliasError

DATA, ORDER = "DATA", "ORDER"
RAW, WAR, WAW = "RAW", "WAR", "WAW"

INPUT, CONSTANT, OUTPUT, UPDATE_ALIASES = "input", "constant", "output", "update_aliases"

#: Bytes of one element of each dtype, by its short name. ``state`` is a storage without bytes (a random
#: generator, the outside world).
ITEMSIZE_BYTES: dict[str, int] = {
    "bool": 1, "u8": 1, "u16": 2, "u32": 4, "u64": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8,
    "f16": 2, "bf16": 2, "f32": 4, "f64": 8, "c32": 4, "c64": 8, "c128": 16,
    "f8e4m3fn": 1, "f8e4m3fnuz": 1, "f8e5m2": 1, "f8e5m2fnuz": 1, "f8e8m0fnu": 1, "state": 0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Storage:
    """An allocation.

    Parameters
    ----------
    name : str
        ``"s0"``; a state's storage is called after it (``"rng:cpu"``, ``"world"``).
    lifetime : str
        ``"input"`` and ``"constant"`` outlive the program; ``"local"`` does not, unless returned.
    """

    name: str
    lifetime: str = "local"


class Access(NamedTuple):
    """Memory that is read or written: a strided set of bytes of one place.

    Parameters
    ----------
    place : str
        Name of a storage, or of an object where its geometry is meant (both are one namespace).
    offset_bytes : int
    shape : tuple of int
    strides_bytes : tuple of int
    itemsize : int
        Bytes of an element.

    Examples
    --------
    >>> Access("s0", 16, (4,), (4,), 4)
    Access(place='s0', offset_bytes=16, shape=(4,), strides_bytes=(4,), itemsize=4)
    """

    place: str
    offset_bytes: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    itemsize: int


def whole(place: str) -> Access:
    """Return the access of a place without bytes: a state, or the geometry of an object."""
    return Access(place, 0, (), (), 1)


def contiguous_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the row-major stride of a shape, in elements.

    >>> contiguous_stride((2, 3, 4))
    (12, 4, 1)
    """
    stride: list[int] = []
    step = 1
    for size in reversed(shape):
        stride.append(step)
        step *= max(size, 1)
    return tuple(reversed(stride))


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A name for a tensor handle: it names memory, not contents.

    Two values of one ``object`` are names of the same tensor object at different moments; two values of one
    ``storage`` share memory.

    Examples
    --------
    >>> Value("x", "f32", (2, 3), storage=Storage("s0"), object="obj0")
    %x: f32[2, 3] @s0 obj0
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    storage: Storage
    object: str
    stride: tuple[int, ...] = None  # type: ignore[assignment]  # row-major when not given
    offset: int = 0
    device: str = "cpu"
    conj: bool = False
    neg: bool = False

    def __post_init__(self) -> None:
        if self.stride is None:
            object.__setattr__(self, "stride", contiguous_stride(self.shape))

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return ITEMSIZE_BYTES[self.dtype]

    @property
    def size_bytes(self) -> int:
        """Bytes of all elements."""
        return self.itemsize * math.prod(self.shape)

    @property
    def is_state(self) -> bool:
        """Whether this is a handle of a storage without bytes."""
        return self.dtype == "state"

    @property
    def geometry(self) -> tuple[Any, ...]:
        """What makes two handles the same memory seen in the same way."""
        return (self.storage.name, self.offset, self.shape, self.stride, self.dtype, self.conj, self.neg)

    @property
    def access(self) -> Access:
        """The bytes of the handle's elements."""
        if self.is_state:
            return whole(self.storage.name)
        size = self.itemsize
        strides_bytes = tuple(step * size for step in self.stride)
        return Access(self.storage.name, self.offset * size, self.shape, strides_bytes, size)

    def __repr__(self) -> str:
        return f"%{self.name}: {self.dtype}{list(self.shape)} @{self.storage.name} {self.object}"


@dataclass(frozen=True, slots=True)
class Symbol:
    """An argument that is neither a number nor a handle: ``dtype:f32``, ``device:cuda:0``, ``opaque:generator_1``."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class After:
    """An ORDER edge to an operation: ``operation`` must have run, because of ``reason`` (RAW, WAR or WAW).

    ``accesses`` are the earlier and the later access; the text form leaves them out.
    """

    operation: str
    reason: str
    accesses: tuple[Access, Access] | None = None


class Effect(NamedTuple):
    """One access of an operation, through one of its operands."""

    value: Value
    access: Access
    is_write: bool


def values_in(argument: Any) -> Iterator[Value]:
    """Yield the handles in an argument, in order, through lists, tuples and dicts."""
    if isinstance(argument, Value):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for item in argument:
            yield from values_in(item)
    elif isinstance(argument, dict):
        for item in argument.values():
            yield from values_in(item)


def map_values(argument: Any, change: Callable[[Value], Any]) -> Any:
    """Return the argument with every handle in it replaced by ``change(handle)``."""
    if isinstance(argument, Value):
        return change(argument)
    if isinstance(argument, (list, tuple)):
        return type(argument)([map_values(item, change) for item in argument])
    if isinstance(argument, dict):
        return {key: map_values(item, change) for key, item in argument.items()}
    return argument


@dataclass(frozen=True, eq=False)
class Operation:
    """One node of the program.

    Parameters
    ----------
    name : str
        Unique in the program.
    target : str
        ``"aten.add_.Tensor"``, or one of ``input``, ``constant``, ``output``, ``update_aliases``. Only executors
        resolve it.
    args, kwargs
        Handles, numbers, strings, None, lists, slices, Symbols.
    results : tuple of Value or None
        The tensors it returns, flattened; the states it advanced come last. None where it returns None.
    reads, writes, reshapes : tuple of int
        Positions in `operands` whose bytes are read, whose bytes are written, and whose object's geometry is written.
    states : tuple of Value
        Newest handles of the storages without bytes it touches: implicit operands, not passed to the target.
    after : tuple of After
        Operations that must run before, though no value passes.
    location : str, optional
        ``file:line`` in the user's code.
    """

    name: str
    target: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[Value | None, ...] = ()
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    reshapes: tuple[int, ...] = ()
    states: tuple[Value, ...] = ()
    after: tuple[After, ...] = ()
    location: str | None = None

    @cached_property
    def operands(self) -> tuple[Value, ...]:
        """The handles among the arguments, in order."""
        return (*values_in(self.args), *values_in(self.kwargs))

    @property
    def is_compute(self) -> bool:
        """Whether an executor has something to call for it."""
        return self.target not in (INPUT, CONSTANT, OUTPUT, UPDATE_ALIASES)

    @property
    def written(self) -> tuple[Value, ...]:
        """The operands whose bytes are written."""
        return tuple(self.operands[position] for position in self.writes)

    def result_of(self, operand: Value) -> Value | None:
        """Return the result that is the same object as an operand, or None."""
        return next((result for result in self.results if result and result.object == operand.object), None)

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """Every access of bytes, of states, and every write of a geometry.

        Using an operand at all reads its geometry, which is not listed.
        """
        operands = self.operands
        effects = [Effect(operands[i], operands[i].access, False) for i in self.reads]
        for position in self.writes:
            operand = operands[position]
            effects.append(Effect(operand, operand.access, True))
            after = self.result_of(operand)
            if after is not None and after.geometry != operand.geometry:
                effects.append(Effect(operand, after.access, True))
        effects += [Effect(operands[i], whole(operands[i].object), True) for i in self.reshapes]
        effects += [Effect(state, whole(state.storage.name), True) for state in self.states]
        return tuple(effects)

    def replace(self, **changes: Any) -> Operation:
        """Return a copy with some fields changed."""
        return replace(self, **changes)

    def rename(self, change: Callable[[Value], Value]) -> Operation:
        """Return a copy whose operands are ``change(operand)``."""
        return replace(
            self,
            args=map_values(self.args, change),
            kwargs=map_values(dict(self.kwargs), change),
            states=tuple(change(state) for state in self.states),
        )


class Program:
    """A captured program: a ``networkx.DiGraph`` of operations, in program order.

    Parameters
    ----------
    operations : iterable of Operation
        In program order; the last is the output.
    bindings : mapping, optional
        The objects that constants (``"c0"``) and opaque arguments (``"opaque:generator_1"``) stand for.
    signature : optional
        How a call's arguments become the inputs, and the outputs what the function returned. Without one, a call
        takes the inputs in order and returns a tuple.

    Attributes
    ----------
    graph : networkx.DiGraph
        Nodes carry ``op``; edges carry ``kind`` (``DATA`` or ``ORDER``), ORDER edges ``reason`` and ``accesses``.

    Examples
    --------
    >>> import graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[4] @s0 obj0 = input()
    ... %add__1: f32[4] @s0 obj0 = aten.add_.Tensor(%x!, 1) reads(%x)
    ... output(%add__1)
    ... ''')
    >>> list(program.graph.edges(data="kind"))
    [('x', 'add__1', 'DATA'), ('add__1', 'output', 'DATA')]
    """

    def __init__(
        self,
        operations: Iterable[Operation],
        *,
        bindings: Mapping[str, Any] | None = None,
        signature: Any = None,
        name: str = "program",
    ) -> None:
        self.graph = build_graph(operations)
        self.bindings = dict(bindings or {})
        self.signature = signature
        self.name = name

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Every operation, in program order."""
        return tuple(operation for _, operation in self.graph.nodes(data="op"))

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The input handles, states included, in order."""
        return self._results_of(INPUT)

    @property
    def constants(self) -> tuple[Value, ...]:
        """The handles of tensors the function closed over."""
        return self._results_of(CONSTANT)

    @property
    def output(self) -> Operation:
        """The output node."""
        return self.graph.nodes[OUTPUT]["op"]

    @property
    def outputs(self) -> tuple[Any, ...]:
        """What is returned, flattened: handles and plain values."""
        return self.output.args

    def _results_of(self, target: str) -> tuple[Value, ...]:
        return tuple(value for op in self.operations if op.target == target for value in op.results if value)

    def operation(self, name: str) -> Operation:
        """Return the operation of that name."""
        return self.graph.nodes[name]["op"]

    def replace_operations(self, operations: Iterable[Operation]) -> Program:
        """Return a program of other operations with the same bindings and signature."""
        return Program(operations, bindings=self.bindings, signature=self.signature, name=self.name)

    def run(self, *args: Any, order: Iterable[str] | None = None, **kwargs: Any) -> Any:
        """Run with the reference interpreter: one ATen call an operation.

        Parameters
        ----------
        *args, **kwargs
            What the captured function took.
        order : iterable of str, optional
            Any topological sequence of the node names; program order when not given.

        Returns
        -------
        What the captured function returned. Gradients are not recorded.

        Raises
        ------
        ExecutorError
            If the order is no topological order, the inputs do not fit the program, or an operation fails.
        """
        from graphalias.executors.eager import run

        return run(self, args, kwargs, order)

    def __str__(self) -> str:
        from graphalias.text import print_program

        return print_program(self)

    def __repr__(self) -> str:
        counts = f"{len(self.inputs)} inputs, {sum(op.is_compute for op in self.operations)} operations"
        return f"<Program {self.name}: {counts}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from graphalias.draw import draw

        return {"text/plain": str(self), "image/svg+xml": draw(self).svg}

    def _repr_svg_(self) -> str:
        return self._repr_mimebundle_()["image/svg+xml"]


def build_graph(operations: Iterable[Operation]) -> nx.DiGraph:
    """Return the graph of the operations: one edge a pair, DATA where a value passes, else ORDER with its reason."""
    graph = nx.DiGraph()
    producer: dict[str, str] = {}
    for operation in operations:
        if operation.name in graph:
            raise GraphAliasError("two operations of one name", node=operation.name, location=operation.location)
        graph.add_node(operation.name, op=operation)
        for after in operation.after:
            if after.operation not in graph:
                raise GraphAliasError(
                    f"ordered after {after.operation!r}, which is no earlier operation",
                    node=operation.name, location=operation.location,
                )  # fmt: skip
            graph.add_edge(after.operation, operation.name, kind=ORDER, reason=after.reason, accesses=after.accesses)
        for value in (*operation.operands, *operation.states):
            if value.name not in producer:
                raise GraphAliasError(
                    f"%{value.name} is used before any operation results in it",
                    node=operation.name, location=operation.location,
                )  # fmt: skip
            graph.add_edge(producer[value.name], operation.name, kind=DATA, reason=None, accesses=None)
        for result in operation.results:
            if result is not None:
                producer[result.name] = operation.name
    return graph
