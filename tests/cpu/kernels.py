"""Kernels of the tests in this folder: compiled, and run on NumPy arrays."""

from __future__ import annotations

import numpy as np

from fnx import dtypes
from fnx.cpu import emit, jit
from fnx.kernel.build import KernelBuilder
from fnx.kernel.check import check_kernel
from fnx.kernel.expr import Expr, linear_offset
from fnx.kernel.ir import Kernel

REALS = [d for d in dtypes.SUPPORTED if not dtypes.is_complex(d)]
SIZES = [1, 2, 3, 5, 7, 8, 9, 16, 31, 37, 64, 100, 127, 1000, 1009]


def compiled(kernel: Kernel) -> jit.Library:
    check_kernel(kernel)
    module = emit.Module()
    name = module.add(kernel)
    module.define(emit.exported("main", name, len(kernel.buffers)))
    return jit.load(jit.assemble(module.text()), ["main"])


def run(k: KernelBuilder, *arrays: np.ndarray) -> None:
    """Finish, check, compile and run a kernel on contiguous arrays, one a buffer."""
    kernel = k.finish("test")
    library = compiled(kernel)
    assert all(a.flags.c_contiguous for a in arrays)
    library.function("main", len(arrays))(*[a.ctypes.data for a in arrays])


def elementwise(function, *inputs: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Run `function(k, *values)` over all elements of arrays of one shape."""
    k = KernelBuilder()
    sources = [k.buffer(f"x{n}", a.dtype, a.size, "in") for n, a in enumerate(inputs)]
    target = k.buffer("y", out.dtype, out.size, "out")
    offset = linear_offset(k.domain(out.shape), out.shape)
    values = [k.load(source, offset) for source in sources]
    k.store(target, offset, function(k, *values))
    run(k, *inputs, out)
    return out


def random(shape, dtype, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if dtype is dtypes.bool_:
        return np.asarray(generator.random(shape) < 0.5)
    if dtypes.is_integer(dtype):
        info = np.iinfo(dtype)
        low, high = info.min, info.max
        return generator.integers(low, high, shape, dtype, endpoint=True)
    return np.asarray(generator.standard_normal(shape) * 3).astype(dtype)


def gathered(shape, out_dtype, build, *inputs: np.ndarray) -> np.ndarray:
    """Run `build(k, index, *buffers)` for each index of a shape."""
    k = KernelBuilder()
    sources = [k.buffer(f"x{n}", a.dtype, a.size, "in") for n, a in enumerate(inputs)]
    out = np.empty(shape, out_dtype)
    target = k.buffer("y", out.dtype, out.size, "out")
    index = k.domain(shape)
    k.store(target, linear_offset(index, shape), build(k, index, *sources))
    run(k, *inputs, out)
    return out


def softmax_kernel(shape: tuple[int, int], axis: int = 1) -> KernelBuilder:
    """Softmax of an f32 array over one axis."""
    k = KernelBuilder()
    size = shape[0] * shape[1]
    source = k.buffer("x", dtypes.float32, size, "in")
    target = k.buffer("y", dtypes.float32, size, "out")
    index = k.domain(shape)

    def at(i) -> Expr:
        place = list(index)
        place[axis] = i
        return k.load(source, linear_offset(place, shape))

    extent = [shape[axis]]
    largest = k.fold("max", "row", extent, lambda j: at(j[0]))

    def shifted(i) -> Expr:
        return k.op("exp", k.sub(at(i), largest))

    total = k.fold("add", "row", extent, lambda j: shifted(j[0]))
    k.store(target, linear_offset(index, shape), k.div(shifted(index[axis]), total))
    return k
