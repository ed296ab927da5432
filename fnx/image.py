"""fnx.image: resize, scale_and_translate, with JAX's names and values.

Receives arrays with any axes, of which some are resampled: each by a matrix of weights,
made of a kernel around the place that a pixel of the output comes from. Next on the
walk: `flatten_util.py`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fnx.numpy as np_
from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.lax import Precision
from fnx.numpy.operands import (
    ArrayLike,
    as_array,
    axis_index,
    inexact_dtype,
    shape_tuple,
)
from fnx.records import record


class ResizeMethod(enum.Enum):
    """How the pixels in between are made; `resize` says which is which."""

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method of that name; `OptionError` where there is none.

        >>> ResizeMethod.from_string("bilinear")
        <ResizeMethod.LINEAR: 1>
        """
        if s not in _NAMES:
            raise errors.OptionError(
                f"resize method {s!r} is none of {', '.join(_NAMES)}"
            )
        return _NAMES[s]


_NAMES = {
    "nearest": ResizeMethod.NEAREST,
    **dict.fromkeys(
        ("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR
    ),
    "lanczos3": ResizeMethod.LANCZOS3,
    "lanczos5": ResizeMethod.LANCZOS5,
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
    **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), ResizeMethod.CUBIC_PYTORCH),
    "area": ResizeMethod.AREA,
}


def resize(
    image: ArrayLike,
    shape: Sequence[int],
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = Precision.HIGHEST,
) -> Array:
    """The image with another shape; axes whose size stays are not touched.

    `shape` has a size for every axis, those of the batch and the channels included.
    `method` is a `ResizeMethod` or its name: "nearest"; "linear"; "cubic" (Keys);
    "cubic-pytorch" (the kernel and the edges of PyTorch, where `antialias` is off; else
    "cubic"); "lanczos3" and "lanczos5"; "area" (the mean of what a pixel covers).
    `antialias` widens the kernel where an axis shrinks. `precision` is that of the
    products. The result is a float, in the image's dtype if that is one; "nearest"
    keeps every dtype.

    Raises `ShapeError` for a shape of another rank, `OptionError` for other methods.

    >>> import numpy as np
    >>> resize(np.float32([[0.0, 1.0]]), (1, 4), "linear")
    Array([[0.  , 0.25, 0.75, 1.  ]], dtype=float32)
    """
    array = as_array("resize", image)
    sizes = _shape("resize", shape, array)
    way = _method(method)
    moving = [d for d in range(array.ndim) if array.shape[d] != sizes[d]]
    if way is ResizeMethod.NEAREST:
        for d in moving:
            array = np_.take(array, _nearest(array.shape[d], sizes[d]), axis=d)
        return array
    # A size of 0 has no scale, and needs none.
    scale = [
        sizes[d] / array.shape[d] if sizes[d] and array.shape[d] else 1.0
        for d in moving
    ]
    return _resampled(
        array, sizes, moving, scale, [0.0] * len(moving), way, antialias, precision
    )


def scale_and_translate(
    image: ArrayLike,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: Any,
    translation: Any,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = Precision.HIGHEST,
) -> Array:
    """The image with place x of an axis moved to `x * scale + translation`.

    `scale` and `translation` are vectors with one number for each of `spatial_dims`,
    the axes that move; `shape` is that of the result. Pixels have their centres at
    halves, and those that come from outside of the image are 0. Methods, `antialias`
    and `precision` are those of `resize`, but "nearest". Differentiable by the image,
    the scale and the translation.

    Raises `ShapeError` and `AxisError` where ranks and axes do not fit, `OptionError`
    for other methods.

    >>> import numpy as np
    >>> x, two = np.float32([1, 2, 3]), np.float32([2])
    >>> scale_and_translate(x, (4,), (0,), two, np.float32([1]), "linear").tolist()
    [0.0, 1.0, 1.25, 1.75]
    """
    array = as_array("scale_and_translate", image)
    sizes = _shape("scale_and_translate", shape, array)
    way = _method(method)
    if way is ResizeMethod.NEAREST:
        raise errors.OptionError(
            "scale_and_translate: method 'nearest' is one of resize alone"
        )
    axes = [axis_index("scale_and_translate", d, array.ndim) for d in spatial_dims]
    if len(set(axes)) < len(axes):
        raise errors.AxisError(
            f"scale_and_translate: spatial_dims {spatial_dims!r} names an axis twice"
        )
    vectors = []
    for name, given in (("scale", scale), ("translation", translation)):
        vector = as_array("scale_and_translate", given)
        if vector.shape != (len(axes),):
            raise errors.ShapeError(
                errors.explain(
                    f"scale_and_translate: {name} is {vector.type}",
                    f"there are {len(axes)} spatial_dims",
                    "pass a vector with a number for each",
                )
            )
        vectors.append([vector[i] for i in range(len(axes))])
    scales, shifts = vectors
    return _resampled(array, sizes, axes, scales, shifts, way, antialias, precision)


# ---------------------------------------------------------------- resampling


def _nearest(old: int, new: int) -> Any:
    """The pixels that hold the centres of the new ones, in exact arithmetic."""
    return (2 * np.arange(new, dtype=np.int64) + 1) * old // max(2 * new, 1)


