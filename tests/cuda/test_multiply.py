"""Matrix products in programs: by the library or by our kernels, on streams, in graphs.

The library is a stand-in whose products wait in the emulated machine's streams, so that
what reads a result too early gets it wrong.
"""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import nn
from fnx.runtime.plan import MatmulStep, Matrices, Product
from fnx_cuda import _cupy, blaslt_tuning, device, instructions
from fnx_cuda.blaslt import WORKSPACE
from fnx_cuda.blaslt_api import LIBRARY, Epilogue
from fnx_cuda.check.product_kernels import cases, product_kernels
from fnx_cuda.check.report import Setting
from fnx_cuda.multiply import workspace
from fnx_cuda.products import product_launches, product_work
from tests import cuda_emulator as emulator
from tests.cuda.blaslt_fake import FakeBlasLt
from tests.cuda.compare import on_cpu, on_device
from tests.cuda.parts import arena, f32, got, inputs, outputs, plan, program, put
from tests.cuda_emulator.memory import INITIALISED

pytestmark = pytest.mark.cuda

M, N, K = 40, 48, 36


@pytest.fixture(params=[0, 1], ids=["seed0", "seed1"])
def emulated(request):
    """A machine with two devices, without a library."""
    reason = emulator.reason_missing()
    if reason:
        pytest.skip(reason)
    before = _cupy._module
    _cupy.use(emulator.cupy_module())
    device.forget()
    blaslt_tuning.forget()
    made = emulator.reset(emulator.Settings(seed=request.param))
    yield made
    gc.collect()
    device.forget()
    blaslt_tuning.forget()
    _cupy.use(before)
    assert not made.findings


@pytest.fixture
def library(emulated, monkeypatch):
    """A library on that machine; the algorithm 7 is its fastest."""
    made = FakeBlasLt()

    def later(handle, run, writes):
        stream = emulated.stream(handle)

        def run_on_device():
            run()
            for address, size in writes:
                emulated.memories[stream.device].mark(address, size, INITIALISED)

        emulated.enqueue(stream, run_on_device, "a product of the library")

    def clock_on(stream):
        def clock(start):
            before = len(made.ran)
            start()
            emulated.finish_stream(emulated.stream(stream))
            ran = made.ran[before:]
            return {7: 1.0, 3: 2.0, 0: 2.0}[ran[-1]] if ran else 3.0

        return clock

    made.later = later
    LIBRARY.use(made)
    monkeypatch.setattr(blaslt_tuning, "clock_on", clock_on)
    yield made
    LIBRARY.use(None)


def dense(rows, columns):
    return Matrices(0, (), columns, False)


def product(out, x, y, m, n, k):
    """out = x @ y, all of them dense."""
    shape = Product((), m, n, k, dense(m, n), dense(m, k), dense(k, n))
    dtype = np.dtype(np.float32)
    step = MatmulStep(dtype, out, x, y, shape, dtype)
    return instructions.Product(step, product_launches(step)), product_work(step)


def two_products():
    """out = (x @ y) @ z."""
    (x, y, z), (out,) = inputs(0, 1, 2), outputs(0)
    first, work = product(arena(256), x, y, M, N, K)
    second, more = product(out, arena(256), z, M, K, N)
    types = [f32(M, K), f32(K, N), f32(N, K)], [f32(M, K)]
    size = 256 + 4 * M * N
    return program(plan(*types, size), [first, second], max(work, more))


def runs_right(run, rng, count=4, number=0):
    arrays = [
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((M, K), (K, N), (N, K))
    ]
    buffers = put(*arrays, device=number)
    for _ in range(count):
        (out,) = run(buffers, number)
        want = arrays[0].astype(np.float64) @ arrays[1] @ arrays[2]
        np.testing.assert_allclose(got(out, arrays[0]), want, rtol=1e-3, atol=1e-3)


def test_without_a_library_our_kernels_serve(emulated, rng):
    runs_right(two_products(), rng)


def test_the_library_serves_alone_and_in_graphs(emulated, library, rng):
    run = two_products()
    runs_right(run, rng)
    # The first run times all three of each form; then only the fastest is run.
    assert set(library.ran) == {0, 3, 7}
    assert library.ran[-6:] == [7] * 6
    library.ran.clear()
    runs_right(run, rng, number=1)
    assert library.ran[-6:] == [7] * 6


