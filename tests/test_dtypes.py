"""fnx/dtypes.py: names, specifications, defaults, and promotion against JAX."""

from __future__ import annotations

import itertools
import threading

import ml_dtypes
import numpy as np
import pytest

from fnx import dtypes
from fnx.dtypes import SUPPORTED, as_dtype, default_dtypes, promote, short
from fnx.errors import ArgumentError, DTypeError, OptionError

ALL = pytest.mark.parametrize("dtype", SUPPORTED, ids=short)
PYTHON_SCALARS = {bool: True, int: 1, float: 1.0, complex: 1j}


def test_short_names():
    assert [short(dtype) for dtype in SUPPORTED] == (
        "bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 c64 c128".split()
    )
    assert short(dtypes.float0) == "float0"


@ALL
def test_kinds_agree_with_ml_dtypes(dtype):
    inexact = dtypes.is_float(dtype) or dtypes.is_complex(dtype)
    assert dtypes.is_inexact(dtype) == inexact
    assert dtypes.is_integer(dtype) == np.issubdtype(dtype, np.integer)
    assert dtypes.is_signed(dtype) == np.issubdtype(dtype, np.signedinteger)
    assert dtypes.is_unsigned(dtype) == np.issubdtype(dtype, np.unsignedinteger)
    assert dtypes.is_complex(dtype) == np.issubdtype(dtype, np.complexfloating)
    assert dtypes.is_bool(dtype) == (dtype == np.bool_)
    kinds = (dtypes.is_bool, dtypes.is_integer, dtypes.is_float, dtypes.is_complex)
    assert [kind(dtype) for kind in kinds].count(True) == 1


@ALL
def test_as_dtype_is_canonical(dtype):
    assert as_dtype(dtype) is dtype
    assert as_dtype(dtype.name) is dtype
    assert as_dtype(dtype.type) is dtype
    assert as_dtype(np.dtype(dtype.name)) is dtype


def test_as_dtype_takes_other_spellings():
    assert as_dtype(">f4") is dtypes.float32
    assert as_dtype(np.dtype("q")) is dtypes.int64
    assert as_dtype(ml_dtypes.bfloat16) is dtypes.bfloat16

    class ScalarType:
        dtype = np.dtype("float32")

    assert as_dtype(ScalarType()) is dtypes.float32


UNSUPPORTED = [object, str, None, "nonsense", 3, "U3", "M8[s]", [1], np.ones(2)]


@pytest.mark.parametrize("spec", [*UNSUPPORTED, dtypes.float0], ids=repr)
def test_as_dtype_refuses(spec):
    with pytest.raises(DTypeError, match=r"supported are bool, int8, .*complex128"):
        as_dtype(spec)


def test_defaults_are_32_bits_unless_asked():
    names = [as_dtype(kind).name for kind in PYTHON_SCALARS]
    assert names == ["bool", "int32", "float32", "complex64"]
    with default_dtypes(64):
        names = [as_dtype(kind).name for kind in PYTHON_SCALARS]
        assert names == ["bool", "int64", "float64", "complex128"]
        assert dtypes.default_bits() == 64
        with default_dtypes(32):
            assert dtypes.default_float() is dtypes.float32
        assert dtypes.default_float() is dtypes.float64
        assert as_dtype("float32") is dtypes.float32
    assert dtypes.default_bits() == 32


def test_defaults_are_restored_after_an_error():
    with pytest.raises(KeyError), default_dtypes(64):
        raise KeyError
    assert dtypes.default_bits() == 32


def test_defaults_are_local_to_the_thread():
    seen = []
    with default_dtypes(64):
        thread = threading.Thread(target=lambda: seen.append(dtypes.default_bits()))
        thread.start()
        thread.join()
    assert seen == [32]


@pytest.mark.parametrize("bits", [16, "64", None])
def test_default_dtypes_refuses(bits):
    with pytest.raises(OptionError, match="takes 32 or 64"), default_dtypes(bits):
        pass


def test_scalar_dtype():
    for kind, value in PYTHON_SCALARS.items():
        assert dtypes.scalar_dtype(value) is as_dtype(kind)
    for value in ("1", None, np.float64(1.0)):  # np.float64 is a float, but not weak
        with pytest.raises(ArgumentError, match="no Python scalar"):
            dtypes.scalar_dtype(value)


