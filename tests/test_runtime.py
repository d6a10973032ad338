"""jit: what is guarded, what falls back and says so, what is left alone."""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
import pickle
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch

import graphalias
from graphalias import CaptureError, ExecutorError

jit = functools.partial(graphalias.jit, executor="eager")  # what is guarded does not depend on the executor


def add_one(x: torch.Tensor, factor: Any = 2) -> torch.Tensor:
    """Write the argument."""
    x.add_(1)
    return x * factor


def double(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Only read the arguments."""
    return x * 2 + y


def write_first(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Write one argument and read the other."""
    x.mul_(3)
    return x + y


def misses(jitted: Any, *calls: tuple[Any, ...]) -> int:
    """Return how many programs some calls needed, each right."""
    for args in calls:
        expected = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        shared = {id(a): copy for a, copy in zip(args, expected, strict=True)}
        value = jitted.__wrapped__(*(shared[id(a)] for a in args))
        assert torch.equal(jitted(*args), value)
    return jitted.cache_info().misses


@pytest.mark.parametrize(
    "other",
    [
        torch.ones(3, dtype=torch.float64), torch.ones(4), torch.ones(3, 1)[:, 0].as_strided((3,), (1,)),
        torch.ones(6)[::2], torch.ones(4)[1:], torch.ones(1, 3),
    ],
    ids=["dtype", "shape", "same", "stride", "offset", "dims"],
)  # fmt: skip
def test_tensors_are_guarded(other: torch.Tensor, request: pytest.FixtureRequest) -> None:
    """Another dtype, shape, stride or storage offset is another program; the same kind of tensor is not."""
    expected = 1 if request.node.callspec.id == "same" else 2
    assert misses(jit(add_one), (torch.ones(3),), (other,), (torch.ones(3),)) == expected


def test_values_are_guarded() -> None:
    """Other arguments are compared by type and exact value: 1, 1.0, True, -0.0 and nan are five different ones."""
    jitted = jit(add_one, cache_limit=10)
    for value in (1, 1.0, True, -0.0, 0.0, float("nan"), float("nan"), 1):
        torch.testing.assert_close(jitted(torch.ones(2), value), torch.full((2,), 2.0) * value, equal_nan=True)
    assert jitted.cache_info().misses == 6


def test_conj_and_neg_are_guarded() -> None:
    """A conjugate view shares storage and geometry with its base, and is still another kind of argument."""
    jitted = jit(lambda z: z * 1j)
    z = torch.ones(2, dtype=torch.complex64) * (1 + 2j)
    for argument in (z, z.conj(), torch._neg_view(z), z):
        assert torch.equal(jitted(argument), argument * 1j)
    assert jitted.cache_info().misses == 3


def test_sharing_is_guarded_where_it_is_written() -> None:
    """A program for separate arguments is not used for overlapping ones, nor the other way round."""
    base = torch.arange(8.0)
    jitted = jit(write_first)
    for make in (lambda b: (b[:4], b[4:]), lambda b: (b[:4], b[2:6]), lambda b: (b[:4], b[:4]), lambda b: (b[:4],) * 2):
        mine, theirs = base.clone(), base.clone()
        assert torch.equal(jitted(*make(mine)), write_first(*make(theirs)))
        assert torch.equal(mine, theirs)
    assert jitted.cache_info().misses >= 3
    separate = jit(write_first)
    separate(torch.ones(4), torch.ones(4))
    x = torch.ones(4)
    assert torch.equal(separate(x, x), torch.full((4,), 6.0))
    assert separate.cache_info().misses == 2


def test_pure_function_ignores_sharing() -> None:
    """A function that writes nothing has one program, however its arguments share memory, whichever came first."""
    base = torch.arange(8.0)
    for first, second in (((base[:4], base[4:]), (base[:4],) * 2), ((base[:4],) * 2, (base[:4], base[4:]))):
        jitted = jit(double)
        for args in (first, second):
            assert torch.equal(jitted(*(a.clone() if a.storage_offset() else a for a in args)), double(*args))
        assert jitted.cache_info().misses == 1


class Scaling(torch.nn.Module):
    """Read a Python number."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale."""
        return x * self.scale


FACTOR = 2


def test_python_state_is_guarded() -> None:
    """Another global, closed-over variable, attribute, container or submodule gives another program."""
    global FACTOR
    config, offset, net = {"scale": 3}, 1, torch.nn.Sequential(torch.nn.ReLU(), torch.nn.BatchNorm1d(2))
    net.requires_grad_(False).eval()

    def fn(x: torch.Tensor) -> torch.Tensor:
        return net(x) * FACTOR * config["scale"] + offset

    jitted, jitted_net, x = jit(fn), jit(net), torch.tensor([[-1.0, 2.0]])
    assert torch.equal(jitted(x), fn(x)) and torch.equal(jitted_net(x), net(x))
    FACTOR = 5
    assert torch.equal(jitted(x), fn(x))
    config["scale"] = 7
    assert torch.equal(jitted(x), fn(x))
    offset = -1
    assert torch.equal(jitted(x), fn(x))
    net[0] = torch.nn.Tanh()
    assert torch.equal(jitted(x), fn(x)) and torch.equal(jitted_net(x), net(x))
    net[1].eps = 2.0
    assert torch.equal(jitted(x), fn(x)) and torch.equal(jitted_net(x), net(x))
    config["scale"] = int("7")
    assert torch.equal(jitted(x), fn(x))
    assert jitted.cache_info() == (1, 6, 8, 6) and jitted_net.cache_info() == (0, 3, 8, 3)


def test_modes_are_guarded() -> None:
    """Grad mode, inference mode, autocast and the default dtype are part of what a program is for."""
    jitted = jit(lambda x, w: torch.ones(2) + (x @ w).sum())
    x = torch.ones(2, 2)
    plain = jitted(x, x)
    with torch.no_grad():
        assert torch.equal(jitted(x, x), plain)
    with torch.inference_mode():
        assert torch.equal(jitted(x, x), plain)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert jitted(x, x).dtype == torch.float32 and jit(torch.mm)(x, x).dtype == torch.bfloat16
    torch.set_default_dtype(torch.float64)
    try:
        assert jitted(x, x).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert jitted.cache_info().misses == 5


def test_module_in_inference() -> None:
    """A module's statistics are updated in place; ``training`` is guarded, and new parameters are taken up."""
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.ReLU(inplace=True))
    reference = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.ReLU(inplace=True))
    jitted = jit(module)
    with torch.no_grad():
        for training in (True, True, False):
            jitted.train(training), reference.train(training)
            x = torch.randn(4, 3)
            assert torch.equal(jitted(x.clone()), reference(x.clone()))
        assert module[0].num_batches_tracked == 2 and torch.equal(module[0].running_mean, reference[0].running_mean)
        assert jitted.cache_info()[:2] == (1, 2)
        module[0].weight = reference[0].weight = torch.nn.Parameter(torch.full((3,), 5.0))
        assert torch.equal(jitted(x.clone()), reference(x.clone()))


