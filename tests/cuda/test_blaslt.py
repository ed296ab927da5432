"""cuBLASLt: what is told to it, what comes back, and who is chosen.

A stand-in computes what the descriptors say; where the library itself is installed,
descriptors are made by it, and its header says whether our numbers are its numbers. No
test needs a device.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import re
import types
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from fnx import cache
from fnx.config import config
from fnx_cuda import _cupy, blaslt, blaslt_tuning, libraries
from fnx_cuda import blaslt_api as api
from fnx_cuda.blaslt import WORKSPACE, Matmul, calls, refusal
from fnx_cuda.blaslt_api import LIBRARY, TYPES, Epilogue
from fnx_cuda.blaslt_tuning import Addresses, choice, chosen, fastest
from tests.cuda.blaslt_fake import FakeBlasLt
from tests.cuda.products import Case, check, memories

named = pytest.mark.parametrize
TRANSPOSED = list(itertools.product([False, True], repeat=2))


@pytest.fixture
def library(monkeypatch):
    """The stand-in, on a device whose clock is the order of the algorithms."""
    made = FakeBlasLt()
    LIBRARY.use(made)
    blaslt_tuning.forget()
    monkeypatch.setattr(_cupy, "device_name", lambda device: f"device {device}")
    yield made
    blaslt_tuning.forget()
    LIBRARY.use(None)


@pytest.fixture
def workspace():
    """The address of as much memory as a product may ask for."""
    memory = np.empty(WORKSPACE + 256, np.uint8)
    yield -(-memory.ctypes.data // 256) * 256


def multiplied(made, before, workspace):
    """The memory of out after all calls of a step, by the first algorithm."""
    matmul = Matmul(made.form, 0)
    candidate = matmul.candidates()[0]
    out = before[0].copy()
    size = before[1].itemsize
    for o, x, y in made.offsets:
        addresses = (
            out.ctypes.data + o * out.itemsize,
            before[1].ctypes.data + x * size,
            before[2].ctypes.data + y * size,
        )
        matmul.run(candidate, *addresses, workspace, 0)
    return out


# ---------------------------------------------------------------- products


@named("dtype, out_dtype", TYPES)
@named("x_transposed, y_transposed", TRANSPOSED)
@named("batch, pad", [((), 0), ((), 3), ((5,), 2)])
def test_products(
    dtype, out_dtype, x_transposed, y_transposed, batch, pad, rng, library, workspace
):
    case = Case(9, 12, 17, dtype, x_transposed, y_transposed, batch, pad, offset=pad)
    case = replace(case, out_dtype=out_dtype)
    before = memories(case.step, rng)
    made = calls(case.step)
    assert len(made.offsets) == 1 and made.form.count == (5 if batch else 1)
    check(case.step, before, multiplied(made, before, workspace))


def test_float32_is_rounded_only_where_that_is_asked_for(rng, library, workspace):
    case = Case(9, 12, 17)
    before = memories(case.step, rng)
    full = multiplied(calls(case.step), before, workspace)
    step = replace(case, tf32=True).step
    rounded = multiplied(calls(step), before, workspace)
    difference = abs(full - rounded).max() / abs(full).max()
    assert 1e-5 < difference < 1e-2
    # They are timed apart.
    forms = [calls(s).form for s in (case.step, step)]
    assert len({blaslt_tuning.choice_key(Matmul(form, 0)) for form in forms}) == 2


def test_axes_that_do_not_merge_are_calls(rng, library, workspace):
    step = Case(9, 12, 17, batch=(2, 5, 3), pad=1).step
    made = calls(step)
    # The longest axis is the library's, which takes one stride.
    assert (made.form.count, len(made.offsets)) == (5, 6)
    before = memories(step, rng)
    check(step, before, multiplied(made, before, workspace))
    assert calls(Case(9, 12, 17, batch=(5, 5, 5), pad=1).step) is None


def test_one_operand_for_all_of_a_stack(rng, library, workspace):
    step = Case(9, 12, 17, batch=(4,), shared=True).step
    before = memories(step, rng)
    check(step, before, multiplied(calls(step), before, workspace))


def test_what_the_library_does_not_multiply():
    assert calls(Case(9, 9, 9, np.int32).step) is None
    assert calls(Case(9, 9, 9, np.bool_).step) is None
    assert calls(Case(9, 9, 9, np.int8, out_dtype=np.int32).step) is None
    assert calls(Case(0, 9, 9).step) is None
    assert calls(Case(9, 9, 0).step) is None


@named(
    "case, alignments",
    [
        (Case(16, 16, 16, np.float16), (16, 16)),
        (Case(16, 16, 16, np.float16, offset=1), (2, 2)),
        (Case(16, 16, 16, np.float16, offset=4), (8, 8)),
        (Case(3, 16, 5, np.float32, batch=(2,)), (16, 4)),
        (Case(3, 16, 5, np.float64, batch=(2,)), (16, 8)),
    ],
)
def test_alignments_of_all_matrices_of_a_stack(case, alignments):
    form = calls(case.step).form
    assert (form.out.alignment, form.x.alignment) == alignments


def test_no_algorithm_is_no_answer(library):
    library.alignment = 16
    with pytest.raises(api.NotSupported, match=r"status 15 \(not supported\)"):
        Matmul(calls(Case(9, 9, 9, offset=1).step).form, 0).candidates()


def test_descriptors_go_with_the_product(library):
    matmul = Matmul(calls(Case(9, 12, 17).step).form, 0)
    matmul.candidates()
    assert len(library.live) == 4  # what is computed, and three layouts
    del matmul
    assert not library.live


# ---------------------------------------------------------------- epilogues


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


@pytest.fixture
def layer(rng, library, workspace):
    """Runs an epilogue on a product of 9 by 12: what it gives, row by row."""
    case = Case(9, 12, 17)
    before = memories(case.step, rng)
    x, y = before[1].reshape(9, 17), before[2].reshape(17, 12)

    def run(epilogue, bias=None, aux=None, leading=0):
        form = calls(case.step, epilogue, leading).form
        matmul = Matmul(form, 0)
        out = np.full((9, 12), np.nan, np.float32)
        addresses = [a.ctypes.data for a in (out, x, y)]
        matmul.run(
            matmul.candidates()[0],
            *addresses,
            workspace,
            0,
            bias=0 if bias is None else bias.ctypes.data,
            aux=0 if aux is None else aux.ctypes.data,
        )
        return out

    run.product = x.astype(np.float64) @ y.astype(np.float64)
    return run


def test_a_bias_is_added_to_each_row(layer, rng):
    bias = rng.standard_normal(12).astype(np.float32)
    want = layer.product + bias
    close = np.testing.assert_allclose
    close(layer(Epilogue.BIAS, bias), want, rtol=1e-5, atol=1e-5)
    close(layer(Epilogue.RELU_BIAS, bias), np.maximum(want, 0), rtol=1e-5, atol=1e-5)
    close(layer(Epilogue.GELU_BIAS, bias), gelu(want), rtol=1e-5, atol=1e-5)
    close(layer(Epilogue.RELU), np.maximum(layer.product, 0), rtol=1e-5, atol=1e-5)
    close(layer(Epilogue.GELU), gelu(layer.product), rtol=1e-5, atol=1e-5)


def test_relu_and_its_derivative(layer, rng):
    bias = rng.standard_normal(12).astype(np.float32)
    mask = np.zeros((9, 128 // 8), np.uint8)
    out = layer(Epilogue.RELU_AUX_BIAS, bias, mask, 128)
    passed = np.unpackbits(mask, axis=1, bitorder="little")[:, :12].astype(bool)
    np.testing.assert_array_equal(passed, out > 0)
    gradient = np.empty(12, np.float32)
    down = layer(Epilogue.DRELU_BGRAD, gradient, mask, 128)
    want = np.where(passed, layer.product, 0)
    np.testing.assert_allclose(down, want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradient, want.sum(0), rtol=1e-4, atol=1e-4)


def test_gelu_and_its_derivative(layer, rng):
    bias = rng.standard_normal(12).astype(np.float32)
    before = np.empty((9, 16), np.float32)
    layer(Epilogue.GELU_AUX_BIAS, bias, before, 16)
    at = layer.product + bias
    np.testing.assert_allclose(before[:, :12], at, rtol=1e-5, atol=1e-5)
    step = 1e-6
    slope = (gelu(at + step) - gelu(at - step)) / (2 * step)
    down = layer(Epilogue.DGELU, None, before, 16)
    np.testing.assert_allclose(down, layer.product * slope, rtol=1e-4, atol=1e-4)


@named(
    "case, epilogue, leading, why",
    [
        (Case(9, 12, 17, np.complex64), Epilogue.BIAS, 0, "complex"),
        (Case(9, 12, 17, batch=(2,)), Epilogue.RELU, 0, "one product"),
        (Case(9, 12, 17), Epilogue.RELU_AUX, 64, "multiple of 128"),
        (Case(9, 129, 17), Epilogue.DRELU, 128, "multiple of 128"),
        (Case(9, 12, 17), Epilogue.DGELU, 12, "multiple of 8"),
        (Case(9, 12, 17), Epilogue.BIAS, 16, "nothing for derivatives"),
    ],
)
def test_combinations_that_are_none(case, epilogue, leading, why):
    assert calls(case.step, epilogue, leading) is None
    form = blaslt.Form(*(calls(case.step).form._values()[:-2]), epilogue, leading)
    assert why in refusal(form)


# ---------------------------------------------------------------- choices


class Clocked:
    """A device on which an algorithm takes as long as `times` says of its number."""

    def __init__(self, library, times, ours):
        self.library, self.times, self.ours = library, times, ours
        self.asked = 0

    def __call__(self, stream):
        def clock(start):
            self.asked += 1
            self.library.ran.clear()
            start()
            ran = self.library.ran
            return self.times[ran[-1]] if ran else self.ours

        return clock


@pytest.fixture
def tuned(library, workspace, rng, monkeypatch):
    """Runs a step by what is chosen; who ran: a number, or "ours"."""

    def run(times, ours=9.0, case=None, made=None):
        case = case or Case(40, 48, 33)
        clock = Clocked(library, times, ours)
        monkeypatch.setattr(blaslt_tuning, "clock_on", clock)
        made = made or chosen(case.step, 0)
        before = memories(case.step, rng)
        out = before[0].copy()
        own = []
        addresses = [a.ctypes.data for a in (out, *before[1:])]
        at = Addresses(*addresses, workspace, 0)
        made.run(at, lambda: own.append(1))
        del own[:]
        library.ran.clear()
        made.run(at, lambda: own.append(1))
        if not own:
            check(case.step, before, out)
        run.asked = clock.asked
        return "ours" if own else library.ran[-1]

    return run


def test_the_fastest_is_chosen(tuned):
    assert tuned({3: 2.0, 0: 1.5, 7: 1.0}) == 7


def test_what_the_library_prefers_is_left_for_a_gain_only(tuned):
    assert tuned({3: 1.0, 0: 0.99, 7: 0.98}, ours=0.98) == 3


def test_our_kernels_may_be_faster(tuned):
    assert tuned({3: 2.0, 0: 1.5, 7: 1.0}, ours=0.5) == "ours"


def test_algorithms_that_do_not_run_are_passed_over(tuned, library):
    library.broken = {7, 3}
    assert tuned({3: 2.0, 0: 1.5, 7: 1.0}) == 0
    blaslt_tuning.forget()
    library.broken = {0, 3, 7}
    assert tuned({}) == "ours"


def test_a_product_that_the_library_does_not_know_is_ours(tuned, library):
    library.algorithms = ()
    assert tuned({}) == "ours"
    assert tuned.asked == 0


def test_a_choice_is_made_once(tuned):
    assert tuned({3: 2.0, 0: 1.5, 7: 1.0}) == 7
    assert tuned({3: 0.1, 0: 0.1, 7: 1.0}) == 7
    assert tuned.asked == 0
    # Another layout is another product.
    other = Case(40, 48, 33, y_transposed=True)
    assert tuned({3: 0.1, 0: 1.0, 7: 1.0}, case=other) == 3


def test_a_choice_is_kept_on_disk(tuned, library, tmp_path, monkeypatch):
    monkeypatch.setenv("FNX_CACHE_DIR", str(tmp_path))
    with config.override(disk_cache=True):
        assert tuned({3: 2.0, 0: 1.5, 7: 1.0}) == 7
        other = Case(40, 48, 33, x_transposed=True)
        assert tuned({3: 2.0, 0: 1.5, 7: 1.0}, ours=0.1, case=other) == "ours"
        assert cache.info().entries == 2
        blaslt_tuning.forget()
        assert tuned({3: 0.1, 0: 0.1, 7: 1.0}) == 7
        assert tuned({3: 0.1, 0: 0.1, 7: 1.0}, case=other) == "ours"
        assert tuned.asked == 0
        # Of another version nothing is known.
        blaslt_tuning.forget()
        monkeypatch.setattr(library, "cublasLtGetVersion", lambda: 130100)
        assert tuned({3: 0.1, 0: 1.0, 7: 1.0}) == 3


def test_a_kept_algorithm_that_no_longer_runs(tuned, library):
    assert tuned({3: 2.0, 0: 1.5, 7: 1.0}) == 7
    library.broken = {7}
    assert tuned({}) == "ours"


def test_a_library_out_of_order_is_told(tuned, library):
    library.cublasLtCreate = lambda made: 1
    with pytest.warns(RuntimeWarning, match=r"status 1 \(not initialized\)"):
        assert tuned({}) == "ours"
    assert tuned.asked == 0


def test_nvidias_library_is_not_for_an_emulated_device(library, monkeypatch):
    emulated = types.SimpleNamespace(EMULATES=True)
    monkeypatch.setattr(_cupy, "cupy", lambda: emulated)
    assert choice(Case(64, 64, 64).step) == "library"
    monkeypatch.setattr(LIBRARY, "_stands_in", False)
    assert choice(Case(64, 64, 64).step) == "kernels"


def test_times_are_taken_in_turns():
    order = []
    starts = [lambda n=n: order.append(n) for n in range(3)]

    def clock(start):
        start()
        # A disturbed measurement counts for nothing: the least one counts.
        disturbed = len(order) % 7 == 0
        return 10.0 if disturbed else [2.0, 1.0, 3.0][order[-1]]

    assert fastest(starts, clock) == 1
    assert order[6:] == [0, 1, 2] * (blaslt_tuning.ROUNDS - 1)


@named(
    "case, who",
    [
        (Case(64, 64, 64), "library"),
        (Case(64, 64, 64, ml_dtypes.bfloat16), "library"),
        (Case(64, 64, 64, np.complex128, batch=(3,)), "library"),
        (Case(4, 4, 4, batch=(100,)), "kernels"),
        (Case(4096, 4, 4096), "kernels"),
        (Case(64, 64, 64, np.int32), "kernels"),
        (Case(64, 64, 64, batch=(5, 5, 5), pad=1), "kernels"),
    ],
)
def test_who_computes(case, who, library):
    assert choice(case.step) == who
    assert (chosen(case.step, 0) is not None) == (who == "library")


def test_without_the_library_products_are_ours(monkeypatch):
    asked = []

    def load(name, newest=None):
        asked.append((name, newest))

    monkeypatch.setattr(libraries, "load", load)
    monkeypatch.setattr(_cupy, "cupy", types.SimpleNamespace)
    monkeypatch.setattr(_cupy, "driver_version", lambda: 12090)
    LIBRARY.use(None)
    try:
        assert choice(Case(64, 64, 64).step) == "kernels"
        assert chosen(Case(64, 64, 64).step, 0) is None
        # Not of a later CUDA than the driver's, and looked for once.
        assert asked == [("cublasLt", 12)]
    finally:
        LIBRARY.use(None)


# ---------------------------------------------------------------- the library itself


@pytest.fixture
def real():
    """The library, if it is installed; it makes descriptors without a device."""
    found = libraries.load("cublasLt")
    if found is None:
        pytest.skip("cuBLASLt is not installed")
    api.declare(found)
    LIBRARY.use(found)
    yield found
    LIBRARY.use(None)


def attribute(found, described, number, type_):
    value, size = type_(), ctypes.c_size_t()
    get = getattr(found, f"cublasLt{described.kind}GetAttribute")
    pointer = ctypes.c_void_p(described.pointer)
    nbytes = ctypes.c_size_t(ctypes.sizeof(value))
    assert not get(pointer, number, ctypes.byref(value), nbytes, ctypes.byref(size))
    assert size.value == ctypes.sizeof(value)
    return value.value


def test_the_library_takes_our_descriptors(real):
    case = Case(9, 12, 17, np.float16, True, False, batch=(5,), pad=4)
    form = calls(case.step).form
    matmul = Matmul(form, 0)
    u64, i32 = ctypes.c_uint64, ctypes.c_int32
    described = matmul._description
    assert attribute(real, described, 0, i32) == 68
    assert attribute(real, described, 1, i32) == 0
    assert attribute(real, described, api.Desc.TRANSA, i32) == 0
    assert attribute(real, described, api.Desc.TRANSB, i32) == 1
    # y is 17 by 12, row by row: 12 by 17, column by column.
    a = [attribute(real, matmul._a, number, u64) for number in (2, 3, 4)]
    assert a == [12, 17, 16]
    assert attribute(real, matmul._a, api.Layout.BATCH_COUNT, i32) == 5
    stride = attribute(real, matmul._a, api.Layout.STRIDED_BATCH_OFFSET, u64)
    assert stride == form.y.stride
    assert attribute(real, matmul._b, 0, ctypes.c_uint32) == 2
    wanted = api.preference(WORKSPACE, (16, 8, 4))
    pref = api.Pref
    assert attribute(real, wanted, pref.MAX_WORKSPACE_BYTES, u64) == WORKSPACE
    assert attribute(real, wanted, pref.MIN_ALIGNMENT_B_BYTES, ctypes.c_uint32) == 8
    assert attribute(real, wanted, pref.REDUCTION_SCHEME_MASK, ctypes.c_uint32) == 2


def test_the_library_takes_our_epilogues(real):
    step = Case(9, 128, 17).step
    for epilogue in Epilogue:
        leading = 128 if epilogue.has_aux else 0
        matmul = Matmul(calls(step, epilogue, leading).form, 0)
        number = attribute(
            real, matmul._description, api.Desc.EPILOGUE, ctypes.c_uint32
        )
        assert number == epilogue


def test_the_library_has_a_version(real):
    assert api.version() > 110000


@pytest.fixture(scope="module")
def header():
    """The texts of the library's headers."""
    found = importlib.util.find_spec("nvidia")
    roots = [] if found is None else found.submodule_search_locations or []
    folders = [path.parent for r in roots for path in Path(r).rglob("cublasLt.h")]
    if not folders:
        pytest.skip("the headers of cuBLAS are not installed")
    texts = [(folders[0] / n).read_text() for n in ("cublasLt.h", "cublas_api.h")]
    return "\n".join(texts)


