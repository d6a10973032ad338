"""The definitions of the regions of every program, for the stand-in driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # its usual name

import graphalias
from graphalias.executors import nvfuser
from graphalias.executors.functional import scratch_like
from graphalias.graph import REGION, Program
from programs import PROGRAMS
from shared import load_cases


def partitioned(fn: Any, args: tuple[Any, ...]) -> Program:
    """Return a function's program with regions for nvFuser."""
    ordered = graphalias.eliminate_dead_operations(graphalias.insert_update_aliases(graphalias.capture(fn, *args)))
    return graphalias.partition(ordered, "nvfuser")


def regions_of(fn: Any, args: tuple[Any, ...]) -> list[Any]:
    """Return the regions of a function's program as nvFuser takes them."""
    program = partitioned(fn, args)
    return [nvfuser.compile_region(operation) for operation in program.operations if operation.target == REGION]


def make(part: str, parts: str) -> Iterator[tuple[str, Any, list[torch.Tensor]]]:
    """Yield each definition of every so many programs that has a write or several results, once."""
    cases = [case for case in load_cases().CASES if not case.backward and not case.expect_error]
    programs = [(case.name, case.fn, lambda case=case: case.make(torch.Generator().manual_seed(0))) for case in cases]
    programs += [(case.name, case.fn, case.make) for case in PROGRAMS]
    seen = set()
    for name, fn, args in programs[int(part) :: int(parts)]:
        for region in regions_of(fn, args()):
            text = region.definition
            if text not in seen and text.count("add_output") > 1 and region.arguments:
                seen.add(text)
                yield f"{name} {region.region.name}", region.fusion_definition, scratch_like(region.inputs)


def adam(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> None:
    """One step of one parameter."""
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.01)


def tanh(x: torch.Tensor) -> torch.Tensor:
    """A write, and reads of what was written."""
    x.tanh_()
    return x * x * x * x


def seed(y: torch.Tensor, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Elementwise over one shape, a write among them."""
    return y.exp_().add(x) + z.exp()


#: Each is one region that writes all it writes itself, and one kernel.
ONE_KERNEL = {
    "chain": (lambda x: x.add_(1).sin_().mul_(5), ((64, 96),)),
    "tanh": (tanh, ((64, 96),)),
    "batch norm": (lambda x, m, v: F.batch_norm(x, m, v, training=True), ((64, 96), (96,), (96,))),
    "adam": (adam, ((64, 96),) * 4),
    "seed": (seed, ((64, 96),) * 3),
    "chunk": (lambda x: [half.mul_(i + 2).add_(1) for i, half in enumerate(x.chunk(2, 1)[:1])], ((64, 96),)),
    "add": (lambda x, y: (x + y).add_(1), ((64, 96),) * 2),
}  # fmt: skip


def make_one_kernel() -> Iterator[tuple[str, Any, list[torch.Tensor]]]:
    """Yield the definitions of what is to be one kernel."""
    for name, (fn, shapes) in ONE_KERNEL.items():
        for region in regions_of(fn, tuple(torch.rand(shape) for shape in shapes)):
            assert all(write.is_fused for write in region.writes), region.writes
            yield name, region.fusion_definition, scratch_like(region.inputs)
