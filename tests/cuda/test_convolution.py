"""Convolutions by kernels of our own, on the emulator: values at awkward shapes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import dtypes, lax
from fnx.compiler.pipeline import plan_program
from fnx.runtime.plan import ConvolutionStep, KernelStep, MatmulStep, all_steps
from fnx_cuda import _cupy
from fnx_cuda.backend import BACKEND
from fnx_cuda.convolution import (
    convolution_launches,
    convolution_work,
    convolves,
)
from fnx_cuda.convolution_problem import count_phases, phases, windowed
from fnx_cuda.convolution_source import divisor
from fnx_cuda.products_numbers import numbers
from fnx_cuda.products_tensor import TENSOR_TILES, tensor_launches
from fnx_cuda.products_tile import TILES, Cut, tile_launches, work_bytes
from tests import cuda_emulator as emulator
from tests.cuda.convolutions import ORDERS, Case, check, memories
from tests.cuda.products import launched

pytestmark = pytest.mark.cuda
named = pytest.mark.parametrize

# Size, window, stride, dilation, base, low, high.
SAME = (7, 3, 1, 1, 1, 1, 1)
STRIDED = (11, 3, 2, 1, 1, 2, 0)
SPARSE = (9, 3, 1, 3, 1, 2, 4)
SPREAD = (5, 3, 1, 1, 2, 1, 2)
CUT = (9, 2, 1, 1, 1, -2, -1)
NUMBERS = [dtype for dtype in dtypes.SUPPORTED if not dtypes.is_bool(dtype)]
ALL = (5, 4, 3, 2, 4, 3, 5)


@pytest.fixture
def machine():
    """An emulated machine; what a GPU would not report, it finds."""
    reason = emulator.reason_missing()
    if reason:
        pytest.skip(reason)
    before = _cupy._module
    _cupy.use(emulator.cupy_module())
    made = emulator.reset(emulator.Settings(devices=1))
    yield made
    _cupy.use(before)
    assert not made.findings


def verify(case, rng, launches=None, work=None):
    """Runs a case by its own launches, or by those given; the functions that ran."""
    step = case.step
    if launches is None:
        launches, work = convolution_launches(step), convolution_work(step)
    before = memories(step, rng)
    check(step, before, launched(launches, before, work or 0))
    return [launch.function for launch in launches]


# ---------------------------------------------------------------- windows


@named("order", ORDERS)
@named("axis", [SAME, STRIDED, SPARSE, SPREAD, CUT, ALL], ids=str)
def test_windows(order, axis, rng, machine):
    for axes in (axis,), (axis, STRIDED), (SAME, axis):
        verify(Case(axes, order=ORDERS[order]), rng)
        # Nothing is aligned to more than an element.
        odd = Case(axes, outs=5, features=3, batch=3, order=ORDERS[order])
        verify(odd, rng)


@named("x, kernel, out", [*itertools.product(ORDERS, repeat=3)])
def test_orders_of_axes(x, kernel, out, rng, machine):
    order = ORDERS[x][0], ORDERS[kernel][1], ORDERS[out][2]
    verify(Case((SAME, STRIDED), order=order), rng)


@named("order", [("fsb", "fso", "sbo"), ("fbs", "fos", "obs")], ids=["last", "first"])
def test_gradients_of_kernels(order, rng, machine):
    # Three by three results, each a sum over the whole of the plane and the batch.
    axes = (7, 7, 1, 1, 1, 1, 1), (9, 4, 1, 2, 1, 1, 0)
    verify(Case(axes, batch=24, features=3, outs=40, order=order), rng)
    verify(Case(axes, batch=5, features=2, outs=6, order=order), rng)


@named("order", ORDERS)
def test_groups(order, rng, machine):
    case = Case((SAME, STRIDED), outs=8, features=6, groups=3, order=ORDERS[order])
    verify(case, rng)
    verify(replace(case, axes=(SPREAD, SPREAD)), rng)


@named("rank", [1, 3])
def test_other_ranks(rank, rng, machine):
    axes = (STRIDED, SAME, (4, 2, 1, 1, 3, 1, 1))[:rank]
    verify(Case(axes, batch=2, outs=20, features=4), rng)
    verify(Case(axes, outs=20, features=4, order=ORDERS["NCHW"]), rng)


# ---------------------------------------------------------------- dtypes and tiles


@named("dtype", NUMBERS, ids=dtypes.short)
@named("order", ORDERS)
def test_every_dtype(dtype, order, rng, machine):
    case = Case((SAME, STRIDED), dtype=dtype, outs=24, order=ORDERS[order])
    verify(case, rng)
    verify(replace(case, outs=7, features=5), rng)


@named(
    "dtype, out_dtype",
    [
        (dtypes.float16, dtypes.float32),
        (dtypes.bfloat16, dtypes.float32),
        (dtypes.int8, dtypes.int32),
    ],
)
def test_results_as_wide_as_sums(dtype, out_dtype, rng, machine):
    verify(Case((SAME, SPREAD), dtype=dtype, out_dtype=out_dtype), rng)


@named("order", ORDERS)
def test_float32_rounded_for_tensor_cores(order, rng, machine):
    """As rounded operands give; x and the kernel of small integers are exact."""
    case = Case((SAME, STRIDED), 2, 40, 24, order=ORDERS[order])
    step = replace(case.step, tf32=True)
    before = memories(step, rng)
    for memory in before[1:]:
        memory[...] = rng.integers(-1023, 1024, memory.shape)
    launches, work = convolution_launches(step), convolution_work(step)
    assert launches[0].function == "fnx_tensor_rounded"
    check(step, before, launched(launches, before, work))
    before = memories(step, rng)
    out = launched(launches, before, work)
    with pytest.raises(AssertionError):
        check(step, before, out)


@named("order", ORDERS)
@named("dtype", [dtypes.float32, *TENSOR_TILES, dtypes.complex64], ids=dtypes.short)
def test_every_tile_and_splits(dtype, order, rng, machine):
    tiles = TENSOR_TILES.get(dtype) or TILES[numbers(dtype, dtype).sum_size]
    make = tensor_launches if dtype in TENSOR_TILES else tile_launches
    case = Case((SAME, STRIDED), batch=4, dtype=dtype, order=ORDERS[order])
    (given,) = windowed(case.step)
    for tile, splits in itertools.product(tiles, (1, 3)):
        cut = Cut(tile, splits, -(-given.k // splits // tile.depth) * tile.depth)
        work = work_bytes(given, splits) if splits > 1 else 0
        verify(case, rng, make(given, cut), work)


def test_long_indices_compute_the_same(rng, machine):
    case = Case((SAME, STRIDED))
    (launch,) = convolution_launches(case.step)
    text = launch.text.replace("typedef int Index", "typedef long long Index")
    assert text != launch.text
    verify(case, rng, [replace(launch, text=text)])


def test_the_same_bits_in_every_run(rng, machine):
    axes = (64, 64, 1, 1, 1, 1, 1), (64, 64, 1, 1, 1, 1, 1)
    case = Case(axes, batch=8, features=2, outs=8, order=("fsb", "fso", "sbo"))
    launches, work = convolution_launches(case.step), convolution_work(case.step)
    assert [each.function for each in launches] == ["fnx_tiles", "fnx_split_sum"]
    before = memories(case.step, rng)
    first = launched(launches, before, work)
    check(case.step, before, first)
    emulator.reset(emulator.Settings(devices=1, seed=1))
    again = launched(launches, before, work)
    np.testing.assert_array_equal(first.view(np.uint32), again.view(np.uint32))


def test_what_is_not_finite_stays_in_its_windows(rng, machine):
    case = Case(((9, 3, 1, 1, 1, 1, 1),), batch=1)
    before = memories(case.step, rng)
    before[1].reshape(9, 24)[4, 23] = np.inf
    launches = convolution_launches(case.step)
    out = launched(launches, before, convolution_work(case.step)).reshape(9, 40)
    assert not np.isfinite(out[3:6]).any()
    assert np.isfinite(np.delete(out, [3, 4, 5], axis=0)).all()


# ---------------------------------------------------------------- phases and choices


def test_phases_multiply_no_zeros():
    axes = (28, 3, 1, 1, 2, 1, 2), (28, 3, 1, 1, 2, 1, 2)
    given = Case(axes).convolved
    parts = phases(given)
    assert len(parts) == count_phases(given) == 4
    assert sorted(part.summed // 24 for part in parts) == [1, 2, 2, 4]
    assert sum(part.places for part in parts) == given.places
    assert all(axis.base == 1 for part in parts for axis in part.axes)


def test_a_phase_that_meets_nothing_is_zero(rng, machine):
    case = Case(((5, 1, 1, 1, 3, 0, 0), SAME))
    assert [part.summed for part in phases(case.convolved)] == [24 * 3, 0, 0]
    verify(case, rng)


def test_divisors_divide_every_number():
    edges = [2**31 - 1, 2**31 - 2, 2**30, 0, 1]
    for by in [*range(1, 300), 3136, 65535, 65536, 65537, 2**30 + 1, 2**31 - 1]:
        size, factor, shift = divisor(by)
        assert -(2**31) <= factor < 2**31 and size == by
        multiples = [k * by + d for k in (1, 2, 3, 2**31 // by) for d in (-1, 0, 1)]
        for number in [n for n in edges + multiples if 0 <= n < 2**31]:
            quotient = (number * (factor % 2**32) >> 32) >> shift
            assert by == 1 or quotient == number // by, (number, by)


def resnet(size, features, outs, dtype=dtypes.float32, window=3, batch=32):
    pad = window // 2
    axes = ((size, window, 1, 1, 1, pad, pad),) * 2
    return Case(axes, batch=batch, outs=outs, features=features, dtype=dtype)


@named(
    "case, taken",
    [
        (resnet(56, 64, 64), True),
        (resnet(7, 512, 512), True),
        (resnet(224, 3, 64, window=7), True),
        (resnet(56, 64, 64, dtypes.bfloat16), True),
        (resnet(32, 3, 16, batch=8), True),
        (resnet(56, 64, 64, dtypes.float64), True),
        # Few output features in a group.
        (replace(resnet(56, 1, 1), groups=64), False),
        (replace(resnet(56, 4, 4), groups=32), False),
        (Case((), batch=4096, outs=64, features=64), False),
        # Small ones fuse, and those without elements are nothing.
        (resnet(5, 4, 4, batch=1), False),
        (resnet(56, 64, 64, batch=0), False),
        (replace(resnet(56, 64, 64), out_dtype=dtypes.float64), False),
    ],
)
def test_which_convolutions_pay(case, taken):
    step = case.step
    assert convolves(step.dtype, step.out_dtype, step.convolved) == taken


def test_many_shapes_share_a_text():
    cases = [resnet(56, 64, 128), resnet(28, 128, 256), resnet(30, 96, 128, window=5)]
    texts = {convolution_launches(case.step)[0].text for case in cases}
    assert len(texts) == 1


@named("order", ORDERS)
def test_operands_with_features_last_are_read_in_whole_vectors(order):
    case = replace(resnet(56, 64, 64, dtypes.bfloat16), order=ORDERS[order])
    (launch,) = convolution_launches(case.step)
    # With features first, windows are columns, and their elements are read alone.
    if order == "NHWC":
        widths = "X_WIDTH = 8", "Y_WIDTH = 8"
    else:
        widths = "X_WIDTH = 8", "Y_WIDTH = 1"
    assert all(f"constexpr int {width};" in launch.text for width in widths)


# ---------------------------------------------------------------- in programs


def steps(function, *arrays):
    """What a program's plan for a GPU does."""
    program = fnx.make_jaxpr(function)(*arrays)
    return list(all_steps(plan_program(program, BACKEND.target)))


