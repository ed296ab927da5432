"""Matrix algebra in terms of primitives: what the rules of decompositions are made of.

Receives arrays whose last two axes are those of matrices; leading axes are a stack, the
same for all operands. Next on the walk: `family.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx import dtypes
from fnx.ops import parts
from fnx.ops.arithmetic import add, mul, select, sub
from fnx.ops.dot import dot_general
from fnx.ops.elementwise import convert, eq, ge
from fnx.ops.pieces import padded_along, part_of
from fnx.ops.reduce import reduce_sum
from fnx.ops.shape import broadcast_in_dim, iota, permute


def is_complex(x: Any) -> bool:
    """Whether an array is complex."""
    return dtypes.is_complex(x.type.dtype)


def conj(x: Any) -> Any:
    """The conjugate; the array itself if it is real."""
    return parts.conj(x) if is_complex(x) else x


def mT(x: Any) -> Any:
    """The transposed matrices."""
    n = x.type.ndim
    return permute(x, dims=(*range(n - 2), n - 1, n - 2))


def mH(x: Any) -> Any:
    """The conjugated transposed matrices."""
    return conj(mT(x))


def matmul(x: Any, y: Any) -> Any:
    """The product of two stacks of matrices."""
    n = x.type.ndim
    stack = tuple(range(n - 2))
    return dot_general(x, y, contract=((n - 1,), (n - 2,)), batch=(stack, stack))


def product(*matrices: Any) -> Any:
    """The product of several stacks of matrices, from left to right."""
    result, *rest = matrices
    for matrix in rest:
        result = matmul(result, matrix)
    return result


def rows(x: Any, begin: int, end: int) -> Any:
    """The rows from `begin` up to `end`."""
    return part_of(x, x.type.ndim - 2, begin, end)


def columns(x: Any, begin: int, end: int) -> Any:
    """The columns from `begin` up to `end`."""
    return part_of(x, x.type.ndim - 1, begin, end)


def extended(x: Any, m: int, n: int) -> Any:
    """The matrices with zeros around, as large as that."""
    ndim = x.type.ndim
    x = padded_along(x, ndim - 2, 0, m - x.type.shape[-2])
    return padded_along(x, ndim - 1, 0, n - x.type.shape[-1])


def band(x: Any, offset: int = 0) -> Any:
    """The mask of a matrix's lower triangle, up to the diagonal of that number."""
    shape, n = x.type.shape, x.type.ndim
    row = iota(shape=shape, dtype=dtypes.int32, axis=n - 2)
    column = iota(shape=shape, dtype=dtypes.int32, axis=n - 1)
    return ge(add(row, offset), column)


def on_diagonal(x: Any) -> Any:
    """The mask of a matrix's diagonal."""
    shape, n = x.type.shape, x.type.ndim
    row = iota(shape=shape, dtype=dtypes.int32, axis=n - 2)
    return eq(row, iota(shape=shape, dtype=dtypes.int32, axis=n - 1))


def tril(x: Any, offset: int = 0) -> Any:
    """The lower triangle, and zeros."""
    return select(band(x, offset), x, 0)


def triu(x: Any, offset: int = 0) -> Any:
    """The upper triangle, and zeros."""
    return select(band(x, offset - 1), 0, x)


def diagonal(x: Any) -> Any:
    """The diagonals of square matrices."""
    return reduce_sum(select(on_diagonal(x), x, 0), axes=(x.type.ndim - 1,))


def along_rows(w: Any, like: Any) -> Any:
    """A vector's elements, each repeated along a row of matrices like that."""
    dims = tuple(range(w.type.ndim))
    return broadcast_in_dim(w, shape=like.type.shape, dims=dims)


def along_columns(w: Any, like: Any) -> Any:
    """A vector's elements, each repeated along a column of matrices like that."""
    n = w.type.ndim
    return broadcast_in_dim(w, shape=like.type.shape, dims=(*range(n - 1), n))


def with_diagonal(x: Any, w: Any) -> Any:
    """Square matrices with that diagonal in place of theirs."""
    return select(on_diagonal(x), along_rows(w, x), x)


def scaled_columns(x: Any, w: Any) -> Any:
    """The product x @ diag(w)."""
    return mul(x, along_columns(w, x))


def scaled_rows(x: Any, w: Any) -> Any:
    """diag(w) @ x."""
    return mul(x, along_rows(w, x))


def symmetric(x: Any, lower: bool) -> Any:
    """The Hermitian matrices of which x has a triangle; the other one is not read."""
    half = tril(x, -1) if lower else triu(x, 1)
    own = select(on_diagonal(x), x, 0)
    own = mul(add(own, conj(own)), 0.5) if is_complex(x) else own
    return add(add(half, mH(half)), own)


def hermitian_part(x: Any) -> Any:
    """(x + xᴴ) / 2."""
    return mul(add(x, mH(x)), 0.5)


def skew_part(x: Any) -> Any:
    """(x - xᴴ) / 2."""
    return mul(sub(x, mH(x)), 0.5)


def as_dtype(x: Any, dtype: Any) -> Any:
    """The array in that dtype, as weak as it was."""
    if x.type.dtype == dtype:
        return x
    return convert(x, dtype=dtype, weak=x.type.weak)


def sum_of(terms: Sequence[Any]) -> Any:
    """The sum of arrays."""
    total, *rest = terms
    for term in rest:
        total = add(total, term)
    return total