def test_autograd_calls_the_original(caplog: pytest.LogCaptureFixture) -> None:
    """While gradients are recorded and a tensor requires grad, gradients are eager's; it is said once."""
    jitted = jit(lambda x, w: (x.mul(2).add_(1) * w).sum())
    w = torch.ones(3, requires_grad=True)
    for _ in range(2):
        jitted(torch.ones(3), w).backward()
    assert torch.equal(w.grad, torch.full((3,), 6.0))
    assert [record.levelname for record in caplog.records] == ["WARNING"] and "requires grad" in caplog.text
    assert jitted.cache_info().currsize == 0
    with torch.no_grad():
        assert not jitted(torch.ones(3), w).requires_grad
    assert jitted.cache_info().currsize == 1


def test_closed_over_parameter_that_requires_grad() -> None:
    """A result that requires grad because of a closed-over tensor is eager's too."""
    w = torch.ones(3, requires_grad=True)
    jitted = jit(lambda x: (x * w).sum())
    for _ in range(2):
        jitted(torch.ones(3)).backward()
    assert torch.equal(w.grad, torch.full((3,), 2.0))


def test_gradients_recorded_inside_no_grad() -> None:
    """A function that records gradients itself, whatever the mode it is called in, keeps them."""

    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            return (x * w).sum()

    w = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        value = jit(loss)(torch.ones(2), w)
    value.backward()
    assert torch.equal(w.grad, torch.ones(2))