def test_a_program_that_knows_its_algorithms_takes_no_times(emulated, library, rng):
    runs_right(two_products(), rng)
    library.ran.clear()
    runs_right(two_products(), rng, count=3)
    assert library.ran == [7] * 6


def test_what_the_library_refuses_our_kernels_do(emulated, library, rng):
    library.broken = {0, 3, 7}
    run = two_products()
    runs_right(run, rng)
    assert not library.ran


def test_a_device_has_one_workspace(emulated, library, rng):
    run, other = two_products(), two_products()
    runs_right(run, rng, count=1)
    with device.device(0) as first:
        kept = workspace(first)
        assert kept.nbytes == WORKSPACE and kept.pointer % 256 == 0
        runs_right(other, rng, count=1)
        assert workspace(first) is kept
    with device.device(1) as second:
        assert workspace(second).device == 1


def test_times_are_taken_by_events(emulated):
    (source,) = put(np.ones(2**18, np.float32))
    with device.device(0) as current:
        out = current.memory.allocate(2**20)
        started = []

        def start():
            started.append(1)
            _cupy.copy(out.pointer, source.pointer, 2**20, current.compute)

        assert blaslt_tuning.clock_on(current.compute)(start) > 0
        assert started == [1]


# ---------------------------------------------------------------- epilogues


def layer(activation):
    return lambda x, w, b: activation(x @ w + b)


def operands(rng, dtype):
    shapes = (M, K), (K, N), (N,)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def wide(arrays):
    return [np.asarray(x).astype(np.float64) for x in arrays]


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


LAYERS = [
    (lambda x: x, lambda x: x, np.float32, Epilogue.BIAS),
    (nn.relu, lambda x: np.maximum(x, 0), np.float32, Epilogue.RELU_BIAS),
    (nn.relu, lambda x: np.maximum(x, 0), ml_dtypes.bfloat16, Epilogue.RELU_BIAS),
    (nn.gelu, gelu, np.float16, Epilogue.GELU_BIAS),
]


@pytest.mark.parametrize("activation, want, dtype, epilogue", LAYERS)
def test_the_library_computes_layers(
    activation, want, dtype, epilogue, emulated, library, rng
):
    arrays = operands(rng, dtype)
    x, w, b = wide(arrays)
    tolerance = 1e-5 if dtype == np.float32 else 0.01
    (out,) = on_device(layer(activation), *arrays)
    np.testing.assert_allclose(
        out.astype(np.float64), want(x @ w + b), rtol=tolerance, atol=10 * tolerance
    )
    # It is the last call that gave the output; the others were timed.
    assert library.epilogues[-1] == epilogue
    assert set(library.epilogues) == {1, epilogue}


@pytest.mark.parametrize("activation, want, dtype, epilogue", LAYERS)
def test_without_the_library_layers_are_kernels(
    activation, want, dtype, epilogue, emulated, rng
):
    arrays = operands(rng, dtype)
    x, w, b = wide(arrays)
    tolerance = 1e-5 if dtype == np.float32 else 0.02
    (out,) = on_device(layer(activation), *arrays)
    np.testing.assert_allclose(
        out.astype(np.float64), want(x @ w + b), rtol=tolerance, atol=10 * tolerance
    )


def test_a_relu_that_loses_nan_is_not_the_librarys(emulated, library, rng):
    library.keeps_nan = False
    x, w, b = operands(rng, np.float32)
    x[3, 5] = np.nan
    (out,) = on_device(layer(nn.relu), x, w, b)
    assert np.isnan(out[3]).all() and np.isfinite(np.delete(out, 3, axis=0)).all()
    # The library's products serve still; all that was done with its ReLU was to try it.
    assert library.epilogues[-1] == Epilogue.DEFAULT


def test_a_relu_that_keeps_nan_is(emulated, library, rng):
    x, w, b = operands(rng, np.float32)
    x[3, 5] = np.nan
    (out,) = on_device(layer(nn.relu), x, w, b)
    assert np.isnan(out[3]).all() and np.isfinite(np.delete(out, 3, axis=0)).all()
    assert library.epilogues[-1] == Epilogue.RELU_BIAS


