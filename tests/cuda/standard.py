"""The standard kernels: programs of the usual kinds, and the CUDA C that they become.

None of them may spill registers, and the text of the first dozen is kept in `golden/`,
so that a change of the printer or of a schedule is seen in review. After an intended
change, write them anew:

    python -m tests.cuda.standard

Next: `test_standard.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import fnx
import fnx.nn as nn
import fnx.numpy as fnp
from fnx.compiler.pipeline import plan_program
from fnx_cuda.backend import BACKEND
from fnx_cuda.frame import all_launches
from fnx_cuda.instructions import Body, Branch, Convolve, Launch, Loop, Product, Served
from fnx_cuda.lower import lower

GOLDEN = Path(__file__).parent / "golden"


@dataclass(frozen=True)
class Standard:
    """A function, and arguments of it as shapes and dtypes."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def launches(self) -> list[Launch]:
        """The launches of the program, those of products by kernels of our own."""
        program = fnx.jit(self.function).trace(*self.arguments).jaxpr
        return list(_launches(lower(plan_program(program, BACKEND.target))))


def _launches(body: Body) -> Iterator[Launch]:
    for item in body.instructions:
        match item:
            case Launch():
                yield item
            case Convolve(launches=launches):
                yield from launches
            case Product():
                yield from all_launches(item)
            case Served(_, stages, own):
                every = *stages, *(own or ())
                yield from [stage for stage in every if isinstance(stage, Launch)]
            case Branch():
                for branch in item.branches:
                    yield from _launches(branch)
            case Loop(_, inner, test):
                yield from _launches(inner)
                if test is not None:
                    yield from _launches(test)


def texts(standard: Standard) -> list[str]:
    """The translation units, each once."""
    return list(dict.fromkeys(launch.text for launch in standard.launches()))


def source(standard: Standard) -> str:
    """All of it as one text: each translation unit under its launches."""
    launches = standard.launches()
    parts = []
    for text in texts(standard):
        heads = [_head(launch) for launch in launches if launch.text == text]
        parts.append("\n".join([*heads, text.strip("\n"), ""]))
    return "\n".join(parts)


def _head(launch: Launch) -> str:
    grid = " x ".join(map(str, launch.grid))
    roles = ", ".join(str(place) for place in launch.pointers)
    return (
        f"// {launch.function}: {grid} blocks of {launch.block} threads, "
        f"{launch.shared} bytes, on {roles}"
    )


# ---------------------------------------------------------------- programs


def _of(*shape: int, dtype: Any = np.float32) -> fnx.ShapeDtypeStruct:
    return fnx.ShapeDtypeStruct(shape, dtype)


def chain(x: Any, y: Any) -> Any:
    return fnp.maximum(x * y + 2.0, x) * 0.5


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    mean = fnp.mean(x, -1, keepdims=True)
    variance = fnp.var(x, -1, keepdims=True)
    return (x - mean) / fnp.sqrt(variance + 1e-5) * scale + shift


def adam(x: Any, mean: Any, square: Any, slope: Any, step: Any) -> Any:
    mean = 0.9 * mean + 0.1 * slope
    square = 0.999 * square + 0.001 * slope * slope
    size = fnp.sqrt(square / (1 - 0.999**step)) + 1e-8
    return x - 1e-3 * (mean / (1 - 0.9**step)) / size, mean, square


def first_class_loss(x: Any) -> Any:
    return fnp.sum(nn.log_softmax(x)[:, 0])


def squared_norm(x: Any, scale: Any, shift: Any) -> Any:
    return fnp.sum(layer_norm(x, scale, shift) ** 2)


def convolution(x: Any, kernel: Any) -> Any:
    dims = "NHWC", "HWIO", "NHWC"
    return fnx.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=dims
    )


_BF16 = ml_dtypes.bfloat16
_ROWS = _of(1024, 1000)
_NORM = (_of(512, 768), _of(768), _of(768))
_INDEX = _of(5000, dtype=np.int32)

