"""Fourier transforms in machine code: values, bits, and what they leave alone."""

from __future__ import annotations

import ctypes
import math
from functools import cache

import mpmath
import numpy as np
import pytest
import scipy.fft

import fnx
import fnx.lax
import fnx.numpy as fnp
from fnx.core.types import ArrayType
from fnx.cpu import fft, jit
from fnx.cpu.fft_arithmetic import Lanes
from fnx.cpu.fft_roots import roots
from fnx.cpu.fft_text import EXPORTS, fft_text
from fnx.ops.fft import fft as primitive
from fnx.runtime.plan import HostStep, Place

# The vectors of all processors: LLVM splits wide ones.
WIDTHS = [64, 32, 16]
REALS = {"float32": "complex64", "float64": "complex128"}
KINDS = ["FFT", "IFFT", "RFFT", "IRFFT"]
LENGTHS = [1, 2, 3, 4, 5, 7, 8, 9, 14, 16, 21, 30, 32, 64, 98, 100, 243, 256, 360, 500]


def signal(rng, shape, dtype):
    """Random numbers; complex ones have two parts."""
    x = rng.standard_normal((*shape, 2)).view("complex128")[..., 0]
    return (x if np.dtype(dtype).kind == "c" else x.real).astype(dtype)


def given(kind, dtype, shape, axes):
    """What a transform of these sizes takes: its shape and dtype."""
    if kind == "RFFT":
        return shape, dtype
    if kind == "IRFFT":
        half = list(shape)
        half[axes[-1]] = shape[axes[-1]] // 2 + 1
        return tuple(half), REALS[dtype]
    return shape, REALS[dtype]


