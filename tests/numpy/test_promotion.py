"""Dtypes, weakness, scalars, broadcasting: what functions do with their arguments."""

from __future__ import annotations

import enum

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors

EXPRESSIONS = """
m.asarray(1.0) m.array(1) m.array([1.0,2]) m.full((2,),1.0) m.zeros_like(m.asarray(1.0))
m.ones(3) m.arange(3) m.arange(3.) m.linspace(0,1,3) m.eye(2) m.full((2,),True)
m.ones(2,'int32')*2.0 m.ones(2,'int8')+1 m.ones(2,bool)*2 m.where(True,1,2.0)
m.where(m.ones(2,bool),1,2.0) m.sin(1) m.exp(m.ones(2,'int32')) m.add(1,2)
m.sum(m.ones(2,'int8')) m.sum(m.ones(2,'uint8')) m.sum(m.ones(2,bool))
m.prod(m.ones(2,'int8')) m.cumsum(m.ones(2,'int8')) m.cumsum(m.ones(2,bool))
m.mean(m.ones(2,'int8')) m.sum(m.asarray(1.0)) m.max(m.asarray(1.0))
m.argmax(m.ones(3)) m.clip(m.ones(2,'int32'),0,1.5) m.floor_divide(5,2) m.float32(3)
m.ones(2,'int32')**2 m.ones(2)**2 m.ones(2,'int32')**2.0 m.sqrt(m.ones(2,'int8'))
m.true_divide(m.ones(2,'int8'),m.ones(2,'int8')) m.logaddexp(1,2) m.maximum(1,2.0)
m.concatenate([m.ones(2),m.asarray([1])]) m.stack([1.0,2]) m.hypot(3,4) m.abs(True)
m.ones(2,bool)+m.ones(2,bool) m.ones(2,bool)/m.ones(2,bool) m.round(m.ones(2,'int32'))
m.isnan(m.ones(2,'int32')) m.var(m.ones(3,'int32')) m.median(m.arange(4))
m.count_nonzero(m.ones(3)) m.reshape(2.0,(1,))
m.interp(1.0,m.arange(3),m.arange(3)) m.real(1) m.bitwise_and(True,1) m.invert(True)
m.matmul(m.ones(3,'int32'),m.ones(3,'int8')) m.matmul(m.ones(3,bool),m.ones(3,bool))
m.ones(2,'float16')+m.ones(2,'bfloat16') m.ones(2,'int32')+m.ones(2,'bfloat16')
m.ones(2,'uint8')+m.ones(2,'int8') m.ones(2,'int64')/2 m.sin(m.ones(2,'int64'))
m.mean(m.ones(2,'uint64')) m.dot(m.asarray(1.0),2.0) m.heaviside(1,2) m.sinc(1)
m.nan_to_num(m.ones(3)) m.diff(m.arange(3)) m.trace(m.ones((2,2),'int8'))
""".split()


def _type(x):
    return str(x.dtype), bool(x.weak_type), x.shape


@pytest.mark.oracle
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_jax(expression, jax):
    # JAX's 64-bit defaults are ours inside default_dtypes(64).
    want = _type(eval(expression, {"m": jax.numpy}))
    with fnx.default_dtypes(64):
        got = _type(eval(expression, {"m": fnp}))
    assert got == want


def test_explicit_dtypes_need_no_flag():
    assert fnp.asarray(np.float64(1)).dtype == fnp.float64
    assert fnp.zeros(2, "int64").dtype == fnp.int64
    assert (fnp.zeros(2, "float64") + 1.0).dtype == fnp.float64
    assert fnp.array(np.arange(3)).dtype == np.int64
    assert fnp.array([np.float64(1), 2.0]).dtype == fnp.float64
    assert fnp.array(np.array([1, 2], ">i4")).dtype == fnp.int32


def test_weak_results_stay_weak():
    x = fnp.asarray(2.0) * 3
    assert x.weak_type
    assert (fnp.ones(2, "float16") * x).dtype == fnp.float16
    assert (fnp.ones(2, "int32") * 2.0).weak_type


def test_scalars_that_do_not_fit_raise():
    with pytest.raises(OverflowError, match="300 beside an array of uint8"):
        fnp.ones(2, "uint8") + 300


EXACT = {
    "at": lambda x: x.at[0].set(0.1)[0],
    "concatenate": lambda x: fnp.stack([x[0], 0.1])[1],
    "isclose": lambda x: fnp.where(fnp.isclose(x * 0 + 0.1, 0.1, 0, 0), 0.1, x)[0],
    "pad": lambda x: fnp.pad(x, 1, constant_values=0.1)[0],
    "quantile": lambda x: fnp.quantile(fnp.array([0.0, 1.0], "float64"), 0.1),
    "percentile": lambda x: fnp.percentile(fnp.array([0.0, 1.0], "float64"), 10.0),
    "interp": lambda x: fnp.interp(0.1, np.array([0.0, 1.0]), np.array([0.0, 1.0])),
    "where": lambda x: fnp.where(x > 5, x, 0.1)[0],
    "full_like": lambda x: fnp.full_like(x, 0.1)[0],
    "array": lambda x: fnp.array([x[0], 0.1])[1],
    "clip": lambda x: fnp.clip(x, 0.1, 0.1)[0],
    "append": lambda x: fnp.diff(x, append=0.1)[-1] + x[-1],
    "var": lambda x: 0.1 - fnp.sqrt(fnp.var(x * 0, mean=0.1)) + 0.1,
    "insert": lambda x: fnp.insert(x, 0, 0.1)[0],
    "linspace": lambda x: fnp.linspace(0.1, x[0], 2)[0],
}


