"""Every option of every function of `fnx.numpy` has an effect, or raises.

`CALLS` has, for each function, arguments and values for its options; an option must
change the result or raise. `PERMITTED` are those that only permit something which is
not made use of. A function or an option that is in neither fails the test.
"""

from __future__ import annotations

import inspect
import io

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx.numpy.scalars import ScalarType

RNG = np.random.default_rng(3)
F = RNG.standard_normal((3, 4)).astype("f4")
V = RNG.standard_normal(5).astype("f4")
N = np.array([[1.0, np.nan, 3.0], [4.0, 5.0, np.nan]], "f4")
I = RNG.integers(0, 9, (3, 4)).astype("i4")  # noqa: E741
P = np.array([2, 0, 1])
S = np.sort(V)
T = np.array([[True, False]])
U = np.array([[3, 7], [200, 1]], "u1")
DEVICE = fnx.devices("cpu")[0]
RAISES = object()

FOLD = {"axis": 1, "out": RAISES, "keepdims": True}
WITH = {**FOLD, "initial": 5.0, "where": F > 0}
SUM = {**WITH, "dtype": "f8", "promote_integers": False}
SPREAD = {**FOLD, "dtype": "f8", "ddof": 1, "where": F > 0, "mean": 0.5}
RANK = {**FOLD, "method": "lower", "weights": RAISES}
SIZED = {"size": 20, "fill_value": 77}
SIZED_ALONE = ((I,), {**SIZED})
SET = {**SIZED, "assume_unique": True}
PRODUCT = {"preferred_element_type": "f8"}
SPACED = {"num": 4, "endpoint": False, "dtype": "f2", "axis": 1}
NEW = {"dtype": "f2", "device": DEVICE}
INTO = {"dtype": "i4", "shape": (2,), "device": DEVICE}
CUMULATIVE = {"axis": 1, "dtype": "f8"}

# What only permits something: nothing that is computed depends on it.
PERMITTED = {
    "overwrite_input",  # arrays never change
    "copy",  # arrays are never shared, so that a copy is never needed
    "assume_unique",  # a promise
    "unique_indices",
    "indices_are_sorted",
    "sorted",  # `False` permits another order
    "precision",  # of float32 products on hardware that has a choice
    "allow_pickle",  # arrays have no elements that need it
    "assume_unique_indices",  # lets places be traced
    "unroll",  # how a loop is written out
    "optimize",  # the order of products, of which the result does not depend
    "stable",
    "method",  # of searching: how, not what; where it decides the result see CALLS
    "device",  # where the result is; there is one device here
    "order",  # memory is row-major; where it decides the result see CALLS
}
# Options of single functions of which that is true, too.
PERMITTED_OF = {("histogram_bin_edges", "weights")}
# Options that are in PERMITTED for others, and have an effect here.
EFFECTIVE = {
    "method": {"quantile", "percentile", "nanquantile", "nanpercentile"},
    "order": {"reshape", "ravel", "ravel_multi_index"},
}
# Functions that take only their operands, or anything at all.
WITHOUT = """frompyfunc ufunc vectorize printoptions set_printoptions get_printoptions
load savez einsum_path fromfunction piecewise apply_along_axis""".split()

