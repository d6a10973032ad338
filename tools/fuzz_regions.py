"""Random programs through fusion regions, against eager PyTorch: ``python tools/fuzz_regions.py --count 2000``.

A program is Python source, made line by line beside tensors that tell which operations fit, so that a failing one is
cut to its minimum and printed as a test. ``--executor functional`` runs the regions' functional form by ATen, which
tells the partition's faults from the code generator's.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch

import graphalias
from graphalias.aliases import insert_update_aliases
from graphalias.capture import capture
from graphalias.dead import eliminate_dead_operations
from graphalias.executors import inductor, once
from graphalias.folding import fold_views
from graphalias.graph import Program
from graphalias.hazards import find_hazards
from graphalias.oracle import Scene, Seen, differences
from graphalias.orders import topological_orders
from graphalias.partition import partition

EXECUTORS = ("functional", "inductor", "eager")

DTYPES = ("float32", "float32", "float32", "bfloat16", "float16", "int64", "int32", "bool", "uint8", "float64")

#: Arguments: each line makes one more tensor of those before it.
SHARED = (
    "{x}.view({x}.shape)", "{x}", "{x}[1:]", "{x}[:-1]", "{x}[::2]", "{x}[..., ::2]", "{x}[..., 1::2]", "{x}.t()",
    "{x}.transpose(0, -1)", "{x}.detach()", "{x}[0]", "{x}[..., :1].expand({x}.shape)", "{x}.flatten()[2:8]",
    "{x}.flatten()[3:9]", "{x}[:0]", "{x}.diagonal()", "{x}.unsqueeze(0)", "{x}.data", "{x}.as_strided((2, 3), (3, 1))",
)  # fmt: skip
FRESH = (
    "make({d}, 4, 6)", "make({d}, 4, 6)", "make({d}, 6)", "make({d}, 4, 1)", "make({d}, 4, 4)", "make({d})",
    "make({d}, 0, 6)", "make({d}, 2, 3, 4, 2).to(memory_format=torch.channels_last)", "make({d}, 6, 4).t()",
    "make({d}, 1, 6).expand(4, 6)", "make({d}, 4, 12)[:, ::2]", "make({d}, 2, 4, 6)", "make({d}, 8, 6)[2:6]",
    "make({d}, 1)", "make({d}, 1, 1)",
)  # fmt: skip

VIEWS = (
    "{x}[1:]", "{x}[:-1]", "{x}[::2]", "{x}[..., ::2]", "{x}[..., 1:]", "{x}[0]", "{x}[-1]", "{x}[..., 0]", "{x}.t()",
    "{x}.transpose(0, -1)", "{x}.movedim(0, -1)", "{x}.unsqueeze(0)", "{x}.unsqueeze(-1)", "{x}.squeeze()",
    "{x}.flatten()", "{x}.view(-1)", "{x}.view(-1, 2)", "{x}.diagonal()", "{x}.chunk(2, -1)[1]", "{x}.split(2)[0]",
    "{x}.unbind(0)[0]", "{x}.expand(2, *{x}.shape)", "{x}.detach()", "{x}.narrow(0, 1, 2)", "{x}.unfold(0, 2, 1)",
    "{x}.view_as({x})", "{x}.reshape(-1)", "{x}.reshape(2, -1)", "{x}.as_strided((2, 2), (2, 1), 1)",
    "{x}.as_strided((2, 2), (2, 1))", "{x}.select(0, 1)", "{x}.T", "{x}.view(torch.int32)", "{x}[:, None]",
    "{x}.swapaxes(0, -1)", "{x}.contiguous()", "{x}.to({x}.dtype)", "{x}.expand_as({y})", "{x}.broadcast_to({y}.shape)",
)  # fmt: skip
#: Exact in any order of evaluation, as long as the numbers are multiples of a quarter and not large.
PURE = (
    "{x} + {y}", "{x} - {y}", "{x} * 2", "{x} * 0.5", "-{x}", "{x}.abs()", "{x}.relu()", "{x}.clamp(-2, 1)",
    "torch.where({x} > {y}, {x}, {y})", "torch.where({x} > 0, {x}, 0)", "torch.maximum({x}, {y})", "{x} > {y}",
    "{x} == {y}", "{x} >= 0.5", "{x}.sum()", "{x}.sum(0)", "{x}.sum(-1, keepdim=True)", "{x}.amax(0)",
    "{x}.amax(-1, keepdim=True)", "{x}.amin(0)", "{x} * 1", "{x} + 0", "{x}.clone()", "{x}.float()", "{x}.bfloat16()",
    "{x}.half()", "{x}.int()", "{x}.double()", "{x}.bool()", "torch.cat([{x}, {y}])", "torch.stack([{x}, {y}])",
    "torch.cat([{x}, {x}], -1)", "torch.nn.functional.pad({x}, (1, 1))", "{x}.flip(0)", "{x}.roll(1, 0)",
    "{x}.flip(-1)", "{x} & 3", "{x} ^ {y}", "{x}.logical_not()", "torch.zeros_like({x})", "torch.ones_like({x})",
    "torch.full_like({x}, 2)", "{x}.new_zeros({y}.shape)", "{x}.masked_fill({x} > 1, 0)", "{x}.masked_fill({y} > 0, 1)",
    "{x}[[0, 1]]", "{x}.sign()", "{x}.square().clamp(0, 8)", "torch.minimum({x}, {y})", "{x}.any(0)", "{x}.all()",
    "{x}.max()", "{x}.max(0)[0]", "{x}.argmax(0)", "{x}.repeat(2, 1)", "{x}.tril()", "{x}.cumsum(0)", "1 - {x}",
    "torch.add({x}, {y}, alpha=2)", "{x}.to(torch.uint8)", "torch.arange(6) + {x}", "{x}.sum(0, dtype=torch.float64)",
    "torch.select_scatter({x}, {x}[0] + 1, 0, 1)", "torch.slice_scatter({x}, {x}[:2] + 1, 0, 1, 3)", "{x}.trunc()",
    "{x}.isnan()", "{x}.ne({y})", "torch.empty_like({x}).fill_(1)", "torch.empty_like({x}).copy_({y})",
    "{x}.count_nonzero(0)",
    "torch.addcmul({x}, {y}, {y}.clamp(-1, 1))", "torch.lerp({x}, {y}, 0.5)", "{x}.contiguous() + {y}", "{x}.fmod(2)",
    "{x}.remainder(2)", "{x}.floor()", "{x}.nan_to_num()", "{x}.rsub({y})", "{x}.type_as({y})",
    "{x}.diff(dim=0)", "torch.hstack([{x}, {y}])", "{x}.permute(*range({x}.dim())[::-1]) + 1", "{x}.bitwise_not()",
)  # fmt: skip
IN_PLACE = (
    "{x}.add_(1)", "{x}.add_({y})", "{x}.sub_({y})", "{x}.mul_(2)", "{x}.mul_(0.5)", "{x}.neg_()", "{x}.abs_()",
    "{x}.relu_()", "{x}.clamp_(-2, 2)", "{x}.copy_({y})", "{x}.copy_({y} + 1)", "{x}.zero_()", "{x}.fill_(2)",
    "{x}.masked_fill_({x} > 1, 0)", "{x}.masked_fill_({y} > 0, 1)", "{x}[1:].add_({x}[:-1] * 1)", "{x}[0].add_(1)",
    "{x}[..., 0].copy_({y}[..., 0])", "{x}[..., ::2].add_({x}[..., 1::2])", "{x}.add_({y}, alpha=2)",
    "{x}.index_fill_(0, torch.tensor([1]), 3)", "{x}.logical_not_()", "{x}.bitwise_and_(3)", "{x}.sub_({x})",
    "{x}.add_({x})", "{x}.sub_({x}.sum(0, keepdim=True).clamp(-2, 2))", "{x}.sub_({x}.amax(-1, keepdim=True))",
    "{x}.copy_({x}.flip(0))", "{x}.copy_({x}.roll(1, -1))", "{x}.add_({x}.t() * 1)", "{x}.fill_diagonal_(1)",
    "{x}.square_().clamp_(0, 4)", "{x}.sign_()", "{x}[{x} > 0] = 1", "{x}[..., 1] = {y}[..., 0]", "{x}[1:] = {y}[:-1]",
    "{x}.t().mul_(2)", "{x}.view(-1)[1:4].add_(1)", "{x}.lt_({y})", "{x}.gt_(0)", "{x}.trunc_()", "{x}.floor_()",
    "torch.add({x}, {y}, out={x})", "torch.neg({y}, out={x})", "{x}.unsqueeze_(0)", "{x}.t_()", "{x}.squeeze_()",
    "torch._foreach_add_([{x}, {y}], 1)", "torch._foreach_mul_([{x}, {y}], [{y} * 1, {x} * 1])", "{x} += {y}",
    "{x}.addcmul_({y}, {y}.clamp(-1, 1))", "{x}.lerp_({y}, 0.5)", "{x}.detach().add_(1)", "{x}.data.mul_(2)",
    "{x}.index_add_(0, torch.tensor([0]), {x}[1:2] * 1)", "{x}.tril_()", "{x}.remainder_(4)",
)  # fmt: skip
#: Right to the last bits only: no decision may hang on them.
INEXACT = (
    "{x}.sin()", "{x}.tanh()", "{x}.sigmoid()", "({x} * 0.3).exp()", "{x}.mean()", "{x}.mean(0)",
    "{x}.mean(-1, keepdim=True)", "{x}.var(0, unbiased=False)", "{x} / 3", "({x}.square() + 1).rsqrt()",
    "{x}.softmax(-1)", "torch.nn.functional.layer_norm({x}, {x}.shape[-1:])", "torch.nn.functional.gelu({x})",
    "{x}.sin_()", "{x}.tanh_()", "{x}.div_(3)", "{x}.sub_({x}.mean(0))", "{x}.mul_({x}.sigmoid())", "{x}.cos_()",
    "({x}.square() + 1).sqrt()", "{x}.logsumexp(-1)", "torch.nn.functional.silu({x}, inplace=True)",
    "{x}.div_({x}.square().sum(-1, keepdim=True).add_(1).sqrt_())", "{x} @ {y}", "{x}.std(-1)", "{x}.erf()",
    "torch.var_mean({x}, 0)[1]", "{x}.norm(dim=0)", "{x}.pow(2)", "{x}.atan2({y})", "{x}.addcdiv_({y}, {y}.abs() + 1)",
)  # fmt: skip
DECIDES = re.compile(
    r"[<>]|==|floor|trunc|sign|int|bool|arg|ne\(|gt_|lt_|remainder|fmod|uint8|logical|any|all|half|bfloat"
)


def make(dtype: str, *shape: int) -> torch.Tensor:
    """Return a tensor of small multiples of a quarter, or small integers."""
    numbers = torch.randint(-8, 9, shape)
    kind = getattr(torch, dtype)
    return (numbers / 4).to(kind) if kind.is_floating_point else numbers.abs().to(kind)


@dataclass(frozen=True)
class Source:
    """A program as text.

    Parameters
    ----------
    arguments, lines : tuple of (name, expression)
        A name is None where the line makes nothing that is used.
    returned : tuple of str
    seed : int
        Of the arguments' values.
    """

    arguments: tuple[tuple[str, str], ...]
    lines: tuple[tuple[str | None, str], ...]
    returned: tuple[str, ...]
    seed: int

    def __str__(self) -> str:
        names = ", ".join(name for name, _ in self.arguments)
        made = [f"    {name} = {expression}" for name, expression in self.arguments]
        body = [f"    {name} = {line}" if name else f"    {line}" for name, line in self.lines]
        return "\n".join(
            ["def arguments():", f"    torch.manual_seed({self.seed})", *made, f"    return ({names},)", "",
             f"def program({names}):", *body, f"    return [{', '.join(self.returned)}]", ""]
        )  # fmt: skip

    def functions(self) -> tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]:
        """Return the program, and what makes its arguments."""
        names: dict[str, Any] = {"torch": torch, "make": make}
        exec(compile(str(self), "<program>", "exec"), names)
        return names["program"], names["arguments"]

    def shorter(self) -> Iterator[Source]:
        """Yield programs with something left out, the most first."""
        for size in (16, 8, 4, 2, 1):
            for start in range(0, len(self.lines), size):
                yield self._without(range(start, start + size))
        for i in range(len(self.returned)):
            yield replace(self, returned=self.returned[:i] + self.returned[i + 1 :])
        used = " ".join([*self.returned, *(line for _, line in self.lines)])
        for i, (name, _) in enumerate(self.arguments):
            later = " ".join(expression for _, expression in self.arguments[i + 1 :])
            if not re.search(rf"\b{name}\b", used + " " + later):
                yield replace(self, arguments=self.arguments[:i] + self.arguments[i + 1 :])

    def _without(self, left_out: range) -> Source:
        gone: set[str] = set()
        lines = []
        for i, (name, line) in enumerate(self.lines):
            if i in left_out or gone.intersection(re.findall(r"\w+", line)):
                gone.update({name} if name else ())
            else:
                lines.append((name, line))
        return replace(self, lines=tuple(lines), returned=tuple(name for name in self.returned if name not in gone))


def random_source(seed: int) -> Source:
    """Return a random program of 1 to 40 operations that eager PyTorch runs."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    names: dict[str, Any] = {"torch": torch, "make": make}
    arguments: list[tuple[str, str]] = []
    main = choose.choice(DTYPES)
    for i in range(choose.randint(1, 5)):
        dtype = main if choose.random() < 0.7 else choose.choice(DTYPES)
        kind = choose.choice(SHARED if arguments and choose.random() < 0.5 else FRESH)
        text = kind.format(x=choose.choice(arguments)[0] if arguments else "", d=repr(dtype))
        arguments += _tried(f"a{i}", text, names)
    arguments = arguments or _tried("a0", "make('float32', 4, 6)", names)
    is_exact = choose.random() < 0.7
    lines: list[tuple[str | None, str]] = []
    wanted = choose.randint(1, choose.choice([4, 10, 20, 40]))
    for i in range(4 * wanted):
        if len(lines) < wanted:
            lines += _random_line(choose, f"t{i}", names, is_exact)
    tensors = [name for name in names if re.fullmatch(r"[at]\d+", name)]
    return Source(tuple(arguments), tuple(lines), tuple(choose.choices(tensors, k=choose.randint(0, 4))), seed)


