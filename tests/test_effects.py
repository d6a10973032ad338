"""Effects: what a call reads, writes, reshapes and touches, from its schema and what the tensors show."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from capturing import captured
from graphalias import Operation
from graphalias.capture import capture
from graphalias.effects import HIDDEN_WRITES, UNSAID_VIEWS, is_random, is_worldly, operands_of

aten = torch.ops.aten


def last(fn: Callable[..., Any], *args: Any) -> Operation:
    """Return the last operation of a captured function."""
    return capture(fn, *args).operations[-2]


def effects(operation: Operation) -> tuple[Any, Any, Any]:
    """Return the positions read, written and reshaped."""
    return operation.reads, operation.writes, operation.reshapes


X, Y = torch.ones(2, 3), torch.ones(2, 3)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, Any, Any]]] = {
    "out of place": (lambda x, y: x + y, ((0, 1), (), ())),
    "in place": (lambda x, y: x.add_(y), ((0, 1), (0,), ())),
    "out": (lambda x, y: torch.add(x, x, out=y), ((0, 1), (2,), ())),
    "two outs": (lambda x, y: torch.aminmax(x, out=(y[0, 0], y[0, 1])), ((0,), (1, 2), ())),
    "lists": (lambda x, y: torch._foreach_add_([x, y], [y, x]), ((0, 1, 2, 3), (0, 1), ())),
    "view": (lambda x, y: x.t(), ((), (), ())),
    "views": (lambda x, y: x.unbind(), ((), (), ())),
    "expand": (lambda x, y: x.expand(4, 2, 3), ((), (), ())),
    "a copy of what may be a view": (lambda x, y: aten._reshape_copy(x.t(), [6]), ((0,), (), ())),
    "unsaid view": (lambda x, y: aten._unsafe_view(x, [6]), ((), (), ())),
    "unsaid views": (lambda x, y: torch.unsafe_split(x, 1), ((), (), ())),
    "geometry": (lambda x, y: x.t_(), ((), (), (0,))),
    "geometry from another": (lambda x, y: x.set_(y), ((), (), (0,))),
    "resize": (lambda x, y: x.resize_(5), ((), (), (0,))),
    "resize of the storage": (lambda x, y: x.resize_(7), ((), (0,), (0,))),
    "data": (lambda x, y: setattr(x, "data", y), ((), (), (0,))),
    "index": (lambda x, y: x.index_copy_(0, torch.tensor([0, 1]), y), ((0, 1, 2), (0,), ())),
    "copy": (lambda x, y: x.copy_(y), ((0, 1), (0,), ())),
    "random in place": (lambda x, y: x.normal_(), ((0,), (0,), ())),
}


@pytest.mark.parametrize("name", CASES)
def test_effects(name: str) -> None:
    """Operands read, written and whose object's geometry is written, by position."""
    fn, expected = CASES[name]
    assert effects(last(fn, X.clone(), Y.clone())) == expected


def test_may_alias_operators_are_told_by_the_storage() -> None:
    """``reshape`` and ``contiguous`` are views or copies as the tensor is; ``contiguous`` may be the tensor itself."""
    assert captured(lambda x: x.reshape(6), X).startswith("%view: f32[6] @s0")
    assert "aten.clone.default(%t, memory_format=memory_format:contiguous_format) reads(%t)" in captured(
        lambda x: x.t().contiguous(), X
    )
    assert captured(lambda x: x.contiguous(), X) == "output(%x)"
    assert captured(lambda x: x.to(torch.float32), X) == "output(%x)"


