"""The command line: ``python -m graphalias demo``, and the same for a program of one's own."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.text import Text

from graphalias import __version__
from graphalias.commands import (
    FINE,
    REFUSED,
    WRONG,
    run_bench,
    run_demo,
    run_draw,
    run_explain,
    run_hazards,
    run_print,
    run_verify,
)
from graphalias.errors import GraphAliasError, VerificationError
from graphalias.terminal import make_console
from graphalias.tracing.location import describe, is_user_frame

EPILOG = """\
inputs, each with its own --input, in the order of the function's parameters:
  f32[4,6]                      a tensor of random values (integers are below 4)
  f32[4,6] stride(1,4)          not contiguous; also offset(2), device(cuda:0)
  f32[8] @buf                   two inputs with the same @name share memory, here eight numbers
  f32[4] offset(2) @buf         and four of them
  f32[8] @buf x                 with the same @name and object, they are one tensor
  [f32[4], f32[6]]              a list
  3, 0.5, True, None, '"sum"'   Python literals
  scale=2.0                     a keyword argument
  x=f32[4,6] then y=x.t()       a view of an earlier keyword argument; z=x[1:] and x[0].view(2, 3) as well

examples:
  python -m graphalias explain model.py:step -i 'f32[4,4]'
  python -m graphalias hazards model.py:step -i 'f32[4,4]' --json | jq .count
  python -m graphalias draw torch.nn:ReLU -i 'f32[8]' --partition --theme dark --out relu.svg
  python -m graphalias bench model.py:step -i 'f32[1024,1024]'

exit status: 0 fine, 1 not verified, or hazards found with --fail, 2 wrong usage, or a program that can't be captured
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        The words after ``python -m graphalias``.

    Returns
    -------
    int
        0 fine, 1 not verified or hazards found with ``--fail``, 2 wrong usage or a program that can't be captured.
    """
    try:
        options = _parser().parse_args(argv)
    except SystemExit as stop:  # argparse has said why
        return stop.code if isinstance(stop.code, int) else REFUSED
    try:
        status: int = options.command(make_console(), options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # as in `| head`; what Python still flushes at its end goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        _print_error(error, options)
        return WRONG if isinstance(error, VerificationError) else REFUSED


class _Parser(argparse.ArgumentParser):
    """Says where help is."""

    def error(self, message: str) -> NoReturn:
        _print_message(f"{message}\n  what to do: {self.prog} --help")
        self.exit(REFUSED)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m graphalias", description="In-place operations and views as visible dependencies of a graph."
    )
    parser.add_argument("--version", action="version", version=f"graphalias {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="command")
    demo = _add(commands, "demo", run_demo, "capture, show, verify and draw some programs")
    demo.add_argument("--out", type=Path, default=Path("graphalias-demo"), help="folder of the drawings (%(default)s)")
    own = _add_own(commands, "explain", run_explain, "say what becomes of each mutation, what is fused, and why")
    own.add_argument("--executor", default="auto", help="what fuses (%(default)s)")
    _add_json(own)
    own = _add_own(
        commands, "hazards", run_hazards, "show a program, and what some topological order would run wrongly"
    )
    own.add_argument("--fail", action="store_true", help="end with status 1 if there are any")
    _add_json(own)
    own = _add_own(
        commands, "verify", run_verify, "run random topological orders and an executor against eager PyTorch"
    )
    own.add_argument("--orders", type=_count, default=20, help="how many random orders (%(default)s)")
    own.add_argument("--executor", default="eager", help="what to lower the program to (%(default)s)")
    _add_json(own)
    own = _add_own(commands, "bench", run_bench, "time jit and torch.compile against eager PyTorch, in turns")
    own.add_argument("--executor", default="auto", help="what jit uses (%(default)s)")
    own.add_argument("--rounds", type=_count, default=15, help="of which medians are taken (%(default)s)")
    _add_json(own)
    own = _add_own(commands, "draw", run_draw, "draw a program before and after insert_update_aliases, or in regions")
    own.add_argument("--out", type=Path, help="where to: a .svg, .png or .dot file (the function's name, .svg)")
    own.add_argument("--focus", metavar="OPERATION", help="only this operation and what is near it")
    own.add_argument("--only", metavar="NAME", help="only what touches the view group of this handle or storage")
    own.add_argument("--theme", default="light", choices=("light", "dark"), help="of the colours (%(default)s)")
    _add_partition(own)
    own = _add_own(commands, "print", run_print, "print a program in the text form that graphalias.parse reads")
    own.add_argument("--after", action="store_true", help="the program after insert_update_aliases")
    _add_partition(own)
    return parser


def _add_partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--partition", nargs="?", const="auto", metavar="EXECUTOR",
        help="after insert_update_aliases, in fusion regions by an executor's rules (auto); nothing is compiled",
    )  # fmt: skip


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, found {text!r}")
    return int(text)


def _add(commands: Any, name: str, command: Callable[..., int], about: str, **options: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=about, description=f"{about[0].upper()}{about[1:]}.", **options
    )
    parser.set_defaults(command=command)
    parser.add_argument("--seed", type=int, default=0, help="of the values of inputs and parameters (%(default)s)")
    parser.add_argument("--traceback", action="store_true", help="show where in the code an error came about")
    return parser


def _add_own(commands: Any, name: str, command: Callable[..., int], about: str) -> argparse.ArgumentParser:
    parser = _add(commands, name, command, about, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", metavar="module:function", help="or file.py:function; an nn.Module or its class too")
    parser.add_argument("--input", "-i", action="append", default=[], dest="inputs", help="an argument, see below")
    return parser


def _print_error(error: Exception, options: argparse.Namespace) -> None:
    """Print an error without its traceback; of the user's own, which line raised it."""
    if options.traceback:
        traceback.print_exception(error)
    text = str(error)
    if not isinstance(error, GraphAliasError):
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if is_user_frame(frame)]
        text = f"{type(error).__name__}: {text}" + (f"\n  from: {describe(frames[-1])}" if frames else "")
        text += "" if options.traceback else "\n  what to do: --traceback shows where it came about"
    _print_message(text)


def _print_message(text: str) -> None:
    """Print what is wrong, and below it what to do."""
    first, *rest = text.split("\n")
    message = Text.assemble((f"error: {first}", "bold red"), "".join(f"\n{line}" for line in rest))
    make_console(sys.stderr).print(message, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
