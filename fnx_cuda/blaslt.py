"""Matrix products by cuBLASLt: which ones it takes, as descriptors and calls.

Receives a `MatmulStep`; gives a `Form`, which says all that an algorithm depends on,
and a `Matmul`, which runs it on addresses. The library's matrices are column-major:
row-major out = x @ y is outᵀ = yᵀ @ xᵀ there, so A is y, B is x, and the rows of D are
the columns of out. Next on the walk: `blaslt_tuning.py`.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import threading
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.records import record
from fnx.runtime.plan import MatmulStep, Matrices
from fnx_cuda import blaslt_api as api
from fnx_cuda.blaslt_api import MASK_UNIT, TYPES, VALUES_UNIT, Desc, Epilogue
from fnx_cuda.products_access import VECTOR

WORKSPACE = 32 << 20
"""The bytes of workspace of a product: what NVIDIA advises for Hopper."""

MOST_CALLS = 16
"""Calls of a product at most: a stack whose axes do not merge takes several."""

CANDIDATES = 8
"""Algorithms that are asked for."""

DType = np.dtype[Any]
Ints = tuple[int, ...]


@record
class Side:
    """A stack of matrices as the library sees it; numbers of elements.

    `alignment` is what divides every address of a matrix, in bytes.
    """

    leading: int
    transposed: bool
    stride: int
    alignment: int


@record
class Form:
    """All that decides how a product is best computed.

    out[m, n] = x[m, k] @ y[k, n], `count` times, then the epilogue. `aux_leading` is
    the leading dimension of what derivatives need, for an epilogue that has it.
    """

    dtype: DType
    out_dtype: DType
    m: int
    n: int
    k: int
    count: int
    out: Side
    x: Side
    y: Side
    tf32: bool = False
    epilogue: Epilogue = Epilogue.DEFAULT
    aux_leading: int = 0


@record
class Calls:
    """A step as calls of one form: for each the offsets of out, x and y in elements."""

    form: Form
    offsets: tuple[tuple[int, int, int], ...]


def calls(
    step: MatmulStep, epilogue: Epilogue = Epilogue.DEFAULT, aux_leading: int = 0
) -> Calls | None:
    """A step as calls of the library; `None` if it does not take it.

    One axis of the stack, the longest, is the library's; the others are calls.
    """
    product = step.product
    if (step.dtype, step.out_dtype) not in TYPES or product.work == 0:
        return None
    sizes = product.batch
    axis = max(range(len(sizes)), key=lambda a: sizes[a], default=None)
    rest = [a for a in range(len(sizes)) if a != axis]
    if math.prod(sizes[a] for a in rest) > MOST_CALLS:
        return None
    arrays = product.out, product.x, product.y
    form = Form(
        dtype=step.dtype,
        out_dtype=step.out_dtype,
        m=product.m,
        n=product.n,
        k=product.k,
        count=1 if axis is None else sizes[axis],
        out=_side(product.out, axis, step.out_dtype),
        x=_side(product.x, axis, step.dtype),
        y=_side(product.y, axis, step.dtype),
        tf32=step.tf32,
        epilogue=epilogue,
        aux_leading=aux_leading,
    )
    if refusal(form) is not None:
        return None
    indices = list(itertools.product(*[range(sizes[a]) for a in rest]))
    offsets = [
        tuple([_at(matrices, rest, index) for matrices in arrays]) for index in indices
    ]
    return Calls(form, tuple([(a, b, c) for a, b, c in offsets]))


def _side(matrices: Matrices, axis: int | None, dtype: DType) -> Side:
    alignment = VECTOR
    for number in (matrices.offset, *matrices.strides):
        alignment = math.gcd(alignment, number * dtype.itemsize)
    stride = 0 if axis is None else matrices.strides[axis]
    return Side(matrices.leading, matrices.transposed, stride, alignment)


def _at(matrices: Matrices, axes: list[int], index: Ints) -> int:
    """Where the first matrix is, at an index of some axes of the stack."""
    steps = zip(axes, index, strict=True)
    return matrices.offset + sum(matrices.strides[axis] * i for axis, i in steps)


def refusal(form: Form) -> str | None:
    """Why the library has no such product; `None` if it may have it.

    What depends on the device and on the version only the library knows.
    """
    epilogue = form.epilogue
    if (form.dtype, form.out_dtype) not in TYPES:
        return f"it does not multiply {form.dtype} to {form.out_dtype}"
    if form.out.transposed:
        return "the result is column by column"
    if epilogue != Epilogue.DEFAULT and dtypes.is_complex(form.dtype):
        return "complex products have no epilogue"
    if epilogue != Epilogue.DEFAULT and form.count > 1:
        return "one bias is for one product, not for a stack"
    if epilogue.sums_operand and form.tf32:
        return "the sums would be of operands that may be rounded"
    if not epilogue.has_aux:
        return "there is nothing for derivatives" if form.aux_leading else None
    unit = MASK_UNIT if epilogue.masks else VALUES_UNIT
    if form.aux_leading < form.n or form.aux_leading % unit:
        return f"the leading dimension for derivatives is no multiple of {unit}"
    return None


# ---------------------------------------------------------------- running


@record
class Candidate:
    """An algorithm: its bytes, and the bytes of workspace that it uses."""

    algorithm: bytes
    workspace: int


class Matmul:
    """A product of a form by the library, on a device.

    `candidates` are algorithms, the one first that the library takes for the fastest.
    Raises `NotSupported` if it has none.
    """

    def __init__(self, form: Form, device: int) -> None:
        self.form = form
        self.device = device
        types = TYPES[form.dtype, form.out_dtype]
        m, n, k, count = form.m, form.n, form.k, form.count
        x, y, out = form.x, form.y, form.out
        # A is y: the rows of a transposed one are its columns in memory.
        y_shape = (k, n) if y.transposed else (n, k)
        x_shape = (m, k) if x.transposed else (k, m)
        self._description = api.description(
            types, y.transposed, x.transposed, form.tf32
        )
        self._a = api.layout(types.data, *y_shape, y.leading, count, y.stride)
        self._b = api.layout(types.data, *x_shape, x.leading, count, x.stride)
        self._d = api.layout(types.out, n, m, out.leading, count, out.stride)
        self._set_epilogue(form)
        self._scalars = np.ones(1, types.scalar), np.zeros(1, types.scalar)
        # The description holds the addresses of the bias and of what derivatives need.
        self._lock = threading.Lock()

    def _set_epilogue(self, form: Form) -> None:
        if form.epilogue != Epilogue.DEFAULT:
            self._description.set(Desc.EPILOGUE, ctypes.c_uint32(form.epilogue))
        if form.epilogue.has_aux:
            leading = ctypes.c_int64(form.aux_leading)
            self._description.set(Desc.EPILOGUE_AUX_LD, leading)
            # What an algorithm may count on is taken from the addresses it is shown.
            shown = ctypes.c_uint64(VECTOR)
            self._description.set(Desc.EPILOGUE_AUX_POINTER, shown)
        if form.epilogue.has_bias:
            self._description.set(Desc.BIAS_POINTER, ctypes.c_uint64(VECTOR))

    def candidates(self) -> list[Candidate]:
        """Algorithms for the form, the one that the library prefers first."""
        form = self.form
        alignments = form.y.alignment, form.x.alignment, form.out.alignment
        preference = api.preference(WORKSPACE, alignments)
        found, number = (api.Found * CANDIDATES)(), ctypes.c_int()
        api.LIBRARY.call(
            "cublasLtMatmulAlgoGetHeuristic",
            api.handle(self.device),
            *self._descriptors(),
            preference.pointer,
            CANDIDATES,
            ctypes.byref(found),
            ctypes.byref(number),
        )
        return [
            Candidate(bytes(result.algorithm), result.workspace)
            for result in found[: number.value]
            if result.state == 0
        ]

    def run(
        self,
        candidate: Candidate,
        out: int,
        x: int,
        y: int,
        workspace: int,
        stream: int,
        bias: int = 0,
        aux: int = 0,
    ) -> None:
        """Starts the product on addresses, in the order of a stream.

        `workspace` is the address of the candidate's bytes of workspace. A bias is
        read, or its gradient written; `aux` is what derivatives need.
        """
        algorithm = api.Algorithm.from_buffer_copy(candidate.algorithm)
        one, zero = [scalar.ctypes.data for scalar in self._scalars]
        description, a, b, c, d = self._descriptors()
        with self._lock:
            if self.form.epilogue.has_bias:
                self._description.set(Desc.BIAS_POINTER, ctypes.c_uint64(bias))
            if self.form.epilogue.has_aux:
                self._description.set(Desc.EPILOGUE_AUX_POINTER, ctypes.c_uint64(aux))
            operands = one, y, a, x, b, zero, out, c, out, d
            how = ctypes.byref(algorithm), workspace, candidate.workspace
            handle = api.handle(self.device)
            api.LIBRARY.call(
                "cublasLtMatmul", handle, description, *operands, *how, stream
            )

    def _descriptors(self) -> tuple[Any, ...]:
        """What is computed, and the layouts of A, B, C and D; C is D, and not read."""
        described = self._description, self._a, self._b, self._d, self._d
        return tuple([each.pointer for each in described])
