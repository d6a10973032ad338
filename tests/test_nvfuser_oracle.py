"""The CPU oracle of nvFuser definitions: it computes what nvFuser's operations mean, and it can fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # its usual name

from nvfuser_definitions import (
    BF16,
    FLOAT,
    INT,
    SAFE,
    bare_product,
    cast_read_again,
    clone_before,
    define,
    expanded,
    float_into_half,
    longer,
    nvfuser_direct,
    pieces,
    randn,
    read_two_segments_later,
    seed,
    shifted,
    transposed,
    two_reductions,
    view_of_written,
    written_twice,
)
from nvfuser_oracle import WRITES, run_on_cpu
from nvfuser_text import OracleError, read_definition

BOOL = nvfuser_direct.DataType.Bool


def ran(made: Any, writes: str = "late") -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the results of a definition, and its inputs afterwards."""
    definition, inputs = made
    copies = [tensor.clone() for tensor in inputs]
    return run_on_cpu(definition, copies, writes), copies


def seen(made: Any, writes: str) -> list[torch.Tensor]:
    """Return all that a run shows, as values."""
    results, inputs = ran(made, writes)
    return [tensor.clone() for tensor in (*results, *inputs)]


def differs(made: Any, writes: str) -> bool:
    """Whether a run with some order of writes shows something else than one with late writes."""
    pairs = zip(seen(made, "late"), seen(made, writes), strict=True)
    return not all(torch.equal(expected, found) for expected, found in pairs)


@pytest.mark.parametrize("writes", WRITES)
def test_the_alias_output_is_read(writes: str) -> None:
    """``y.exp_().add(x) + z.exp()``: right where add reads what is written to y, wrong where it reads y itself."""
    y, x, z = seed(reads_the_input=False)[1]
    expected = y.exp().add(x) + z.exp()
    (right,), (written, *_) = ran(seed(reads_the_input=False), writes)
    torch.testing.assert_close(right, expected)
    torch.testing.assert_close(written, y.exp())
    wrong = ran(seed(reads_the_input=True), writes)[0][0]
    assert writes != "late" or (wrong - expected).abs().max() > 0.5


UNSAFE_EARLY = {
    "two reductions": two_reductions, "transposed": transposed, "shifted": shifted, "two pieces": pieces,
    "a cast read again": cast_read_again, "read two segments later": read_two_segments_later,
    "the input read": seed(reads_the_input=True),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSAFE_EARLY)
def test_early_writes_show(name: str) -> None:
    """What hangs on an order that nvFuser does not promise gives something else with early writes."""
    assert differs(UNSAFE_EARLY[name], "early")


def test_late_write_first() -> None:
    """Of two writes of one input, either may come last."""
    assert differs(written_twice, "early, last first")


@pytest.mark.parametrize("name", SAFE)
@pytest.mark.parametrize("writes", WRITES)
def test_safe_ones_are_safe(name: str, writes: str) -> None:
    """What keeps to the break rule is the same in every order of writes."""
    assert not differs(SAFE[name], writes)


def test_lost_write() -> None:
    """A bare product is not written; after a set it is."""
    results, (x, _) = ran(bare_product)
    assert not results and torch.equal(x, bare_product[1][0])

    @define(randn(8, 8), randn(8, 8))
    def product(fd: Any, x: Any, y: Any) -> None:
        fd.add_output(fd.ops.set(fd.ops.matmul(x, y)), x)

    results, (x, y) = ran(product)
    assert not results
    torch.testing.assert_close(x, product[1][0] @ y)


def test_a_clone_is_a_view() -> None:
    """What leaves as it came shares memory with the input, and shows what is written to it."""
    (clone,), (x,) = ran(clone_before)
    assert clone.data_ptr() == x.data_ptr() and torch.equal(clone, clone_before[1][0] + 1)


def test_views_of_what_is_written() -> None:
    """A view of a value that is written to an input is a view of the input."""
    (view,), (x,) = ran(view_of_written)
    assert view.data_ptr() == x.data_ptr() and torch.equal(view, x.t())


