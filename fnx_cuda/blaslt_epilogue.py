"""What a kernel makes of a product, as an epilogue of cuBLASLt.

Receives a product and the kernel that reads its output; gives the `Epilogue` that
computes the same, and the buffers that it is of. The value that a kernel stores is
compared with templates of expressions, so that it does not matter how a user has
written it. A bias lies along the columns of the output.

Two things that the library does are not what we mean. Its GELU is that of tanh, as ours
is, but 1 + tanh loses digits in the tail which only results of 16 bits do not have
either. And whether its ReLU keeps NaN nobody says: that is tried before it is used
(`blaslt_tuning.py`), which needs a bias. Next on the walk: `blaslt_gradients.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from fnx import dtypes
from fnx.kernel.build import KernelBuilder
from fnx.kernel.expr import (
    Buffer,
    Const,
    Expr,
    IndexExpr,
    Load,
    LoopIndex,
    Op,
    terms_of,
)
from fnx.kernel.ir import Eval, Kernel, Launch, Store
from fnx.records import record
from fnx.runtime.plan import MatmulStep
from fnx_cuda.blaslt import calls
from fnx_cuda.blaslt_api import Epilogue
from fnx_cuda.products import way
from fnx_cuda.products_access import DType

_COMMUTE = ("add", "mul", "max")


@record
class Follower:
    """An epilogue, and the numbers of a kernel's buffers: of the bias, and of out."""

    epilogue: Epilogue
    bias: int | None
    out: int


def follower(step: MatmulStep, kernel: Kernel, buffer: int) -> Follower | None:
    """The epilogue that computes a kernel, if there is one."""
    if way(step) not in ("tensor", "tiles") or not is_dense(step):
        return None
    names = {kernel.buffers[buffer]: PRODUCT}
    element = read(step, kernel, names)
    if element is None or element.value.dtype != step.out_dtype:
        return None
    found = _epilogue(element, names, step.out_dtype)
    if found is None or calls(step, found) is None:
        return None
    return Follower(found, element.bias, element.out)


@record
class Element:
    """What a kernel computes of each element of a product, and of a bias if any.

    Numbers are those of its buffers.
    """

    value: Expr
    bias: int | None
    out: int


def read(
    step: MatmulStep, kernel: Kernel, names: Mapping[Buffer, str]
) -> Element | None:
    """A kernel that stores one value, of the same element of all named buffers."""
    stores = stores_of(kernel)
    if len(stores) != 1:
        return None
    (store,) = stores
    loads = list(loads_of(store.value))
    own = [load for load in loads if load.buffer in names]
    others = [load for load in loads if load.buffer not in names]
    if any(load.mask is not None for load in loads):
        return None
    if any(load.offset is not store.offset for load in own):
        return None
    bias = None
    if others:
        if not is_bias(step, others, store.offset):
            return None
        bias = kernel.buffers.index(others[0].buffer)
    return Element(store.value, bias, kernel.buffers.index(store.buffer))


def is_dense(step: MatmulStep) -> bool:
    """Whether the output is one matrix, row after row."""
    product = step.product
    out = product.out
    dense = out.offset == 0 and out.leading == product.n and not out.transposed
    return dense and not product.batch


def stores_of(kernel: Kernel) -> list[Store]:
    """The stores of a kernel that computes each element by itself; else none."""
    if len(kernel.launches) != 1 or kernel.locals:
        return []
    (launch,) = kernel.launches
    if not isinstance(launch, Launch) or launch.threads != 1:
        return []
    stores = [stmt for stmt in launch.body if isinstance(stmt, Store)]
    plain = all(isinstance(stmt, Eval | Store) for stmt in launch.body)
    is_plain = [
        store.combine is None
        and store.mask is None
        and not store.atomic
        and store.buffer.role == "out"
        for store in stores
    ]
    return stores if plain and all(is_plain) else []


def loads_of(value: Expr) -> Iterator[Load]:
    """What a value is made of."""
    seen, pending = set[Expr](), [value]
    while pending:
        expr = pending.pop()
        if expr in seen:
            continue
        seen.add(expr)
        if isinstance(expr, Load):
            yield expr
        else:
            pending += expr.children


