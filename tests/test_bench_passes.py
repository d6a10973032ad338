"""The benchmark of the passes: its programs are programs, and what the pass adds to them grows as they do."""

from __future__ import annotations

import pytest

import graphalias
from graphalias import Program, eliminate_dead_operations, find_hazards, insert_update_aliases
from graphalias.graph import UPDATE_ALIASES
from tools import bench_passes
from tools.bench_passes import FAMILIES, slope


@pytest.mark.parametrize("family", FAMILIES)
def test_families_are_programs(family: str) -> None:
    """Every family keeps every invariant, has no hazards after the pass, and mutations that stay."""
    program = Program(FAMILIES[family](24))
    graphalias.check(program)
    inserted = insert_update_aliases(program)
    graphalias.check(inserted)
    assert not find_hazards(inserted)
    kept = eliminate_dead_operations(inserted)
    graphalias.check(kept)
    writes = [op.name for op in program.operations if op.writes]
    assert [op.name for op in kept.operations if op.writes] == writes


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "chain"])
def test_families_have_hazards(family: str) -> None:
    """There is something to insert, but in a chain: there a value passes from each write to the next."""
    program = Program(FAMILIES[family](24))
    assert find_hazards(program)
    assert insert_update_aliases(program).graph.number_of_edges() > program.graph.number_of_edges()


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_inserted_is_linear(family: str) -> None:
    """Twice the size has twice the members and the edges; a second time nothing is inserted."""
    counts = []
    for size in (64, 128):
        program = Program(FAMILIES[family](size))
        inserted = insert_update_aliases(program)
        assert str(insert_update_aliases(inserted)) == str(inserted)
        members = sum(max(len(op.operands), 1) for op in inserted.operations if op.target == UPDATE_ALIASES)
        counts.append((members, inserted.graph.number_of_edges()))
    (few, edges), (many, more_edges) = counts
    assert many <= 2 * few + 1
    assert more_edges <= 2.05 * edges
    assert more_edges < 10 * 128


def test_exponent() -> None:
    """The exponent of what grows with the square is two, and noise in one round of three changes nothing."""
    assert slope((10, 100, 1_000), (1, 100, 10_000)) == pytest.approx(2)
    assert bench_passes.exponent((10, 100), ([1, 1, 1], [10, 10, 500])) == pytest.approx(1)


def test_prints_tables(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool prints a row of seconds for each size, and a row of exponents."""
    monkeypatch.setattr(bench_passes, "measure", bench_passes.measure_here)
    bench_passes.main(["views", "--sizes", "4", "8", "--rounds", "1"])
    printed = capsys.readouterr().out
    assert printed.count("views") == 3
    with pytest.raises(SystemExit):
        bench_passes.main(["no_family"])
