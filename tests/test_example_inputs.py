"""Arguments from text: the tensors a type says, sharing memory as the text says, and what is no input."""

import pytest
import torch

from graphalias import GraphAliasError, ParseError
from graphalias.example_inputs import make_inputs


def make(*texts, seed=0):
    """Return the positional arguments that texts describe."""
    return make_inputs(texts, seed=seed)[0]


@pytest.mark.parametrize(
    ("text", "dtype", "shape", "stride", "offset"),
    [
        ("f32[4,6]", torch.float32, (4, 6), (6, 1), 0),
        (" f32 [ 4 , 6 ] ", torch.float32, (4, 6), (6, 1), 0),
        ("i8[4,6] stride(1,4)", torch.int8, (4, 6), (1, 4), 0),
        ("bf16[2,3] stride(0,1) offset(5)", torch.bfloat16, (2, 3), (0, 1), 5),
        ("f64[]", torch.float64, (), (), 0),
        ("bool[0,3]", torch.bool, (0, 3), (3, 1), 0),
        ("c64[2] device(cpu)", torch.complex64, (2,), (1,), 0),
        ("f8e4m3fn[2]", torch.float8_e4m3fn, (2,), (1,), 0),
    ],
)
def test_tensor_is_what_its_type_says(text, dtype, shape, stride, offset):
    """A tensor has the dtype, size, stride and offset of the text."""
    (tensor,) = make(text)
    assert tensor.dtype == dtype
    assert (tuple(tensor.shape), tensor.stride(), tensor.storage_offset()) == (shape, stride, offset)


def test_values():
    """Values depend on the seed alone; integers are small; a conjugate view is one."""
    a, b, integers = make("f32[100]", "f32[100]", "i64[100]")
    assert torch.equal(a, make("f32[100]")[0])
    assert not torch.equal(a, b)
    assert not torch.equal(a, make("f32[100]", seed=1)[0])
    assert set(integers.tolist()) == {0, 1, 2, 3}
    assert make("c64[2] conj")[0].is_conj()


def test_sharing():
    """One @name is one storage, of the size that all need; one @name and object is one tensor."""
    base, part, other, same, again = make("f32[4] @a", "f32[4] offset(2) @a", "f32[4] @b", "f32[4] @c x", "f32[4] @c x")
    assert base.untyped_storage().data_ptr() == part.untyped_storage().data_ptr()
    assert base.untyped_storage().nbytes() == 24
    assert torch.equal(base[2:], part[:2])
    assert same is again
    assert base is not part
    assert other.untyped_storage().data_ptr() != base.untyped_storage().data_ptr()


def test_everything_else():
    """Literals are what they are in Python, lists hold anything, names make keyword arguments."""
    args, kwargs = make_inputs(
        ["3", "-0.5", "True", "None", '"a,b"', "[f32[2,3], [1, 'x']]", "[]", "(1, 2)", "k=f32[2]"]
    )
    assert args[:5] == (3, -0.5, True, None, "a,b")
    assert args[5][0].shape == (2, 3)
    assert args[5][1:] == [[1, "x"]]
    assert args[6:] == ([], (1, 2))
    assert kwargs["k"].shape == (2,)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["f32[4"], "'f32[4': expected ',' or ']', found the end"),
        (["f32[4,x]"], "expected an integer, found 'x]'"),
        (["f32[4] strid(1)"], "expected stride(...), offset(...), device(...) or @name, found 'strid(1)'"),
        (["f32[4] stride(1,2)"], "shape [4] and stride [1, 2] differ in length"),
        (["f32[-1]"], "not negative"),
        (["g32[4]"], "unknown dtype 'g32'"),
        (["mean"], "'mean' is neither a tensor's type nor a Python literal"),
        ([""], "'' is neither"),
        (["f32[2] @s a", "f32[3] @s a"], "which has another type before it"),
        (["f32[99999999999999]"], "can't make the input f32[99999999999999]"),
        (["f32[2] device(moon)"], "can't make the input f32[2]"),
    ],
)
def test_what_is_no_input(texts, message):
    """What can't be made is refused with the project's error, which shows the text."""
    with pytest.raises(GraphAliasError) as caught:
        make(*texts)
    assert message in str(caught.value)


def test_views_of_named_tensors():
    """A later text may be a view of an earlier keyword argument, in a list too; it is the tensor's memory."""
    _, found = make_inputs(["x=f32[4,6]", "y=x.t()", "z=x[1:, ..., ::2]", "rows=[x[0], x[-1].view(2, 3)]", "w=z[0]"])
    x = found["x"]
    for view, expected in (
        (found["y"], x.t()), (found["z"], x[1:, ..., ::2]), (found["rows"][1], x[-1].view(2, 3)),
        (found["w"], x[1, ::2]),
    ):  # fmt: skip
        assert view.data_ptr() == expected.data_ptr() and view.shape == expected.shape
        assert view.stride() == expected.stride()
    assert make_inputs(["x=f32[2]", "y=x"])[1]["y"] is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y=x + 1", "neither a tensor's type nor a Python literal"),
        ("y=x.clone()", "is no view: it has memory of its own"),
        ("y=x[9]", "IndexError"),
        ("y=x.view(5)", "RuntimeError"),
        ("y=x.__class__", "AttributeError"),
        ("y=x.numel()", "is no view"),
        ("y=print(x)", "neither"),
        ("y=w[0]", r"unknown dtype 'w', and no input before it has that name\n.*'x=f32\[4\]', then"),
    ],
)
def test_what_is_no_view_is_refused(text, message):
    """Whatever is no view of a tensor that was named before is refused with the text; nothing else is evaluated."""
    with pytest.raises(ParseError, match=message):
        make_inputs(["x=f32[4]", text])