@named(
    "enum, prefix",
    [
        (api.Desc, "CUBLASLT_MATMUL_DESC_"),
        (api.Layout, "CUBLASLT_MATRIX_LAYOUT_"),
        (api.Pref, "CUBLASLT_MATMUL_PREF_"),
        (api.Epilogue, "CUBLASLT_EPILOGUE_"),
        (api.Compute, "CUBLAS_"),
    ],
)
def test_our_numbers_are_the_headers(enum, prefix, header):
    for member in enum:
        assert value_of(header, prefix + member.name) == member.value


def test_other_numbers_of_the_headers(header):
    assert value_of(header, "CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE") == 2
    assert value_of(header, "CUBLAS_OP_N") == 0
    assert value_of(header, "CUBLAS_OP_T") == 1
    for number in api.STATUS:
        assert re.search(rf"CUBLAS_STATUS_\w+ = {number}\b", header)
    algorithm = re.search(r"uint64_t data\[(\d+)\];\s*\} cublasLtMatmulAlgo_t", header)
    assert ctypes.sizeof(api.Algorithm) == 8 * int(algorithm[1])
    assert ctypes.sizeof(api.Found) == ctypes.sizeof(api.Algorithm) + 8 + 4 + 4 + 16


def value_of(header, name):
    """The value of an enumerator: numbers and other ones, joined by `|`."""
    text = re.search(rf"\b{name} = ([^,\n]+)", header)[1].strip(" ()")
    parts = [part.strip() for part in text.split("|")]
    values = [int(p, 0) if p[0].isdigit() else value_of(header, p) for p in parts]
    return int(np.bitwise_or.reduce(values))
