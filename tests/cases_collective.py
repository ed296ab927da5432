"""Cases of `fnx/ops/collective.py`, `sending.py` and `meeting.py`.

Each runs over an axis of one replica, which is the only one that a rule can compute
without others; several replicas are in `tests/ops/test_collective.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import errors
from tests.cases import BAD_CASES, CASES, BadCase, Case

AXIS: dict[str, Any] = {"axis_name": "replica", "axis_size": 1}
ALONE = {**AXIS, "groups": None}
# Those that have no groups.
OTHERS = ("ppermute", "pbroadcast", "axis_index")


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return lambda rng: (rng.standard_normal(shape).astype(dtype),)


def case(primitive: str, label: str, args: Any, **params: Any) -> Case:
    return Case(
        primitive,
        label,
        args,
        {**(AXIS if primitive in OTHERS else ALONE), **params},
        smooth=(0,),
        linear=() if primitive in ("pmax", "pmin") else ((0,),),
    )


CASES.extend(
    case(primitive, label, args)
    for primitive in ("psum", "pmax", "pmin", "all_gather")
    for label, args in (
        ("f32", normal(3, 4)),
        ("scalar", normal()),
        ("f16", normal(3, dtype=np.float16)),
    )
)
CASES += [
    case("psum", "complex", lambda rng: (rng.standard_normal(3) + 1j,)),
    case("psum_scatter", "f32", normal(1, 3, 4)),
    case("psum_scatter", "scalar", normal(1)),
    case("all_to_all", "f32", normal(1, 3, 4)),
    case("ppermute", "still", normal(3, 4), perm=((0, 0),)),
    case("ppermute", "nobody", normal(3, 4), perm=()),
    case("pbroadcast", "f32", normal(3, 4), source=0),
    Case("axis_index", "alone", lambda rng: (), AXIS),
]


def bad(
    primitive: str, label: str, args: Any, error: type[Exception], match: str, **p: Any
) -> BadCase:
    return BadCase(primitive, label, args, error, match, {**AXIS, **p})


BAD_CASES += [
    BadCase(
        primitive,
        "unbound",
        args,
        errors.AxisError,
        "'nowhere' is not bound",
        {"axis_name": "nowhere", **rest},
    )
    for primitive, args, rest in (
        ("psum", normal(3), {}),
        ("pmax", normal(3), {}),
        ("pmin", normal(3), {}),
        ("all_gather", normal(3), {}),
        ("psum_scatter", normal(1, 3), {}),
        ("all_to_all", normal(1, 3), {}),
        ("ppermute", normal(3), {"perm": ((0, 0),)}),
        ("pbroadcast", normal(3), {"source": 0}),
        ("axis_index", lambda rng: (), {}),
    )
]
BAD_CASES += [
    bad("psum", "others", normal(3), errors.AxisError, "only one", axis_size=2),
    bad("axis_index", "others", lambda rng: (), errors.AxisError, "one", axis_size=2),
    bad("psum", "bool", lambda r: (np.ones(3, np.bool_),), errors.DTypeError, "summed"),
    bad("pmax", "complex", normal(3, dtype=np.complex64), errors.DTypeError, "order"),
    bad("psum_scatter", "rows", normal(3), errors.ShapeError, "size 1"),
    bad("psum_scatter", "rank", normal(), errors.ShapeError, "size 1"),
    bad("all_to_all", "rows", normal(3), errors.ShapeError, "size 1"),
    bad("ppermute", "range", normal(3), errors.AxisError, "0 to 0", perm=((0, 1),)),
    bad(
        "ppermute",
        "twice",
        normal(3),
        errors.AxisError,
        "different",
        perm=((0, 0), (0, 0)),
    ),
    bad("pbroadcast", "range", normal(3), errors.AxisError, "0 to 0", source=1),
    bad(
        "psum",
        "unequal groups",
        normal(3),
        errors.AxisError,
        "one size",
        axis_size=3,
        groups=[[0], [1, 2]],
    ),
    bad(
        "all_to_all",
        "rows of groups",
        normal(4, 3),
        errors.ShapeError,
        "size 2, as the groups",
        axis_size=4,
        groups=[[0, 1], [2, 3]],
    ),
]
