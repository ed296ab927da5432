"""GELU in a training step, as an epilogue of cuBLASLt that keeps what GELU was of.

The kernel behind a product writes GELU and what its derivative needs: a logistic
function and its argument. GELU_AUX writes GELU and the values before it; all the rest
follows from these, so that the kernels of the derivative compute it once more, to the
same bits, and read less. Receives a product's step and kernels; gives a `Layer`, and
the same kernels made of the values before. Next on the walk: `joining.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from fnx.kernel.build import KernelBuilder
from fnx.kernel.expr import Buffer, Const, Expr, Load, Op
from fnx.kernel.grid import grid_schedule
from fnx.kernel.ir import Kernel, Store
from fnx.records import record
from fnx.runtime.plan import MatmulStep
from fnx_cuda.blaslt import calls
from fnx_cuda.blaslt_api import Epilogue
from fnx_cuda.blaslt_epilogue import (
    BIAS,
    PRODUCT,
    alike,
    gelu_of,
    is_bias,
    is_dense,
    loads_of,
    stores_of,
)
from fnx_cuda.products import way
from fnx_cuda.products_access import DType

_OTHER = "other"


@record
class Layer:
    """A product and GELU behind it: an epilogue, and numbers of the kernel's buffers.

    `before` is that of the values before GELU, if the kernel stores them.
    """

    epilogue: Epilogue
    product: int
    bias: int | None
    out: int
    before: int | None


def layer_of(step: MatmulStep, kernel: Kernel, product: int) -> Layer | None:
    """GELU that a kernel computes of a product and perhaps a bias, if the library can.

    Its derivative is our kernels': where a square or a cube overflows, DGELU may give
    NaN, which the library does not rule out, where ours is finite or 0.
    """
    dtype, columns = step.out_dtype, step.product.n
    if way(step) not in ("tensor", "tiles") or not is_dense(step):
        return None
    stores = _elementwise(step, kernel)
    if stores is None or dtype.itemsize != 2:
        return None
    numbers = kernel.buffers.index
    biases = {
        numbers(load.buffer)
        for store in stores
        for load in loads_of(store.value)
        if load.offset is not store.offset
    }
    for bias in (None, *sorted(biases)):
        names = _names(kernel, product, bias)
        value, gelu = _templates(dtype)[bias is not None]
        outs = [s for s in stores if alike(s.value, gelu, names)]
        epilogue = Epilogue.GELU_AUX if bias is None else Epilogue.GELU_AUX_BIAS
        if len(outs) != 1 or calls(step, epilogue, columns) is None:
            continue
        kept = [numbers(s.buffer) for s in stores if alike(s.value, value, names)]
        before = kept[0] if kept else None
        return Layer(epilogue, product, bias, numbers(outs[0].buffer), before)
    return None


def layer_kernel(step: MatmulStep, has_bias: bool) -> Kernel:
    """GELU of a product, or of its sum with a bias, which is stored, too.

    Its buffers are the product, with a bias that and the values before, and out.
    """
    k, dtype = KernelBuilder(), step.out_dtype
    rows, columns = step.product.m, step.product.n
    row, column = k.domain((rows, columns))
    at = row * columns + column
    value = k.load(k.buffer(PRODUCT, dtype, rows * columns, "in"), at)
    if has_bias:
        bias = k.load(k.buffer(BIAS, dtype, columns, "in"), column)
        value = k.op("add", value, bias)
        k.store(k.buffer("before", dtype, rows * columns, "out"), at, value)
    k.store(k.buffer("out", dtype, rows * columns, "out"), at, gelu_of(k, value))
    return k.finish("gelu", grid_schedule)


def from_before(
    step: MatmulStep,
    made: tuple[Kernel, Layer],
    reader: Kernel,
    shared: Mapping[int, int],
) -> tuple[Kernel, tuple[int, ...]] | None:
    """A kernel that reads what a layer's kernel has stored, of the values before GELU.

    `shared` are the reader's buffers that are buffers of that kernel, by their numbers.
    Gives the kernel, whose first buffer is that of the values before, and which buffers
    of the reader the others are; `None` if it does more than compute each element.
    """
    kernel, layer = made
    stores, stored = _elementwise(step, reader), _elementwise(step, kernel)
    if stores is None or stored is None:
        return None
    k, dtype = KernelBuilder(), step.out_dtype
    rows, columns = step.product.m, step.product.n
    row, column = k.domain((rows, columns))
    at = row * columns + column
    before = k.load(k.buffer("before", dtype, rows * columns, "in"), at)
    value = _templates(dtype)[layer.bias is not None][0]
    own = {store.buffer: store.value for store in stored}
    names = _names(kernel, layer.product, layer.bias)

    def of_layer(expr: Expr) -> Expr | None:
        return before if alike(expr, value, names) else None

    back = {number: each for each, number in shared.items()}
    bias = None if layer.bias is None else back.get(layer.bias)
    theirs = _names(reader, back.get(layer.product), bias)
    kept: dict[int, Expr] = {}

    def of_reader(expr: Expr) -> Expr | None:
        if alike(expr, value, theirs):
            return before
        if not isinstance(expr, Load):
            return None
        number = reader.buffers.index(expr.buffer)
        source = shared.get(number)
        if source is not None and kernel.buffers[source] in own:
            return _copied(k, own[kernel.buffers[source]], of_layer)
        if source == layer.product:
            return None
        if number not in kept:
            buffer = k.buffer(f"in{number}", expr.dtype, expr.buffer.size, "in")
            plain = any(expr.offset is store.offset for store in stores)
            kept[number] = k.load(buffer, at if plain else column)
        return kept[number]

    results = [_copied(k, store.value, of_reader) for store in stores]
    outs = []
    for store, result in zip(stores, results, strict=True):
        if result is None:
            return None
        outs.append(reader.buffers.index(store.buffer))
        buffer = k.buffer(f"out{outs[-1]}", store.buffer.dtype, rows * columns, "out")
        k.store(buffer, at, result)
    return k.finish("from_before", grid_schedule), (*kept, *outs)


def _elementwise(step: MatmulStep, kernel: Kernel) -> list[Store] | None:
    """The stores of a kernel of elements of the product's shape and of a bias each."""
    stores = stores_of(kernel)
    size = step.product.m * step.product.n
    if not stores or any(store.buffer.size != size for store in stores):
        return None
    places = {store.offset for store in stores}
    loads = [load for store in stores for load in loads_of(store.value)]
    if len(places) > 1 or any(load.mask is not None for load in loads):
        return None
    (place,) = places
    for load in loads:
        if load.offset is place:
            if load.buffer.size != size:
                return None
        elif not is_bias(step, [load], place):
            return None
    return stores