def test_an_out_of_another_size_is_reshaped() -> None:
    """Seen by comparing the tensor before and after, whatever the schema says; its new bytes are written."""
    operation = last(lambda x, o: torch.neg(x, out=o), X, torch.empty(0))
    assert effects(operation) == ((0,), (1,), (1,))
    assert [effect.access.shape for effect in operation.effects if effect.is_write] == [(0,), (2, 3), ()]


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_writes_its_statistics(training: bool) -> None:
    """The running statistics are written in training, which the schema hides, and only read otherwise."""
    mean, var = torch.zeros(3), torch.ones(3)
    operation = last(lambda x: torch.nn.functional.batch_norm(x, mean, var, training=training), X)
    assert operation.target == "aten.native_batch_norm.default"
    assert effects(operation) == ((0, 1, 2), (1, 2) if training else (), ())


@pytest.mark.parametrize("name", HIDDEN_WRITES)
def test_hidden_writes_name_arguments_of_schemas(name: str) -> None:
    """Each entry names arguments that exist and that the schema does not mark: else the entry can go."""
    namespace, _, base = name.partition("::")
    if not hasattr(getattr(torch.ops, namespace), base):
        pytest.skip(f"this torch has no {name}")
    schema = getattr(getattr(torch.ops, namespace), base).default._schema
    marks = {argument.name: argument.alias_info for argument in schema.arguments}
    for argument in HIDDEN_WRITES[name][0]:
        assert argument in marks
        assert not (marks[argument] and marks[argument].is_write)


@pytest.mark.parametrize("name", ["_unsafe_view", "unsafe_split"])
def test_unsaid_views_are_unsaid(name: str) -> None:
    """The schema of an operator on the list does not mark its operand: else the entry can go."""
    assert f"aten::{name}" in UNSAID_VIEWS
    packet = getattr(aten, name)
    schema = getattr(packet, packet.overloads()[0])._schema
    assert schema.arguments[0].alias_info is None


def test_random_operators() -> None:
    """A tag or a generator argument says that an operator draws."""
    assert is_random(aten.rand.default, ([2],), {})
    assert is_random(aten.bernoulli_.float, (X,), {})
    assert is_random(aten.native_dropout.default, (X, 0.5, True), {})
    assert not is_random(aten.add.Tensor, (X, X), {})


def test_attention_is_random_where_it_drops() -> None:
    """Attention draws where its probability to drop is not 0, however that is said."""
    attend = aten._scaled_dot_product_flash_attention.default
    assert is_random(attend, (X, X, X, 0.1), {}) and is_random(attend, (X, X, X), {"dropout_p": 0.1})
    assert not is_random(attend, (X, X, X, 0.0), {}) and not is_random(attend, (X, X, X), {})
    x = torch.ones(1, 1, 2, 2)
    program = capture(torch.nn.functional.scaled_dot_product_attention, x, x, x)
    assert not any(value.is_state for value in program.inputs)


def test_worldly_operators() -> None:
    """Operators with neither results nor writes are there for what they do outside."""
    assert is_worldly(aten._assert_async.default, operands_of(aten._assert_async.default, (X,), {}))
    foreach = aten._foreach_add_.Scalar
    assert not is_worldly(foreach, operands_of(foreach, ([X], 1), {}))


def test_a_custom_operator_without_results_or_writes_touches_the_world() -> None:
    """Two of them keep their order through the world's handle."""
    log = torch.library.custom_op("graphalias_tests::log", _log, mutates_args=())
    program = capture(lambda x: (log(x), log(x), None)[-1], X)
    first, second = (op for op in program.operations if op.is_compute)
    assert first.states[0].name == "world"
    assert second.states[0] is first.results[-1]


def _log(x: torch.Tensor) -> None:
    return None


def test_collectives_touch_the_world() -> None:
    """Functional collectives have results; their order among processes matters all the same."""
    if not torch.distributed.is_available():
        pytest.skip("torch without distributed")
    importlib.import_module("torch.distributed._functional_collectives")
    reduce = torch.ops._c10d_functional.all_reduce.default
    assert is_worldly(reduce, operands_of(reduce, (X, "sum", "0"), {}))
    wait = torch.ops._c10d_functional.wait_tensor.default
    assert operands_of(wait, (X,), {})[0].is_written
