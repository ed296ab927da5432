"""Initial values of parameters: functions of (key, shape, dtype).

Receives nothing but scales and axes; gives initializers with the names of
`jax.nn.initializers`, which draw the same numbers as JAX's for the same key. The fans
are the sizes of the in and out axes times the size of the receptive field (all other
axes but the batch axes). Next on the walk: `fnx/optim`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

import fnx.numpy as np_
from fnx import dtypes, errors, random
from fnx.core.array import Array
from fnx.numpy import creation
from fnx.numpy.operands import ArrayLike, DTypeLike, axis_index, shape_tuple
from fnx.numpy.ufuncs import multiply
from fnx.ops.rearrange import without

Axes = int | Sequence[int]


class Initializer(Protocol):
    """A function that makes an array out of a key, a shape and a dtype."""

    def __call__(self, key: Any, shape: Any, dtype: DTypeLike = None) -> Array:
        """The initial values; the dtype is the initializer's unless given."""
        ...


def zeros(key: Any, shape: Any, dtype: DTypeLike = None) -> Array:
    """Zeros; the key is not used.

    >>> zeros(None, (2,))
    Array([0., 0.], dtype=float32)
    """
    return creation.zeros(shape, dtype)


def ones(key: Any, shape: Any, dtype: DTypeLike = None) -> Array:
    """Ones; the key is not used."""
    return creation.ones(shape, dtype)


def constant(value: ArrayLike, dtype: DTypeLike = None) -> Initializer:
    """An initializer that fills with a value.

    >>> constant(7.0)(None, (2,))
    Array([7., 7.], dtype=float32)
    """

    def init(key: Any, shape: Any, dtype: DTypeLike = dtype) -> Array:
        return creation.full(shape, value, _dtype(dtype))

    return init


def uniform(scale: float = 1e-2, dtype: DTypeLike = None) -> Initializer:
    """An initializer that draws uniformly from [0, scale).

    >>> uniform(2.0)(random.key(0), (2, 3)).shape
    (2, 3)
    """

    def init(key: Any, shape: Any, dtype: DTypeLike = dtype) -> Array:
        found = _dtype(dtype)
        return multiply(random.uniform(key, shape, found), _scalar(scale, found))

    return init


def normal(stddev: float = 1e-2, dtype: DTypeLike = None) -> Initializer:
    """An initializer that draws from a normal distribution of that deviation."""

    def init(key: Any, shape: Any, dtype: DTypeLike = dtype) -> Array:
        found = _dtype(dtype)
        return multiply(random.normal(key, shape, found), _scalar(stddev, found))

    return init


def truncated_normal(
    stddev: float = 1e-2,
    dtype: DTypeLike = None,
    lower: float = -2.0,
    upper: float = 2.0,
) -> Initializer:
    """An initializer that draws from a normal distribution cut to [lower, upper].

    The bounds are in units of `stddev`, the deviation before the cut.
    """

    def init(key: Any, shape: Any, dtype: DTypeLike = dtype) -> Array:
        found = _dtype(dtype)
        values = random.truncated_normal(key, lower, upper, shape, found)
        return multiply(values, _scalar(stddev, found))

    return init


def variance_scaling(
    scale: float,
    mode: str,
    distribution: str,
    in_axis: Axes = -2,
    out_axis: Axes = -1,
    batch_axis: Axes = (),
    dtype: DTypeLike = None,
) -> Initializer:
    """An initializer of variance scale / n, with n the fan that `mode` names.

    Modes: "fan_in", "fan_out", "fan_avg", "fan_geo_avg". Distributions:
    "truncated_normal" (cut at two deviations), "normal", "uniform".

    >>> init = variance_scaling(1.0, "fan_in", "normal")
    >>> init(random.key(0), (3, 4)).shape
    (3, 4)
    """
    if mode not in _MODES:
        raise errors.OptionError(f"mode {mode!r} is none of {', '.join(_MODES)}")
    if distribution not in _DISTRIBUTIONS:
        names = ", ".join(_DISTRIBUTIONS)
        raise errors.OptionError(f"distribution {distribution!r} is none of {names}")

    def init(key: Any, shape: Any, dtype: DTypeLike = dtype) -> Array:
        found = _dtype(dtype)
        sizes = shape_tuple("an initializer", shape)
        fans = _fans(sizes, in_axis, out_axis, batch_axis)
        variance = _scalar(scale / max(_MODES[mode](*fans), 1e-300), found)
        return _DISTRIBUTIONS[distribution](key, sizes, found, variance)

    return init


