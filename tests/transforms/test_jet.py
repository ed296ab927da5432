"""Every primitive under Taylor mode, and in the pattern of a Jacobian, by its cases."""

from __future__ import annotations

import importlib
import itertools
import math
import pkgutil
from pathlib import Path

import numpy as np
import pytest

import fnx
import fnx.ops
from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.core.primitive import primitive as named
from fnx.core.program import Literal
from fnx.transforms.rewrite import alone
from fnx.transforms.sparsity import pattern
from tests.cases import CASES
from tests.rules import ORDERS, call, precise, random_like, value

_names = [module.name for module in pkgutil.iter_modules(fnx.ops.__path__, "fnx.ops.")]
_files = sorted(Path(__file__).parent.parent.glob("cases_*.py"))
for _name in [*_names, *[f"tests.{path.stem}" for path in _files]]:
    importlib.import_module(_name)

ORDER = 3


def some(cases, most):
    """So many cases of each primitive that has derivatives."""
    smooth = sorted((c for c in cases if c.smooth), key=lambda c: c.primitive)
    groups = itertools.groupby(smooth, key=lambda c: c.primitive)
    chosen = [case for _, group in groups for case in [*group][:most]]
    return pytest.mark.parametrize("case", chosen, ids=lambda c: c.id)


def real(x):
    return isinstance(x, Array) and dtypes.is_float(x.dtype)


def function_of(case, args, places):
    """The primitive as a function of some arguments, and its inexact outputs."""

    def function(*moving):
        given = dict(zip(places, moving, strict=True))
        found = call(case, [given.get(i, x) for i, x in enumerate(args)])
        return [x for x in found if dtypes.is_inexact(x.dtype)]

    return function


@some(CASES, 2)
def test_jet_is_nested_jvp(case):
    args = precise(case)
    places = [i for i in case.smooth if real(args[i])]
    if not places or any(args[i].dtype != np.float64 for i in places):
        pytest.skip("no double precision")
    rng = np.random.default_rng(4)
    function = function_of(case, args, places)
    primals = [args[i] for i in places]
    series = [[random_like(rng, x.type) for _ in range(ORDER)] for x in primals]
    try:
        outputs, terms = fnx.jet(function, tuple(primals), tuple(series))
    except errors.ArgumentError as error:
        assert ORDERS.get(case.primitive, ORDER) < ORDER
        assert "none of this order" in str(error)
        return

    def along(t):
        # the curve with these derivatives at t = 0
        rows = zip(primals, series, strict=True)
        return function(
            *[
                x + sum(s * (t**k / math.factorial(k)) for k, s in enumerate(ss, 1))
                for x, ss in rows
            ]
        )

    functions = [along]
    for _ in range(ORDER):
        inner = functions[-1]
        functions.append(lambda t, f=inner: fnx.jvp(f, (t,), (np.float64(1.0),))[1])
    want = [f(np.float64(0.0)) for f in functions]
    for number, output in enumerate(outputs):
        for found, row in zip([output, *terms[number]], want, strict=True):
            size = np.abs(value(row[number])).max(initial=1.0)
            np.testing.assert_allclose(found, row[number], rtol=1e-9, atol=1e-9 * size)


@some(CASES, 4)
def test_the_pattern_has_all_that_moves(case):
    args = precise(case)
    program = alone(named(case.primitive), args, case.params)
    arrays = [i for i, x in enumerate(args) if not isinstance(x, Literal)]
    for place in case.smooth:
        x = args[place]
        if not real(x) or not 0 < x.size <= 64:
            continue
        function = function_of(case, args, [place])
        dense = fnx.jacfwd(function)(x)
        for values in (False, True):
            known = [value(args[i]) if values and i != place else None for i in arrays]
            found = pattern(program, arrays.index(place), known)
            rows = zip(program.outputs, found, strict=True)
            sets = [s for out, s in rows if dtypes.is_inexact(out.type.dtype)]
            for matrix, own in zip(dense, sets, strict=True):
                moves = np.argwhere(value(matrix).reshape(own.count, x.size) != 0)
                have = set(zip(own.elements.tolist(), own.items.tolist(), strict=True))
                assert {(int(a), int(b)) for a, b in moves} <= have
