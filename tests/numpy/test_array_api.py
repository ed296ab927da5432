"""The array API standard, version 2024.12: names, dtypes, special values, indexing.

https://data-apis.org/array-api/2024.12/ is what the tests are written from; values are
compared with NumPy's where the standard leaves no choice.
"""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pytest

import fnx
import fnx.numpy as xp
from fnx.testing.coverage import difference

# The functions of the standard and their parameters, written as in
# `fnx.testing.coverage`.
FUNCTIONS = """
abs /x
acos /x
acosh /x
add /x1 /x2
all /x =axis =keepdims
any /x =axis =keepdims
arange /start stop step =dtype =device
argmax /x =axis =keepdims
argmin /x =axis =keepdims
argsort /x =axis =descending =stable
asarray /obj =dtype =device =copy
asin /x
asinh /x
astype /x /dtype =copy =device
atan /x
atanh /x
bitwise_and /x1 /x2
bitwise_invert /x
bitwise_left_shift /x1 /x2
bitwise_or /x1 /x2
bitwise_right_shift /x1 /x2
bitwise_xor /x1 /x2
broadcast_arrays *arrays
broadcast_shapes *shapes
broadcast_to /x shape
can_cast /from_ /to
ceil /x
clip /x min max
concat /arrays =axis
conj /x
copysign /x1 /x2
cos /x
cosh /x
count_nonzero /x =axis =keepdims
cumulative_prod /x =axis =dtype =include_initial
cumulative_sum /x =axis =dtype =include_initial
diff /x =axis =n =prepend =append
divide /x1 /x2
empty shape =dtype =device
empty_like /x =dtype =device
equal /x1 /x2
exp /x
expand_dims /x axis
eye /n_rows /n_cols =k =dtype =device
finfo /type
flip /x =axis
floor /x
floor_divide /x1 /x2
from_dlpack /x =device =copy
full shape fill_value =dtype =device
full_like /x fill_value =dtype =device
greater /x1 /x2
greater_equal /x1 /x2
hypot /x1 /x2
iinfo /type
imag /x
isdtype dtype kind
isfinite /x
isin /x1 /x2 =invert
isinf /x
isnan /x
less /x1 /x2
less_equal /x1 /x2
linspace /start /stop num =dtype =device =endpoint
log /x
log1p /x
logaddexp /x1 /x2
logical_and /x1 /x2
logical_not /x
logical_or /x1 /x2
logical_xor /x1 /x2
matmul /x1 /x2
matrix_transpose /x
max /x =axis =keepdims
maximum /x1 /x2
mean /x =axis =keepdims
meshgrid *arrays =indexing
min /x =axis =keepdims
minimum /x1 /x2
moveaxis /x /source /destination
multiply /x1 /x2
negative /x
nextafter /x1 /x2
nonzero /x
not_equal /x1 /x2
ones shape =dtype =device
ones_like /x =dtype =device
permute_dims /x axes
positive /x
pow /x1 /x2
prod /x =axis =dtype =keepdims
real /x
reciprocal /x
remainder /x1 /x2
repeat /x /repeats =axis
reshape /x shape =copy
result_type *arrays_and_dtypes
roll /x shift =axis
round /x
searchsorted /x1 /x2 =side =sorter
sign /x
signbit /x
sin /x
sinh /x
sort /x =axis =descending =stable
sqrt /x
square /x
squeeze /x axis
stack /arrays =axis
std /x =axis =correction =keepdims
subtract /x1 /x2
sum /x =axis =dtype =keepdims
take /x /indices =axis
take_along_axis /x /indices =axis
tan /x
tanh /x
tensordot /x1 /x2 =axes
tile /x /repetitions
tril /x =k
triu /x =k
trunc /x
unique_all /x
unique_counts /x
unique_inverse /x
unique_values /x
unstack /x =axis
var /x =axis =correction =keepdims
vecdot /x1 /x2 =axis
where /condition /x1 /x2
zeros shape =dtype =device
zeros_like /x =dtype =device
"""
CONSTANTS = "e inf nan newaxis pi".split()
SIGNED = "int8 int16 int32 int64".split()
UNSIGNED = "uint8 uint16 uint32 uint64".split()
FLOATS = "float32 float64".split()
COMPLEX = "complex64 complex128".split()
INTEGERS = SIGNED + UNSIGNED
NUMERIC = INTEGERS + FLOATS + COMPLEX
DTYPES = ["bool", *NUMERIC]


@pytest.mark.parametrize("row", FUNCTIONS.strip().splitlines())
def test_functions_and_their_parameters(row):
    name, *parameters = row.split()
    assert difference(getattr(xp, name), parameters) == ""


