"""Matrix products, which stay outside unless asked for: ATen's own are the same kernels, and a write of one is lost."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from graphalias.executors.nvfuser.builder import Builder, Operand
from graphalias.executors.nvfuser.table import PRODUCT, lowers

TARGETS = frozenset({"aten.mm.default", "aten.bmm.default"})


@lowers("aten.mm.default", "aten.bmm.default", kind=PRODUCT, how="`matmul`, where `fuse_products` is set")
def _matmul(builder: Builder, node: Node, x: Operand, y: Operand) -> Any:
    return builder.ops.matmul(builder.tensor(x), builder.tensor(y))
