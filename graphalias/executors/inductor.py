"""Regions through PyTorch's own code generator, called on one region at a time.

This module and `prefetch` are the only ones that touch the generator's private interface.
"""

from __future__ import annotations

import functools
import inspect
import logging
import math
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from graphalias.errors import ExecutorError
from graphalias.executors.functional import alone, eager_strides, functional_form, is_as_eager, scratch_like
from graphalias.executors.prefetch import prefetching
from graphalias.graph import Operation, Value
from graphalias.torch_private import no_modes, storage_key

logger = logging.getLogger("graphalias")
#: Characters of a code generator's error that are shown.
LONGEST_MESSAGE = 500

_lock = threading.RLock()  # the code generator keeps global state

Generated = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]

#: What has neither a tag nor an alias to tell it by, and is still computed element by element.
_ELEMENTWISE = frozenset(
    {"aten.copy.default", "aten.copy_.default", "aten.full.default", "aten.scalar_tensor.default",
     "aten._to_copy.default", "prims.convert_element_type.default"}
)  # fmt: skip


@functools.cache
def is_available() -> bool:
    """Whether the code generator works here: on a CPU it needs a C++ compiler. Says once why not."""
    try:
        from torch._inductor.cpp_builder import get_cpp_compiler

        get_cpp_compiler()
    except Exception as error:
        logger.warning("Inductor can't be used: %s; operations run one by one", error)
        return False
    return True


@functools.cache
def get_ready() -> threading.Thread:
    """Begin to find out which vector instructions work here, beside what comes before the code generator.

    It compiles a file for each kind and loads it in a process of its own: seconds the first time, then less.
    """
    import torch._inductor.codecache  # here: two threads can't import what imports each other  # noqa: F401
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    thread = threading.Thread(target=pick_vec_isa, name="graphalias vectors", daemon=True)
    thread.start()
    return thread


@functools.cache
def _decompositions() -> dict[Any, Any]:
    import torch._inductor.lowering  # its decompositions name it without importing it  # noqa: F401
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()


def why_not_fused(operation: Operation) -> str | None:
    """Return why an operation can't be part of a region; None where it can."""
    if not operation.target.startswith("aten."):
        return "not an ATen operation"
    values = [value for value in (*operation.operands, *operation.results) if value]
    if any(value.dtype.startswith("c") or value.conj or value.neg for value in values):
        return "complex numbers are left to ATen"
    if all(value.size_bytes <= value.itemsize for value in values):
        return "single elements: nothing to gain"
    if operation.target == "aten.clone.default":
        return "pure data movement"
    if any(value.dtype in ("f16", "bf16") for value in values) and not _rounds_each_step():
        return "this torch's code generator does not round after each operation, as eager does"
    if operation.target in _PRODUCTS:
        return None if gains_alone(operation) else "a matrix product: ATen's own is faster"
    key = (
        operation.target, tuple((v.dtype, tuple(size == 1 for size in v.shape)) for v in operation.operands),
        repr([argument for argument in operation.args if not isinstance(argument, (Value, list))]),
        tuple(result is not None for result in operation.results),
    )  # fmt: skip
    with _lock:
        if key not in _reasons:
            _reasons[key] = _ask_functional_form(operation)
        return _reasons[key]


_reasons: dict[Any, str | None] = {}

_PRODUCTS = frozenset({"aten.mm.default", "aten.bmm.default"})

#: Up to how many numbers in a row the generated multiply and sum of a batched one-row product beats ATen's kernel.
LONGEST_SUM = 192

#: Operations that ATen's kernels take longer for than one generated loop, and up to how many bytes of results or
#: operands: half again to twice as long, statistics in some shapes a hundred times. Measured by tools/bench_alone.py.
_SLOWER_IN_ATEN = {
    "aten.gelu.default": 1 << 18, "aten.native_layer_norm.default": math.inf, "aten.std.correction": math.inf,
    "aten.var.correction": math.inf, "aten.var_mean.correction": math.inf,
}  # fmt: skip


def gains_alone(operation: Operation) -> bool:
    """Whether an operation is worth a region of its own.

    Batched products of one row are, such as a query with cached keys: where the numbers that are summed lie in a row
    and are few, a multiply and sum takes half to nine tenths of the time of ATen's kernel, whatever the size, and
    elsewhere up to three times as long. In half precision each product would be rounded, which ATen does not do.
    """
    if operation.target == "aten.bmm.default":
        row, matrix = operation.operands[0], operation.operands[-1]
        is_short = row.shape[-2] == 1 and matrix.stride[-2] == 1 and 1 < matrix.shape[-2] <= LONGEST_SUM
        return is_short and row.dtype not in ("f16", "bf16")
    return operation.operands != () and operation.operands[0].size_bytes <= _SLOWER_IN_ATEN.get(operation.target, -1)


