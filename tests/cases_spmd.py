"""Cases of `fnx/control/spmd.py`; whole calls are in `tests/spmd/`."""

from __future__ import annotations

from typing import Any

import fnx.numpy as fnp
from fnx import errors, lax
from fnx.core.axes import bound_axis
from fnx.core.program import Program
from tests.cases_control import F3, F33, F, add, bad, held

AXES = (("a", 2), ("b", 2))
NONE, ONE = ((),), ()
CUT, LAST, BOTH = (("a",),), (("b",),), (("b", "a"),)
GRID = (("a",), ("b",))


def bound(function: Any, *types: Any) -> Program:
    """The program of one of four replicas."""
    with bound_axis("a", 2), bound_axis("b", 2):
        return held(function, *types)


def spread(program: Program, ins: Any, outs: Any) -> dict[str, Any]:
    """The params of a program that is run four times."""
    return {
        "program": program,
        "axes": AXES,
        "ins": ins,
        "outs": outs,
        "devices": ("cpu:0",) * 4,
    }


MIXED = spread(
    bound(
        lambda x, y, w: [
            lax.psum(fnp.sin(x) * y, "a"),
            x + lax.axis_index("b"),
            w @ lax.all_gather(x, "b", axis=0, tiled=True)[:3],
        ],
        F3,
        F,
        F33,
    ),
    (CUT, ONE, GRID),
    (LAST, BOTH, CUT),
)
LINEAR = spread(
    bound(
        lambda x, w: [
            lax.ppermute(x, "a", [(0, 1)]) * w,
            lax.psum_scatter(fnp.stack([x, 2.0 * x]), "b").sum(),
        ],
        F3,
        F3,
    ),
    (CUT, NONE),
    (NONE, ONE),
)
SIX = fnp.zeros(6, "float64").type
EIGHT = fnp.zeros((6, 6), "float64").type

add("spmd", "mixed", (SIX, F, EIGHT), params=MIXED, smooth=(0, 1, 2))
add("spmd", "linear", (SIX, F3), params=LINEAR, smooth=(0, 1), linear=((0,), (1,)))
bad("spmd", "part", (F3, F3), errors.ShapeError, "takes f64.6.", **LINEAR)


def _of_a_process() -> dict[str, Any]:
    """A program of two replicas of one process; of more it takes a job of them."""

    def function(x: Any, y: Any) -> list[Any]:
        return [lax.psum(fnp.sin(x) * y, "a"), x * y, lax.ppermute(x, "a", [(0, 1)])]

    with bound_axis("a", 2):
        program = held(function, F3, F3)
    return {
        "program": program,
        "axes": (("a", 2),),
        "ins": (CUT, NONE),
        "outs": (NONE, CUT, CUT),
        "devices": ("cpu:0",) * 2,
        "processes": 1,
    }


MEMBERS = _of_a_process()
add("spmd_members", "members", (SIX, F3), params=MEMBERS, smooth=(0, 1))
bad("spmd_members", "part", (F3, F3), errors.ShapeError, "takes f64.6.", **MEMBERS)
