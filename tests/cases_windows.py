"""Cases of windows, pools and `sandwich`: strides longer than windows, negative
padding, dilations, ties, NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.errors import AxisError, DTypeError, ShapeError
from fnx.ops import pooling, winograd
from fnx.ops.windows import Windows
from tests.cases import BAD_CASES, CASES, Arrays, BadCase, Case
from tests.cases_arithmetic import numbers
from tests.cases_reduce import constant, distinct, random

Shape = tuple[int, ...]

# Along each axis: size, stride, padding, base dilation, dilation.
LIES: dict[str, tuple[Shape, Windows]] = {
    "plain": ((7,), Windows.of((3,))),
    "apart": ((9,), Windows.of((2,), strides=(3,))),
    "touching": ((4, 6), Windows.of((2, 3), strides=(2, 3))),
    "overlapping": ((5, 7), Windows.of((3, 2), strides=(2, 1))),
    "padded": ((5, 4), Windows.of((3, 2), padding=((1, 2), (0, 1)))),
    "cut-off": ((8, 5), Windows.of((3, 2), padding=((-2, -1), (1, -2)))),
    "cut-off-spread": (
        (6,),
        Windows.of((2,), padding=((-3, -2),), base_dilation=(3,)),
    ),
    "dilated": ((9,), Windows.of((3,), dilation=(2,))),
    "spread": ((4,), Windows.of((3,), padding=((2, 1),), base_dilation=(2,))),
    "spread-apart": (
        (5,),
        Windows.of((4,), strides=(3,), padding=((1, 3),), base_dilation=(3,)),
    ),
    "all": (
        (4, 5),
        Windows.of(
            (2, 3),
            strides=(2, 3),
            padding=((1, -1), (2, 3)),
            base_dilation=(3, 2),
            dilation=(2, 2),
        ),
    ),
    "one": ((3, 1), Windows.of((1, 1))),
    "whole": ((3, 4), Windows.of((3, 4))),
    "too-large": ((2,), Windows.of((3,))),
    "only-padding": ((2,), Windows.of((2,), strides=(2,), padding=((4, 4),))),
    "empty": ((0, 3), Windows.of((1, 2))),
    "scalar": ((), Windows.of(())),
    "long": ((40,), Windows.of((35,), padding=((3, 0),))),
    "large": ((9, 8), Windows.of((6, 7), padding=((1, 1), (0, 2)))),
}
REALS = (
    dtypes.int8,
    dtypes.int64,
    dtypes.uint32,
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.float32,
)


def jax_windows(reduction: str) -> Callable[..., Any]:
    """The oracle of a reduction."""

    def oracle(x: Any, *, windows: Windows) -> Any:
        import jax.lax as lax  # lazy: only the oracle tests need JAX

        kind = np.dtype(x.dtype).kind
        floats = kind not in "iu"
        info = None if floats else np.iinfo(x.dtype)
        starts = {
            "add": 0,
            "max": -math.inf if info is None else info.min,
            "min": math.inf if info is None else info.max,
        }
        return lax.reduce_window(
            x,
            np.asarray(starts[reduction], x.dtype),
            getattr(lax, reduction),
            windows.size,
            windows.strides,
            windows.padding,
            windows.base_dilation,
            windows.dilation,
        )

    return oracle


def covers(shape: Shape, windows: Windows) -> bool:
    """Whether each window has an element: there is no difference of infinities."""
    ones = np.ones(shape)
    return bool(pooling.reduce_window_sum.reference(ones, windows=windows).all())


SUMS = {"sum": "add", "max": "max", "min": "min"}
for _label, (_shape, _windows) in LIES.items():
    for _name, _jax in SUMS.items():
        # JAX has no derivative of extremes for such windows.
        _known = _name == "sum" or (
            min(_windows.low, default=0) >= 0
            and min(_windows.high, default=0) >= 0
            and max(_windows.dilation, default=1) == 1
            and _label not in ("only-padding", "empty", "too-large", "scalar")
        )
        _args = random(_shape) if _name == "sum" else distinct(*_shape)
        CASES.append(
            Case(
                f"reduce_window_{_name}",
                _label,
                _args,
                {"windows": _windows},
                smooth=(0,) if _name == "sum" or covers(_shape, _windows) else (),
                linear=((0,),) if _name == "sum" else (),
                ulp=1000,
                oracle=jax_windows(_jax) if _known else None,
            )
        )
    for _name in ("window_argmax", "window_argmin"):
        CASES.append(Case(_name, _label, distinct(*_shape), {"windows": _windows}))
    _dims = tuple(np.random.default_rng(5).permutation(2 * len(_shape)).tolist())
    CASES.append(
        Case(
            "patches",
            _label,
            random(_shape),
            {"windows": _windows, "dims": _dims},
            smooth=(0,),
            linear=((0,),),
        )
    )
    _natural = (*_windows.over(_shape), *_windows.size)
    CASES.append(
        Case(
            "overlap_add",
            _label,
            random(tuple([_natural[d] for d in _dims])),
            {"windows": _windows, "dims": _dims, "shape": _shape},
            smooth=(0,),
            linear=((0,),),
            ulp=40,
        )
    )

LAST = Windows.of((1, 3), strides=(1, 2), padding=((0, 0), (1, 1)))
for _dtype in REALS:
    _short = dtypes.short(_dtype)
    for _name, _jax in SUMS.items():
        CASES.append(
            Case(
                f"reduce_window_{_name}",
                _short,
                random((2, 6), _dtype),
                {"windows": LAST},
                ulp=40,
                oracle=jax_windows(_jax),
            )
        )
    for _name in ("window_argmax", "window_argmin"):
        CASES.append(Case(_name, _short, random((2, 6), _dtype), {"windows": LAST}))
    for _name in ("patches", "overlap_add"):
        _given = (2, 6) if _name == "patches" else (2, 3, 1, 3)
        _more = {} if _name == "patches" else {"shape": (2, 6)}
        CASES.append(
            Case(
                _name,
                _short,
                random(_given, _dtype),
                {"windows": LAST, "dims": (0, 1, 2, 3), **_more},
            )
        )
# 2048 and 256 are where float16 and bfloat16 cannot count on by ones.
for _dtype in (dtypes.float16, dtypes.bfloat16):
    CASES.append(
        Case(
            "reduce_window_sum",
            f"{dtypes.short(_dtype)}-long",
            constant(np.ones(5000), _dtype),
            {"windows": Windows.of((4999,))},
        )
    )
CASES += [
    Case(
        "reduce_window_sum",
        "complex",
        random((3, 4), dtypes.complex128),
        {"windows": Windows.of((2, 2), strides=(1, 2))},
        smooth=(0,),
        linear=((0,),),
    ),
    Case(
        "patches",
        "bool",
        random((3, 4), dtypes.bool_),
        {"windows": Windows.of((2, 2)), "dims": (2, 3, 0, 1)},
    ),
]

NAN, INF = math.nan, math.inf
TIES = {
    "ties": [2.0, 2.0, 1.0, 2.0, 2.0, 2.0],
    "nan": [2.0, NAN, 1.0, NAN, NAN, 3.0],
    "infinite": [-INF, -INF, INF, INF, -INF, -INF],
    "zeros": [0.0, -0.0, -0.0, 0.0, -0.0, -0.0],
}
for _label, _values in TIES.items():
    for _size in (2, 3):
        _windows = Windows.of((_size,), strides=(2,), padding=((1, 1),))
        for _name in ("reduce_window_max", "reduce_window_min"):
            # XLA may say either zero where both are there.
            _jax = None if _label == "zeros" else jax_windows(_name[-3:])
            _args = constant(_values)
            CASES.append(
                Case(
                    _name,
                    f"{_label}-{_size}",
                    _args,
                    {"windows": _windows},
                    oracle=_jax,
                )
            )
        for _name in ("window_argmax", "window_argmin"):
            CASES.append(
                Case(
                    _name, f"{_label}-{_size}", constant(_values), {"windows": _windows}
                )
            )


def placed(shape: Shape, windows: Windows, of_windows: bool) -> Any:
    """An array, and for each of its windows the number of an element."""

    def args(rng: np.random.Generator) -> Arrays:
        counts = windows.over(shape)
        x = numbers(rng, counts if of_windows else shape, dtypes.float64)
        return x, rng.integers(0, windows.count, counts).astype(np.int32)

    return args


for _label, (_shape, _windows) in LIES.items():
    CASES += [
        Case(
            "select_and_gather_add",
            _label,
            placed(_shape, _windows, False),
            {"windows": _windows},
            smooth=(0,),
            linear=((0,),),
        ),
        Case(
            "select_and_scatter_add",
            _label,
            placed(_shape, _windows, True),
            {"windows": _windows, "shape": _shape},
            smooth=(0,),
            linear=((0,),),
            ulp=40,
        ),
    ]

# ---------------------------------------------------------------- invalid


def bad(
    primitive: str,
    label: str,
    args: Any,
    error: type[Exception],
    match: str,
    **params: Any,
) -> None:
    BAD_CASES.append(BadCase(primitive, label, args, error, match, params))


bad(
    "sandwich",
    "integers",
    random((6, 6), dtypes.int32),
    DTypeError,
    "int32 is not supported",
    matrix=winograd.INPUT,
)
bad(
    "sandwich",
    "sides",
    random((6, 5, 2)),
    ShapeError,
    "the matrix has 6 columns",
    matrix=winograd.INPUT,
)
_pool = Windows.of((2, 2))
for _name in (
    *(f"reduce_window_{name}" for name in SUMS),
    "window_argmax",
    "window_argmin",
    "patches",
    "select_and_gather_add",
):
    _rest = {"dims": (0, 1, 2, 3)} if _name == "patches" else {}
    _two = _name == "select_and_gather_add"
    _args = placed((4, 4), _pool, False) if _two else random((4, 4))
    bad(
        _name,
        "rank",
        _args,
        ShapeError,
        "each of the 2 axes needs a window",
        windows=Windows.of((2,)),
        **_rest,
    )
    for _field, _word in (
        ("size", "window size"),
        ("strides", "stride"),
        ("base_dilation", "base dilation"),
        ("dilation", "window dilation"),
    ):
        bad(
            _name,
            _field,
            _args,
            ShapeError,
            f"the {_word} of axis 1 is 0",
            windows=replace(_pool, **{_field: (1, 0)}),
            **_rest,
        )
bad(
    "reduce_window_sum",
    "bool",
    random((4, 4), dtypes.bool_),
    DTypeError,
    "bool is not supported",
    windows=_pool,
)
for _name in ("reduce_window_max", "window_argmin"):
    bad(
        _name,
        "complex",
        random((4, 4), dtypes.complex64),
        DTypeError,
        "complex64 is not supported",
        windows=_pool,
    )
bad(
    "patches",
    "dims",
    random((4, 4)),
    AxisError,
    "dims must be a permutation of the 4 axes",
    windows=_pool,
    dims=(0, 1, 2, 2),
)
bad(
    "overlap_add",
    "shape",
    random((3, 3, 2, 3)),
    ShapeError,
    r"have shape \(3, 3, 2, 2\)",
    windows=_pool,
    dims=(0, 1, 2, 3),
    shape=(4, 4),
)
bad(
    "overlap_add",
    "bool",
    random((3, 3, 2, 2), dtypes.bool_),
    DTypeError,
    "bool is not supported",
    windows=_pool,
    dims=(0, 1, 2, 3),
    shape=(4, 4),
)


def numbered(
    shape: Shape, places: Shape, dtype: Any = np.int32
) -> Callable[[np.random.Generator], Arrays]:
    return lambda rng: (np.ones(shape), np.zeros(places, dtype))


for _name, _shape, _rest in (
    ("select_and_gather_add", (4, 4), {}),
    ("select_and_scatter_add", (3, 3), {"shape": (4, 4)}),
):
    bad(
        _name,
        "place-dtype",
        numbered(_shape, (3, 3), np.int64),
        DTypeError,
        "numbers must have dtype int32",
        windows=_pool,
        **_rest,
    )
    bad(
        _name,
        "place-shape",
        numbered(_shape, (3, 2)),
        ShapeError,
        r"windows of shape \(3, 3\)",
        windows=_pool,
        **_rest,
    )
bad(
    "select_and_scatter_add",
    "shape",
    numbered((3, 4), (3, 3)),
    ShapeError,
    r"windows of shape \(3, 3\)",
    windows=_pool,
    shape=(4, 4),
)
