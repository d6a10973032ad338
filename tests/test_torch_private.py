"""What the project needs of torch's private parts. A failure here says what broke when torch changed."""

from __future__ import annotations

import logging

import pytest
import torch

from graphalias import torch_private as private


def test_fake_tensors_share_what_real_ones_share() -> None:
    """`FakeTensorMode.from_tensor` keeps shared storages, geometry, bits, leaf-ness and identity."""
    mode = private.FakeTensorMode()
    base = torch.zeros(4, dtype=torch.complex64)
    leaf = torch.ones(2, requires_grad=True)
    tensors = [base, base[1:], base.conj(), base.conj().imag, torch.view_as_real(base), leaf]
    fakes = [mode.from_tensor(tensor) for tensor in tensors]
    assert len({private.storage_key(fake) for fake in fakes[:5]}) == 1
    for tensor, fake in zip(tensors, fakes, strict=True):
        assert (fake.shape, fake.stride(), fake.storage_offset()) == (
            tensor.shape, tensor.stride(), tensor.storage_offset(),
        )  # fmt: skip
        assert (fake.is_conj(), fake.is_neg(), fake.is_leaf, fake.requires_grad) == (
            tensor.is_conj(), tensor.is_neg(), tensor.is_leaf, tensor.requires_grad,
        )  # fmt: skip
    assert mode.from_tensor(base) is fakes[0]
    assert isinstance(fakes[0], private.FakeTensor)


def test_a_dispatch_mode_sees_in_place_operations_and_identity() -> None:
    """A `TorchDispatchMode` above fakes gets each ATen operation, and its results are the objects the caller gets."""
    seen = []

    class Mode(private.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            seen.append((str(func), id(result)))
            return result

    mode = private.FakeTensorMode()
    x = mode.from_tensor(torch.ones(2, 3))
    with mode, Mode():
        view = x.t()
        same = view.add_(1)
    assert same is view
    assert [item for item in seen if not item[0].startswith("prim.")] == [
        ("aten.t.default", id(view)), ("aten.add_.Tensor", id(view)),
    ]  # fmt: skip


@pytest.mark.parametrize("ask", [lambda x: x.sum().item(), lambda x: x.nonzero()])
def test_data_dependent_operations_raise(ask) -> None:
    """Fakes raise one of `DATA_DEPENDENT` where values decide."""
    mode = private.FakeTensorMode()
    x = mode.from_tensor(torch.ones(2))
    with private.quiet_fakes(), mode, pytest.raises(private.DATA_DEPENDENT):
        ask(x)


def test_operators_without_a_shape_rule_are_told() -> None:
    """`has_no_fake_kernel` knows the error of a custom operator without a fake implementation."""
    operator = torch.library.custom_op("graphalias_tests::unknown", _unknown, mutates_args=())
    mode = private.FakeTensorMode()
    with private.quiet_fakes(), mode, pytest.raises(Exception) as caught:
        operator(mode.from_tensor(torch.ones(2)))
    assert private.has_no_fake_kernel(caught.value)
    assert not private.has_no_fake_kernel(RuntimeError("shapes"))


def _unknown(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_composite_operators_are_told_and_taken_apart() -> None:
    """`is_composite` knows ``linear``, and `decompose` runs it."""
    assert private.is_composite(torch.ops.aten.linear.default)
    assert not private.is_composite(torch.ops.aten.mm.default)
    x = torch.ones(2, 2)
    assert torch.equal(private.decompose(torch.ops.aten.linear.default, (x, x), {}), x @ x)


def test_real_operations_leave_all_modes() -> None:
    """Inside `real_operations` a fake mode makes no fakes and nothing is recorded for autograd."""
    w = torch.ones(2, requires_grad=True)
    with private.FakeTensorMode(), private.real_operations():
        result = w * 2
    assert type(result) is torch.Tensor
    assert not result.requires_grad


def test_versions() -> None:
    """The version counter can be read and put back."""
    x = torch.ones(2)
    x.add_(1)
    assert private.version_of(x) == 1
    private.set_version(x, 0)
    assert private.version_of(x) == 0
    with torch.inference_mode():
        assert private.version_of(torch.ones(2)) is None


def test_generators() -> None:
    """The default generator is known under another Python object; states are kept."""
    assert private.is_same_generator(torch.default_generator, torch.default_generator)
    assert not private.is_same_generator(torch.default_generator, torch.Generator())
    generator = torch.Generator()
    before, default = generator.get_state(), torch.get_rng_state()
    with private.kept_generators([generator, 3]):
        torch.rand(2, generator=generator), torch.rand(2)
    assert torch.equal(generator.get_state(), before)
    assert torch.equal(torch.get_rng_state(), default)


def test_literals_remember_their_value_until_told_to_forget() -> None:
    """Fakes know the value of a small literal; `forget_values` drops it."""
    mode = private.FakeTensorMode()
    with private.quiet_fakes(), mode:
        literal = torch.tensor(3)
        assert literal.item() == 3
        private.forget_values([literal])
        with pytest.raises(private.DATA_DEPENDENT):
            literal.item()


def test_wrappers_and_bits() -> None:
    """Tensors inside ``vmap`` are told; a neg view flips the bit."""
    assert not private.is_wrapped(torch.ones(2))
    found = []
    torch.vmap(lambda x: (found.append(private.is_wrapped(x)), x)[1])(torch.ones(2))
    assert found == [True]
    assert private.neg_view(torch.ones(2)).tolist() == [-1, -1]


def test_the_logger_of_fakes_is_silent() -> None:
    """`quiet_fakes` silences the logger that exists under this name, and wakes it."""
    import torch._subclasses.fake_tensor as module

    assert module.log.name == "torch._subclasses.fake_tensor"
    logger = logging.getLogger(module.log.name)
    with private.quiet_fakes():
        assert logger.disabled
    assert not logger.disabled


def test_flatten_gives_paths() -> None:
    """Keys, indices and attributes name a leaf; `unflatten` is the inverse."""
    tree = ({"a": [1, 2]}, (3, None))
    leaves, spec = private.flatten(tree)
    assert [path for path, _ in leaves] == [(0, "a", 0), (0, "a", 1), (1, 0), (1, 1)]
    assert private.unflatten([leaf for _, leaf in leaves], spec) == tree


def test_holds_fake_looks_everywhere() -> None:
    """Attributes, slots and containers are searched, cycles included."""
    fake = private.FakeTensorMode().from_tensor(torch.ones(2))
    loop: list[object] = []
    loop.append(loop)
    assert not private.holds_fake([loop, {"a": torch.ones(2)}])
    loop.append({"deep": [(fake,)]})
    assert private.holds_fake(loop)


def test_no_function_modes() -> None:
    """Inside `no_function_modes` a function mode sees nothing."""
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Mode(), private.no_function_modes():
        torch.ones(2) + 1
    assert not seen
