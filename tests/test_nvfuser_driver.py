"""Definitions under the stand-in driver: kernels, their order and what results share, by the real nvFuser."""

from __future__ import annotations

import pytest

import nvfuser_driver
from nvfuser_definitions import SAFE, UNSAFE
from nvfuser_driver import Launched, run_under_driver
from nvfuser_oracle import run_on_cpu
from nvfuser_regions import ONE_KERNEL

pytestmark = pytest.mark.skipif(not nvfuser_driver.is_available(), reason="no stand-in driver beside this checkout")

#: What nvFuser refuses or would crash on.
NOT_RUN = {"float_into_half", "longer", "expanded"}


@pytest.fixture(scope="module")
def launched() -> dict[str, Launched]:
    """What becomes of each definition, in one process for all."""
    names = [name for name in (*SAFE, *UNSAFE) if name not in NOT_RUN]
    return {item.label: item for item in run_under_driver("nvfuser_definitions:make", *names)}


@pytest.mark.parametrize("name", ["chain", "tanh_then_products", "batch_norm", "adam"])
def test_one_kernel(launched: dict[str, Launched], name: str) -> None:
    """What keeps to the break rule is one kernel, in-place writes and all."""
    assert len(launched[name].kernels) == 1
    assert launched[name].written


@pytest.mark.parametrize("name", SAFE)
def test_no_late_reader(launched: dict[str, Launched], name: str) -> None:
    """No kernel reads an input's old value after the one that writes it."""
    assert not launched[name].late_readers()


def test_late_readers_are_found(launched: dict[str, Launched]) -> None:
    """Where the write is launched first, later readers are named."""
    assert run_under_driver("nvfuser_definitions:make_late")[0].late_readers() == [
        "g1 reads T0 after g0 has written T1 there",
        "g2 reads T0 after g0 has written T1 there",
    ]
    assert len(launched["two_reductions"].kernels) == 3


def test_pieces_are_kernels_of_their_own(launched: dict[str, Launched]) -> None:
    """Pointwise over one shape is one kernel only where it hangs together."""
    assert len(launched["pieces"].kernels) == 2


@pytest.mark.parametrize("name", [name for name in (*SAFE, *UNSAFE) if name not in NOT_RUN])
def test_results_are_as_the_oracle_says(launched: dict[str, Launched], name: str) -> None:
    """Results have the shapes, strides and memory that the CPU oracle gives them."""
    definition, inputs = {**SAFE, **UNSAFE}[name]
    copies = [tensor.clone() for tensor in inputs]
    found = run_on_cpu(definition, copies)
    assert [list(tensor.shape) for tensor in found] == [shape for shape, *_ in launched[name].results]
    assert [list(tensor.stride()) for tensor in found] == [stride for _, stride, *_ in launched[name].results]
    places = [tensor.untyped_storage().data_ptr() for tensor in copies]
    made = [tensor.untyped_storage().data_ptr() for tensor in found]
    for i, (_, _, with_inputs, with_results) in enumerate(launched[name].results):
        assert [j for j, place in enumerate(places) if place == made[i]] == with_inputs
        assert [j for j, place in enumerate(made) if place == made[i] and i != j] == with_results


def test_promised_kernels() -> None:
    """Chains, batch norm with running statistics and optimizer steps are one region, one kernel, written in place."""
    launched = run_under_driver("nvfuser_regions:make_one_kernel")
    assert [item.label for item in launched] == list(ONE_KERNEL)
    assert {item.label: len(item.kernels) for item in launched} == dict.fromkeys(ONE_KERNEL, 1)
    counts = {"batch norm": 2, "adam": 3, "add": 0}
    assert {item.label: len(item.written) for item in launched} == dict.fromkeys(ONE_KERNEL, 1) | counts


@pytest.mark.parametrize("part", range(4))
def test_regions_of_every_program(part: int) -> None:
    """No kernel of any program's regions reads what another has overwritten, and results have memory of their own."""
    launched = run_under_driver("nvfuser_regions:make", str(part), "4")
    assert launched
    for item in launched:
        assert not item.late_readers(), item.label
        assert not any(with_inputs or with_results for _, _, with_inputs, with_results in item.results), item.label