def test_related_dtypes():
    assert dtypes.compute_dtype(dtypes.bfloat16) is dtypes.float32
    assert dtypes.compute_dtype(dtypes.float16) is dtypes.float32
    assert dtypes.compute_dtype(dtypes.float64) is dtypes.float64
    assert dtypes.real_dtype(dtypes.complex64) is dtypes.float32
    assert dtypes.real_dtype(dtypes.complex128) is dtypes.float64
    assert dtypes.real_dtype(dtypes.int8) is dtypes.int8
    assert dtypes.complex_dtype(dtypes.float64) is dtypes.complex128
    assert dtypes.complex_dtype(dtypes.bfloat16) is dtypes.complex64
    assert dtypes.complex_dtype(dtypes.complex64) is dtypes.complex64
    with pytest.raises(DTypeError, match="i32 parts"):
        dtypes.complex_dtype(dtypes.int32)


# ---------------------------------------------------------------- promotion


@pytest.mark.parametrize("a", SUPPORTED, ids=short)
def test_promotion_is_a_lattice(a):
    assert promote((a, False), (a, False)) == (a, False)
    for b, c in itertools.product(SUPPORTED, SUPPORTED):
        left, right = promote((a, False), (b, False)), promote((b, False), (a, False))
        assert left == right
        both = promote((a, False), (b, False), (c, False))
        if not left[1]:  # a weak intermediate (i64 with u64) may still narrow
            assert promote(left, (c, False)) == both


def test_promotion_by_the_policy():
    pairs = [
        (dtypes.int32, dtypes.bfloat16, dtypes.bfloat16),
        (dtypes.int64, dtypes.float16, dtypes.float16),
        (dtypes.bfloat16, dtypes.float16, dtypes.float32),
        (dtypes.float64, dtypes.complex64, dtypes.complex128),
        (dtypes.uint8, dtypes.int8, dtypes.int16),
        (dtypes.bool_, dtypes.uint8, dtypes.uint8),
    ]
    for a, b, expected in pairs:
        assert promote((a, False), (b, False)) == (expected, False)


def test_weak_results_keep_the_width_of_their_weak_operands():
    wide = (dtypes.float64, True)  # made under default_dtypes(64), used outside it
    assert promote((dtypes.int32, False), wide) == wide
    assert promote((dtypes.float32, False), wide) == (dtypes.float32, False)
    assert promote((dtypes.int32, True), wide) == wide


def test_promote_needs_an_operand():
    with pytest.raises(ArgumentError, match="at least one"):
        promote()


def _jax_operands(jax, among=SUPPORTED):
    """Dtypes as arrays and kinds as weak scalars: ((dtype, weak), JAX's operand)."""
    for dtype in among:
        yield (dtype, False), jax.numpy.zeros((), dtype)
    for kind, value in PYTHON_SCALARS.items():
        yield (as_dtype(kind), kind is not bool), value


@pytest.mark.oracle
def test_promotion_of_every_pair_is_jax_s(jax):
    with default_dtypes(64):  # JAX with x64 has 64-bit defaults
        operands = list(_jax_operands(jax))
        for (a, x), (b, y) in itertools.product(operands, operands):
            dtype, weak = promote(a, b)
            expected, expected_weak = jax.dtypes.result_type(
                x, y, return_weak_type_flag=True
            )
            assert (dtype, weak) == (expected, expected_weak), (a, b)
            assert dtype == jax.numpy.result_type(x, y)


@pytest.mark.oracle
def test_promote_types_of_every_pair_is_jax_s(jax):
    with default_dtypes(64):
        for a, b in itertools.product(SUPPORTED, SUPPORTED):
            dtype, _ = promote((a, False), (b, False))
            assert dtype == jax.numpy.promote_types(a, b), (a, b)


@pytest.mark.oracle
def test_promotion_of_triples_is_jax_s(jax):
    with default_dtypes(64):
        operands = list(_jax_operands(jax))
        rng = np.random.default_rng(0)
        for i, j, k in rng.integers(len(operands), size=(500, 3)):
            (a, x), (b, y), (c, z) = operands[i], operands[j], operands[k]
            expected = jax.dtypes.result_type(x, y, z, return_weak_type_flag=True)
            assert promote(a, b, c) == tuple(expected), (a, b, c)


@pytest.mark.oracle
def test_promotion_with_32_bit_defaults_is_jax_s_without_x64(jax):
    narrow = [dtype for dtype in SUPPORTED if dtypes.real_dtype(dtype).itemsize < 8]
    with jax.enable_x64(False):
        operands = list(_jax_operands(jax, narrow))
        for (a, x), (b, y) in itertools.product(operands, operands):
            if a[1] or b[1]:  # without x64, JAX narrows int8 with uint32 to int32
                expected = jax.dtypes.result_type(x, y, return_weak_type_flag=True)
                assert promote(a, b) == tuple(expected), (a, b)
