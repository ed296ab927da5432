"""Methods of the functions of `fnx.numpy` (`reduce`, `at`, …) against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from tests.numpy.given import F, I, V, same


def _both(x, y):
    return 2 * x + y


OURS = fnp.frompyfunc(_both, 2, 1)
NUMPYS = np.frompyfunc(_both, 2, 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda f: f(F, F[0]),
        lambda f: f.reduce(F),
        lambda f: f.reduce(F, axis=1, keepdims=True),
        lambda f: f.reduce(F, axis=1, initial=0.5),
        lambda f: f.accumulate(F, 1),
        lambda f: f.outer(F, V),
        lambda f: f.reduceat(V, np.array([0, 4, 1, 8])),
        lambda f: f.reduceat(F, np.array([2, 0]), 0),
    ],
)
def test_ufunc_of_a_python_function(call):
    wanted = np.asarray(call(NUMPYS), np.float64)
    same(call(OURS), wanted)


NAMES = """add multiply maximum minimum subtract bitwise_and bitwise_or bitwise_xor
logical_and logical_or logical_xor logaddexp logaddexp2""".split()


@pytest.mark.parametrize("name", NAMES)
def test_methods_of_functions(name):
    ours, numpys = getattr(fnp, name), getattr(np, name)
    x = I if "bitwise" in name or "logical" in name else F
    same(ours.reduce(x), numpys.reduce(x))
    same(ours.reduce(x, axis=1, keepdims=True), numpys.reduce(x, 1, keepdims=True))
    same(ours.accumulate(x, 1), numpys.accumulate(x, 1))
    same(ours.outer(x, x[0]), numpys.outer(x, x[0]))
    ends = np.array([0, 2, 1])
    same(ours.reduceat(x, ends, 1), numpys.reduceat(x, ends, 1))
    if "logical" not in name:
        places, values = np.array([0, 1, 1, 2]), x[:1]
        changed = x.copy()
        numpys.at(changed, places, values)
        same(ours.at(x, places, values, inplace=False), changed)
    assert (ours.nin, ours.nout, ours.nargs) == (2, 1, 3)


def test_reduce_where_without_an_identity():
    mask = F > 0
    same(fnp.add.reduce(F, where=mask), np.add.reduce(F, where=mask))
    found = fnp.maximum.reduce(F, where=mask, initial=-9.0)
    same(found, np.maximum.reduce(F, where=mask, initial=-9.0))
    with pytest.raises(fnx.errors.ArgumentError, match="initial"):
        fnp.maximum.reduce(F, where=mask)
    with pytest.raises(fnx.errors.ArgumentError, match="two arguments"):
        fnp.frompyfunc(lambda x: x, 1, 1).reduce(F)
    with pytest.raises(fnx.errors.OptionError, match="never change"):
        fnp.add.at(F, 0, 1.0)


def test_gradient_of_a_fold():
    found = fnx.grad(lambda x: OURS.reduce(x))(fnp.array(V))
    same(found, 2.0 ** np.array([8, *range(7, -1, -1)]))
