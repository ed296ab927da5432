"""The kernels of convolutions compiled by NVRTC: no registers spill.

The texts are those of a convolution and of its two gradients, with features last and
first, for each tile, with and without splits. The report of a run:

    python -m tests.cuda.test_convolution_nvrtc
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fnx import dtypes
from fnx_cuda import nvrtc
from fnx_cuda.convolution_problem import Windowed, windowed
from fnx_cuda.instructions import Launch
from fnx_cuda.products_numbers import numbers
from fnx_cuda.products_tensor import TENSOR_TILES, tensor_launches
from fnx_cuda.products_tile import TILES, Cut, tile_launches
from fnx_cuda.resources import resources
from tests.cuda.convolutions import ORDERS, Case
from tests.cuda.test_products_nvrtc import TARGETS, compiler

USUAL = (dtypes.float32, *TENSOR_TILES)
OTHERS = (
    *(dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
    *(dtypes.complex64, dtypes.complex128),
)
PLANE = (56, 3, 1, 1, 1, 1, 1)
WIDE = (56, 56, 1, 1, 1, 1, 1)


def problems(
    dtype: dtypes.DType, ranks: tuple[int, ...]
) -> Iterator[tuple[str, Windowed]]:
    """Convolutions in the orders of axes that their derivatives have, too."""
    orders = {
        **ORDERS,
        "kernel's gradient, NHWC": ("fsb", "fso", "sbo"),
        "kernel's gradient, NCHW": ("bfs", "ofs", "obs"),
    }
    for (name, order), rank in itertools.product(orders.items(), ranks):
        axis = WIDE if "gradient" in name else PLANE
        case = Case((axis,) * rank, 32, 64, 64, dtype=dtype, order=order)
        yield f"{name} rank {rank}", windowed(case.step)[0]
        if rank == 2:
            few = replace(case, outs=63, features=3, batch=5)
            yield f"{name} unaligned", windowed(few.step)[0]


def kernels(
    dtype: dtypes.DType, splits: tuple[int, ...], ranks: tuple[int, ...] = (1, 2, 3)
) -> Iterator[tuple[str, Launch]]:
    """Every text of a dtype once, and what it is."""
    seen = set()
    tiles = TENSOR_TILES.get(dtype) or TILES[numbers(dtype, dtype).sum_size]
    make = tensor_launches if dtype in TENSOR_TILES else tile_launches
    every = problems(dtype, ranks)
    for (name, given), tile, parts in itertools.product(every, tiles, splits):
        for launch in make(given, Cut(tile, parts, -(-given.k // parts))):
            if launch.text not in seen:
                seen.add(launch.text)
                size = f"{tile.rows}×{tile.columns} splits {parts}"
                yield f"{dtypes.short(dtype)} {launch.function} {size} {name}", launch


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", USUAL, ids=dtypes.short)
def test_the_usual_kernels_do_not_spill(dtype, target):
    check(dtype, target, (1,), (2,))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", USUAL, ids=dtypes.short)
def test_splits_do_not_spill(dtype, target):
    check(dtype, target, (3,), (2,))


# Images of one axis and of three differ in the addresses, which no dtype changes.
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_other_ranks_do_not_spill(target):
    check(dtypes.float32, target, (1,), (1, 3))


# Of integers those of a size have the same registers; sm_90 has no fewer than sm_80.
@pytest.mark.slow
@pytest.mark.parametrize("dtype", OTHERS, ids=dtypes.short)
def test_other_dtypes_do_not_spill(dtype):
    check(dtype, TARGETS[0], (1,), (2,))


def check(
    dtype: dtypes.DType, target: str, splits: tuple[int, ...], ranks: tuple[int, ...]
) -> None:
    compile_with = compiler()
    for name, launch in kernels(dtype, splits, ranks):
        found = resources(compile_with.compile(launch.text, target).log)[
            launch.function
        ]
        assert found.spills == 0 and found.stack == 0, name
        assert found.registers * launch.block <= 65536, name
        assert found.shared + launch.shared <= 48 << 10, name


def main() -> None:
    """Prints what each kernel takes."""
    compile_with = nvrtc.compiler()
    for dtype, target in itertools.product(USUAL, TARGETS):
        for name, launch in kernels(dtype, (1, 3)):
            log = compile_with.compile(launch.text, target).log
            found = resources(log)[launch.function]
            sizes = f"{found.registers:4} registers {found.shared:6} bytes shared"
            print(f"{target} {sizes} {found.spills:4} spilled  {name}", flush=True)


if __name__ == "__main__":
    main()
