"""Random programs, built directly: dense in hazards, on few storages and objects, whose bytes overlap in many ways.

`programs` is a hypothesis strategy, `random_program` the same generator behind a seed, for loops over thousands.
Targets are made up. Nothing here needs torch; what the operations do is stated by their effects alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import strategies as st

from graphalias.graph import Operation, Program, Storage, Value

T = TypeVar("T")

#: Bytes of every storage: a matrix ``f32[4, 4]``.
STORAGE_BYTES = 64

#: dtype, shape, stride, offset: what is taken of a storage. The first are the plainest, and what is shrunk to.
GEOMETRIES: tuple[tuple[str, tuple[int, ...], tuple[int, ...], int], ...] = (
    ("f32", (4, 4), (4, 1), 0),
    ("f32", (4,), (1,), 0),  # rows
    ("f32", (4,), (1,), 4),
    ("f32", (4,), (4,), 0),  # columns
    ("f32", (4,), (4,), 1),
    ("f32", (2, 4), (4, 1), 0),  # halves, by rows and by columns
    ("f32", (2, 4), (4, 1), 8),
    ("f32", (4, 2), (4, 1), 0),
    ("f32", (4, 2), (4, 1), 2),
    ("f32", (16,), (1,), 0),  # the same bytes as the whole
    ("f32", (4, 4), (1, 4), 0),
    ("f32", (8,), (2,), 0),  # every other element
    ("f32", (8,), (2,), 1),
    ("f32", (), (), 5),  # one element
    ("f32", (4,), (5,), 0),  # diagonal
    ("f64", (8,), (1,), 0),  # other dtypes over the same bytes
    ("f64", (2,), (1,), 1),
    ("i16", (4, 2), (8, 4), 1),
    ("u8", (16,), (4,), 3),
    ("f32", (3, 4), (0, 1), 4),  # expanded
    ("f32", (4, 3), (2, 1), 0),  # windows that overlap
    ("f32", (0,), (1,), 0),  # nothing
    ("f32", (4, 0), (1, 1), 4),
)


class ProgramBuilder:
    """Adds random operations to a program.

    Parameters
    ----------
    choose : callable
        ``choose(n)`` is a number below n; 0 the simplest choice.
    """

    def __init__(self, choose: Callable[[int], int]) -> None:
        self.choose = choose
        self.operations: list[Operation] = []
        self.storages: list[Storage] = []
        self.names: dict[str, list[Value]] = {}  # of each object: its names since its geometry last changed
        self.states: dict[str, Value] = {}
        self.count = 0

    def pick(self, options: Sequence[T]) -> T:
        return options[self.choose(len(options))]

    def chance(self, one_in: int) -> bool:
        return self.choose(one_in) == one_in - 1

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def handle(self) -> Value:
        """Return any name of any object, older names of the same geometry included."""
        names = self.names[self.pick(list(self.names))]
        return names[-1] if self.choose(3) else self.pick(names)

    def view(self, storage: Storage, same: Value | None = None) -> Value:
        """Return a new handle of a storage, of a new object unless one is given."""
        dtype, shape, stride, offset = self.pick(GEOMETRIES)
        neg = self.chance(12)
        object_ = same.object if same else self.fresh("obj")
        return Value(self.fresh("v"), dtype, shape, storage, object_, stride=stride, offset=offset, neg=neg)

    def storage(self, lifetime: str = "local") -> Storage:
        self.storages.append(Storage(self.fresh("s"), lifetime))
        return self.storages[-1]

    def renamed(self, value: Value) -> Value:
        """Return the same object under a new name."""
        return Value(self.fresh("v"), value.dtype, value.shape, value.storage, value.object, stride=value.stride,
                     offset=value.offset, device=value.device, conj=value.conj, neg=value.neg)  # fmt: skip

    def add(self, target: str, args: tuple, results: Sequence[Value | None] = (), **effects: tuple | dict) -> None:
        """Append an operation, and note the names it makes."""
        states = tuple(effects.get("states", ()))
        advanced = [Value(self.fresh("v"), "state", (), state.storage, state.object) for state in states]
        results = (*results, *advanced)
        name = results[0].name if len(results) == 1 and results[0] else self.fresh("op")
        self.operations.append(Operation(name, target, args=args, results=results, **effects))
        self.states.update((state.storage.name, state) for state in advanced)
        for result in results:
            if result is not None and not result.is_state:
                names = self.names.setdefault(result.object, [])
                if names and names[-1].geometry != result.geometry:
                    names.clear()
                names.append(result)

    def add_sources(self) -> None:
        """Add inputs, some of one storage, maybe a constant, and the states."""
        for _ in range(1 + self.choose(3)):
            shared = self.storages and not self.choose(2)
            storage = self.pick(self.storages) if shared else self.storage("input")
            self.add("input", (), [self.view(storage)])
        if self.chance(3):
            self.add("constant", (), [self.view(self.storage("constant"))])
        for place in ("rng:cpu", "world"):
            state = Value(self.fresh("v"), "state", (), Storage(place, "input"), self.fresh("obj"))
            self.operations.append(Operation(state.name, "input", results=(state,)))
            self.states[place] = state

    def add_operation(self) -> None:
        """Add one operation of any kind; the first kinds are the commonest and the plainest."""
        pure, view, in_place = self.add_pure, self.add_view, self.add_in_place
        common = [pure, view, in_place, in_place, view, in_place, self.add_foreach, self.add_out]
        rare = [self.add_pair, self.add_views, self.add_norm, self.add_reshape, self.add_move, self.add_random]
        self.pick([*common, *rare, self.add_effect, self.add_same])()

    def add_pure(self) -> None:
        operands = [self.handle() for _ in range(self.choose(3) + 1 - self.chance(8))]
        self.add("test.read", tuple(operands), [self.view(self.storage())], reads=tuple(range(len(operands))))

    def add_view(self) -> None:
        base = self.handle()
        self.add("test.view", (base,), [self.view(base.storage)])

    def add_views(self) -> None:
        """Several views of one base, as of split."""
        base = self.handle()
        self.add("test.split", (base, 2), [self.view(base.storage), self.view(base.storage)])

    def add_in_place(self) -> None:
        """A write of an operand that reads another; whether it returns the object or nothing."""
        written, other = self.handle(), self.handle()
        reads = self.pick([(0, 1), (1,), (0,), ()])
        results = [self.renamed(written)] if self.choose(4) else []
        self.add("test.write", (written, other), results, reads=reads, writes=(0,))

    def add_foreach(self) -> None:
        """Writes of two operands that returns nothing."""
        operands = [self.handle() for _ in range(3)]
        self.add("test.foreach", (operands[:2], 1.5, operands[2:]), reads=self.pick([(), (0, 1), (2,)]), writes=(0, 1))

    def add_out(self) -> None:
        """A write of an argument that is named, with or without a change of its geometry."""
        source, out = self.handle(), self.handle()
        keeps = self.choose(3)
        result = self.renamed(out) if keeps else self.view(out.storage, same=out)
        results, reshapes = [result], () if keeps else (1,)
        self.add("test.out", (source,), results, kwargs={"out": out}, reads=(0,), writes=(1,), reshapes=reshapes)

    def add_pair(self) -> None:
        """Two new tensors and a None."""
        results = [self.view(self.storage()), None, self.view(self.storage())]
        self.add("test.pair", (self.handle(),), results, reads=(0,))

    def add_norm(self) -> None:
        """A new tensor, and a running statistic written on the way."""
        self.add("test.norm", (self.handle(), self.handle()), [self.view(self.storage())], reads=(0, 1), writes=(1,))

    def add_reshape(self) -> None:
        """A change of geometry on the same storage; no byte is touched."""
        operand = self.handle()
        self.add("test.reshape_", (operand,), [self.view(operand.storage, same=operand)], reshapes=(0,))

    def add_move(self) -> None:
        """An object is moved to another operand's storage, or to a new one."""
        operand, source = self.handle(), self.handle()
        storage = source.storage if self.choose(4) else self.storage()
        self.add("test.set_", (operand, source), [self.view(storage, same=operand)], reshapes=(0,))

    def add_random(self) -> None:
        """New random numbers, or a write of them."""
        rng = (self.states["rng:cpu"],)
        if self.choose(2):
            self.add("test.rand", (4,), [self.view(self.storage())], states=rng)
        else:
            written = self.handle()
            self.add("test.normal_", (written,), [self.renamed(written)], writes=(0,), states=rng)

    def add_effect(self) -> None:
        """Something the outside world sees."""
        self.add("test.print", (self.handle(),), reads=(0,), states=(self.states["world"],))

    def add_same(self) -> None:
        """An operation that returns its operand, untouched."""
        operand = self.handle()
        self.add("test.same", (operand,), [self.renamed(operand)])

    def program(self, operations: int) -> Program:
        """Return a program of that many operations, besides inputs and output."""
        self.add_sources()
        for _ in range(operations):
            self.add_operation()
        self.add("output", tuple(self.handle() for _ in range(self.choose(4))))
        last = self.operations.pop()
        return Program([*self.operations, last.replace(name="output")])


def random_program(seed: int, operations: int = 8) -> Program:
    """Return the program of a seed: the same one every time."""
    return ProgramBuilder(random.Random(seed).randrange).program(operations)


@st.composite
def programs(draw: st.DrawFn, max_operations: int = 12) -> Program:
    """Any program of up to so many operations, besides inputs and output."""
    builder = ProgramBuilder(lambda n: draw(st.integers(0, n - 1)))
    return builder.program(draw(st.integers(0, max_operations)))
