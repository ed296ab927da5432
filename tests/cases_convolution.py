"""Cases of convolutions: every order of the axes, groups, strides longer than windows,
negative padding, dilations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.errors import AxisError, DTypeError, OptionError, ShapeError
from fnx.ops import winograd
from fnx.ops.convolution import ConvDimensionNumbers, Convolution
from fnx.ops.windows import Windows
from tests.cases import CASES, Arrays, Case
from tests.cases_arithmetic import numbers
from tests.cases_reduce import random
from tests.cases_windows import bad

Shape = tuple[int, ...]


def specified(text: str, pair: str, window: str) -> Shape:
    """The axes of batch (or outputs), features and space in a string."""
    return tuple([text.index(letter) for letter in (*pair, *window)])


def convolution(
    layout: str, windows: Windows, features: int = 1, batches: int = 1
) -> Convolution:
    """From "NHWC,HWIO,NHWC", or other strings."""
    lhs, rhs, out = layout.split(",")
    space = [letter for letter in lhs if letter not in "NC"]
    dims = ConvDimensionNumbers(
        specified(lhs, "NC", "".join(space)),
        specified(rhs, "OI", "".join(space)),
        specified(out, "NC", "".join(space)),
    )
    return Convolution(dims, windows, features, batches)


def operands(
    layout: str,
    space: Shape,
    windows: Windows,
    *,
    n: int = 2,
    ins: int = 2,
    outs: int = 3,
    features: int = 1,
    batches: int = 1,
    dtype: Any = dtypes.float64,
) -> Callable[[np.random.Generator], Arrays]:
    """Operands with so many features in each group."""
    lhs, rhs, _ = layout.split(",")
    letters = [letter for letter in lhs if letter not in "NC"]
    sizes = dict(zip(letters, space, strict=True))
    window = dict(zip(letters, windows.size, strict=True))
    sizes |= {"N": n * batches, "C": ins * features}
    window |= {"I": ins, "O": outs * features * batches}
    shapes = [sizes[a] for a in lhs], [window[a] for a in rhs]
    return lambda rng: tuple([numbers(rng, tuple(s), dtype) for s in shapes])


def jax_conv(lhs: Any, rhs: Any, *, convolution: Convolution, **rest: Any) -> Any:
    """The oracle."""
    import jax.lax as lax  # lazy: only the oracle tests need JAX

    windows = convolution.windows
    return lax.conv_general_dilated(
        lhs,
        rhs,
        windows.strides,
        windows.padding,
        windows.base_dilation,
        windows.dilation,
        lax.ConvDimensionNumbers(*convolution.dims),
        convolution.feature_groups,
        convolution.batch_groups,
        **rest,
    )


def conv_case(
    label: str,
    layout: str,
    space: Shape,
    windows: Windows,
    *,
    features: int = 1,
    batches: int = 1,
    params: Any = (),
    smooth: bool = True,
    oracle: bool = True,
    ulp: float = 1e6,
    **sizes: Any,
) -> None:
    """One case; it is linear in each operand. Sums may cancel."""
    groups = {"features": features, "batches": batches}
    CASES.append(
        Case(
            "conv_general_dilated",
            label,
            operands(layout, space, windows, **groups, **sizes),
            {"convolution": convolution(layout, windows, **groups), **dict(params)},
            smooth=(0, 1) if smooth else (),
            linear=((0,), (1,)) if smooth else (),
            ulp=ulp,
            oracle=jax_conv if oracle else None,
        )
    )


W3 = Windows.of((3,))
for _label, _windows in {
    "plain": W3,
    "apart": Windows.of((2,), strides=(3,)),
    "padded": Windows.of((3,), padding=((2, 1),)),
    "cut-off": Windows.of((2,), padding=((-1, -2),)),
    "dilated": Windows.of((3,), dilation=(2,), padding=((1, 2),)),
    "spread": Windows.of((3,), base_dilation=(2,), padding=((1, 1),)),
    "spread-apart": Windows.of(
        (4,), strides=(2,), base_dilation=(3,), padding=((-1, 2),)
    ),
    "all": Windows.of(
        (3,), strides=(2,), padding=((3, -1),), base_dilation=(2,), dilation=(3,)
    ),
    "whole": Windows.of((7,)),
    "too-large": Windows.of((9,)),
    "one": Windows.of((1,), strides=(2,)),
}.items():
    for _features, _batches in ((1, 1), (3, 1), (1, 2)):
        conv_case(
            f"{_label}-{_features}-{_batches}",
            "NCH,OIH,NCH",
            (7,),
            _windows,
            features=_features,
            batches=_batches,
        )
_plane = Windows.of((3, 2), strides=(1, 2), padding=((1, 1), (0, 1)))
for _layout in (
    "NHWC,HWIO,NHWC",
    "NCHW,OIHW,NCHW",
    "NHWC,OIHW,NCHW",
    "CHWN,IHWO,HWNC",
    "HNCW,WOIH,CNWH",
):
    # Small ones are folds, the others products.
    for _ins, _outs in ((2, 3), (5, 8)):
        _sizes = {"ins": _ins, "outs": _outs}
        for _features, _batches in ((1, 1), (2, 1), (1, 2)):
            conv_case(
                f"{_layout}-{_ins}-{_features}-{_batches}",
                _layout,
                (4, 6),
                _plane,
                features=_features,
                batches=_batches,
                **_sizes,
            )
conv_case("no-space", "NC,IO,NC", (), Windows.of(()))
conv_case("no-space-large", "NC,IO,CN", (), Windows.of(()), n=40, ins=20, outs=30)
conv_case("cube", "NDHWC,DHWIO,NDHWC", (3, 4, 3), Windows.of((2, 2, 3)))
conv_case("one-by-one", "NHWC,HWIO,NHWC", (5, 6), Windows.of((1, 1)), ins=8, outs=9)
conv_case(
    "one-by-one-apart",
    "NCHW,OIHW,NCHW",
    (5, 6),
    Windows.of((1, 1), strides=(2, 3)),
    ins=16,
    outs=18,
)
conv_case("whole-plane", "NHWC,HWIO,NHWC", (4, 4), Windows.of((4, 4)), ins=9, outs=40)
conv_case("depthwise", "NHWC,HWIO,NHWC", (5, 6), _plane, ins=1, outs=1, features=5)
conv_case("multiplier", "NCHW,OIHW,NCHW", (5, 4), _plane, ins=1, outs=2, features=3)
conv_case("empty-batch", "NCH,OIH,NCH", (7,), W3, n=0)
conv_case("no-features", "NCH,OIH,NCH", (7,), W3, ins=0)
conv_case("no-outputs", "NCH,OIH,NCH", (7,), W3, outs=0, oracle=False)
conv_case(
    "empty-space", "NCH,OIH,NCH", (0,), Windows.of((2,), padding=((2, 1),)), ins=1
)
conv_case("complex", "NCH,OIH,NCH", (7,), W3, dtype=dtypes.complex128)
for _dtype in (dtypes.float16, dtypes.bfloat16, dtypes.float32):
    for _ins, _outs in ((2, 3), (8, 16)):
        conv_case(
            f"{dtypes.short(_dtype)}-{_ins}",
            "NHWC,HWIO,NHWC",
            (6, 6),
            Windows.of((3, 3), padding=((1, 1), (1, 1))),
            dtype=_dtype,
            ins=_ins,
            outs=_outs,
            oracle=False,
        )
for _dtype in (dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.uint64):
    conv_case(
        dtypes.short(_dtype),
        "NHWC,HWIO,NHWC",
        (5, 4),
        _plane,
        dtype=_dtype,
        smooth=False,
        ins=5,
        outs=7,
    )
for _given, _wanted in (
    (dtypes.int8, dtypes.int32),
    (dtypes.int8, dtypes.float32),
    (dtypes.bfloat16, dtypes.float32),
    (dtypes.float32, dtypes.float64),
):
    for _outs in (3, 16):
        conv_case(
            f"{dtypes.short(_given)}-to-{dtypes.short(_wanted)}-{_outs}",
            "NCHW,OIHW,NCHW",
            (6, 6),
            Windows.of((3, 3)),
            dtype=_given,
            outs=_outs,
            ins=8,
            smooth=False,
            oracle=_wanted != dtypes.float64,
            ulp=1e4,
            params={"preferred_element_type": _wanted, "precision": "highest"},
        )

for _label, _matrix, _shape in (
    ("input", winograd.INPUT, (6, 6, 2, 5)),
    ("kernel", winograd.kernel_matrix(3), (3, 3, 4)),
    ("output", winograd.output_matrix(4), (6, 6, 3)),
    ("alone", winograd.output_matrix(3), (6, 6)),
    ("empty", winograd.kernel_matrix(4), (4, 4, 0)),
):
    for _dtype in (dtypes.float64, dtypes.float32, dtypes.bfloat16):
        CASES.append(
            Case(
                "sandwich",
                f"{_label}-{dtypes.short(_dtype)}",
                random(_shape, _dtype),
                {"matrix": _matrix},
                smooth=(0,),
                linear=((0,),),
                ulp=1e4,
            )
        )

# ---------------------------------------------------------------- invalid

_pool = Windows.of((2, 2))
_square = convolution("NCHW,OIHW,NCHW", _pool)


def pair(
    lhs: Shape, rhs: Shape, *kinds: Any
) -> Callable[[np.random.Generator], Arrays]:
    first, last = kinds or (np.float32, np.float32)
    return lambda rng: (np.ones(lhs, first), np.ones(rhs, last))


_GOOD = pair((2, 3, 5, 5), (4, 3, 2, 2))
for _label, _args, _error, _match, _params in (
    (
        "features",
        pair((2, 3, 5, 5), (4, 2, 2, 2)),
        ShapeError,
        "lhs has 3 features, rhs takes 2",
        {},
    ),
    (
        "ndim",
        pair((2, 3, 5, 5), (4, 3, 2)),
        AxisError,
        "rhs_spec=.* must be a permutation of 3 axes",
        {},
    ),
    (
        "window",
        pair((2, 3, 5, 5), (4, 3, 2, 3)),
        ShapeError,
        r"windows are of size \(2, 2\), rhs of \(2, 3\)",
        {},
    ),
    (
        "dtypes",
        pair((2, 3, 5, 5), (4, 3, 2, 2), np.float32, np.float64),
        DTypeError,
        "dtypes float32 and float64",
        {},
    ),
    (
        "bool",
        pair((2, 3, 5, 5), (4, 3, 2, 2), np.bool_, np.bool_),
        DTypeError,
        "bool is not supported",
        {},
    ),
    ("precision", _GOOD, OptionError, "precision='exact'", {"precision": "exact"}),
    (
        "preferred",
        _GOOD,
        DTypeError,
        "preferred_element_type=float16",
        {"preferred_element_type": dtypes.float16},
    ),
    (
        "spec",
        _GOOD,
        AxisError,
        "lhs_spec=.* must be a permutation",
        {
            "convolution": replace(
                _square,
                dims=_square.dims._replace(lhs_spec=(0, 1, 2, 2)),
            )
        },
    ),
    (
        "out-spec",
        _GOOD,
        AxisError,
        "out_spec=.* must be a permutation",
        {
            "convolution": replace(
                _square, dims=_square.dims._replace(out_spec=(0, 1, 2))
            )
        },
    ),
    (
        "stride",
        _GOOD,
        ShapeError,
        "the stride of axis 0 is 0",
        {"convolution": replace(_square, windows=replace(_pool, strides=(0, 1)))},
    ),
    (
        "no-groups",
        _GOOD,
        OptionError,
        "feature_group_count=0",
        {"convolution": replace(_square, feature_groups=0)},
    ),
    (
        "both-groups",
        _GOOD,
        OptionError,
        "one of them must be 1",
        {"convolution": replace(_square, feature_groups=2, batch_groups=2)},
    ),
    (
        "groups-of-features",
        _GOOD,
        ShapeError,
        "rhs takes 3 in each of 2 groups",
        {"convolution": replace(_square, feature_groups=2)},
    ),
    (
        "groups-of-outputs",
        pair((2, 9, 5, 5), (4, 3, 2, 2)),
        ShapeError,
        "feature_group_count=3 does not divide the output features, 4",
        {"convolution": replace(_square, feature_groups=3)},
    ),
    (
        "groups-of-batch",
        pair((3, 3, 5, 5), (4, 3, 2, 2)),
        ShapeError,
        "batch_group_count=2 does not divide the batch, 3",
        {"convolution": replace(_square, batch_groups=2)},
    ),
):
    bad(
        "conv_general_dilated",
        _label,
        _args,
        _error,
        _match,
        **{"convolution": _square, **_params},
    )
