"""Cases of `fnx/ops/fft.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import errors
from tests.cases import BAD_CASES, CASES, BadCase, Case


def numbers(*shape: int, dtype: str) -> Any:
    def args(rng: np.random.Generator) -> tuple[Any, ...]:
        x = rng.standard_normal(shape)
        if np.dtype(dtype).kind == "c":
            x = x + 1j * rng.standard_normal(shape)
        return (x.astype(dtype),)

    return args


def jax_fft(x: Any, *, kind: str, lengths: Any, axes: Any) -> Any:
    """The oracle, which transforms the last axes."""
    import jax  # only where it is asked

    last = tuple(range(x.ndim - len(axes), x.ndim))
    moved = jax.numpy.moveaxis(x, axes, last)
    return jax.numpy.moveaxis(jax.lax.fft(moved, kind, lengths), last, axes)


def _params(kind: str, lengths: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    return {"kind": kind, "lengths": lengths, "axes": axes}


_SIGNALS = (
    ((8,), (0,)),
    ((1,), (0,)),
    ((7, 3), (0,)),
    ((2, 6, 5), (1,)),
    ((2, 3, 4), (2, 1)),
    ((3, 2, 5), (0, 1, 2)),
    ((2, 4, 1, 3), (3, 0, 1)),
    ((4, 3, 2, 2, 5), (0, 2, 4, 1)),
)
for _shape, _axes in _SIGNALS:
    _lengths = tuple(_shape[axis] for axis in _axes)
    _half = list(_shape)
    _half[_axes[-1]] = _lengths[-1] // 2 + 1
    for _kind, _given, _dtypes in (
        ("FFT", _shape, ("c8", "c16")),
        ("IFFT", _shape, ("c8", "c16")),
        ("RFFT", _shape, ("f4", "f8")),
        ("IRFFT", tuple(_half), ("c8", "c16")),
    ):
        for _dtype in _dtypes:
            CASES.append(
                Case(
                    "fft",
                    f"{_kind}-{_shape}-{_axes}-{_dtype}",
                    numbers(*_given, dtype=_dtype),
                    _params(_kind, _lengths, _axes),
                    smooth=(0,),
                    linear=((0,),),
                    ulp=128,  # some values are small beside the others
                    oracle=jax_fft if len(_axes) < 4 and _dtype == "c16" else None,
                )
            )
CASES.append(Case("fft", "none", numbers(0, 4, dtype="c8"), _params("FFT", (4,), (1,))))


def _bad(
    label: str, shape: Any, dtype: str, params: Any, error: Any, match: str
) -> Any:
    args = numbers(*shape, dtype=dtype)
    return BadCase("fft", label, args, error, match, params)


BAD_CASES.extend(
    [
        _bad(
            "kind", (4,), "c8", _params("DCT", (4,), (0,)), errors.OptionError, "kinds"
        ),
        _bad(
            "axis", (4,), "c8", _params("FFT", (4,), (1,)), errors.AxisError, "axis 1"
        ),
        _bad(
            "twice",
            (4, 4),
            "c8",
            _params("FFT", (4, 4), (0, 0)),
            errors.AxisError,
            "twice",
        ),
        _bad(
            "none", (4,), "c8", _params("FFT", (), ()), errors.ShapeError, "one length"
        ),
        _bad(
            "length",
            (4,),
            "c8",
            _params("FFT", (5,), (0,)),
            errors.ShapeError,
            "axis 0 must have length 5",
        ),
        _bad(
            "zero", (0,), "c8", _params("FFT", (0,), (0,)), errors.ShapeError, "least 1"
        ),
        _bad(
            "half",
            (4,),
            "c8",
            _params("IRFFT", (4,), (0,)),
            errors.ShapeError,
            "length 3, not 4",
        ),
        _bad(
            "real", (4,), "c8", _params("RFFT", (4,), (0,)), errors.DTypeError, "float"
        ),
        _bad(
            "complex",
            (4,),
            "f4",
            _params("FFT", (4,), (0,)),
            errors.DTypeError,
            "complex",
        ),
        _bad(
            "narrow",
            (4,),
            "f2",
            _params("RFFT", (4,), (0,)),
            errors.DTypeError,
            "float",
        ),
    ]
)
