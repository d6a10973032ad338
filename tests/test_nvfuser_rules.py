"""The static rules find what is wrong with definitions, each with one that breaks it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import nvfuser_definitions as definitions
import nvfuser_rules
from nvfuser_definitions import FLOAT, SAFE, UNSAFE, define, randn
from nvfuser_rules import addresses, violations


@pytest.mark.parametrize("name", SAFE)
def test_safe_ones_are_clean(name: str) -> None:
    """Nothing is found in definitions that keep to the rules."""
    definition, inputs = SAFE[name]
    assert not violations(definition, inputs)


FOUND = {
    "expanded": "and is expanded",
    "bare_product": "no fresh set but matmul",
    "float_into_half": "of torch.float32 is written to tv0 of torch.bfloat16",
    "longer": "of shape",
    "written_twice": "tv0 is written twice",
    "one_value_twice": "is written and a result too",
    "write_first": "a result comes after a write",
    "two_reductions": "sum reads tv0, and is not needed",
    "read_two_segments_later": "matmul reads tv0, and is not needed",
    "cast_read_again": "sum reads tv0, and is not needed",
    "pieces": "exp reads tv0, and is not needed",
    "transposed": "permute lies between tv0",
    "shifted": "pad lies between tv0",
    "unsafe_softmax": "max lies between tv0",
    "clone_before": "the result tv1 is tv0 itself",
    "view_of_written": "the result tv3 is tv2 itself, or a view of it",
    "input_returned": "the result tv0 is tv0 itself",
    "two_views": "the results tv2 and tv3 share memory",
    "twice": "the results tv1 and tv1 share memory",
}


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    """Each rule finds the definition that breaks it."""
    definition, inputs = UNSAFE[name]
    assert any(FOUND[name] in line for line in violations(definition, inputs))


def test_every_unsafe_one_is_named() -> None:
    """No dangerous definition is left without its test."""
    assert set(FOUND) == set(UNSAFE)


def test_written_intermediate_is_refused_by_nvfuser() -> None:
    """``z = x + y; z.add_(1)`` with an alias of z: nvFuser's own error, at the call."""
    with pytest.raises(RuntimeError, match="alias source can only be a fusion input"):

        @define(randn(4, 10), randn(4, 10))
        def made(fd: Any, x: Any, y: Any) -> None:
            total = fd.ops.add(x, y)
            fd.add_output(fd.ops.set(fd.ops.add(total, 1.0)), total)


def test_overlap() -> None:
    """What is written must lie apart from every other input, byte by byte."""
    base = randn(12)

    @define(base[:6], base[6:])
    def made(fd: Any, x: Any, y: Any) -> None:
        fd.add_output(fd.ops.set(fd.ops.add(x, y)), x)

    assert not violations(*made)
    assert violations(made[0], [base[:6], base[5:11]]) == ["tv0 is written, and shares memory with tv1"]
    assert not addresses(base[::2]) & addresses(base[1::2])
    assert addresses(base.view(torch.int32)[2:3]) < addresses(base)


def test_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A definition that nvFuser would take minutes for is found."""
    monkeypatch.setattr(nvfuser_rules, "MOST_STEPS", 3)
    definition, inputs = SAFE["adam"]
    assert any("operations, more than 3" in line for line in violations(definition, inputs))


def test_a_value_computed_once_may_be_read() -> None:
    """A reader of what is computed from x and leads to the write may have other users; one of a cast of x may not."""

    def made(is_cast: bool) -> Any:
        @define(randn(8, 4, dtype=torch.bfloat16))
        def definition(fd: Any, x: Any) -> None:
            wide = fd.ops.cast(x, FLOAT)
            value = wide if is_cast else fd.ops.add(wide, 1.0)
            fd.add_output(fd.ops.sum(value, [0]))
            fd.add_output(fd.ops.set(fd.ops.cast(fd.ops.mul(value, 2.0), definitions.BF16)), x)

        return definition

    assert not violations(*made(is_cast=False))
    assert violations(*made(is_cast=True))