def test_layers_in_graphs_and_loops(emulated, library, rng):
    x, w, b = operands(rng, np.float32)
    v = rng.standard_normal((N, K)).astype(np.float32) / 10

    def rounds(x, w, b, v):
        def one(_, x):
            return nn.relu(x @ w + b) @ v

        return fnx.lax.fori_loop(0, 4, one, x)

    (out,) = on_device(rounds, x, w, b, v)
    want = x.astype(np.float64)
    for _ in range(4):
        want = np.maximum(want @ w + b, 0) @ v
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4 * abs(want).max())
    assert Epilogue.RELU_BIAS in library.epilogues[-4:]


# ---------------------------------------------------------------- gradients


def two_layers(w, b, v, c, x):
    """The gradients of two layers by all weights and biases."""

    def loss(w, b, v, c):
        return ((nn.relu(x @ w + b) @ v + c) ** 2).sum() / 64

    return fnx.grad(loss, argnums=(0, 1, 2, 3))(w, b, v, c)


def layers(rng, dtype=np.float32):
    shapes = (K, N), (N,), (N, 2 * K), (2 * K,), (M, K)
    return [(rng.standard_normal(s) / 4).astype(dtype) for s in shapes]


def gradients(w, b, v, c, x):
    """The same, by hand."""
    w, b, v, c, x = wide([w, b, v, c, x])
    h = x @ w + b
    r = np.where(h <= 0, 0, h)
    s = (r @ v + c) / 32
    down = np.where(h <= 0, 0, s @ v.T)
    return x.T @ down, down.sum(0), r.T @ s, s.sum(0)


def gelu_layers(with_bias):
    """The gradients of two layers with GELU, by the weights and the input."""

    def loss(w, b, v, x):
        h = x @ w + b if with_bias else x @ w
        return ((nn.gelu(h, approximate=True) @ v) ** 2).sum() / 64

    return fnx.grad(loss, argnums=(0, 1, 2, 3) if with_bias else (0, 2, 3))


@pytest.mark.parametrize("columns", [N, 45])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("has_library", [False, True])
def test_gradients_of_gelu(
    columns, with_bias, dtype, has_library, emulated, request, rng
):
    shapes = (K, columns), (columns,), (columns, 40), (M, K)
    arrays = [(rng.standard_normal(s) / 4).astype(dtype) for s in shapes]
    fake = request.getfixturevalue("library") if has_library else None
    found = on_device(gelu_layers(with_bias), *arrays)
    with fnx.default_device(fnx.devices("cpu")[0]):
        want = wide(on_cpu(gelu_layers(with_bias), *arrays))
    close(wide(found), want, {4: 1e-5, 2: 0.03}[np.dtype(dtype).itemsize])
    if fake is not None:
        epilogue = Epilogue.GELU_AUX_BIAS if with_bias else Epilogue.GELU_AUX
        kept = np.dtype(dtype).itemsize == 2 and columns % 8 == 0
        assert (epilogue in fake.epilogues) == kept


def test_a_gradient_of_nothing_is_0_where_gelu_overflows(emulated, library, rng):
    """As DGELU need not have it: 0 times a derivative that is NaN."""
    w = np.full((K, N), 30, np.float16)
    x = np.full((M, K), 30, np.float16)

    nothing = np.zeros(N, np.float16), np.zeros((N, 40), np.float16)
    found = on_device(gelu_layers(False), w, *nothing, x)
    assert Epilogue.GELU_AUX in library.epilogues
    for each in found:
        np.testing.assert_array_equal(each, np.zeros(each.shape))


BACKWARD = {Epilogue.RELU_AUX_BIAS, Epilogue.DRELU_BGRAD, Epilogue.BGRADA}


def chosen_by(library, function, *arrays):
    """The epilogues that a program runs when all choices are known."""
    library.epilogues.clear()
    on_device(function, *arrays)
    return library.epilogues


def close(found, want, tolerance):
    for one, other in zip(found, want, strict=True):
        scale = np.nanmax(abs(other[np.isfinite(other)]), initial=1e-3)
        np.testing.assert_allclose(
            one.astype(np.float64), other, rtol=tolerance, atol=tolerance * scale
        )


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-5), (np.float16, 0.03)])
def test_the_library_computes_gradients(dtype, tolerance, emulated, library, rng):
    arrays = layers(rng, dtype)
    close(on_device(two_layers, *arrays), gradients(*arrays), tolerance)
    assert chosen_by(library, two_layers, *arrays) == [134, 1, 256, 152, 1]