def test_arguments_that_are_the_same_object() -> None:
    """A function may look whether two arguments are one object; the program for one object is not used for two."""
    jitted = jit(lambda x, y: x + 1 if x is y else x * y)
    x = torch.full((2,), 3.0)
    assert jitted(x, x).tolist() == [4.0, 4.0] and jitted(x, x.clone()).tolist() == [9.0, 9.0]
    jitted = jit(lambda x, y: x + 1 if x is y else x * y)
    assert jitted(x, x.clone()).tolist() == [9.0, 9.0] and jitted(x, x).tolist() == [4.0, 4.0]
    copy = jit(lambda x, y: x.copy_(y).mul_(2))  # a kernel looks too: it refuses two objects on the same memory
    matrix = torch.ones(2, 2).t()
    assert torch.equal(copy(matrix, matrix), torch.full((2, 2), 2.0))


def test_cache_limit(caplog: pytest.LogCaptureFixture) -> None:
    """Beyond the limit one warning names what keeps changing, and the original function is called."""
    jitted = jit(add_one, cache_limit=3)
    for size in range(1, 8):
        assert jitted(torch.ones(2), size).tolist() == [2.0 * size] * 2
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1 and "add_one: 3 programs are kept" in warnings[0] and "argument" in warnings[0]
    assert jitted.cache_info() == (0, 7, 3, 3)
    jitted(torch.ones(2), 1)
    assert jitted.cache_info().hits == 1
    jitted.cache_clear()
    assert jitted.cache_info() == (0, 0, 3, 0)