def _random_line(choose: random.Random, name: str, names: dict[str, Any], is_exact: bool) -> list[tuple[Any, str]]:
    tensors = [known for known in names if re.fullmatch(r"[at]\d+", known)]
    x = choose.choice(tensors[-4:] if choose.random() < 0.5 else tensors)
    fits = [known for known in tensors if names[known].shape == names[x].shape]
    y = choose.choice(fits if choose.random() < 0.8 else tensors)
    table = choose.choices([VIEWS, PURE, IN_PLACE, INEXACT], [3, 4, 5, 0 if is_exact else 4])[0]
    text = choose.choice(table).format(x=x, y=y)
    if not is_exact and DECIDES.search(text):
        return []
    return _tried(name if table is not IN_PLACE or choose.random() < 0.3 else None, text, names)


def _tried(name: str | None, text: str, names: dict[str, Any]) -> list[tuple[Any, str]]:
    """Return the line if it runs, and run it."""
    if name and re.search(r"[^=<>]=[^=]|\+=", re.sub(r"\(.*\)", "", text)):
        name = None
    try:
        exec(f"{name} = {text}" if name else text, names)
        made = names[name] if name else None
        is_small = made is None or made.numel() <= 512
        if all(_is_tame(value) for value in names.values() if isinstance(value, torch.Tensor)) and is_small:
            return [(name, text)]
    except Exception:  # it does not fit
        pass
    names.pop(name or "", None)
    return []


