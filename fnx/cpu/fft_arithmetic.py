"""Transforms of a few complex numbers in registers, each a pair of vectors.

Receives an `Assembly` and names of registers, gives names of registers: the discrete
Fourier transform of 2 to 8 numbers, and products. Numbers of 4 and 8 are transformed
by halves; of odd ones those at both sides of the middle are summed first, which halves
the products. Next on the walk: `fft_moves.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fnx.cpu.assembly import Assembly
from fnx.cpu.fft_roots import roots
from fnx.cpu.llvm import literal
from fnx.dtypes import float32, float64
from fnx.records import record

RADICES = (2, 3, 4, 5, 7, 8)
"""How many numbers are transformed at once."""

Number = tuple[str, str]
"""The registers of a real and of an imaginary part."""


@record
class Lanes:
    """The vectors that hold parts of numbers: so many, of a type of 4 or 8 bytes."""

    count: int
    nbytes: int

    @property
    def element(self) -> str:
        """The type of an element."""
        return "float" if self.nbytes == 4 else "double"

    @property
    def vector(self) -> str:
        """The type of a vector."""
        return f"<{self.count} x {self.element}>"

    @property
    def suffix(self) -> str:
        """By which intrinsics tell it from others."""
        return f"v{self.count}f{8 * self.nbytes}"

    @property
    def row(self) -> int:
        """The bytes of a vector of numbers: real parts, then imaginary ones."""
        return 2 * self.count * self.nbytes

    def splat(self, value: float) -> str:
        """A constant in every lane."""
        dtype = float32 if self.nbytes == 4 else float64
        number = float(dtype.type(value))
        return f"splat ({self.element} {literal(number, dtype)})"


class Arithmetic:
    """Writes operations on vectors of complex numbers."""

    def __init__(self, a: Assembly, lanes: Lanes) -> None:
        self.a = a
        self.lanes = lanes

    def real(self, operation: str, x: str, y: str) -> str:
        """An operation on real vectors."""
        return self.a.value(f"{operation} {self.lanes.vector} {x}, {y}")

    def fma(self, x: str, y: str, z: str) -> str:
        """The sum x y + z."""
        v = self.lanes.vector
        name = f"llvm.fmuladd.{self.lanes.suffix}"
        return self.a.value(f"call {v} @{name}({v} {x}, {v} {y}, {v} {z})")

    def negative(self, x: str) -> str:
        """-x."""
        return self.a.value(f"fneg {self.lanes.vector} {x}")

    def add(self, x: Number, y: Number) -> Number:
        """The sum x + y."""
        return self.real("fadd", x[0], y[0]), self.real("fadd", x[1], y[1])

    def sub(self, x: Number, y: Number) -> Number:
        """The difference x - y."""
        return self.real("fsub", x[0], y[0]), self.real("fsub", x[1], y[1])

    def times(self, x: Number, y: Number) -> Number:
        """The product x y."""
        minus = self.negative(self.real("fmul", x[1], y[1]))
        plus = self.real("fmul", x[1], y[0])
        return self.fma(x[0], y[0], minus), self.fma(x[0], y[1], plus)

    def scaled(self, x: Number, factor: str) -> Number:
        """A number times a real one."""
        return self.real("fmul", x[0], factor), self.real("fmul", x[1], factor)

    def add_turned(self, x: Number, y: Number) -> Number:
        """The sum x + i y."""
        return self.real("fsub", x[0], y[1]), self.real("fadd", x[1], y[0])

    def sub_turned(self, x: Number, y: Number) -> Number:
        """The difference x - i y."""
        return self.real("fadd", x[0], y[1]), self.real("fsub", x[1], y[0])

    # -- transforms

    def transform(self, x: Sequence[Number]) -> list[Number]:
        """The sums over j of x[j] exp(-2 pi i j k / n), for each k."""
        match len(x):
            case 2:
                return [self.add(*x), self.sub(*x)]
            case 4:
                return self._four(*x)
            case 8:
                return self._eight(x)
        return self._odd(x)

    def _four(self, a: Number, b: Number, c: Number, d: Number) -> list[Number]:
        even, odd = (self.add(a, c), self.sub(a, c)), (self.add(b, d), self.sub(b, d))
        return [
            self.add(even[0], odd[0]),
            self.sub_turned(even[1], odd[1]),
            self.sub(even[0], odd[0]),
            self.add_turned(even[1], odd[1]),
        ]

    def _eight(self, x: Sequence[Number]) -> list[Number]:
        even, odd = self._four(*x[::2]), self._four(*x[1::2])
        half = self.lanes.splat(math.sqrt(0.5))
        # Odd numbers are turned by eighths: 1 - i and -1 - i, times the root of 1/2.
        one = self.scaled(self.sub_turned(odd[1], odd[1]), half)
        three = self.scaled(self.add_turned(odd[3], odd[3]), half)
        return [
            self.add(even[0], odd[0]),
            self.add(even[1], one),
            self.sub_turned(even[2], odd[2]),
            self.sub(even[3], three),
            self.sub(even[0], odd[0]),
            self.sub(even[1], one),
            self.add_turned(even[2], odd[2]),
            self.add(even[3], three),
        ]

    def _odd(self, x: Sequence[Number]) -> list[Number]:
        n = len(x)
        half = range(1, n // 2 + 1)
        turns = roots(np.arange(n), n, "float64").tolist()
        sums = [self.add(x[j], x[n - j]) for j in half]
        differences = [self.sub(x[j], x[n - j]) for j in half]
        found = [x[0]] * n
        for number in sums:
            found[0] = self.add(found[0], number)
        for k in half:
            cosines = [self.lanes.splat(turns[j * k % n][0]) for j in half]
            sines = [self.lanes.splat(-turns[j * k % n][1]) for j in half]
            even, odd = x[0], self.scaled(differences[0], sines[0])
            for cosine, number in zip(cosines, sums, strict=True):
                even = self._more(number, cosine, even)
            for sine, number in zip(sines[1:], differences[1:], strict=True):
                odd = self._more(number, sine, odd)
            found[k] = self.sub_turned(even, odd)
            found[n - k] = self.add_turned(even, odd)
        return found

    def _more(self, x: Number, factor: str, total: Number) -> Number:
        return self.fma(x[0], factor, total[0]), self.fma(x[1], factor, total[1])