KEPT: dict[str, Standard] = {
    "chain": Standard(chain, (_of(1_000_000), _of(1_000_000))),
    "chain_bf16": Standard(
        chain, (_of(1_000_000, dtype=_BF16), _of(1_000_000, dtype=_BF16))
    ),
    "softmax": Standard(nn.softmax, (_ROWS,)),
    "layer_norm": Standard(layer_norm, _NORM),
    "column_sum": Standard(lambda x: fnp.sum(x, 0), (_of(4096, 256),)),
    "full_sum": Standard(fnp.sum, (_of(10_000_000),)),
    "transpose": Standard(lambda x: fnp.transpose(x) + 1, (_of(1024, 512),)),
    "gather": Standard(lambda x, i: x[i], (_of(1000, 64), _INDEX)),
    "scatter_add": Standard(
        lambda x, i, y: x.at[i].add(y), (_of(1000, 64), _INDEX, _of(5000, 64))
    ),
    "histogram": Standard(
        lambda x, i: x.at[i].add(1), (_of(256, dtype=np.int32), _INDEX)
    ),
    "cumsum": Standard(lambda x: fnp.cumsum(x, -1), (_of(64, 5000),)),
    "long_cumsum": Standard(fnp.cumsum, (_of(1_000_000),)),
    "sort": Standard(lambda x: fnp.sort(x, -1), (_ROWS,)),
    "long_sort": Standard(fnp.sort, (_of(1_000_000),)),
    "threefry": Standard(
        lambda key: fnx.random.bits(key, (100_000,)), (fnx.random.key(0),)
    ),
    "product": Standard(lambda x, y: x @ y, (_of(512, 512), _of(512, 512))),
    "convolution": Standard(
        convolution,
        (_of(8, 28, 28, 64, dtype=_BF16), _of(3, 3, 64, 128, dtype=_BF16)),
    ),
}
"""The kernels whose text is kept."""

STANDARD: dict[str, Standard] = KEPT | {
    "product_bf16": Standard(
        lambda x, y: x @ y, (_of(512, 512, dtype=_BF16), _of(512, 512, dtype=_BF16))
    ),
    "convolution_gradient": Standard(
        fnx.grad(lambda x, y: fnp.sum(convolution(x, y) ** 2), (0, 1)),
        (_of(8, 28, 28, 64), _of(3, 3, 64, 128)),
    ),
    "scatter_add_of_elements": Standard(
        lambda x, i, y: x.at[i].add(y), (_of(1000), _INDEX, _of(5000))
    ),
    "scatter_max": Standard(
        lambda x, i, y: x.at[i].max(y),
        (_of(1000, dtype=_BF16), _INDEX, _of(5000, dtype=_BF16)),
    ),
    "scatter": Standard(
        lambda x, i, y: x.at[i].set(y), (_of(1000, 64), _INDEX, _of(5000, 64))
    ),
    "sort_f64": Standard(fnp.sort, (_of(1_000_000, dtype=np.float64),)),
    "top_k": Standard(lambda x: fnx.lax.top_k(x, 5), (_ROWS,)),
    "transpose_bf16": Standard(
        lambda x, y: fnp.transpose(x) + y,
        (_of(1000, 777, dtype=_BF16), _of(777, 1000, dtype=_BF16)),
    ),
    "gelu": Standard(nn.gelu, (_ROWS,)),
    "gelu_bf16": Standard(nn.gelu, (_of(1024, 1000, dtype=_BF16),)),
    "tanh_f64": Standard(fnp.tanh, (_of(1000, 1000, dtype=np.float64),)),
    "sin": Standard(fnp.sin, (_ROWS,)),
    "power": Standard(lambda x, y: x**y, (_ROWS, _ROWS)),
    "fft": Standard(fnp.fft.fft, (_of(64, 74, dtype=np.complex64),)),
    "rfft_f64": Standard(fnp.fft.rfft2, (_of(64, 5000, dtype=np.float64),)),
    "cholesky": Standard(fnp.linalg.cholesky, (_of(100, 100),)),
    "solve_c128": Standard(
        fnp.linalg.solve, (_of(100, 100, dtype=np.complex128), _of(100))
    ),
    "qr_c128": Standard(fnp.linalg.qr, (_of(100, 100, dtype=np.complex128),)),
    "qr_c64": Standard(fnp.linalg.qr, (_of(100, 100, dtype=np.complex64),)),
    "adam": Standard(adam, (*[_of(1_000_000)] * 4, np.float32(3))),
    "log_softmax_gradient": Standard(fnx.grad(first_class_loss), (_ROWS,)),
    "layer_norm_gradient": Standard(fnx.grad(squared_norm, (0, 1, 2)), _NORM),
    "variance": Standard(lambda x: fnp.var(x), (_ROWS,)),
    "argmax": Standard(lambda x: fnp.argmax(x, -1), (_ROWS,)),
    "normal": Standard(
        lambda key: fnx.random.normal(key, (100_000,)), (fnx.random.key(0),)
    ),
}
"""The kernels that must not spill."""


def main() -> None:
    """Writes the golden texts anew."""
    GOLDEN.mkdir(exist_ok=True)
    for file in GOLDEN.glob("*.cu"):
        file.unlink()
    for name, standard in KEPT.items():
        (GOLDEN / f"{name}.cu").write_text(source(standard), encoding="utf-8")


if __name__ == "__main__":
    main()
