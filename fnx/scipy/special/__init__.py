"""fnx.scipy.special: the special functions that `jax.scipy.special` has.

Elementwise functions of real numbers (`wofz`, `gamma` and `loggamma` of complex ones
too), compiled, within a few units of the last place of the dtype wherever they are well
conditioned, and differentiable. 16-bit and 32-bit floats are computed in float64.
The walk begins with `operands.py`.
"""

from fnx.nn import log_softmax, logsumexp, softmax
from fnx.scipy.special.bessel import (
    bessel_jn,
    hyp1f1,
    hyp2f1,
    i0,
    i0e,
    i1,
    i1e,
    sph_harm_y,
)
from fnx.scipy.special.error import (
    dawsn,
    erf,
    erfc,
    erfcx,
    erfinv,
    log_ndtr,
    ndtr,
    ndtri,
    owens_t,
    wofz,
)
from fnx.scipy.special.gamma import (
    bernoulli,
    beta,
    betainc,
    betaln,
    comb,
    digamma,
    factorial,
    gamma,
    gammainc,
    gammaincc,
    gammaln,
    gammasgn,
    loggamma,
    multigammaln,
    poch,
    polygamma,
    zeta,
)
from fnx.scipy.special.integrals import exp1, expi, expn, fresnel, sici, spence
from fnx.scipy.special.logarithms import (
    boxcox,
    boxcox1p,
    entr,
    expit,
    kl_div,
    logit,
    rel_entr,
    xlog1py,
    xlogy,
)

__all__ = [
    # gamma, beta, zeta
    "bernoulli",
    "beta",
    "betainc",
    "betaln",
    "comb",
    "digamma",
    "factorial",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "gammasgn",
    "loggamma",
    "multigammaln",
    "poch",
    "polygamma",
    "zeta",
    # error functions
    "dawsn",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "log_ndtr",
    "ndtr",
    "ndtri",
    "owens_t",
    "wofz",
    # integrals
    "exp1",
    "expi",
    "expn",
    "fresnel",
    "sici",
    "spence",
    # Bessel, Legendre, hypergeometric
    "bessel_jn",
    "hyp1f1",
    "hyp2f1",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "sph_harm_y",
    # logarithms
    "boxcox",
    "boxcox1p",
    "entr",
    "expit",
    "kl_div",
    "log_softmax",
    "logit",
    "logsumexp",
    "rel_entr",
    "softmax",
    "xlog1py",
    "xlogy",
]
