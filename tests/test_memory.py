"""Real memory: storages that overlap are one place, whatever made them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphalias import CaptureError
from graphalias.memory import RealMemory, why_unsupported


def test_views_and_arrays_are_one_place() -> None:
    """Views share the storage; arrays over one buffer are other storages, shifted."""
    memory = RealMemory()
    array = np.zeros(8, dtype=np.float32)
    whole, tail = torch.from_numpy(array), torch.from_numpy(array[5:])
    assert memory.place(whole) == memory.place(whole[2:]) == (0, 0)
    assert memory.place(tail) == (0, 20)
    assert memory.place(torch.zeros(2)) == (1, 0)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12))
def test_places_are_the_connected_overlaps(ranges: list[tuple[int, int]]) -> None:
    """Placed together, tensors are at one place exactly if a chain of overlaps joins them; shifts are distances."""
    array = np.zeros(100, dtype=np.uint8)
    tensors = [torch.from_numpy(array[start : start + size]) for start, size in ranges]
    memory = RealMemory()
    memory.place_all(tensors)
    groups = [set(range(start, start + size)) for start, size in ranges]
    for i, (start, size) in enumerate(ranges):
        joined = set(groups[i])
        for _ in ranges:
            joined = joined.union(*(group for group in groups if group & joined))
        for j, (other_start, other_size) in enumerate(ranges):
            is_one = memory.place(tensors[i])[0] == memory.place(tensors[j])[0]
            if size and other_size:
                assert is_one == bool(groups[j] & joined)
            if is_one and size and other_size:
                assert memory.place(tensors[j])[1] - memory.place(tensors[i])[1] == other_start - start


def test_a_late_bridge_is_refused() -> None:
    """Two memories already used apart can't become one."""
    array = np.zeros(8, dtype=np.float32)
    memory = RealMemory()
    memory.place(torch.from_numpy(array[:2]))
    memory.place(torch.from_numpy(array[6:]))
    with pytest.raises(CaptureError, match="joins two memories"):
        memory.place(torch.from_numpy(array))


def test_a_shift_of_half_an_element_is_refused() -> None:
    """A handle's offset is in elements."""
    array = np.zeros(16, dtype=np.uint8)
    memory = RealMemory()
    memory.place(torch.from_numpy(array))
    with pytest.raises(CaptureError, match="starts 2 bytes into another's memory: expected a multiple of 4"):
        memory.place(torch.from_numpy(array[2:14].view(np.float32)))


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_supported_tensors() -> None:
    """Plain strided tensors and parameters; everything else has its name."""
    assert why_unsupported(torch.ones(2)) is None
    assert why_unsupported(torch.nn.Parameter(torch.ones(2))) is None
    assert "meta" in str(why_unsupported(torch.ones(2, device="meta")))
    assert "quantized" in str(why_unsupported(torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8)))
