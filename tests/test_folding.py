"""Views folded into one: the same handles, fewer calls; not where it would be another view."""

from __future__ import annotations

import torch

from graphalias import capture, jit, parse, verify
from graphalias.folding import AS_STRIDED, fold_views


def test_chain_is_one() -> None:
    """A chain of views of which only the last is used is one as_strided; a view with other users stays."""
    program = parse("""
    %x: f32[4,6] @s0 obj0 = input()
    %a: f32[2,6] offset(6) @s0 obj1 = aten.slice.Tensor(%x, 0, 1, 3)
    %t: f32[6,2] stride(1,6) offset(6) @s0 obj2 = aten.t.default(%a)
    %b: f32[2] stride(6) offset(8) @s0 obj3 = aten.select.int(%t, 0, 2)
    %c: f32[2] stride(6) offset(9) @s0 obj4 = aten.select.int(%t, 0, 3)
    output(%b, %c)
    """)
    assert [(op.name, op.operands[0].name) for op in fold_views(program).operations if op.target == AS_STRIDED] == [
        ("t", "x"), ("b", "t"), ("c", "t"),
    ]  # fmt: skip
    verify(fold_views(program), torch.randn(4, 6))


def test_what_is_not_folded() -> None:
    """Other dtypes, conjugates, several results, and tensors whose geometry changes are left alone."""
    program = parse("""
    %x: f32[4] @s0 obj0 = input()
    %z: c64[4] @s1 obj1 = input()
    %y: f32[2,2] @s2 obj2 = input()
    %bits: i32[4] @s0 obj3 = aten.view.dtype(%x, dtype:i32)
    %conj: c64[4] conj @s1 obj4 = aten._conj.default(%z)
    %split: (%split.0: f32[2] @s0 obj5, %split.1: f32[2] offset(2) @s0 obj6) = aten.split.Tensor(%x, 2)
    %row: f32[2] @s2 obj7 = aten.select.int(%y, 0, 0)
    %t_: f32[2,2] stride(1,2) @s2 obj2 = aten.t_.default(%y~)
    output(%bits, %conj, %split.0, %split.1, %row, %t_)
    """)
    assert str(fold_views(program)) == str(program)
    captured = capture(lambda x: x[1:][0] * 2, torch.randn(3, 4))
    assert str(fold_views(captured, ())) == str(captured)


def test_captured_programs() -> None:
    """Folded programs do what they did, in any order."""

    def step(cache: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        cache[:, :, 1:2] = k
        cache.transpose(1, 2)[0].chunk(2)[1].mul_(2)
        return cache.view(-1)[3:9][::2] + 1

    args = (torch.randn(1, 2, 4, 3), torch.randn(1, 2, 1, 3))
    program = fold_views(capture(step, *args))
    assert sum(op.target == AS_STRIDED for op in program.operations) >= 3
    torch.testing.assert_close(program.run(*(a.clone() for a in args)), step(*(a.clone() for a in args)))


def test_strides_that_only_kernels_know() -> None:
    """A view of what the program makes is not folded where a returned view shows strides of one element or none."""

    def step(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = (x * 2 + 1).t()
        return y.unsqueeze(0), y.detach()

    for x in (torch.empty_strided((4, 1), (1, 7)).fill_(2), torch.ones(4, 1).t(), torch.ones(0, 3).t()):
        for found, expected in zip(jit(step, executor="eager")(x), step(x), strict=True):
            assert found.stride() == expected.stride()