def test_what_results_share() -> None:
    """An input comes back itself; views of it are views; views of what is computed are views of each other."""

    @define(randn(4, 6), randn(4, 6))
    def made(fd: Any, x: Any, y: Any) -> None:
        total = fd.ops.add(x, y)
        for value in (x, fd.ops.reshape(x, [24]), fd.ops.permute(total, [1, 0]), fd.ops.slice(total, [1, 0], [3, 6])):
            fd.add_output(value)
        fd.add_output(fd.ops.set(fd.ops.mul(y, 2.0)), y)
        fd.add_output(y)

    (same, flat, turned, part, second), (x, y) = ran(made)
    assert same is x and second is y and torch.equal(y, made[1][1] * 2)
    assert flat.data_ptr() == x.data_ptr() and flat.shape == (24,)
    assert part.untyped_storage().data_ptr() == turned.untyped_storage().data_ptr()
    assert turned.data_ptr() not in (x.data_ptr(), y.data_ptr())


@pytest.mark.parametrize("made", [float_into_half, longer], ids=["dtype", "shape"])
def test_bytes_beyond_the_end(made: Any) -> None:
    """A value of another dtype or shape than what it is written to is an error here, where nvFuser writes it."""
    with pytest.raises(OracleError, match="is written to"):
        ran(made)


def test_expanded_target() -> None:
    """An expanded target has no place for each element."""
    with pytest.raises(RuntimeError, match="more than one element"):
        run_on_cpu(expanded[0], expanded[1])


def test_inputs_are_those_of_the_definition() -> None:
    """Inputs of another dtype, shape or stride than the definition says are an error, which no fallback swallows."""

    @define(randn(4, 6))
    def made(fd: Any, x: Any) -> None:
        fd.add_output(fd.ops.neg(x))

    for wrong in (randn(4, 6).double(), randn(4, 5), randn(6, 4).t(), randn(4, 12)[:, ::2], randn(4, 1).expand(4, 6)):
        with pytest.raises(OracleError):
            run_on_cpu(made[0], [wrong])
    assert not issubclass(OracleError, Exception)


def result_of(build: Callable[..., Any], *tensors: torch.Tensor) -> torch.Tensor:
    """Return what a definition of one result gives."""
    return ran(define(*tensors)(lambda fd, *names: fd.add_output(build(fd, *names))))[0][0]


def test_dtypes_are_its_own() -> None:
    """A forgotten cast shows: half precision becomes float, integers with a fraction double."""
    half, whole, truth = randn(8, dtype=torch.bfloat16), torch.arange(8), torch.arange(8) > 3
    assert result_of(lambda fd, x: fd.ops.add(x, x), half).dtype == torch.float32
    assert result_of(lambda fd, x: fd.ops.relu(x), half).dtype == torch.bfloat16
    assert result_of(lambda fd, n: fd.ops.add(n, 1.5), whole).dtype == torch.float64
    assert result_of(lambda fd, n: fd.ops.truediv(n, 2), whole).dtype == torch.float32
    assert result_of(lambda fd, b: fd.ops.where(b, 1.0, 0.0), truth).dtype == torch.float64
    assert result_of(lambda fd, b: fd.ops.sum(b, [0]), truth).tolist() == 4
    assert result_of(lambda fd, n: fd.ops.div(n, -3), whole).tolist() == [0, 0, 0, -1, -1, -1, -2, -2]


def test_half_precision_sums_round() -> None:
    """A sum of bf16 is added up in bf16, which stands still at 256; a cast before it counts on."""
    ones = torch.ones(1000, dtype=torch.bfloat16)
    assert result_of(lambda fd, x: fd.ops.sum(x, [0]), ones).item() == 256
    assert result_of(lambda fd, x: fd.ops.sum(fd.ops.cast(x, FLOAT), [0]), ones).item() == 1000