CALLS = {
    "all": ((T,), {**FOLD, "where": T}),
    "allclose": (
        (V, V + 0.01),
        {"rtol": 10.0, "atol": 1.0},
        (N, N, {"equal_nan": True}),
    ),
    "amax": ((F,), WITH),
    "amin": ((F,), {**WITH, "initial": -5.0}),
    "angle": ((V + 1j,), {"deg": True}),
    "any": ((T,), {**FOLD, "where": ~T}),
    "append": ((F, F), {"axis": 1}),
    "arange": ((2,), {"stop": 5, "dtype": "f4", "device": DEVICE}, (0, 5, {"step": 2})),
    "argmax": ((F,), FOLD),
    "argmin": ((F,), FOLD),
    "argpartition": ((F, 1), {"axis": 0}),
    "argsort": (
        (I,),
        {
            "axis": 0,
            "kind": RAISES,
            "order": RAISES,
            "descending": True,
            "dtype": "i8",
        },
    ),
    "argwhere": ((I > 4,), SIZED),
    "around": ((F,), {"decimals": 1, "out": RAISES}),
    "array": ((V,), {"dtype": "f8", "ndmin": 3}),
    "array_equal": ((N, N), {"equal_nan": True}),
    "array_repr": (
        (F,),
        {"max_line_width": 20, "precision": 2},
        (1e-9 * F, {"suppress_small": True}),
    ),
    "array_str": (
        (F,),
        {"max_line_width": 20, "precision": 2},
        (np.array([1e-9, 1.0]), {"suppress_small": True}),
    ),
    "array_split": ((V, 3), {}, (F, 2, {"axis": 1})),
    "asarray": ((V,), {"dtype": "f8"}),
    "astype": ((V, "i4"), {}),
    "average": (
        (F,),
        {"axis": 1, "weights": np.abs(F), "returned": True, "keepdims": True},
    ),
    "bincount": ((P,), {"weights": P, "minlength": 7, "length": 2}),
    "can_cast": (("f4", "i4"), {"casting": "unsafe"}),
    "choose": (
        (P, [P, P + 5, P + 9]),
        {"out": RAISES},
        (P + 2, [P, P + 5, P + 9], {"mode": "wrap"}),
    ),
    "clip": ((F,), {"min": 0.0, "max": 0.1, "arr_min": 0.0, "arr_max": 0.1}),
    "compress": (
        (np.array([True, False, True]), F),
        {"axis": 1, "out": RAISES, **SIZED},
    ),
    "concat": (([F, F],), {"axis": 1}),
    "concatenate": (([F, F],), {"axis": 1, "dtype": "f8"}),
    "convolve": ((V, S[:3]), {"mode": "same", **PRODUCT}),
    "corrcoef": ((F,), {"y": F[:2] + I[:2], "rowvar": False, "dtype": "f8"}),
    "correlate": ((V, S[:3]), {"mode": "same", **PRODUCT}),
    "count_nonzero": ((I,), {"axis": 1, "keepdims": True}),
    "cov": (
        (F,),
        {
            "y": I,
            "rowvar": False,
            "bias": True,
            "ddof": 0,
            "fweights": np.arange(1, 5),
            "aweights": np.arange(1.0, 5),
            "dtype": "f8",
        },
    ),
    "cross": (
        (F[:, :3], F[:, 1:]),
        {"axisa": 0, "axisb": 0, "axisc": 0, "axis": 0},
    ),
    "cumprod": ((F,), {**CUMULATIVE, "out": RAISES}),
    "cumsum": ((F,), {**CUMULATIVE, "out": RAISES}),
    "cumulative_prod": ((V,), {"axis": 2, "dtype": "f8", "include_initial": True}),
    "cumulative_sum": ((V,), {"axis": 2, "dtype": "f8", "include_initial": True}),
    "delete": ((F, 1), {"axis": 1, "assume_unique_indices": True}),
    "diag": ((F,), {"k": 1}),
    "diag_indices": ((3,), {"ndim": 3}),
    "diagflat": ((V,), {"k": 1}),
    "diagonal": ((F[None],), {"offset": 1, "axis1": 2, "axis2": 2}),
    "diff": ((F,), {"n": 2, "axis": 0, "prepend": 1.0, "append": 1.0}),
    "digitize": ((P, P.cumsum()), {"right": True}),
    "dstack": (([V, V],), {"dtype": "f8"}),
    "hstack": (([V, V],), {"dtype": "f8"}),
    "inner": ((V, V), PRODUCT),
    "outer": ((V, V), {"out": RAISES}),
    "dot": ((F, F.T), PRODUCT),
    "ediff1d": ((V,), {"to_end": 1.0, "to_begin": 1.0}),
    "einsum": (("ij,ij", F, F), {"out": RAISES, **PRODUCT}),
    "empty": (((2,),), NEW),
    "empty_like": ((V,), INTO),
    "expand_dims": ((F, 0), {}),
    "extract": ((F > 0, F), SIZED),
    "eye": ((3,), {"M": 4, "k": 1, **NEW}),
    "fill_diagonal": ((np.zeros((7, 3)), 1.0), {"wrap": True, "inplace": False}),
    "fix": ((F,), {"out": RAISES}),
    "flatnonzero": ((I,), SIZED),
    "flip": ((F,), {"axis": 1}),
    "frombuffer": ((b"12345678",), {"dtype": "u1", "count": 0, "offset": 8}),
    "fromfile": None,
    "fromiter": (([1, 2], "i4"), {"count": 1}),
    "from_dlpack": ((V,), {}),
    "fromstring": (("1 2",), {"dtype": "i4", "count": 1, "sep": " "}),
    "full": (((2,), 1.0), NEW),
    "full_like": ((V, 1.0), INTO),
    "geomspace": ((1.0, 8.0), {**SPACED, "axis": 2}),
    "gradient": ((F,), {"axis": 1, "edge_order": 2}),
    "histogram": (
        (V,),
        {"bins": 3, "range": (0, 1), "weights": S, "density": True},
    ),
    "histogram2d": (
        (V, S),
        {"bins": 3, "range": [(0, 1), (0, 1)], "weights": S, "density": True},
    ),
    "histogram_bin_edges": ((V,), {"bins": 3, "range": (0, 1)}),
    "histogramdd": (
        (F.T,),
        {"bins": 3, "range": [(0, 1)] * 3, "weights": S[:4], "density": True},
    ),
    "identity": ((3,), {"dtype": "i4"}),
    "indices": (((2, 3),), {"dtype": "f4", "sparse": True}),
    "insert": ((F, 1, 5.0), {"axis": 1}),
    "interp": (
        (V * 9, S, P[[0, 1, 2, 0, 1]]),
        {"left": 9.0, "right": 9.0, "period": 0.3},
    ),
    "intersect1d": ((P, P + 1), {"return_indices": True, **SIZED}),
    "isclose": (
        (V, V + 0.01),
        {"rtol": 10.0, "atol": 1.0},
        (N, N, {"equal_nan": True}),
    ),
    "isin": ((P, P + 1), {"invert": True}),
    "isneginf": ((V,), {"out": RAISES}),
    "isposinf": ((V,), {"out": RAISES}),
    "lexsort": (([I, I],), {"axis": 0}),
    "linspace": ((0.0, 1.0), {**SPACED, "axis": 2, "retstep": True}),
    "logspace": ((0.0, 1.0), {**SPACED, "axis": 2, "base": 2.0}),
    "mask_indices": ((3, fnp.triu), {"k": 1, "size": 2}),
    "matmul": ((F, F.T), PRODUCT),
    "matvec": ((F, F[0]), {}),
    "max": ((F,), WITH),
    "mean": ((F,), {**FOLD, "dtype": "f8", "where": F > 0}),
    "median": ((F,), FOLD),
    "meshgrid": ((V, P), {"sparse": True, "indexing": "ij"}),
    "min": ((F,), {**WITH, "initial": -5.0}),
    "modf": ((V,), {"out": RAISES}),
    "nan_to_num": (
        (N,),
        {"nan": 9.0},
        (np.array([np.inf, -np.inf]), {"posinf": 1.0, "neginf": 1.0}),
    ),
    "nanargmax": ((N,), FOLD),
    "nanargmin": ((N,), FOLD),
    "nancumprod": ((N,), {**CUMULATIVE, "out": RAISES}),
    "nancumsum": ((N,), {**CUMULATIVE, "out": RAISES}),
    "nanmax": ((N,), {**FOLD, "initial": 9.0, "where": N > 9}),
    "nanmean": ((N,), {**FOLD, "dtype": "f8", "where": N > 1}),
    "nanmedian": ((N,), FOLD),
    "nanmin": ((N,), {**FOLD, "initial": -9.0, "where": N > 9}),
    "nanpercentile": ((N, 30), RANK),
    "nanprod": ((N,), {**FOLD, "dtype": "f8", "initial": 9.0, "where": N > 3}),
    "nanquantile": ((N, 0.3), RANK),
    "nanstd": ((N,), {**SPREAD, "where": N > 1}),
    "nansum": ((N,), {**FOLD, "dtype": "f8", "initial": 9.0, "where": N > 1}),
    "nanvar": ((N,), {**SPREAD, "where": N > 1}),
    "nonzero": ((I,), SIZED),
    "ones": (((2,),), NEW),
    "ones_like": ((V,), INTO),
    "packbits": ((U > 5,), {"axis": 1, "bitorder": "little"}),
    "pad": (
        (V, 2),
        {"mode": "edge", "constant_values": 5.0},
        (V, 2, "mean", {"stat_length": 1}),
        (V, 2, "reflect", {"reflect_type": "odd"}),
        (V, 2, "linear_ramp", {"end_values": 3.0}),
    ),
    "partition": ((F, 1), {"axis": 0}),
    "percentile": ((F, 30), RANK),
    "place": ((F, F > 0, V), {"inplace": False}),
    "polyder": ((V,), {"m": 2}),
    "polydiv": (
        (V, np.r_[0.0, S]),
        {},
        (np.ones(3), np.ones(2), {"trim_leading_zeros": True}),
    ),
    "polyint": ((V,), {"m": 2, "k": 5.0}),
    "polymul": ((np.r_[0.0, V], S), {"trim_leading_zeros": True}),
    "polyfit": (
        (np.arange(5.0), V**2, 1),
        {"rcond": 0.9, "full": True, "w": np.arange(1.0, 6), "cov": True},
    ),
    "roots": ((np.r_[0.0, V],), {"strip_zeros": False}),
    "polyval": ((V, F), {}),
    "prod": ((F,), SUM, (U, {"promote_integers": False})),
    "ptp": ((F,), FOLD),
    "put": ((F, P + 11, V), {"mode": "wrap", "inplace": False}),
    "put_along_axis": ((F, I[:, :1] % 3, 5.0, 1), {"inplace": False, "mode": RAISES}),
    "quantile": ((F, 0.3), RANK),
    "ravel": ((F,), {"order": "F"}),
    "ravel_multi_index": (
        ((P, P), (3, 4)),
        {"order": "F", "dtype": "i2"},
        ((P + 2, P), (3, 4), {"mode": "clip"}),
    ),
    "repeat": ((F, 2), {"axis": 1}, (F, P + 1, 0, {"total_repeat_length": 2})),
    "reshape": ((F, (4, 3)), {"order": "F"}),
    "roll": ((F, 1), {"axis": 1}),
    "rollaxis": ((F[None], 1), {"start": 3}),
    "rot90": ((F,), {"k": 2, "axes": (1, 0)}),
    "round": ((F,), {"decimals": 1, "out": RAISES}),
    "searchsorted": (
        (np.array([1, 1, 2]), np.array([1])),
        {"side": "right"},
        (np.array([2, 1, 3]), np.array([2]), {"sorter": np.array([1, 0, 2])}),
    ),
    "select": (([F > 0], [F]), {"default": 7.0}),
    "setdiff1d": ((P, P + 1), SIZED),
    "setxor1d": ((P, P + 1), SIZED),
    "size": ((F,), {"axis": 1}),
    "sort": (
        (F,),
        {"axis": 0, "kind": RAISES, "order": RAISES, "descending": True},
    ),
    "split": ((F[:2], 2), {"axis": 1}),
    "squeeze": ((F[None, :1],), {"axis": 0}),
    "stack": (([F, F],), {"axis": 1, "out": RAISES, "dtype": "f8"}),
    "std": ((F,), {**SPREAD, "correction": 1.0}),
    "sum": ((F,), SUM, (U, {"promote_integers": False})),
    "take": (
        (F, P),
        {"axis": 1, "out": RAISES},
        (F, P + 20, 1, {"mode": "wrap"}),
        (F, P + 20, 1, None, "fill", {"fill_value": 7.0}),
    ),
    "take_along_axis": (
        (F[:3, :3], P[:, None]),
        {"axis": 0},
        (F, P[:, None] + 9, 1, {"mode": "clip"}),
        (F, P[:, None] + 9, 1, "fill", {"fill_value": 7.0}),
        (F, P[:, None] - 1, 1, "clip", {"wrap_negative_indices": False}),
    ),
    "tensordot": ((F, F), {"axes": ([0], [0]), **PRODUCT}),
    "trace": (
        (F[None, :, :3],),
        {"offset": 1, "axis1": 1, "axis2": 2, "dtype": "f8", "out": RAISES},
    ),
    "transpose": ((F[None],), {"axes": (1, 0, 2)}),
    "trapezoid": ((F,), {"x": S[:4], "dx": 2.0, "axis": 0}),
    "tri": ((3,), {"M": 4, "k": 1, "dtype": "i4"}),
    "tril": ((F,), {"k": 1}),
    "tril_indices": ((3,), {"k": 1, "m": 2}),
    "tril_indices_from": ((F,), {"k": 1}),
    "trim_zeros": ((np.pad(F, 1),), {"trim": "f", "axis": 1}),
    "triu": ((F,), {"k": 1}),
    "triu_indices": ((3,), {"k": 1, "m": 4}),
    "triu_indices_from": ((F,), {"k": 1}),
    "union1d": (
        (P, P + 1),
        {"size": 6, "fill_value": None},
        (P, P, {"size": 6, "fill_value": 9}),
    ),
    "unique": (
        (I,),
        {
            "return_index": True,
            "return_inverse": True,
            "return_counts": True,
            "axis": 0,
            "size": 2,
        },
        (N, {"equal_nan": False}),
        (I, False, False, False, None, {"size": 40, "fill_value": 77}),
    ),
    "unpackbits": ((U,), {"axis": 1, "count": 3, "bitorder": "little"}),
    "unstack": ((F,), {"axis": 1}),
    "unwrap": ((F * 9,), {"discont": 50.0, "axis": 0, "period": 1.0}),
    "vander": ((V,), {"N": 2, "increasing": True}),
    "var": ((F,), {**SPREAD, "correction": 1.0}),
    "vecdot": ((F, F), {"axis": 0, **PRODUCT}),
    "unique_all": SIZED_ALONE,
    "unique_counts": SIZED_ALONE,
    "unique_inverse": SIZED_ALONE,
    "unique_values": SIZED_ALONE,
    "vdot": ((V, V), PRODUCT),
    "vstack": (([V, V],), {"dtype": "f8"}),
    "where": ((F > 0,), {"size": 20, "fill_value": 77}),
    "zeros": (((2,),), NEW),
    "zeros_like": ((V,), INTO),
}