def _is_tame(tensor: torch.Tensor) -> bool:
    """Whether no rounding can have happened to multiples of a quarter: half precision holds few digits."""
    largest = {torch.bfloat16: 32, torch.float16: 256, torch.uint8: 255}.get(tensor.dtype, 1e5)
    return tensor.numel() == 0 or not tensor.is_floating_point() or bool(tensor.abs().max() < largest)


@contextlib.contextmanager
def functional_regions() -> Iterator[None]:
    """Let ATen run the functional form of each region, in the place of code generated from it."""

    def generate(graph: Any, fakes: Any) -> Callable[..., Any]:
        return (lambda tensors: graph(*tensors)), None

    with mock.patch.object(inductor, "_generate", generate), mock.patch.dict(once._compiled, clear=True):
        yield


def faults(source: Source, executor: str) -> list[str]:
    """Return what differs from eager PyTorch: the lowered program, orders of the partitioned one, and jit."""
    fn, make_arguments = source.functions()
    args = make_arguments()
    scene = Scene({f"a{i}": tensor for i, tensor in enumerate(dict.fromkeys(args))})
    before = _versions(scene)
    expected = scene.watch(lambda: fn(*args))
    counted = {key for key, version in _versions(scene).items() if version != before[key]}
    if expected.error is not None:
        return []
    try:
        captured = capture(fn, *args)
    except graphalias.CaptureError as error:
        if "eager PyTorch refuses" in str(error):
            raise
        return []
    with functional_regions() if executor == "functional" else contextlib.nullcontext():
        return list(_faults(captured, fn, args, scene, expected, counted, executor))