def test_constants():
    assert [getattr(xp, name) for name in CONSTANTS[:2]] == [np.e, np.inf]
    assert np.isnan(xp.nan) and xp.newaxis is None and xp.pi == np.pi
    for name in DTYPES:
        assert xp.zeros(2, dtype=getattr(xp, name)).dtype == name


# ---------------------------------------------------------------- the namespace


def test_namespace_of_an_array():
    x = xp.ones(3)
    for version in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        assert x.__array_namespace__(api_version=version) is xp
    with pytest.raises(fnx.errors.OptionError, match=r"2019\.12"):
        x.__array_namespace__(api_version="2019.12")
    assert xp.__array_api_version__ == "2024.12"
    traced = fnx.jit(lambda x: x.__array_namespace__().sin(x))(x)
    assert traced.shape == (3,)


def test_information():
    info = xp.__array_namespace_info__()
    abilities = info.capabilities()
    assert abilities["boolean indexing"] and abilities["data-dependent shapes"]
    assert xp.zeros((1,) * abilities["max dimensions"]).ndim == 64
    device = info.default_device()
    assert device in info.devices() and xp.zeros(2).device == device
    assert sorted(info.dtypes()) == sorted(DTYPES)
    kinds = {
        "bool": ["bool"],
        "signed integer": SIGNED,
        "unsigned integer": UNSIGNED,
        "integral": INTEGERS,
        "real floating": FLOATS,
        "complex floating": COMPLEX,
        "numeric": NUMERIC,
        ("bool", "complex floating"): ["bool", *COMPLEX],
    }
    for kind, names in kinds.items():
        found = info.dtypes(kind=kind, device=device)
        assert sorted(found) == sorted(names)
        for name, dtype in found.items():
            assert xp.isdtype(dtype, kind) and dtype == getattr(xp, name)
    assert info.default_dtypes(device=device) == {
        "real floating": xp.float32,
        "complex floating": xp.complex64,
        "integral": xp.int32,
        "indexing": xp.int32,
    }
    with fnx.default_dtypes(64):
        assert info.default_dtypes()["real floating"] == xp.float64


def test_devices():
    device = xp.__array_namespace_info__().default_device()
    x = xp.ones(3)
    assert x.to_device(device).device == device
    for function in (xp.zeros, xp.ones, xp.empty, xp.arange, xp.eye):
        assert function(2, device=device).device == device
    for function in (xp.zeros_like, xp.ones_like, xp.empty_like):
        assert function(x, device=device).device == device
    assert xp.full(2, 1, device=device).device == device
    assert xp.full_like(x, 1, device=device).device == device
    assert xp.linspace(0, 1, 3, device=device).device == device
    assert xp.asarray([1], device=device).device == device
    assert xp.astype(x, xp.int32, device=device).device == device
    with pytest.raises(fnx.errors.OptionError, match="stream"):
        x.to_device(device, stream=1)
    with pytest.raises(fnx.errors.ArgumentError):
        x.to_device("nowhere")


# ---------------------------------------------------------------- dtypes


def _pairs():
    for kind in (SIGNED, UNSIGNED, FLOATS, COMPLEX, FLOATS + COMPLEX):
        yield from itertools.product(kind, kind)
    yield from itertools.product(SIGNED, UNSIGNED[:-1])
    yield "bool", "bool"


PAIRS = sorted(set(_pairs()))


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_promotion(left, right):
    wanted = np.promote_types(left, right)
    x, y = xp.ones(2, dtype=left), xp.ones(2, dtype=right)
    assert xp.result_type(x, y) == wanted == xp.result_type(right, left)
    assert xp.result_type(x.dtype, y) == wanted
    if left != "bool":
        assert (x + y).dtype == xp.multiply(y, x).dtype == wanted
    assert xp.where(x == y, x, y).dtype == xp.concat([x, y]).dtype == wanted
    assert (x == y).dtype == "bool"


@pytest.mark.parametrize("dtype", NUMERIC)
def test_python_numbers_take_the_dtype_of_the_array(dtype):
    x = xp.ones(2, dtype=dtype)
    numbers = [1]
    if dtype in FLOATS + COMPLEX:
        numbers.append(1.5)
    if dtype in COMPLEX:
        numbers.append(1j)
    for number in numbers:
        for found in (x + number, number + x, x * number, xp.add(x, number)):
            assert found.dtype == dtype
        assert (x == number).dtype == "bool"


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX)
def test_limits_of_floats(dtype):
    info, wanted = xp.finfo(getattr(xp, dtype)), np.finfo(dtype)
    for name in ("bits", "eps", "max", "min", "smallest_normal"):
        assert getattr(info, name) == getattr(wanted, name)
    assert xp.finfo(xp.ones(2, dtype=dtype)).dtype == wanted.dtype


