"""Matrix products in pieces: every element once, the same bits on any threads."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax
from fnx.cpu import products
from fnx.cpu.products import cut

SIZES = [1, 2, 7, 48, 95, 96, 97, 127, 128, 129, 500, 1000, 1024, 3000]


@pytest.fixture(autouse=True)
def _restored():
    before = fnx.num_threads()
    yield
    fnx.set_num_threads(before)


@pytest.mark.parametrize(("m", "n"), list(itertools.product(SIZES, SIZES)))
@pytest.mark.parametrize("k", [1, 64, 7000])
@pytest.mark.parametrize("processors", [1, 2, 16])
def test_blocks_cover_the_output(m, n, k, processors):
    blocks = cut(m, n, k, processors)
    assert 0 <= m - (blocks.down - 1) * blocks.rows <= blocks.rows
    assert 0 <= n - (blocks.across - 1) * blocks.columns <= blocks.columns
    assert min(m, blocks.rows, n, blocks.columns) >= 1


def test_small_products_are_one_piece():
    assert cut(80, 80, 80, 8).pieces == 1
    assert cut(4, 4, 10**7, 8).pieces == 1  # nothing to cut
    assert cut(128, 512, 784, 2).pieces == 2
    assert cut(4096, 4096, 2048, 8).pieces == 16


CASES = [
    (1, (130, 140, 300)),
    (1, (1000, 30, 200)),
    (1, (30, 1000, 200)),
    (1, (513, 769, 255)),
    (1, (1, 4000, 2000)),
    (40, (33, 65, 17)),
    (3, (200, 300, 250)),
    (2, (5, 7, 0)),
    (1, (3001, 60, 401)),  # too large to be small, but narrow
    (1, (40, 70, 30011)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize(("batch", "sizes"), CASES)
@pytest.mark.parametrize("transposed", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_values_and_threads(batch, sizes, transposed, dtype, rng):
    m, n, k = sizes
    x = rng.standard_normal((batch, k, m) if transposed[0] else (batch, m, k))
    y = rng.standard_normal((batch, n, k) if transposed[1] else (batch, k, n))
    x, y = (x + 1j * x[::-1], y - 1j) if dtype == "complex64" else (x, y)
    x, y = x.astype(dtype), y.astype(dtype)
    contract = ((1 if transposed[0] else 2,), (2 if transposed[1] else 1,))
    f = fnx.jit(lambda x, y: lax.dot_general(x, y, (contract, ((0,), (0,)))))
    wanted = np.matmul(
        x.swapaxes(1, 2) if transposed[0] else x,
        y.swapaxes(1, 2) if transposed[1] else y,
    )
    results = []
    for threads in (1, 2, 8):
        fnx.set_num_threads(threads)
        results.append(np.asarray(f(x, y)))
    scale = np.abs(wanted).max(initial=1.0)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(results[0], wanted, atol=tolerance * scale)
    assert all(r.tobytes() == results[0].tobytes() for r in results)


def test_equal_products_share_a_function():
    x = np.ones((20, 20), np.float32)
    text = fnx.jit(lambda x: x @ x @ x @ x).lower(x).as_text("llvm")
    assert text.count("define internal void @product") == 1


def test_pieces_in_any_order(monkeypatch, rng):
    monkeypatch.setattr(products, "LEAST", 10)
    monkeypatch.setattr(products, "cpus", lambda: 50)
    x, y = (rng.standard_normal((700, 600), dtype=np.float32) for _ in range(2))
    found = fnx.jit(lambda x, y: fnp.tanh(x @ y.T) + 1)(x, y)
    np.testing.assert_allclose(found, np.tanh(x @ y.T) + 1, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32", "bool"])
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (2, 2, 2), (3, 5, 7), (8, 8, 8), (4, 1, 9)]
)
@pytest.mark.parametrize("batch", [1, 3, 1000])
def test_stacks_of_small_products_are_kernels(batch, sizes, dtype, rng):
    m, n, k = sizes
    x = fnp.array(rng.integers(-3, 4, (batch, m, k))).astype(dtype)
    y = fnp.array(rng.integers(-3, 4, (batch, k, n))).astype(dtype)
    f = fnx.jit(lambda x, y: x @ y)
    text = f.lower(x, y).as_text("plan")
    assert "@ " not in text
    assert "host" not in text
    wide = [np.asarray(v).astype(np.int64) for v in (x, y)]
    wanted = np.matmul(*wide)
    found = np.asarray(f(x, y))
    if dtype == "bool":
        np.testing.assert_array_equal(found, wanted > 0)
    else:
        np.testing.assert_array_equal(found.astype(np.int64), wanted)


def test_small_products_fuse(rng):
    x, y = (rng.standard_normal((100, 3, 3), dtype=np.float32) for _ in range(2))
    f = fnx.jit(lambda x, y: fnp.tanh((2 * x) @ y) + 1)
    assert f.lower(x, y).as_text("plan").count("kernel") == 1
    wanted = np.tanh((2 * x) @ y) + 1
    np.testing.assert_allclose(f(x, y), wanted, rtol=1e-5, atol=1e-6)
    found = fnx.grad(lambda x: (fnp.exp(x) @ y).sum())(x)
    np.testing.assert_allclose(
        found, np.exp(x) * y.sum(2)[:, None, :], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "float16"])
@pytest.mark.parametrize(
    "sizes", [(2, 3, 33, 17, 20), (1, 3, 20, 1, 40), (2, 0, 4, 5, 6)]
)
def test_operands_and_outputs_with_their_axes_in_any_order(sizes, dtype, rng):
    """Products over b and h of arrays whose axes lie in some order."""
    size = dict(zip("bhmnk", sizes, strict=True))
    orders = list(itertools.permutations(range(4)))
    for x_order, y_order, out_order in zip(
        orders, rng.permutation(orders), rng.permutation(orders), strict=True
    ):
        x_lies = "".join("bhmk"[i] for i in x_order)
        y_lies = "".join("bhkn"[i] for i in y_order)
        out_lies = "".join("bhmn"[i] for i in out_order)
        x = rng.standard_normal([size[axis] for axis in x_lies])
        y = rng.standard_normal([size[axis] for axis in y_lies])
        if dtype == "complex64":
            x = x + 1j * np.sqrt(abs(x))
        x, y = x.astype(dtype), y.astype(dtype)
        wide = np.complex128 if dtype == "complex64" else np.float64
        equation = f"{x_lies},{y_lies}->{out_lies}"
        wanted = np.einsum(equation, x.astype(wide), y.astype(wide))

        def moved(x, y, x_lies=x_lies, y_lies=y_lies, back=out_order):
            x = fnp.transpose(x, [x_lies.index(axis) for axis in "bhmk"])
            y = fnp.transpose(y, [y_lies.index(axis) for axis in "bhkn"])
            return fnp.transpose(x @ y, back)

        f = fnx.jit(moved)
        scale = np.abs(wanted).max(initial=1.0)
        tolerance = {"float64": 1e-13, "float16": 2e-3}.get(dtype, 1e-5)
        for found in (moved(fnp.array(x), fnp.array(y)), f(x, y)):
            assert found.dtype == dtype
            np.testing.assert_allclose(found, wanted, atol=tolerance * scale)
        fnx.set_num_threads(1)
        alone = np.asarray(f(x, y))
        fnx.set_num_threads(8)
        assert alone.tobytes() == np.asarray(f(x, y)).tobytes()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_complex_operands_are_copied_where_they_must_be(order, rng):
    x = rng.standard_normal((9, 8, 7)) + 1j * rng.standard_normal((9, 8, 7))
    y = rng.standard_normal((9, 7, 6)) - 1j
    x_lies = x.transpose(order).copy()
    axes = [order.index(axis) for axis in range(3)]
    numbers = ((axes[2],), (1,)), ((axes[0],), (0,))
    f = fnx.jit(lambda x, y: lax.dot_general(x, y, numbers))
    np.testing.assert_allclose(f(x_lies, y), x @ y, rtol=1e-13)


def test_a_complex_scalar_literal_multiplies(rng):
    x = (rng.standard_normal((2, 3)) + 2j).astype(np.complex64)
    f = fnx.jit(lambda x: lax.dot_general(2j, x, (((), ()), ((), ()))))
    np.testing.assert_allclose(f(x), 2j * x, rtol=1e-6)


def test_pieces_of_products_with_strides_in_any_order(monkeypatch, rng):
    monkeypatch.setattr(products, "LEAST", 10)
    monkeypatch.setattr(products, "cpus", lambda: 50)
    x = rng.standard_normal((2, 130, 3, 3, 70), dtype=np.float32)

    def scores(x):
        q, k, v = (x[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
        return (q @ k.transpose(0, 1, 3, 2) @ v).transpose(0, 2, 1, 3)

    q, k, v = (x[:, :, i].astype(float) for i in range(3))
    wanted = np.einsum("bmhd,bnhd,bnhe->bmhe", q, k, v, optimize=True)
    f = fnx.jit(scores)
    assert "permute" not in f.lower(x).as_text("plan")
    np.testing.assert_allclose(f(x), wanted, rtol=1e-4, atol=2e-3)
