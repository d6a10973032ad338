"""How long rewriting takes: twenty rules on programs of more and more operations; and what the library's rules save.

    python -m tools.bench_rewrite

Seconds are of CPU time, the best of the rounds; the exponent is the least-squares slope of log(seconds) over log(size).
Bytes are what eager would read, write and allocate, from the accesses the program states.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from rich.console import Console
from rich.table import Table

from graphalias import Program, Rule, capture, find_hazards, rewrite_in_steps
from graphalias.graph import OUTPUT, Operation, Storage, Value
from graphalias.moves import made_storages
from graphalias.rewrite import Rewriting
from graphalias.rules import (
    cat_in_place,
    copy_into_dead,
    double_cast,
    in_place,
    redundant_cast,
    redundant_clone,
    view_of_view,
)
from graphalias.traffic import traffic_of_calls
from tools.bench_passes import slope

SIZES = (1_000, 3_000, 10_000, 30_000)

Function = Callable[..., torch.Tensor]

PAIRS: dict[str, tuple[Function, Function]] = {
    "addcmul": (lambda x, y, z: x * y + z, lambda x, y, z: torch.addcmul(z, x, y)),
    "addcmul_right": (lambda x, y, z: z + x * y, lambda x, y, z: torch.addcmul(z, x, y)),
    "subcmul": (lambda x, y, z: z - x * y, lambda x, y, z: torch.addcmul(z, x, y, value=-1)),
    "addcdiv": (lambda x, y, z: z + x / y, lambda x, y, z: torch.addcdiv(z, x, y)),
    "lerp": (lambda x, y, w: x + w * (y - x), lambda x, y, w: torch.lerp(x, y, w)),
    "silu": (lambda x: x * torch.sigmoid(x), lambda x: torch.nn.functional.silu(x)),
    "rsqrt": (lambda x: torch.reciprocal(torch.sqrt(x)), lambda x: torch.rsqrt(x)),
    "square": (lambda x: x * x, lambda x: torch.square(x)),
    "expm1": (lambda x: torch.exp(x) - 1, lambda x: torch.expm1(x)),
    "log1p": (lambda x: torch.log(x + 1), lambda x: torch.log1p(x)),
    "relu_relu": (lambda x: torch.relu(torch.relu(x)), lambda x: torch.relu(x)),
    "abs_neg": (lambda x: torch.abs(torch.neg(x)), lambda x: torch.abs(x)),
    "abs_abs": (lambda x: torch.abs(torch.abs(x)), lambda x: torch.abs(x)),
    "neg_neg": (lambda x: torch.neg(torch.neg(x)), lambda x: torch.clone(x)),
    "sub_neg": (lambda x, y: x + torch.neg(y), lambda x, y: x - y),
    "log_softmax": (lambda x: torch.log(torch.softmax(x, -1)), lambda x: torch.log_softmax(x, -1)),
    "scaled": (lambda x, y, a=2.0: x + y * a, lambda x, y, a: torch.add(x, y, alpha=a)),
    "scaled_in_place": (lambda x, y, a=2.0: x.add_(y * a), lambda x, y, a: x.add_(y, alpha=a)),
    "addcmul_in_place": (lambda x, y, z: z.add_(x * y), lambda x, y, z: z.addcmul_(x, y)),
    "mul_add_in_place": (lambda x, y: x.mul_(2).add_(y), lambda x, y: x.add_(y).add_(x - y)),
}
RULES = [Rule(pattern, replacement, name=name) for name, (pattern, replacement) in PAIRS.items()]


def layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Run twenty-odd operations, in place and not, in which about half of the rules match once."""
    y = x * w + b
    y = y * torch.sigmoid(y)
    y.add_(b * 0.5)
    z = torch.reciprocal(torch.sqrt(y.abs().abs()))
    z = torch.log(z + 1)
    b.add_(z * y)
    row = z[1:]
    row.mul_(y[1:])
    z = torch.neg(torch.neg(z))
    return z - y * w


