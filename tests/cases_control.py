"""Cases of `fnx/control`: primitives that hold programs.

The programs are traced here, for the types of the arguments; in double precision, for
no other types can be given to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fnx.numpy as fnp
from fnx import dtypes, errors, lax
from fnx.control import constant, custom, custom_vmap, remat, scan, while_loop
from fnx.core.program import Program
from fnx.core.trace import trace
from fnx.core.types import array_type
from fnx.runtime.array import from_numpy
from tests.cases import BAD_CASES, CASES, BadCase, Case
from tests.control.flows import eliminated

F = array_type((), "float64")
F3 = array_type((3,), "float64")
F33 = array_type((3, 3), "float64")
I = array_type((), "int32")  # noqa: E741
M = np.array([[4.0, 0.5, -1.0], [0.3, 5.0, 0.2], [1.0, -0.4, 6.0]])


def held(function: Callable[..., Sequence[Any]], *types: Any) -> Program:
    """A program of arguments of these types, which closes over nothing."""
    traced = trace(lambda *xs: [fnp.asarray(x) for x in function(*xs)], types)
    captured = iter(traced.captured)
    assert not list(captured), "programs are given what they read"
    return traced.program


def values(*types: Any, **fixed: Any) -> Callable[[np.random.Generator], Any]:
    """Random arrays of the types; `x0=…` sets the first one, and so on."""

    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        made = []
        for n, t in enumerate(types):
            if f"x{n}" in fixed:
                given = fixed[f"x{n}"]
                x = given(rng) if callable(given) else given
            elif dtypes.is_bool(t.dtype):
                x = rng.random(t.shape) < 0.5
            elif dtypes.is_integer(t.dtype):
                x = rng.integers(-3, 6, t.shape)
            else:
                x = rng.uniform(0.2, 1.5, t.shape)
            made.append(np.asarray(x, t.dtype))
        return tuple(made)

    return make


def add(name: str, label: str, types: Any, *, fixed: Any = None, **rest: Any) -> None:
    CASES.append(Case(name, label, values(*types, **(fixed or {})), ulp=64, **rest))


def bad(
    primitive: str,
    label: str,
    types: Any,
    error: type[Exception],
    match: str,
    /,
    **params: Any,
) -> None:
    BAD_CASES.append(BadCase(primitive, label, values(*types), error, match, params))


# ---------------------------------------------------------------- call, remat

MIXED = held(lambda x, y, n: [fnp.sin(x) * y + n, n * 2, x], F3, F, I)
LINEAR = held(lambda x, y, w: [x * w, fnp.sum(x) - 2.0 * y], F3, F, F3)
NOTHING = held(lambda: [fnp.arange(3)])
MATRIX = held(lambda a, b: [a @ b, fnp.tanh(a).T], F33, F33)

PLAIN = {"name": "f"}
AGAIN = {"name": "f", "rule": remat.Rule(None, 3), "again": True}
FIRST = {"name": "f", "rule": remat.Rule(None, 2), "again": False}
for _name, _label, _rest in (
    ("call", "", PLAIN),
    ("remat", "first ", FIRST),
    ("remat", "again ", AGAIN),
):

    def _program(program: Program, rest: Any = _rest) -> dict[str, Any]:
        return {"program": program, **rest}

    add(_name, f"{_label}mixed", (F3, F, I), params=_program(MIXED), smooth=(0, 1))
    add(
        _name,
        f"{_label}linear",
        (F3, F, F3),
        params=_program(LINEAR),
        smooth=(0, 1, 2),
        linear=((0,), (1,), (0, 1)),
    )
    add(_name, f"{_label}matrix", (F33, F33), params=_program(MATRIX), smooth=(0, 1))
    add(_name, f"{_label}nothing", (), params=_program(NOTHING))
    bad(
        _name,
        f"{_label}shape",
        (F, F, I),
        errors.ShapeError,
        "takes",
        **_program(MIXED),
    )
    bad(
        _name, f"{_label}dtype", (F3, F, F), errors.ShapeError, "i32", **_program(MIXED)
    )
    bad(_name, f"{_label}count", (F3,), errors.ShapeError, "got", **_program(MIXED))

# ---------------------------------------------------------------- cond

TWO = (
    held(lambda x, y: [fnp.sin(x) * y, fnp.sum(x)], F3, F),
    held(lambda x, y: [x[::-1], y * y], F3, F),
)
LINES = (
    held(lambda x, w: [x * w], F3, F3),
    held(lambda x, w: [fnp.cumsum(x) - w * 0.0], F3, F3),
    held(lambda x, w: [w * 0.0], F3, F3),
)
for _number in (-1, 0, 1, 7):
    add(
        "cond",
        f"two {_number}",
        (I, F3, F),
        fixed={"x0": _number},
        params={"branches": TWO},
        smooth=(1, 2),
    )
for _number in (0, 1, 2):
    add(
        "cond",
        f"linear {_number}",
        (I, F3, F3),
        fixed={"x0": _number},
        params={"branches": LINES},
        smooth=(1, 2),
        linear=((1,),),
    )
add("cond", "any", (I, F3, F), params={"branches": TWO})
bad("cond", "index", (F, F3, F), errors.DTypeError, "int32 scalar", branches=TWO)
bad("cond", "many", (F3, F3, F), errors.DTypeError, "int32 scalar", branches=TWO)
bad("cond", "shape", (I, F, F), errors.ShapeError, "takes", branches=TWO)

# ---------------------------------------------------------------- scan, while_loop

ROUND = held(lambda w, c, n, r: [fnp.sin(c) * w + r, n + 1, c * r, n], F3, F3, I, F3)
# What stands behind the rows that are counted is nobody's business.
COUNTED = held(lambda w, c, r: [c * w + r], F3, F3, F3)
STEP = held(lambda w, c, r: [c * w + r, c - r], F3, F3, F3)


def rows(type: Any, length: int) -> Any:
    return type.with_shape((length, *type.shape))


for _length in (0, 1, 4):
    for _reverse in (False, True):
        _shape = scan.Shape(1, 2, _length, _reverse)
        add(
            "scan",
            f"{_length} {'back' if _reverse else 'on'}",
            (F3, F3, I, rows(F3, _length)),
            params={"program": ROUND, "shape": _shape},
            smooth=(0, 1, 3),
        )
        add(
            "scan",
            f"linear {_length} {'back' if _reverse else 'on'}",
            (F3, F3, rows(F3, _length)),
            params={"program": STEP, "shape": scan.Shape(1, 1, _length, _reverse)},
            smooth=(0, 1, 2),
            linear=((1,), (2,), (1, 2)),
        )
for _count in (0, 2, 5):
    add(
        "scan",
        f"counted {_count}",
        (I, F3, F3, rows(F3, 5)),
        fixed={"x0": _count},
        params={"program": COUNTED, "shape": scan.Shape(1, 1, 5, False, True)},
        smooth=(1, 2),
        linear=((2,),),
    )
_params = {"program": STEP, "shape": scan.Shape(1, 1, 4)}
bad("scan", "rows", (F3, F3, rows(F3, 3)), errors.ShapeError, "4 rows", **_params)
bad("scan", "carry", (F3, F, rows(F3, 4)), errors.ShapeError, "takes", **_params)
_grows = held(lambda c: [fnp.sum(c)], F3)
_params = {"program": _grows, "shape": scan.Shape(0, 1, 4)}
bad("scan", "change", (F3,), errors.ShapeError, r"scan.*f64\[\]", **_params)

TEST = held(lambda t, c, n: [n < t], I, F3, I)
BODY = held(lambda w, c, n: [fnp.sin(c) * w, n + 1], F3, F3, I)
SQUARE = held(lambda w, c, n: [c * w, n + 1], F3, F3, I)
SUM = held(lambda t, c, n: [(fnp.sum(fnp.abs(c)) < 9.0) & (n < t)], I, F3, I)
GROW = held(lambda w, c, n: [c * 1.5 + fnp.cos(c) * w, n + 1], F3, F3, I)
for _most in (-1, 0, 1, 4):
    add(
        "while_loop",
        f"{_most} rounds",
        (I, F3, F3, I),
        fixed={"x0": _most, "x3": 0},
        params={"test": TEST, "body": BODY, "shape": while_loop.Rounds(1, 1)},
        smooth=(1, 2),
    )
    add(
        "while_loop",
        f"linear {_most} rounds",
        (I, F3, F3, I),
        fixed={"x0": _most, "x3": 0},
        params={"test": TEST, "body": SQUARE, "shape": while_loop.Rounds(1, 1, 9)},
        smooth=(1, 2),
        linear=((2,),),
    )
add(
    "while_loop",
    "until large",
    (I, F3, F3, I),
    fixed={"x0": 9, "x3": 0},
    params={"test": SUM, "body": GROW, "shape": while_loop.Rounds(1, 1)},
    smooth=(1, 2),
)
RECORD = held(lambda w, c, n: [c * w, n + 1, fnp.cos(c)], F3, F3, I)
add(
    "while_loop",
    "recording",
    (I, F3, F3, I),
    fixed={"x0": 3, "x3": 0},
    params={"test": TEST, "body": RECORD, "shape": while_loop.Rounds(1, 1, None, 3)},
    smooth=(1, 2),
)
_params = {"test": TEST, "body": BODY, "shape": while_loop.Rounds(1, 1)}
bad("while_loop", "test", (F, F3, F3, I), errors.ShapeError, "takes", **_params)
bad("while_loop", "body", (I, F, F3, I), errors.ShapeError, "takes", **_params)
_params["body"] = held(lambda w, c, n: [fnp.sum(c * w), n + 1], F3, F3, I)
bad("while_loop", "change", (I, F3, F3, I), errors.ShapeError, "carry", **_params)

# ---------------------------------------------------------------- lanes, constant

for _axes in ((4,), (4, 3)):
    for _marks in ((True, False, True, False), (False, False, False, True)):
        add(
            "lanes",
            f"{len(_axes)} axes, {sum(_marks)} marked",
            (array_type((4,), "bool"), I, array_type(_axes, "float64")),
            fixed={"x0": _marks, "x1": _marks.index(True)},
        )
# Where a lane of a batch is not active, its value may be another one's.
add(
    "lane",
    "active",
    (array_type((), "bool"), F33),
    fixed={"x0": True},
    smooth=(1,),
    linear=((1,),),
)
# Of what is blank, the shape alone is known.
CASES.append(
    Case(
        "blank",
        "without elements",
        lambda rng: (),
        {"shape": (2, 0), "dtype": dtypes.float32, "weak": False, "number": 0},
        ulp=0,
    )
)
BAD_CASES.append(
    BadCase(
        "blank",
        "negative size",
        lambda rng: (),
        errors.ShapeError,
        "negative",
        {"shape": (-1,), "dtype": dtypes.float32, "weak": False, "number": 0},
    )
)
for _value in (np.arange(6.0).reshape(2, 3), np.array(True), np.zeros((0, 2))):
    CASES.append(
        Case(
            "constant",
            f"{_value.dtype} {_value.shape}",
            lambda rng: (),
            {"value": constant.Held(from_numpy(_value))},
            ulp=0,
        )
    )

# ---------------------------------------------------------------- custom rules

SINE = held(lambda w, x, n: [fnp.sin(x) * w, n * 2], F3, F3, I)
TANGENT = held(
    lambda w, x, n, dw, dx: [
        fnp.sin(x) * w,
        n * 2,
        fnp.cos(x) * w * dx + fnp.sin(x) * dw,
    ],
    F3,
    F3,
    I,
    F3,
    F3,
)
FORWARD = held(lambda w, x, n: [fnp.sin(x) * w, n * 2, w, x], F3, F3, I)
BACKWARD = held(lambda w, x, ct: [ct * fnp.sin(x), ct * w * fnp.cos(x)], F3, F3, F3)
ONE_WAY = held(lambda w, cos, ct: [ct * w * cos], F3, F3, F3)
BOTH = {"differentiable": (True, True, False), "name": "f"}
add(
    "custom_jvp_call",
    "sine",
    (F3, F3, I),
    params={"program": SINE, "rule": custom.Rule(lambda mask: TANGENT), **BOTH},
    smooth=(0, 1),
)
_vjp = {
    "program": SINE,
    "forward": custom.Rule(lambda mask: FORWARD),
    "backward": custom.Rule(lambda mask: BACKWARD),
    **BOTH,
}
add(
    "custom_vjp_call",
    "sine",
    (F3, F3, I),
    params={**_vjp, "tangent": None},
    smooth=(0, 1),
)
for _name, _rule in (
    ("custom_jvp_call", {"rule": custom.Rule(lambda mask: TANGENT)}),
    ("custom_vjp_call", {**_vjp, "tangent": None}),
):
    _params = {"program": SINE, **BOTH, **_rule}
    bad(_name, "shape", (F3, F, I), errors.ShapeError, "f: takes", **_params)
    bad(_name, "count", (F3, F3), errors.ShapeError, "f: takes", **_params)

for _name, _turned in (
    ("custom_vjp_linear", ONE_WAY),
    ("custom_vjp_symbolic", custom.Rule(lambda mask: ONE_WAY, masked=True)),
):
    for _way in (None, held(lambda w, cos, t: [t * w * cos], F3, F3, F3)):
        add(
            _name,
            "turned" if _way is None else "given",
            (F3, F3, F3),
            params={
                "backward": _turned,
                "forward": _way,
                "residuals": 2,
                "outputs": (F3,),
                "name": "f",
            },
            smooth=(0, 1, 2),
            linear=((2,),),
        )

OWN = held(lambda a, x: [a @ x, fnp.sum(a)], F33, F3)


def _own_rule(size: int, mapped: tuple[bool, ...]) -> Any:
    types = [rows(t, size) if m else t for t, m in zip((F33, F3), mapped, strict=True)]

    def many(a: Any, x: Any) -> list[Any]:
        if not mapped[1]:
            x = fnp.broadcast_to(x, (size, 3))
        matrix = "nij" if mapped[0] else "ij"
        sums = fnp.sum(a, (-1, -2)) + fnp.zeros(size)
        return [fnp.einsum(f"{matrix},nj->ni", a, x), sums]

    return held(many, *types), (True, True)


add(
    "custom_vmap_call",
    "product",
    (F33, F3),
    params={"program": OWN, "rule": custom_vmap.BatchRule(_own_rule), "name": "f"},
    smooth=(0, 1),
    linear=((1,),),
)
bad(
    "custom_vmap_call",
    "shape",
    (F33, F),
    errors.ShapeError,
    "f: takes",
    program=OWN,
    rule=custom_vmap.BatchRule(_own_rule),
    name="f",
)

# ---------------------------------------------------------------- solves


def _solution(a: Any, b: Any) -> Any:
    """Gauss and Jordan's elimination; the matrix has a heavy diagonal."""
    matrix = [[a[i, j] for j in range(3)] for i in range(3)]
    return fnp.stack(eliminated(matrix, [b[i] for i in range(3)]))


