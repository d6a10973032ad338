"""Generated loops that ask for memory two pages before they reach it.

A processor's own prefetching ends where a page does. A loop over much memory waits at every page boundary, more so
where memory is virtual twice, or where it walks part of each row. This is the only module besides `inductor` that
touches the code generator's private interface, at the places it has for other backends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import torch

#: How far ahead: two pages of 4 KiB. From one page on it pays, and further away no more.
DISTANCE_BYTES = 8192

#: From how many bytes of inputs on. What is less stays in the caches, where prefetching costs up to a fifth.
FROM_BYTES = 1 << 23


@contextlib.contextmanager
def prefetching(inputs: Sequence[torch.Tensor]) -> Iterator[None]:
    """Let the code generator's CPU loops prefetch in what follows, if a region's inputs are large.

    Why private: kernels are made by classes that another backend may derive from and register, which has no public
    name. The pass that does nothing tells the generator's cache the two kinds of loops apart.
    """
    if sum(tensor.nbytes for tensor in inputs) < FROM_BYTES or os.name == "nt":  # its compiler knows no such builtin
        yield
        return
    from torch._inductor import config
    from torch._inductor.codegen.common import device_codegens, init_backend_registration

    init_backend_registration()
    scheduling, key = _prefetching_scheduling()
    cpu = dataclasses.replace(device_codegens["cpu"], scheduling=scheduling)
    with mock.patch.dict(device_codegens, cpu=cpu), config.patch(post_grad_custom_post_pass=key):
        yield


@functools.cache
def _prefetching_scheduling() -> tuple[Any, Any]:
    """Return the class that makes loops with prefetching, and what the generator's cache knows it by."""
    from torch._inductor.codegen.cpp import CppKernelProxy, CppScheduling, CppVecKernel
    from torch._inductor.codegen.cpp_utils import cexpr_index
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class Kernel(CppVecKernel):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.prefetched: set[str] = set()

        def load(self, name: str, index: Any) -> Any:
            value = super().load(name, index)
            index = self.rename_indexing(index)
            is_walk = self.itervars[-1] in index.free_symbols <= set(self.itervars)  # no index that was itself loaded
            address = f"{self.args.input(name)} + {cexpr_index(index)}"
            if is_walk and address not in self.prefetched:
                self.prefetched.add(address)
                bytes_ahead = f"reinterpret_cast<const char*>({address}) + {DISTANCE_BYTES}"
                self.loads.writeline(f"__builtin_prefetch({bytes_ahead});")
            return value

    class Proxy(CppKernelProxy):
        vec_kernel_cls = Kernel

    class Scheduling(CppScheduling):
        kernel_proxy_cls = Proxy

    class Key(CustomGraphPass):
        def __call__(self, graph: torch.fx.Graph) -> None:
            """Do nothing."""

        def uuid(self) -> str:
            return f"graphalias prefetches {DISTANCE_BYTES}"

    return Scheduling, Key()
