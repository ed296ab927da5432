"""Matrix products by kernels of our own: which kernel serves which product.

Receives a `MatmulStep`; gives its `Launch`es. Big products go to tiles, by tensor cores
where these are exact enough; those with a few rows or columns to kernels that read the
big operand once; tiny ones take a thread for each element. Where a product has fewer
tiles than a GPU has multiprocessors, its k is split. Everything is decided by shape and
layout alone, and sums have a fixed order: results are the same in every run.
Next on the walk: `products_problem.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from fnx.runtime.plan import MatmulStep, is_small
from fnx_cuda.instructions import Launch
from fnx_cuda.products_access import Contraction
from fnx_cuda.products_numbers import numbers
from fnx_cuda.products_problem import Problem, problem
from fnx_cuda.products_tensor import tensor_launches, tensor_tiles
from fnx_cuda.products_tile import TILES, Cut, tile_launches, work_bytes
from fnx_cuda.products_vector import (
    MOST_COLUMNS,
    element_launches,
    vector_launches,
    vector_splits,
)

LEAST_VECTOR_WORK = 2**16
"""Multiply-adds of products with a vector that are a step: kernels that fold may read
the matrix across its lines."""

PROCESSORS = 132
"""Multiprocessors of the GPU that products are cut for."""

TINY = 4096
"""Multiply-adds of a matrix whose product takes a thread for each element."""

_LONGEST = 64
"""A side of such a matrix at most: a thread does a sum alone."""

_MOST_SPLITS = 64
_LEAST_SPAN = 128
"""Elements of k in a split at least."""

_GAIN = 1.1
"""How much faster the tiles must be in splits: the parts take memory."""

_SUM_CYCLES = 4000
"""How long it takes to start the second pass."""

_PART_CYCLES = 0.4
"""How long a multiprocessor takes to write one part of a sum and to read it again."""


def pays(stack: int, m: int, n: int, k: int) -> bool:
    """Whether products are worth launches of their own, and no fold in a kernel.

    >>> pays(1, 64, 64, 64), pays(1, 4096, 1, 4096), pays(1, 1, 1, 2**24)
    (True, True, False)
    """
    if m == n == 1 or is_small(stack, m, n, k):
        return False
    return 1 not in (m, n) or stack * m * n * k >= LEAST_VECTOR_WORK


def product_launches(step: MatmulStep) -> tuple[Launch, ...]:
    """The launches that compute a step, over places of the role "work" if k is split.

    Any dtype, shape and layout that a `MatmulStep` can have; arrays begin at addresses
    that 16 divides. The memory of the role "work" has `product_work(step)` bytes.
    """
    given = problem(step)
    match way(step):
        case "elements":
            return element_launches(given)
        case "vectors":
            return vector_launches(_turned(given))
        case "tensor":
            return tensor_launches(given, best_cut(given))
        case "tiles":
            return tile_launches(given, best_cut(given))
    return ()


def product_work(step: MatmulStep) -> int:
    """The bytes of work memory that the launches of a step use."""
    given, splits = problem(step), 1
    match way(step):
        case "vectors":
            splits = vector_splits(_turned(given))
        case "tensor" | "tiles":
            splits = best_cut(given).splits
    return work_bytes(given, splits) if splits > 1 else 0


def way(step: MatmulStep) -> str:
    """Which kernel computes a step: "nothing" if it has no elements.

    The kernels "elements" and "vectors" move memory; "tensor" and "tiles" compute.
    """
    product = step.product
    sizes = product.m, product.n, product.k
    if product.stack * product.m * product.n == 0:
        return "nothing"
    if max(sizes) <= _LONGEST and math.prod(sizes) <= TINY:
        return "elements"
    if min(product.m, product.n) <= MOST_COLUMNS:
        return "vectors"
    return "tensor" if tensor_tiles(step.dtype, step.tf32) else "tiles"


def _turned(given: Problem) -> Problem:
    """The problem with its short side as columns."""
    return given.swapped if given.m < given.n else given


def best_cut(given: Contraction) -> Cut:
    """The tile and the splits that take least time."""
    return min(_cuts(given), key=lambda cut: cut_time(given, cut))


def _cuts(given: Contraction) -> Iterator[Cut]:
    size = numbers(given.dtype, given.out_dtype).sum_size
    tiles = tensor_tiles(given.dtype, given.tf32) or TILES[size]
    for tile in tiles:
        wanted = 1
        while wanted <= _MOST_SPLITS and wanted * _LEAST_SPAN <= max(given.k, 128):
            span = -(-given.k // wanted // tile.depth) * tile.depth
            yield Cut(tile, max(-(-given.k // max(span, 1)), 1), span)
            wanted *= 2


def cut_time(given: Contraction, cut: Cut) -> float:
    """About how many cycles a cut takes."""
    tile = cut.tile
    tiles = math.ceil(given.m / tile.rows) * math.ceil(given.n / tile.columns)
    # Blocks that a multiprocessor computes. Some fewer than `together` do not fill it.
    each = math.ceil(tiles * given.stack * cut.splits / PROCESSORS)
    work = tile.rows * tile.columns * max(cut.span, tile.depth)
    time = max(each, math.sqrt(tile.together)) * work / tile.rate
    if cut.splits == 1:
        return time
    parts = cut.splits * given.stack * given.m * given.n
    return _GAIN * time + _SUM_CYCLES + _PART_CYCLES * parts / PROCESSORS
