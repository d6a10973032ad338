"""A program as a generated, readable Python function."""

from __future__ import annotations

import itertools
import keyword
import linecache
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

import torch
from torch.autograd.graph import increment_version

from graphalias.calls import method_of
from graphalias.draw import draw, show
from graphalias.executors import Executor, get_executor
from graphalias.executors.eager import (
    bind_inputs,
    callable_of,
    failed,
    flatten_results,
    returned_by,
    run,
    values_only,
)
from graphalias.executors.once import LoweredRegion, compiled_region
from graphalias.graph import REGION, UPDATE_ALIASES, Operation, Program, Symbol, Value, require_program
from graphalias.symbols import torch_object

_FILES = itertools.count()


TENSOR, FLAT, NESTED = "tensor", "flat", "nested"


def lower(program: Program, executor: str = "auto", *, strict: bool = False) -> Compiled:
    """Return a callable that runs the program, generated as Python source.

    Parameters
    ----------
    program : Program
        Any: operations are called in program order, which is always valid.
    executor : str
        ``"eager"``: one ATen call an operation. ``"inductor"`` and ``"nvfuser"`` fuse the program's regions; the latter
        needs no GPU here. ``"auto"`` is the best one present.
    strict : bool
        Raise where a region can't be compiled. Otherwise its operations run one by one, and a warning says so.

    Returns
    -------
    Compiled
        Takes what the captured function took. Gradients are not recorded.

    Raises
    ------
    ExecutorError
        If there is no such executor, or torch has no such operator.

    Examples
    --------
    >>> import torch, graphalias
    >>> program = graphalias.parse('''
    ... %x: f32[2] @s0 obj0 = input()
    ... %add: f32[2] @s1 obj1 = aten.add.Tensor(%x, 1) reads(%x)  # model.py:3
    ... %mul_: f32[2] @s1 obj1 = aten.mul_.Tensor(%add!, %x) reads(%add, %x)  # model.py:4
    ... output(%mul_)
    ... ''')
    >>> compiled = graphalias.lower(program, "eager")
    >>> print(compiled.source)
    def program(x):
        add = x.add(1)  # model.py:3
        add.mul_(x)  # model.py:4
        del x
        return (add,)
    <BLANKLINE>
    >>> compiled(torch.ones(2))
    (tensor([2., 2.]),)
    """
    require_program(program, "lower")
    return Compiled(program, get_executor(executor, program), strict=strict)


class Compiled:
    """A lowered program.

    Attributes
    ----------
    source : str
        The generated Python function: it takes the input tensors in order and returns the outputs, flat.
    flat : callable
        That function.
    regions : tuple of LoweredRegion
        The fusion regions it calls: each node, and what the executor made of it.

    Examples
    --------
    >>> import torch, graphalias
    >>> compiled = graphalias.lower(graphalias.capture(torch.neg, torch.ones(1)))
    >>> compiled.flat(torch.ones(1))
    (tensor([-1.]),)
    """

    def __init__(self, program: Program, executor: Executor, *, strict: bool = False) -> None:
        self.program = program
        regions = (operation for operation in program.operations if operation.target == REGION)
        self.regions = tuple(LoweredRegion(region, compiled_region(region, executor, strict)) for region in regions)
        writer = _Writer(program, {region.name: region.run for region in self.regions})
        self.source = "".join(f"{line}\n" for line in writer.lines())
        self.inputs = tuple(value.name for value in program.inputs if not value.is_state)
        self._operation_at = writer.operation_at
        self._file = f"<graphalias {program.name} {next(_FILES)}>"
        # tracebacks show the generated lines
        linecache.cache[self._file] = (len(self.source), None, self.source.splitlines(keepends=True), self._file)
        exec(compile(self.source, self._file, "exec"), writer.names)
        self.flat: Callable[..., tuple[Any, ...]] = writer.names["program"]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on what the captured function took; return what it returned."""
        tensors = bind_inputs(self.program, args, kwargs)
        with values_only():
            try:
                leaves = self.flat(*(tensors[name] for name in self.inputs))
            except Exception as error:
                raise self.explained(error) from error
        return returned_by(self.program, list(leaves))

    def run_checked(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the same operation by operation, and check that each result is the handle the program says."""
        return run(self.program, args, kwargs, regions={region.name: region.run for region in self.regions})

    def explained(self, error: Exception) -> Exception:
        """Return the error with the name of the operation that raised it."""
        operation = self._failed_operation(error)
        return error if operation is None else failed(operation, error)

    def _failed_operation(self, error: Exception) -> Operation | None:
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self._file:
                return self._operation_at.get(trace.tb_lineno)
            trace = trace.tb_next
        return None

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return show(self.source, draw(self.program), f"<pre>{escape(self.source)}</pre>")

    def __del__(self) -> None:
        linecache.cache.pop(getattr(self, "_file", ""), None)


