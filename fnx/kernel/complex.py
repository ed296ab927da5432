"""Complex scalars: pairs of real expressions, so that the scalar table stays real.

A complex array lies in memory as NumPy has it, real and imaginary parts in turns: to a
kernel it is a buffer of twice as many real numbers. The builder (`build.py`) hands
rules a `Complex` where an operand is complex, and comes here with every operation on
one. So schedules, checkers and printers never see a complex number, and the part of a
value that nobody reads is never computed. Next on the walk: `math_complex.py`, which
computes the functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fnx import dtypes
from fnx.dtypes import DType
from fnx.errors import InternalError
from fnx.kernel import math_complex, math_complex_log
from fnx.kernel.expr import Buffer, Expr
from fnx.kernel.math_complex import Pair
from fnx.kernel.math_value import Value
from fnx.records import record

if TYPE_CHECKING:  # build.py imports this file
    from fnx.kernel.build import KernelBuilder


@record
class Complex:
    """The number re + i im: two expressions of one float dtype."""

    re: Expr
    im: Expr

    @property
    def dtype(self) -> DType:
        """The complex dtype with such parts."""
        return dtypes.complex_dtype(self.re.dtype)


@record(eq=False)
class ComplexBuffer:
    """A buffer of complex numbers: the real one that has their parts in turns."""

    parts: Buffer
    dtype: DType


FUNCTIONS: dict[str, Callable[..., Pair | Value]] = {
    function.__name__.rstrip("_"): function
    for function in (
        *(math_complex.add, math_complex.sub, math_complex.neg, math_complex.mul),
        *(math_complex.div, math_complex.eq, math_complex.ne, math_complex.abs_),
        *(math_complex.sign, math_complex.sqrt, math_complex.rsqrt),
        *(math_complex.exp, math_complex.exp2, math_complex.expm1),
        *(math_complex.logistic, math_complex.sinh, math_complex.cosh),
        *(math_complex.tanh, math_complex.sin, math_complex.cos, math_complex.tan),
        *(math_complex_log.log, math_complex_log.log1p, math_complex_log.pow),
        *(math_complex_log.asin, math_complex_log.acos, math_complex_log.atan),
        *(math_complex_log.asinh, math_complex_log.acosh, math_complex_log.atanh),
    )
}


def apply(k: KernelBuilder, name: str, args: tuple[Any, ...]) -> Any:
    """An operation of the scalar table, or of `math_complex.py`, on complex numbers.

    `select` takes a boolean first; comparisons and `abs` give real values.
    """
    if name == "select":
        cond, x, y = args
        re = k.op("select", cond, x.re, y.re)
        return Complex(re, k.op("select", cond, x.im, y.im))
    function = FUNCTIONS.get(name)
    if function is None or not all(isinstance(arg, Complex) for arg in args):
        given = ", ".join(dtypes.short(arg.dtype) for arg in args)
        raise InternalError(f"there is no complex scalar operation {name}({given})")
    result = function(*[Pair(Value(k, z.re), Value(k, z.im)) for z in args])
    if isinstance(result, Value):
        return result.expr
    return Complex(result.re.expr, result.im.expr)


def convert(k: KernelBuilder, x: Expr | Complex, dtype: DType) -> Any:
    """To or from a complex dtype; the reals lose the imaginary part, a bool is != 0."""
    if not dtypes.is_complex(dtype):
        assert isinstance(x, Complex)
        if not dtypes.is_bool(dtype):
            return k.convert(x.re, dtype)
        return k.or_(k.convert(x.re, dtype), k.convert(x.im, dtype))
    real = dtypes.real_dtype(dtype)
    if isinstance(x, Complex):
        return Complex(k.convert(x.re, real), k.convert(x.im, real))
    return Complex(k.convert(x, real), k.constant(0.0, real))