@pytest.mark.parametrize("dtype", INTEGERS)
def test_limits_of_integers(dtype):
    info, wanted = xp.iinfo(getattr(xp, dtype)), np.iinfo(dtype)
    for name in ("bits", "max", "min", "dtype"):
        assert getattr(info, name) == getattr(wanted, name)
    assert xp.iinfo(xp.ones(2, dtype=dtype)).bits == wanted.bits


@pytest.mark.parametrize(("left", "right"), list(itertools.product(DTYPES, DTYPES)))
def test_casts(left, right):
    wanted = np.can_cast(left, right)
    assert xp.can_cast(getattr(xp, left), getattr(xp, right)) == wanted
    assert xp.can_cast(xp.zeros(1, dtype=left), getattr(xp, right)) == wanted
    if left in COMPLEX and right not in COMPLEX:
        return  # it loses the imaginary part
    x = np.array([0, 1, 3]).astype(left)
    np.testing.assert_array_equal(xp.astype(xp.asarray(x), right), x.astype(right))


@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions_have_room(dtype):
    x = xp.ones(300, dtype=dtype)
    if dtype != "bool":
        for function in (xp.sum, xp.cumulative_sum):
            found = function(x)
            assert found[-1] == 300 if found.ndim else found == 300
        assert xp.prod(x) == 1
        assert xp.sum(x, dtype=xp.float64).dtype == "float64"
    if dtype in INTEGERS:
        kind = "uint" if dtype in UNSIGNED else "int"
        assert xp.sum(x).dtype == f"{kind}{max(32, xp.iinfo(x).bits)}"
    for function in (xp.argmax, xp.argmin):
        if dtype not in COMPLEX:
            assert function(x).dtype == "int32"
    assert xp.all(x).dtype == xp.any(x).dtype == "bool"


# ---------------------------------------------------------------- special values

EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -3.5, np.inf, -np.inf, np.nan, 1e-310, 2.0**60]
UNARY = """abs acos acosh asin asinh atan atanh ceil cos cosh exp expm1 floor isfinite
isinf isnan log log10 log1p log2 negative positive reciprocal round sign signbit sin
sinh sqrt square tan tanh trunc""".split()
BINARY = """add atan2 copysign divide equal floor_divide greater greater_equal hypot
less less_equal logaddexp maximum minimum multiply nextafter not_equal pow remainder
subtract""".split()


def _close(found, wanted):
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=0)
    if wanted.dtype.kind == "f":
        zero = wanted == 0
        np.testing.assert_array_equal(np.signbit(found)[zero], np.signbit(wanted)[zero])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", UNARY)
