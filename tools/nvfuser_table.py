"""The table of docs/nvfuser.md, from the code: ``python -m tools.nvfuser_table`` renews it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from graphalias.executors.nvfuser.form import taken_apart
from graphalias.executors.nvfuser.table import TABLE

PAGE = Path(__file__).resolve().parent.parent / "docs" / "nvfuser.md"
START, END = "<!-- table: python -m tools.nvfuser_table -->\n", "<!-- end of table -->\n"


def table_text() -> str:
    """Return the table: operations that are lowered in the same way in one row."""
    rows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for target, lowering in TABLE.items():
        name = target.removeprefix("aten.").removesuffix(".default")
        how = lowering.how.replace(f"`{name.partition('.')[0]}`", "the operation of this name")
        rows[lowering.kind, how].append(f"`{name}`")
    lines = ["| ATen | how | kind |", "|---|---|---|"]
    lines += [f"| {' '.join(sorted(names))} | {how} | {kind} |" for (kind, how), names in rows.items()]
    apart = " ".join(f"`{name}`" for name in sorted(taken_apart()))
    lines.append(f"| {apart}, and the core decompositions of PyTorch | taken apart by PyTorch | |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the table into the page."""
    before, _, rest = PAGE.read_text().partition(START)
    PAGE.write_text(before + START + table_text() + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