class _Writer:
    """Writes the source: one variable for each tensor object, so that in-place results bind no new name."""

    def __init__(self, program: Program, regions: dict[str, Callable[..., Any]]) -> None:
        self.program, self.regions = program, regions
        #: What the source refers to: operators, constants, and objects without a literal.
        self.names: dict[str, Any] = {"device": torch.device, "inf": float("inf"), "nan": float("nan")}
        self.operation_at: dict[int, Operation] = {}
        self.variables: dict[str, str] = {}
        self.taken = {"program", "flatten", "torch", *self.names, *keyword.kwlist}
        self.operators: dict[int, str] = {}
        self.dying = self._last_uses()

    def lines(self) -> Iterator[str]:
        for value in self.program.constants:
            self.names[self._variable(value)] = self.program.bindings.get(value.name)
        inputs = [self._variable(value) for value in self.program.inputs if not value.is_state]
        yield f"def program({', '.join(inputs)}):"
        number = 1
        for operation in self.program.operations:
            for line in self._statements(operation):
                number += 1
                self.operation_at[number] = operation
                yield f"    {line}"
        leaves = [self._argument(leaf) for leaf in self.program.outputs]
        yield f"    return ({', '.join(leaves)}{',' * (len(leaves) == 1)})"

    def _statements(self, operation: Operation) -> Iterator[str]:
        if operation.is_compute:
            # a region's further operands are other objects on memory that it writes through its inputs
            passed = operation.args if operation.body is None else operation.args[: len(operation.body.inputs)]
            args = [self._argument(argument) for argument in passed]
            args += [f"{key}={self._argument(argument)}" for key, argument in operation.kwargs.items()]
            call = self._call(operation, args)
            yield self._targets(operation, call) + _comment(operation)
            if operation.body is not None and len(passed) < len(operation.args):
                others = [self._argument(argument) for argument in operation.args[len(passed) :]]
                yield f"{self._named(increment_version, 'increment_version')}([{', '.join(others)}])"
        if operation.name in self.dying:
            yield f"del {', '.join(self.variables[name] for name in self.dying[operation.name])}"

    def _targets(self, operation: Operation, call: str) -> str:
        """Return the statement that binds the results which are new objects."""
        results = [result for result in operation.results if result is None or not result.is_state]
        if operation.target == REGION:  # what it writes is not returned
            results = results[: len(operation.body.outputs)]
        names = ["_" if r is None or r.object in self.variables else self._variable(r) for r in results]
        if all(name == "_" for name in names):  # also where there is none
            return call
        returns = result_form(operation)
        if returns == TENSOR:
            return f"{names[0]} = {call}"
        if returns == NESTED:
            self.names["flatten"], call = flatten_results, f"flatten({call})"
        return f"{', '.join(names)}{',' * (len(names) == 1)} = {call}"

    def _last_uses(self) -> dict[str, list[str]]:
        """Return, by operation, the objects that no later one uses: they are deleted after it."""
        outside = {value.object for value in (*self.program.constants, *self.program.output.operands)}
        last: dict[str, str] = {}
        for operation in self.program.operations:
            for value in (*operation.operands, *(result for result in operation.results if result)):
                if not value.is_state and value.object not in outside and operation.target != UPDATE_ALIASES:
                    last[value.object] = operation.name
        dying: dict[str, list[str]] = {}
        for object_name, user in last.items():
            if self.program.operation(user).is_compute:
                dying.setdefault(user, []).append(object_name)
        return dying

    def _variable(self, value: Value) -> str:
        if value.object not in self.variables:
            self.variables[value.object] = self._unique(value.name)
        return self.variables[value.object]

    def _unique(self, name: str) -> str:
        name = base = re.sub(r"\W", "_", name) if re.match(r"[A-Za-z_]", name) else "_" + re.sub(r"\W", "_", name)
        for number in itertools.count(2):
            if name not in self.taken:
                break
            name = f"{base}_{number}"
        self.taken.add(name)
        return name

    def _call(self, operation: Operation, args: list[str]) -> str:
        if operation.target == REGION:
            return f"{self._named(self.regions[operation.name], operation.name)}({', '.join(args)})"
        target = callable_of(operation)
        method = method_of(operation, self.program.bindings)
        if method is not None:
            return f"{args[0]}.{method}({', '.join(args[1:])})"
        return f"{self._named(target, operation.target)}({', '.join(args)})"

    def _named(self, target: Any, name: str) -> str:
        """Return the global name of an object."""
        if id(target) not in self.operators:
            self.operators[id(target)] = unique = self._unique(name.removesuffix(".default"))
            self.names[unique] = target
        return self.operators[id(target)]

    def _argument(self, argument: Any) -> str:
        if isinstance(argument, Value):
            return self.variables[argument.object]
        if isinstance(argument, (list, tuple)):
            return f"[{', '.join(self._argument(item) for item in argument)}]"
        if isinstance(argument, Symbol):
            return self._named(torch_object(argument, self.program.bindings), str(argument))
        if isinstance(argument, complex):
            return f"complex({argument.real!r}, {argument.imag!r})"
        return repr(argument)


def _comment(operation: Operation) -> str:
    return f"  # {operation.location.rpartition('/')[2]}" if operation.location else ""


def result_form(operation: Operation) -> str:
    """Return how the operator returns its results: alone, in one flat sequence, or in nested ones."""
    if operation.target == REGION:
        return FLAT
    schema = getattr(callable_of(operation), "_schema", None)
    types = [str(returned.type) for returned in schema.returns] if schema is not None else ["Tensor"]
    if len(types) == 1:
        return FLAT if types[0].startswith("List") else TENSOR
    return NESTED if any(type_.startswith("List") for type_ in types) else FLAT
