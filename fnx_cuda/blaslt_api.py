"""cuBLASLt through ctypes: its functions, the numbers of its attributes, its structs.

CuPy has no cuBLASLt, and its cuBLAS cannot be captured in graphs; here the workspace
and the stream are arguments of each call, so a product can be. Receives Python numbers
and addresses; raises `NotSupported` where the library has no such product and another
`LibraryError` for everything else that goes wrong. Next on the walk: `blaslt.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64
from enum import IntEnum
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.records import record
from fnx_cuda.called import Library, LibraryError

DType = np.dtype[Any]


class NotSupported(LibraryError):
    """cuBLASLt has no such product."""


STATUS = {
    1: "not initialized",
    3: "an allocation failed",
    7: "invalid value",
    8: "the device lacks a feature",
    11: "mapping error",
    13: "execution failed",
    14: "internal error",
    15: "not supported",
    16: "licence error",
}
"""cublasStatus_t."""

NOT_SUPPORTED = 15


class Desc(IntEnum):
    """cublasLtMatmulDescAttributes_t."""

    TRANSA = 3
    TRANSB = 4
    EPILOGUE = 7
    BIAS_POINTER = 8
    EPILOGUE_AUX_POINTER = 11
    EPILOGUE_AUX_LD = 12


class Layout(IntEnum):
    """cublasLtMatrixLayoutAttribute_t."""

    BATCH_COUNT = 5
    STRIDED_BATCH_OFFSET = 6


class Pref(IntEnum):
    """cublasLtMatmulPreferenceAttributes_t."""

    MAX_WORKSPACE_BYTES = 1
    REDUCTION_SCHEME_MASK = 3
    MIN_ALIGNMENT_A_BYTES = 5
    MIN_ALIGNMENT_B_BYTES = 6
    MIN_ALIGNMENT_C_BYTES = 7
    MIN_ALIGNMENT_D_BYTES = 8


class Epilogue(IntEnum):
    """cublasLtEpilogue_t: what happens to a product before it is written.

    RELU and GELU (by tanh) follow the bias. With AUX, what their derivative needs is
    written, too: a mask of bits, or the values before GELU. DRELU and DGELU multiply
    by the derivative, which they take from there; with BGRAD they write the sums over
    the rows of the result, the gradient of the bias. BGRADA and BGRADB write those of
    an operand, over what the product itself sums over.
    """

    DEFAULT = 1
    RELU = 2
    BIAS = 4
    RELU_BIAS = 6
    GELU = 32
    GELU_BIAS = 36
    RELU_AUX = 130
    RELU_AUX_BIAS = 134
    DRELU = 136
    DRELU_BGRAD = 152
    GELU_AUX = 160
    GELU_AUX_BIAS = 164
    DGELU = 192
    DGELU_BGRAD = 208
    BGRADA = 256
    BGRADB = 512

    @property
    def has_bias(self) -> bool:
        """Whether it reads a bias or writes the gradient of one."""
        return bool(self & (4 | 16 | 256 | 512))

    @property
    def has_aux(self) -> bool:
        """Whether it writes or reads what the derivative needs."""
        return bool(self & 128)

    @property
    def masks(self) -> bool:
        """Whether that is a mask of bits."""
        return bool(self & (2 | 8))

    @property
    def sums_operand(self) -> bool:
        """Whether it writes the sums of an operand."""
        return bool(self & (256 | 512))


MASK_UNIT, VALUES_UNIT = 128, 8
"""What divides the leading dimension of a mask, in bits, and of values before GELU."""

TRANSPOSED = {False: 0, True: 1}
"""cublasOperation_t."""

COMPUTE_TYPE = 2
"""cublasLtReductionScheme_t: splits of k are kept and added in the type of sums, so
that a result is rounded once. Without splits every scheme is allowed."""


class Data(IntEnum):
    """cudaDataType_t."""

    R_32F = 0
    R_64F = 1
    R_16F = 2
    C_32F = 4
    C_64F = 5
    R_16BF = 14


class Compute(IntEnum):
    """cublasComputeType_t; with TF32, operands of float32 are rounded to 10 bits."""

    COMPUTE_32F = 68
    COMPUTE_32F_FAST_TF32 = 77
    COMPUTE_64F = 70


@record
class Types:
    """What dtypes are called: of operands, results and sums, and where scalars are."""

    data: Data
    out: Data
    compute: Compute
    scale: Data
    scalar: DType


def _types(data: Data, out: Data, scalar: DType) -> Types:
    wide = dtypes.real_dtype(scalar) == dtypes.float64
    compute = Compute.COMPUTE_64F if wide else Compute.COMPUTE_32F
    scale = {
        dtypes.float32: Data.R_32F,
        dtypes.float64: Data.R_64F,
        dtypes.complex64: Data.C_32F,
        dtypes.complex128: Data.C_64F,
    }
    return Types(data, out, compute, scale[scalar], scalar)


_NAMES: dict[DType, Data] = {
    dtypes.float16: Data.R_16F,
    dtypes.bfloat16: Data.R_16BF,
    dtypes.float32: Data.R_32F,
    dtypes.float64: Data.R_64F,
    dtypes.complex64: Data.C_32F,
    dtypes.complex128: Data.C_64F,
}

TYPES: dict[tuple[DType, DType], Types] = {
    (dtype, out): _types(_NAMES[dtype], _NAMES[out], dtypes.compute_dtype(dtype))
    for dtype in _NAMES
    for out in dict.fromkeys((dtype, dtypes.compute_dtype(dtype)))
}
"""The dtypes of operands and results that cuBLASLt multiplies."""


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t: its bytes mean the same to the same version."""

    _fields_ = (("data", c_uint64 * 8),)


