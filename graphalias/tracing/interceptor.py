"""Sees the calls of PyTorch functions before they are dispatched: real tensors are swapped for fakes, and what the
dispatcher would never see is recorded or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from graphalias.effects import tensors_in
from graphalias.errors import CaptureError
from graphalias.torch_private import map_tensors
from graphalias.tracing.recorder import Recorder

T = torch.Tensor

#: Calls that look at a tensor's values or address while the function runs: (what, what to do).
_VALUES = {
    T.__repr__: "printing or formatting a tensor", T.__format__: "printing or formatting a tensor",
    T.numpy: "Tensor.numpy", T.__array__: "a tensor used as a numpy array", T.tolist: "Tensor.tolist",
    T.__deepcopy__: "copy.deepcopy of a tensor", T.__reduce_ex__: "pickling a tensor",
    T.data_ptr: "Tensor.data_ptr", T.untyped_storage: "Tensor.untyped_storage", T.__dlpack__: "Tensor.__dlpack__",
    T.share_memory_: "Tensor.share_memory_", T.storage: "Tensor.storage", T._version.__get__: "Tensor._version",  # type: ignore[attr-defined]
}  # fmt: skip

_GRADIENTS = {T.backward: "Tensor.backward", T.grad.__set__: "writing .grad", T.grad.__delete__: "deleting .grad"}  # type: ignore[attr-defined]


class Interceptor(TorchFunctionMode):
    """A function mode above the recorder."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        self.recorder.new_call()
        with self.recorder.located():
            self._refuse(func, args, kwargs)
            given: list[int] = []
            if func is not torch.ops.aten.lift_fresh.default:
                args, kwargs = map_tensors(lambda tensor: self._swap(tensor, given), (tuple(args), kwargs))
            start = len(self.recorder.operations)
            try:
                is_data = func == T.data.__set__ and isinstance(args[1], T)  # type: ignore[attr-defined]
                call: Callable[..., Any] = self.recorder.set_data if is_data else func
                result = call(*args, **kwargs)
            except CaptureError:
                raise
            except Exception as error:
                self.recorder.note_refusal(error)
                raise
            self._refuse_unwritten(func, kwargs.get("out"), start)
        # The function that wrote ``w.add_(1) is w`` must find it true.
        return self.recorder.constants.real_of(result) if id(result) in given else result

    def _swap(self, tensor: torch.Tensor, given: list[int]) -> torch.Tensor:
        fake = self.recorder.constants.fake_of(tensor)
        if fake is not tensor:
            given.append(id(fake))
        return fake

    def _refuse(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        what = _look_up(_VALUES, func)
        if what:
            raise CaptureError(
                f"can't capture {what}: it happens once, while capturing", hint="do it outside the captured function"
            )
        what = _look_up(_GRADIENTS, func)
        if what or (func == T.grad.__get__ and self._may_have_grad(args[0])):  # type: ignore[attr-defined]
            raise CaptureError(
                f"can't capture {what or 'reading .grad'}: a program computes values only",
                hint="pass the gradients as arguments",
            )
        if _sets_requires_grad(func, args, kwargs) and self._outside(args[0]) is not None:
            raise CaptureError(
                "can't capture a change of requires_grad of an input or constant", hint="change it before the call"
            )

    def _refuse_unwritten(self, func: Callable[..., Any], out: Any, start: int) -> None:
        """Refuse an ``out=`` that no operation wrote: some functions forget it where tensors are not plain ones."""
        # `resize_` writes, too, where a storage grows, but only makes room for what is to be written
        writers = (op for op in self.recorder.operations[start:] if op.target != "aten.resize_.default")
        written = {operand.storage.name for op in writers for operand in op.written}
        for tensor in tensors_in(out):
            handle = self.recorder.handles.newest(tensor)
            if handle is not None and handle.storage.name not in written:
                raise CaptureError(
                    f"can't capture {getattr(func, '__name__', func)} with this out=: torch does not write it here",
                    hint="copy the result into it: out.copy_(result)",
                )

    def _outside(self, tensor: torch.Tensor) -> torch.Tensor | None:
        fake = self.recorder.constants.fake_of(tensor)
        return self.recorder.constants.real_of(fake) if self.recorder.constants.is_outside(fake) else None

    def _may_have_grad(self, tensor: torch.Tensor) -> bool:
        """Whether there is a gradient, or one may be there in another call."""
        real = self._outside(tensor)
        return real is not None and real.is_leaf


def _look_up(table: dict[Any, str], func: Any) -> str | None:
    try:
        return table.get(func)
    except TypeError:
        return None


def _sets_requires_grad(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    if func == T.detach_:
        return args[0].requires_grad
    if func == T.requires_grad_:
        return (args[1] if len(args) > 1 else kwargs.get("requires_grad", True)) != args[0].requires_grad
    return func == T.requires_grad.__set__ and args[1] != args[0].requires_grad  # type: ignore[attr-defined]
