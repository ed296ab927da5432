"""A step on matrices that a library does: its sizes, and stages one after the other.

Receives a `HostStep` and work memory; collects launches and calls. Used by `served.py`
and `served_stacks.py`; next on the walk: `cusolver.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from fnx.dtypes import DType
from fnx.records import record
from fnx.runtime.plan import HostStep, Place
from fnx_cuda.cusolver import LOWER, Factoring
from fnx_cuda.instructions import Call, Launch
from fnx_cuda.matrices import Algebra, Matrix, dense
from fnx_cuda.stacks import Stack
from fnx_cuda.work import Work

Stages = tuple[Launch | Call, ...]
ServedBy = Callable[[HostStep, Work], Stages | None]


@record
class Matrices:
    """A step on a few matrices: their sizes, and stages so far."""

    step: HostStep
    work: Work
    found: list[Launch | Call]

    @property
    def x(self) -> Matrix:
        """The first input."""
        return self.input(0)

    def input(self, number: int) -> Matrix:
        """An input."""
        place = self.step.inputs[number]
        assert isinstance(place, Place)
        return dense(place, *self.step.input_types[number].shape[-2:])

    @property
    def count(self) -> int:
        """How many matrices there are."""
        return prod(self.step.input_types[0].shape[:-2])

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return self.step.input_types[0].dtype.itemsize

    @property
    def dtype(self) -> DType:
        """That of the first input."""
        return self.step.input_types[0].dtype

    def algebra(self, number: int | None = None) -> Algebra:
        """Launches on matrices of the input's dtype, or of an output's."""
        types = self.step.output_types
        dtype = (self.step.input_types[0] if number is None else types[number]).dtype
        return Algebra(dtype, self.count, self.work)

    def out(self, number: int) -> Matrix:
        """An output; a vector is a row."""
        rows, columns = (1, *self.step.output_types[number].shape)[-2:]
        if self.step.output_types[number].ndim < self.step.input_types[0].ndim:
            rows = 1
        return dense(self.step.outputs[number], rows, columns)

    def room(self, rows: int, columns: int) -> Matrix:
        """Work memory."""
        return self.algebra().room(rows, columns)

    def integers(self, count: int) -> Place:
        """Work memory for numbers of 32 bits."""
        return self.work.place(4 * count * self.count)

    def launch(self, make: Callable[[Algebra], None]) -> None:
        """Launches next, on matrices of the input's dtype."""
        algebra = self.algebra()
        make(algebra)
        self.found.extend(algebra.launches)

    def call(
        self,
        routine: str,
        arrays: tuple[tuple[Place, int], ...],
        sizes: tuple[int, int],
        triangle: int = LOWER,
        vectors: str = "N",
        reflections: int = 0,
    ) -> None:
        """A call next: places with the bytes of a matrix, and rows and columns."""
        steps = tuple([nbytes for _, nbytes in arrays])
        dtype = self.step.input_types[0].dtype
        (m, n), count = sizes, self.count
        made = Factoring(
            routine, dtype, m, n, count, steps, triangle, vectors, reflections
        )
        self.found.append(Call(made, tuple([place for place, _ in arrays])))

    def listed(self, start: Place, nbytes: int) -> Place:
        """The addresses of arrays one behind the other, as an array, next."""
        found = self.work.place(8 * self.count)
        self.launch(lambda algebra: algebra.addresses(start, nbytes, found))
        return found

    def stack(self, made: Stack, *places: Place) -> None:
        """A call for all matrices next."""
        self.found.append(Call(made, places))

    def spoil(self, failed: Place) -> None:
        """NaN in all results of the matrices that have failed."""
        for number in range(len(self.step.outputs)):
            algebra = self.algebra(number)
            algebra.spoil(self.out(number), failed)
            self.found.extend(algebra.launches)
