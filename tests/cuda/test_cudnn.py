"""cuDNN: which convolutions it is given, as what, and who is chosen.

A stand-in computes what descriptors say. Where the library itself is installed,
descriptors are made by it, and its headers say whether our numbers are its numbers.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fnx
from fnx import lax
from fnx.compiler.pipeline import plan_program
from fnx.runtime.plan import Layout
from fnx_cuda import _cupy, blaslt_tuning, cudnn, instructions, libraries, transfer
from fnx_cuda.backend import BACKEND
from fnx_cuda.called import Library, LibraryError
from fnx_cuda.convolution import PRODUCTS
from fnx_cuda.cudnn import Convolution
from fnx_cuda.cudnn_problem import places, problem
from tests import cuda_emulator as emulator
from tests.cuda.compare import on_cpu
from tests.cuda.conftest import emulated
from tests.cuda.convolutions import Case, check, memories
from tests.cuda.dnn_fake import FMA_MATH, WORKSPACE, FakeDnn
from tests.cuda.library_fakes import later_on

pytestmark = pytest.mark.cuda
named = pytest.mark.parametrize

# Size, window, stride, dilation, base, low, high.
SAME = (7, 3, 1, 1, 1, 1, 1)
STRIDED = (11, 3, 2, 1, 1, 1, 1)
SPARSE = (9, 3, 1, 3, 1, 3, 3)
POINT = (5, 1, 1, 1, 1, 0, 0)
ROUGH = (10, 4, 3, 2, 1, 2, 2)
AXES = [(SAME,), (STRIDED,), (SAME, STRIDED), (SPARSE, POINT), (ROUGH, SAME)]
AXES += [(STRIDED, POINT, SPARSE)]

# x, filter and out: batch, features, output features and space.
FORWARD = {"NCHW": ("bfs", "ofs", "bos"), "NHWC": ("bsf", "osf", "bso")}
DATA = {"NCHW": ("bfs", "fos", "bos"), "NHWC": ("bsf", "fso", "bso")}
FILTER = {"NCHW": ("fbs", "fos", "obs"), "NHWC": ("fsb", "fso", "osb")}
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.float64]


@pytest.fixture
def library(monkeypatch):
    """The stand-in, without a device."""
    made = FakeDnn()
    cudnn.LIBRARY.use(made)
    monkeypatch.setattr(_cupy, "device_name", lambda device: f"device {device}")
    yield made
    cudnn.LIBRARY.use(None)


def spread(axis):
    """The axis of a gradient by the data: windows step by one, over spread elements."""
    size, window, stride, dilation, _, low, high = axis
    count = (size + low + high - (window - 1) * dilation - 1) // stride + 1
    far = (window - 1) * dilation
    first = far - low
    # So that there are as many windows as there were elements.
    rest = size - ((count - 1) * stride + 1 + first - far)
    return count, window, 1, dilation, stride, first, rest


def turned(axis):
    """The axis of a gradient by the filter: offsets are windows, and these offsets."""
    size, window, stride, dilation, _, low, _ = axis
    count = (size + 2 * low - (window - 1) * dilation - 1) // stride + 1
    high = (window - 1) * dilation + (count - 1) * stride + 1 - size - low
    return size, count, dilation, stride, 1, low, high


def run(step, rng, kind):
    """Checks a step by the library, with each algorithm that it offers."""
    found = problem(step)
    assert found is not None and found.kind == kind
    made = Convolution(found, 0)
    room = np.empty(WORKSPACE + 256, np.uint8)
    work = -(-room.ctypes.data // 256) * 256
    algorithms = made.algorithms(1 << 20)
    assert algorithms
    for algorithm in algorithms:
        before = memories(step, rng)
        out = before[0].copy()
        at = dict(zip((step.out, step.x, step.kernel), (out, *before[1:]), strict=True))
        given = [at[place].ctypes.data for place in places(kind, step)]
        made.run(algorithm, tuple(given), work, 0)
        check(step, before, out)
    return algorithms


@named("order", ["NCHW", "NHWC"])
@named("axes", AXES, ids=str)
@named("groups", [1, 3])
def test_forward(order, axes, groups, rng, library):
    case = Case(axes, 3, 5, 4, groups, order=FORWARD[order])
    run(case.step, rng, "forward")


@named("order", ["NCHW", "NHWC"])
@named("axes", AXES, ids=str)
def test_gradients_by_the_data(order, axes, rng, library):
    axes = tuple(map(spread, axes))
    run(Case(axes, 3, 5, 4, order=DATA[order]).step, rng, "data")


@named("order", ["NCHW", "NHWC"])
@named("axes", AXES, ids=str)
@named("groups", [1, 3])
def test_gradients_by_the_filter(order, axes, groups, rng, library):
    axes = tuple(map(turned, axes))
    case = Case(axes, 4, 5, 3, groups, order=FILTER[order])
    run(replace(case.step, convolved=by_groups(case.convolved)), rng, "filter")


def by_groups(given):
    """With groups that are parts of the features of x, which are the batch here."""
    groups, (_, feature, image, *space) = given.groups, given.x.strides
    if feature == 1:
        space = [groups * step for step in space]
    strides = given.batch * feature, feature, groups * image, *space
    return replace(given, x=Layout(0, strides))


def test_what_is_cut_off_is_padding_of_a_gradient(rng, library):
    axes = (7, 3, 1, 1, 1, -1, -1), SAME
    run(Case(axes, 3, 5, 4, order=DATA["NCHW"]).step, rng, "data")


@named("dtype", DTYPES)
def test_dtypes(dtype, rng, library):
    case = Case((SAME, STRIDED), 3, 5, 4, dtype=dtype, order=FORWARD["NCHW"])
    found = run(case.step, rng, "forward")
    arithmetics = {each.math for each in found}
    assert arithmetics == ({FMA_MATH} if dtype == np.float32 else {0, 1, 3})


def test_float32_is_rounded_only_where_that_is_asked_for(rng, library):
    step = Case((SAME, STRIDED), 3, 5, 4, order=FORWARD["NCHW"]).step
    found = problem(replace(step, tf32=True))
    algorithms = Convolution(found, 0).algorithms(1 << 20)
    assert {each.math for each in algorithms} == {0, 1, 3}
    with pytest.raises(AssertionError):
        run_rounded(replace(step, tf32=True), rng)


def run_rounded(step, rng):
    run(step, rng, "forward")


def test_only_algorithms_that_repeat_and_add_products(rng, library):
    for order, axes, kind in (
        (FORWARD, (SAME, STRIDED), "forward"),
        (DATA, (spread(SAME), spread(STRIDED)), "data"),
        (FILTER, (turned(SAME), turned(STRIDED)), "filter"),
    ):
        step = Case(axes, 3, 5, 4, order=order["NCHW"]).step
        found = {each.number for each in run(step, rng, kind)}
        assert found == ({0, 1} if kind == "forward" else {1})
        assert Convolution(problem(step), 0).algorithms(WORKSPACE - 1) == []


@named(
    "case",
    [
        Case((SAME,), dtype=np.int32, order=FORWARD["NCHW"]),
        Case((SAME,), dtype=np.complex64, order=FORWARD["NCHW"]),
        Case((SAME,), dtype=np.float16, out_dtype=np.float32, order=FORWARD["NCHW"]),
        # Padding that is not the same on both sides.
        Case(((7, 3, 1, 1, 1, 2, 0), SAME), order=FORWARD["NCHW"]),
        Case((SAME,) * 4, order=FORWARD["NCHW"]),
        # Both spread and with steps.
        Case(((7, 3, 2, 1, 2, 1, 1), SAME), order=FORWARD["NCHW"]),
    ],
)
def test_what_is_none_of_its_convolutions(case):
    assert problem(case.step) is None


def test_descriptors_go_with_the_convolution(library):
    made = Convolution(problem(Case((SAME,), order=FORWARD["NCHW"]).step), 0)
    assert len(library.descriptors) == 4
    del made
    assert not library.descriptors


def test_a_library_in_the_place_of_another_has_its_own_handles():
    """Also where it lies in memory where the other one was."""
    library, created = Library("cudnn"), []

    class Counting(FakeDnn):
        def cudnnCreate(self, handle):
            created.append(self)
            return super().cudnnCreate(handle)

    for count in range(1, 5):
        library.use(Counting())
        for _ in range(2):
            library.made("cudnnCreate", 0)
        assert len(created) == count
        created[:] = [None] * count
        library.use(None)


# ---------------------------------------------------------------- programs


@pytest.fixture(params=[0, 1], ids=["seed0", "seed1"])
def machine(request, monkeypatch):
    """An emulated machine on which the stand-in is the faster the later its number."""
    with emulated(request.param) as made:
        blaslt_tuning.forget()
        found = FakeDnn()

        def clock_on(stream):
            def clock(start):
                before = len(found.calls)
                start()
                made.finish_stream(made.stream(stream))
                ran = found.calls[before:]
                return found.times.get(ran[-1][1], 2.0) if ran else found.ours

            return clock

        found.later, found.times, found.ours = later_on(made), {0: 1.0}, 3.0
        monkeypatch.setattr(blaslt_tuning, "clock_on", clock_on)
        cudnn.LIBRARY.use(found)
        with fnx.default_device(fnx.devices("cpu")[0]):
            yield found
        cudnn.LIBRARY.use(None)
        blaslt_tuning.forget()


def layer(spec, strides, padding, dilation=None, groups=1):
    def function(x, kernel):
        return lax.conv_general_dilated(
            x,
            kernel,
            strides,
            padding,
            rhs_dilation=dilation,
            dimension_numbers=spec,
            feature_group_count=groups,
        )

    def both(x, kernel):
        def loss(x, kernel):
            return (function(x, kernel) ** 2).sum() / 64

        return function(x, kernel), *fnx.grad(loss, (0, 1))(x, kernel)

    return both


# Small convolutions are steps, too.
ALL_STEPS = replace(
    BACKEND.target, products=replace(PRODUCTS, convolves=lambda *_: True, copies=None)
)


def repeated(function, *arrays, count=4):
    """What a function gives at the last of some calls, which are a graph by then."""
    program = fnx.make_jaxpr(function)(*arrays)
    plan = plan_program(program, ALL_STEPS)
    compiled = BACKEND.compile(plan)
    run = BACKEND.load(compiled)
    buffers = [transfer.put(np.ascontiguousarray(x), 0) for x in arrays]
    for _ in range(count):
        outputs = run(buffers, 0)
    types = program.output_types
    return compiled, [
        transfer.get(outputs[output.index], type.shape, type.dtype)
        for output, type in zip(run.outputs, types, strict=True)
    ]


HWIO = "NHWC", "HWIO", "NHWC"
NCHW, NHWC = ("NCHW", "OIHW", "NCHW"), ("NHWC", "OHWI", "NHWC")
LAYERS = [
    (NCHW, (2, 12, 9, 10), (32, 12, 3, 3), (1, 1), [(1, 1), (1, 1)], None, 1),
    (NCHW, (2, 32, 9, 10), (48, 16, 3, 3), (2, 1), [(1, 1), (2, 2)], (1, 2), 2),
    (NHWC, (2, 9, 10, 24), (32, 3, 3, 24), (1, 2), [(1, 1), (0, 0)], None, 1),
    (HWIO, (2, 9, 10, 24), (3, 3, 24, 32), (2, 1), [(1, 1), (1, 1)], None, 1),
    (HWIO, (2, 9, 10, 24), (3, 3, 12, 32), (1, 1), [(1, 1), (1, 1)], (2, 1), 2),
    (("NWC", "WIO", "NWC"), (2, 30, 12), (5, 12, 16), (2,), [(2, 2)], None, 1),
    (("NCW", "OIW", "NCW"), (3, 24, 40), (32, 24, 5), (2,), [(2, 2)], None, 1),
    (
        ("NCDHW", "OIDHW", "NCDHW"),
        (2, 16, 5, 6, 7),
        (32, 16, 3, 2, 3),
        (1, 2, 1),
        [(1, 1), (0, 0), (1, 1)],
        None,
        1,
    ),
]


@named("spec, x, kernel, strides, padding, dilation, groups", LAYERS)
def test_layers_and_their_gradients(
    spec, x, kernel, strides, padding, dilation, groups, machine, rng
):
    function = layer(spec, strides, padding, dilation, groups)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in (x, kernel)]
    compiled, found = repeated(function, *arrays)
    for got, want in zip(found, on_cpu(function, *arrays), strict=True):
        scale = abs(want).max()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * scale)
    kinds = {
        problem(item.step).kind
        for item in compiled.body.instructions
        if isinstance(item, instructions.Convolve)
    }
    ran = {kind for kind, _, _ in machine.calls}
    names = {"forward": "Forward", "data": "BackwardData", "filter": "BackwardFilter"}
    assert ran == {names[kind] for kind in kinds}
    # With a stride of 1, the gradient by the data is a forward convolution as well.
    assert kinds >= {"forward", "filter"}
    assert "data" in kinds or set(strides) == {1}
    assert {math for _, _, math in machine.calls} == {FMA_MATH}


def one(rng, dtype=np.float32):
    function = layer(NCHW, (1, 1), [(1, 1), (1, 1)])
    shapes = (2, 12, 9, 10), (32, 12, 3, 3)
    return (lambda x, k: function(x, k)[0]), [
        rng.standard_normal(shape).astype(dtype) for shape in shapes
    ]


def matches(found, function, arrays, tolerance=1e-4):
    (want,) = on_cpu(function, *arrays)
    want = want.astype(np.float64)
    scale = abs(want).max()
    got = found[0].astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


def test_the_fastest_is_chosen_once(machine, rng):
    function, arrays = one(rng)
    matches(repeated(function, *arrays)[1], function, arrays)
    assert {each[1] for each in machine.calls[-3:]} == {0}
    timed = len(machine.calls)
    assert timed > 6
    matches(repeated(function, *arrays)[1], function, arrays)
    assert machine.calls[timed:] == [("Forward", 0, FMA_MATH)] * 4


def test_our_kernels_may_be_faster(machine, rng):
    machine.ours = 0.5
    function, arrays = one(rng)
    matches(repeated(function, *arrays)[1], function, arrays)
    timed = len(machine.calls)
    matches(repeated(function, *arrays)[1], function, arrays)
    assert timed and len(machine.calls) == timed


def test_what_the_library_does_not_have_is_ours(machine, rng, recwarn):
    machine.refused = {"Forward"}
    function, arrays = one(rng)
    matches(repeated(function, *arrays)[1], function, arrays)
    assert not machine.calls and not recwarn


def test_a_library_out_of_order_is_told(machine, rng):
    machine.fails = {"cudnnCreate": 1001}
    function, arrays = one(rng)
    with pytest.warns(RuntimeWarning, match="cuDNN fails.*1001"):
        matches(repeated(function, *arrays)[1], function, arrays)
    assert not machine.calls


def test_16_bits(machine, rng):
    function = layer(NHWC, (1, 1), [(1, 1), (1, 1)])
    shapes = (2, 9, 10, 24), (32, 3, 3, 24)
    arrays = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    _, found = repeated(function, *arrays)
    for got, want in zip(found, on_cpu(function, *arrays), strict=True):
        scale = abs(want.astype(np.float64)).max()
        np.testing.assert_allclose(
            got.astype(np.float64), want, rtol=0.02, atol=0.01 * scale
        )
    assert machine.calls


def test_without_the_library_convolutions_are_kernels(machine, rng):
    cudnn.LIBRARY.use(None)
    function, arrays = one(rng)
    matches(repeated(function, *arrays)[1], function, arrays)
    assert emulator.machine().findings == []


# ---------------------------------------------------------------- the library itself


@pytest.fixture
def real():
    """The library, if it is installed; it makes descriptors without a device."""
    found = libraries.load("cudnn")
    if found is None:
        pytest.skip("cuDNN is not installed")
    cudnn.LIBRARY.use(found)
    yield found
    cudnn.LIBRARY.use(None)


@named("order", ["NCHW", "NHWC"])
@named("axes", AXES, ids=str)
@named("groups", [1, 3])
def test_the_library_takes_our_descriptors(order, axes, groups, real):
    """And it says of the same sizes what we say."""
    kinds = (
        (FORWARD, axes, groups),
        (DATA, tuple(map(spread, axes)), 1),
        (FILTER, tuple(map(turned, axes)), 1),
    )
    for orders, turned_axes, of_groups in kinds:
        case = Case(turned_axes, 3, 5, 4, of_groups, order=orders[order])
        found = problem(case.step)
        made = Convolution(found, 0)
        count = len(found.y.sizes)
        sizes = (ctypes.c_int * count)()
        real.cudnnGetConvolutionNdForwardOutputDim(
            *[each.pointer for each in (made._convolution, made._x, made._filter)],
            count,
            sizes,
        )
        assert tuple(sizes) == found.y.sizes


def test_the_library_has_a_version(real):
    assert cudnn.version() >= 90000


def test_the_library_refuses_without_a_device(real):
    made = Convolution(problem(Case((SAME,), order=FORWARD["NCHW"]).step), 0)
    with pytest.raises(LibraryError):
        made.algorithms(1 << 20)


@pytest.fixture(scope="module")
def header():
    """The texts of the library's headers."""
    found = importlib.util.find_spec("nvidia")
    roots: Any = [] if found is None else found.submodule_search_locations or []
    files = [path for r in roots for path in Path(r).rglob("cudnn*_v9.h")]
    if not files:
        pytest.skip("the headers of cuDNN are not installed")
    return "\n".join([file.read_text() for file in files])


