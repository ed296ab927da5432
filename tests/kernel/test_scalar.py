"""The scalar table: the three meanings of each row agree, corners included."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest

from fnx import dtypes
from fnx.cpu import emit, jit
from fnx.kernel.build import KernelBuilder
from fnx.kernel.scalar import TABLE, ScalarOp
from fnx.kernel.special import ROUTINES

# Routines are rows too; they have tests of their own, in test_special.py.
MACHINE = [
    name for name, row in TABLE.items() if row.llvm is not None and name not in ROUTINES
]
UNORDERED_ZEROS = ("min", "max")  # which of 0.0 and -0.0 wins is not said


def values(dtype: np.dtype) -> np.ndarray:
    """Corners of a dtype, and random bit patterns."""
    generator = np.random.default_rng(0)
    if dtypes.is_bool(dtype):
        return np.array([False, True])
    bits = 8 * dtype.itemsize
    patterns = generator.integers(0, 2**bits - 1, 40, f"u{dtype.itemsize}")
    if dtypes.is_integer(dtype):
        info = np.iinfo(dtype)
        near = [0, 1, 2, 7, 8, 15, 16, 31, 32, 63, 64, 100, info.max, info.min]
        near += [-1, -2, -7, -64, info.max - 1, info.min + 1]
        corners = [n for n in near if info.min <= n <= info.max]
        return np.concatenate([np.array(corners, dtype), patterns.view(dtype)])
    sizes = [0, 0.5, 1, 1.5, 2.5, 127, 128, 255, 256, 65504, 65519, 65520, 1e-45]
    sizes += [1.00048828125, 1.000488281250001, 2**31, 2**32, 2**63, 2**64, 6e-8]
    sizes += [2.98e-8, 3e38, 1e300, np.inf]
    with np.errstate(all="ignore"):
        signed = np.array([*sizes, *(-size for size in sizes), np.nan], np.float64)
        corners = signed.astype(dtype)
    return np.concatenate([corners, patterns.view(dtype)])


@dataclass
class Case:
    """One row on one combination of dtypes."""

    row: ScalarOp
    operands: list[np.ndarray]
    result: np.dtype
    want: np.ndarray = field(init=False)

    def __post_init__(self):
        target = [self.result] if self.row.name in ("convert", "bitcast") else []
        self.want = self.row.numpy(*self.operands, *target)

    def check(self, got: np.ndarray) -> None:
        assert got.dtype == self.want.dtype == self.result
        nan = (got != got) & (self.want != self.want)
        wrong = ~(nan | (got == self.want))
        if dtypes.is_float(got.dtype) and self.row.name not in UNORDERED_ZEROS:
            sign = (np.signbit(got) != np.signbit(self.want)) & (got == 0)
            wrong |= sign
        if wrong.any():
            worst = np.argmax(wrong)
            operands = [operand[worst] for operand in self.operands]
            pytest.fail(f"{operands}: {got[worst]!r}, not {self.want[worst]!r}")


def cases(name: str) -> list[Case]:
    row = TABLE[name]
    result = []
    for dtype in row.dtypes:
        x = values(dtype)
        pairs = [np.repeat(x, x.size), np.tile(x, x.size)]
        if row.arity == 1:
            pairs = [x]
        if name == "fma":
            pairs.append(np.random.default_rng(1).permutation(pairs[1]))
        if name == "select":
            pairs.insert(0, np.random.default_rng(1).random(pairs[0].size) < 0.5)
        targets = [row.result(tuple(operand.dtype for operand in pairs))]
        if name == "convert":
            targets = list(row.dtypes)
        if name == "bitcast":
            targets = [t for t in row.dtypes if t.itemsize == dtype.itemsize]
        result += [Case(row, pairs, target) for target in targets]
    return result


# ---------------------------------------------------------------- LLVM


def element(k: KernelBuilder, case: Case, loaded: list) -> object:
    if case.row.name in ("convert", "bitcast"):
        return getattr(k, case.row.name)(loaded[0], case.result)
    return k.op(case.row.name, *loaded)


@pytest.mark.parametrize("name", MACHINE)
@pytest.mark.filterwarnings("ignore:invalid value")  # comparing signalling NaNs
def test_compiled_rows_mean_what_numpy_means(name):
    module, todo = emit.Module(), []
    for number, case in enumerate(cases(name)):
        k = KernelBuilder()
        (i,) = k.domain((case.want.size,))
        arrays = [*case.operands, np.empty(case.want.size, case.result)]
        buffers = [
            k.buffer(
                f"b{n}", array.dtype, array.size, "in" if n + 1 < len(arrays) else "out"
            )
            for n, array in enumerate(arrays)
        ]
        loaded = [k.load(buffer, i) for buffer in buffers[:-1]]
        k.store(buffers[-1], i, element(k, case, loaded))
        kernel = module.add(k.finish(f"{name}{number}"))
        module.define(emit.exported(f"main{number}", kernel, len(arrays)))
        todo.append((case, arrays))
    library = jit.load(
        jit.assemble(module.text()), [f"main{number}" for number in range(len(todo))]
    )
    for number, (case, arrays) in enumerate(todo):
        function = library.function(f"main{number}", len(arrays))
        function(*[array.ctypes.data for array in arrays])
        case.check(arrays[-1])


# ---------------------------------------------------------------- CUDA C

SHIM = """
#include <cmath>
#include <cstring>
using namespace std;
#define __device__
template <class To, class From> static To bits(From x) {
  To y; memcpy(&y, &x, sizeof y); return y;
}
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
static int __clzll(unsigned long long x) { return x ? __builtin_clzll(x) : 64; }
static float __int_as_float(int x) { return bits<float>(x); }
static int __float_as_int(float x) { return bits<int>(x); }
static double __longlong_as_double(long long x) { return bits<double>(x); }
static long long __double_as_longlong(double x) { return bits<long long>(x); }
"""

C_TYPES = {
    dtypes.bool_: "bool",
    dtypes.int8: "signed char",
    dtypes.int16: "short",
    dtypes.int32: "int",
    dtypes.int64: "long long",
    dtypes.uint8: "unsigned char",
    dtypes.uint16: "unsigned short",
    dtypes.uint32: "unsigned int",
    dtypes.uint64: "unsigned long long",
    dtypes.float32: "float",
    dtypes.float64: "double",
}


class CudaEmitter:
    """Types as `fnx_cuda/emit.py` gives them; helpers are collected."""

    def __init__(self):
        self.helpers = {}

    def type(self, dtype):
        return C_TYPES[dtype]

    def helper(self, name, definition):
        self.helpers[name] = definition


def c_function(emitter: CudaEmitter, number: int, case: Case) -> str:
    operands = [operand.dtype for operand in case.operands]
    names = [f"x{n}" for n in range(len(operands))]
    text = case.row.cuda(emitter, names, operands, case.result)
    inputs = "".join(
        f"const {emitter.type(dtype)} *a{n}, " for n, dtype in enumerate(operands)
    )
    loads = " ".join(
        f"{emitter.type(dtype)} x{n} = a{n}[i];" for n, dtype in enumerate(operands)
    )
    out = emitter.type(case.result)
    return (
        f'extern "C" void f{number}({inputs}{out} *out, long n) '
        f"{{ for (long i = 0; i < n; ++i) {{ {loads} out[i] = {text}; }} }}\n"
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.filterwarnings("ignore:invalid value")
def test_cuda_rows_mean_what_numpy_means(tmp_path):
    """The text of every row, compiled as C++ that stops at undefined behaviour.

    16-bit floats are left out: their conversions are in the CUDA emitter's preamble.
    """
    todo = [
        case
        for name in MACHINE
        for case in cases(name)
        if case.result in C_TYPES and case.operands[-1].dtype in C_TYPES
    ]
    emitter = CudaEmitter()
    functions = [c_function(emitter, n, case) for n, case in enumerate(todo)]
    source, library = tmp_path / "rows.cpp", tmp_path / "rows.so"
    source.write_text(SHIM + "".join(emitter.helpers.values()) + "".join(functions))
    flags = ["-O0", "-ffp-contract=off", "-shared", "-fPIC"]
    flags += ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    subprocess.run(["g++", *flags, "-o", library, source], check=True)
    loaded = ctypes.CDLL(str(library))
    for number, case in enumerate(todo):
        out = np.empty(case.want.size, case.result)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in [*case.operands, out]]
        loaded[f"f{number}"](*pointers, ctypes.c_long(out.size))
        case.check(out)


# ---------------------------------------------------------------- the policies


def row(name, dtype, *args):
    return TABLE[name].numpy(*[np.array(arg, dtype) for arg in args]).tolist()


def test_integer_corners():
    low, high = -(2**31), 2**31 - 1
    assert row("add", np.int32, [high], [1]) == [low]
    assert row("div", np.int32, [7, -7, 7, low], [0, 2, -2, -1]) == [0, -3, -3, low]
    assert row("rem", np.int32, [7, -7, 7, low], [0, 2, -2, -1]) == [0, -1, 1, 0]
    assert row("abs", np.int32, [low, -3]) == [low, 3]
    assert row("shl", np.int32, [1, 1, 1, 1], [31, 32, 99, -1]) == [low, 0, 0, 0]
    assert row("shr_arithmetic", np.int32, [-8, -8, 8], [1, 40, 40]) == [-4, -1, 0]
    assert row("shr_logical", np.int32, [-8, -8], [1, 32]) == [high - 3, 0]
    assert row("clz", np.int16, [0, 1, -1]) == [16, 15, 0]
    assert row("population_count", np.int8, [0, -1, 5]) == [0, 8, 2]


def test_float_corners():
    nan, inf = np.nan, np.inf
    assert np.isnan(row("max", np.float32, [nan, 1], [1, nan])).all()
    assert row("round", np.float64, [0.5, 1.5, 2.5, -0.5]) == [0, 2, 2, 0]
    assert str(row("rem", np.float64, [-4.0, 5.5], [2.0, -2.0])) == "[-0.0, 1.5]"
    assert row("is_finite", np.float32, [1, inf, -inf, nan]) == [True, *[False] * 3]
    assert row("eq", np.float32, [nan, 0.0], [nan, -0.0]) == [False, True]
    assert row("ne", np.float32, [nan], [nan]) == [True]


def test_conversion_corners():
    convert = TABLE["convert"].numpy
    x = np.array([np.nan, np.inf, -np.inf, 3.99, -3.99, 300, -1])
    assert convert(x, dtypes.int8).tolist() == [0, 127, -128, 3, -3, 127, -1]
    assert convert(x, dtypes.uint8).tolist() == [0, 255, 0, 3, 0, 255, 0]
    assert convert(x, dtypes.int64).tolist()[1:3] == [2**63 - 1, -(2**63)]
    assert convert(x, dtypes.bool_).all()
    assert convert(np.array([300, -1]), dtypes.uint8).tolist() == [44, 255]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fma_rounds_once(dtype):
    epsilon = np.finfo(dtype).eps
    x, y = dtype(1 + epsilon), dtype(1 - epsilon)
    assert TABLE["fma"].numpy(x, y, dtype(-1)) == -(epsilon**2)
    tiny = np.finfo(dtype).smallest_subnormal
    assert TABLE["fma"].numpy(dtype(tiny), dtype(0.75), dtype(tiny)) == 2 * tiny
    assert (
        TABLE["fma"].numpy(dtype(1), dtype(1), dtype(epsilon / 2) * (1 + epsilon)) > 1
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fma_gives_the_nearest_number(dtype):
    """Also where the product and the last operand nearly cancel, or are halfway."""
    rng, eps = np.random.default_rng(5), np.finfo(dtype).eps
    x, y, z = rng.standard_normal((3, 300)).astype(dtype)
    z[100:200] = -(x * y)[100:200] * (1 + eps * rng.integers(-2, 3, 100)).astype(dtype)
    x[200:], y[200:] = 1 + eps * rng.integers(0, 4, (2, 100))
    z[200:] = eps / 2 * rng.integers(-3, 4, 100)
    got = TABLE["fma"].numpy(x, y, z)
    assert got.dtype == dtype
    for each in zip(x, y, z, got, strict=True):
        a, b, c, found = [Fraction(float(v)) for v in each]
        exact, last = a * b + c, dtype(each[3])
        gap = abs(exact - found)
        for way in (-np.inf, np.inf):
            assert gap <= abs(exact - Fraction(float(np.nextafter(last, dtype(way)))))
