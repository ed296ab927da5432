"""Random numbers: pure functions of a key, with JAX's names and JAX's bits.

`keys` makes keys and derives new ones, `stream` turns a key into random bits, and
`interval`, `integers`, `continuous`, `extreme`, `choosing`, `gammas`, `of_gammas`,
`counts` and `vectors` turn those into samples.
Everything is made of primitives, so that it traces, maps over keys and fuses with what
uses the samples.
Next on the walk: `keys.py`.
"""

from __future__ import annotations

from fnx.random.choosing import categorical, choice, permutation
from fnx.random.continuous import (
    cauchy,
    double_sided_maxwell,
    exponential,
    laplace,
    logistic,
    lognormal,
    maxwell,
    normal,
    pareto,
    rayleigh,
    triangular,
    truncated_normal,
    wald,
    weibull_min,
)
from fnx.random.counts import binomial, multinomial, poisson
from fnx.random.extreme import gumbel
from fnx.random.gammas import gamma, loggamma
from fnx.random.integers import bernoulli, geometric, rademacher, randint
from fnx.random.interval import uniform
from fnx.random.keys import (
    Key,
    KeyDType,
    PRNGKey,
    clone,
    fold_in,
    key,
    key_data,
    key_dtype,
    key_impl,
    split,
    wrap_key_data,
)
from fnx.random.of_gammas import (
    ball,
    beta,
    chisquare,
    dirichlet,
    f,
    generalized_normal,
    t,
)
from fnx.random.stream import bits
from fnx.random.vectors import multivariate_normal, orthogonal

__all__ = [
    # keys
    "Key",
    "KeyDType",
    "PRNGKey",
    "clone",
    "fold_in",
    "key",
    "key_data",
    "key_dtype",
    "key_impl",
    "split",
    "wrap_key_data",
    # bits and numbers
    "bits",
    "uniform",
    "randint",
    "bernoulli",
    "rademacher",
    "geometric",
    # continuous distributions
    "normal",
    "truncated_normal",
    "lognormal",
    "exponential",
    "gumbel",
    "laplace",
    "logistic",
    "cauchy",
    "pareto",
    "rayleigh",
    "weibull_min",
    "triangular",
    "maxwell",
    "double_sided_maxwell",
    "wald",
    "gamma",
    "loggamma",
    "beta",
    "chisquare",
    "dirichlet",
    "f",
    "t",
    "generalized_normal",
    "ball",
    # counts
    "poisson",
    "binomial",
    "multinomial",
    "multivariate_normal",
    "orthogonal",
    # choosing
    "categorical",
    "choice",
    "permutation",
]
