"""What the kernels of products ask: where elements are, where results go.

A kernel of tiles asks its operands for the element at a row (of x, or a column of y)
and a place along k: `Access` has the functions that answer, as text, and how many
elements may be moved at once. What is multiplied is a `Contraction`: matrices
(`products_problem.py`), or a convolution (`convolution_problem.py`). Its numbers are
the parameter struct of a kernel, so that products of many shapes share one text.
Next on the walk: `products_problem.py`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from fnx.records import record
from fnx.runtime.plan import Place

DType = np.dtype[Any]
Ints = tuple[int, ...]

VECTOR = 16
"""Bytes that a thread reads or writes at once at most; all memory of arrays is aligned
to as many."""


@record
class Access:
    """How a kernel of tiles moves what it multiplies.

    So many elements of x and y lie side by side, along k or not; 32 bits hold every
    index, or not. A thread finds so many places `at_once`: where that takes many
    registers, they are few. `text` has the types `XSource` and `YSource`, and the
    functions `x_source` and `y_source` that make them.
    """

    x_width: int
    y_width: int
    x_along: bool
    y_along: bool
    is_short: bool
    at_once: int
    text: str


class Placed(Protocol):
    """An array: its memory, and where the first matrix of each item of a stack lies."""

    @property
    def place(self) -> Place:
        """The memory."""
        ...

    @property
    def offset(self) -> int:
        """Where the first item lies, in elements."""
        ...

    @property
    def strides(self) -> Ints:
        """The strides of the stack's axes."""
        ...


class Contraction(Protocol):
    """out[m, n] = x[m, k] @ y[k, n] for each item of a stack, wherever these lie."""

    @property
    def dtype(self) -> DType:
        """The dtype of the operands."""
        ...

    @property
    def out_dtype(self) -> DType:
        """The dtype of results."""
        ...

    @property
    def tf32(self) -> bool:
        """Whether operands of float32 may be rounded to 10 bits."""
        ...

    @property
    def batch(self) -> Ints:
        """The shape of the stack."""
        ...

    @property
    def stack(self) -> int:
        """The number of products."""
        ...

    @property
    def m(self) -> int:
        """The rows."""
        ...

    @property
    def n(self) -> int:
        """The columns."""
        ...

    @property
    def k(self) -> int:
        """The products that are summed."""
        ...

    @property
    def out(self) -> Placed:
        """The results."""
        ...

    @property
    def x(self) -> Placed:
        """The operand with the rows."""
        ...

    @property
    def y(self) -> Placed:
        """The operand with the columns."""
        ...

    @property
    def out_width(self) -> int:
        """How many results of a row may be written at once."""
        ...

    def access(self, parameters: Parameters) -> Access:
        """How tiles are moved; adds the numbers that the text needs."""
        ...

    def target(self, parameters: Parameters) -> str:
        """The text of `out_place`, where results lie; adds the numbers it needs."""
        ...


# ---------------------------------------------------------------- parameters


class Parameters:
    """The parameter struct of a kernel: addresses, then numbers, each with its name.

    Those of 64 bits come before those of 32, so that there are no gaps.
    """

    def __init__(self, *pointers: str) -> None:
        self._pointers = pointers
        self._wide: dict[str, int | Ints] = {}
        self._short: dict[str, int | Ints] = {}

    def wide(self, **numbers: int | Ints) -> None:
        """Adds numbers of the type `long long`; tuples become arrays."""
        self._wide.update(numbers)

    def short(self, **numbers: int | Ints) -> None:
        """Adds numbers of the type `int`; tuples become arrays."""
        self._short.update(numbers)

    def has(self, name: str) -> bool:
        """Whether there is such a number."""
        return name in self._wide or name in self._short

    @property
    def text(self) -> str:
        """The struct `P`."""
        lines = [
            *self._pointers,
            *_declared("long long", self._wide),
            *_declared("int", self._short),
        ]
        return "struct P {\n" + "".join(f"  {line};\n" for line in lines) + "};\n"

    @property
    def numbers(self) -> bytes:
        """The bytes after the addresses, as many as the struct has in C."""
        wide, short = _flat(self._wide), _flat(self._short)
        packed = struct.pack(f"<{len(wide)}q{len(short)}i", *wide, *short)
        return packed + b"\0" * (-len(packed) % 8)


def _declared(type: str, numbers: Mapping[str, int | Ints]) -> list[str]:
    return [
        f"{type} {name}[{len(value)}]" if isinstance(value, tuple) else f"{type} {name}"
        for name, value in numbers.items()
    ]


def _flat(numbers: Mapping[str, int | Ints]) -> list[int]:
    rows = [v if isinstance(v, tuple) else (v,) for v in numbers.values()]
    return [number for row in rows for number in row]


def place_parameters(
    parameters: Parameters, batch: Ints, out: Placed, x: Placed, y: Placed
) -> str:
    """Adds what says where items lie; the text of the function `place`.

    It gives the places of the matrices of an item: three numbers of elements.
    """
    offsets = out.offset, x.offset, y.offset
    if math.prod(batch) == 1:
        parameters.wide(offsets=offsets)
        return _PLACE_OF_ONE
    parameters.wide(
        offsets=offsets,
        out_strides=out.strides,
        x_strides=x.strides,
        y_strides=y.strides,
    )
    parameters.short(batch=batch)
    return _PLACE % len(batch)


_PLACE_OF_ONE = """
__device__ __forceinline__ void place(const P& p, int item, long long at[3]) {
  at[0] = p.offsets[0], at[1] = p.offsets[1], at[2] = p.offsets[2];
}
"""

_PLACE = """
__device__ __forceinline__ void place(const P& p, int item, long long at[3]) {
  at[0] = p.offsets[0], at[1] = p.offsets[1], at[2] = p.offsets[2];
#pragma unroll
  for (int axis = %d - 1; axis >= 0; --axis) {
    const int index = item %% p.batch[axis];
    item /= p.batch[axis];
    at[0] += index * p.out_strides[axis];
    at[1] += index * p.x_strides[axis];
    at[2] += index * p.y_strides[axis];
  }
}
"""
