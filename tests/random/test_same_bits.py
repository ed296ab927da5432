"""Eager samplers give the bits that jitted ones give, for every distribution."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import random

SHAPE = (300,)
SAMPLERS = {
    "normal": lambda k: random.normal(k, SHAPE),
    "normal f16": lambda k: random.normal(k, SHAPE, "float16"),
    "normal f64": lambda k: random.normal(k, SHAPE, "float64"),
    "normal c64": lambda k: random.normal(k, SHAPE, "complex64"),
    "truncated_normal": lambda k: random.truncated_normal(k, -1.0, 2.0, SHAPE),
    "lognormal": lambda k: random.lognormal(k, 2.0, SHAPE),
    "exponential": lambda k: random.exponential(k, SHAPE),
    "gumbel": lambda k: random.gumbel(k, SHAPE),
    "gumbel highest": lambda k: random.gumbel(k, SHAPE, mode="highest"),
    "laplace": lambda k: random.laplace(k, SHAPE),
    "logistic": lambda k: random.logistic(k, SHAPE),
    "cauchy": lambda k: random.cauchy(k, SHAPE),
    "pareto": lambda k: random.pareto(k, fnp.linspace(0.5, 3.0, 300)),
    "rayleigh": lambda k: random.rayleigh(k, 2.0, SHAPE),
    "weibull_min": lambda k: random.weibull_min(k, 2.0, 3.0, SHAPE),
    "triangular": lambda k: random.triangular(k, 0.0, 1.0, 3.0, SHAPE),
    "maxwell": lambda k: random.maxwell(k, SHAPE),
    "double_sided_maxwell": lambda k: random.double_sided_maxwell(k, 1.0, 2.0, SHAPE),
    "wald": lambda k: random.wald(k, 2.0, SHAPE),
    "beta": lambda k: random.beta(k, 2.0, 0.5, SHAPE),
    "dirichlet": lambda k: random.dirichlet(k, fnp.array([1.0, 0.3, 2.0]), (50,)),
    "chisquare": lambda k: random.chisquare(k, 2.0, SHAPE),
    "f": lambda k: random.f(k, 2.0, 5.0, SHAPE),
    "t": lambda k: random.t(k, 2.0, SHAPE),
    "generalized_normal": lambda k: random.generalized_normal(k, 1.5, SHAPE),
    "ball": lambda k: random.ball(k, 3, 2.5, (60,)),
    "geometric": lambda k: random.geometric(k, 0.3, SHAPE),
    "categorical": lambda k: random.categorical(k, fnp.arange(4.0), shape=SHAPE),
    "choice": lambda k: random.choice(
        k, 20, (6,), replace=False, p=fnp.linspace(0.0, 1.0, 20)
    ),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_eager_and_jitted_samples_are_the_same(name):
    sample, key = SAMPLERS[name], random.key(5)
    np.testing.assert_array_equal(sample(key), fnx.jit(sample)(key))
