"""Which contractions are steps, as matrix products of a backend, and not folds.

Receives dtypes and sizes; a backend says by `Products` what it has and what pays.
Those of BLAS are here. Next on the walk: `fuse.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx import dtypes
from fnx.core.attended import Attended
from fnx.core.layout import Convolved
from fnx.core.program import Eqn
from fnx.core.types import ArrayType
from fnx.records import record
from fnx.sizes import usual

if TYPE_CHECKING:
    from fnx.compiler.places import Draft, Value

DType = np.dtype[Any]

FOLDED_WORK, FOLDED_ITEM = 1024, 4096
"""Up to so many multiply-adds, in all or for each matrix of a stack, a fold in a kernel
is no slower than a step."""


@record
class Products:
    """The matrix products of a backend.

    `has(dtype, out_dtype)` says whether there are some of operands of a dtype with
    results of another one, `pays(stack, m, n, k)` whether they are worth a step where
    a fold in a kernel serves, too. `convolves(dtype, out_dtype, convolved)` says which
    convolutions are steps; the others are folds. Where it is `None`, convolutions are
    made of matrix products. `copies(dtype, out_dtype, convolved)` says which axis of x
    had better be innermost, its "batch" or its "features", where a copy of x is worth
    it. `attends(part, attended, types)` says which attentions, or gradients of such,
    are steps, by the types of what they are given; the others are their programs.
    `joins(drafts, placed)` makes one step of products and kernels that the backend
    may compute at once; values that are `placed` are needed outside of the plan.
    """

    has: Callable[[DType, DType], bool]
    pays: Callable[[int, int, int, int], bool]
    convolves: Callable[[DType, DType, Convolved], bool] | None = None
    copies: Callable[[DType, DType, Convolved], str | None] | None = None
    joins: Callable[[Sequence[Draft], Container[Value]], list[Draft]] | None = None
    attends: Callable[[str, Attended, Sequence[ArrayType]], bool] | None = None

    def convolution(self, eqn: Eqn) -> tuple[DType, DType, Convolved] | None:
        """The convolution that an equation is, where the backend is asked about it."""
        if self.convolves is None:
            return None
        types = [atom.type for atom in eqn.inputs]
        return eqn.primitive.convolved(types, eqn.params)

    def has_attention(self, eqn: Eqn) -> bool:
        """Whether an equation is an attention that is a step, and not its program."""
        if self.attends is None:
            return False
        found = eqn.primitive.attends(**eqn.params)
        types = [atom.type for atom in eqn.inputs]
        return found is not None and self.attends(*found, types)


def is_small(stack: int, m: int, n: int, k: int) -> bool:
    """Whether a fold is no slower, whatever the machine."""
    work = usual(m * n * k)
    return k <= 1 or usual(stack) * work <= FOLDED_WORK or work <= FOLDED_ITEM


_BLAS_DTYPES = (
    dtypes.float32,
    dtypes.float64,
    dtypes.complex64,
    dtypes.complex128,
)


def _blas_has(dtype: DType, out_dtype: DType) -> bool:
    return dtype == out_dtype and dtype in _BLAS_DTYPES


def _blas_pays(stack: int, m: int, n: int, k: int) -> bool:
    # A product with a vector moves memory, which kernels do as well.
    return 1 not in (m, n) and not is_small(stack, m, n, k)


BLAS = Products(_blas_has, _blas_pays)
"""What BLAS has: products of floats and complex numbers of 32 and 64 bits."""
