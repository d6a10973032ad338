"""The real nvFuser under the stand-in CUDA driver, where kernels do nothing: how many there are, and in which order.

Run as a program, in a process of its own, it makes the definitions that ``module:function`` yields, executes them, and
prints a line of JSON for each. `run_under_driver` is the other side.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared import ROOT

SOURCE = ROOT.parent / "shared" / "nvfuser"
PARTS = ("build.sh", "fakecuda.c", "fakecuda_t.cpp", "nvfake.py", "segview.py")
MARK = "graphalias-driver: "


@dataclass
class Launched:
    """What became of one definition.

    Parameters
    ----------
    label : str
    kernels : list of str
        What was launched, in order: a scheduler and the number of the group, such as ``pointwise g0``.
    groups : dict
        For each group its scheduler, and the tensors it reads and makes.
    written : dict
        The tensor that is written to each input's memory, by its number among the inputs.
    results : list
        Of each result its shape, stride, and with which inputs and which other results it shares memory.
    """

    label: str
    kernels: list[str]
    groups: dict[str, tuple[str, list[str], list[str]]]
    written: dict[str, str]
    inputs: list[str]
    results: list[tuple[list[int], list[int], list[int], list[int]]]

    def late_readers(self) -> list[str]:
        """Return the groups launched after the one that writes an input's memory that read it by its old name."""
        order = [int(name.rpartition("g")[2]) for name in self.kernels]
        writers = [
            (int(n), value) for value in self.written.values() for n in self.groups if value in self.groups[n][2]
        ]
        olds = {value: self.inputs[int(i)] for i, value in self.written.items()}
        return [
            f"g{group} reads {olds[value]} after g{writer} has written {value} there"
            for writer, value in writers
            for group in order[order.index(writer) + 1 :]
            if olds[value] in self.groups.get(str(group), ("", [], []))[1]
        ]


def is_available() -> bool:
    """Whether the stand-in driver lies beside the repository."""
    return (SOURCE / "build.sh").exists()


def build() -> Path:
    """Return the folder of the stand-in driver, built once for each version of its sources."""
    content = b"".join((SOURCE / part).read_bytes() for part in PARTS) + sys.version.encode()
    folder = Path(tempfile.gettempdir()) / f"graphalias-driver-{hashlib.sha256(content).hexdigest()[:16]}"
    if not (folder / "libfakecuda_t.so").exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            subprocess.run(
                ["bash", str(SOURCE / "build.sh"), scratch],
                check=True,
                capture_output=True,
                env={**os.environ, "PATH": path},
            )
            with contextlib.suppress(OSError):  # another worker was faster
                Path(scratch).rename(folder)
                Path(scratch).mkdir()
    return folder


def run_under_driver(maker: str, *arguments: str) -> list[Launched]:
    """Return what becomes of the definitions that a function makes.

    Parameters
    ----------
    maker : str
        ``module:function``; called with the arguments in the other process, it yields labels, definitions and inputs.
    """
    folder = build()
    environment = {
        **os.environ, "LD_PRELOAD": str(folder / "libfakecuda.so"), "FAKECUDA_LOG": "1",
        "NVFUSER_DUMP": "segmented_fusion,fusion_ir_preseg,perf_debug_verbose",
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT), str(ROOT / "tests")]),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, __file__, maker, *arguments],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.removeprefix(MARK) for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode:
        raise RuntimeError(f"the driver's process failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return [Launched(**json.loads(line)) for line in lines]


@contextlib.contextmanager
def output_of_libraries() -> Iterator[list[str]]:
    """Give what this process and the libraries in it write to both streams, once the block has ended."""
    kept = [os.dup(1), os.dup(2)]
    written: list[str] = []
    sys.stdout.flush()
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield written
        finally:
            sys.stdout.flush()
            for stream, number in zip(kept, (1, 2), strict=True):
                os.dup2(stream, number)
                os.close(stream)
            file.seek(0)
            written.append(file.read().decode(errors="replace"))


def launch(label: str, definition: Any, inputs: list[Any]) -> Launched:
    """Execute a definition on tensors that pose as being on a GPU."""
    import nvfake
    import torch

    tagged = [nvfake.tag(item) if isinstance(item, torch.Tensor) else item for item in inputs]
    with output_of_libraries() as written:
        results = definition.execute(tagged)
    log = written[0]
    places = [tensor.untyped_storage().data_ptr() if isinstance(tensor, torch.Tensor) else 0 for tensor in tagged]
    made = [tensor.untyped_storage().data_ptr() for tensor in results]
    shown = [
        (list(tensor.shape), list(tensor.stride()), [j for j, place in enumerate(places) if place == made[i]],
         [j for j, place in enumerate(made) if place == made[i] and i != j])
        for i, tensor in enumerate(results)
    ]  # fmt: skip
    kernels = re.findall(r"launch #\d+ nvfuser_(\w+?)_f\d+_c\d+_r\d+_(g\d+)", log)
    entered = re.findall(r"tv(\d+) = fd.define_tensor", repr(definition))
    left = re.findall(r"fd\.add_output\((tv\d+)(?:, tv(\d+))?\)", repr(definition))
    targets = {value: target for value, target in left[::-1] if target}
    values = dict.fromkeys(value for value, _ in left)  # what is written and visible too has two lines
    outputs = re.findall(r"\b(T\d+)_", re.split(r"\n\s*\n|%kernel", log.rpartition("Outputs:\n")[2])[0])
    names = dict.fromkeys(outputs)  # and what is a result twice is named twice there
    now = dict(zip(values, names, strict=True))
    written_to = {str(entered.index(target)): now[value] for value, target in targets.items()}
    return Launched(
        label, [" ".join(kernel) for kernel in kernels], _groups(log), written_to, [f"T{n}" for n in entered], shown
    )


def _groups(log: str) -> dict[str, tuple[str, list[str], list[str]]]:
    last = log.rpartition("-- fusion segments:")[2]
    pattern = r"g\{\((\w+)\)\ngroup id: (\d+)\ninputs:\n(.*?)outputs:\n(.*?)\n\n\n"
    found = re.findall(pattern, last, re.DOTALL)
    return {n: (kind, re.findall(r"\b(T\d+)_", read), re.findall(r"\b(T\d+)_", made)) for kind, n, read, made in found}


def serve_zeros() -> Any:
    """Let ATen make zeros that pose as being on a GPU, which grid reductions need; return the library."""
    import nvfake  # before nvfuser_direct
    import torch

    library = torch.library.Library("aten", "IMPL")
    library.impl("zeros", lambda size, dtype=None, **_: nvfake.tag(torch.zeros(size, dtype=dtype)), "CUDA")
    return library


def main() -> None:
    """Make, execute and report."""
    library = serve_zeros()
    module, _, function = sys.argv[1].partition(":")
    for label, definition, inputs in getattr(importlib.import_module(module), function)(*sys.argv[2:]):
        print(MARK + json.dumps(vars(launch(label, definition, inputs))), flush=True)
    del library  # it serves as long as it is there


if __name__ == "__main__":
    main()