def exact(x, kind, lengths, axes):
    """The sums by their definition, in the widest type there is."""
    wide = x.astype(np.clongdouble)
    order = list(zip(axes, lengths, strict=True))
    for number, (axis, n) in enumerate(order):
        last = number == len(order) - 1
        if kind == "IRFFT" and last:
            wide = _filled(wide, n, axis)
        sign = 1 if kind in ("FFT", "RFFT") else -1
        wide = np.moveaxis(np.moveaxis(wide, axis, -1) @ _matrix(n, sign), -1, axis)
        if sign < 0:
            wide = wide / n
    if kind == "RFFT":
        return np.take(wide, range(lengths[-1] // 2 + 1), axes[-1])
    return wide.real if kind == "IRFFT" else wide


def _filled(x, n, axis):
    """All coefficients of reals, of which the first half is given."""
    x = np.moveaxis(x, axis, -1).copy()
    alone = [0, n // 2] if n % 2 == 0 else [0]
    x[..., alone] = x[..., alone].real
    rest = np.conj(x[..., 1 : (n + 1) // 2][..., ::-1])
    return np.moveaxis(np.concatenate([x, rest], -1), -1, axis)


@cache
def _matrix(n, sign):
    places = np.outer(np.arange(n), np.arange(n)) % n
    angles = 2 * np.arctan2(np.longdouble(0), np.longdouble(-1)) * places / n
    return np.cos(angles) - sign * 1j * np.sin(angles)


def close(found, wanted, dtype, operations=1.0):
    """The error is that of O(log n) roundings, relative to the whole."""
    assert found.shape == wanted.shape
    size = math.sqrt(float(np.sum(np.abs(wanted) ** 2)))
    error = math.sqrt(float(np.sum(np.abs(found - wanted) ** 2)))
    eps = np.finfo(dtype).eps / 2
    assert error <= operations * eps * (2 + math.log2(max(found.size, 2))) * size


# ---------------------------------------------------------------- the functions


@cache
def functions(lanes):
    """The functions for some vectors."""
    library = jit.load(jit.assemble(fft_text(lanes)), EXPORTS)
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    found = {name: signature(library.address(name)) for name in EXPORTS}
    found["library"] = library
    return found


class Machine:
    """Runs the calls of a transform for some vectors, chunk by chunk, in any order."""

    def __init__(self, monkeypatch, dtype, nbytes):
        item = np.dtype(dtype).itemsize
        self.lanes = Lanes(nbytes // item, item)
        self.dtype = dtype
        monkeypatch.setattr(fft, "lanes", lambda dtype: self.lanes)

    def step(self, kind, shape, axes):
        lengths = tuple([shape[axis] for axis in axes])
        params = {"kind": kind, "lengths": lengths, "axes": axes}
        taken, dtype = given(kind, self.dtype, shape, axes)
        type_ = ArrayType(taken, np.dtype(dtype))
        out = primitive.infer(type_, **params)
        places = Place("input", 0), Place("output", 0)
        return HostStep(primitive, params, places[:1], (type_,), places[1:], (out,))

    def run(self, step, x, rng=None, chunk=None):
        assert fft.is_native(step)
        calls = fft.calls(step)
        (out_type,) = step.output_types
        nbytes = out_type.size * out_type.dtype.itemsize
        around = np.full(nbytes + 128, 7, np.uint8)
        out = around[64 : 64 + nbytes].view(out_type.dtype).reshape(out_type.shape)
        temporary = np.full(calls.nbytes + 64, 7, np.uint8)
        begin = -temporary.ctypes.data % 64
        memory = temporary[begin : begin + calls.nbytes]
        places = {"input": x, "output": out, "temporary": memory}
        kept = []
        for call in calls.calls:
            numbers = np.array([self.number(n, places, kept) for n in call.numbers])
            size = chunk or call.share.chunk
            begins = list(range(0, call.share.rounds, size))
            if rng is not None:
                rng.shuffle(begins)
            kind = call.function.removeprefix(fft.PREFIX).split("_")[0]
            for begin in begins:
                end = min(begin + size, call.share.rounds)
                functions(self.lanes)[f"fft_{kind}"](numbers.ctypes.data, begin, end)
        assert (around[:64] == 7).all()
        assert (around[64 + nbytes :] == 7).all()  # nothing else was written
        return out

    def number(self, number, places, kept):
        if isinstance(number, Place):
            return places[number.role].ctypes.data + number.index
        if isinstance(number, fft.Table):
            kind, dtype, sizes = number.name.removeprefix(fft.PREFIX).split("_")
            table = fft.make_table(kind, dtype, [int(n) for n in sizes.split("x")])
            kept.append(table)
            return table.ctypes.data + number.offset
        return number


@pytest.fixture(params=[(d, w) for d in REALS for w in WIDTHS], ids=str)
def machine(monkeypatch, request):
    return Machine(monkeypatch, *request.param)


@pytest.mark.parametrize("kind", KINDS)
def test_lines(machine, kind):
    rng = np.random.default_rng(1)
    for n in LENGTHS:
        if kind in ("RFFT", "IRFFT") and n % 2:
            continue
        lanes = machine.lanes.count
        x = signal(rng, *given(kind, machine.dtype, (lanes + 1, n), (1,)))
        before = x.copy()
        wanted = exact(x, kind, (n,), (1,))
        for count in {1, 3, lanes, lanes + 1}:
            step = machine.step(kind, (count, n), (1,))
            found = machine.run(step, x[:count])
            close(found, wanted[:count], machine.dtype)
        assert (x == before).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [64, 250, 1024, 4096])
def test_lines_that_threads_share(machine, monkeypatch, kind, n):
    """The columns of all lines, then their rows; reals apart."""
    monkeypatch.setattr(fft, "WHOLE", 0)
    monkeypatch.setattr(fft, "ALONE", 0)
    monkeypatch.setattr(fft, "PIECE", 5 * machine.lanes.count + 3)
    split = fft.split  # as if there was one line, which is cut
    monkeypatch.setattr(fft, "split", lambda n, _, lanes: split(n, 1, lanes))
    rng = np.random.default_rng(n)
    step = machine.step(kind, (2, n), (1,))
    calls = fft.calls(step).calls
    reals = kind in ("RFFT", "IRFFT")
    assert len(calls) == (3 if reals else 2)
    x = signal(rng, *given(kind, machine.dtype, (2, n), (1,)))
    found = machine.run(step, x)
    wide = x.astype(np.result_type(x.dtype, "f8"))
    close(found, getattr(scipy.fft, kind.lower())(wide), machine.dtype)
    again = machine.run(step, x, rng, chunk=1)
    assert (found == again).all()  # however they are shared


AXES = [
    ((9, 3), (0,)),
    ((7, 5, 4), (1, 0)),
]
REAL_AXES = [
    ((8, 3), (0,)),
    ((2, 33), (0,)),
    ((3, 30, 17), (1,)),
    ((36, 1), (0,)),
    ((6, 5, 4), (1, 0)),
    ((5, 64, 9), (2, 1)),
    ((5, 1, 6), (1, 2)),
    ((2, 9, 40), (1, 2)),
    ((7, 4, 5, 6), (0, 1, 3)),
    ((2, 64, 2, 2), (0, 2, 1, 3)),
]


@pytest.mark.parametrize("kind", KINDS)
def test_axes(machine, kind):
    rng = np.random.default_rng(2)
    cases = REAL_AXES if kind in ("RFFT", "IRFFT") else AXES + REAL_AXES
    for shape, axes in cases:
        step = machine.step(kind, shape, axes)
        x = signal(rng, *given(kind, machine.dtype, shape, axes))
        found = machine.run(step, x)
        close(found, exact(x, kind, step.params["lengths"], axes), machine.dtype)
        assert (machine.run(step, x, rng, chunk=1) == found).all()


@pytest.mark.parametrize("kind", KINDS)
def test_threads_share_lines_of_several_axes(machine, monkeypatch, kind):
    """Of which the first one may go from memory between steps to such memory."""
    monkeypatch.setattr(fft, "WHOLE", 0)
    monkeypatch.setattr(fft, "ALONE", 0)
    rng = np.random.default_rng(9)
    step = machine.step(kind, (4, 360), (1, 0))
    x = signal(rng, *given(kind, machine.dtype, (4, 360), (1, 0)))
    found = machine.run(step, x)
    close(found, exact(x, kind, (360, 4), (1, 0)), machine.dtype)


# ---------------------------------------------------------------- numbers


def test_roots():
    mpmath.mp.prec = 120
    for q in (1, 2, 3, 7, 8, 12, 30, 64, 1001):
        p = np.arange(-3, 2 * q)
        exact_roots = [
            [mpmath.cospi(mpmath.mpf(2) * int(n) / q) for n in p],
            [-mpmath.sinpi(mpmath.mpf(2) * int(n) / q) for n in p],
        ]
        for dtype in REALS:
            found = roots(p, q, dtype)
            wanted = np.array(exact_roots, float).T.astype(dtype)
            # Twice rounded, here or there, is at most the neighbour.
            assert (np.abs(found - wanted) <= np.spacing(np.abs(wanted))).all()
            assert (found == wanted).mean() > 0.99
            assert (found[wanted == 0] == 0).all()


@pytest.mark.parametrize("dtype", REALS)
def test_errors_are_at_most_those_of_pocketfft(dtype):
    rng = np.random.default_rng(5)
    ratios = []
    for n in (64, 100, 360, 1000, 1024, 2187, 4096, 15625):
        x = signal(rng, (40, n), REALS[dtype])
        wide = x.astype("c16" if dtype == "float32" else np.clongdouble)
        for name in ("fft", "ifft"):
            wanted = getattr(scipy.fft, name)(wide)
            ours = np.asarray(fnx.jit(getattr(fnp.fft, name))(x))
            other = getattr(scipy.fft, name)(x)
            rows = [np.sqrt(np.sum(np.abs(y - wanted) ** 2)) for y in (ours, other)]
            ratios.append(float(rows[0] / rows[1]))
    assert np.exp(np.mean(np.log(ratios))) < 1.02
    assert max(ratios) < 1.15


def test_how_lengths_are_cut():
    lanes = Lanes(16, 4)
    for n in [*range(1, 200), 2**20, 10**6, 3 * 2**18, 7**5]:
        found = fft.radices(n)
        rest = n
        for prime in (2, 3, 5, 7):
            while rest % prime == 0:
                rest //= prime
        assert (found is None) == (rest > 1)
        if found is not None:
            assert math.prod(found) == n
            cut = fft.split(n, 1, lanes)
            assert cut is None or (math.prod(cut) == n and min(cut) > 1)
    assert fft.split(1000, 64, lanes) is None  # as many lines as fill blocks
    assert 2**9 <= fft.split(2**20, 1, lanes)[0] <= 2**11
    assert fft.radices(3**17) is None  # more passes than a number holds


# ---------------------------------------------------------------- plans


def in_python(function, *args):
    """Whether a program calls Python."""
    return "call_python" in fnx.jit(function).lower(*args).as_text("llvm")


def test_what_is_native():
    for shape in ((8,), (1,), (3, 1000), (2**20,)):
        assert not in_python(fnp.fft.fft, np.zeros(shape, "c8"))
    assert not in_python(fnp.fft.fft2, np.zeros((4, 6, 9), "c16"))
    assert not in_python(fnp.fft.rfft, np.zeros((4, 6), "f4"))
    assert not in_python(fnp.fft.irfftn, np.zeros((4, 6), "c8"))
    assert in_python(fnp.fft.fft, np.zeros(11, "c8"))
    assert in_python(fnp.fft.fft2, np.zeros((4, 11), "c8"))
    assert in_python(fnp.fft.rfft, np.zeros((4, 7), "f4"))
    assert not in_python(lambda x: fnp.fft.rfft(x, axis=0), np.zeros((4, 7), "f4"))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("fft", (300, 64)),
        ("ifft", (2**18,)),
        ("fft", (3, 6000)),
        ("rfft", (2**19,)),
        ("irfft", (2, 2**18 + 1)),
        ("fft2", (3, 128, 96)),
        ("rfft", (3, 200, 100)),
        ("irfft2", (60, 129)),
    ],
)
@pytest.mark.parametrize("dtype", REALS)
def test_bits_do_not_depend_on_threads(name, shape, dtype):
    rng = np.random.default_rng(3)
    x = signal(rng, shape, dtype if name == "rfft" else REALS[dtype])
    function = fnx.jit(lambda x: getattr(fnp.fft, name)(x))
    before = fnx.num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            fnx.set_num_threads(threads)
            found.append(np.asarray(function(x)))
    finally:
        fnx.set_num_threads(before)
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()
    close(
        found[0],
        getattr(np.fft, name)(x.astype("f8" if name == "rfft" else "c16")),
        dtype,
    )


def test_several_in_one_program():
    """Steps share the memory behind the arena, also in branches and loops."""
    x = signal(np.random.default_rng(4), (2**18,), "c8")

    def there_and_back(x, times):
        def body(_, x):
            return fnp.fft.ifft(fnp.fft.fft(x) * 2) / 2

        again = fnx.lax.fori_loop(0, times, body, x * 1j)
        return fnx.lax.cond(times > 2, fnp.fft.fft, fnp.fft.ifft, again), again

    found, again = fnx.jit(there_and_back)(x, 3)
    close(np.asarray(again), x * 1j, "f4", 6)
    close(np.asarray(found), np.fft.fft(x.astype("c16") * 1j), "f4", 6)


def test_sizes_that_are_known_late():
    rng = np.random.default_rng(6)
    for name, shape in (("fft", (2**18,)), ("rfft", (30,)), ("irfft2", (4, 9))):
        function = fnx.jit(
            lambda x, name=name: getattr(fnp.fft, name)(x) * 2, dynamic={"x": 0}
        )
        for count in (1, 2, 0, 5, 40):
            if count * shape[0] > 2**20:
                continue
            x = signal(rng, (count, *shape), "f8" if name == "rfft" else "c16")
            found = np.asarray(function(x))
            if count:
                close(found, 2 * getattr(scipy.fft, name)(x), "f8")
            assert len(found) == count


def test_donated_arrays():
    for shape in ((64, 100), (2**18,)):
        x = signal(np.random.default_rng(7), shape, "c16")
        donated = fnp.asarray(x)
        found = fnx.jit(fnp.fft.fft, donate_argnums=0)(donated)
        close(np.asarray(found), np.fft.fft(x), "f8")


def test_what_is_not_finite():
    x = np.ones((4, 64), "c8")
    x[1, 5], x[2, 9] = np.nan, np.inf
    found = np.asarray(fnx.jit(fnp.fft.fft)(x))
    assert np.isfinite(found[[0, 3]]).all()
    assert not np.isfinite(found[1:3]).any()


def test_large_arrays_are_transformed_in_machine_code_eagerly():
    rng = np.random.default_rng(8)
    x = signal(rng, (2**18,), "c8")
    found = np.asarray(fnp.fft.fft(x))
    assert (found == np.asarray(fnx.jit(fnp.fft.fft)(x))).all()
    close(found, np.fft.fft(x.astype("c16")), "f4")
    prime = signal(rng, (262147,), "c8")
    close(np.asarray(fnp.fft.fft(prime)), np.fft.fft(prime.astype("c16")), "f4", 4)
