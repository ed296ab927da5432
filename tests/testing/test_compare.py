"""fnx.check: what agrees is reported, what differs is named."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.core.primitive import primitive


@pytest.fixture
def wrong_sine(monkeypatch):
    """A compiler that takes sin for cos; the reference rule is right."""
    fnx.clear_caches()
    monkeypatch.setattr(primitive("sin"), "scalar", "cos")
    yield
    fnx.clear_caches()


def mixed(x):
    h = fnp.tanh(x @ x.T)
    c, _ = lax.scan(lambda c, r: (fnp.exp(-c * r), None), h[0], h[1:3])
    return {"a": c.sum(), "b": fnp.cumsum(h, 0), "i": (h > 0).sum(0)}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_what_agrees_is_reported(rng, dtype):
    x = fnp.asarray(rng.standard_normal((7, 5)), dtype)
    report = fnx.check(mixed)(x)
    assert report.function == "mixed" and report.equations == 11
    assert 0 <= report.single <= 1 and 0 <= report.whole <= 1
    assert str(report).startswith("check of mixed: 11 equations; the reference rules")
    assert fnx.check(fnx.grad(lambda x: mixed(x)["a"]))(x).equations > 11
    assert fnx.check(fnx.jit(lambda x, n: x * n, static_argnums=1))(x, 3).equations == 1
    assert fnx.check(lambda x: x)(x).equations == 0


def test_special_values_must_agree():
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300])
    report = fnx.check(lambda x: (x * 2, fnp.log(x), fnp.sqrt(x), x > 0))(x)
    assert report.whole <= 1


def test_the_first_equation_that_differs_is_named(wrong_sine):
    x = np.array([[1.0, 2.0], [3.0, 0.5]])

    def f(x):
        y = x * 2.0
        return fnp.exp(fnp.sin(y)) + y

    number = f.__code__.co_firstlineno + 2
    with pytest.raises(errors.DifferenceError) as caught:
        fnx.check(f)(x)
    assert isinstance(caught.value, AssertionError)
    head, operation, place, values = str(caught.value).split("\n")
    assert head == (
        "check of f: equation 1 of 4, compiled by itself, is the first that differs "
        "from its reference rule."
    )
    assert operation == "  f64[2,2] = sin f64[2,2]"
    assert place.startswith(f"  at tests/testing/test_compare.py:{number} (test_the_")
    assert place.endswith(".f): return fnp.exp(fnp.sin(y)) + y")
    numbers = re.fullmatch(
        r"  its value at index \[(\d),(\d)\] is (\S+), by reference (\S+); "
        r"the error may be 9.09e-13",
        values,
    )
    index = tuple(map(int, numbers.groups()[:2]))
    assert float(numbers[3]) == pytest.approx(np.cos(2 * x)[index])
    assert float(numbers[4]) == np.sin(2 * x)[index]


def test_inside_of_a_loop_the_equation_is_named(wrong_sine):
    def f(x):
        return lax.scan(lambda c, r: (fnp.sin(c * r), None), x[0], x)[0]

    with pytest.raises(errors.DifferenceError) as caught:
        fnx.check(f)(np.array([1.0, 2.0, 3.0]))
    text = str(caught.value)
    assert text.startswith("check of f, inside of scan: equation 1 of 2, compiled by")
    assert "f64[] = sin f64[]" in text


def test_a_fault_of_the_whole_is_located(monkeypatch):
    """A compiler that is wrong only about what it inlines into a kernel."""
    sine = primitive("sin")
    right = type(sine).element

    def element(self, k, index, x):
        inlined = self is sine and x.atom in x._lowering.inside
        return right(primitive("cos") if inlined else self, k, index, x)

    def f(x):
        return fnp.sin(x * 2.0) * 3.0

    fnx.clear_caches()
    monkeypatch.setattr(type(sine), "element", element)
    try:
        with pytest.raises(errors.DifferenceError) as caught:
            fnx.check(f)(np.array([1.0, 2.0]))
    finally:
        monkeypatch.undo()
        fnx.clear_caches()
    assert str(caught.value).startswith(
        "check of f: equation 1 of 3, in the whole program, is the first that differs"
    )


def test_rounding_before_a_jump_is_no_fault():
    x = np.array([0.1, 0.2, 0.3, 0.7], "f4")

    def f(x):
        # Equal but for rounding: which is the larger one depends on it.
        y = fnp.stack([fnp.exp(x).sum(), fnp.exp(x[::-1]).sum()])
        return y.argmax(), fnp.floor(fnp.log(fnp.exp(x)) / x)

    report = fnx.check(f)(x)
    assert report.single <= 1
    assert report.sensitive in str(report)


def test_options():
    x = np.linspace(1.0, 2.0, 50, dtype="f4")
    assert fnx.check(lambda x: fnp.sin(x).sum(), rtol=1e-2)(x).whole < 1e-3
    with pytest.raises(errors.ArgumentError, match="check takes a function"):
        fnx.check(3)
    with pytest.raises(errors.ArgumentError, match="x is 'a' of type str"):
        fnx.check(lambda x: x)("a")
