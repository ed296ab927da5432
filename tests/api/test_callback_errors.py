"""pure_callback and io_callback: what was not declared, bad calls, exceptions."""

from __future__ import annotations

import traceback
from pathlib import Path

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from tests.api.host_calls import BOTH, F32, Mistake

# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("returned", "error", "text"),
    [
        (np.zeros(2, np.float32), errors.ShapeError, r"\['a'\]\[0\] is float32\[2\]"),
        (np.float64(1), errors.DTypeError, r"\['a'\]\[0\] is of dtype float64"),
        (1j, errors.DTypeError, "complex128"),
        ("text", errors.DTypeError, "<U4"),
        (object(), errors.ArgumentError, "is of type object; f32.. was declared"),
    ],
)
@BOTH
def test_a_leaf_that_was_not_declared(returned, error, text, transform):
    def f(x):
        return fnx.pure_callback(lambda x: {"a": [returned]}, {"a": [F32]}, x)

    with pytest.raises(error, match=text):
        transform(f)(fnp.float32(1))


@BOTH
def test_a_tree_that_was_not_declared(transform):
    def f(x):
        return fnx.pure_callback(lambda x: (x, x), {"a": F32}, x)

    with pytest.raises(errors.TreeError, match="the structure of result_shape_dtypes"):
        transform(f)(fnp.float32(1))


def test_a_number_that_does_not_fit():
    f = fnx.jit(lambda x: fnx.pure_callback(lambda x: 2**40, np.int32(0), x))
    with pytest.raises(OverflowError):
        f(1)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: fnx.pure_callback(3, F32), "takes a function"),
        (lambda: fnx.pure_callback(np.sin, F32, "x"), "x.*of type str"),
        (lambda: fnx.pure_callback(np.sin, F32, 1.0, sharding=1), "sharding"),
        (lambda: fnx.io_callback(np.sin, F32, 1.0, sharding=1), "sharding"),
        (lambda: fnx.pure_callback(np.sin, F32, 1.0, vmap_method="any"), "sequential"),
        (lambda: fnx.pure_callback(np.sin, "f4", 1.0), "result_shape_dtypes is 'f4'"),
        (lambda: fnx.pure_callback(np.sin, F32, x=1, vjp=np.sin), "by position"),
    ],
)
def test_invalid_calls(call, text):
    with pytest.raises((errors.ArgumentError, errors.OptionError), match=text):
        call()


# ---------------------------------------------------------------- exceptions


def raising(x):
    raise Mistake(f"got {x}")


def in_scan(x):
    def body(c, _):
        return fnx.pure_callback(raising, F32, c), None

    return lax.scan(body, x, None, 3)[0]


def in_both_loops(x):
    def step(v):
        return fnx.pure_callback(raising, F32, v) + v

    return lax.fori_loop(0, 2, lambda i, v: lax.while_loop(lambda w: w < 5, step, v), x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: fnx.pure_callback(raising, F32, x),
        lambda x: fnx.debug.callback(raising, x),
        lambda x: lax.cond(x > 0, lambda x: fnx.io_callback(raising, F32, x), abs, x),
        in_scan,
        in_both_loops,
        lambda x: fnx.vmap(lambda x: fnx.io_callback(raising, F32, x))(fnp.stack([x])),
    ],
)
@BOTH
def test_exceptions_reach_the_caller(function, transform):
    f = transform(function)
    for _ in range(40):  # later calls are native
        with pytest.raises(Mistake, match=r"got 1\.0") as caught:
            f(fnp.float32(1))
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].name == "raising"
    own = Path(fnx.__file__).parent
    assert not any(own in Path(frame.filename).parents for frame in frames[-2:])
    assert fnx.jit(lambda x: x + 1)(1.0).item() == 2.0


def test_an_exception_after_some_rounds():
    seen = []

    def outside(x):
        seen.append(x.item())
        if x > 2:
            raise Mistake
        return x + 1

    def f(x):
        body = lambda c, _: (fnx.io_callback(outside, F32, c), None)  # noqa: E731
        return lax.scan(body, x, None, 10)[0]

    g = fnx.jit(f)
    for _ in range(2):
        with pytest.raises(Mistake):
            g(fnp.float32(0))
    assert seen == [0.0, 1.0, 2.0, 3.0] * 2


def test_exceptions_leave_blas_as_it_was():
    """Products have BLAS use one thread; what comes after them must not find that."""

    def f(x):
        def body(c, _):
            c = c @ c
            return c + fnx.pure_callback(raising, F32, c[0, 0]), None

        return lax.scan(body, x, None, 2)[0]

    with pytest.raises(Mistake):
        fnx.jit(f)(np.eye(4, dtype=np.float32))
    a = np.arange(300.0 * 300).reshape(300, 300)
    np.testing.assert_allclose(fnx.jit(lambda x: x @ x)(a), a @ a)


def test_system_exit_and_interrupts_are_not_lost():
    for error in (SystemExit, KeyboardInterrupt, GeneratorExit):

        def outside(x, error=error):
            raise error

        with pytest.raises(error):
            fnx.jit(lambda x: fnx.pure_callback(outside, F32, x))(fnp.float32(1))