def _faults(
    captured: Program, fn: Any, args: Any, scene: Scene, expected: Any, counted: set[str], executor: str
) -> Iterator[str]:
    name = "inductor" if executor == "functional" else executor
    program = partition(eliminate_dead_operations(insert_update_aliases(captured)), name)
    graphalias.check(program)
    yield from (f"hazard: {hazard}" for hazard in find_hazards(program))
    for order in topological_orders(program, 3):
        found = scene.watch(lambda: program.run(*args, order=order))  # noqa: B023
        yield from (f"order {order}: {line}" for line in differences(expected, found))
    for kind, lowered in (("", program), (" of folded views", fold_views(program))):
        compiled = graphalias.lower(lowered, name)
        found = scene.watch(lambda: compiled(*args))  # noqa: B023
        yield from (f"lowered{kind}: {line}" for line in _different(expected, found, name))
    with torch.no_grad():
        jitted = graphalias.jit(fn, executor=name, strict=True)
        for i in range(3):
            before = _versions(scene)
            contents = {key: tensor.clone() for key, tensor in scene.tensors.items()}
            found = scene.watch(lambda: jitted(*args))
            yield from (f"call {i}: {line}" for line in _different(expected, found, name))
            for key in sorted(counted):
                if _versions(scene)[key] == before[key]:
                    yield from _stale(key, contents[key], expected.arguments[f"{key} (contents)"])


