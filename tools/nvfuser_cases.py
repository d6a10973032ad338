"""What nvFuser makes of the test programs, as a page: ``python -m tools.nvfuser_cases`` writes docs/nvfuser-cases.md.

No GPU is needed, but the real nvFuser. tests/test_nvfuser_cases.py fails where the page is not what this would write.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import graphalias
from graphalias.executors import nvfuser
from graphalias.graph import REGION, Operation, Program

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "nvfuser-cases.md"

INTRODUCTION = """# What nvFuser makes of the test programs

Written by `python -m tools.nvfuser_cases`; a test keeps it up to date. In the tests each of these programs runs through the definitions counted here, on the CPU oracle and with writes late and early, and shows what eager PyTorch shows.

*Fusion breaks, one by one* are those of a compiler that orders every operation that is in place, makes a view, or reads a member of a view group that is written, by a fusion break of its own. *Fusion breaks, here* are regions that could not join one before them, and writes that are copied back after their region instead of being fused into it.

"""  # noqa: E501


@dataclass
class Count:
    """What is counted of a program, or of several."""

    name: str
    programs: int = 0
    with_region: int = 0
    regions: int = 0
    means: Counter[str] = field(default_factory=Counter)
    clauses: Counter[str] = field(default_factory=Counter)
    one_by_one: int = 0
    here: int = 0

    def add(self, other: Count) -> None:
        """Count another's in."""
        for key in ("programs", "with_region", "regions", "one_by_one", "here"):
            setattr(self, key, getattr(self, key) + getattr(other, key))
        self.means += other.means
        self.clauses += other.clauses

    def row(self) -> str:
        """Return a line of the table."""
        cells = [
            self.name, self.programs, self.with_region, self.regions, self.means["fused"], self.means["written back"],
            self.one_by_one, self.here,
        ]  # fmt: skip
        return f"| {' | '.join(map(str, cells))} |"


def breaks_one_by_one(program: Program) -> int:
    """Return how many operations are in place, make a view, or read a member of a view group that is written."""
    written = {
        value.storage.name for g in graphalias.find_view_groups(program) if g.is_written for value in g.values
    }  # fmt: skip

    def touches(operation: Operation) -> bool:
        return any(value.storage.name in written for value in operation.operands if not value.is_state)

    return sum(op.is_compute and touches(op) for op in program.operations)


def count_program(name: str, fn: Any, args: tuple[Any, ...]) -> Count | None:
    """Return what nvFuser makes of a program; None where it can't be captured."""
    try:
        captured = graphalias.capture(fn, *args)
    except graphalias.CaptureError:
        return None
    ordered = graphalias.eliminate_dead_operations(graphalias.insert_update_aliases(captured))
    program = graphalias.partition(ordered, "nvfuser")
    regions = [operation for operation in program.operations if operation.target == REGION]
    count = Count(name, 1, int(bool(regions)), len(regions), one_by_one=breaks_one_by_one(captured))
    for region in regions:
        for write in nvfuser.compile_region(region).writes:
            count.means[write.means] += 1
            if write.means == "written back":
                count.clauses[f"{write.clause}"] += 1
    count.here = sum(region.name in program.notes for region in regions) + count.means["written back"]
    return count


def counted(name: str, programs: Iterable[tuple[str, Any, Any]]) -> tuple[Count, list[Count]]:
    """Return the sum of some programs, and each of them."""
    total, each = Count(name), []
    for label, fn, make in programs:
        torch.manual_seed(0)
        count = count_program(label, fn, make())
        if count is not None:
            each.append(count)
            total.add(count)
    return total, each


def page() -> str:
    """Return the page."""
    sys.path[:0] = [str(ROOT / "tests")]
    from programs import PROGRAMS
    from shared import load_cases

    cases = [case for case in load_cases().CASES if not case.backward]

    def makes(case: Any) -> Any:
        return lambda: case.make(torch.Generator().manual_seed(0))

    warnings.simplefilter("ignore")
    shared, each = counted("shared cases", [(case.name, case.fn, makes(case)) for case in cases])
    own, _ = counted("the project's programs", [(case.name, case.fn, case.make) for case in PROGRAMS])
    head = (
        "| programs | captured | with a region | regions | writes fused | written back | fusion breaks, one by one "
        "| here |\n|---|---|---|---|---|---|---|---|\n"
    )
    realistic = {case.name for case in cases if case.realistic}
    rows = "\n".join(count.row() for count in each if count.name in realistic and count.regions)
    clauses = "\n".join(f"| {key} | {n} |" for key, n in sorted((shared.clauses + own.clauses).items()))
    return (
        f"{INTRODUCTION}{head}{shared.row()}\n{own.row()}\n\n"
        "What keeps a write from being fused, by clause of [the break rule](nvfuser.md#the-break-rule):\n\n"
        f"| clause | writes |\n|---|---|\n{clauses}\n\n## The realistic ones that have a region\n\n{head}{rows}\n"
    )


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