def test_numbers_are_in_full() -> None:
    """Numbers have all their digits, though the text has six of them."""
    number = 0.123456789012345
    double = torch.ones(2, dtype=torch.float64)
    with nvfuser_direct.FusionDefinition() as fd:
        x = fd.define_tensor(sizes=[2], strides=[1], dtype=nvfuser_direct.DataType.Double, static_sizes=True)
        constant = fd.define_scalar(number / 3, dtype=nvfuser_direct.DataType.Double)
        fd.add_output(fd.ops.mul(x, number))
        fd.add_output(fd.ops.full([2], constant, nvfuser_direct.DataType.Double))
        fd.add_output(fd.ops.where(fd.ops.gt(x, number), x, number + 1))
    assert "0.123457" in repr(fd)
    product, full, _ = run_on_cpu(fd, [double])
    assert product.tolist() == [number] * 2 and full.tolist() == [number / 3] * 2


def test_print_back_is_unfaithful() -> None:
    """``set`` and ``segment_set`` print as casts, and are told from them."""

    @define(randn(4))
    def made(fd: Any, x: Any) -> None:
        fd.add_output(fd.ops.segment_set(fd.ops.set(fd.ops.cast(fd.ops.cast(x, BF16), FLOAT))))

    assert [step.op for step in read_definition(made[0]).steps] == ["cast", "cast", "set", "segment_set"]

    @define(randn(6, 4).t())
    def turned(fd: Any, x: Any) -> None:
        fd.add_output(fd.ops.set(fd.ops.neg(x)), x)

    assert "fd.ops.stride_order" in repr(turned[0])
    assert [step.op for step in read_definition(turned[0]).steps] == ["neg", "set"]
    assert torch.equal(ran(turned)[1][0], -turned[1][0])


def test_layouts() -> None:
    """A layout that is asked for is the result's."""
    made = result_of(lambda fd, x: fd.ops.stride_order(fd.ops.neg(x), [0, 1]), X)
    assert made.stride() == (1, 4) and torch.equal(made, -X)


def softmax(fd: Any, x: Any) -> Any:
    """Return the softmax of rows."""
    powers = fd.ops.exp(fd.ops.sub(x, fd.ops.max(x, [1], keepdim=True)))
    return fd.ops.div(powers, fd.ops.sum(powers, [1], keepdim=True))


