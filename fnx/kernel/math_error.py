"""The error function and its relatives: erf, erfc, erf_inv.

Polynomials in variables that make the functions smooth: the square near 0, then |x| for
log(erfc); (a - k)/(a + k) for the scaled erfc (Shepherd and Laframboise 1981);
-log(1 - x^2) for the inverse (Giles 2010). The coefficients are ours, by weighted Remez
exchange at 50 digits, rounded to the format.
Receives and gives `Value`s of float32 or float64; next on the walk: `math_gamma.py`.
"""

from __future__ import annotations

import math

from fnx import dtypes
from fnx.kernel.math_exp import exp, exp_reduce, exp_tail, scale
from fnx.kernel.math_log import log
from fnx.kernel.math_value import (
    TWO_OVER_SQRT_PI,
    Coefficients,
    Value,
    at_most,
    fast_two_sum,
    fma,
    parts,
    polynomial,
    quotient,
    select,
    two_product,
    two_sum,
)

# (erf(a)/a - 2/sqrt(pi)) / a^2 in t = a^2, a <= 1; relative error 2^-29.7, 2^-57.
_ERF: Coefficients = {
    dtypes.float32: (
        -3.761263074e-1,
        1.128363021e-1,
        -2.685549779e-2,
        5.191315585e-3,
        -8.03521564e-4,
        7.933627815e-5,
    ),
    dtypes.float64: (
        -3.76126389031836145e-1,
        1.12837916709470806e-1,
        -2.6866170643499947e-2,
        5.22397760893481649e-3,
        -8.54832605183568926e-4,
        1.2055296957396322e-4,
        -1.49247728844893445e-5,
        1.64478345547268643e-6,
        -1.62114082103538119e-7,
        1.37319347824383037e-8,
        -7.81681299608534965e-10,
    ),
}

# log(erfc(a)) for 1 <= a <= 4 or 5.95; error of erf: 2^-29.8, 2^-57.
_ERF_TAIL: Coefficients = {
    dtypes.float32: (
        -3.413096424e-4,
        -1.127090016,
        -6.38143529e-1,
        -1.031078267e-1,
        2.183854789e-2,
        -2.947771778e-3,
        1.863899759e-4,
    ),
    dtypes.float64: (
        -5.02765109906901643e-7,
        -1.12837409018586754,
        -6.36643625371031201e-1,
        -1.02703445789265337e-1,
        1.89901885294245855e-2,
        4.10617515539368948e-4,
        -1.91593562399426431e-3,
        7.70639573650935432e-4,
        -1.35049753996692876e-4,
        -2.0266112095004339e-5,
        2.2821948063690208e-5,
        -8.66688812676132048e-6,
        2.13558609239697059e-6,
        -3.73281619606307147e-7,
        4.64194274062815079e-8,
        -3.93388427074631392e-9,
        2.04471814880261739e-10,
        -4.92789797597985224e-12,
    ),
}

# (e^(a^2) erfc(a) (1 + 2a) - 1) / (q + 1) in q = (a - k)/(a + k), k = 3 or 4, where
# 0 <= a <= 10.1 or 27.3;
# relative error 2^-29, 2^-56.4.
_ERFCX: Coefficients = {
    dtypes.float32: (
        2.530080591e-1,
        -3.886291994e-1,
        3.410668043e-1,
        -2.114203563e-1,
        9.214931175e-2,
        -2.385386916e-2,
        5.661408344e-5,
        2.512036321e-3,
        -5.102266221e-4,
        -2.691332859e-4,
    ),
    dtypes.float64: (
        2.32995118625552508e-1,
        -3.72616235466115373e-1,
        3.87995887568735612e-1,
        -3.19898833314001317e-1,
        2.18859767277672094e-1,
        -1.25126932280782206e-1,
        5.87965664688661187e-2,
        -2.16290509077807091e-2,
        5.43131685173644507e-3,
        -3.99347084530565469e-4,
        -3.58426268881668644e-4,
        1.59170708053788085e-4,
        -8.54844649327207909e-6,
        -1.58545734997918468e-5,
        4.62981131071831237e-6,
        1.08783755733344341e-6,
        -7.86626807384619753e-7,
        -4.83516383625233171e-8,
        1.1125104530783189e-7,
        4.07858981656359995e-9,
        -1.18830537134309699e-8,
        -1.82514050919275167e-9,
    ),
}