def is_bias(step: MatmulStep, loads: list[Load], out: IndexExpr) -> bool:
    """Whether loads are those of a number for each column of the output."""
    columns = step.product.n
    read = {(load.buffer, load.offset) for load in loads}
    if len(read) != 1 or loads[0].buffer.size != columns:
        return False
    ((_, column),) = read
    terms, begin = terms_of(out)
    if not isinstance(column, LoopIndex) or column.extent != columns or begin:
        return False
    others = [(index, step) for index, step in terms if index is not column]
    return (column, 1) in terms and all(each % columns == 0 for _, each in others)


# ---------------------------------------------------------------- values


PRODUCT, BIAS, COTANGENT = "product", "bias", "cotangent"
"""The names of what templates are of: the product, a bias, and in the derivative of an
activation the other product, which is that of what came before."""


def _epilogue(
    element: Element, names: Mapping[Buffer, str], dtype: DType
) -> Epilogue | None:
    """The epilogue whose template a value is, of loads of the product and a bias."""
    for epilogue, template in _templates(dtype):
        if epilogue.has_bias == (element.bias is not None) and alike(
            element.value, template, names
        ):
            return epilogue
    return None


@cache
def _templates(dtype: DType) -> tuple[tuple[Epilogue, Expr], ...]:
    """What each epilogue computes, as it is written in programs."""
    k = KernelBuilder()
    product = k.load(k.buffer(PRODUCT, dtype, 1, "in"), 0)
    bias = k.load(k.buffer(BIAS, dtype, 1, "in"), 0)
    value, zero = k.op("add", product, bias), k.constant(0, dtype)
    found = [
        (Epilogue.BIAS, value),
        (Epilogue.RELU_BIAS, k.op("select", k.op("le", value, zero), zero, value)),
        (Epilogue.RELU_BIAS, k.op("max", value, zero)),
    ]
    if dtype.itemsize == 2:
        found.append((Epilogue.GELU, gelu_of(k, product)))
        found.append((Epilogue.GELU_BIAS, gelu_of(k, value)))
    return tuple(found)


def gelu_of(k: KernelBuilder, x: Expr) -> Expr:
    """GELU by the logistic function, which is (1 + tanh) / 2 of half its argument."""

    def times(value: Expr, number: float) -> Expr:
        made: Expr = k.op("mul", value, k.constant(number, x.dtype))
        return made

    cube = _cube(k, x)
    inner = times(k.op("add", x, times(cube, 0.044715)), 2.0)
    made: Expr = k.op("mul", x, k.op("logistic", times(inner, 0.7978845608028654)))
    return made


def _cube(k: KernelBuilder, x: Expr) -> Expr:
    """The third power, which is rounded once."""
    wide = k.convert(x, dtypes.compute_dtype(x.dtype))
    made: Expr = k.convert(k.op("mul", wide, k.op("mul", wide, wide)), x.dtype)
    return made


def alike(value: Expr, template: Expr, names: Mapping[Buffer, str]) -> bool:
    """Whether a value is what a template says, of buffers with names and a bias."""
    return _alike(value, template, names, {})


def _alike(
    value: Expr,
    template: Expr,
    names: Mapping[Buffer, str],
    seen: dict[tuple[Expr, Expr], bool],
) -> bool:
    key = value, template
    if key not in seen:
        seen[key] = _same(value, template, names, seen)
    return seen[key]


def _same(
    value: Expr,
    template: Expr,
    names: Mapping[Buffer, str],
    seen: dict[tuple[Expr, Expr], bool],
) -> bool:
    if type(value) is not type(template) or value.dtype != template.dtype:
        return False
    match value, template:
        case Load(), Load():
            return names.get(value.buffer, BIAS) == template.buffer.name
        case Const(), Const():
            return repr(value.value) == repr(template.value)
        case Op(), Op() if value.name == template.name:
            pairs = [(value.args, template.args)]
            if value.name in _COMMUTE:
                pairs.append((value.args[::-1], template.args))
            return any(
                all(_alike(a, b, names, seen) for a, b in zip(*each, strict=True))
                for each in pairs
            )
    return False