def test_recompiling_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The reason of a second program is logged, through plain logging."""
    caplog.set_level(logging.INFO, "graphalias")
    jitted = jit(add_one)
    jitted(torch.ones(2)), jitted(torch.ones(3))
    assert "add_one: recompiling: argument" in caplog.text


def test_uncapturable_call(caplog: pytest.LogCaptureFixture) -> None:
    """What can't be captured runs as it is, with one warning; with strict it raises."""

    def positive(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x

    jitted = jit(positive)
    assert torch.equal(jitted(torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(jitted(-torch.ones(2)), -torch.ones(2))
    assert len(caplog.records) == 1 and "the original function is called" in caplog.text
    with pytest.raises(CaptureError, match=r"test_runtime.py"):
        jit(positive, strict=True)(torch.ones(2))


def test_what_is_no_function_is_refused_at_once() -> None:
    """What can't be called is refused where it is given, not at the first call."""
    with pytest.raises(TypeError, match=r"takes a function or an nn\.Module, not int"):
        graphalias.jit(3)


def test_what_eager_refuses_raises_as_eager() -> None:
    """Where eager raises, so does the jitted function, and nothing more is written than by eager."""
    jitted = jit(lambda x: x.expand(2, 3).add_(1))
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        jitted(torch.ones(1, 3))


def test_failure_in_the_middle() -> None:
    """An operation that fails leaves what the ones before it wrote, and the error names it and the line."""

    def gather(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x.index_select(0, index)

    jitted, x = jit(gather), torch.zeros(3)
    jitted(torch.zeros(3), torch.tensor([0]))
    with pytest.raises(ExecutorError, match="index_select") as error:
        jitted(x, torch.tensor([7]))
    assert "test_runtime.py" in error.value.location and error.value.node == "index_select"
    assert torch.equal(x, torch.ones(3))


def test_decorator_method_and_attributes() -> None:
    """Jit decorates with and without options, works on methods, and looks like what it wraps."""

    class Counter:
        def __init__(self, start: float) -> None:
            self.total = torch.full((2,), start)

        @jit(executor="eager")
        def add(self, x: torch.Tensor) -> torch.Tensor:
            """Add to the total."""
            return self.total.add_(x)

    one, other = Counter(0.0), Counter(10.0)
    assert one.add(torch.ones(2)) is one.total
    one.add(torch.ones(2)), other.add(torch.ones(2))
    assert one.total.tolist() == [2.0, 2.0] and other.total.tolist() == [11.0, 11.0]
    assert Counter.add.__doc__ == "Add to the total." and "add" in repr(one.add)
    assert jit(torch.nn.Linear(2, 2)).in_features == 2


@jit
def decorated(x: torch.Tensor) -> torch.Tensor:
    """Be found by name."""
    return x + 1


def test_copies_and_attributes_of_a_module() -> None:
    """A jitted module takes attributes as the module does; it is copied and pickled without its programs."""
    jitted = jit(Scaling())
    assert jitted(torch.ones(1)).item() == 2.0
    jitted.scale = 5
    assert jitted(torch.ones(1)).item() == 5.0 and jitted.__wrapped__.scale == 5
    copied, loaded = copy.deepcopy(jitted), pickle.loads(pickle.dumps(jitted))
    jitted.scale = 7
    for other in (copied, loaded):
        assert other(torch.ones(1)).item() == 5.0 and other.cache_info().misses == 1
    assert pickle.loads(pickle.dumps(decorated)) is decorated and copy.deepcopy(decorated) is decorated


def test_methods_of_equal_instances() -> None:
    """Instances that are equal, that have no hash or that can't be weakly referenced have their own programs."""

    @dataclasses.dataclass
    class Scaled:
        factor: float
        shift: float = dataclasses.field(compare=False, default=0.0)

        @jit(executor="eager")
        def apply(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor + self.shift

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        factor: float
        shift: float = dataclasses.field(compare=False, default=0.0)
        apply = Scaled.apply

    class Slotted:
        __slots__ = ()

        @jit(executor="eager")
        def apply(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    assert Slotted().apply(torch.ones(1)).item() == 2.0
    for one, other in ((Scaled(2.0, 1.0), Scaled(2.0, 5.0)), (Frozen(2.0, 1.0), Frozen(2.0, 5.0))):
        assert one.apply(torch.ones(1)).item() == 3.0 and other.apply(torch.ones(1)).item() == 7.0


def test_jitted_inside_jitted() -> None:
    """A jitted function called while another one is captured is captured with it."""
    inner = jit(add_one)
    outer = jit(lambda x: inner(x) - 1)
    x = torch.ones(2)
    assert outer(x).tolist() == [3.0, 3.0] and x.tolist() == [2.0, 2.0]
    assert inner.cache_info().currsize == 0 and outer.cache_info().currsize == 1


def test_disabled() -> None:
    """Both off switches call the original function."""
    jitted = jit(add_one)
    with graphalias.disabled():
        assert jitted(torch.ones(1)).item() == 4.0
    assert jitted.cache_info().misses == 0
    code = (
        "import torch, graphalias; f = graphalias.jit(torch.neg, executor='eager'); f(torch.ones(1)); "
        "print(f.cache_info().misses)"
    )
    for value, expected in (("1", "0"), ("0", "1")):
        done = subprocess.run(
            [sys.executable, "-c", code], env={"GRAPHALIAS_DISABLE": value, "PYTHONPATH": ".", "PATH": ""},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.strip() == expected


def test_unknown_executor() -> None:
    """An executor that is not there is named when the function is wrapped."""
    with pytest.raises(ExecutorError, match="no executor 'warp'"):
        jit(add_one, executor="warp")


def test_threads() -> None:
    """Many threads calling at once compile once for each kind of call, and every result is right."""
    jitted = jit(add_one)
    wrong = []

    def work(size: int) -> None:
        right = torch.full((size,), 2.0)
        wrong.extend(size for _ in range(20) if not torch.equal(jitted(torch.zeros(size)), right))

    threads = [threading.Thread(target=work, args=(1 + i % 3,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and jitted.cache_info()[1:] == (3, 8, 3)


def test_compilers_trace_through_what_is_jitted() -> None:
    """torch.compile and torch.export look through a jitted function that is warm: they trace the original."""
    step = graphalias.jit(lambda x: x.add_(1).mul_(2), executor="eager")
    for _ in range(3):
        step(torch.ones(4))
    whole = torch.compile(lambda x: step(x) + 1, fullgraph=True, backend="eager")
    assert torch.equal(whole(torch.ones(4)), torch.full((4,), 5.0))

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return step(x) * 3

    for strict in (False, True):
        exported = torch.export.export(Module(), (torch.ones(4),), strict=strict)
        assert [node.target for node in exported.graph.nodes][1:3] == [
            torch.ops.aten.add_.Tensor, torch.ops.aten.mul_.Tensor
        ]  # fmt: skip