def _resampled(
    image: Array,
    shape: tuple[int, ...],
    axes: Sequence[int],
    scale: Sequence[Any],
    translation: Sequence[Any],
    method: ResizeMethod,
    antialias: bool,
    precision: Any,
) -> Array:
    """Each axis multiplied by its weights."""
    dtype = inexact_dtype(image.dtype)
    image = np_.asarray(image, dtype)
    if method is ResizeMethod.CUBIC_PYTORCH and antialias:
        method = ResizeMethod.CUBIC
    letters = list(range(image.ndim))
    operands: list[Any] = [image, letters]
    result = list(letters)
    for number, d in enumerate(axes):
        place = _Place(image.shape[d], shape[d], scale[number], translation[number])
        weights = _weights(place, method, antialias, dtype)
        result[d] = image.ndim + number
        operands += [np_.asarray(weights, dtype), [d, result[d]]]
    if len(operands) == 2:
        return image
    return np_.einsum(*operands, result, precision=precision)


@record
class _Place:
    """Where the pixels of an axis come from."""

    old: int
    new: int
    scale: Any
    translation: Any


def _weights(
    place: _Place, method: ResizeMethod, antialias: bool, dtype: np.dtype[Any]
) -> Any:
    """For each old pixel (rows) its part in each of the new ones (columns)."""
    wide = np_.promote_types(dtype, dtypes.float32)
    for number in (place.scale, place.translation):
        if isinstance(number, Array) and dtypes.is_float(number.dtype):
            wide = np_.promote_types(wide, number.dtype)
    inverse: Any = 1 / np_.asarray(place.scale, wide)
    start: Any = np_.asarray(place.translation, wide) * inverse
    numbers: Any = np_.arange(place.new, dtype=wide)
    centres: Any = (numbers + 0.5) * inverse - start - 0.5
    inside = ((centres >= -0.5) & (centres <= place.old - 0.5))[None, :]
    if method is ResizeMethod.AREA:
        left: Any = numbers * inverse - start
        weights = _overlaps(place, left, left + inverse, wide)
        return np_.where(inside, _normalized(weights), 0)
    radius, kernel = _KERNELS[method]
    stretch = np_.maximum(inverse, 1) if antialias else 1
    edges = radius if method is ResizeMethod.CUBIC_PYTORCH else 0
    places: Any = np_.arange(-edges, place.old + edges, dtype=wide)
    weights = kernel(np_.abs(centres[None, :] - places[:, None]) / stretch)
    if edges:
        return _normalized(_at_edges(weights, edges, place.old))
    return np_.where(inside, _normalized(weights), 0)


def _overlaps(place: _Place, left: Any, right: Any, dtype: np.dtype[Any]) -> Any:
    """How much of each old pixel each new one covers."""
    pixel: Any = np_.arange(place.old, dtype=dtype)[:, None]
    ends = np_.minimum(right[None, :], pixel + 1)
    return np_.maximum(ends - np_.maximum(left[None, :], pixel), 0)


def _at_edges(weights: Any, edges: int, size: int) -> Any:
    """The weights of pixels beyond the ends, added to those of the pixels there."""
    first = np_.sum(weights[: edges + 1], 0, keepdims=True)
    if size == 1:
        return np_.sum(weights, 0, keepdims=True)
    last = np_.sum(weights[edges + size - 1 :], 0, keepdims=True)
    return np_.concatenate([first, weights[edges + 1 : edges + size - 1], last])


def _normalized(weights: Any) -> Any:
    """Weights that add up to 1, or 0 where they nearly add up to nothing."""
    total: Any = np_.sum(weights, 0, keepdims=True)
    size: Any = np_.abs(total)
    some = size > 1000 * float(np.finfo(np.float32).eps)
    return np_.where(some, weights / np_.where(some, total, 1), 0)


# ---------------------------------------------------------------- kernels


def _triangle(x: Any) -> Any:
    return np_.maximum(0, 1 - x)


def _keys(x: Any) -> Any:
    """R. Keys, "Cubic convolution interpolation", 1981, with a = -1/2."""
    near = ((1.5 * x - 2.5) * x) * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np_.where(x < 1, near, np_.where(x < 2, far, 0))


def _keys_pytorch(x: Any) -> Any:
    """The same with a = -3/4, as in OpenCV and PyTorch."""
    near = (1.25 * x - 2.25) * x * x + 1
    far = ((-0.75 * x + 3.75) * x - 6) * x + 3
    return np_.where(x < 1, near, np_.where(x < 2, far, 0))


def _lanczos(radius: int) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        safe = np_.where(x > 1e-3, x, 1)
        waves = np_.sin(math.pi * safe) * np_.sin(math.pi * safe / radius)
        wave = np_.where(x > 1e-3, radius * waves / (math.pi**2 * safe * safe), 1)
        return np_.where(x > radius, 0, wave)

    return kernel


_KERNELS: dict[ResizeMethod, tuple[int, Callable[[Any], Any]]] = {
    ResizeMethod.LINEAR: (1, _triangle),
    ResizeMethod.LANCZOS3: (3, _lanczos(3)),
    ResizeMethod.LANCZOS5: (5, _lanczos(5)),
    ResizeMethod.CUBIC: (2, _keys),
    ResizeMethod.CUBIC_PYTORCH: (2, _keys_pytorch),
}


# ---------------------------------------------------------------- arguments


def _shape(asker: str, shape: Any, image: Array) -> tuple[int, ...]:
    sizes = shape_tuple(asker, shape)
    if len(sizes) != image.ndim:
        raise errors.ShapeError(
            errors.explain(
                f"{asker}: shape is {sizes}",
                f"image is {image.type}",
                "give a size for every axis",
            )
        )
    return sizes


def _method(method: Any) -> ResizeMethod:
    if isinstance(method, ResizeMethod):
        return method
    if not isinstance(method, str):
        raise errors.OptionError(
            f"method must be a name or a ResizeMethod, got {method!r}"
        )
    return ResizeMethod.from_string(method)
