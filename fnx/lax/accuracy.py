"""How exact products are to be: precisions and algorithms.

Receives what users ask of `dot_general`; gives the product computed so.
Next on the walk: `reducing.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.lax.bits import reduce_precision
from fnx.numpy.operands import DTypeLike, cast
from fnx.ops import arithmetic
from fnx.ops.dot import PRECISION_ALIASES, dot_general
from fnx.records import record

Axes = tuple[Sequence[int], Sequence[int]]
DotDimensionNumbers: TypeAlias = tuple[Axes, Axes]


class Precision(enum.StrEnum):
    """How exactly float32 products are computed on hardware that has a choice."""

    DEFAULT = "default"
    HIGH = "high"
    HIGHEST = "highest"

    @classmethod
    def _missing_(cls, value: object) -> Precision | None:
        found = PRECISION_ALIASES.get(str(value))
        return None if found is None else cls(found)


class DotAlgorithm(NamedTuple):
    """What operands of a product are rounded to, and what products are summed in.

    An operand that is cut in several components is as exact as so many numbers of its
    precision; `num_primitive_operations` is how many products of components are summed,
    those of the largest first.
    """

    lhs_precision_type: DTypeLike
    rhs_precision_type: DTypeLike
    accumulation_type: DTypeLike
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


class DotAlgorithmPreset(enum.Enum):
    """Algorithms by name: the precision of both operands, then that of the sums."""

    DEFAULT = enum.auto()
    F16_F16_F16 = enum.auto()
    F16_F16_F32 = enum.auto()
    BF16_BF16_BF16 = enum.auto()
    BF16_BF16_F32 = enum.auto()
    BF16_BF16_F32_X3 = enum.auto()
    BF16_BF16_F32_X6 = enum.auto()
    BF16_BF16_F32_X9 = enum.auto()
    TF32_TF32_F32 = enum.auto()
    TF32_TF32_F32_X3 = enum.auto()
    F32_F32_F32 = enum.auto()
    F64_F64_F64 = enum.auto()


PrecisionLike: TypeAlias = (
    str
    | Precision
    | tuple[str, str]
    | tuple[Precision, Precision]
    | DotAlgorithm
    | DotAlgorithmPreset
    | None
)

_TF32 = "tf32"  # eight bits of exponent and ten of mantissa, in 32 of memory
# Precision of the operands, dtype of the sums, components, products of components.
_PRESETS = {
    "F16_F16_F16": (dtypes.float16, dtypes.float16, 1, 1),
    "F16_F16_F32": (dtypes.float16, dtypes.float32, 1, 1),
    "BF16_BF16_BF16": (dtypes.bfloat16, dtypes.bfloat16, 1, 1),
    "BF16_BF16_F32": (dtypes.bfloat16, dtypes.float32, 1, 1),
    "BF16_BF16_F32_X3": (dtypes.bfloat16, dtypes.float32, 2, 3),
    "BF16_BF16_F32_X6": (dtypes.bfloat16, dtypes.float32, 3, 6),
    "BF16_BF16_F32_X9": (dtypes.bfloat16, dtypes.float32, 3, 9),
    "TF32_TF32_F32": (_TF32, dtypes.float32, 1, 1),
    "TF32_TF32_F32_X3": (_TF32, dtypes.float32, 2, 3),
    "F32_F32_F32": (dtypes.float32, dtypes.float32, 1, 1),
    "F64_F64_F64": (dtypes.float64, dtypes.float64, 1, 1),
}


@record
class _Algorithm:
    """An algorithm with what is to be done for each operand."""

    precisions: tuple[Any, Any]
    sums: np.dtype[Any]
    components: tuple[int, int]
    products: int


def product(
    x: Array,
    y: Array,
    contract: Any,
    batch: Any,
    precision: Any,
    wanted: np.dtype[Any] | None,
) -> Array:
    """The product by a precision, or by an algorithm."""
    algorithm = _algorithm(precision)
    if algorithm is None:
        return dot_general(
            x,
            y,
            contract=contract,
            batch=batch,
            precision=_canonical(precision),
            preferred_element_type=wanted,
        )
    if not dtypes.is_float(x.dtype) or not dtypes.is_float(y.dtype):
        raise errors.DTypeError(
            f"dot_general: precision={precision!r} is for real floats, got {x.type} "
            f"and {y.type}"
        )
    sides = [
        _components(value, kind, count, algorithm.sums)
        for value, kind, count in zip(
            (x, y), algorithm.precisions, algorithm.components, strict=True
        )
    ]
    places = [(i, j) for i in range(len(sides[0])) for j in range(len(sides[1]))]
    # The products of the largest components are what is asked for; the smallest of
    # them are summed first.
    chosen = sorted(places, key=lambda ij: (sum(ij), ij))[: algorithm.products]
    total: Any = None
    for i, j in chosen[::-1]:
        part = dot_general(
            sides[0][i],
            sides[1][j],
            contract=contract,
            batch=batch,
            precision="highest",
            preferred_element_type=algorithm.sums,
        )
        total = part if total is None else arithmetic.add(total, part)
    return cast(
        total,
        dtypes.promote((x.dtype, False), (y.dtype, False))[0]
        if wanted is None
        else wanted,
    )


def _canonical(precision: Any) -> Any:
    """A precision by its name; what has no such name is left to be refused."""
    if isinstance(precision, tuple):
        return tuple([_canonical(p) for p in precision])
    if precision is DotAlgorithmPreset.DEFAULT:
        return None
    if isinstance(precision, str):
        return PRECISION_ALIASES.get(str(precision), str(precision))
    return precision


def _algorithm(precision: Any) -> _Algorithm | None:
    if isinstance(precision, DotAlgorithmPreset):
        if precision is DotAlgorithmPreset.DEFAULT:
            return None
        kind, sums, components, products = _PRESETS[precision.name]
        return _Algorithm((kind, kind), sums, (components,) * 2, products)
    if not isinstance(precision, DotAlgorithm):
        return None
    kinds = [dtypes.as_dtype(kind) for kind in precision[:2]]
    counts = precision.lhs_component_count, precision.rhs_component_count
    products = precision.num_primitive_operations
    if min(counts) < 1 or not 1 <= products <= counts[0] * counts[1]:
        raise errors.OptionError(
            f"dot_general: {precision} sums {products} of the products of {counts[0]} "
            f"and {counts[1]} components"
        )
    sums = dtypes.as_dtype(precision.accumulation_type)
    return _Algorithm((kinds[0], kinds[1]), sums, counts, products)


def _components(
    x: Array, precision: Any, count: int, sums: np.dtype[Any]
) -> list[Array]:
    """The operand as a sum of numbers of a precision, the largest first."""
    wide = dtypes.promote((x.dtype, False), (sums, False))[0]
    rest, found = cast(x, wide), []
    for i in range(count):
        part = _rounded(rest, precision)
        found.append(cast(part, sums))
        if i + 1 < count:
            rest = arithmetic.sub(rest, part)
    return found


def _rounded(x: Array, precision: Any) -> Array:
    if precision is _TF32:
        return reduce_precision(x, 8, 10)
    return cast(cast(x, precision), x.dtype)
