"""A fusion as a script that runs alone, with constants in full: nvFuser prints six digits of them."""

from __future__ import annotations

from typing import Any


def repro_script(region: Any) -> str:
    """Return a script that defines a region's fusion and runs it on random inputs of its geometry."""
    lines = [
        "import torch",
        "from nvfuser_direct import DataType, FusionDefinition",
        "",
        region.definition.rstrip(),
        "",
        "with FusionDefinition() as fd:",
        "    nvfuser_fusion(fd)",
        "",
        "inputs = [",
        *(f"    {_random(value)},  # %{value.name}" for value in region.inputs),
        "]",
        "print(fd.execute(inputs))",
    ]
    return "\n".join(lines) + "\n"


def _random(value: Any) -> str:
    """Return the text of a tensor of a handle's geometry."""
    from graphalias.symbols import DTYPES

    size = f"{list(value.shape)}, {list(value.stride)}, dtype={DTYPES[value.dtype]}, device='cuda'"
    return f"torch.empty_strided({size}).random_(0, 2)"
