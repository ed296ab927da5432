"""Arguments of the rarer functions of `fnx.numpy`, and how results are compared."""

from __future__ import annotations

import numpy as np

import fnx.numpy as fnp

RNG = np.random.default_rng(11)
F = RNG.standard_normal((3, 4))
N = np.where(F > 0.4, np.nan, F)
I = RNG.integers(-30, 30, (3, 4)).astype("i4")  # noqa: E741
J = RNG.integers(-9, 9, (4,)).astype("i4")
U = RNG.integers(0, 256, (3, 5)).astype("u1")
V = RNG.standard_normal(9)
W = RNG.uniform(0.5, 2, 9)
Q = np.array([0.0, 0.2, 0.5, 1.0])
TINY = np.array([0.0, -0.0, 1e-310, -5e-324, 1, -1.5, 3e300, np.inf, -np.inf, np.nan])
with np.errstate(over="ignore"):
    TINY4, TINY2 = TINY.astype("f4"), TINY.astype("f2")
METHODS = """linear lower higher midpoint nearest hazen weibull median_unbiased
normal_unbiased interpolated_inverted_cdf inverted_cdf""".split()


def flat(x):
    if isinstance(x, tuple | list):
        return [leaf for part in x for leaf in flat(part)]
    return [np.asarray(x)]


def same(found, wanted, dtype=False):
    found, wanted = flat(found), flat(wanted)
    assert len(found) == len(wanted)
    for x, y in zip(found, wanted, strict=True):
        assert x.shape == y.shape
        if x.dtype.kind in "biu":
            np.testing.assert_array_equal(x, y)
        else:
            wide = 1e-5 if x.dtype.itemsize < 8 else 1e-11
            np.testing.assert_allclose(x, y, rtol=wide, atol=wide)


def arrays(x):
    return fnp.array(x) if isinstance(x, np.ndarray | np.generic) else x


def numpys(options):
    return {k: arrays(v) for k, v in options.items()}