def stacked(size: int) -> Program:
    """Return a program of about so many operations: layers, each on what the one before made."""
    shape = (4, 4)
    block = capture(layer, torch.rand(shape), torch.rand(shape), torch.rand(shape))
    body = [operation for operation in block.operations if operation.is_compute]
    inputs = {value.name: value for value in block.inputs}
    operations = [operation for operation in block.operations if operation.target == "input"]
    x = inputs["x"]
    for i in range(size // len(body)):
        copied = list(_renamed(body, {"x": x}, i))
        operations += copied
        x = copied[-1].results[0]
    return Program([*operations, Operation(OUTPUT, OUTPUT, (x,))])


def _renamed(body: Sequence[Operation], known: dict[str, Value], number: int) -> Iterator[Operation]:
    """Yield a layer's operations with names of their own; what is not made in it is what it is given."""
    places = {"s0": known["x"].storage}
    objects = {"obj0": known["x"].object}

    def place(storage: Storage) -> Storage:
        is_given = storage.lifetime != "local"
        return places.setdefault(storage.name, storage if is_given else Storage(f"s{number}_{storage.name}"))

    def renamed(value: Value) -> Value:
        if value.name not in known:
            is_given = value.object in ("obj1", "obj2")
            object_ = objects.setdefault(value.object, value.object if is_given else f"obj{number}_{value.object}")
            name = value.name if value.name in ("w", "b") else f"{value.name}_{number}"
            known[value.name] = Value(name, value.dtype, value.shape, place(value.storage), object_,
                                      stride=value.stride, offset=value.offset)  # fmt: skip
        return known[value.name]

    for operation in body:
        moved = operation.rename(renamed)
        results = tuple(result and renamed(result) for result in operation.results)
        yield moved.replace(name=f"{operation.name}_{number}", results=results)


def seconds_for(program: Program, rules: Sequence[Rewriting], rounds: int) -> tuple[float, int, int]:
    """Return the best CPU time of some rounds, and how many matches were replaced and refused."""
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        gc.disable()
        start = time.process_time()
        steps = rewrite_in_steps(program, rules)
        best = min(best, time.process_time() - start)
        gc.enable()
    return best, len(steps.applied), len(steps.refused)


def moved_bytes(program: Program) -> tuple[int, int, int]:
    """Return how many bytes operations read and write, how many they allocate, and how many operations there are."""
    operations = [operation for operation in program.operations if operation.is_compute]
    # what is allocated by anything but an empty tensor is written, too
    moved = traffic_of_calls(operation for operation in operations if "empty" not in operation.target)
    allocated = sum(value.size_bytes for op in operations for value in made_storages([op]).values())
    return moved.total_bytes, allocated, len(operations)


def _copied(x: torch.Tensor) -> torch.Tensor:
    y = torch.exp(x).clone()
    return y.mul_(2).clone() + y


def _buffered(x: torch.Tensor) -> torch.Tensor:
    buffer = torch.empty_like(x)
    buffer.copy_(x + 1)
    return buffer * 2


def _rotated(x: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return torch.cat([-right, left.exp()], -1)


#: A program for each rule of the library, and its arguments.
SAVINGS: tuple[tuple[Rewriting, Function, tuple[int, ...], torch.dtype], ...] = (
    (redundant_clone, _copied, (1024, 1024), torch.float32),
    (redundant_cast, lambda x: x.to(torch.float32, copy=True) + 1, (1024, 1024), torch.float32),
    (copy_into_dead, _buffered, (1024, 1024), torch.float32),
    (double_cast, lambda x: x.double().half() + 1, (1024, 1024), torch.float32),
    (cat_in_place, _rotated, (1024, 1024), torch.float32),
    (in_place, lambda x: torch.tanh(torch.exp(x + 1) * 2), (1024, 1024), torch.float32),
    (view_of_view, lambda x: x[1:-1].t()[2:].view_as(x[1:-1].t()[2:]).exp(), (1024, 1024), torch.float32),
)  # fmt: skip


def eager_ms(program: Program, x: torch.Tensor, rounds: int = 15) -> float:
    """Return the best time of a run of the reference interpreter."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        program.run(x)
        best = min(best, time.perf_counter() - start)
    return best * 1000


def print_savings(console: Console) -> None:
    """Print what each rule of the library saves on a program made for it."""
    table = Table("rule", "operations", "MiB moved", "MiB allocated", "ms", title="before -> after")
    for rule, fn, shape, dtype in SAVINGS:
        x = torch.rand(shape).to(dtype)
        before = capture(fn, x)
        after = rewrite_in_steps(before, [rule]).program
        (touched, allocated, count), (touched_after, allocated_after, count_after) = map(moved_bytes, (before, after))
        mib = [value / 2**20 for value in (touched, touched_after, allocated, allocated_after)]
        row = [f"{count} -> {count_after}", f"{mib[0]:.1f} -> {mib[1]:.1f}", f"{mib[2]:.1f} -> {mib[3]:.1f}"]
        row += [f"{eager_ms(before, x):.2f} -> {eager_ms(after, x):.2f}"]
        table.add_row(rule.name, *row)
    console.print(table)


def print_growth(console: Console, sizes: Sequence[int], rounds: int) -> None:
    """Print the seconds that twenty rules take on programs of some sizes, and how they grow."""
    table = Table("operations", "s", "replaced", "refused", title=f"{len(RULES)} rules")
    found = []
    for size in sizes:
        program = stacked(size)
        found.append(seconds_for(program, RULES, rounds)[0])
        steps = rewrite_in_steps(program, RULES)
        count = sum(operation.is_compute for operation in program.operations)
        table.add_row(str(count), f"{found[-1]:.2f}", str(len(steps.applied)), str(len(steps.refused)))
    console.print(table)
    console.print(f"exponent: {slope(sizes, found):.2f}")


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console()
    assert find_hazards(stacked(100))  # the programs are such that they need an order
    print_growth(console, options.sizes, options.rounds)
    print_savings(console)


if __name__ == "__main__":
    main()
