"""The kernels of matrix products compiled by NVRTC: no registers spill.

The texts are those of big products in each layout, with and without splits, where 16
bytes can be moved at once and where nothing is aligned. The report of a run:

    python -m tests.cuda.test_products_nvrtc
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from fnx import dtypes
from fnx.errors import CompileError
from fnx_cuda import nvrtc
from fnx_cuda.blaslt_gradients import mask_kernel, masked_kernel
from fnx_cuda.emit import kernel_source
from fnx_cuda.instructions import Launch
from fnx_cuda.products_numbers import numbers
from fnx_cuda.products_problem import problem
from fnx_cuda.products_tensor import ROUNDED_TILES, TENSOR_TILES, tensor_launches
from fnx_cuda.products_tile import TILES, Cut, tile_launches
from fnx_cuda.products_vector import element_launches, vector_launches
from fnx_cuda.resources import resources
from tests.cuda.products import Case

TARGETS = ("sm_80", "sm_90")
PRODUCTS = (dtypes.float32, *TENSOR_TILES)
# Integers of a width take the same registers, signed or not; 16 bits are between two.
WITHOUT = [f"uint{bits}" for bits in (8, 16, 32, 64)] + ["int16"]
DTYPES = [dtype for dtype in dtypes.SUPPORTED if dtype.name not in WITHOUT]


def kernels(dtype: dtypes.DType) -> Iterator[tuple[str, Launch]]:
    """Every text of a dtype once, and what it is."""
    seen = set()
    for name, launches in _kernels(dtype):
        for launch in launches:
            if launch.text not in seen:
                seen.add(launch.text)
                yield f"{dtypes.short(dtype)} {launch.function} {name}", launch


def _kernels(dtype: dtypes.DType) -> Iterator[tuple[str, tuple[Launch, ...]]]:
    for x, y, pad in itertools.product([False, True], [False, True], [0, 1]):
        layout = f"{'xᵀ' if x else 'x'}{'yᵀ' if y else 'y'} pad {pad}"
        given = problem(Case(256, 256, 256, dtype, x, y, pad=pad).step)
        tiles = TENSOR_TILES.get(dtype) or TILES[numbers(dtype, dtype).sum_size]
        make = tensor_launches if dtype in TENSOR_TILES else tile_launches
        for tile, splits in itertools.product(tiles, [1, 2]):
            name = f"{tile.rows}×{tile.columns} {layout} splits {splits}"
            yield name, make(given, Cut(tile, splits, 256 // splits))
        for n in 1, 3, 8:
            few = problem(Case(4096, n, 4096, dtype, x, y, pad=pad).step)
            yield f"{n} columns {layout}", vector_launches(few)
        yield "", element_launches(given)


def compiler() -> nvrtc.Compiler:
    try:
        return nvrtc.compiler()
    except CompileError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", PRODUCTS, ids=dtypes.short)
def test_kernels_around_masks_do_not_spill(dtype, target):
    used = compiler()
    for make in mask_kernel, masked_kernel:
        text = kernel_source(make(dtype, 100, 300)).text
        (found,) = resources(used.compile(text, target).log).values()
        assert found.spills == 0 and found.stack == 0


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", PRODUCTS, ids=dtypes.short)
def test_the_usual_kernels_do_not_spill(dtype, target):
    check(dtype, target, aligned=True)


@pytest.mark.parametrize("target", TARGETS)
def test_rounded_float32_does_not_spill(target):
    used = compiler()
    for tile in ROUNDED_TILES:
        for x, y in itertools.product([False, True], repeat=2):
            given = problem(Case(256, 256, 256, np.float32, x, y, tf32=True).step)
            (launch,) = tensor_launches(given, Cut(tile, 1, 256))
            log = used.compile(launch.text, target).log
            found = resources(log)[launch.function]
            assert found.spills == 0 and found.stack == 0
            assert found.registers * launch.block * tile.together <= 65536
            assert found.shared <= 48 << 10


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtypes.short)
def test_no_kernel_spills(dtype, target):
    check(dtype, target, aligned=False)


def check(dtype: dtypes.DType, target: str, aligned: bool) -> None:
    compile_with = compiler()
    for name, launch in kernels(dtype):
        if aligned and ("pad 1" in name or "splits 2" in name):
            continue
        found = resources(compile_with.compile(launch.text, target).log)[
            launch.function
        ]
        assert found.spills == 0 and found.stack == 0, name
        assert found.registers * launch.block <= 65536, name
        assert found.shared + launch.shared <= 48 << 10, name


def main() -> None:
    """Prints what each kernel takes."""
    compile_with = nvrtc.compiler()
    for dtype, target in itertools.product(dtypes.SUPPORTED, TARGETS):
        for name, launch in kernels(dtype):
            log = compile_with.compile(launch.text, target).log
            found = resources(log)[launch.function]
            sizes = f"{found.registers:4} registers {found.shared:6} bytes shared"
            print(f"{target} {sizes} {found.spills:4} spilled  {name}")


if __name__ == "__main__":
    main()
