"""The sharing guard, against a comparison of all pairs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from torch import from_numpy

from graphalias import ExecutorError, parse
from graphalias.guards import Sharing, WrittenStorage, sharing_of

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 8), st.booleans()), max_size=8)


@given(RANGES)
def test_written_memory_meets_no_other(ranges: list[tuple[int, int, bool]]) -> None:
    """The one pass in order of address refuses exactly what comparing all pairs refuses."""
    array = np.zeros(64, dtype=np.uint8)
    tensors = {f"x{i}": from_numpy(array[start : start + size]) for i, (start, size, _) in enumerate(ranges)}
    written = tuple(
        WrittenStorage(f"s{i}", {f"x{i}": 0}, 0, size) for i, (_, size, is_written) in enumerate(ranges) if is_written
    )
    sharing = Sharing(written, frozenset(), {f"x{i}": size for i, (_, size, _) in enumerate(ranges)})
    expected = any(
        (one[2] or other[2]) and set(range(one[0], sum(one[:2]))) & set(range(other[0], sum(other[:2])))
        for i, one in enumerate(ranges) for other in ranges[:i]
    )  # fmt: skip
    try:
        sharing.check(tensors)
        found = False
    except ExecutorError:
        found = True
    assert found == expected


def test_what_is_guarded() -> None:
    """Written storages of inputs and constants with all that lies on them; reshaped objects; nothing of locals."""
    program = parse(
        """
        %x: f32[4] @s0 obj0 = input()
        %y: f32[4] @s1 obj1 = input()
        %c0: f32[2] offset(2) @s0 obj2 = constant()
        %neg: f32[4] @s2 obj3 = aten.neg.default(%y) reads(%y)
        %neg_: f32[4] @s2 obj3 = aten.neg_.default(%neg!) reads(%neg)
        %as_strided: f32[8] @s0 obj4 = aten.as_strided.default(%x, [8], [1])
        %zero_: f32[2] offset(2) @s0 obj2 = aten.zero_.default(%c0!)
        %t_: f32[4] @s1 obj1 = aten.t_.default(%y~)
        output(%x)
        """
    )
    sharing = sharing_of(program.operations)
    assert sharing.written == (WrittenStorage("s0", {"x": 0, "c0": 8}, 0, 32),)
    assert sharing.reshaped == {"y"}
    assert sharing.size_bytes == {"x": 16, "y": 16, "c0": 8}