X, Y, N, B = randn(4, 6), randn(4, 6) + 0.25, torch.arange(24).reshape(4, 6) - 7, randn(4, 6) > 0
SAME: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "var_mean": (lambda fd, x: fd.ops.var_mean(x, [1], 1, True)[0], lambda x: x.var(1, keepdim=True), (X,)),
    "mean of var_mean": (lambda fd, x: fd.ops.var_mean(x, [0], 0)[1], lambda x: x.mean(0), (X,)),
    "sum": (lambda fd, x: fd.ops.sum(x, [0, 1]), lambda x: x.sum(), (X,)),
    "sum of all": (lambda fd, x: fd.ops.sum(x), lambda x: x.sum(), (X,)),
    "prod": (lambda fd, x: fd.ops.prod(x, [1]), lambda x: x.prod(1), (X,)),
    "max": (lambda fd, x: fd.ops.max(x, [1], keepdim=True), lambda x: x.amax(1, keepdim=True), (X,)),
    "min": (lambda fd, x: fd.ops.min(x, [0]), lambda x: x.amin(0), (X,)),
    "remainder": (lambda fd, n: fd.ops.remainder(n, 4), lambda n: n.remainder(4), (N,)),
    "fmod": (lambda fd, x, y: fd.ops.fmod(x, y), torch.fmod, (X, Y)),
    "pow": (lambda fd, x: fd.ops.pow(x, 2), lambda x: x**2, (X,)),
    "atan2": (lambda fd, x, y: fd.ops.atan2(x, y), torch.atan2, (X, Y)),
    "where": (lambda fd, b, x: fd.ops.where(b, x, 0.5), lambda b, x: torch.where(b, x, 0.5), (B, X)),
    "clamp": (lambda fd, x: fd.ops.clamp(x, -0.5, None), lambda x: x.clamp(min=-0.5), (X,)),
    "lerp": (lambda fd, x, y: fd.ops.lerp(x, y, 0.3), lambda x, y: torch.lerp(x, y, 0.3), (X, Y)),
    "addcmul": (lambda fd, x, y: fd.ops.addcmul(x, y, y, 0.5), lambda x, y: torch.addcmul(x, y, y, value=0.5), (X, Y)),
    "threshold": (lambda fd, x: fd.ops.threshold(x, 0.1, 2.0), lambda x: torch.threshold(x, 0.1, 2.0), (X,)),
    "sign": (lambda fd, x: fd.ops.sign(x), torch.sign, (X,)),
    "silu": (lambda fd, x: fd.ops.silu(x), F.silu, (X,)),
    "triu": (lambda fd, x: fd.ops.triu(x, 1), lambda x: x.triu(1), (X,)),
    "pad": (lambda fd, x: fd.ops.pad(x, [1, 0, 2, 1], -1.5), lambda x: F.pad(x, [1, 0, 2, 1], value=-1.5), (X,)),
    "crop": (lambda fd, x: fd.ops.pad(x, [-1, 2]), lambda x: F.pad(x, [-1, 2]), (X,)),
    "cat": (lambda fd, x, y: fd.ops.cat([x, y, x], 1), lambda x, y: torch.cat([x, y, x], 1), (X, Y)),
    "slice": (lambda fd, x: fd.ops.slice(x, [1, 2], [4, 5]), lambda x: x[1:4, 2:5], (X,)),
    "reshape": (lambda fd, x: fd.ops.reshape(fd.ops.permute(x, [1, 0]), [3, 8]), lambda x: x.t().reshape(3, 8), (X,)),
    "squeeze": (lambda fd, x: fd.ops.squeeze(fd.ops.sum(x, [0], keepdim=True), [0]), lambda x: x.sum(0), (X,)),
    "index_select": (lambda fd, x, i: fd.ops.index_select(x, i, 1), lambda x, i: x[:, i], (X, N[1, 1:3])),
    "gather": (lambda fd, x, i: fd.ops.gather(x, i, 1), lambda x, i: x.gather(1, i), (X, N.remainder(6))),
    "cumsum": (lambda fd, x: fd.ops.cumsum(x, 1), lambda x: x.cumsum(1), (X,)),
    "iota": (lambda fd, n: fd.ops.add(n, fd.ops.iota(6, 2, 3, INT)), lambda n: n + torch.arange(2, 20, 3), (N,)),
    "matmul": (lambda fd, x, y: fd.ops.matmul(x, fd.ops.permute(y, [1, 0])), lambda x, y: x @ y.t(), (X, Y)),
    "linear": (lambda fd, x, y: fd.ops.linear(x, y), F.linear, (X, Y)),
    "cast to bool": (lambda fd, n: fd.ops.cast(n, BOOL), lambda n: n.bool(), (N,)),
    "bitwise": (lambda fd, n: fd.ops.bitwise_xor(fd.ops.bitwise_and(n, 5), n), lambda n: (n & 5) ^ n, (N,)),
    "not": (lambda fd, b: fd.ops.bitwise_not(b), lambda b: ~b, (B,)),
    "and": (lambda fd, b, n: fd.ops.logical_and(b, fd.ops.gt(n, 3)), lambda b, n: b & (n > 3), (B, N)),
    "softmax": (softmax, lambda x: x.softmax(1), (X,)),
}  # fmt: skip
ALIKE = (
    "abs", "acos", "asin", "atan", "atanh", "ceil", "cos", "cosh", "exp", "exp2", "expm1", "erf", "erfc", "erfinv",
    "floor", "frac", "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal", "relu", "round", "rsqrt",
    "sigmoid", "signbit", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "isfinite", "isnan",
)  # fmt: skip
SAME |= {
    name: (lambda fd, x, name=name: getattr(fd.ops, name)(x), getattr(torch, name), (X.abs() + 0.1,)) for name in ALIKE
}


@pytest.mark.parametrize("name", SAME)
def test_operations(name: str) -> None:
    """Each operation, defined by the real nvFuser and read from its text, computes what torch's does."""
    build, expected, tensors = SAME[name]
    torch.testing.assert_close(result_of(build, *tensors), expected(*tensors), equal_nan=True)


def test_unknown_operations_are_errors() -> None:
    """What the oracle does not know, random numbers for one, is no silent success."""
    with pytest.raises(OracleError, match="does not know"):
        result_of(lambda fd, x: fd.ops.rand_like(x), X)