def test_special_values(name, jitted):
    x = np.array(EDGES)
    function = getattr(xp, name)
    found = (fnx.jit(function) if jitted else function)(xp.asarray(x))
    _close(found, getattr(np, name)(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", BINARY)
def test_special_pairs(name, jitted):
    x, y = (a.ravel() for a in np.meshgrid(EDGES, EDGES))
    function = getattr(xp, name)
    found = (fnx.jit(function) if jitted else function)(xp.asarray(x), xp.asarray(y))
    _close(found, getattr(np, name)(x, y))


@pytest.mark.parametrize("name", "sum prod max min mean std var".split())
def test_special_reductions(name):
    for values in ([np.nan, 1.0], [np.inf, 1.0], [-np.inf, np.inf], [1.0], [-0.0]):
        with np.errstate(all="ignore"):
            wanted = getattr(np, name)(np.array(values))
        np.testing.assert_array_equal(getattr(xp, name)(xp.asarray(values)), wanted)
    if name in ("sum", "prod"):
        assert getattr(xp, name)(xp.zeros(0)) == (name == "prod")
    assert getattr(xp, name)(xp.ones((2, 3)), axis=(0, 1), keepdims=True).shape == (
        1,
        1,
    )


# ---------------------------------------------------------------- operators

OPERATORS = "add sub mul truediv floordiv mod pow".split()
BITS = "and_ or_ xor lshift rshift".split()


@pytest.mark.parametrize("name", OPERATORS + BITS)
@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32", "bool"])
def test_operators(name, dtype):
    if (name in BITS and dtype == "float32") or (
        dtype == "bool" and name not in BITS[:3]
    ):
        return
    function = getattr(operator, name)
    x = np.array([5, 4, 3, 1]).astype(dtype)
    y = np.array([2, 1, 3, 2]).astype(dtype)
    wanted = function(x, y)
    if name == "truediv" and dtype != "float32":
        wanted = wanted.astype("f4")
    for found in (function(xp.asarray(x), xp.asarray(y)), function(x, xp.asarray(y))):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    changed = xp.asarray(x)
    in_place = getattr(operator, "i" + name.strip("_"))
    if name not in ("truediv", "and_", "or_"):
        np.testing.assert_allclose(in_place(changed, xp.asarray(y)), wanted, rtol=1e-6)


def test_numbers_of_arrays():
    assert bool(xp.asarray(True)) is True and int(xp.asarray(3)) == 3
    assert float(xp.asarray(2.5)) == 2.5 and complex(xp.asarray(1j)) == 1j
    assert operator.index(xp.asarray(3)) == 3 and complex(xp.asarray(2)) == 2
    for wrong in (lambda: bool(xp.ones(2)), lambda: float(xp.asarray(1j))):
        with pytest.raises((TypeError, ValueError)):
            wrong()
    with pytest.raises(TypeError):
        operator.index(xp.asarray(2.0))
    assert xp.ones((2, 3)).T.shape == xp.ones((2, 3)).mT.shape == (3, 2)
    assert xp.ones((2, 3)).size == 6 and xp.ones((2, 3)).ndim == 2
    assert abs(xp.asarray(-1)) == 1 and (~xp.asarray(True)).item() is False
    assert (xp.ones((2, 3)) @ xp.ones((3, 2))).shape == (2, 2)


# ---------------------------------------------------------------- indexing

X = np.arange(60).reshape(3, 4, 5)
INDICES = [
    np.s_[0],
    np.s_[-1, 2],
    np.s_[1, -1, 3],
    np.s_[...],
    np.s_[..., 0],
    np.s_[0, ..., 0],
    np.s_[:, None, 1:3],
    np.s_[None, ..., None],
    np.s_[::-1, ::2, 4:0:-2],
    np.s_[3:, :0, -2:],
    np.s_[()],
    X > 30,
    np.zeros(X.shape, bool),
    np.array(True),
    np.s_[np.array([2, 0])],
    np.s_[np.array([[0, 1]]), np.array([[3], [0]])],
    np.s_[np.array([0, 2]), 1, np.array([4, -5])],
    np.s_[1, np.array([0, 3])],
]


@pytest.mark.parametrize("number", range(len(INDICES)))
def test_indexing(number):
    index = INDICES[number]
    ours = tuple(
        xp.asarray(i) if isinstance(i, np.ndarray) else i
        for i in (index if isinstance(index, tuple) else (index,))
    )
    x = xp.asarray(X)
    np.testing.assert_array_equal(x[ours], X[index])
    if len(ours) == 1:
        np.testing.assert_array_equal(x[ours[0]], X[index])


def test_indexing_out_of_range():
    x = xp.asarray(X)
    for index in (3, -4, (0, 4), (slice(None), slice(None), 5)):
        with pytest.raises(IndexError):
            x[index]
    with pytest.raises(IndexError):
        x[0, 0, 0, 0]


# ---------------------------------------------------------------- the other functions

A = np.random.default_rng(0).standard_normal((3, 4))
CALLS = [
    ("broadcast_shapes", ((3, 1), (1, 4)), {}),
    ("concat", ([A, A],), {"axis": None}),
    ("count_nonzero", (A > 0,), {"axis": 1, "keepdims": True}),
    ("cumulative_prod", (A[0],), {"include_initial": True}),
    ("cumulative_sum", (A,), {"axis": 1, "include_initial": True}),
    ("diff", (A,), {"axis": 0, "prepend": A[:1], "append": A[:1]}),
    ("expand_dims", (A,), {"axis": -1}),
    ("flip", (A,), {"axis": (0, 1)}),
    ("isin", (A > 0, A[0] > 0), {"invert": True}),
    ("matrix_transpose", (A,), {}),
    ("moveaxis", (A[None], 0, -1), {}),
    ("nonzero", (A > 0,), {}),
    ("permute_dims", (A[None], (2, 0, 1)), {}),
    ("repeat", (A, np.array([2, 0, 1])), {"axis": 0}),
    ("reshape", (A, (2, 6)), {"copy": True}),
    ("roll", (A, (1, 2)), {"axis": (0, 1)}),
    ("searchsorted", (np.sort(A[0]), A), {"side": "right"}),
    ("squeeze", (A[None], 0), {}),
    ("stack", ([A, A],), {"axis": -1}),
    ("take", (A, np.array([1, 0])), {"axis": 1}),
    ("take_along_axis", (A, np.argsort(A, 1)), {}),
    ("tensordot", (A, A), {"axes": ((0,), (0,))}),
    ("tile", (A, (2, 1)), {}),
    ("tril", (A,), {"k": 1}),
    ("triu", (A,), {"k": -1}),
    ("unique_all", (np.round(A),), {}),
    ("unique_counts", (np.round(A),), {}),
    ("unique_inverse", (np.round(A),), {}),
    ("unstack", (A,), {"axis": 1}),
    ("vecdot", (A + 1j, A), {"axis": 0}),
    ("where", (A > 0, A, 0.0), {}),
    ("clip", (A, -0.5, A + 0.1), {}),
    ("clip", (A,), {"max": 0.1}),
    ("copysign", (A, -A), {}),
    ("std", (A,), {"axis": 1, "correction": 1.0}),
    ("var", (A,), {"axis": 0, "correction": 1, "keepdims": True}),
    ("meshgrid", (A[0], A[1]), {"indexing": "ij"}),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_other_functions(number):
    name, args, options = CALLS[number]
    wanted = getattr(np, name)(*args, **options)

    def ours(x):
        if isinstance(x, list):
            return [ours(part) for part in x]
        return xp.asarray(x) if isinstance(x, np.ndarray) else x

    found = getattr(xp, name)(
        *map(ours, args), **{k: ours(v) for k, v in options.items()}
    )
    many = isinstance(wanted, tuple | list)
    pairs = zip(found, wanted, strict=True) if many else [(found, wanted)]
    for f, w in pairs:
        np.testing.assert_allclose(np.asarray(f), w, rtol=1e-12)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_sorts(dtype, descending):
    x = np.array([[3, 1, 2, 1], [0, 3, 3, 0]]).astype(dtype)
    ordered = np.sort(x, 1)[:, ::-1] if descending else np.sort(x, 1)
    np.testing.assert_array_equal(
        xp.sort(xp.asarray(x), descending=descending), ordered
    )
    places = np.asarray(xp.argsort(xp.asarray(x), descending=descending))
    np.testing.assert_array_equal(np.take_along_axis(x, places, 1), ordered)
    # Equal elements keep their order.
    rows = (
        [[1, 3, 2, 0], [0, 3, 1, 2]] if not descending else [[0, 2, 1, 3], [1, 2, 0, 3]]
    )
    assert places.tolist() == rows


def test_unique_has_nan_as_often_as_it_occurs():
    x = xp.asarray([np.nan, 1.0, np.nan, 1.0])
    found = xp.unique_all(x)
    assert found.counts.tolist() == [2, 1, 1]
    assert np.isnan(np.asarray(found.values)).sum() == 2
    assert found.inverse_indices.shape == x.shape
    for name in ("values", "indices", "inverse_indices", "counts"):
        assert hasattr(found, name)
    assert xp.unique_values(x).shape == (3,)


def test_exchange():
    x = xp.arange(6, dtype=xp.float32)
    np.testing.assert_array_equal(np.from_dlpack(x), np.arange(6))
    assert xp.from_dlpack(np.arange(3)).tolist() == [0, 1, 2]
    assert x.__dlpack_device__() == (1, 0)
    assert xp.asarray(x) is x and xp.asarray(x, copy=True).tolist() == x.tolist()
    with pytest.raises(ValueError, match="copy"):
        xp.asarray(np.arange(3), copy=False)


def test_creation():
    assert xp.arange(5, 0, -2).tolist() == [5, 3, 1]
    assert xp.arange(0.0, 1.0, 0.5).dtype == "float32"
    assert xp.asarray([[1, 2], [3, 4]]).dtype == "int32"
    assert xp.asarray([True, False]).dtype == "bool"
    assert (
        xp.asarray([1, 2.5]).dtype == "float32" and xp.asarray(1j).dtype == "complex64"
    )
    assert xp.full((2,), True).dtype == "bool" and xp.full((), 3).dtype == "int32"
    assert xp.eye(2, 3, k=1).tolist() == [[0, 1, 0], [0, 0, 1]]
    assert xp.linspace(0, 1, 4, endpoint=False).tolist() == [0, 0.25, 0.5, 0.75]
    assert xp.zeros(()).shape == () and xp.empty((0, 3)).shape == (0, 3)
    assert (
        xp.full_like(xp.ones(2, dtype=xp.int8), 3, dtype=xp.float64).dtype == "float64"
    )
