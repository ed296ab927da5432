"""What stands in cuBLASLt's place: the same functions, computed by NumPy.

It is called as ctypes calls the library, and reads matrices as the library does: column
by column, with leading dimensions, from addresses of this process. What the library
would refuse or misread, it refuses, with the library's status or an AssertionError.
`later` puts products behind what a stream has to do. Next: `test_blaslt.py`.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

INVALID_VALUE, NOT_SUPPORTED = 7, 15
TRANSA, TRANSB, EPILOGUE, BIAS, AUX, AUX_LD = 3, 4, 7, 8, 11, 12

DATA = {
    0: np.float32,
    1: np.float64,
    2: np.float16,
    4: np.complex64,
    5: np.complex128,
    14: ml_dtypes.bfloat16,
}
# Types of A and B, of D, of sums and of scalars: the table in cuBLAS's documentation.
SUPPORTED = {
    (0, 0, 68, 0),
    (0, 0, 77, 0),
    (2, 2, 68, 0),
    (2, 0, 68, 0),
    (14, 14, 68, 0),
    (14, 0, 68, 0),
    (1, 1, 70, 1),
    (4, 4, 68, 4),
    (5, 5, 70, 5),
}
SCALARS = {0: np.float32, 1: np.float64, 4: np.complex64, 5: np.complex128}
# The bytes of each attribute.
SIZES = {
    "MatmulDesc": {TRANSA: 4, TRANSB: 4, EPILOGUE: 4, BIAS: 8, AUX: 8, AUX_LD: 8},
    "MatrixLayout": {5: 4, 6: 8},
    "MatmulPreference": {1: 8, 3: 4, 5: 4, 6: 4, 7: 4, 8: 4},
}


Later = Callable[[int, Callable[[], None], list[tuple[int, int]]], None]
"""Puts a run into a stream; it writes so many bytes at addresses, if out is dense."""


@dataclass
class Descriptor:
    """What was created, and the attributes that were set."""

    kind: str
    arguments: tuple[Any, ...]
    set: dict[int, int] = field(default_factory=dict)


@dataclass
class Layout:
    """A stack of column-major matrices."""

    rows: int
    columns: int
    leading: int
    count: int
    stride: int

    def view(self, address: int, dtype: Any) -> Any:
        """The stack in memory."""
        size = np.dtype(dtype).itemsize
        last = (self.count - 1) * self.stride + (self.columns - 1) * self.leading
        memory = bytes_at(address, (last + self.rows) * size).view(dtype)
        shape = self.count, self.rows, self.columns
        steps = self.stride * size, size, self.leading * size
        return np.lib.stride_tricks.as_strided(memory, shape, steps)


def bytes_at(address: int, size: int) -> Any:
    """Memory of this process."""
    return np.frombuffer((ctypes.c_char * size).from_address(address), np.uint8)


class FakeBlasLt:
    """The library; `algorithms` are the numbers of those that it offers.

    An algorithm has 4 KB of workspace for each unit of its number; those of `broken`
    are offered, but do not run, and an epilogue that is `refused` has none. All need
    addresses that `alignment` divides. Results are `wrong` by that part. Without
    `keeps_nan` ReLU makes 0 of NaN, and without `selects` its derivative is a factor,
    so that NaN goes through where it is 0.
    """

    def __init__(self, algorithms: tuple[int, ...] = (3, 0, 7)) -> None:
        self.algorithms = algorithms
        self.broken: set[int] = set()
        self.refused: set[int] = set()
        self.alignment = 1
        self.wrong = 0.0
        self.keeps_nan = True
        self.selects = True
        self.later: Later = lambda stream, run, writes: run()
        self.live: dict[int, Descriptor] = {}
        self.ran: list[int] = []
        self.epilogues: list[int] = []
        self.numbers = itertools.count(0x1000, 16)

    def cublasLtGetVersion(self) -> int:
        return 120903

    def cublasLtCreate(self, made: Any) -> int:
        made._obj.value = next(self.numbers)
        return 0

    def __getattr__(self, name: str) -> Any:
        for kind in SIZES:
            for action in ("Create", "Destroy", "SetAttribute"):
                if name == f"cublasLt{kind}{action}":
                    method = getattr(self, f"_{action.lower()}")
                    return lambda *arguments: method(kind, *arguments)
        raise AttributeError(name)

    def _create(self, kind: str, made: Any, *arguments: Any) -> int:
        made._obj.value = next(self.numbers)
        self.live[made._obj.value] = Descriptor(kind, arguments)
        return 0

    def _destroy(self, kind: str, pointer: int) -> int:
        assert self.live.pop(pointer).kind == kind
        return 0

    def _setattribute(
        self, kind: str, pointer: int, attribute: int, value: Any, size: int
    ) -> int:
        described = self.live[pointer]
        assert described.kind == kind
        if SIZES[kind].get(attribute) != size or ctypes.sizeof(value._obj) != size:
            return INVALID_VALUE
        described.set[attribute] = value._obj.value
        return 0

    # ------------------------------------------------------------ products

    def _layout(self, pointer: int) -> tuple[int, Layout]:
        described = self.live[pointer]
        assert described.kind == "MatrixLayout"
        data, rows, columns, leading = described.arguments
        assert leading >= rows > 0 and columns > 0, "the leading dimension is too small"
        count, stride = described.set.get(5, 1), described.set.get(6, 0)
        return data, Layout(rows, columns, leading, count, stride)

    def _problem(
        self, description: int, *pointers: int
    ) -> tuple[Descriptor, list[Any], list[Layout]]:
        """What is described, and the dtypes and layouts of A, B and D."""
        described = self.live[description]
        assert described.kind == "MatmulDesc"
        layouts = [self._layout(pointer) for pointer in pointers]
        a_data, b_data, c_data, d_data = [data for data, _ in layouts]
        assert a_data == b_data and c_data == d_data
        assert (a_data, d_data, *described.arguments) in SUPPORTED
        types = [DATA[data] for data in (a_data, b_data, d_data)]
        a, b, c, d = [layout for _, layout in layouts]
        assert c == d
        a_shape = (a.rows, a.columns)[:: -1 if described.set[TRANSA] else 1]
        b_shape = (b.rows, b.columns)[:: -1 if described.set[TRANSB] else 1]
        assert a_shape[1] == b_shape[0], "the sums have different lengths"
        assert (a_shape[0], b_shape[1]) == (d.rows, d.columns)
        assert a.count == b.count == d.count
        return described, types, [a, b, d]

    def cublasLtMatmulAlgoGetHeuristic(
        self,
        handle: int,
        description: int,
        a: int,
        b: int,
        c: int,
        d: int,
        preference: int,
        count: int,
        found: Any,
        number: Any,
    ) -> int:
        described, _, _ = self._problem(description, a, b, c, d)
        if described.set.get(EPILOGUE, 1) in self.refused:
            return NOT_SUPPORTED
        wanted = self.live[preference].set
        assert wanted[3] == 2, "sums would be rounded more than once"
        if min(wanted[n] for n in (5, 6, 7, 8)) < self.alignment:
            return NOT_SUPPORTED
        fitting = [n for n in self.algorithms if n * 4096 <= wanted[1]][:count]
        for place, algorithm in zip(found._obj, fitting, strict=False):
            place.algorithm.data[0] = algorithm
            place.workspace, place.state = algorithm * 4096, 0
        number._obj.value = len(fitting)
        return 0 if fitting else NOT_SUPPORTED

    def cublasLtMatmul(
        self,
        handle: int,
        description: int,
        alpha: int,
        a_address: int,
        a: int,
        b_address: int,
        b: int,
        beta: int,
        c_address: int,
        c: int,
        d_address: int,
        d: int,
        algorithm: Any,
        workspace: int,
        size: int,
        stream: int,
    ) -> int:
        assert handle
        described, types, layouts = self._problem(description, a, b, c, d)
        number = algorithm._obj.data[0]
        scalar = SCALARS[described.arguments[1]]
        one = bytes_at(alpha, np.dtype(scalar).itemsize).view(scalar)[0]
        zero = bytes_at(beta, np.dtype(scalar).itemsize).view(scalar)[0]
        assert (one, zero) == (1, 0) and c_address == d_address
        assert size == number * 4096 and workspace % 256 == 0
        if number in self.broken:
            return NOT_SUPPORTED
        addresses = a_address, b_address, d_address
        stacks = [
            layout.view(address, dtype)
            for layout, address, dtype in zip(layouts, addresses, types, strict=True)
        ]
        settings = dict(described.set)
        if described.arguments[0] == 77:
            stacks[:2] = [_tf32(stack) for stack in stacks[:2]]

        def run() -> None:
            self.ran.append(number)
            self.epilogues.append(settings.get(EPILOGUE, 1))
            if size:
                bytes_at(workspace, size)[...] = 0xAB
            with np.errstate(invalid="ignore"):
                _multiply(self, types[2], settings, *stacks)
            if self.wrong:
                stacks[2][...] *= 1 + self.wrong

        writes = _written(settings, types[2], *layouts)
        own = (d_address, stacks[2].nbytes), (workspace, size)
        self.later(stream, run, [*own, *writes])
        return 0


def _written(
    settings: dict[int, int], dtype: Any, a: Layout, b: Layout, d: Layout
) -> list[tuple[int, int]]:
    """What an epilogue writes besides: addresses and bytes, which are as documented."""
    epilogue, size, found = settings.get(EPILOGUE, 1), np.dtype(dtype).itemsize, []
    if epilogue & 128:
        assert settings[AUX] % 16 == 0 and settings[AUX] > 16, "no place for AUX"
        row = settings[AUX_LD] // 8 if epilogue & (2 | 8) else settings[AUX_LD] * size
        if epilogue & (2 | 32):
            found.append((settings[AUX], row * d.columns))
    if epilogue & (4 | 16 | 256 | 512):
        assert settings[BIAS] % size == 0 and settings[BIAS] > 16, "no place for a bias"
    if epilogue & (16 | 256 | 512):
        found.append((settings[BIAS], (d.columns if epilogue & 512 else d.rows) * size))
    return found


def _multiply(
    library: FakeBlasLt, dtype: Any, settings: dict[int, int], a: Any, b: Any, d: Any
) -> None:
    wide = np.complex128 if np.issubdtype(dtype, np.complexfloating) else np.float64
    a, b = a.astype(wide), b.astype(wide)
    if settings[TRANSA]:
        a = a.swapaxes(1, 2)
    if settings[TRANSB]:
        b = b.swapaxes(1, 2)
    product = a @ b
    epilogue = settings.get(EPILOGUE, 1)
    if epilogue in (256, 512):
        assert len(product) == 1
        sums = a[0].sum(axis=1) if epilogue == 256 else b[0].sum(axis=0)
        size = np.dtype(dtype).itemsize
        bytes_at(settings[BIAS], len(sums) * size).view(dtype)[...] = sums.astype(dtype)
    elif epilogue != 1:
        assert len(product) == 1
        product = _after(library, dtype, settings, epilogue, product[0])[None]
    d[...] = product.astype(dtype)


def _tf32(stack: Any) -> Any:
    """The numbers with 10 bits after the point, rounded to the nearest."""
    bits = np.ascontiguousarray(stack).view(np.uint32)
    return ((bits + 0xFFF + (bits >> 13 & 1)) & 0xFFFFE000).view(np.float32)


def _after(
    library: FakeBlasLt,
    dtype: Any,
    settings: dict[int, int],
    epilogue: int,
    value: Any,
) -> Any:
    """The epilogue on one column-major matrix."""
    rows, columns = value.shape
    size = np.dtype(dtype).itemsize
    value = _with_bias(dtype, settings, epilogue, value)
    if epilogue & (2 | 8):
        passes = ~(value <= 0) if library.keeps_nan else value > 0
        mask = _mask(settings, epilogue, rows, columns, passes)
        is_factor = epilogue & 8 and not library.selects
        value = value * mask if is_factor else np.where(mask, value, 0)
    if epilogue & (32 | 64):
        before = _before_gelu(dtype, settings, epilogue, rows, columns, value)
        inner = np.sqrt(2 / np.pi) * (before + 0.044715 * before**3)
        slope = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * before**2)
        tanh = np.tanh(inner)
        if epilogue & 32:
            value = 0.5 * value * (1 + tanh)
        else:
            value = value * (0.5 * (1 + tanh) + 0.5 * before * (1 - tanh**2) * slope)
    if epilogue & 16:
        sums = bytes_at(settings[BIAS], rows * size).view(dtype)
        sums[...] = value.sum(axis=1).astype(dtype)
    return value


def _with_bias(dtype: Any, settings: dict[int, int], epilogue: int, value: Any) -> Any:
    """One column-major matrix and the bias of its rows."""
    if not epilogue & 4:
        return value
    size = np.dtype(dtype).itemsize
    bias = bytes_at(settings[BIAS], len(value) * size).view(dtype)
    return value + bias.astype(value.dtype)[:, None]


def _mask(
    settings: dict[int, int], epilogue: int, rows: int, columns: int, passes: Any
) -> Any:
    """Where ReLU lets pass: written by RELU_AUX, read by DRELU, as bits."""
    if not epilogue & 128:
        return passes
    leading = settings[AUX_LD]
    assert leading % 128 == 0 and leading >= rows
    bits = bytes_at(settings[AUX], leading // 8 * columns).reshape(columns, -1)
    if epilogue & 8:
        return np.unpackbits(bits, axis=1, bitorder="little")[:, :rows].T.astype(bool)
    mask = np.zeros((columns, leading), bool)
    mask[:, :rows] = passes.T
    bits[...] = np.packbits(mask, axis=1, bitorder="little")
    return passes


def _before_gelu(
    dtype: Any,
    settings: dict[int, int],
    epilogue: int,
    rows: int,
    columns: int,
    value: Any,
) -> Any:
    """What GELU is of: written by GELU_AUX, read by DGELU."""
    if not epilogue & 128:
        return value
    leading = settings[AUX_LD]
    assert leading % 8 == 0 and leading >= rows
    size = np.dtype(dtype).itemsize
    memory = bytes_at(settings[AUX], leading * columns * size).view(dtype)
    kept = memory.reshape(columns, leading)[:, :rows].T
    if epilogue & 64:
        return kept.astype(value.dtype)
    kept[...] = value.astype(dtype)
    return value