_MODES: dict[str, Any] = {
    "fan_in": lambda fan_in, fan_out: fan_in,
    "fan_out": lambda fan_in, fan_out: fan_out,
    "fan_avg": lambda fan_in, fan_out: (fan_in + fan_out) / 2,
    "fan_geo_avg": lambda fan_in, fan_out: math.sqrt(fan_in * fan_out),
}


def _fans(
    shape: tuple[int, ...], in_axis: Axes, out_axis: Axes, batch_axis: Axes
) -> tuple[float, float]:
    """The numbers of inputs and of outputs that a weight connects."""
    if len(shape) <= 1 and isinstance(in_axis, int):
        raise errors.ShapeError(
            f"fans need an in and an out axis, but the shape is {shape}; use "
            "initializers.normal or initializers.zeros for vectors"
        )
    sizes = [_size(shape, axes) for axes in (in_axis, out_axis, batch_axis)]
    total = math.prod(shape)
    if not total:
        return 1.0, 1.0
    receptive = total / math.prod(sizes)
    return sizes[0] * receptive, sizes[1] * receptive


def _size(shape: tuple[int, ...], axes: Axes) -> int:
    many = (axes,) if isinstance(axes, int) else axes
    return math.prod([shape[axis] for axis in many])


# The standard deviation of a normal distribution cut at two deviations.
_CUT_DEVIATION = 0.87962566103423978


def _truncated(key: Any, shape: Any, dtype: np.dtype[Any], variance: Any) -> Array:
    stddev = np.sqrt(variance) / _scalar(_CUT_DEVIATION, dtype)
    values = random.truncated_normal(key, -2, 2, shape, dtype)
    return multiply(values, _scalar(stddev, dtype))


def _normal(key: Any, shape: Any, dtype: np.dtype[Any], variance: Any) -> Array:
    stddev = _scalar(np.sqrt(variance), dtype)
    return multiply(random.normal(key, shape, dtype), stddev)


def _uniform(key: Any, shape: Any, dtype: np.dtype[Any], variance: Any) -> Array:
    bound = _scalar(np.sqrt(_scalar(3, dtype) * variance), dtype)
    return multiply(random.uniform(key, shape, dtype, -1), bound)


_DISTRIBUTIONS: dict[str, Any] = {
    "truncated_normal": _truncated,
    "normal": _normal,
    "uniform": _uniform,
}


def _dtype(dtype: DTypeLike) -> np.dtype[Any]:
    found = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype)
    if not dtypes.is_inexact(found):
        raise errors.DTypeError(f"an initializer makes floats, not {found.name}")
    return found


def _scalar(value: Any, dtype: np.dtype[Any]) -> Any:
    """A number rounded to the dtype that it is multiplied in, as in JAX."""
    return dtype.type(value)


def _scaled(name: str, scale: float, mode: str, distribution: str, source: str) -> Any:
    """One of the usual settings of `variance_scaling`, under its name."""

    def make(
        in_axis: Axes = -2,
        out_axis: Axes = -1,
        batch_axis: Axes = (),
        dtype: DTypeLike = None,
    ) -> Initializer:
        options = in_axis, out_axis, batch_axis, dtype
        return variance_scaling(scale, mode, distribution, *options)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = (
        f"`variance_scaling` with scale {scale:g}, {mode}, {distribution}.\n\n"
        f"    Source: {source}\n\n"
        f"    >>> {name}()(random.key(0), (3, 4)).shape\n    (3, 4)\n    "
    )
    return make


