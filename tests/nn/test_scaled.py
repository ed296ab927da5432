"""Products of matrices in few bits: against the formats' own definition in NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fnx
from fnx import errors, nn
from fnx.testing import check_grads

RNG = np.random.default_rng(5)
NUMBERS = (((2,), (2,)), ((0,), (0,)))


def test_scaled_matmul():
    a, b = RNG.standard_normal((2, 3, 12)), RNG.standard_normal((2, 5, 12))
    left, right = RNG.standard_normal((2, 3, 4)), RNG.standard_normal((2, 5, 2))
    want = np.einsum(
        "bmk,bnk->bmn", a * np.repeat(left, 3, -1), b * np.repeat(right, 6, -1)
    )
    got = nn.scaled_matmul(a, b, left, right, "float64")
    np.testing.assert_allclose(got, want, 1e-12)
    got = nn.scaled_matmul(a, b, left, right)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, 1e-4, 1e-5)
    half = nn.scaled_matmul(a.astype("f2"), b.astype("f2"), left, right, "float16")
    assert half.dtype == np.float16
    np.testing.assert_allclose(np.asarray(half, "f8"), want, 0.02, 0.05)
    check_grads(lambda *x: nn.scaled_matmul(*x, "float64"), (a, b, left, right), 2)


def test_errors_of_scaled_matmul():
    a, b, one = np.ones((2, 3, 4)), np.ones((2, 5, 4)), np.ones((2, 3, 1))
    with pytest.raises(errors.ShapeError, match=r"rhs must be \(2, …, 4\)"):
        nn.scaled_matmul(a, b[:1], one, one)
    with pytest.raises(errors.ShapeError, match=r"rhs_scales must be \(2, 5, …\)"):
        nn.scaled_matmul(a, b, one, one)
    with pytest.raises(errors.ShapeError, match="lhs_scales must divide the 4"):
        nn.scaled_matmul(a, b, np.ones((2, 3, 3)), np.ones((2, 5, 1)))


# ---------------------------------------------------------------- rounded operands


def rounded(x, mode, unit=1.0):
    """Block by block, number by number."""
    size, kind = {
        "mxfp8": (32, ml_dtypes.float8_e4m3fn),
        "nvfp4": (16, ml_dtypes.float4_e2m1fn),
    }[mode]
    largest = float(ml_dtypes.finfo(kind).max)
    out = np.zeros(x.shape)
    for *row, block in np.ndindex(*x.shape[:-1], -(-x.shape[-1] // size)):
        at = (*row, slice(block * size, (block + 1) * size))
        most = np.abs(x[at]).max()
        if mode == "mxfp8":
            scale = 2.0 ** np.ceil(np.log2(most / largest)) if most else 1.0
        else:
            steps = np.float32(most) / np.float32(largest) / np.float32(unit)
            steps = np.minimum(steps, 448).astype(ml_dtypes.float8_e4m3fn)
            scale = float(steps) * unit
        if scale:
            data = np.clip(np.float32(x[at]) / np.float32(scale), -largest, largest)
            out[at] = data.astype(kind).astype("f8") * scale
    return out


def configs(mode, unit):
    given = () if unit is None else (np.float32([unit]),)
    return [nn.get_scaled_dot_general_config(mode, *given)] * 3


MODES = [("mxfp8", None), ("nvfp4", None), ("nvfp4", 0.25)]


@pytest.mark.parametrize(("mode", "unit"), MODES)
@pytest.mark.parametrize("width", [1, 16, 40, 96])
def test_operands_are_rounded_in_blocks(mode, unit, width):
    x = RNG.standard_normal((2, 3, width)).astype("f4") * 10
    y = RNG.standard_normal((2, 5, width)).astype("f4")
    x[0, 1] = 0
    y[1, 2, : width // 2] *= 1e-6
    each = [rounded(a, mode, unit or 1.0) for a in (x, y)]
    want = np.einsum("bmk,bnk->bmn", *each)
    run = fnx.jit(
        lambda x, y: nn.scaled_dot_general(x, y, NUMBERS, configs=configs(mode, unit))
    )
    got = nn.scaled_dot_general(x, y, NUMBERS, configs=configs(mode, unit))
    assert got.dtype == np.float32
    for found in (got, run(x, y)):
        np.testing.assert_allclose(found, want, 1e-5, 1e-5)


@pytest.mark.parametrize(("mode", "unit"), MODES)
def test_gradients_are_products_of_rounded_operands(mode, unit):
    x = RNG.standard_normal((2, 6, 40)).astype("f4")
    y = RNG.standard_normal((2, 5, 40)).astype("f4")
    ct = RNG.standard_normal((2, 6, 5)).astype("f4")

    def loss(x, y):
        return (
            nn.scaled_dot_general(x, y, NUMBERS, configs=configs(mode, unit)) * ct
        ).sum()

    def bits(a):
        return rounded(a, mode, unit or 1.0)

    of_x = np.einsum("bmn,bkn->bmk", bits(ct), bits(y.swapaxes(1, 2)))
    turned = bits(ct.swapaxes(1, 2)), bits(x.swapaxes(1, 2))
    of_y = np.einsum("bnm,bkm->bnk", *turned)
    for found, want in zip(fnx.grad(loss, (0, 1))(x, y), (of_x, of_y), strict=True):
        np.testing.assert_allclose(found, want, 1e-5, 1e-5)


def test_axes_are_those_of_dot_general():
    x = RNG.standard_normal((4, 2, 3, 7)).astype("f4")
    y = RNG.standard_normal((3, 5, 7, 2)).astype("f4")
    numbers = (((3, 2), (2, 0)), ((1,), (3,)))
    want = np.einsum("abck,cdkb->bad", x, y)
    got = nn.scaled_dot_general(x, y, numbers)
    np.testing.assert_allclose(got, want, 1e-4, 1e-5)
    some = nn.scaled_dot_general(x, y, numbers, "float16", configs("mxfp8", None))
    assert (some.shape, some.dtype) == ((2, 4, 5), np.float16)
    np.testing.assert_allclose(np.asarray(some, "f8"), want, 0.2, 0.6)


def test_what_is_not_finite_stays_so():
    x, y = np.ones((1, 2, 40), "f4"), np.ones((1, 3, 40), "f4")
    x[0, 0, 3], y[0, 2, 5] = np.inf, np.nan
    for mode, unit in MODES:
        got = nn.scaled_dot_general(x, y, NUMBERS, configs=configs(mode, unit))
        want = [[np.inf, np.inf, np.nan], [40, 40, np.nan]]
        np.testing.assert_allclose(got[0], want, 0.07)


MISTAKES = {
    "mode": (lambda: nn.get_scaled_dot_general_config("int8"), "'mxfp8' or 'nvfp4'"),
    "unit": (lambda: nn.get_scaled_dot_general_config("mxfp8", 1.0), "nvfp4 alone"),
    "units": (
        lambda: nn.get_scaled_dot_general_config("nvfp4", np.ones(2)),
        "one element",
    ),
    "configs": (
        lambda: nn.scaled_dot_general(
            np.ones((1, 1, 1)), np.ones((1, 1, 1)), NUMBERS, configs=[]
        ),
        "got 0",
    ),
    "sizes": (
        lambda: nn.scaled_dot_general(
            np.ones((1, 1, 2)),
            np.ones((1, 1, 3)),
            NUMBERS,
            configs=configs("mxfp8", None),
        ),
        "differ in size",
    ),
    "implementation": (
        lambda: nn.scaled_dot_general(
            np.ones((1, 1, 1)), np.ones((1, 1, 1)), NUMBERS, implementation="cudnn"
        ),
        "there is one",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    call, match = MISTAKES[name]
    with pytest.raises(errors.FnxError, match=match):
        call()
