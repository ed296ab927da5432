"""Modules of kernels: what is shared, called, cut, and compiled on several threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from fnx import dtypes
from fnx.cpu import emit, jit, llvm
from fnx.cpu.effort import is_little
from fnx.errors import InternalError
from fnx.kernel.build import KernelBuilder
from fnx.kernel.ir import parallel_loops
from tests.chunks import run_in_chunks
from tests.cpu.kernels import REALS, elementwise, random, run, softmax_kernel

# ---------------------------------------------------------------- modules


def test_equal_kernels_share_their_code():
    module = emit.Module()
    first = module.add(softmax_kernel((3, 4)).finish("a"))
    assert module.add(softmax_kernel((3, 4)).finish("b")) == first
    assert module.add(softmax_kernel((3, 5)).finish("c")) != first


def run_shared(k: KernelBuilder, chunk: int, *arrays: np.ndarray) -> int:
    """Run a kernel whose parallel loops are cut; gives how many there are."""
    kernel = k.finish("test")
    run_in_chunks(kernel, chunk, *arrays)
    return len(parallel_loops(kernel))


@pytest.mark.parametrize("size", [100, 1003])
@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_shared_loops(size, chunk):
    k = KernelBuilder()
    source = k.buffer("x", dtypes.float32, size, "in")
    target = k.buffer("y", dtypes.float32, size, "out")
    (i,) = k.domain((size,))
    k.store(target, i, k.neg(k.load(source, i)))
    x = random(size, dtypes.float32)
    out = np.zeros_like(x)
    assert run_shared(k, chunk, x, out) == 1
    np.testing.assert_array_equal(out, -x)


@pytest.mark.parametrize("dtype", [d for d in REALS if d is not dtypes.bool_], ids=str)
@pytest.mark.parametrize("size", [70_000, 70_001])
def test_shared_folds_and_what_follows_them(dtype, size):
    def build() -> KernelBuilder:
        k = KernelBuilder()
        source = k.buffer("x", dtype, size, "in")
        ends = k.buffer("ends", dtype, 2, "out")
        target = k.buffer("y", dtypes.bool_, size, "out")

        def element(index):
            return k.load(source, index[0])

        first = k.load(source, 5)  # known before the loops, used in all of them
        largest = k.fold("max", "i", (size,), lambda i: k.max(element(i), first))
        least = k.fold("min", "i", (size,), lambda i: k.min(element(i), first))
        (i,) = k.domain((size,))
        k.store(target, i, k.eq(element((i,)), k.max(largest, first)))
        k.store(ends, i // size, k.max(largest, least))
        return k

    x = random(size, dtype)
    x[5] = x.min()
    outs = []
    for chunk in (None, 1, 5):
        ends, y = np.zeros(2, dtype), np.zeros(size, np.bool_)
        if chunk is None:
            run(build(), x, ends, y)
        else:
            assert run_shared(build(), chunk, x, ends, y)
        outs.append((ends.tobytes(), y.tobytes()))
    assert outs[0] == outs[1] == outs[2]
    np.testing.assert_array_equal(np.frombuffer(outs[0][1], np.bool_), x == x.max())


def test_helpers_are_compiled_apart():
    x = random(100, dtypes.float32) * 1e9
    out = np.empty_like(x)
    elementwise(lambda k, a: k.op("sin", a), x, out=out)
    np.testing.assert_allclose(out, np.sin(x.astype(np.float64)), atol=1e-6)


def test_text_that_does_not_parse_is_shown():
    with pytest.raises(InternalError, match="define nonsense"):
        jit.assemble("define nonsense")


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_functions_of_the_c_library_are_found(dtype):
    x, y = random(21, dtype, 1), random(21, dtype, 2)
    out = np.empty_like(x)
    elementwise(lambda k, a, b: k.rem(a, b), x, y, out=out)
    np.testing.assert_array_equal(out, np.fmod(x, y))


# ---------------------------------------------------------------- cutting a module


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_a_module_that_is_cut_gives_the_same_functions(count):
    module = emit.Module()
    names = []
    for n in range(3):
        k = KernelBuilder()
        (i,) = k.domain((50,))
        x, out = (
            k.buffer("x", dtypes.float32, 50, "in"),
            k.buffer("out", dtypes.float32, 50, "out"),
        )
        k.store(
            out,
            i,
            k.op("sin", k.mul(k.load(x, i), k.constant(n + 1.0, dtypes.float32))),
        )
        names.append(module.add(k.finish(f"times{n}")))
    for name in names:
        module.define(emit.exported(f"main_{name}", name, 2))
    texts = module.cut(count)
    assert 1 <= len(texts) <= count
    objects = tuple(jit.assemble(text).objects[0] for text in texts)
    exports = [f"main_{name}" for name in names]
    library = jit.load(jit.Code(objects, module.helpers()), exports)
    values = np.linspace(-3, 3, 50, dtype=np.float32)
    for n, export in enumerate(exports):
        found = np.zeros(50, np.float32)
        library.function(export, 2)(values.ctypes.data, found.ctypes.data)
        np.testing.assert_allclose(found, np.sin(values * np.float32(n + 1)), rtol=1e-6)


def test_long_modules_are_compiled_on_several_threads(monkeypatch):
    monkeypatch.setattr(jit, "_PART", 500)
    threads = set()
    real = jit._object

    def recorded(part, machine):
        threads.add(threading.get_ident())
        return real(part, machine)

    monkeypatch.setattr(jit, "_object", recorded)
    module = emit.Module()
    k = KernelBuilder()
    (i,) = k.domain((9,))
    x, out = (
        k.buffer("x", dtypes.float32, 9, "in"),
        k.buffer("out", dtypes.float32, 9, "out"),
    )
    k.store(out, i, k.op("exp", k.load(x, i)))
    module.define(emit.exported("main", module.add(k.finish("exp")), 2))
    code = jit.assemble_module(module, 3)
    assert len(code.objects) == 2
    assert threading.get_ident() not in threads
    found, values = np.zeros(9, np.float32), np.linspace(-1, 1, 9, dtype=np.float32)
    jit.load(code, ["main"]).function("main", 2)(values.ctypes.data, found.ctypes.data)
    np.testing.assert_allclose(found, np.exp(values), rtol=1e-6)


def test_what_only_calls_others_is_compiled_apart(monkeypatch):
    monkeypatch.setattr(llvm, "_WORTH", 10)
    module = emit.Module()
    k = KernelBuilder()
    (i,) = k.domain((9,))
    x, out = (
        k.buffer("x", dtypes.float64, 9, "in"),
        k.buffer("out", dtypes.float64, 9, "out"),
    )
    k.store(out, i, k.op("exp", k.load(x, i)))
    name = module.add(k.finish("exp"))
    module.define(emit.exported("main", name, 2), brief=True)
    efforts = {part.opt: part.text for part in jit._parts(module)}
    assert f"define hidden void @{name}(" in efforts[2]
    assert "define void @main(" in efforts[0]
    code = jit.assemble_module(module, 1)
    assert len(code.objects) == 2
    found, values = np.zeros(9), np.linspace(-1, 1, 9)
    jit.load(code, ["main"]).function("main", 2)(values.ctypes.data, found.ctypes.data)
    np.testing.assert_allclose(found, np.exp(values), rtol=1e-14)


def test_kernels_of_few_numbers_that_run_once_are_brief():
    def numbers(count: int) -> Any:
        k = KernelBuilder()
        k.domain(())
        x = k.buffer("x", dtypes.float32, count, "in")
        out = k.buffer("out", dtypes.float32, count, "out")
        for n in range(count):
            k.store(out, n, k.neg(k.load(x, n)))
        return k.finish("negated")

    assert is_little(numbers(2))
    assert not is_little(numbers(9))
