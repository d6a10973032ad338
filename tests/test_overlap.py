"""Overlap of accesses: compared with the bytes themselves, one by one."""

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphalias.graph import Access, contiguous_stride
from graphalias.overlap import MAX_WORK, byte_range, covers, footprint, overlaps
from graphalias.sweep import overlapping_pairs

FAR = 1 << 40


def bytes_of(access: Access) -> set[int]:
    """Enumerate the addresses."""
    steps = [range(0, size * stride, stride) if stride else (0,) * min(size, 1)
             for size, stride in zip(access.shape, access.strides_bytes, strict=True)]  # fmt: skip
    return {access.offset_bytes + sum(at) + byte for at in product(*steps) for byte in range(access.itemsize)}


@st.composite
def accesses(draw: st.DrawFn) -> Access:
    """Any strided access of one storage: expanded, overlapping itself, empty, far apart."""
    itemsize = draw(st.sampled_from([1, 2, 4, 8, 16]))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    stride = st.one_of(st.integers(0, 8), st.integers(0, 40), st.sampled_from([FAR, FAR - 1, FAR + 8]))
    strides = tuple(itemsize * draw(stride) for _ in shape)
    offset = draw(st.integers(0, 24)) + draw(st.sampled_from([0, 0, 0, FAR]))
    return Access("s0", itemsize * offset, shape, strides, itemsize)


def matrix_views() -> list[Access]:
    """What PyTorch programs take of a matrix: rows, columns, chunks, every other one, another dtype."""
    rows, columns, size = 4, 6, 4
    views = [Access("s0", 0, (rows, columns), (24, 4), size), Access("s0", 0, (columns, rows), (4, 24), size),
             Access("s0", 0, (12,), (8,), 8), Access("s0", 0, (96,), (1,), 1)]  # fmt: skip
    views += [Access("s0", 24 * i, (columns,), (4,), size) for i in range(rows)]
    views += [Access("s0", 4 * i, (rows,), (24,), size) for i in range(columns)]
    views += [Access("s0", 8 * i, (rows, 2), (24, 4), size) for i in range(3)]
    views += [Access("s0", 48 * i, (2, columns), (24, 4), size) for i in range(2)]
    views += [Access("s0", 4 * i, (12,), (8,), size) for i in range(2)]
    views += [Access("s0", 24 * i, (2, 3), (48, 8), size) for i in range(2)]
    views += [Access("s0", i, (24,), (4,), 1) for i in range(4)]  # one byte of each element
    views += [Access("s0", 0, (rows,), (28,), size), Access("s0", 4, (5, 3), (4, 4), size)]  # diagonal, windows
    return views


@given(accesses(), accesses())
@example(Access("s0", 0, (3, 2), (8, 2), 1), Access("s0", 1, (3, 2), (8, 2), 1))
def test_never_wrongly_disjoint(one: Access, other: Access) -> None:
    """Accesses with a byte in common overlap; where strides are few, those without do not."""
    expected = not bytes_of(one).isdisjoint(bytes_of(other))
    assert overlaps(one, other) == expected
    assert overlaps(other, one) == expected


@given(accesses(), accesses())
def test_covers_is_sufficient(one: Access, other: Access) -> None:
    """What is said to be covered is covered."""
    if covers(one, other):
        assert bytes_of(other) <= bytes_of(one)


@given(accesses(), accesses())
def test_footprints(one: Access, other: Access) -> None:
    """Equal footprints are equal sets of bytes; the range is that of the bytes, and tight."""
    found = bytes_of(one)
    if footprint(one) == footprint(other):
        assert found == bytes_of(other)
    if found:
        assert byte_range(one) == (min(found), max(found) + 1) == footprint(one)[1:3]
    else:
        assert footprint(one) == ("s0", 0, 0, 0, ())
        assert byte_range(one)[0] == byte_range(one)[1]


@given(st.lists(accesses(), max_size=8, unique=True))
def test_overlapping_pairs(found: list[Access]) -> None:
    """The sweep finds what comparing all pairs finds."""
    expected = {i: [j for j, b in enumerate(found) if overlaps(a, b)] for i, a in enumerate(found)}
    assert overlapping_pairs(found) == expected


def test_overlapping_pairs_of_matrix_views() -> None:
    """For views as programs take them the sweep, overlaps and the bytes agree exactly."""
    views = matrix_views()
    enumerated = [bytes_of(view) for view in views]
    expected = {i: [j for j, b in enumerate(enumerated) if a & b] for i, a in enumerate(enumerated)}
    assert overlapping_pairs(views) == expected


def test_same_bytes_same_footprint() -> None:
    """A matrix, its transpose, its flat view, its expansion and another dtype over it have one footprint."""
    forms = [
        Access("s0", 8, (2, 3, 4), (48, 16, 4), 4),
        Access("s0", 8, (4, 2, 3), (4, 48, 16), 4),
        Access("s0", 8, (24,), (4,), 4),
        Access("s0", 8, (12,), (8,), 8),
        Access("s0", 8, (5, 24, 1), (0, 4, 7), 4),
        Access("s0", 8, (96,), (1,), 1),
    ]
    assert len({footprint(form) for form in forms}) == 1


@pytest.mark.parametrize("dimension", range(5))
def test_chunks_along_any_dimension(dimension: int) -> None:
    """Neighbouring chunks are disjoint, overlapping ones are not, along every dimension, whatever the size."""
    shape = (64, 32, 16, 128, 4)
    strides = tuple(4 * step for step in contiguous_stride(shape))

    def chunk(start: int) -> Access:
        narrowed = tuple(2 if i == dimension else size for i, size in enumerate(shape))
        return Access("s0", start * strides[dimension], narrowed, strides, 4)

    assert not overlaps(chunk(0), chunk(2))
    assert overlaps(chunk(0), chunk(1))


def test_places_do_not_meet() -> None:
    """Accesses of different places never overlap, nor cover each other unless empty."""
    one, other, empty = Access("s0", 0, (), (), 1), Access("s1", 0, (), (), 1), Access("s1", 0, (0,), (4,), 4)
    assert not overlaps(one, other)
    assert not covers(one, other)
    assert covers(one, empty)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Access("s0", 0, (1 << 62, 2), (3, 7), 1), Access("s0", 1, (1 << 62,), (5,), 1)),  # leaves 64 bits
        (Access("s0", 0, (2,) * 70, tuple(3**i for i in range(70)), 1), Access("s0", 1, (4, 4), (6, 41), 1)),
        (Access("s0", 0, (9,) * 5, (1000003, 1299709, 2750159, 3010349, 4256233), 1),
         Access("s0", 77, (9,) * 5, (1400003, 1699709, 2150159, 3310349, 4556233), 1)),
    ],
    ids=["too far", "too many dimensions", f"more than {MAX_WORK} steps"],
)  # fmt: skip
def test_may_overlap(one: Access, other: Access) -> None:
    """What is too hard to say may overlap, and is said at once."""
    assert overlaps(one, other)


@pytest.mark.parametrize("view", ["row", "column"])
def test_many_disjoint_views(view: str) -> None:
    """Thousands of rows, or of columns, are found to overlap only themselves without comparing every pair."""
    n = 3000
    step, stride = (256, 4) if view == "row" else (4, 4 * n)
    views = [Access("s0", step * i, (64,), (stride,), 4) for i in range(n)]
    assert overlapping_pairs(views) == {i: [i] for i in range(n)}
