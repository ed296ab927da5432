"""Operations on the representation of numbers: bits, real and imaginary parts.

Elementwise primitives, one a line where a family has the rules. Real and imaginary part
are linear; their transposes follow JAX's convention, in which a cotangent pairs with a
tangent by the real part of the product, without conjugation.
Next on the walk: `elementwise.py`, the table of functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.core.primitive import is_linear
from fnx.core.types import ArrayType
from fnx.ops import formulas
from fnx.ops.arithmetic import neg
from fnx.ops.families import (
    ANY,
    BOOL,
    COMPLEX,
    FLOAT,
    INTEGER,
    REAL,
    STORED,
    Elementwise,
    Predicate,
    Stepwise,
)

# ---------------------------------------------------------------- bits


class _Bitcast(Stepwise):
    """bitcast(x, dtype): the same bits as another dtype of the same width."""

    def infer(self, x: ArrayType, *, dtype: np.dtype[Any]) -> ArrayType:
        """The shape of the operand; the dtypes have equal widths and are not bool."""
        self.check_dtypes((x,))
        if dtype.kind == "b" or dtype.itemsize != x.dtype.itemsize:
            raise errors.DTypeError(
                f"bitcast: {x} to {dtypes.short(dtype)}: both must be numbers of the "
                "same width. To change the value's dtype use convert."
            )
        return x.with_dtype(dtype).strong()

    def reference(self, x: Any, *, dtype: np.dtype[Any]) -> Any:
        """A view of the same memory."""
        return np.asarray(x).view(dtype)

    def element(self, k: Any, index: Any, x: Any, *, dtype: np.dtype[Any]) -> Any:
        """The same bits."""
        return k.bitcast(x(index), dtype)

    def identity(self, inputs: Sequence[Any], *, dtype: np.dtype[Any]) -> Any:
        """A bitcast to the same dtype."""
        return inputs[0]


class _NextAfter(Stepwise):
    """nextafter(x, y): the number beside x in the direction of y."""

    def reference(self, x: Any, y: Any) -> Any:
        """NumPy's, in the operands' own dtype: 16-bit neighbours are 16-bit numbers."""
        return np.asarray(np.where(x == y, y, np.nextafter(x, y)), x.dtype)

    def element(self, k: Any, index: Any, x: Any, y: Any) -> Any:
        """The same, for the same reason on the operands as they are."""
        return formulas.nextafter_element(k, x(index), y(index))


and_ = Stepwise("and", BOOL + INTEGER, np.bitwise_and, commutative=True, cheap=True)
or_ = Stepwise("or", BOOL + INTEGER, np.bitwise_or, commutative=True, cheap=True)
xor = Stepwise("xor", BOOL + INTEGER, np.bitwise_xor, commutative=True, cheap=True)
not_ = Stepwise("not", BOOL + INTEGER, np.invert, cheap=True)
shift_left = Stepwise("shift_left", INTEGER, np.left_shift, scalar="shl", cheap=True)
shift_right_logical = Stepwise(
    "shift_right_logical",
    INTEGER,
    formulas.row("shr_logical"),
    scalar="shr_logical",
    cheap=True,
)
shift_right_arithmetic = Stepwise(
    "shift_right_arithmetic",
    INTEGER,
    formulas.row("shr_arithmetic"),
    scalar="shr_arithmetic",
    cheap=True,
)
population_count = Stepwise(
    "population_count", INTEGER, formulas.row("population_count"), cheap=True
)
clz = Stepwise("clz", INTEGER, formulas.row("clz"), cheap=True)
is_finite = Predicate("is_finite", FLOAT, np.isfinite, cheap=True)
bitcast = _Bitcast("bitcast", REAL + STORED, np.asarray, cheap=True)
nextafter = _NextAfter("nextafter", FLOAT, np.nextafter)
stop_gradient = Stepwise(
    "stop_gradient", ANY + STORED, np.asarray, scalar=lambda k, x: x, cheap=True
)


# ---------------------------------------------------------------- complex numbers


class _Part(Elementwise):
    """real and imag: a linear map from complex to real numbers."""

    linear = True

    def result_dtype(self, *operands: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype of the parts."""
        return dtypes.real_dtype(operands[0])

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """The part of the tangent."""
        return self(*primals), self(*tangents)

    def transpose(self, ct: Any, z: Any) -> Sequence[Any]:
        """Real parts: re z pairs with ct as z with ct, im z as z with -i ct."""
        return (complex_(ct, 0.0) if self is real else complex_(0.0, neg(ct)),)


class _Complex(Elementwise):
    """complex(x, y): the number x + iy."""

    linear = True

    def check_dtypes(self, types: Sequence[ArrayType]) -> None:
        """There are no complex numbers of two 16-bit floats."""
        super().check_dtypes(types)
        if types[0].dtype.itemsize == 2:
            raise errors.DTypeError(
                f"complex: there is no complex dtype with parts of {types[0].dtype}; "
                "convert them to float32"
            )

    def result_dtype(self, *operands: np.dtype[Any]) -> np.dtype[Any]:
        """The complex dtype with parts of the operands' dtype."""
        return dtypes.complex_dtype(operands[0])

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """The same of the tangents."""
        return self(*primals), self(*[0.0 if t is None else t for t in tangents])

    def transpose(self, ct: Any, x: Any, y: Any) -> Sequence[Any]:
        """Real parts: re((x + iy) ct) = x re(ct) - y im(ct)."""
        return (
            real(ct) if is_linear(x) else None,
            neg(imag(ct)) if is_linear(y) else None,
        )


class _Conj(Elementwise):
    linear = True

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """The conjugate of the tangent."""
        return conj(*primals), conj(*tangents)

    def transpose(self, ct: Any, z: Any) -> Sequence[Any]:
        """Real parts: re(conj(z) ct) = re(z conj(ct))."""
        return (conj(ct),)


real = _Part("real", COMPLEX, np.real, scalar=lambda k, z: z.re, cheap=True)
imag = _Part("imag", COMPLEX, np.imag, scalar=lambda k, z: z.im, cheap=True)
complex_ = _Complex(
    "complex", FLOAT, formulas.join, scalar=formulas.join_element, cheap=True
)
conj = _Conj("conj", COMPLEX, np.conj, scalar=formulas.conj_element, cheap=True)
