"""Convolutions and window reductions of `fnx.lax`: against JAX, PyTorch and SciPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.signal

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.ops import dense, squares
from fnx.testing import check_grads

RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((2, 6, 7, 4))
KERNEL = RNG.standard_normal((3, 2, 4, 8))
PLANES = IMAGE.transpose(0, 3, 1, 2).copy()
FILTERS = KERNEL.transpose(3, 2, 0, 1).copy()
LAST = "NHWC", "HWIO", "NHWC"
ROWS = RNG.standard_normal((2, 3, 9))
TAPS = RNG.standard_normal((4, 3, 2))


def both(jax, name, *args, **options):
    """The results of fnx, compiled and not, and that of JAX."""
    mine, theirs = getattr(lax, name), getattr(jax.lax, name)
    arrays = [i for i, x in enumerate(args) if isinstance(x, np.ndarray)]

    def call(*given):
        values = list(args)
        for i, x in zip(arrays, given, strict=True):
            values[i] = x
        return mine(*values, **options)

    given = [args[i] for i in arrays]
    return mine(*args, **options), fnx.jit(call)(*given), theirs(*args, **options)


def assert_same(got, want, tolerance=1e-12):
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, tolerance, tolerance)


CALLS = [
    ("conv", (PLANES, FILTERS, (1, 2), "SAME"), {}),
    ("conv", (PLANES, FILTERS, (2, 1), "SAME_LOWER"), {}),
    ("conv", (ROWS, TAPS, (3,), "VALID"), {"precision": "highest"}),
    (
        "conv_with_general_padding",
        (PLANES, FILTERS, (1, 2), ((1, 2), (-1, 3)), (2, 1), (1, 2)),
        {},
    ),
    ("conv_with_general_padding", (PLANES, FILTERS, (1, 1), "SAME", None, (2, 2)), {}),
    *[
        (
            "conv_general_dilated",
            (IMAGE, KERNEL, (2, 3), padding),
            {
                "dimension_numbers": LAST,
                "rhs_dilation": (1, 2),
            },
        )
        for padding in ("SAME", "SAME_LOWER", "VALID", "same", ((2, 1), (0, -1)))
    ],
    (
        "conv_general_dilated",
        (IMAGE, KERNEL, (1, 1), "VALID"),
        {"dimension_numbers": ("NHWC", "WHIO", "CNHW")},
    ),
    (
        "conv_general_dilated",
        (PLANES, FILTERS[:, :2], (1, 1), "SAME"),
        {"feature_group_count": 2},
    ),
    (
        "conv_general_dilated",
        (PLANES, FILTERS, (1, 1), "SAME"),
        {"batch_group_count": 2, "preferred_element_type": "float64"},
    ),
    *[
        ("conv_transpose", (IMAGE, KERNEL, strides, padding), options)
        for strides, padding, options in (
            ((2, 2), "SAME", {}),
            ((3, 1), "VALID", {}),
            ((4, 2), "SAME", {"transpose_kernel": False}),
            ((2, 1), ((2, 1), (0, 3)), {"rhs_dilation": (2, 2)}),
            ((2, 3), "VALID", {"rhs_dilation": (2, 1)}),
            ((2, 2), ((1, 0), (0, 1)), {"use_consistent_padding": True}),
        )
    ],
    (
        "conv_transpose",
        (IMAGE, KERNEL.swapaxes(2, 3), (2, 2), "SAME"),
        {"transpose_kernel": True},
    ),
    (
        "conv_transpose",
        (ROWS.swapaxes(1, 2), TAPS.transpose(2, 1, 0), (2,), "SAME"),
        {},
    ),
    ("conv_general_dilated_patches", (PLANES, (3, 2), (1, 2), "SAME"), {}),
    (
        "conv_general_dilated_patches",
        (IMAGE, (2, 3), (2, 1), ((1, -1), (0, 2))),
        {
            "dimension_numbers": ("NHWC", "OIHW", "CNHW"),
            "lhs_dilation": (1, 2),
            "rhs_dilation": (2, 1),
        },
    ),
    (
        "conv_general_dilated_local",
        (PLANES, RNG.standard_normal((5, 24, 6, 4)), (1, 2), "SAME", (3, 2)),
        {},
    ),
    (
        "conv_general_dilated_local",
        (IMAGE, RNG.standard_normal((5, 5, 24, 3)), (1, 1), "VALID", (2, 3)),
        {"dimension_numbers": ("NHWC", "HWIO", "NHWC")},
    ),
]


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "args", "options"), CALLS, ids=[f"{c[0]}-{n}" for n, c in enumerate(CALLS)]
)
def test_convolutions_are_those_of_jax(jax, name, args, options):
    eager, compiled, want = both(jax, name, *args, **options)
    assert_same(eager, want)
    assert_same(compiled, want)


@pytest.mark.oracle
def test_shapes_are_those_of_jax(jax):
    calls = [
        ("conv_shape_tuple", (2, 4, 6, 7), (8, 4, 3, 2), (2, 1), "SAME"),
        ("conv_shape_tuple", (2, 4, 6, 7), (8, 4, 3, 2), (1, 1), [(0, 1), (2, 0)], 2),
        ("conv_general_shape_tuple", (2, 6, 7, 4), (3, 2, 4, 8), (2, 1), "SAME", LAST),
        (
            "conv_transpose_shape_tuple",
            (2, 6, 7, 4),
            (3, 2, 4, 8),
            (2, 3),
            "SAME",
            LAST,
        ),
        (
            "conv_transpose_shape_tuple",
            (2, 6, 7, 4),
            (3, 2, 4, 8),
            (2, 3),
            "VALID",
            LAST,
        ),
        ("reduce_window_shape_tuple", (5, 6), (2, 3), (2, 1), ((0, 0), (1, 1))),
        ("conv_general_permutations", ("CHWN", "WHIO", "NHCW")),
        ("conv_dimension_numbers", (1, 2, 3), (1, 2, 3), ("NCH", "HIO", "NHC")),
        ("conv_dimension_numbers", (1, 2, 3), (1, 2, 3), None),
        *[
            ("padtype_to_pads", (5, 6, 1), (3, 2, 4), (2, 1, 3), padding)
            for padding in ("SAME", "SAME_LOWER", "VALID", "valid")
        ],
    ]
    for name, *args in calls:
        got, want = getattr(lax, name)(*args), getattr(jax.lax, name)(*args)
        assert tuple(got) == tuple(want), (name, args)


@pytest.mark.oracle
@pytest.mark.parametrize("budget", [dense.PATCHES, 30_000, 3000])
def test_gradients_of_dense_convolutions_are_those_of_jax(jax, monkeypatch, budget):
    """Also where patches are made for a part of the batch at a time."""
    monkeypatch.setattr(dense, "PATCHES", budget)
    x = RNG.standard_normal((6, 9, 8, 8))
    layouts = {
        "NHWC,HWIO": (x, RNG.standard_normal((3, 3, 8, 12))),
        "NCHW,OIHW": (x.transpose(0, 3, 1, 2), RNG.standard_normal((12, 8, 3, 3))),
        "HWNC,IOHW": (x.transpose(1, 2, 0, 3), RNG.standard_normal((8, 12, 3, 3))),
    }
    for (layout, operands), stride in itertools.product(layouts.items(), (1, 2)):
        lhs, rhs = layout.split(",")
        numbers = lhs, rhs, lhs

        def loss(library, x, kernel, stride=stride, numbers=numbers):
            y = library.lax.conv_general_dilated(
                x, kernel, (stride, 1), ((1, 1), (2, 0)), dimension_numbers=numbers
            )
            return (y * y * y).sum()

        got = fnx.jit(fnx.grad(lambda x, k, f=loss: f(fnx, x, k), (0, 1)))(*operands)
        want = jax.grad(lambda x, k, f=loss: f(jax, x, k), (0, 1))(*operands)
        for mine, theirs in zip(got, want, strict=True):
            assert_same(mine, theirs, 1e-9)


def dense_case(layout, height, width):
    """Operands in float32 for a kernel of three by three, and the function."""
    numbers = layout, "HWIO" if layout[-1] == "C" else "OIHW", layout
    sizes = {"N": 12, "H": height, "W": width, "C": 18}
    window = {"H": 3, "W": 3, "I": 18, "O": 20}
    x = RNG.standard_normal([sizes[a] for a in layout])
    kernel = RNG.standard_normal([window[a] for a in numbers[1]])

    def results(x, kernel, precision=None):
        def convolved(x, kernel):
            return lax.conv_general_dilated(
                x,
                kernel,
                (1, 1),
                ((1, 0), (2, 1)),
                dimension_numbers=numbers,
                precision=precision,
            )

        y, back = fnx.vjp(convolved, x, kernel)
        return (y, *back(y))

    return results, x.astype("f4"), kernel.astype("f4")


@pytest.mark.parametrize("layout", ["NHWC", "NCHW", "HWNC"])
@pytest.mark.parametrize(("height", "width"), [(9, 11), (15, 6), (46, 50)])
@pytest.mark.parametrize("budget", [squares.BYTES, 1])
def test_squares_are_exact_enough(monkeypatch, layout, height, width, budget):
    """In one piece, and in blocks of rows and slices of the batch."""
    monkeypatch.setattr(squares, "BYTES", budget)
    results, x, kernel = dense_case(layout, height, width)
    compiled = fnx.jit(results)
    assert "36×" in compiled.lower(x, kernel).as_text("plan")
    exact = results(x.astype("f8"), kernel.astype("f8"))
    for got, want in zip(compiled(x, kernel), exact, strict=True):
        assert got.dtype == fnp.float32
        assert fnp.abs(got - want).max() < 1e-5 * fnp.abs(want).max()


@pytest.mark.parametrize("precision", ["high", "highest", ("default", "highest")])
def test_a_precision_is_obeyed(precision):
    results, x, kernel = dense_case("NHWC", 12, 12)
    compiled = fnx.jit(lambda x, kernel: results(x, kernel, precision))
    assert "36×" not in compiled.lower(x, kernel).as_text("plan")
    exact = results(x.astype("f8"), kernel.astype("f8"))
    for got, want in zip(compiled(x, kernel), exact, strict=True):
        assert fnp.abs(got - want).max() < 1e-6 * fnp.abs(want).max()


def test_patches_are_bounded_in_memory():
    x, kernel = fnp.zeros((64, 32, 32, 16)), fnp.zeros((5, 5, 16, 16))

    def loss(x, kernel):
        y = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=LAST)
        return (y * y).sum()

    compiled = fnx.jit(fnx.grad(loss, (0, 1))).lower(x, kernel).compile()
    memory = compiled.memory_analysis()
    # All patches at once are 105 MB, the images 4.
    assert memory.temp_size_in_bytes < 40e6
    x = fnp.zeros((1, 400, 60, 16))  # 38 MB of patches, and an image of 1.5
    compiled = fnx.jit(fnx.grad(loss, (0, 1))).lower(x, kernel).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 25e6


def test_gradients_are_differences():
    def grouped(x, kernel):
        return lax.conv_general_dilated(
            x,
            kernel,
            (2, 1),
            ((1, 0), (-1, 2)),
            (1, 2),
            (2, 1),
            LAST,
            feature_group_count=2,
        )

    def batched(x, kernel):
        return lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=LAST, batch_group_count=2
        )

    def turned(x, kernel):
        return lax.conv_transpose(x, kernel, (2, 3), "SAME")

    x, kernel = IMAGE[:, :4, :4], KERNEL[..., :4]
    check_grads(grouped, (x, kernel[:, :, :2]), order=2)
    check_grads(batched, (x, kernel), order=2)
    check_grads(turned, (x, kernel), order=2)
    check_grads(
        lambda x: lax.conv_general_dilated_patches(x, (2, 3), (1, 2), "SAME"),
        (x,),
        order=2,
    )


def test_convolution_is_that_of_torch():
    torch = pytest.importorskip("torch")
    given = torch.tensor(PLANES), torch.tensor(FILTERS[:, :1].repeat(2, 0)[:12])
    want = torch.nn.functional.conv2d(
        *given, stride=(2, 1), padding=(2, 1), dilation=(1, 2), groups=4
    )
    got = lax.conv_with_general_padding(PLANES, FILTERS, (1, 1), "VALID", None, None)
    plain = torch.nn.functional.conv2d(torch.tensor(PLANES), torch.tensor(FILTERS))
    assert_same(got, plain.numpy())
    got = lax.conv_general_dilated(
        PLANES,
        given[1].numpy(),
        (2, 1),
        ((2, 2), (1, 1)),
        None,
        (1, 2),
        feature_group_count=4,
    )
    assert_same(got, want.numpy())


def test_convolution_is_the_correlation_of_scipy():
    want = scipy.signal.correlate(PLANES[0], FILTERS[0], "valid")[0]
    got = lax.conv(PLANES[:1], FILTERS[:1], (1, 1), "VALID")[0, 0]
    np.testing.assert_allclose(got, want, 1e-12, 1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bits_are_added_in_float32(dtype):
    ones, taps = fnp.ones((1, 1, 5000), dtype), fnp.ones((1, 1, 5000), dtype)
    assert lax.conv(ones, taps, (1,), "VALID").item() == fnp.float32(5000).astype(dtype)
    x, kernel = [fnp.asarray(a, dtype) for a in (PLANES, FILTERS)]
    exact = lax.conv(x.astype("float64"), kernel.astype("float64"), (1, 1), "SAME")
    got = fnx.jit(lambda x, k: lax.conv(x, k, (1, 1), "SAME"))(x, kernel)
    assert got.dtype == fnp.dtype(dtype)
    error = fnp.abs(got.astype("float64") - exact).max() / fnp.abs(exact).max()
    assert error.item() < fnp.finfo(dtype).eps


# ---------------------------------------------------------------- windows

GRID = np.round(RNG.standard_normal((2, 5, 6, 2)) * 2)
POOLS = [
    ((1, 2, 2, 1), (1, 2, 2, 1), "VALID", None, None),
    ((1, 3, 3, 1), (1, 2, 2, 1), "SAME", None, None),
    ((1, 3, 2, 1), (1, 1, 1, 1), "SAME_LOWER", None, None),
    ((1, 2, 2, 1), (1, 3, 4, 1), ((0, 0), (1, 2), (3, 0), (0, 0)), None, None),
    ((1, 2, 3, 1), (1, 1, 2, 1), "VALID", (1, 2, 1, 1), (1, 1, 2, 1)),
    ((2, 5, 6, 2), None, "VALID", None, None),
]
REDUCTIONS = [
    ("add", 0.0),
    ("add", 1.5),
    ("max", -np.inf),
    ("max", 0.5),
    ("min", np.inf),
    ("mul", 1.0),
    ("mul", 2.0),
]


@pytest.mark.oracle
@pytest.mark.parametrize("pool", POOLS, ids=range(len(POOLS)))
@pytest.mark.parametrize(("name", "start"), REDUCTIONS)
def test_window_reductions_are_those_of_jax(jax, name, start, pool):
    def reduced(library, x):
        return library.lax.reduce_window(x, start, getattr(library.lax, name), *pool)

    want = reduced(jax, GRID)
    assert_same(reduced(fnx, GRID), want)
    assert_same(fnx.jit(lambda x: reduced(fnx, x))(GRID), want)


@pytest.mark.oracle
@pytest.mark.parametrize("pool", POOLS[:4], ids=range(4))
@pytest.mark.parametrize(("name", "start"), [REDUCTIONS[i] for i in (0, 2, 4)])
def test_gradients_of_pools_are_those_of_jax(jax, name, start, pool):
    """The data has ties: the first one gets all, as there."""

    def loss(library, x):
        y = library.lax.reduce_window(x, start, getattr(library.lax, name), *pool)
        return (y * y).sum()

    x = GRID.copy()
    if name != "add" and pool[2] not in ("VALID", "SAME", "SAME_LOWER"):
        x, pool = x[:, 1:, 1:], (*pool[:2], ((0, 0), (0, 1), (1, 0), (0, 0)), *pool[3:])
    want = jax.grad(lambda x: loss(jax, x))(x)
    assert_same(fnx.grad(lambda x: loss(fnx, x))(x), want)
    assert_same(fnx.jit(fnx.grad(lambda x: loss(fnx, x)))(x), want)


def test_derivatives_of_pools_are_differences():
    x = RNG.permutation(60).reshape(1, 6, 10) / 7.0
    for name, start in REDUCTIONS:
        operation = getattr(lax, name)
        check_grads(
            lambda x, op=operation, a=start: lax.reduce_window(
                x, a, op, (1, 3, 2), (1, 2, 3), "SAME"
            ),
            (x,),
            order=2,
        )


def test_a_function_is_known_by_what_it_does():
    x = fnp.arange(6.0)
    for function in (lax.add, fnp.add, lambda a, b: b + a):
        program = fnx.make_jaxpr(
            lambda x, f=function: lax.reduce_window(x, 0.0, f, (2,))
        )
        assert "reduce_window_sum" in str(program(x))
    booleans = x > 2
    for function, start, want in (
        (lax.bitwise_and, True, [False, False, False, True, True]),
        (fnp.logical_or, False, [False, False, True, True, True]),
    ):
        got = lax.reduce_window(booleans, start, function, (2,))
        assert got.tolist() == want
    assert lax.reduce_window(
        fnp.array([6, 3, 7]), -1, lax.bitwise_and, (2,)
    ).tolist() == [
        2,
        3,
    ]


def test_any_function_and_trees_run_over_windows():
    def longer(a, b):
        return fnp.hypot(a, b)

    x = fnp.array([3.0, 4.0, 12.0])
    got = lax.reduce_window(x, 0.0, longer, (2,))
    np.testing.assert_allclose(got, [5, 160**0.5], 1e-6)
    gradient = fnx.jit(fnx.grad(lambda x: lax.reduce_window(x, 0.0, longer, (3,))[0]))
    np.testing.assert_allclose(gradient(x), x / 13, 1e-6)

    def best(a, b):
        wins = b["score"] > a["score"]
        return {name: fnp.where(wins, b[name], a[name]) for name in a}

    three = fnp.array([1.0, 2.0, 4.0])
    pads = ((1, 1),)
    half = lax.reduce_window(three, 8.0, lambda a, b: a + b / 2, (2,), None, pads)
    assert half.tolist() == [8.5, 9.5, 11.0, 10.0]
    table = {"score": x[::-1], "place": fnp.arange(3)}
    starts = {"score": -fnp.inf, "place": -1}
    found = lax.reduce_window(table, starts, best, (2,), padding=((1, 0),))
    assert found["place"].tolist() == [0, 0, 1]
    assert found["score"].tolist() == [12.0, 12.0, 4.0]


def test_a_traced_start():
    def pooled(x, start):
        return lax.reduce_window(x, start, lax.add, (2,), padding=((1, 0),))

    x = fnp.arange(3.0)
    assert fnx.jit(pooled)(x, 10.0).tolist() == [10.0, 11.0, 13.0]
    assert fnx.grad(lambda a: pooled(x, a).sum())(10.0).item() == 3.0


def test_convolutions_and_pools_under_transformations():
    def net(x, kernel):
        y = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=LAST)
        return lax.reduce_window(y, -fnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1))

    def one(x, kernel):
        return net(x[None], kernel)[0]

    x, kernel = fnp.array(IMAGE), fnp.array(KERNEL)
    whole = net(x, kernel)
    np.testing.assert_allclose(fnx.vmap(one, (0, None))(x, kernel), whole, 1e-12)
    kernels = fnp.stack([kernel, 2 * kernel])
    each = fnx.jit(fnx.vmap(one))(x, kernels)
    np.testing.assert_allclose(each[1], 2 * whole[1], 1e-12)
    rows = fnx.vmap(fnx.grad(lambda x, k: one(x, k).sum(), 1), (0, None))(x, kernel)
    total = fnx.grad(lambda k: net(x, k).sum())(kernel)
    np.testing.assert_allclose(rows.sum(0), total, 1e-10)
    tangent = fnx.jvp(lambda k: net(x, k), (kernel,), (kernel,))[1]
    np.testing.assert_allclose(tangent, whole, 1e-12)


def test_mistakes_raise():
    image, kernel = fnp.ones((1, 2, 5, 5)), fnp.ones((3, 2, 3, 3))
    wrong = [
        (errors.OptionError, lambda: lax.conv(image, kernel, (1,), "SAME")),
        (errors.OptionError, lambda: lax.conv(image, kernel, (0, 1), "SAME")),
        (errors.OptionError, lambda: lax.conv(image, kernel, (1, 1), "SOME")),
        (errors.ArgumentError, lambda: lax.conv(image, kernel, (1, 1), ((1, 1),))),
        (errors.ArgumentError, lambda: lax.conv(image, kernel, (1.5, 1), "SAME")),
        (errors.ShapeError, lambda: lax.conv(image, kernel[0], (1, 1), "SAME")),
        (errors.ShapeError, lambda: lax.conv(image, kernel[:, :1], (1, 1), "SAME")),
        (
            errors.OptionError,
            lambda: lax.conv_general_dilated(image, kernel, (1, 1), "SAME", (2, 2)),
        ),
        (
            errors.OptionError,
            lambda: lax.conv_transpose(image, kernel, (2, 2), "SAME_LOWER"),
        ),
        (
            errors.OptionError,
            lambda: lax.conv(image, kernel, (1, 1), "SAME", precision="some"),
        ),
        (
            errors.OptionError,
            lambda: lax.conv_general_dilated_patches(
                image, (2, 2), (1, 1), "SAME", precision="some"
            ),
        ),
        (
            errors.ShapeError,
            lambda: lax.reduce_window((image, kernel), (0.0, 0.0), lax.add, (1,) * 4),
        ),
        (
            errors.TreeError,
            lambda: lax.reduce_window((image, image), 0.0, lax.add, (1,) * 4),
        ),
        (
            errors.DTypeError,
            lambda: lax.reduce_window(image, fnp.int32(0), lax.add, (1,) * 4),
        ),
        (errors.FnxError, lambda: lax.reduce_window(image, 0.0, lax.add, (1, 2))),
        (errors.FnxError, lambda: lax.reduce_window(image, 0.0, lax.add, (1, 1, 0, 1))),
    ]
    for error, call in wrong:
        with pytest.raises(error):
            call()
