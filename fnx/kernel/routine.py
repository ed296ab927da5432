"""Routines: scalar functions with branches and loops, recorded once for every printer.

What no formula without branches computes (incomplete gamma functions, say) is a
function of `Value`s that calls `branch` and `repeat` here. Calling it with a `Recorder`
gives a `Routine`: steps that are rows of the scalar table, branches and loops. Its row
in the table calls it, lane by lane; `routine_print.py`, next on the walk, prints it as
a helper function of the kernel, and `routine_numpy.py` evaluates it on arrays.

Routines compute in float64 for every dtype: their results are what is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from fnx import dtypes
from fnx.kernel import scalar
from fnx.kernel.math_value import Value
from fnx.records import record

DType = np.dtype[Any]
R = TypeVar("R")


@record(eq=False)
class Cell:
    """A value that a routine computes once (in each round of a loop)."""

    dtype: DType
    number: int


@record
class Number:
    """A constant."""

    value: bool | int | float
    dtype: DType


Operand = Cell | Number


@record(eq=False)
class Step:
    """A row of the scalar table."""

    name: str
    args: tuple[Operand, ...]
    result: Cell


@record(eq=False)
class Lookup:
    """An entry of a table of float64 constants, at an index that is in its range."""

    table: tuple[float, ...]
    index: Operand
    result: Cell


@record(eq=False)
class Block:
    """Statements, one after the other, and what they give."""

    statements: tuple[Any, ...]
    results: tuple[Operand, ...]


@record(eq=False)
class Branch:
    """One of two blocks; what it gives is in `results`."""

    condition: Operand
    then: Block
    otherwise: Block
    results: tuple[Cell, ...]


@record(eq=False)
class Loop:
    """Rounds of a block while it says so, at least one and at most `limit`.

    The block sees the `state` and gives the next, and last whether there is another
    round; `results` are the state after the last.
    """

    initial: tuple[Operand, ...]
    state: tuple[Cell, ...]
    body: Block
    limit: int
    results: tuple[Cell, ...]


@record(eq=False)
class Routine:
    """A function of float64 numbers."""

    name: str
    inputs: tuple[Cell, ...]
    body: Block


class Recorder:
    """Stands in for the kernel builder while a function of `Value`s is recorded."""

    def __init__(self) -> None:
        self._count = 0
        self._blocks: list[list[Any]] = [[]]

    def cell(self, dtype: DType) -> Cell:
        """A new name."""
        self._count += 1
        return Cell(dtype, self._count - 1)

    def constant(self, value: bool | int | float, dtype: DType) -> Number:
        """A constant of the dtype."""
        return Number(dtype.type(value).item(), dtype)

    def op(self, name: str, *args: Operand) -> Cell:
        """A row of the scalar table, also one that `math.py` expands."""
        result = scalar.TABLE[name].result(tuple([arg.dtype for arg in args]))
        return self._step(name, args, result)

    def select(self, condition: Operand, x: Operand, y: Operand) -> Cell:
        """One of two values that are both computed."""
        return self._step("select", (condition, x, y), x.dtype)

    def bitcast(self, x: Operand, dtype: DType) -> Cell:
        """The same bits as another dtype."""
        return self._step("bitcast", (x,), dtype)

    def _step(self, name: str, args: tuple[Operand, ...], dtype: DType) -> Cell:
        result = self.cell(dtype)
        self.add(Step(name, args, result))
        return result

    def add(self, statement: Any) -> None:
        """Append a statement to the block that is being recorded."""
        self._blocks[-1].append(statement)

    @contextmanager
    def block(self) -> Iterator[list[Any]]:
        """Record into a new block."""
        statements: list[Any] = []
        self._blocks.append(statements)
        try:
            yield statements
        finally:
            self._blocks.pop()

    def values(self, cells: Sequence[Operand]) -> list[Value]:
        """Operands as `Value`s."""
        return [Value(self, cell) for cell in cells]  # type: ignore[arg-type]

    @property
    def statements(self) -> tuple[Any, ...]:
        """What has been recorded outside of blocks."""
        return tuple(self._blocks[0])


def routine(name: str, arity: int, function: Callable[..., Value]) -> Routine:
    """The routine that a function of `Value`s of float64 records."""
    recorder = Recorder()
    inputs = tuple([recorder.cell(dtypes.float64) for _ in range(arity)])
    result = function(*recorder.values(inputs))
    return Routine(name, inputs, Block(recorder.statements, (_operand(result),)))


def branch(condition: Value, then: Callable[[], R], otherwise: Callable[[], R]) -> R:
    """What one of two functions gives; only that one is computed.

    Both give a `Value`, or tuples of as many; Python numbers stand for float64.
    """
    recorder = _recorder(condition)
    blocks, single = [], False
    for side in (then, otherwise):
        with recorder.block() as statements:
            given: Any = side()
            single = not isinstance(given, tuple)
            results = _operands((given,) if single else given)
        blocks.append(Block(tuple(statements), results))
    cells = tuple([recorder.cell(operand.dtype) for operand in blocks[0].results])
    recorder.add(Branch(_operand(condition), blocks[0], blocks[1], cells))
    values = recorder.values(cells)
    found: Any = values[0] if single else tuple(values)
    return found  # type: ignore[no-any-return]


def repeat(
    state: Sequence[Value | float], body: Callable[..., tuple[Any, Value]], limit: int
) -> list[Value]:
    """The state after rounds of `body(*state)`, which gives the next and whether to go
    on; at least one round, at most `limit`. One of the state must be a `Value`.
    """
    recorder = _recorder(next(x for x in state if isinstance(x, Value)))
    initial = _operands(state)
    cells = tuple([recorder.cell(operand.dtype) for operand in initial])
    with recorder.block() as statements:
        following, more = body(*recorder.values(cells))
        results = _operands((*following, more))
    results_cells = tuple([recorder.cell(operand.dtype) for operand in initial])
    block = Block(tuple(statements), results)
    recorder.add(Loop(initial, cells, block, limit, results_cells))
    return recorder.values(results_cells)


def lookup(table: tuple[float, ...], index: Value) -> Value:
    """The entry of a table at a whole float64 index that is in its range."""
    recorder = _recorder(index)
    cell = recorder.cell(dtypes.float64)
    recorder.add(Lookup(table, _operand(index), cell))
    return recorder.values((cell,))[0]


def _recorder(x: Value) -> Recorder:
    recorder: Any = x.k
    assert isinstance(recorder, Recorder), "branches and loops are of routines alone"
    return recorder


def _operand(x: Any) -> Operand:
    if not isinstance(x, Value):
        return Number(float(x), dtypes.float64)
    operand: Operand = x.expr  # type: ignore[assignment]  # a Recorder made it
    return operand


def _operands(xs: Sequence[Any]) -> tuple[Operand, ...]:
    return tuple([_operand(x) for x in xs])
