"""fnx.image: against JAX, sums by hand, derivatives, members of vmap, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, image
from fnx.image import ResizeMethod
from fnx.testing.gradients import check_grads

X = np.random.default_rng(0).standard_normal((2, 7, 5, 3))
NAMES = ["nearest", "linear", "cubic", "cubic-pytorch", "lanczos3", "lanczos5", "area"]
SHAPES = [(2, 3, 9, 3), (2, 14, 1, 3), (2, 7, 5, 3), (2, 1, 20, 2)]
names = pytest.mark.parametrize("name", NAMES)


@pytest.mark.oracle
@names
@pytest.mark.parametrize("antialias", [True, False])
def test_resize_is_that_of_jax(jax, name, antialias):
    for shape, dtype in itertools.product(SHAPES, ["float32", "float64", "int32"]):
        x = (X * 50).astype(dtype)
        got = image.resize(x, shape, name, antialias)
        want = jax.image.resize(x, shape, name, antialias)
        if dtype != "int32":  # which JAX computes in float64 here
            assert got.dtype == want.dtype
        tolerance = 1e-10 if dtype == "float64" else 3e-5
        np.testing.assert_allclose(got, want, tolerance, 50 * tolerance)
        jitted = fnx.jit(image.resize, static_argnums=(1, 2, 3))
        again = jitted(x, shape, name, antialias)
        np.testing.assert_allclose(again, got, tolerance, tolerance)


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["linear", "cubic", "lanczos3", "lanczos5", "area"])
@pytest.mark.parametrize("antialias", [True, False])
def test_scale_and_translate_is_that_of_jax(jax, name, antialias):
    for scale, shift in (([1.3, 0.6], [0.7, -1.2]), ([0.3, 2.0], [4.0, -30.0])):
        given = (2, 6, 6, 3), (1, -2), np.array(scale), np.array(shift), name
        got = image.scale_and_translate(X, *given, antialias)
        want = jax.image.scale_and_translate(X, *given, antialias)
        np.testing.assert_allclose(got, want, 1e-9, 1e-12)


def test_values_by_hand():
    x = np.array([0.0, 1.0, 4.0, 9.0])
    assert image.resize(x, (2,), "nearest").tolist() == [1, 9]
    assert image.resize(x, (2,), "area").tolist() == [0.5, 6.5]
    assert image.resize(x, (2,), "linear", antialias=False).tolist() == [0.5, 6.5]
    got = image.resize(x[:2], (4,), ResizeMethod.LINEAR)
    assert got.tolist() == [0, 0.25, 0.75, 1]
    # three and a half pixels of a row of sizes that no float32 tells apart
    assert image.resize(np.arange(5), (3,), "nearest").tolist() == [0, 2, 4]


@names
def test_constants_stay(name):
    x = np.full((5, 4), 3.0)
    got = image.resize(x, (8, 3), name)
    np.testing.assert_allclose(got, np.full((8, 3), 3.0), 1e-12)


def test_dtypes_and_empty_axes():
    x = np.ones((3, 4))
    for dtype in ("float16", "bfloat16", "float32"):
        assert image.resize(fnp.asarray(x, dtype), (2, 2), "cubic").dtype == dtype
    assert image.resize(x > 0, (6, 4), "nearest").dtype == bool
    assert image.resize(x.astype("uint8"), (6, 4), "linear").dtype == np.float32
    assert image.resize(x, (0, 4), "linear").shape == (0, 4)
    assert image.resize(np.float64(2.0), (), "linear") == 2.0


@pytest.mark.parametrize("name", ["linear", "cubic-pytorch", "lanczos3", "area"])
def test_derivatives_by_the_image(name):
    for antialias in (True, False):
        check_grads(
            lambda x, a=antialias: image.resize(x, (3, 8), name, a), (X[0, :, :, 0],), 2
        )


def test_derivatives_by_scale_and_translation():
    def run(x, scale, shift):
        return image.scale_and_translate(x, (4, 5), (0, 1), scale, shift, "cubic")

    check_grads(run, (X[0, :, :, 0], np.array([0.83, 1.27]), np.array([0.21, -0.6])), 1)


def test_members_are_those_of_a_loop():
    got = fnx.vmap(lambda x: image.resize(x, (3, 8, 3), "cubic"))(X)
    np.testing.assert_allclose(got, image.resize(X, (2, 3, 8, 3), "cubic"), 1e-12)


ERRORS = [
    (lambda: image.resize(X, (3, 4), "linear"), errors.ShapeError, "shape is .3, 4."),
    (lambda: image.resize(X, X.shape, "best"), errors.OptionError, "'best' is none"),
    (lambda: image.resize(X, X.shape, 1), errors.OptionError, "a name or a Resize"),
    (
        lambda: image.scale_and_translate(X, X.shape, (1,), X[0, 0], X[0, 0], "cubic"),
        errors.ShapeError,
        r"scale is f64\[5,3\]",
    ),
    (
        lambda: image.scale_and_translate(X, X.shape, (4,), [], [], "cubic"),
        errors.AxisError,
        "axis 4",
    ),
    (
        lambda: image.scale_and_translate(X, X.shape, (1, 1), [], [], "cubic"),
        errors.AxisError,
        "names an axis twice",
    ),
    (
        lambda: image.scale_and_translate(X, X.shape, (1,), [], [], "nearest"),
        errors.OptionError,
        "one of resize alone",
    ),
]


@pytest.mark.parametrize("case", ERRORS, ids=[e[2] for e in ERRORS])
def test_errors(case):
    call, kind, match = case
    with pytest.raises(kind, match=match):
        call()
