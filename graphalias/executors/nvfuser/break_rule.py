"""The break rule: which writes a fusion may do itself, and which are written back right after it.

nvFuser orders its segments by the values that pass, never a write after the reads of what was there before. Within a
kernel, elements read at other positions than the one written are raced for. So a write is fused only where neither can
happen; otherwise the value is a plain output, and one copy after the fusion writes it. The clauses:

- **A** only the last write of an input counts, and later reads are of its value; what stays as it was is not written.
- **B** no other input of another geometry has bytes of the one written.
- **C.1** a value of its own, in the dtype and shape of the input; neither of them is expanded.
- **C.2** whatever reads the old value leads to the new one, or the fusion is one connected kernel over one shape.
- **C.3** on the way from the old value to the new one every operation is elementwise, without a broadcast.
- **C.4** what leaves the fusion unchanged, as a clone or view of an input, is cloned by ATen before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import networkx as nx
from torch.fx import Node

from graphalias.executors.nvfuser.form import Form, is_constant, kind_of, root_of, tensors_of
from graphalias.executors.nvfuser.table import CREATE, MOVE, POINTWISE, shape_of
from graphalias.graph import Value
from graphalias.overlap import overlaps
from graphalias.values import may_repeat

FUSED, WRITTEN_BACK, UNCHANGED = "fused", "written back", "unchanged"


@dataclass(frozen=True)
class Write:
    """How an input of a region is written.

    Parameters
    ----------
    value : Value
        The input.
    position : int
        Of the input among the region's.
    means : str
        ``fused`` into the kernel as an aliased output, ``written back`` by one copy after it, or ``unchanged``.
    clause : str
        Of the break rule: all of them where it is fused, else the one that does not hold.
    reason : str
    """

    value: Value
    position: int
    means: str
    clause: str
    reason: str

    @property
    def is_fused(self) -> bool:
        """Whether the fusion writes the input itself."""
        return self.means == FUSED

    def of(self, value: Value) -> Write:
        """Return the same for another region of this form."""
        return replace(self, value=value)

    def __str__(self) -> str:
        return f"%{self.value.name} {self.means} ({self.clause}: {self.reason})"


def decide_writes(form: Form, inputs: tuple[Value, ...]) -> list[Write]:
    """Return how each written input is written."""
    dataflow = _dataflow(form)
    is_one_kernel = _is_one_kernel(form, dataflow)
    return [
        _decide(form, position, inputs, dataflow, is_one_kernel) for position in sorted(form.writes)
    ]  # fmt: skip


def _decide(form: Form, position: int, inputs: tuple[Value, ...], dataflow: nx.DiGraph, is_one_kernel: bool) -> Write:
    target, value = form.inputs[position], form.writes[position]
    handle = inputs[position]
    if value is target:
        return Write(handle, position, UNCHANGED, "A", "its value is the one it has")
    for clause, reason in (
        ("B", _why_shared(position, inputs)),
        ("C.1", _why_no_target(handle) or _why_no_source(form, value, inputs)),
        ("C.3", _why_not_elementwise(dataflow, target, value)),
        ("C.2", None if is_one_kernel else _why_read_elsewhere(form, dataflow, position)),
    ):
        if reason is not None:
            return Write(handle, position, WRITTEN_BACK, clause, reason)
    how = "one kernel over one shape" if is_one_kernel else "all that reads the old value leads to the new one"
    return Write(handle, position, FUSED, "A-C", how)


def _dataflow(form: Form) -> nx.DiGraph:
    """Return the tensors of a form, with an edge from each to what is computed from it."""
    graph = nx.DiGraph()
    for node in form.live(_computed(form)):
        if node.op == "placeholder" or not is_constant(node):
            graph.add_node(node)
            graph.add_edges_from((operand, node) for operand in tensors_of(node))
    return graph


def _computed(form: Form) -> list[Node]:
    """Return what the fusion computes: the values written, and outputs that are more than an input as it was."""
    outputs = [node for node in form.outputs if root_of(node).op != "placeholder"]
    return outputs + [value for position, value in form.writes.items() if value is not form.inputs[position]]


def _why_shared(position: int, inputs: tuple[Value, ...]) -> str | None:
    mine = inputs[position]
    for other in inputs:
        if other is not mine and other.storage.name == mine.storage.name and overlaps(other.access, mine.access):
            return f"%{other.name} has bytes of it"
    return None


def _why_no_target(handle: Value) -> str | None:
    return "it is expanded: elements share memory" if may_repeat(handle.shape, handle.stride) else None


def _why_no_source(form: Form, value: Node, inputs: tuple[Value, ...]) -> str | None:
    handles = dict(zip(form.inputs, inputs, strict=True))
    return "its value is expanded: one element for many" if _expanded(value, handles, {}) else None


def _expanded(node: Node, handles: dict[Node, Value], known: dict[Node, frozenset[int]]) -> frozenset[int]:
    """Return the dimensions, counted from the last, along which a value is one element: nvFuser keeps them as such.

    What is elementwise has those that all its operands have. Of an expanded tensor moved otherwise they are unknown:
    then they are said to be all.
    """
    if node in known:
        return known[node]
    known[node] = frozenset()
    shape = shape_of(node)
    wide = frozenset(-i for i, size in enumerate(reversed(shape), 1) if size > 1)
    operands = tuple(tensors_of(node))
    if node.op == "placeholder":
        strides = handles[node].stride
        known[node] = frozenset(dim for dim in wide if strides[dim] == 0)
    elif kind_of(node) == POINTWISE or str(node.target) == "aten.expand.default":
        for dim in wide if operands else ():
            if all(_is_one(operand, dim) or dim in _expanded(operand, handles, known) for operand in operands):
                known[node] |= {dim}
    elif kind_of(node) == MOVE and any(_expanded(operand, handles, known) for operand in operands):
        known[node] = wide
    return known[node]


def _is_one(node: Node, dim: int) -> bool:
    shape = shape_of(node)
    return -dim > len(shape) or shape[dim] == 1


def _why_not_elementwise(dataflow: nx.DiGraph, target: Node, value: Node) -> str | None:
    """Return what on the way from an input to its new value reads or writes at other positions."""
    if target not in dataflow or not nx.has_path(dataflow, target, value):
        return None
    on_the_way = (nx.descendants(dataflow, target) & nx.ancestors(dataflow, value)) | {target, value}
    for node in dataflow:
        if node in on_the_way and node is not target:
            is_still = kind_of(node) == POINTWISE or (kind_of(node) == MOVE and _keeps_positions(node))
            before = [operand for operand in dataflow.predecessors(node) if operand in on_the_way]
            if not is_still or any(shape_of(operand) != shape_of(node) for operand in before):
                return f"the new value depends on the old one through {node.name}, which is not elementwise"
    return None


def _keeps_positions(node: Node) -> bool:
    """Whether a view is of nothing but the whole, in place: a clone, an expand to the same shape."""
    return str(node.target) in _STILL or (
        str(node.target) in _SHAPED and shape_of(node) == shape_of(node.args[0])
    )  # fmt: skip


_STILL = frozenset({"aten.clone.default", "aten.alias.default", "aten.detach.default", "aten.lift_fresh_copy.default"})
_SHAPED = frozenset({"aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.expand.default"})


def _why_read_elsewhere(form: Form, dataflow: nx.DiGraph, position: int) -> str | None:
    """Return what reads an input's old value without leading to the new one: its segment may come after the write.

    What is computed from the input alone, element by element, may be computed again wherever it is used: in the write
    of another input, for one.
    """
    target, value = form.inputs[position], form.writes[position]
    if target not in dataflow:
        return None
    needed = nx.ancestors(dataflow, value) | {value}
    again, seen = [target], {target}
    while again:
        for user in dataflow.successors(again.pop()):
            if user not in needed:
                return f"{user.name} reads the old value and does not lead to the new one"
            operands = set(dataflow.predecessors(user))
            if user not in seen and kind_of(user) in (POINTWISE, MOVE) and operands <= seen and user is not value:
                seen.add(user)
                again.append(user)
    others = [(form.inputs[i], new) for i, new in form.writes.items() if i != position and new in seen]
    names = [old.name for old, new in others if old is not new]
    return f"the old value is written to {names[0]}" if names else None


def _is_one_kernel(form: Form, dataflow: nx.DiGraph) -> bool:
    """Whether the fusion is elementwise over one shape, and connected.

    Parts of a fusion without an edge between them are kernels of their own, in any order: one for each output.
    """
    kinds = {kind_of(node) for node in dataflow if node.op != "placeholder"}
    if not kinds <= {POINTWISE, CREATE}:
        return False
    return len({shape_of(node) for node in dataflow}) == 1 and nx.is_weakly_connected(dataflow)