def kinds(function, *arrays):
    return [type(step) for step in steps(function, *arrays)]


def layer(dims, **params):
    def run(x, w):
        given = {"window_strides": (1, 1), "padding": "SAME", **params}
        return lax.conv_general_dilated(x, w, dimension_numbers=dims, **given)

    return run


def tall(dims, batch, features, outs, size, groups=1):
    """Arrays of that many dimensions, without values that cost anything."""
    shapes = {"N": batch, "C": features, "H": size, "W": size}
    kernel = {"O": outs, "I": features // groups, "H": 3, "W": 3}
    x = np.broadcast_to(np.float32(1), [shapes[c] for c in dims[0]])
    return x, np.broadcast_to(np.float32(1), [kernel[c] for c in dims[1]])


DIMS = [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")]


@named("dims", DIMS, ids=["NHWC", "NCHW"])
@named("stride", [1, 2])
def test_a_convolution_and_its_gradients_are_steps(dims, stride):
    run = layer(dims, window_strides=(stride, stride))
    arrays = tall(dims, 32, 64, 64, 28)

    def loss(x, w):
        return fnp.sum(run(x, w) ** 2)

    assert kinds(run, *arrays) == [ConvolutionStep]
    found = kinds(fnx.grad(loss, (0, 1)), *arrays)
    # No patches, no padding, no squares: the kernel is turned, the cotangent made.
    assert found.count(ConvolutionStep) == 3 and MatmulStep not in found
    assert found.count(KernelStep) <= 2 and len(found) <= 5


def test_single_elements_are_matrix_products():
    x, _ = tall(DIMS[0], 32, 64, 64, 28)
    w = np.ones((1, 1, 64, 96), np.float32)
    assert kinds(layer(DIMS[0]), x, w) == [MatmulStep]
    # With strides a product would need a copy of them.
    strided = layer(DIMS[0], window_strides=(2, 2))
    assert kinds(strided, x, w) == [ConvolutionStep]


@named("groups", [1, 2])
def test_16_bit_operands_with_features_first_are_copied(groups):
    run = layer(DIMS[1], feature_group_count=groups)
    arrays = [
        fnx.ShapeDtypeStruct(x.shape, dtypes.bfloat16)
        for x in tall(DIMS[1], 32, 64, 64, 28, groups)
    ]
    *copied, step = steps(run, *arrays)
    assert [type(each) for each in copied] == [KernelStep, KernelStep]
    convolved = step.convolved
    assert convolved.x.strides[2] == convolved.kernel.strides[2] == 1
    assert convolved.out.strides[-1] == 1

    def loss(w, x):
        return fnp.sum(run(x, w).astype(fnp.float32) ** 2)

    found = steps(fnx.grad(loss), *arrays[::-1])
    # Windows of the kernel's gradient are whole planes: x has its features, which are
    # the batch there, last.
    last = [step for step in found if type(step) is ConvolutionStep][-1]
    assert last.convolved.x.strides[1] == 1 and last.convolved.axes[0].window == 28
    # Three features are not worth a copy, and wider numbers need none.
    few = [
        fnx.ShapeDtypeStruct(s, dtypes.bfloat16)
        for s in ((32, 3, 28, 28), (64, 3, 3, 3))
    ]
    assert kinds(layer(DIMS[1]), *few) == [ConvolutionStep]
    wide = tall(DIMS[1], 32, 64, 64, 28, groups)
    assert kinds(run, *wide) == [ConvolutionStep]


def test_depthwise_convolutions_fuse():
    x, w = tall(DIMS[0], 32, 64, 64, 28, groups=64)
    run = layer(DIMS[0], feature_group_count=64)
    assert kinds(lambda x, w: fnx.nn.relu(run(x, w)), x, w) == [KernelStep]


@named("precision, rounded", [(None, False), ("highest", False), ("default", True)])
def test_only_who_asks_gets_rounded_operands(precision, rounded):
    (step,) = steps(layer(DIMS[0], precision=precision), *tall(DIMS[0], 32, 64, 64, 28))
    assert step.tf32 == rounded


def test_convolutions_in_loops_are_steps():
    run = layer(DIMS[0])

    def rounds(x, w):
        return fnx.lax.fori_loop(0, 3, lambda _, x: run(x, w), x)

    found = kinds(rounds, *tall(DIMS[0], 32, 64, 64, 28))
    assert found.count(ConvolutionStep) == 1 and MatmulStep not in found


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def close(function, gpu, *arrays, rtol=2e-5):
    run = fnx.jit(function)
    want = fnx.tree.leaves(run(*arrays))
    got = fnx.tree.leaves(run(*[fnx.device_put(x, gpu) for x in arrays]))
    for a, b in zip(got, want, strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert a.shape == b.shape
        assert np.abs(a - b).max() <= rtol * np.abs(b).max()


def test_training_steps_of_layers(gpu, rng):
    first, second = layer(DIMS[0], window_strides=(2, 2)), layer(DIMS[0])

    def loss(v, w, x):
        y = fnx.nn.relu(first(x, v))
        return fnp.mean(second(y, w) ** 2)

    arrays = (
        normal(rng, 3, 3, 32, 48),
        normal(rng, 3, 3, 48, 40),
        normal(rng, 16, 17, 15, 32),
    )
    assert ConvolutionStep in kinds(fnx.grad(loss, (0, 1, 2)), *arrays)
    close(fnx.grad(loss, (0, 1, 2)), gpu, *arrays)


def test_derivatives_and_batches(gpu, rng):
    run = layer(DIMS[1])
    x, w = normal(rng, 8, 16, 20, 20), normal(rng, 24, 16, 3, 3)
    assert kinds(run, x, w) == [ConvolutionStep]
    close(lambda x, w: fnx.jvp(run, (x, w), (w.mean() * x, w)), gpu, x, w)
    both = fnx.vmap(run), normal(rng, 3, 4, 16, 20, 20), normal(rng, 3, 24, 16, 3, 3)
    assert ConvolutionStep in kinds(*both)
    close(both[0], gpu, *both[1:])
    second = fnx.grad(lambda x, w: fnp.sum(fnp.sin(run(x, w)) ** 2))
    close(fnx.grad(lambda x, w: fnp.sum(second(x, w) ** 2)), gpu, x, w, rtol=1e-4)


@named(
    "dims, dtype", [(DIMS[0], np.float16), (DIMS[0], "bfloat16"), (DIMS[1], "bfloat16")]
)
def test_16_bit_layers(dims, dtype, gpu, rng):
    run = layer(dims)
    x, w = normal(rng, 8, 20, 20, 16), normal(rng, 3, 3, 16, 24)
    if dims == DIMS[1]:
        x, w = x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)

    def loss(x, w):
        x, w = x.astype(dtype), w.astype(dtype)
        return fnp.sum(run(x, w).astype(fnp.float32) ** 2)

    close(fnx.grad(loss, (0, 1)), gpu, x, w, rtol=0.02)
    found = [s for s in steps(fnx.grad(loss), x, w) if type(s) is ConvolutionStep]
    assert found and all(step.dtype.itemsize == 2 for step in found)