def test_our_numbers_are_the_headers(header):
    def value(name):
        return int(re.search(rf"\b{name}\s*=\s*(\d+)", header)[1])

    for member in cudnn.Data:
        assert value(f"CUDNN_DATA_{member.name}") == member
    for member in cudnn.Math:
        assert value(f"CUDNN_{member.name}") == member
    assert value("CUDNN_CONVOLUTION") == cudnn.CONVOLUTION
    assert value("CUDNN_CROSS_CORRELATION") == cudnn.CROSS_CORRELATION
    assert value("CUDNN_TENSOR_NCHW") == cudnn.FEATURES_FIRST
    assert value("CUDNN_TENSOR_NHWC") == cudnn.FEATURES_LAST
    assert value("CUDNN_DETERMINISTIC") == cudnn.DETERMINISTIC
    assert value("CUDNN_STATUS_NOT_SUPPORTED") == cudnn.NOT_SUPPORTED.start
    assert value("CUDNN_STATUS_INTERNAL_ERROR") == cudnn.NOT_SUPPORTED.stop
    algorithms = "CUDNN_CONVOLUTION_FWD_ALGO_"
    names = "IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM", "GEMM"
    found = [value(algorithms + name) for name in names]
    assert tuple(found) == cudnn._ALGORITHMS["forward"]
    assert value("CUDNN_CONVOLUTION_BWD_DATA_ALGO_1") == 1
    assert value("CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1") == 1