def _names(kernel: Kernel, product: int | None, bias: int | None) -> dict[Buffer, str]:
    """The names of a kernel's buffers in templates."""
    names = dict.fromkeys(kernel.buffers, _OTHER)
    for number, name in ((product, PRODUCT), (bias, BIAS)):
        if number is not None:
            names[kernel.buffers[number]] = name
    return names


@cache
def _templates(dtype: DType) -> tuple[tuple[Expr, Expr], tuple[Expr, Expr]]:
    """What GELU is of, and GELU: without a bias, and with one."""
    k = KernelBuilder()
    product = k.load(k.buffer(PRODUCT, dtype, 1, "in"), 0)
    value = k.op("add", product, k.load(k.buffer(BIAS, dtype, 1, "in"), 0))
    return (product, gelu_of(k, product)), (value, gelu_of(k, value))


def _copied(
    k: KernelBuilder, root: Expr, known: Callable[[Expr], Expr | None]
) -> Expr | None:
    """A value in another kernel, made of what is `known` there; `None` if it is not."""
    done: dict[Expr, Expr] = {}
    pending = [root]
    while pending:
        expr = pending[-1]
        if expr in done:
            pending.pop()
            continue
        found = known(expr)
        if found is None and isinstance(expr, Const):
            found = k.constant(expr.value, expr.dtype)
        if found is None and not isinstance(expr, Op):
            return None
        missing = (
            []
            if found is not None
            else [each for each in expr.children if each not in done]
        )
        if missing:
            pending += missing
            continue
        if found is None and isinstance(expr, Op):
            args = tuple([done[each] for each in expr.args])
            found = k.table.op(expr.name, args, expr.dtype)
        assert found is not None
        done[expr] = found
    return done[root]
