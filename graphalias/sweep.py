"""Which of many accesses overlap, without comparing every two of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from graphalias.graph import Access
from graphalias.overlap import Footprint, footprint, footprints_overlap


def overlapping_pairs(accesses: Sequence[Access]) -> dict[int, list[int]]:
    """Return which of the accesses of one place overlap which.

    Parameters
    ----------
    accesses : sequence of Access
        All of one place. N disjoint rows, or N disjoint columns, take N log N steps and not N².

    Returns
    -------
    dict of int to list of int
        For every position the positions that `overlaps` it, ascending, itself included unless it has no bytes.

    Examples
    --------
    >>> matrix, row = Access("s0", 0, (2, 2), (8, 4), 4), Access("s0", 8, (2,), (4,), 4)
    >>> overlapping_pairs([matrix, row, Access("s0", 0, (1,), (4,), 4)])
    {0: [0, 1, 2], 1: [0, 1], 2: [0, 2]}
    """
    footprints = [footprint(access) for access in accesses]
    found: dict[int, list[int]] = {i: [i] * bool(one.run_bytes) for i, one in enumerate(footprints)}
    for i, j in _candidates(footprints):
        if footprints_overlap(footprints[i], footprints[j]):
            found[i].append(j)
            found[j].append(i)
    for neighbours in found.values():
        neighbours.sort()
    return found


class _Span(NamedTuple):
    """Where on an axis a footprint lies."""

    lo: int
    hi: int
    position: int


def _candidates(footprints: Sequence[Footprint]) -> Iterator[tuple[int, int]]:
    """Yield every pair that may overlap, once, and few others.

    Columns of a matrix have all nearly the same range of addresses, but lie side by side modulo the row's length.
    So those of one outermost stride are swept along whichever of the two axes has fewer of them meet.
    """
    families: dict[int, list[_Span]] = {}
    for i, one in enumerate(footprints):
        if one.run_bytes:
            stride = one.dims[-1][0] if one.dims else 0
            families.setdefault(stride, []).append(_Span(one.lo_bytes, one.hi_bytes, i))
    for stride, spans in families.items():
        if stride:
            spans = _fewer_meeting(spans, footprints, stride)
        yield from _sweep([[span] for span in spans])
    if len(families) > 1:
        yield from _sweep(list(families.values()))


def _phase(span: _Span, stride: int, length_bytes: int, origin: int) -> _Span:
    """Where a footprint lies modulo its outermost stride, given the length of one repetition."""
    lo = (span.lo - origin) % stride
    lo, hi = (lo, lo + length_bytes) if lo + length_bytes <= stride else (0, stride)
    return _Span(lo, hi, span.position)


def _fewer_meeting(spans: list[_Span], footprints: Sequence[Footprint], stride: int) -> list[_Span]:
    """Return the spans on the axis where fewer of them meet: addresses, or addresses modulo the stride."""
    origin = min(span.lo for span in spans)
    phases = []
    for span in spans:
        outermost, size = footprints[span.position].dims[-1]
        phases.append(_phase(span, stride, span.hi - span.lo - outermost * (size - 1), origin))
    return min(spans, phases, key=_count_meeting)


def _count_meeting(spans: list[_Span]) -> int:
    """Count the pairs of spans that have a point in common."""
    ends = sorted(span.hi for span in spans)
    apart = sum(bisect_right(ends, span.lo) for span in spans)
    return len(spans) * (len(spans) - 1) // 2 - apart


def _sweep(groups: Sequence[Sequence[_Span]]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of spans of different groups that have a point in common."""
    active: dict[int, list[_Span]] = {}
    for span, group in sorted((span, group) for group, spans in enumerate(groups) for span in spans):
        for other in [other for other in active if other != group]:
            active[other] = [earlier for earlier in active[other] if earlier.hi > span.lo]
            if not active[other]:
                del active[other]
                continue
            for earlier in active[other]:
                yield earlier.position, span.position
        active.setdefault(group, []).append(span)
