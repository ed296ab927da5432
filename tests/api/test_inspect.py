"""make_jaxpr, eval_shape, typeof, devices."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import fnx
from fnx import errors
from fnx.core.types import array_type

X = np.arange(6.0).reshape(2, 3)


def test_make_jaxpr_gives_the_program():
    program, shapes = fnx.make_jaxpr(
        lambda p, n: {"y": p["x"] * float(n)}, static_argnums=1, return_shape=True
    )({"x": X}, 2)
    assert str(program) == (
        "{ lambda a:f64[2,3]. let\n    b:f64[2,3] = mul a 2.0:f64[]*\n  in (b,) }"
    )
    assert shapes == {"y": fnx.ShapeDtypeStruct((2, 3), "float64")}


def test_eval_shape_computes_nothing():
    struct = fnx.ShapeDtypeStruct((1000000, 1000000), "bfloat16")
    found = fnx.eval_shape(lambda x, s: (x * s, 2), struct, 1.5)
    assert found[0] == struct
    assert found[1].weak_type and found[1].dtype == np.int32
    assert struct.ndim == 2 and struct.size == 10**12 and len(struct) == 1000000
    with pytest.raises(errors.TracerValueError, match="depends on x"):
        fnx.eval_shape(lambda x: x if x else -x, X)
    with pytest.raises(errors.ArgumentError, match="x is 'a' of type str"):
        fnx.eval_shape(lambda x: x, "a")


def test_typeof():
    assert fnx.typeof(X) is array_type((2, 3), "float64")
    assert str(fnx.typeof(1)) == "i32[]*"
    assert fnx.typeof(fnx.ShapeDtypeStruct((), "int8")) is array_type((), "int8")


def test_devices():
    (device,) = fnx.devices()
    assert device == fnx.local_devices("cpu")[0]
    assert (device.platform, device.id, repr(device)) == ("cpu", 0, "CpuDevice(id=0)")
    assert fnx.device_count() == fnx.local_device_count() == fnx.process_count() == 1
    assert fnx.process_index() == 0 and fnx.default_backend() == "cpu"
    with pytest.raises(errors.OptionError, match=r"devices\('tpu'\)"):
        fnx.devices("tpu")


def test_device_put_and_get():
    x = X.copy()
    put = fnx.device_put({"x": x, "n": 3}, fnx.devices()[0])
    x[0, 0] = 9.0
    got = fnx.device_get(put)
    assert got["x"][0, 0] == 0.0 and not got["x"].flags.writeable
    assert isinstance(got["n"], np.ndarray) and put["n"].weak_type
    assert fnx.block_until_ready(put) is put
    frozen = np.ones(3)
    frozen.flags.writeable = False
    assert np.shares_memory(np.asarray(fnx.device_put(frozen)), frozen)
    with pytest.raises(errors.ArgumentError, match=r"the argument\['a'\] is 'b'"):
        fnx.device_put({"a": "b"})
    with pytest.raises(errors.ArgumentError, match=r"is no device"):
        fnx.device_put(x, "cpu")


def test_import_is_light_and_complete():
    code = (
        "import sys, fnx; assert not {'scipy', 'llvmlite', 'cupy', 'jax'} & "
        "set(sys.modules); print([n for n in fnx.__all__ if not hasattr(fnx, n)])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fnx.nothing  # noqa: B018
