"""Stages: which operations may share a fusion region, without ever making a cycle of regions.

Each operation gets a stage: its predecessors' latest, and one more for a fused operation behind one that isn't, or
where joining its predecessors' region would be unsafe. Operations of a stage that are joined by edges are a region. A
path that leaves a region comes to another only in a later stage, so it never comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from graphalias.graph import CONSTANT, INPUT, OUTPUT, UPDATE_ALIASES, Operation, Program, Value
from graphalias.growing import Geometry, GrowingRegion, Sizes, overlapping
from graphalias.ledger import Ledger, Use
from graphalias.values import may_repeat

#: The stage of what comes before every region: it holds up none.
BEFORE = -1

AS_STRIDED = "aten.as_strided.default"


@dataclass(frozen=True)
class Place:
    """Where an operation goes.

    Parameters
    ----------
    stage : int
    reason : str or None
        Why it is not fused; None where it is.
    split : str or None
        Why it could not join a region of its predecessors.
    """

    stage: int
    reason: str | None = None
    split: str | None = None

    @property
    def is_fused(self) -> bool:
        """Whether the operation may be in a region."""
        return self.reason is None


def assign_stages(
    program: Program,
    why_not_fused: Callable[[Operation], str | None],
    sizes: Sizes | None = None,
    later: Mapping[str, int] | None = None,
) -> Stages:
    """Return the place of each operation, and the region it is in; ``later`` says which shall not be before a stage."""
    stages = Stages(program, why_not_fused, sizes or Sizes(), later or {})
    for operation in program.operations:
        stages.place(operation)
    return stages


class Stages:
    """One walk in program order.

    Attributes
    ----------
    places : dict of str to Place
    regions : dict of str to GrowingRegion
        Of the fused operations.
    """

    def __init__(
        self, program: Program, why_not_fused: Callable[[Operation], str | None], sizes: Sizes, later: Mapping[str, int]
    ) -> None:
        self.sizes, self.later = sizes, later
        self.graph = program.graph
        self.why_not_fused = why_not_fused
        self.ledger = Ledger(program)
        self.places: dict[str, Place] = {}
        self.regions: dict[str, GrowingRegion] = {}
        self.creator: dict[str, str] = {}
        self.geometry: dict[str, Geometry] = {}

    def place(self, operation: Operation) -> None:
        """Give the next operation of the program its place."""
        place = self._fused(operation) or self._outside(operation)
        self.places[operation.name] = place
        for result in operation.results:
            if result is not None:
                self.creator.setdefault(result.storage.name, operation.name)

    def _outside(self, operation: Operation) -> Place:
        stage = max((place.stage for place in self._before(operation).values()), default=BEFORE)
        return Place(stage, self._reason(operation) or "a view of what another region makes is made outside")

    def _reason(self, operation: Operation) -> str | None:
        """Return why an operation can't be fused wherever it is."""
        if operation.target in (INPUT, CONSTANT, OUTPUT):
            return operation.target
        if operation.target == UPDATE_ALIASES:
            return None
        if operation.states:
            return "it draws random numbers or acts outside the program"
        if operation.reshapes:
            return "it changes a tensor's geometry"
        if is_view(operation):
            if operation.target == AS_STRIDED:  # within a region there are values, not memory of known strides
                return "it addresses memory"
            if not self._is_local(operation.operands[0]):
                return "a view of memory from outside is made outside"
            return self.sizes.why_not_viewed(operation)
        if any(may_repeat(value.shape, value.stride) for value in operation.written):
            return "it writes through a handle whose elements may overlap"
        if self._overlaps_itself(operation):
            return "its own operands overlap"
        return self.why_not_fused(operation)

    def _overlaps_itself(self, operation: Operation) -> bool:
        """Whether two operands overlap, one of them written, without being the same handle."""
        geometry = {value.object: value.geometry for value in operation.operands}
        uses = self.ledger.uses[operation.name]
        return any(
            one.key in self.ledger.near[other.key] and geometry[one.object] != geometry[other.object]
            for i, one in enumerate(uses) for other in uses[:i] if one.is_write or other.is_write
        )  # fmt: skip

    def _fused(self, operation: Operation) -> Place | None:
        """Return where a fusible operation goes, and put it into its region; None where it can't be fused."""
        if self._reason(operation) is not None:
            return None
        stage, split = self._earliest(operation)
        while True:
            joined = self._joined(operation, stage)
            if is_view(operation) and not self._is_inside(operation.operands[0].storage.name, joined):
                return None
            why = self._why_unsafe(operation, joined)
            if why is None:
                break
            stage, split = stage + 1, why
        self._put(operation, stage, joined)
        return Place(stage, None, split)

    def _earliest(self, operation: Operation) -> tuple[int, str | None]:
        """Return the first stage a fused operation could be in, and what keeps it from the one before."""
        stage, last = 0, None
        for name, place in self._before(operation).items():
            if place.stage + (not place.is_fused) > stage:
                stage, last = place.stage + (not place.is_fused), None if place.is_fused else name
        if self.later.get(operation.name, 0) > stage:
            return self.later[operation.name], "nothing uses it earlier"
        return stage, last and f"it comes after %{last}, which is not fused"

    def _before(self, operation: Operation) -> dict[str, Place]:
        places = {name: self.places[name] for name in self.graph.predecessors(operation.name)}
        return {name: place for name, place in places.items() if place.reason not in (INPUT, CONSTANT)}

    def _joined(self, operation: Operation, stage: int) -> list[GrowingRegion]:
        """Return the regions of a stage that an operation would join."""
        regions = (self.regions.get(name) for name in self.graph.predecessors(operation.name))
        roots = (region.root() for region in regions if region is not None)
        return list({id(root): root for root in roots if root.stage == stage}.values())

    def _why_unsafe(self, operation: Operation, joined: list[GrowingRegion]) -> str | None:
        """Return why an operation can't be in one region with what it would join."""
        if sum(region.size for region in joined) + self._size(operation) > max(self.sizes.cap, self._size(operation)):
            return f"the region has {self.sizes.cap} operations"
        tables = [region.accessed for region in joined]
        for use, geometry in self._outside_accesses(operation, joined):
            for other, other_geometry, is_write in overlapping(use, tables, self.ledger):
                if other_geometry != geometry and (is_write or use.is_write):
                    return f"it uses memory of {other.place} that the region accesses through another handle"
        return None

    def _size(self, operation: Operation) -> int:
        return self.sizes.size_of(operation) if operation.is_compute else 0

    def _outside_accesses(self, operation: Operation, joined: list[GrowingRegion]) -> Iterator[tuple[Use, Geometry]]:
        """Yield the accesses of memory that the region did not make itself."""
        if not operation.is_compute:
            return
        geometry = {value.object: value.geometry for value in operation.operands}
        for use in self.ledger.uses[operation.name]:
            if not self._is_inside(use.key.place, joined):
                yield use, geometry[use.object]

    def _is_inside(self, storage: str, joined: list[GrowingRegion]) -> bool:
        """Whether a storage was made in one of the regions."""
        region = self.regions.get(self.creator.get(storage, ""))
        return region is not None and any(region.root() is other for other in joined)

    def _is_local(self, value: Value) -> bool:
        return self.creator.get(value.storage.name) in self.regions

    def _put(self, operation: Operation, stage: int, joined: list[GrowingRegion]) -> None:
        region = max(joined, key=lambda region: region.size, default=None) or GrowingRegion(stage)
        for other in joined:
            if other is not region:
                region.size += other.size
                other.joined = region
                for key, geometries in other.accessed.items():
                    for geometry, is_write in geometries.items():
                        region.note(key, geometry, is_write)
        region.size += self._size(operation)
        self.regions[operation.name] = region
        for use, geometry in self._outside_accesses(operation, [region]):
            region.note(use.key, geometry, use.is_write)


def is_view(operation: Operation) -> bool:
    """Whether an operation only makes views of its first operand: it touches no bytes."""
    return (
        operation.is_compute
        and bool(operation.operands)
        and not operation.effects
        and all(r is None or r.storage is operation.operands[0].storage for r in operation.results)
    )
