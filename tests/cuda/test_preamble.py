"""The conversions of 16-bit floats that kernels share, against NumPy and ml_dtypes.

The portable text runs here, compiled by g++; for a device it is compiled by NVRTC.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest

from fnx_cuda.preamble import PREAMBLE

SHIM = """
#include <cstring>
#define __device__
#define __forceinline__ inline
template <class To, class From> static To bits(From x) {
  To y; memcpy(&y, &x, sizeof y); return y;
}
static float __int_as_float(int x) { return bits<float>(x); }
static int __float_as_int(float x) { return bits<int>(x); }
static double __longlong_as_double(long long x) { return bits<double>(x); }
static long long __double_as_longlong(double x) { return bits<long long>(x); }
"""

# Each function's argument and result: the C types and the dtypes whose bits they hold.
TYPES = {
    "half_to_float": ("unsigned short", np.float16, "float", np.float32),
    "float_to_half": ("float", np.float32, "unsigned short", np.float16),
    "double_to_half": ("double", np.float64, "unsigned short", np.float16),
    "bfloat16_to_float": ("unsigned short", ml_dtypes.bfloat16, "float", np.float32),
    "float_to_bfloat16": ("float", np.float32, "unsigned short", ml_dtypes.bfloat16),
}


def test_every_function_is_here():
    assert TYPES.keys() == PREAMBLE.keys()
    for name, text in PREAMBLE.items():
        assert text.startswith("__device__ __forceinline__ ") and f" {name}(" in text


@pytest.fixture(scope="module")
def portable(tmp_path_factory):
    """The functions over arrays, compiled so that undefined behaviour is a trap."""
    if shutil.which("g++") is None:
        pytest.skip("the portable text is compiled by g++, which is not here")
    folder = tmp_path_factory.mktemp("preamble")
    loops = [
        f'extern "C" void each_{name}(const {x} *in, {y} *out, long n) '
        f"{{ for (long i = 0; i < n; ++i) out[i] = {name}(in[i]); }}\n"
        for name, (x, _, y, _) in TYPES.items()
    ]
    source, library = folder / "preamble.cpp", folder / "preamble.so"
    source.write_text(SHIM + "".join(PREAMBLE.values()) + "".join(loops))
    flags = ["-O2", "-ffp-contract=off", "-shared", "-fPIC", "-Wall", "-Werror"]
    flags += ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    command = ["g++", "-std=c++17", *flags, "-Wno-parentheses", "-o", library, source]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))

    def run(name: str, x: np.ndarray) -> np.ndarray:
        _, source_type, _, result_type = TYPES[name]
        assert x.dtype == source_type
        out = np.empty(x.size, result_type)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, out)]
        loaded[f"each_{name}"](*pointers, ctypes.c_long(x.size))
        return out

    return run


def check(got: np.ndarray, want: np.ndarray) -> None:
    """The same bits, except that any NaN is as good as another one."""
    assert got.dtype == want.dtype
    bits = f"u{got.dtype.itemsize}"
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got[~nan].view(bits), want[~nan].view(bits))


@pytest.mark.parametrize("name", ["half_to_float", "bfloat16_to_float"])
@pytest.mark.filterwarnings("ignore:invalid value")  # signalling NaNs
def test_every_16_bit_pattern_widens(portable, name):
    x = np.arange(2**16, dtype=np.uint16).view(TYPES[name][1])
    check(portable(name, x), x.astype(np.float32))


def near_ties(wide: type, narrow: type) -> np.ndarray:
    """Every finite number of the narrow type, the ties between, and beside the ties."""
    patterns = np.arange(2**16, dtype=np.uint16).view(narrow)
    numbers = np.sort(patterns[np.isfinite(patterns)].astype(wide))
    numbers = np.unique(np.append(numbers, wide(65536.0)))
    ties = numbers[:-1] + (numbers[1:] - numbers[:-1]) / 2
    inf = wide(np.inf)
    beside = [np.nextafter(x, way) for x in (numbers, ties) for way in (-inf, inf)]
    return np.concatenate([numbers, ties, *beside])


def values(wide: type, narrow: type) -> np.ndarray:
    """Those, and random bit patterns, which are mostly too large or too small."""
    bits = np.dtype(f"u{np.dtype(wide).itemsize}")
    random = np.random.default_rng(5)
    patterns = random.integers(0, np.iinfo(bits).max, 100_000, bits).view(wide)
    usual = (
        random.standard_normal(100_000) * 10.0 ** random.integers(-9, 6, 100_000)
    ).astype(wide)
    corners = [0, np.inf, np.nan, 65519.996, 65520, 1e38, 3.4e38, 2**-24, 2**-25, 1e-45]
    signed = np.array([*corners, *(-corner for corner in corners)], wide)
    return np.concatenate([near_ties(wide, narrow), patterns, usual, signed])


@pytest.mark.parametrize(
    "name", ["float_to_half", "double_to_half", "float_to_bfloat16"]
)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_narrowing_rounds_once_to_the_nearest(portable, name):
    _, wide, _, narrow = TYPES[name]
    x = values(wide, narrow)
    check(portable(name, x), x.astype(narrow))


def test_a_double_is_not_rounded_to_a_float_on_its_way(portable):
    x = np.array([1 + 2.0**-11 + 2.0**-40])  # just above a tie, as a float upon it
    assert x.astype(np.float32).astype(np.float16)[0] == 1
    assert portable("double_to_half", x)[0] == 1 + 2.0**-10


@pytest.mark.filterwarnings("ignore:invalid value")
def test_which_nan_a_nan_becomes(portable):
    nan = np.array([0x7FC00001, 0xFFC00001, 0x7F800001], np.uint32).view(np.float32)
    for name in ("float_to_half", "float_to_bfloat16"):
        assert (portable(name, nan).view(np.uint16) == 0x7FFF).all()
    double = nan.astype(np.float64)
    assert (portable("double_to_half", double).view(np.uint16) == 0x7FFF).all()
    # what the opening lines of the preamble say of others
    kept = nan.astype(np.float16).view(np.uint16).tolist()
    assert kept[0] >> 15 == 0 and kept[1] >> 15 == 1
    brain = nan.astype(ml_dtypes.bfloat16).view(np.uint16).tolist()
    assert brain == [0x7FC0, 0xFFC0, 0x7FC0]
