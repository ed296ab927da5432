"""Native paths of eager functions: the same bits as through Python, and nothing leaks.

Every call is made until it has a path (or could have none); what Python gives is
computed while native calls are off. A counter of slow calls tells which way a call
went.
"""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import dtypes, nn
from fnx.cpu.entry.loops import KINDS
from tests.cpu.eager_calls import (
    BINARY,
    DTYPES,
    MEMBERS,
    SHAPES,
    SHORT,
    UNARY,
    agrees,
    array,
    f32,
    in_python,
    is_native,
    outcome,
    same,
    warm,
)

pytest.importorskip("llvmlite")

pytestmark = pytest.mark.usefixtures("awake")

# ---------------------------------------------------------------- the same bits


@pytest.mark.parametrize("dtype", DTYPES, ids=SHORT)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_array(name, dtype):
    for shape in SHAPES:
        agrees(UNARY[name], array(shape, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=SHORT)
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_arrays(name, dtype):
    for shape in SHAPES:
        agrees(BINARY[name], array(shape, dtype), array(shape, dtype, 3))


@pytest.mark.parametrize("dtype", DTYPES, ids=SHORT)
@pytest.mark.parametrize("name", ["add", "multiply", "less", "divide", "maximum"])
def test_numbers_beside_arrays(name, dtype):
    x = array((7,), dtype)
    for number in (2, 1.5, True, -3, 300, 2**40, float("nan"), -0.0, 1e300, 2j):
        agrees(BINARY[name], x, number)
        agrees(BINARY[name], number, x)


def test_a_number_may_change():
    assert is_native("__mul__", f32, 2.0)
    function = MEMBERS["__mul__"]
    before = function._calls
    for number in (0.1, -0.0, float("inf"), float("nan"), 3e38, 1e-45):
        result = f32 * number
        with in_python():
            same(result, f32 * number)
    assert function._calls == before + 6  # those in Python
    agrees("__mul__", f32, 1e39)  # rounds to inf: through Python, with its error
    x = array((7,), dtypes.int8)
    assert is_native("__add__", x, 3)
    for number in (127, -128, 128, -129, 2**70):
        agrees("__add__", x, number)


MANY = {
    "broadcast": ("__add__", lambda x, m: (m, x)),
    "broadcast a column": ("__mul__", lambda x, m: (m[:, :1], x)),
    "broadcast rank 0": ("__mul__", lambda x, m: (m, x[0])),
    "broadcast to": (fnp.broadcast_to, lambda x, m: (x, (3, 10))),
    "weak": ("__add__", lambda x, m: (fnp.array(1.0) * 1, 2)),
    "index": ("__getitem__", lambda x, m: (x, 3)),
    "negative index": ("__getitem__", lambda x, m: (x, -1)),
    "row": ("__getitem__", lambda x, m: (m, 2)),
    "column": ("__getitem__", lambda x, m: (m, (slice(None), 2))),
    "slice": ("__getitem__", lambda x, m: (m, slice(1, 3))),
    "strided slice": ("__getitem__", lambda x, m: (x, slice(None, None, -2))),
    "ellipsis": ("__getitem__", lambda x, m: (m, (..., None, 1))),
    "empty slice": ("__getitem__", lambda x, m: (x, slice(4, 4))),
    "reshape": (fnp.reshape, lambda x, m: (x, (2, 5))),
    "reshape method": ("reshape", lambda x, m: (x, 5, -1)),
    "transpose": ("T", lambda x, m: (m,)),
    "transpose axes": (fnp.transpose, lambda x, m: (m, (1, 0))),
    "flip": (fnp.flip, lambda x, m: (m,)),
    "concatenate": (fnp.concatenate, lambda x, m: ([x, x + 1, x],)),
    "concatenate columns": (fnp.concatenate, lambda x, m: ((m, m), 1)),
    "stack": (fnp.stack, lambda x, m: ([x, x],)),
    "split": (fnp.split, lambda x, m: (x, 2)),
    "dot": ("__matmul__", lambda x, m: (x, x)),
    "matrix times vector": ("__matmul__", lambda x, m: (m, x)),
    "matrices": (fnp.matmul, lambda x, m: (m, m)),
    "transposed": (fnp.matmul, lambda x, m: (m.T, m)),
    "outer": (fnp.outer, lambda x, m: (x, x)),
    "tensordot": (fnp.tensordot, lambda x, m: (m, m)),
    "sum": ("sum", lambda x, m: (x,)),
    "sum of rows": (fnp.sum, lambda x, m: (m, 1)),
    "sum of columns": (fnp.sum, lambda x, m: (m, 0)),
    "mean": (fnp.mean, lambda x, m: (m,)),
    "variance": (fnp.var, lambda x, m: (m, -1)),
    "max": ("max", lambda x, m: (m, 1)),
    "product": (fnp.prod, lambda x, m: (x,)),
    "all": (fnp.all, lambda x, m: (m > 0, 0)),
    "any": (fnp.any, lambda x, m: (m > 0, 1)),
    "cumsum": (fnp.cumsum, lambda x, m: (x,)),
    "cumsum of rows": (fnp.cumsum, lambda x, m: (m, 1)),
    "cumprod of columns": (fnp.cumprod, lambda x, m: (m, 0)),
    "modulo of arrays": ("__mod__", lambda x, m: (m, x)),
    "lower triangle": (fnp.tril, lambda x, m: (m,)),
    "diagonal matrix": (fnp.diag, lambda x, m: (x,)),
    "ones like": (fnp.ones_like, lambda x, m: (m,)),
    "pad": (fnp.pad, lambda x, m: (m, 1)),
    "norm": (fnp.linalg.norm, lambda x, m: (m,)),
    "cross product": (fnp.cross, lambda x, m: (m[:, :3], m[:, 3:6])),
    "polynomial": (fnp.polyval, lambda x, m: (x[:3], m)),
    "mean without NaN": (fnp.nanmean, lambda x, m: (m, 0)),
    "clip": (fnp.clip, lambda x, m: (x, -1.0, 1.0)),
    "where": (fnp.where, lambda x, m: (x > 0, x, 0.0)),
    "where of arrays": (fnp.where, lambda x, m: (m > 0, m, x)),
    "square": ("__pow__", lambda x, m: (x, 2)),
    "root": ("__pow__", lambda x, m: (x, 0.5)),
    "power": ("__pow__", lambda x, m: (x, x)),
    "modulo": ("__mod__", lambda x, m: (x, 3)),
    "divmod": ("__divmod__", lambda x, m: (x, 2.0)),
    "swapped": ("__rsub__", lambda x, m: (x, 1)),
    "negative": ("__neg__", lambda x, m: (m,)),
    "abs": ("__abs__", lambda x, m: (x,)),
    "round": (fnp.round, lambda x, m: (x, 1)),
    "astype": ("astype", lambda x, m: (x, "int32")),
    "real": ("real", lambda x, m: (x,)),
    "relu": (nn.relu, lambda x, m: (m,)),
    "gelu": (nn.gelu, lambda x, m: (x,)),
    "silu": (nn.silu, lambda x, m: (x,)),
    "softmax": (nn.softmax, lambda x, m: (m,)),
    "log of the sum": (nn.logsumexp, lambda x, m: (m, 0)),
    "standardize": (nn.standardize, lambda x, m: (m,)),
}


@pytest.mark.parametrize("case", MANY.values(), ids=MANY)
@pytest.mark.parametrize("dtype", DTYPES, ids=SHORT)
def test_other_functions(case, dtype):
    call, arguments = case
    x, m = array((10,), dtype), array((10, 10), dtype, 1)
    with in_python():
        args = outcome(arguments, x, m)
    if not isinstance(args[0], type):
        agrees(call, *args)


NATIVE = [
    ("__add__", f32, 1),
    ("__add__", f32, f32),
    (fnp.sin, f32),
    ("__matmul__", f32, f32),
    ("__getitem__", f32, 3),
    ("__getitem__", f32, slice(1, 4)),
    (fnp.concatenate, [f32, f32]),
    (fnp.reshape, f32, (2, 5)),
    ("reshape", f32, 2, 5),
    ("sum", f32),
    (fnp.mean, f32),
    (nn.softmax, f32),
    (fnp.where, f32 > 0, f32, f32),
    ("__truediv__", f32, 3.0),
    ("__mul__", f32, f32[0]),
    ("__gt__", f32, 0),
    ("__pow__", f32, 2),
    (fnp.tril, fnp.ones((3, 4))),
    (fnp.zeros, (3, 4), "float32"),
    (fnp.full, (3,), 2.5),
    (fnp.arange, 12),
    (fnp.linspace, 0.0, 1.0, 12),
    (fnp.eye, 3),
    (fnp.indices, (2, 3)),
]


@pytest.mark.parametrize(
    "case", NATIVE, ids=[getattr(c[0], "__name__", c[0]) for c in NATIVE]
)
def test_the_usual_calls_get_paths(case):
    assert is_native(*case)


def test_calls_without_arrays_give_what_they_give_in_python():
    for call, *args in (
        (fnp.zeros, (3, 4)),
        (fnp.ones, 5, "int8"),
        (fnp.full, (2,), -0.0),
        (fnp.full, (2,), 7),
        (fnp.arange, 2, 11, 3),
        (fnp.arange, 0.0, 1.0, 0.125),
        (fnp.linspace, -1.0, 2.0, 7, False),
        (fnp.geomspace, 1, 1024, 11),
        (fnp.eye, 3, 4, -1, "bool"),
        (fnp.tri, 4),
        (fnp.tril_indices, 3),
        (fnp.indices, (2, 3), None, True),
        (fnp.linspace, 0.0, 1.0, -1),
    ):
        agrees(call, *args)
    assert warm(fnp.full, (2,), 0.0)[0].item().hex() == "0x0.0p+0"
    assert warm(fnp.full, (2,), -0.0)[0].item().hex() == "-0x0.0p+0"
    with fnx.default_dtypes(64):
        agrees(fnp.zeros, (3, 4))
        agrees(fnp.arange, 12)
    assert fnp.zeros((3, 4)).dtype == fnp.arange(12.0).dtype == "float32"


def test_what_calls_without_arrays_give_has_memory_of_its_own():
    first, second = warm(fnp.arange, 7), fnp.arange(7)
    assert first._numpy().base is None is second._numpy().base
    assert not np.shares_memory(first._numpy(), second._numpy())
    first.delete()
    assert fnp.arange(7).tolist() == list(range(7))


def test_large_results_of_calls_without_arrays_are_not_kept():
    assert is_native(fnp.zeros, (64, 256), "float32")
    assert not is_native(fnp.zeros, (65, 256), "float32")


def test_keyword_arguments():
    m = array((3, 5), dtypes.float32)
    assert is_native(fnp.sum, m, axis=1, keepdims=True)
    agrees(fnp.sum, m, axis=1, keepdims=True)
    agrees(fnp.sum, m, keepdims=True, axis=0)
    agrees(fnp.sum, m, dtype="float64")
    agrees(fnp.sum, m, axle=1)


def test_numpy_arrays():
    x, m = np.linspace(0, 1, 10, dtype="f4"), np.ones((3, 10), "f4")
    assert is_native("__add__", f32, x)
    assert is_native(fnp.sin, x)
    assert is_native(fnp.matmul, m, f32)
    for y in (x, m, x.astype("f8"), x[::2], x.astype(">f4"), np.ones((10, 3), "f4").T):
        agrees("__add__", f32, y)
        agrees(fnp.sum, y)
        agrees(fnp.reshape, y, (2, -1))
    result = warm(fnp.reshape, x, (2, 5))
    x[0] = 7  # results are copies
    assert result[0, 0] == 0
    assert warm(fnp.reshape, x, (2, 5))[0, 0] == 7


def test_integers_are_compared_by_value():
    x = array((1000,), dtypes.float32)
    assert is_native("__getitem__", x, int("700"))
    function = MEMBERS["__getitem__"]
    before = function._calls
    x[int("700")]
    assert function._calls == before
    same(x[int("701")], fnp.array(np.asarray(x)[701]))
    warm("__getitem__", x, 1)
    assert x[True].shape == (1, 1000)  # a mask, and not the index 1


def served(call) -> None:
    """Asserts that a call of `x[...]` needs no Python, and gives what Python gives."""
    function = MEMBERS["__getitem__"]
    before = function._calls
    found = call()
    assert function._calls == before
    with in_python():
        same(found, call())


def test_one_path_serves_every_index_in_range():
    x, m, t = (array(shape, dtypes.float32) for shape in ((7,), (4, 6), (3, 1, 5)))
    for first in (0, 3, -1, -7):
        assert is_native("__getitem__", x, first)
        assert len(MEMBERS["__getitem__"]._paths) == 2  # a row of addresses, one path
        for i in range(-7, 7):
            served(lambda i=i: x[i])
    for first in (0, -4, 2):
        assert is_native("__getitem__", m, first)
        assert is_native("__getitem__", m, (first, 1 - first))
        warm("__getitem__", m, first)
        for i in range(-4, 4):
            served(lambda i=i: m[i])
            for j in (-6, -1, 0, 5):
                served(lambda i=i, j=j: m[i, j])
    # A copy of a column, a part of a row, and axes of one element.
    for index in ((slice(None), 2), (1, slice(2, 5)), (slice(0, 3, 2), 4)):
        assert is_native("__getitem__", m, index)
        for i in range(-4, 4):
            served(
                lambda i=i, index=index: m[
                    tuple([i if type(item) is int else item for item in index])
                ]
            )
    assert is_native("__getitem__", t, (2, 0, -1))
    served(lambda: t[-3, -1, 4])


def test_an_index_out_of_range_raises_as_in_python():
    x, m = array((7,), dtypes.int32), array((4, 6), dtypes.int32)
    for i in (7, -8, 2**31, 2**63, -(2**63) - 1, 2**64 + 3):
        assert is_native("__getitem__", x, 3)
        assert is_native("__getitem__", m, (3, 3))
        for call in (lambda i=i: x[i], lambda i=i: m[i, 0], lambda i=i: m[0, i]):
            with pytest.raises(IndexError, match=f"index {i} is out of range"):
                call()
    for other in (True, np.int64(3), 3.0, None, "3"):
        with in_python():
            wanted = outcome(lambda other=other: x[other])
        found = outcome(lambda other=other: x[other])
        if isinstance(wanted, tuple):
            assert found == wanted
        else:
            same(found, wanted)
    # Errors do not keep an index from getting a path.
    MEMBERS["__getitem__"]._forget()
    for _ in range(20):
        with pytest.raises(IndexError):
            x[9]
    assert not MEMBERS["__getitem__"]._paths
    for _ in range(2 * MEMBERS["__getitem__"]._gap + 4):
        x[3]
    served(lambda: x[-2])


def test_parts_of_long_arrays_are_views():
    long = fnp.arange(1 << 20).reshape(1 << 10, -1)
    assert is_native("__getitem__", long, 3)
    for i in (0, -1, 700):
        served(lambda i=i: long[i])
        assert np.shares_memory(long[i]._numpy(), long._numpy())
    assert is_native("reshape", long, -1)
    assert is_native("__getitem__", long, (slice(None), 3))  # by way of NumPy
    agrees("__getitem__", long, (slice(None), 4))
    agrees("T", long)


def test_large_arrays():
    x = fnp.arange(100_000.0)
    for call, *args in (
        *(("__add__", x, 1), ("__mul__", x, x), (fnp.sin, x), ("sum", x)),
        *(("T", x.reshape(100, -1)), (fnp.where, x > 9, x, 0.0)),
        (fnp.matmul, x.reshape(200, -1), x.reshape(-1, 200)),
    ):
        agrees(call, *args)
    large = fnp.ones(1 << 18)
    assert is_native("__add__", large, large)  # by way of NumPy
    agrees("__add__", large, 1)


@pytest.mark.parametrize("target", SHORT)
@pytest.mark.parametrize("source", SHORT)
def test_conversions(source, target):
    for shape in ((), (7,), (3, 5)):
        for kind in range(KINDS):
            agrees("astype", array(shape, DTYPES[SHORT.index(source)], kind), target)


def test_floats_become_the_nearest_integers():
    for x in (f32, f32.astype("float64")):
        for target in ("int8", "int32", "int64", "uint16", "uint32"):
            assert is_native("astype", x, target)


def test_what_returns_its_argument_still_does():
    warm("astype", f32, dtypes.float32)
    assert f32.astype(dtypes.float32) is f32
    warm(fnp.reshape, f32, (10,))
    assert fnp.reshape(f32, (10,)) is f32


def test_a_view_keeps_the_memory_alive():
    def last():
        x = fnp.arange(1000.0)
        return warm("__getitem__", x, slice(990, 1000))

    same(last(), fnp.arange(990.0, 1000.0))
    assert last()._numpy().base is not None
