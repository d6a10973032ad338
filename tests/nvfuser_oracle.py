"""nvFuser definitions run on CPU tensors: the text nvFuser prints back, by its own rules and not torch's.

Written inputs are written at the end, or as early as the data allow, since nvFuser promises no order between its
kernels: a value made of an input by unary operations is then read again wherever it is used, and a kernel that reads
an input at other positions than it writes races with itself.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import networkx as nx
import torch

from nvfuser_text import Input, OracleError, Printed, Ref, Step, read_definition

#: Late: after everything else. Early: each as soon as its value is there; the last first in "early, last first".
WRITES = ("late", "early", "early, last first")

UNARY = frozenset(
    {"abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "cast", "ceil", "cos", "cosh", "erf",
     "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "frac", "isfinite", "isinf", "isnan", "isneginf", "isposinf",
     "lgamma", "log", "log10", "log1p", "log2", "logical_not", "neg", "reciprocal", "relu", "round", "rsqrt",
     "segment_set", "set", "sigmoid", "sign", "signbit", "silu", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"}
)  # fmt: skip
OF_SEVERAL = frozenset(
    {"add", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "clamp",
     "div", "eq", "fmod", "ge", "gt", "le", "lerp", "logical_and", "logical_or", "lt", "maximum", "minimum", "mod",
     "mul", "ne", "nextafter", "pow", "remainder", "sub", "threshold", "where"}
)  # fmt: skip
POINTWISE = UNARY | OF_SEVERAL
#: Evaluated by ATen where nothing follows: nvFuser then forgets that the result was to be written somewhere.
EVALUATED = frozenset(
    {"matmul", "linear", "gather", "take_along_axis", "scatter", "cumsum", "cumprod", "topk", "argsort"}
)
#: A change of sizes and strides, or of nothing.
VIEWS = frozenset({"set", "segment_set", "reshape", "permute", "squeeze", "broadcast", "expand", "slice"})


def run_on_cpu(definition: Any, inputs: Sequence[Any], writes: str = "late") -> list[torch.Tensor]:
    """Run a definition on CPU tensors, as nvFuser may; to be put in the place of ``run_definition``.

    Parameters
    ----------
    definition : nvfuser_direct.FusionDefinition
    inputs : sequence of Tensor and numbers
        Those with an alias are written.
    writes : str
        One of `WRITES`.

    Returns
    -------
    list of Tensor
        The visible outputs: inputs themselves, views of inputs, views of each other, and new tensors.

    Raises
    ------
    OracleError
        For an operation that the oracle does not know, or inputs that are not the definition's.
    """
    printed = read_definition(definition)
    for entry, value in zip(printed.inputs, inputs, strict=True):
        _check_input(entry, value)
    return _Run(printed, dict(zip((entry.name for entry in printed.inputs), inputs, strict=True))).run(writes)


def _check_input(entry: Input, value: Any) -> None:
    """Fail for an input that nvFuser would refuse or misread: another dtype, shape or stride than it was told."""
    if entry.shape is None:
        if isinstance(value, torch.Tensor):
            raise OracleError(f"{entry.name} is a number, found a tensor")
        return
    sizes = [size if size != -1 else found for size, found in zip(entry.shape, value.shape, strict=True)]
    if value.dtype != entry.dtype or list(value.shape) != sizes:
        raise OracleError(f"{entry.name}: expected {entry.dtype} {sizes}, found {value.dtype} {list(value.shape)}")
    order = entry.stride_order or list(range(value.dim()))[::-1]
    dims = sorted(range(value.dim()), key=lambda dim: -order[dim])
    expected = 1
    for dim, flag in reversed(list(zip(dims, entry.contiguity, strict=True))):
        size, stride = value.shape[dim], value.stride(dim)
        if (flag is None) != (size == 1 or (stride == 0 and entry.shape[dim] != 0)) and value.numel():
            raise OracleError(f"{entry.name}: contiguity {flag} of dimension {dim}, of size {size} and stride {stride}")
        if flag and stride != expected and value.numel():
            raise OracleError(f"{entry.name}: dimension {dim} said to be contiguous has stride {stride}")
        if flag is not None:
            expected = stride * size


class _Run:
    """One run of a definition: what is in memory, and what has been computed."""

    def __init__(self, printed: Printed, memory: dict[str, Any], *, reads_again: bool = False) -> None:
        self.printed, self.memory, self.reads_again = printed, memory, reads_again
        self.made: dict[str, Any] = {}
        lost = {value for value, _ in printed.writes if printed.producer[value].op in EVALUATED}
        self.writes = [(value, target) for value, target in printed.writes if value not in lost]
        self.visible = [value for value, target in printed.outputs if target is None]

    def run(self, writes: str) -> list[torch.Tensor]:
        """Compute everything and write what is written; return the visible outputs."""
        ordered = self.writes if writes != "early, last first" else self.writes[::-1]
        if writes == "late" or is_one_pointwise_kernel(self.printed):
            self._write_late(ordered)
        else:
            self.reads_again = True
            self._write_early(ordered)
        self._share_written_buffers()
        targets = dict(self.writes)  # a visible output that is written is the input itself
        returned: list[torch.Tensor] = []
        for name in self.visible:
            tensor = self.value(targets.get(name, name))
            is_there = name not in self.memory and any(tensor is other for other in returned)
            returned.append(tensor.view(tensor.shape) if is_there else tensor)
        return returned

    def _write_late(self, writes: list[tuple[str, str]]) -> None:
        for name in self.printed.graph:
            self.value(name)
        ready = [(target, self.value(name).clone()) for name, target in writes]
        for target, value in ready:
            self._write(target, value)

    def _write_early(self, writes: list[tuple[str, str]]) -> None:
        for name, target in writes:
            self._write(target, self.value(name).clone())
            self.made[name] = self.memory[target]  # what reads the written value reads its buffer
            if self._races(target, name):
                again = _Run(self.printed, self.memory).value(name)
                flat, other = self.memory[target].reshape(-1).clone(), again.reshape(-1)
                flat[flat.numel() // 2 :] = other[flat.numel() // 2 :]
                self._write(target, flat.reshape(again.shape))

    def _share_written_buffers(self) -> None:
        """Let a written value be its target's memory, and views of it be views of that."""
        for name, target in self.writes:
            self.made[name] = self.memory[target]
            for later in nx.descendants(self.printed.graph, name):
                if name in viewed(self.printed, later):
                    self.made.pop(later, None)

    def _write(self, target: str, value: torch.Tensor) -> None:
        memory = self.memory[target]
        if memory.dtype != value.dtype or memory.shape != value.shape:  # nvFuser would write these bytes all the same
            raise OracleError(
                f"{target}: {value.dtype} {list(value.shape)} is written to {memory.dtype} {memory.shape}"
            )
        memory.copy_(value)

    def _races(self, target: str, value: str) -> bool:
        """Whether the kernel that writes reads its target at other positions."""
        graph = self.printed.graph
        between = nx.ancestors(graph, value) & nx.descendants(graph, target) | {value}
        producers = [self.printed.producer[name] for name in between if name in self.printed.producer]
        return target in nx.ancestors(graph, value) and any(step.op not in POINTWISE for step in producers)

    @functools.cache  # noqa: B019  # lives as long as a run
    def is_read_again(self, name: str) -> bool:
        """Whether it is made of one input by unary operations and views, so that nvFuser may make it again."""
        if name not in self.printed.producer:
            return True
        step = self.printed.producer[name]
        tensors = [operand for operand in step.operands if operand.startswith("tv")]
        if len(tensors) != 1 or len(step.names) != 1 or step.op not in UNARY | VIEWS:
            return False
        return self.is_read_again(tensors[0])

    def value(self, name: str) -> Any:
        """Return a value: from memory again where nvFuser may read again, computed once otherwise."""
        if name in self.memory:
            return self.memory[name]
        if name in self.made:
            return self.made[name]
        step = self.printed.producer[name]
        results = self._compute(step)
        for key, result in zip(step.names, results, strict=True):
            if not self.reads_again or not self.is_read_again(key):
                self.made[key] = result
        return results[step.names.index(name)]

    def _compute(self, step: Step) -> list[Any]:
        args, kwargs = self._resolved(step.args), {key: self._resolved(item) for key, item in step.kwargs.items()}
        results = _compute(step.op, args, kwargs)
        results = list(results) if isinstance(results, tuple) else [results]
        for name, result in zip(step.names, results, strict=True):
            expected = self.printed.dtypes.get(name)
            if isinstance(result, torch.Tensor) and result.dtype != expected:
                raise OracleError(f"{name} = {step.op}: the oracle makes {result.dtype}, nvFuser {expected}")
        return results

    def _resolved(self, argument: Any) -> Any:
        if isinstance(argument, Ref):
            return self.value(argument.name)
        if isinstance(argument, list):
            return [self._resolved(item) for item in argument]
        return argument


