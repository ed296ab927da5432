"""fnx.scipy.stats: the distributions and statistics that `jax.scipy.stats` has.

Each distribution is a module of functions, as there: densities, probabilities, their
logarithms and quantiles, differentiable in all arguments. They keep their relative
precision in the tails, and their derivatives are finite or the limits at the ends of
the supports. The walk begins with `support.py`.
"""

from fnx.scipy.stats import (
    bernoulli,
    beta,
    betabinom,
    binom,
    cauchy,
    chi2,
    dirichlet,
    expon,
    gamma,
    gennorm,
    geom,
    gumbel_l,
    gumbel_r,
    laplace,
    logistic,
    multinomial,
    multivariate_normal,
    nbinom,
    norm,
    pareto,
    poisson,
    t,
    truncnorm,
    uniform,
    vonmises,
    wrapcauchy,
)
from fnx.scipy.stats.kde import gaussian_kde
from fnx.scipy.stats.ranks import mode, rankdata, sem

__all__ = [
    # distributions
    "bernoulli",
    "beta",
    "betabinom",
    "binom",
    "cauchy",
    "chi2",
    "dirichlet",
    "expon",
    "gamma",
    "gennorm",
    "geom",
    "gumbel_l",
    "gumbel_r",
    "laplace",
    "logistic",
    "multinomial",
    "multivariate_normal",
    "nbinom",
    "norm",
    "pareto",
    "poisson",
    "t",
    "truncnorm",
    "uniform",
    "vonmises",
    "wrapcauchy",
    # samples
    "gaussian_kde",
    "mode",
    "rankdata",
    "sem",
]