def orthogonal(
    scale: float = 1.0, column_axis: int = -1, dtype: DTypeLike = None
) -> Initializer:
    """An initializer that draws orthogonal matrices, times a scale.

    The matrix has the size of `column_axis` as its columns, and all other axes as its
    rows; the fewer of them are orthonormal. The shape has at least two axes.

    Source: A. Saxe et al., "Exact solutions to the nonlinear dynamics of learning in
    deep linear neural networks", 2013.

    >>> w = orthogonal()(random.key(0), (2, 3))
    >>> np.allclose(w @ w.T, np.eye(2), atol=1e-5)
    True
    """

    def init(key: Any, shape: Any, dtype: DTypeLike = dtype) -> Array:
        found = _dtype(dtype)
        sizes = shape_tuple("an initializer", shape)
        if len(sizes) < 2:
            raise errors.ShapeError(
                f"orthogonal: the shape needs at least two axes, got {sizes}"
            )
        axis = axis_index("orthogonal", column_axis, len(sizes), "column_axis")
        columns, others = sizes[axis], without(sizes, axis)
        matrix = random.orthogonal(key, math.prod(others), (), found, columns)
        whole = np_.moveaxis(np_.reshape(matrix, (*others, columns)), -1, axis)
        return multiply(_scalar(scale, found), whole)

    return init


def delta_orthogonal(
    scale: float = 1.0, column_axis: int = -1, dtype: DTypeLike = None
) -> Initializer:
    """An initializer for convolutions that keep the length of their input.

    The shape is that of a kernel over one to three axes, then inputs and outputs, of
    which there are at least as many. The centre is `orthogonal`, all else is 0.

    Source: L. Xiao et al., "Dynamical isometry and a mean field theory of CNNs", 2018.

    >>> delta_orthogonal()(random.key(0), (3, 2, 2))[0]
    Array([[0., 0.],
           [0., 0.]], dtype=float32)
    """
    centre = orthogonal(scale, column_axis)

    def init(key: Any, shape: Any, dtype: DTypeLike = dtype) -> Array:
        found = _dtype(dtype)
        sizes = shape_tuple("an initializer", shape)
        if not 3 <= len(sizes) <= 5 or sizes[-1] < sizes[-2]:
            raise errors.ShapeError(
                errors.explain(
                    f"delta_orthogonal: the shape is {sizes}",
                    "a kernel has one to three axes, then inputs, and at least as many "
                    "outputs",
                )
            )
        place = tuple([(size - 1) // 2 for size in sizes[:-2]])
        weights: Any = creation.zeros(sizes, found)
        return weights.at[place].set(centre(key, sizes[-2:], found))

    return init


_GLOROT = "X. Glorot, Y. Bengio, AISTATS 2010."
_HE = "K. He et al., ICCV 2015."
_LECUN = "Y. LeCun et al., Efficient BackProp, 1998."
_CUT = "truncated_normal"
glorot_uniform = _scaled("glorot_uniform", 1.0, "fan_avg", "uniform", _GLOROT)
glorot_normal = _scaled("glorot_normal", 1.0, "fan_avg", _CUT, _GLOROT)
he_uniform = _scaled("he_uniform", 2.0, "fan_in", "uniform", _HE)
he_normal = _scaled("he_normal", 2.0, "fan_in", _CUT, _HE)
lecun_uniform = _scaled("lecun_uniform", 1.0, "fan_in", "uniform", _LECUN)
lecun_normal = _scaled("lecun_normal", 1.0, "fan_in", _CUT, _LECUN)
xavier_uniform, xavier_normal = glorot_uniform, glorot_normal
kaiming_uniform, kaiming_normal = he_uniform, he_normal