class Found(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", Algorithm),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


# ---------------------------------------------------------------- the library

_handle = ctypes.c_void_p
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (_handle,),
    "cublasLtMatmulDescCreate": (_handle, c_int, c_int),
    "cublasLtMatmulDescDestroy": (_handle,),
    "cublasLtMatmulDescSetAttribute": (_handle, c_int, _handle, c_size_t),
    "cublasLtMatrixLayoutCreate": (_handle, c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatrixLayoutDestroy": (_handle,),
    "cublasLtMatrixLayoutSetAttribute": (_handle, c_int, _handle, c_size_t),
    "cublasLtMatmulPreferenceCreate": (_handle,),
    "cublasLtMatmulPreferenceDestroy": (_handle,),
    "cublasLtMatmulPreferenceSetAttribute": (_handle, c_int, _handle, c_size_t),
    "cublasLtMatmulAlgoGetHeuristic": (*[_handle] * 7, c_int, _handle, _handle),
    "cublasLtMatmul": (*[_handle] * 14, c_size_t, _handle),
}


def declare(found: ctypes.CDLL) -> None:
    """Tells ctypes the types of the functions: sizes and addresses have 64 bits."""
    for name, types in _SIGNATURES.items():
        function = getattr(found, name)
        function.argtypes, function.restype = types, c_int
    found.cublasLtGetVersion.argtypes = ()
    found.cublasLtGetVersion.restype = c_size_t


def _failed(function: str, status: int) -> LibraryError:
    kind = NotSupported if status == NOT_SUPPORTED else LibraryError
    return kind(function, status, STATUS.get(status, "?"))


LIBRARY = Library("cublasLt", declare, _failed)


def version() -> int:
    """The version of the library: 120903 for 12.9.3."""
    return int(LIBRARY.function("cublasLtGetVersion")())


def handle(device: int) -> Any:
    """This thread's handle for a device, which is the current one."""
    return LIBRARY.made("cublasLtCreate", device)


# ---------------------------------------------------------------- descriptors


class Described:
    """A descriptor of the library; it goes with the last reference."""

    def __init__(self, kind: str, *arguments: Any) -> None:
        self.kind = kind
        self.pointer: int | None = None
        self._destroy = LIBRARY.function(f"cublasLt{kind}Destroy")
        made = ctypes.c_void_p()
        LIBRARY.call(f"cublasLt{kind}Create", ctypes.byref(made), *arguments)
        self.pointer = made.value

    def set(self, attribute: IntEnum, value: Any) -> None:
        """Sets an attribute to a number of ctypes."""
        size = ctypes.sizeof(value)
        name = f"cublasLt{self.kind}SetAttribute"
        LIBRARY.call(name, self.pointer, int(attribute), ctypes.byref(value), size)

    def __del__(self) -> None:
        if self.pointer is not None:  # as it is where it could not be made
            self._destroy(self.pointer)


def description(
    types: Types, a_transposed: bool, b_transposed: bool, tf32: bool
) -> Described:
    """What is computed: D = op(A) @ op(B), perhaps of rounded operands."""
    compute = Compute.COMPUTE_32F_FAST_TF32 if tf32 else types.compute
    made = Described("MatmulDesc", compute, types.scale)
    made.set(Desc.TRANSA, c_int32(TRANSPOSED[a_transposed]))
    made.set(Desc.TRANSB, c_int32(TRANSPOSED[b_transposed]))
    return made


def layout(
    data: Data, rows: int, columns: int, leading: int, count: int, stride: int
) -> Described:
    """A stack of column-major matrices, so many elements from each other."""
    made = Described("MatrixLayout", data, rows, columns, leading)
    if count > 1:
        made.set(Layout.BATCH_COUNT, c_int32(count))
        made.set(Layout.STRIDED_BATCH_OFFSET, c_int64(stride))
    return made


def preference(workspace: int, alignments: Sequence[int]) -> Described:
    """What algorithms may ask for: workspace, and alignments of A, B and D in bytes."""
    made = Described("MatmulPreference")
    a, b, d = alignments
    made.set(Pref.MAX_WORKSPACE_BYTES, c_uint64(workspace))
    made.set(Pref.REDUCTION_SCHEME_MASK, c_uint32(COMPUTE_TYPE))
    made.set(Pref.MIN_ALIGNMENT_A_BYTES, c_uint32(a))
    made.set(Pref.MIN_ALIGNMENT_B_BYTES, c_uint32(b))
    made.set(Pref.MIN_ALIGNMENT_C_BYTES, c_uint32(d))
    made.set(Pref.MIN_ALIGNMENT_D_BYTES, c_uint32(d))
    return made