@pytest.mark.parametrize("name", EXACT)
def test_scalars_beside_float64_are_rounded_to_float64(name):
    x = fnp.array([1.0, 2.0], "float64")
    for transform in (lambda f: f, fnx.jit):
        got = transform(EXACT[name])(x)
        assert got.dtype == fnp.float64
        np.testing.assert_allclose(got, 0.1, rtol=1e-14)


def test_broadcasting():
    x = fnp.ones((2, 1, 3)) + fnp.ones((4, 1))
    assert x.shape == (2, 4, 3)
    assert (fnp.float32(2) * fnp.ones(3)).shape == (3,)
    message = r"add: f32\[3\] and f32\[4\] cannot be broadcast"
    with pytest.raises(errors.ShapeError, match=message):
        fnp.ones(3) + fnp.ones(4)
    message = r"where: bool\[3\], f32\[4\] and f32\[4\] cannot be broadcast"
    with pytest.raises(errors.ShapeError, match=message):
        fnp.where(fnp.ones(3, bool), fnp.ones(4), fnp.ones(4))


def test_gradients_of_broadcasts_are_sums():
    x, y = fnp.ones((2, 3)), fnp.float32(2)
    dx, dy = fnx.grad(lambda x, y: fnp.sum(x * y), argnums=(0, 1))(x, y)
    assert dx.tolist() == [[2.0] * 3] * 2
    assert dy == 6


def test_lists_are_refused():
    with pytest.raises(TypeError, match=r"fnx\.numpy\.array"):
        fnp.sin([1.0])
    with pytest.raises(TypeError, match=r"fnx\.numpy\.array"):
        fnp.ones(2) + [1, 2]  # noqa: RUF005
    with pytest.raises(errors.ArgumentError, match="None is no value"):
        fnp.array(None)
    with pytest.raises(errors.DTypeError):
        fnp.array(["a"])
    with pytest.raises(errors.ShapeError, match="ragged"):
        fnp.array([[1], [1, 2]])


def test_numpy_defers_to_our_operators():
    x = np.arange(3.0) + fnp.ones(3)
    assert isinstance(x, fnp.ndarray)
    assert isinstance(np.float64(2) * fnp.ones(3), fnp.ndarray)
    assert isinstance(np.ones((3, 3)) @ fnp.ones(3), fnp.ndarray)


def test_subclasses_of_int_are_scalars():
    class Size(enum.IntEnum):
        TWO = 2

    assert (fnp.ones(2, "int8") * Size.TWO).dtype == fnp.int8


def test_arrays_copy_what_they_are_made_of():
    data = np.arange(3.0)
    x, y = fnp.array(data), fnp.asarray(data)
    z = x + 0
    data[0] = 9
    assert x[0] == 0 and y[0] == 0 and z[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(x)[0] = 1


def test_nested_lists():
    x = fnp.ones(2)
    assert fnp.array([x, [1, 2]]).tolist() == [[1.0, 1.0], [1.0, 2.0]]
    got = fnx.jit(lambda a: fnp.array([[a, 1], [2, a]]))(3.0)
    assert got.tolist() == [[3.0, 1.0], [2.0, 3.0]]
    assert fnp.array([]).dtype == fnp.float32
    assert fnp.array([[True]]).dtype == fnp.bool_
    assert fnp.array([1, 2.0, 3j]).dtype == fnp.complex64


def test_dtype_objects():
    assert fnp.float32 == np.dtype("float32")
    assert np.zeros(2, fnp.float32).dtype == fnp.float32
    assert fnp.ones(2).dtype == fnp.float32
    assert fnp.int8(300 - 256) == 44
    assert fnp.finfo(fnp.bfloat16).bits == 16
    assert fnp.promote_types("int32", fnp.bfloat16) == fnp.bfloat16
    assert fnp.result_type(fnp.ones(2, "float16"), 1.0) == fnp.float16
    # a dtype is equal to the Python type that it holds, but not weak as that is
    wide = np.dtype("float64")
    assert fnp.promote_types(wide, "float32") == fnp.result_type(wide, "f4") == wide
    assert fnp.promote_types(float, "float32") == fnp.float32
    assert fnp.issubdtype(fnp.bfloat16, fnp.floating)
    assert not fnp.issubdtype(fnp.bfloat16, fnp.integer)
    keys, prng_key = fnx.random.key(0).dtype, fnx.dtypes.prng_key
    assert fnp.issubdtype(keys, prng_key) and fnp.issubdtype(keys, fnx.dtypes.extended)
    assert not fnp.issubdtype(keys, fnp.number) and not fnp.issubdtype(keys, np.uint32)
    assert not fnp.issubdtype("uint32", prng_key)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "uint64"])
def test_constants_are_converted_as_values_are(dtype):
    """Saturating, by the compiler or when the kernel runs."""
    info = np.iinfo(dtype)
    ends = [float(info.min), float(info.max), np.inf, -np.inf, np.nan]
    for value in [0.0, -0.0, 1.0, 2.9, -1.5, 300.0, *ends]:
        for source in ("float32", "float64"):
            known = fnp.full((3,), value, source)
            wanted = known.astype(dtype)

            def constant(c, value=value, source=source):
                return fnp.full((3,), value, source).astype(dtype) ^ c

            found = fnx.jit(constant)(np.zeros(3, dtype))
            np.testing.assert_array_equal(found, wanted)
            found = fnx.jit(lambda x: x.astype(dtype))(known)
            np.testing.assert_array_equal(found, wanted)