def _functions():
    for name in fnp.__all__:
        value = getattr(fnp, name)
        is_function = callable(value) and not isinstance(value, type | ScalarType)
        if is_function and name not in WITHOUT:
            try:
                yield name, inspect.signature(value)
            except ValueError:
                continue


def _options(signature):
    return [
        p.name
        for p in signature.parameters.values()
        if p.default is not p.empty and p.kind is not p.POSITIONAL_ONLY
    ]


NAMED = [(n, o) for n, s in _functions() for o in _options(s)]


def _value(result):
    """What is compared of a result."""
    if isinstance(result, tuple | list):
        return [_value(part) for part in result]
    if isinstance(result, fnx.Array):
        committed = getattr(result, "committed", None)
        data = np.asarray(result)
        return data.dtype.name, data.shape, data.tobytes(), committed
    return result


def _rows(name):
    """The calls of a function: arguments, and values of options."""
    found = CALLS[name]
    if found is None:
        return
    args, options, *more = found
    yield args, options
    for row in more:
        yield row[:-1], row[-1]


def _takes_effect(name, option):
    function = getattr(fnp, name)
    for args, options in _rows(name):
        if option not in options:
            continue
        value = options[option]
        try:
            plain = _value(function(*args))
        except (fnx.errors.FnxError, TypeError):
            plain = None  # the option is needed
        if value is RAISES:
            try:
                function(*args, **{option: np.zeros(1)})
            except fnx.errors.FnxError:
                return True
            continue
        others = {o: v for o, v in options.items() if _needed(name, option, o)}
        try:
            changed = _value(function(*args, **{**others, option: value}))
        except fnx.errors.FnxError:
            return True
        base = _value(function(*args, **others)) if others else plain
        if changed != base:
            return True
    return False