def _ask_functional_form(operation: Operation) -> str | None:
    """Return what in an operation's functional form is neither elementwise, nor a reduction, nor a view."""
    try:
        graph, _ = functional_form(alone(operation), _decompositions())
    except Exception as error:
        return f"PyTorch can't make it functional: {type(error).__name__}"
    unknown = [node for node in graph.graph.nodes if node.op == "call_function" and not _is_elementary(node)]
    return f"it is made of {unknown[0].target}" if unknown else None


def _is_elementary(node: Node) -> bool:
    if node.target is operator.getitem or str(node.target) in _ELEMENTWISE:
        return True
    tags = getattr(node.target, "tags", ())
    if torch.Tag.pointwise in tags or torch.Tag.reduction in tags:
        return True
    returns = node.target._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def compile_region(region: Operation) -> Callable[..., Sequence[torch.Tensor]]:
    """Return a function of the region's input tensors that returns what it makes, and writes what it writes.

    Raises
    ------
    ExecutorError
        If the code generator fails, or what it returns is not fresh or not of the strides eager gives.
    """
    with _lock, no_modes(), torch.no_grad():
        try:
            graph, fakes = functional_form(region.body, _decompositions())
            run, kernels = _generate(graph, fakes)
            call = _checked(region, run)
        except Exception as error:
            raise ExecutorError(
                f"Inductor can't compile the region: {type(error).__name__}: {_brief(error)}\n{region.body}",
                node=region.name, location=region.location,
            ) from error  # fmt: skip
    vars(call)["kernels"] = kernels  # `explain` shows it
    return call


def _brief(error: Exception) -> str:
    r"""Return an error's message without the hundreds of lines that a C++ compiler adds.

    >>> _brief(ValueError("a C++ error\nCommand:\ng++ ..."))
    'a C++ error'
    """
    return str(error).partition("\nCommand:")[0].strip()[:LONGEST_MESSAGE]


@functools.cache
def _rounds_each_step() -> bool:
    """Whether the code generator can round to half precision after every operation, on a CPU too."""
    from torch._inductor.codegen.cpp import CppVecOverrides

    return "use_compute_types" in inspect.signature(CppVecOverrides.to_dtype).parameters


def _generate(graph: GraphModule, fakes: Sequence[torch.Tensor]) -> tuple[Generated, int | None]:
    """Return the generated function, and how many kernels it is made of where this torch says so."""
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner

    for node in graph.graph.nodes:  # eager rounds after every operation, in the operand's dtype
        node.meta["low_precision_pointwise_barrier"] = True
    # what enters is what was captured: the guards have looked at sizes and strides already
    as_eager = config.patch(emulate_precision_casts=True, fallback_random=True, size_asserts=False)
    get_ready().join()
    with as_eager, prefetching(fakes):
        compiled = compile_fx_inner(graph, list(fakes))
    counts = getattr(compiled, "metrics_deltas", None)
    return getattr(compiled, "current_callable", None) or compiled, getattr(counts, "generated_kernel_count", None)


def _checked(region: Operation, run: Generated) -> Callable[..., Any]:
    """Return the compiled region as a function of its inputs, after a look at its results on scratch tensors."""
    inputs = scratch_like(region.body.inputs)
    storages = {storage_key(tensor) for tensor in inputs}
    made = [value for value in region.results[: len(region.body.outputs)] if value]
    results = run(list(inputs))
    strides = eager_strides(region, made, inputs)
    moved: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []
    for i, (value, stride, tensor) in enumerate(zip(made, strides, results, strict=True)):
        if not is_as_eager(tensor, value, stride):
            raise ExecutorError(f"%{value.name} has stride {tensor.stride()}: expected {stride}, or the same permuted")
        if tensor.stride() != stride or tuple(tensor.shape) != value.shape:
            moved.append((i, value.shape, stride))
        if storage_key(tensor) in storages:
            raise ExecutorError(f"%{value.name} shares memory with another: expected a tensor of its own")
        storages.add(storage_key(tensor))
    written = [i for i in region.writes if i < len(inputs)]
    increment = torch.autograd.graph.increment_version

    def call(*tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        results = run(list(tensors))
        if written:  # all at once: an optimizer's tile writes two dozen
            increment([tensors[i] for i in written])
        for i, shape, stride in moved:  # in place: what is made is no view
            results[i].as_strided_(shape, stride)
        return results

    return call
