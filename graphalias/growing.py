"""Regions as they grow: how large they may be, and which memory from outside they access."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from graphalias.graph import Operation
from graphalias.ledger import Ledger, Use
from graphalias.overlap import Footprint

#: Operations of one region at most: the compile time of code generators grows faster than their number.
SIZE_CAP = 64

#: Operations of one tile at most: eight Adam updates compile in 4 s, 32 in 29 s.
TILE_CAP = 80

Geometry = tuple[object, ...]


@dataclass(frozen=True)
class Sizes:
    """How large regions may be, and which views they may hold.

    Parameters
    ----------
    cap : int
        Of a region.
    tile : int
        Of independent regions put together, in operations.
    size_of : callable
        Returns how much of the cap an operation takes.
    why_not_viewed : callable
        Returns why a view of what a region makes can't be made inside; None where it can.
    """

    cap: int = SIZE_CAP
    tile: int = TILE_CAP
    size_of: Callable[[Operation], int] = lambda operation: 1
    why_not_viewed: Callable[[Operation], str | None] = lambda view: None

    @classmethod
    def of(cls, executor: Any) -> Sizes:
        """Return what an executor says; it need not say anything."""
        names = {"cap": "SIZE_CAP", "tile": "TILE_CAP", "size_of": "size_of", "why_not_viewed": "why_not_viewed"}
        said = {key: getattr(executor, name) for key, name in names.items() if hasattr(executor, name)}
        return cls(**said)


@dataclass
class GrowingRegion:
    """A region as it grows: one of a forest in which joined regions point to the one they became."""

    stage: int
    size: int = 0
    joined: GrowingRegion | None = None
    #: Outside memory it accesses: footprint -> {geometry: whether it is written}.
    accessed: dict[Footprint, dict[Geometry, bool]] = field(default_factory=dict)

    def root(self) -> GrowingRegion:
        """Return the region that it became."""
        region = self
        while region.joined is not None:
            region.joined = region.joined.joined or region.joined
            region = region.joined
        return region

    def note(self, key: Footprint, geometry: Geometry, is_write: bool) -> None:
        """Note an access of outside memory."""
        geometries = self.accessed.setdefault(key, {})
        geometries[geometry] = geometries.get(geometry, False) or is_write


def overlapping(
    use: Use, tables: list[dict[Footprint, dict[Geometry, bool]]], ledger: Ledger
) -> Iterator[tuple[Footprint, Geometry, bool]]:
    """Yield what some regions access that overlaps a use."""
    near = ledger.near[use.key]
    for table in tables:
        fewer, more = (near, table) if len(near) < len(table) else (table, near)
        for key in [key for key in fewer if key in more]:
            for geometry, is_write in table[key].items():
                yield key, geometry, is_write