# An option that has a meaning only beside another.
BESIDE = {"fill_value": "size", "stat_length": "mode"}


def _needed(name, option, other):
    if other in ("inplace", "sep"):  # without it the function raises
        return option != other
    return BESIDE.get(option) == other


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "option"), NAMED)
def test_an_option_has_an_effect_or_raises(name, option):
    if (name, option) in PERMITTED_OF:
        return
    permitted = option in PERMITTED and name not in EFFECTIVE.get(option, ())
    if permitted and (name not in CALLS or not _takes_effect(name, option)):
        return
    if name == "fromfile":
        return  # see the next test
    assert name in CALLS, f"{name} has options, give it a row in CALLS"
    assert _takes_effect(name, option), f"{name}({option}=...) changes nothing"


def test_options_of_files(tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(np.arange(4.0).tobytes())
    assert fnp.fromfile(path, "f8").tolist() == [0, 1, 2, 3]
    assert fnp.fromfile(path, "u1").size == 32
    assert fnp.fromfile(path, "f8", 2).tolist() == [0, 1]
    assert fnp.fromfile(path, "f8", offset=16).tolist() == [2, 3]
    path.write_text("5, 6")
    assert fnp.fromfile(path, "f8", sep=",").tolist() == [5, 6]
    file = io.BytesIO()
    fnp.save(file, F, allow_pickle=False)
    assert file.getvalue()
