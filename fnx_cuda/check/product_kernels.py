"""Questions about the kernels of matrix products: ours beside those of cuBLASLt.

Each row multiplies random matrices by our kernels and by every algorithm that cuBLASLt
offers, compares some rows of both results with float64, and takes times on the device.
It says who computes such a product in programs. Next on the walk: `convolutions.py`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.records import record
from fnx.runtime.plan import MatmulStep, Matrices, Place, Product
from fnx_cuda import blaslt_api, transfer
from fnx_cuda.blaslt import WORKSPACE, Matmul, calls
from fnx_cuda.blaslt_tuning import Addresses, Chosen, Start, choice, clock_on
from fnx_cuda.check.report import Row, Setting
from fnx_cuda.device import Device, device
from fnx_cuda.frame import Frame
from fnx_cuda.memory import Buffer
from fnx_cuda.multiply import workspace
from fnx_cuda.products import product_launches, product_work
from fnx_cuda.run import launch_action

ROUNDS = 20
"""How often a product is timed; the median counts."""

SAMPLE = 32
"""Rows of a result that are compared: the product of all in float64 takes long."""

DType = np.dtype[Any]


@record
class ProductCase:
    """A product, each dense: sizes, dtype, transposed operands, and their stack."""

    m: int
    n: int
    k: int
    dtype: DType
    x_transposed: bool = False
    y_transposed: bool = False
    stack: int = 1

    def __str__(self) -> str:
        stack = f"{self.stack}×" if self.stack > 1 else ""
        x = "xᵀ" if self.x_transposed else "x"
        y = "yᵀ" if self.y_transposed else "y"
        short = dtypes.short(self.dtype)
        return f"{stack}{self.m}×{self.n}×{self.k} {short} {x}{y}"

    @property
    def step(self) -> MatmulStep:
        """The step: out is output 0, x and y are inputs 0 and 1."""
        m, n, k = self.m, self.n, self.k
        batch = (self.stack,) if self.stack > 1 else ()
        out = _dense(m, n, False, batch)
        x = _dense(m, k, self.x_transposed, batch)
        y = _dense(k, n, self.y_transposed, batch)
        product = Product(batch, m, n, k, out, x, y)
        places = Place("output", 0), Place("input", 0), Place("input", 1)
        return MatmulStep(self.dtype, *places, product, self.dtype)


def _dense(
    rows: int, columns: int, transposed: bool, batch: tuple[int, ...]
) -> Matrices:
    leading = rows if transposed else columns
    return Matrices(0, (rows * columns,) * len(batch), leading, transposed)


def _epsilon(dtype: DType) -> float:
    epsilon = {dtypes.float16: 2.0**-10, dtypes.bfloat16: 2.0**-7}
    return epsilon.get(dtype) or float(np.finfo(dtypes.real_dtype(dtype)).eps)


def product_kernels(setting: Setting) -> Iterator[Row]:
    """The rate of our kernels for each case, and who is chosen; `good` if all agree.

    The peers are the library's own choice, and the fastest of all that it offers.
    """
    for case in cases(setting.small):
        yield _row(case, setting.device.ordinal)


def cases(small: bool) -> tuple[ProductCase, ...]:
    """Square products, a layer and its gradients, attention, a matrix and a vector."""
    types = dtypes.float32, dtypes.bfloat16, dtypes.float16, dtypes.float64
    size, batch, wide, heads, length = 8192, 200, 1024, 96, 1024
    if small:
        size, batch, wide, heads, length = 64, 20, 48, 2, 32
    found = [ProductCase(size, size, size, dtype) for dtype in types]
    for dtype in types[:2]:
        found += [
            ProductCase(batch, wide, wide, dtype),
            ProductCase(batch, wide, wide, dtype, y_transposed=True),
            ProductCase(wide, wide, batch, dtype, x_transposed=True),
            ProductCase(length, length, 64, dtype, y_transposed=True, stack=heads),
            ProductCase(length, 64, length, dtype, stack=heads),
            ProductCase(size, 1, size, dtype),
        ]
    side = max(size // 4, 32)
    return (*found, ProductCase(side, side, side, dtypes.complex64))


def _row(case: ProductCase, number: int) -> Row:
    on, step = device(number), case.step
    rng = np.random.default_rng(case.m + case.n + case.k)
    stack = step.product.stack
    x = _random(rng, case.dtype, stack * case.m * case.k)
    y = _random(rng, case.dtype, stack * case.k * case.n)
    x_there, y_there = transfer.put(x, number), transfer.put(y, number)
    with on:
        out = on.memory.allocate(stack * case.m * case.n * case.dtype.itemsize)
        work = on.memory.allocate(product_work(step))
    at = Frame([x_there.pointer, y_there.pointer], [out.pointer], 0, work.pointer)
    own = _own(step, on, at)
    # In 10^9 operations, as times are in milliseconds: a rate in TFLOP/s.
    operations = 2e-9 * step.product.work * (4 if dtypes.is_complex(case.dtype) else 1)
    ours = operations / _time(on, own)
    errors = [_error(case, x, y, out)]
    chosen, peers = choice(step), []
    made = calls(step)
    if made is not None and blaslt_api.LIBRARY.serves():
        rates = [operations / _time(on, s) for s in _library(made.form, on, at)]
        if rates:
            errors.append(_error(case, x, y, out))
            peers = [("cuBLASLt first", rates[0]), ("cuBLASLt best", max(rates))]
        if chosen == "library":
            chosen = _chosen(Chosen(made, number), at, on, own)
    return _answer(case, ours, errors, chosen, peers)


def _answer(
    case: ProductCase,
    rate: float,
    errors: list[float],
    chosen: str,
    peers: list[tuple[str, float]],
) -> Row:
    """The row, which is good if all errors are those of rounding sums and results."""
    summed = _epsilon(dtypes.compute_dtype(case.dtype))
    limit = 4 * math.sqrt(case.k) * summed + _epsilon(case.dtype)
    told = ", ".join(f"{error:.1e}" for error in errors)
    return Row(
        "product kernels",
        f"{case}",
        rate,
        "TFLOP/s",
        f"error < {limit:.1e}",
        all(error <= limit for error in errors),
        f"{chosen}; error {told}",
        tuple(peers),
    )


def _random(rng: np.random.Generator, dtype: DType, size: int) -> Any:
    if dtypes.is_complex(dtype):
        return rng.standard_normal(2 * size, np.float32).view(np.complex64)
    if dtype == dtypes.float64:
        return rng.standard_normal(size)
    return rng.standard_normal(size, np.float32).astype(dtype)


def _own(step: MatmulStep, on: Device, at: Frame) -> Start:
    """What starts our kernels."""
    with on:
        actions = [launch_action(launch, on) for launch in product_launches(step)]

    def start() -> None:
        for act in actions:
            act(at, on.compute)

    return start


def _library(form: Any, on: Device, at: Frame) -> list[Start]:
    """What starts each algorithm of the library, the one first that it prefers."""
    with on:
        matmul, room = Matmul(form, on.number), workspace(on)
        assert room.nbytes == WORKSPACE
        try:
            candidates = matmul.candidates()
        except blaslt_api.NotSupported:
            return []
    (out,), (x, y) = at.outputs, at.inputs

    def starting(candidate: Any) -> Start:
        return lambda: matmul.run(candidate, out, x, y, room.pointer, on.compute)

    return [starting(candidate) for candidate in candidates]


def _chosen(made: Chosen, at: Frame, on: Device, own: Start) -> str:
    """Who has won: the library, or our kernels."""
    (out,), (x, y) = at.outputs, at.inputs
    ours = []

    def noted() -> None:
        ours.append(1)
        own()

    addresses = Addresses(out, x, y, workspace(on).pointer, on.compute)
    made.run(addresses, noted)
    ours.clear()
    made.run(addresses, noted)
    return "kernels" if ours else "library"


def _time(on: Device, start: Start) -> float:
    """The median time of a product in milliseconds."""
    with on:
        clock = clock_on(on.compute)
        clock(start)
        return statistics.median([clock(start) for _ in range(ROUNDS)])


def _error(case: ProductCase, x: Any, y: Any, out: Buffer) -> float:
    """‖out − x @ y‖ / ‖x @ y‖ over some rows of the first and the last product."""
    m, n, k, stack = case.m, case.n, case.k, case.stack
    wide = np.complex128 if dtypes.is_complex(case.dtype) else np.float64
    found = transfer.get(out, (stack, m, n), case.dtype)
    xs = x.reshape((stack, k, m) if case.x_transposed else (stack, m, k))
    ys = y.reshape((stack, n, k) if case.y_transposed else (stack, k, n))
    rows = np.unique(np.linspace(0, m - 1, SAMPLE).astype(int))
    wrong = total = 0.0
    for item in {0, stack - 1}:
        a = xs[item].T if case.x_transposed else xs[item]
        b = ys[item].T if case.y_transposed else ys[item]
        want = a[rows].astype(wide) @ b.astype(wide)
        difference = found[item][rows].astype(wide) - want
        wrong += float(np.sum(np.abs(difference) ** 2))
        total += float(np.sum(np.abs(want) ** 2))
    return math.sqrt(wrong / total)