def _different(expected: Seen, found: Seen, executor: str) -> list[str]:
    """Return what differs but for the strides of one element or none, in which torch's own kernels differ."""
    return differences(_without_idle_strides(expected), _without_idle_strides(found), exact=executor == "eager")


def _without_idle_strides(seen: Seen) -> Seen:
    returned = dict(seen.returned)
    for name, look in returned.items():
        if name.endswith("(geometry)"):
            dtype, shape, stride, offset, *rest = look
            steps = [step for size, step in zip(shape, stride, strict=True) if size > 1]
            returned[name] = (dtype, shape, *((steps, offset) if 0 not in shape else ()), *rest)
    return replace(seen, returned=returned)


def _versions(scene: Scene) -> dict[str, int]:
    return {key: tensor._version for key, tensor in scene.tensors.items()}


def _stale(name: str, before: torch.Tensor, after: torch.Tensor) -> Iterator[str]:
    if before.shape == after.shape and not torch.equal(before, after):
        yield f"the version counter of {name} stands still: an earlier forward's saved tensors go stale"


def is_faulty(source: Source, executor: str) -> str:
    """Return what is wrong with a program, in words; empty where nothing is."""
    try:
        found = faults(source, executor)
    except Exception as error:
        return "".join(traceback.format_exception(error)[-6:])
    return "\n".join(found[:6])


def minimal(source: Source, executor: str) -> Source:
    """Return a faulty program from which nothing can be left out."""
    kind = _kind(is_faulty(source, executor))
    while True:
        for shorter in source.shorter():
            if shorter != source and _kind(is_faulty(shorter, executor)) == kind:
                source = shorter
                break
        else:
            return source


def _kind(text: str) -> str:
    lines = text.strip().splitlines()
    if not lines:
        return ""
    return "error " + lines[-1].split(":")[0] if "Traceback" in text or 'File "' in text else "difference"


def main() -> int:
    """Run the programs of some seeds; print each faulty one at its minimum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--executor", choices=EXECUTORS, default="functional")
    parser.add_argument("--no-minimum", action="store_true", help="print failing programs whole")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    faulty = 0
    for seed in range(options.first, options.first + options.count):
        source = random_source(seed)
        why = is_faulty(source, options.executor)
        if why:
            faulty += 1
            if not options.no_minimum:
                source = minimal(source, options.executor)
                why = is_faulty(source, options.executor)
            print(f"# seed {seed}\n{source}\n# {why}\n", flush=True)
    print(f"{options.count} programs, {faulty} faulty")
    return int(faulty > 0)


if __name__ == "__main__":
    sys.exit(main())