# erfinv(x)/x in w - c, w = -log(1 - x^2) <= 2c, c = 2.5 or 3.125; relative error
# 2^-27.4, 2^-58.
_ERF_INV: Coefficients = {
    dtypes.float32: (
        1.501409359,
        2.466402861e-1,
        -4.177386836e-3,
        -1.252741852e-3,
        2.183444839e-4,
        -4.963355721e-6,
        -3.462716424e-6,
        4.661709976e-7,
        2.323358864e-8,
        -8.791007613e-9,
    ),
    dtypes.float64: (
        1.65365456268310272,
        2.40158182425588333e-1,
        -6.03367087142699806e-3,
        -7.40702534154554272e-4,
        1.86734208020534819e-4,
        -1.38825233941966715e-5,
        -1.36546917727128152e-6,
        4.23478817119375842e-7,
        -2.90703898902521041e-8,
        -4.11266064203199236e-9,
        1.05122256448780953e-9,
        -5.41429466310212552e-11,
        -1.29785034480373642e-11,
        2.63050355727728206e-12,
        -8.07930621692922586e-14,
        -4.00159159361352789e-14,
        6.53336149463158485e-15,
        -3.98759187566241186e-17,
        -1.23450488712650216e-16,
        1.5545052011196149e-17,
        6.95765947704071119e-19,
        -3.48758945895298464e-19,
        1.65358985425771549e-20,
        3.21926634340447463e-21,
        -3.00110184644985783e-22,
    ),
}

# The same in sqrt(w) - c, 2c < w < 16 or 36.1, c = 3.125 or 4.25; relative error
# 2^-27.4, 2^-55.8.
_ERF_INV_TAIL: Coefficients = {
    dtypes.float32: (
        2.958320133,
        1.003718703,
        7.04904191e-3,
        -5.301020822e-3,
        3.781703733e-3,
        -2.521109531e-3,
        1.31054259e-3,
        -3.228363695e-4,
        -1.736473108e-4,
        1.289862574e-4,
    ),
    dtypes.float64: (
        4.09222342366812936,
        1.00997827716125532,
        7.12749972667562434e-4,
        -6.07894027453170692e-4,
        2.12176713090358953e-4,
        -6.44197508666816176e-5,
        2.19801298546352893e-5,
        -1.01976643521886883e-5,
        5.80726053201836801e-6,
        -3.21112971474185265e-6,
        1.49019601670514044e-6,
        -5.15258278212831642e-7,
        9.32541826282955633e-8,
        2.56094076508982597e-8,
        -3.00997588624346375e-8,
        1.3440046908276002e-8,
        -3.10154528034792161e-9,
        -1.91396865398822803e-10,
        4.82097700548162817e-10,
        -1.85845489489551594e-10,
        2.61405832073780211e-11,
        2.0945524266204383e-12,
        -1.96827812108802742e-12,
        1.76289325332531745e-12,
        -6.89908221887305137e-13,
        -5.54687659154510494e-14,
        7.33623114207291835e-14,
        -4.35410255868970748e-15,
        -1.79426793485944914e-15,
    ),
}

# From here on erf is 1, erfc 0 (even as a subnormal).
_ERF_LIMIT = {dtypes.float32: 4.0, dtypes.float64: 5.95}
_ERFC_LIMIT = {dtypes.float32: 10.1, dtypes.float64: 27.3}


def erf(x: Value) -> Value:
    """Error function: x (c + x^2 p(x^2)) up to |x| = 1, then 1 - exp(q(|x|)).

    At most 1.5 ulp.
    """
    a = abs(x)
    c, c_low = parts(TWO_OVER_SQRT_PI, x.dtype)
    t = a * a
    near = fma(a, c, a * fma(t, polynomial(t, _ERF), c_low))
    far = 1.0 - exp(polynomial(at_most(a, _ERF_LIMIT[x.dtype]), _ERF_TAIL))
    return select(a > 1.0, far, near).copysign(x)


def erfc(x: Value) -> Value:
    """Complementary error function: exp(-a^2) r(a) / (1 + 2a), a = |x|.

    At most 2.1 ulp; 2 minus it for x < 0. a^2 and the quotient are made as pairs,
    exp(-a^2) as 2^n (1 + d).
    """
    a = at_most(abs(x), _ERFC_LIMIT[x.dtype])
    ratio = erfcx_ratio(a)
    square, square_low = two_product(a, a)
    r, shifted = exp_reduce(-square, -square_low)
    y = scale(fma(ratio, exp_tail(r), ratio), shifted)
    return select(x < 0.0, 2.0 - y, y)


def erfcx_ratio(a: Value) -> Value:
    """exp(a^2) erfc(a), for 0 <= a <= 10.1 or 27.3: r(a) / (1 + 2a)."""
    k = 3.0 if a.dtype == dtypes.float32 else 4.0
    u = (a + a) / (a + k)
    top, top_low = fast_two_sum(a.like(1.0), u * polynomial(u - 1.0, _ERFCX))
    bottom, bottom_low = two_sum(a + a, a.like(1.0))
    return quotient(top, bottom, bottom_low, top_low)


def erf_inv(x: Value) -> Value:
    """Inverse of erf: x p(w), w = -log(1 - x^2), or x q(sqrt(w)) for |x| near 1.

    At most 3 ulp.
    """
    single = x.dtype == dtypes.float32
    w = -log(fma(-x, x, 1.0))
    near_center, tail_center = (2.5, 3.125) if single else (3.125, 4.25)
    near = polynomial(w - near_center, _ERF_INV)
    tail = polynomial(w.op("sqrt") - tail_center, _ERF_INV_TAIL)
    y = x * select(w > 2 * near_center, tail, near)
    return select(abs(x).equals(1.0), x * math.inf, y)
