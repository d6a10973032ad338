"""The benchmark: its programs are right in every variant that needs no compiler, and what is measured is shown."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from tools import bench, bench_measure, bench_report
from tools.bench_measure import Found, measure
from tools.bench_rows import ROWS, TINY, Row, Work, size_bytes, tensors_of


@pytest.mark.parametrize("name", ROWS)
def test_rows_give_eager_results(name: str) -> None:
    """The first and the second call of each row return and leave behind what eager does; each variant is timed."""
    found = measure(ROWS[name], ("eager", "jit eager"), rounds=1, block_seconds=0, scale=TINY)
    assert not found.failed
    assert {variant: len(seconds) for variant, seconds in found.seconds.items()} == {
        "eager": 1, "jit eager": 1, "floor": 1,
    }  # fmt: skip
    assert set(found.live_bytes) == set(found.growth_bytes) == {"eager", "jit eager"}


@pytest.mark.parametrize("name", ROWS)
def test_rows_write_in_place(name: str) -> None:
    """Every row writes what it is given, or what its module holds; the bytes it must move hold those at least."""
    work = ROWS[name].make(TINY)
    before = [tensor.clone() for tensor in work.state]
    with torch.no_grad():
        work.fn(*work.args)
    assert any(not torch.equal(tensor, was) for tensor, was in zip(work.state, before, strict=True))
    assert work.moved_bytes > 0


def test_cold_calls() -> None:
    """Each timed call comes after one of the sweep."""
    found = measure(ROWS["small"], ("eager",), rounds=2, block_seconds=0, is_cold=True, scale=TINY)
    assert len(found.seconds["eager"]) == 2


def test_wrong_results_have_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variant whose arguments are not as eager leaves them is not timed, and says so."""
    monkeypatch.setitem(bench_measure.VARIANTS, "wrong", lambda fn: lambda x: x.add_(2))
    monkeypatch.setitem(bench_measure.VARIANTS, "broken", lambda fn: lambda x: x.no_such())
    found = measure(ROWS["small"], ("eager", "wrong", "broken"), rounds=1, block_seconds=0, scale=TINY)
    assert set(found.failed) == {"wrong", "broken"}
    assert found.failed["wrong"].startswith("AssertionError")
    assert "wrong" not in found.seconds


def test_live_bytes() -> None:
    """Two results that live together count together, one that was freed before does not."""
    x = torch.ones(1000)
    assert bench_measure.live_bytes(lambda: x.add_(x)) < 100
    both = bench_measure.live_bytes(lambda: (x * 2, x * 3))
    one_by_one = bench_measure.live_bytes(lambda: [(x * i).numel() for i in range(4)])
    assert both - one_by_one == pytest.approx(size_bytes(x), abs=200)


def test_growth_bytes() -> None:
    """A fresh tensor makes the process grow by its size, working in place does not."""
    x = torch.ones(1 << 22)
    assert bench_measure.growth_bytes(lambda: x + 1) == pytest.approx(size_bytes(x), rel=0.1)
    assert bench_measure.growth_bytes(lambda: x.add_(1)) < size_bytes(x) / 10


def test_verdicts() -> None:
    """A median at the limit passes; where the limit is one, noise is allowed."""
    assert bench_report.verdict(0.7, 0.7) == "pass"
    assert bench_report.verdict(0.71, 0.7) == "miss"
    assert bench_report.verdict(1.05, 1.0) == "pass"
    assert bench_report.verdict(1.06, 1.05) == "miss"


def test_page_and_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page names the machine and holds the tables; the chart is SVG with the row's title."""
    page = tmp_path / "benchmarks.md"
    bench.main(["small", "--quick", "--rounds", "1", "--variants", "eager", "jit eager", "--out", str(page)])
    assert ROWS["small"].title in capsys.readouterr().out
    written = page.read_text()
    assert torch.__version__.partition("+")[0] in written
    assert ROWS["small"].title in written
    ElementTree.parse(tmp_path / "images" / "benchmarks.svg")


def test_report_of_numbers() -> None:
    """Ratios are paired, judged by their medians, and drawn; first calls are judged at the largest size."""
    found = Found(
        1 << 21, seconds={"eager": [2, 2, 2], "compile": [4, 2, 4], "jit": [1, 1, 1], "floor": [0.5, 0.5, 0.5]}
    )
    found.live_bytes = found.growth_bytes = {"eager": 100, "jit": 50}
    sheet = bench_report.ratios({"chunk": found})
    assert sheet.rows[0][1:] == ["0.50 (0.50 to 0.50)", "0.7", "pass", "0.25 (0.25 to 0.38)", "0.3", "pass"]
    assert bench_report.memory({"chunk": found}, ("eager", "jit")).rows[0][-1] == "pass"
    assert found.share("jit") == 0.5
    assert ">0.50</text>" in bench_report.chart({"chunk": found}, ("eager", "compile", "jit"))
    chain = Found(1, first_calls={(v, n): n * k for v, k in (("compile", 2), ("jit", 1)) for n in (250, 500, 1000)})
    rows = bench_report.first_calls({"chain-1000": chain}).rows
    assert [row[3:] for row in rows[:3]] == [("0.50", "", ""), ("0.50", "", ""), ("0.50", "1", "pass")]
    assert rows[3][1:] == ("1.00", "1.00", "", "1.1", "pass")


def test_flatness() -> None:
    """The cache's rows are compared with each other."""
    found = {name: Found(1, seconds={"jit": [seconds]}) for name, seconds in (("kv-128", 2), ("kv-1024", 3))}
    assert bench_report.flatness(found) == 1.5


def test_failed_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that fails at the first call is a failure of its variant, not of the run."""

    def fail(*_: object) -> float:
        raise EOFError

    monkeypatch.setattr(bench, "first_call_seconds", fail)
    found = Found(1)
    bench._measure_first_calls("small", found, ("jit",))
    assert "first call" in found.failed["jit"]


def test_tensors_of() -> None:
    """Tensors in nested lists are found in order, numbers are left out."""
    x, y = torch.ones(1), torch.ones(2)
    assert list(tensors_of((x, [1, (y,)]))) == [x, y]
    assert Work(lambda *_: None, (x, [y]), 1).state == [x, y]
    assert isinstance(ROWS["chunk"], Row)


def test_unknown_row() -> None:
    """A row that is not there is an error of the command line."""
    with pytest.raises(SystemExit):
        bench.main(["no_row"])