def _newton(a: Any, c: Any, guess: Any) -> Any:
    """Newton's method for a x + c sin(x) = cos(c)."""

    def step(_: Any, x: Any) -> Any:
        slope = a + fnp.diag(fnp.cos(x) * c)
        return x - _solution(slope, a @ x + fnp.sin(x) * c - fnp.cos(c))

    return lax.fori_loop(0, 12, step, guess)


def _heavy(rng: np.random.Generator) -> Any:
    return M + rng.uniform(-0.3, 0.3, (3, 3))


SYSTEM = {
    "matvec": held(lambda a, x: [a @ x], F33, F3),
    "solve": held(lambda a, b: [_solution(a, b), fnp.full((), 3, np.int32)], F33, F3),
    "vecmat": held(lambda a, x: [a.T @ x], F33, F3),
    "transpose_solve": held(lambda a, b: [_solution(a.T, b)], F33, F3),
}
ROOT = {
    "function": held(
        lambda a, c, x: [a @ x + fnp.sin(x) * c - fnp.cos(c)], F33, F3, F3
    ),
    "solve": held(lambda a, c, g: [_newton(a, c, g)], F33, F3, F3),
    "tangent": held(
        lambda a, c, x, y: [_solution(a + fnp.diag(fnp.cos(x) * c), y)], F33, F3, F3, F3
    ),
}
add(
    "linear_solve",
    "dense",
    (F33, F3),
    fixed={"x0": _heavy},
    params=SYSTEM,
    smooth=(0, 1),
    linear=((1,),),
)
add(
    "linear_solve",
    "forward alone",
    (F33, F3),
    fixed={"x0": _heavy},
    params={**SYSTEM, "vecmat": None, "transpose_solve": None},
)
add("root", "Newton", (F33, F3, F3), fixed={"x0": _heavy}, params=ROOT, smooth=(0, 1))
bad("linear_solve", "shape", (F33, F), errors.ShapeError, "takes", **SYSTEM)
bad("root", "guess", (F33, F3, F), errors.ShapeError, "takes", **ROOT)
_params = {**ROOT, "function": held(lambda a, c, x: [a @ x], F33, F3, F3)}
_params["solve"] = held(lambda a, c, g: [fnp.sum(g)], F33, F3, F3)
bad("root", "solution", (F33, F3, F3), errors.ShapeError, "root: takes", **_params)