@pytest.mark.parametrize("rows", [1, 7, 40])
def test_without_the_library_gradients_are_kernels(rows, emulated, rng):
    w, b, v, c, x = layers(rng)
    arrays = w, b, v, c, x[:rows]
    close(on_device(two_layers, *arrays), gradients(*arrays), 2e-5)


def test_a_gradient_of_which_the_library_refuses_a_part(emulated, library, rng):
    """Each step may be the library's or ours: the mask is the same."""
    arrays = layers(rng)
    for refused in BACKWARD:
        blaslt_tuning.forget()
        library.refused = {refused}
        library.epilogues.clear()
        close(on_device(two_layers, *arrays), gradients(*arrays), 2e-5)
        assert set(library.epilogues) >= BACKWARD - {refused}
        assert refused not in library.epilogues


def passed_on(w, b, x, g):
    """A layer, what comes back through it, and the sums of that."""
    h = x @ w + b
    passed = nn.relu(h)
    down = fnp.where(h <= 0, 0, g @ w)
    return passed, down, down.sum(0), x.T @ down


@pytest.mark.parametrize("keeps, selects", [(True, True), (False, True), (True, False)])
def test_nan_in_gradients(keeps, selects, emulated, library, rng):
    """NaN lets pass what comes from above; what is blocked is 0, even if that is NaN.

    The library is used only where it does the same.
    """
    library.keeps_nan, library.selects = keeps, selects
    w, b, _, _, x = layers(rng)
    g = rng.standard_normal((M, K)).astype(np.float32)
    x[3, 5] = np.nan
    g[4] = np.nan
    arrays = w, b, x, g
    passed, down, sums, slopes = on_device(passed_on, *arrays)
    with np.errstate(invalid="ignore"):
        h = x.astype(np.float64) @ w + b
        blocked, above = h <= 0, g.astype(np.float64) @ w
    want = np.where(blocked, 0, above)
    assert np.isnan(passed[3]).all() and np.isfinite(want[3]).all()
    close([down, sums], [want, want.sum(0)], 1e-5)
    assert np.isnan(sums).any() and np.isfinite(sums).any()
    assert (np.isnan(slopes[5]).all(), np.isnan(slopes).all()) == (True, False)
    last = chosen_by(library, passed_on, *arrays)
    assert (Epilogue.RELU_AUX_BIAS in last) == keeps
    assert (Epilogue.DRELU_BGRAD in last) == selects


def test_a_gradient_again_and_again_in_a_loop(emulated, library, rng):
    arrays = layers(rng)

    def train(*arrays):
        def step(_, given):
            moved = zip(given, two_layers(*given, arrays[4]), strict=True)
            return tuple([one - 0.1 * slope for one, slope in moved])

        return fnx.lax.fori_loop(0, 3, step, arrays[:4])

    want = wide(arrays)
    for _ in range(3):
        slopes = gradients(*want)
        moved = zip(want[:4], slopes, strict=True)
        want = [*[one - 0.1 * slope for one, slope in moved], want[4]]
    close(on_device(train, *arrays), want[:4], 1e-4)
    assert Epilogue.DRELU in {each & ~16 for each in library.epilogues}


class EmulatedDevice:
    ordinal = 0


def test_the_rows_of_the_check(emulated, library):
    setting = Setting(EmulatedDevice(), None, small=True)
    rows = list(product_kernels(setting))
    assert len(rows) == len(cases(small=True))
    assert all(row.good and row.value > 0 for row in rows)
    for case, row in zip(cases(small=True), rows, strict=True):
        # The stand-in's clock has algorithm 7 the fastest, and our kernels last.
        who = "kernels" if min(case.m, case.n) <= 8 else "library"
        assert row.note.startswith(f"{who}; error ")
        assert [name for name, _ in row.peers] == ["cuBLASLt first", "cuBLASLt best"]


def test_the_check_sees_what_is_wrong(emulated, library):
    library.wrong = 1e-3  # TF32, for example
    rows = list(product_kernels(Setting(EmulatedDevice(), None, small=True)))
    bad = [row.case for row in rows if not row.good]
    assert "64×64×64 f32 xy" in bad and "64×64×64 f64 xy" in bad
    assert "64×64×64 bf16 xy" not in bad