def viewed(printed: Printed, name: str) -> set[str]:
    """Return all that a value is a view of, step by step."""
    seen = set()
    while name in printed.producer and printed.producer[name].op in VIEWS:
        name = printed.producer[name].operands[0]
        seen.add(name)
    return seen


def is_one_pointwise_kernel(printed: Printed) -> bool:
    """Whether all is pointwise over one shape, and hangs together: nvFuser makes kernels of what does not.

    In one such kernel each element is read before it is written.
    """
    graph = printed.graph  # an input that is not read, but only written, has no part in it
    tensors = graph.subgraph(name for name in graph if name.startswith("tv") and graph.degree(name))
    shapes = {printed.shapes[name] for name in tensors if name in printed.shapes}
    is_pointwise = all(step.op in POINTWISE or step.op in ("scalar", "full") for step in printed.steps)
    return is_pointwise and len(shapes) <= 1 and nx.number_weakly_connected_components(tensors) <= 1


# What nvFuser's operations compute, where torch's of the same name do something else or take other arguments.


def _compute(op: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if op in OPERATIONS:
        return OPERATIONS[op](*args, **kwargs)
    if op not in POINTWISE:
        raise OracleError(f"the oracle does not know {op}")
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    if not tensors:
        return OPERATIONS_ON_NUMBERS[op](*args)
    if len({tensor.dtype for tensor in tensors}) > 1:
        raise OracleError(f"{op} of {[tensor.dtype for tensor in tensors]}: nvFuser casts before")
    return TORCH_NAMES.get(op, getattr(torch, op, None))(*_with_typed_numbers(args, tensors[0].dtype))


def _with_typed_numbers(args: Sequence[Any], dtype: torch.dtype) -> list[Any]:
    """Return the arguments with numbers as tensors of the dtype: the kernel casts them to it."""
    return [arg if isinstance(arg, torch.Tensor) else _number(arg).to(dtype) for arg in args]


def _divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


def _sum(x: torch.Tensor, dims: Sequence[int] | None = None, keepdim: bool = False, dtype: Any = None) -> torch.Tensor:
    """Add up one by one in the operand's dtype: half precision rounds each time."""
    dims = list(range(x.dim())) if dims is None else list(dims)
    if x.dtype not in (torch.bfloat16, torch.float16):
        return x.sum(dims, keepdim) if x.dtype != torch.bool else x.any(dims, keepdim)
    total = x.movedim(dims, list(range(len(dims)))).flatten(0, len(dims) - 1)
    total = functools.reduce(operator.add, total.unbind(0), torch.zeros_like(total.sum(0)))
    return total if not keepdim else total.reshape([1 if i in dims else size for i, size in enumerate(x.shape)])


def _prod(x: torch.Tensor, dims: Sequence[int], keepdim: bool = False, dtype: Any = None) -> torch.Tensor:
    for dim in sorted(dims, reverse=True):
        x = x.prod(dim, keepdim, dtype=x.dtype)
    return x


def _welford(x: torch.Tensor, dims: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the mean, the sum of squared distances from it, and the count."""
    mean = x.mean(dims, keepdim=True)
    squares = (x - mean).square().sum(dims)
    count = x.numel() // max(squares.numel(), 1)
    return mean.squeeze(dims), squares, torch.full(squares.shape, count)


def _broadcast(x: torch.Tensor, is_broadcast_dim: Sequence[bool]) -> torch.Tensor:
    for dim, is_new in enumerate(is_broadcast_dim):
        x = x.unsqueeze(dim) if is_new else x
    return x


def _squeeze(x: torch.Tensor, dims: Sequence[int], squeeze_expanded: bool = False) -> torch.Tensor:
    """Leave dimensions out: of one element, or of the same one again and again."""
    for dim in sorted(dims, reverse=True):
        if x.shape[dim] != 1 and not squeeze_expanded:
            raise OracleError(f"squeeze of a dimension of size {x.shape[dim]}")
        x = x.select(dim, 0)
    return x


def _slice(x: torch.Tensor, start_indices: Any, end_indices: Any, strides: Any = None, **_: Any) -> torch.Tensor:
    steps = strides or [1] * x.dim()
    return x[tuple(itertools.starmap(slice, zip(start_indices, end_indices, steps, strict=True)))]


def _pad(x: torch.Tensor, pad_widths: Sequence[int], value: Any = None) -> torch.Tensor:
    """Pad, the last dimension first."""
    value = 0 if value is None else value
    shape = list(x.shape)
    inside = [slice(None)] * x.dim()
    for i in range(len(pad_widths) // 2):
        before, after = pad_widths[2 * i], pad_widths[2 * i + 1]
        dim = x.dim() - 1 - i
        shape[dim] += before + after
        x = x.narrow(dim, max(0, -before), x.shape[dim] + min(0, before) + min(0, after))
        inside[dim] = slice(max(0, before), max(0, before) + x.shape[dim])
    made = torch.full(shape, value, dtype=x.dtype)
    made[tuple(inside)] = x
    return made


def _cat(tensors: Sequence[torch.Tensor], dim: int = 0, manual_padding: bool = False) -> torch.Tensor:
    """Join tensors that are padded with zeros to the whole size."""
    if not manual_padding:
        return torch.cat(list(tensors), dim)
    return functools.reduce(torch.logical_or if tensors[0].dtype == torch.bool else operator.add, tensors)


def _stride_order(x: torch.Tensor, stride_order: Sequence[int]) -> torch.Tensor:
    """Return the elements in another order of dimensions in memory; the outermost has the largest number."""
    dims = sorted(range(x.dim()), key=lambda dim: -stride_order[dim])
    made = x.permute(dims).clone(memory_format=torch.contiguous_format)
    return made.permute([dims.index(dim) for dim in range(x.dim())])


def _cumulative(kind: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda x, dim, **_: kind(x.clone(), dim).to(x.dtype)


def _where(condition: Any, a: Any, b: Any) -> Any:
    if not isinstance(condition, torch.Tensor):
        return a if condition else b
    tensors = [item for item in (a, b) if isinstance(item, torch.Tensor)]
    if not tensors:
        return torch.where(condition, _number(a), _number(b))
    if len({tensor.dtype for tensor in tensors}) > 1:
        raise OracleError(f"where of {[tensor.dtype for tensor in tensors]}: nvFuser casts before")
    return torch.where(condition, *_with_typed_numbers((a, b), tensors[0].dtype))


def _number(number: Any) -> torch.Tensor:
    return torch.tensor(number, dtype={bool: torch.bool, int: torch.int64, float: torch.float64}[type(number)])


def _clamp(x: torch.Tensor, low: Any, high: Any) -> torch.Tensor:
    """Keep within bounds; not a number stays so."""
    low, high = _with_typed_numbers((low, high), x.dtype)
    return torch.where(x.isnan(), x, torch.where(x < low, low, torch.where(x > high, high, x)))


def _full(shape: Sequence[int], fill_value: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.full([int(size) for size in shape], fill_value, dtype=dtype)


def _iota(length: int, start: int = 0, step: int = 1, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return (torch.arange(int(length), dtype=torch.float64 if dtype.is_floating_point else dtype) * step + start).to(
        dtype
    )


def _cast(x: Any, dtype: torch.dtype) -> Any:
    if isinstance(x, torch.Tensor):
        return x.to(dtype)
    return _number(x).to(dtype).item()


def _index_select(x: torch.Tensor, index: torch.Tensor, dim: int) -> torch.Tensor:
    return x.index_select(dim, index.reshape(-1))


OPERATIONS: dict[str, Callable[..., Any]] = {
    "scalar": lambda value, dtype=None: _cast(value, dtype) if dtype is not None else value,
    "set": lambda x: x, "segment_set": lambda x: x, "cast": _cast, "where": _where, "clamp": _clamp,
    "sum": _sum, "prod": _prod, "welford": _welford, "max": lambda x, dims: x.amax(dims),
    "min": lambda x, dims: x.amin(dims), "broadcast": _broadcast, "slice": _slice, "pad": _pad, "cat": _cat,
    "expand": lambda x, shape: x.expand(shape), "reshape": lambda x, new_shape: x.reshape(new_shape),
    "permute": lambda x, dims: x.permute(dims), "squeeze": _squeeze,
    "full": _full, "iota": _iota, "index_select": _index_select,
    "gather": lambda x, index, dim: x.gather(dim, index), "take_along_axis": lambda x, i, dim: x.gather(dim, i),
    "scatter": lambda x, index, src, dim: x.scatter(dim, index, src), "size": lambda x, dim: x.shape[dim],
    "stride_order": _stride_order, "cumsum": _cumulative(torch.cumsum), "cumprod": _cumulative(torch.cumprod),
    "matmul": torch.matmul, "linear": torch.nn.functional.linear,
    "threshold": lambda x, low, value: torch.where(x <= low, *_with_typed_numbers((value, x), x.dtype)),
}  # fmt: skip
TORCH_NAMES: dict[str, Callable[..., Any]] = {
    "div": _divide, "mod": torch.fmod, "fmod": torch.fmod, "bitwise_left_shift": torch.bitwise_left_shift,
    "neg": lambda x: x if x.dtype == torch.bool else -x, "silu": torch.nn.functional.silu,
    "sub": lambda a, b: a ^ b if a.dtype == torch.bool else a - b,
}  # fmt: skip
OPERATIONS_ON_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "maximum": max, "minimum": min, "neg": operator.neg,
    "div": lambda a, b: int(a / b) if isinstance(a, int) and isinstance(b, int) else a / b,
    "reciprocal": lambda a: 1 / a, "pow": operator.pow, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge, "logical_and": lambda a, b: bool(a and b),
    "logical_or": lambda a, b: bool(a or b), "logical_not": operator.not_,
}  # fmt: skip
