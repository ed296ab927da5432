"""What NumPy computes in one go, where the functions here take many operations.

Receives and gives NumPy arrays, for `fnx.api.at_once`: each of these stands beside the
function of the same name, which says what it does, and gives the same values in the
same dtypes. `NotImplemented` is for that function to do. Next on the walk:
`counting.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import dtypes
from fnx.api.at_once import plain

# NumPy sums products one by one: with more of them compiled code is quicker.
_MOST_PRODUCTS = 1 << 14
# Sorts of more elements take other ways than NumPy's stable one.
_FEW = 256
# Determinants of matrices of so many rows at most are written out.
SMALL_DET = 4
_AXES = frozenset([int, type(None)])
_INTEGERS = frozenset(map(np.dtype, np.typecodes["AllInteger"]))


def _integers(*arrays: Any) -> bool:
    for x in arrays:
        if type(x) is not np.ndarray or x.dtype not in _INTEGERS:
            return False
    return True


def _floats(x: Any, *others: Any) -> bool:
    """Whether these are arrays of one dtype, float32 or float64."""
    alike = plain(x, *others) and x.dtype.kind == "f"
    return alike and all(map(x.dtype.__eq__, [y.dtype for y in others]))


def _alike(x: Any, y: Any) -> bool:
    return plain(x, y) and x.dtype is y.dtype


def _int(x: Any) -> Any:
    return x.astype(dtypes.default_int(), copy=False)


# ---------------------------------------------------------------- counts, places


def bincount(
    x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None
) -> Any:
    """Sums in the order of the elements, in the dtype of the weights."""
    if not _integers(x) or x.ndim != 1:
        return NotImplemented
    if weights is None and length is None:
        try:
            return _int(np.bincount(x, None, minlength))
        except ValueError:
            pass  # negative ones are left out
    elif weights is not None:
        usual = plain(weights) and weights.shape == x.shape
        if not usual or weights.dtype.kind == "b":
            return NotImplemented
    top = int(x.max()) + 1 if length is None and x.size else length or 0
    inside = (x >= 0) & (x < max(top, 0))
    places = x[inside].astype(np.intp)
    top = max(minlength, top) if length is None else length
    if weights is None:
        return _int(np.bincount(places, None, top))
    sums = np.zeros(top, weights.dtype)
    np.add.at(sums, places, weights[inside])
    return sums


def nonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The default integer's dtype."""
    if not plain(a) or not a.ndim or size is not None:
        return NotImplemented
    return tuple([_int(places) for places in a.nonzero()])


def argmax(
    a: Any, axis: int | None = None, out: None = None, keepdims: bool = False
) -> Any:
    """The default integer's dtype."""
    usual = plain(a) and a.ndim and out is None and not keepdims
    if not usual or type(axis) not in _AXES:
        return NotImplemented
    return np.asarray(a.argmax(axis), dtypes.default_int())


def argmin(
    a: Any, axis: int | None = None, out: None = None, keepdims: bool = False
) -> Any:
    """The default integer's dtype."""
    usual = plain(a) and a.ndim and out is None and not keepdims
    if not usual or type(axis) not in _AXES:
        return NotImplemented
    return np.asarray(a.argmin(axis), dtypes.default_int())


def sort(
    a: Any,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Any:
    """As NumPy's stable sort, of few elements."""
    usual = plain(a) and a.size <= _FEW and kind is order is None and not descending
    if not usual or type(axis) not in _AXES:
        return NotImplemented
    found = a.flatten() if axis is None else a.copy()
    found.sort(-1 if axis is None else axis, "stable")
    return found


def argsort(
    a: Any,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
    dtype: Any = None,
) -> Any:
    """As NumPy's stable one, of few elements; the default integer's dtype."""
    few = plain(a) and a.ndim and a.size <= _FEW
    if not few or not kind is order is dtype is None or descending:
        return NotImplemented
    if type(axis) not in _AXES:
        return NotImplemented
    x = a.reshape(-1) if axis is None else a
    return _int(x.argsort(-1 if axis is None else axis, "stable"))


def searchsorted(
    a: Any, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan"
) -> Any:
    """Places have the default int dtype."""
    known = method in ("scan", "scan_unrolled", "sort", "compare_all", "default")
    if not _alike(a, v) or a.ndim != 1 or sorter is not None or not known:
        return NotImplemented
    return _int(np.asarray(a.searchsorted(v, side)))


def digitize(x: Any, bins: Any, right: bool = False, *, method: Any = None) -> Any:
    """Numbers of bins have the default int dtype."""
    if not _alike(x, bins) or bins.ndim != 1 or bins.size < 2 or method is not None:
        return NotImplemented
    side = "left" if right else "right"
    if bins[0] <= bins[-1] or bins[-1] != bins[-1]:
        found = bins.searchsorted(x, side)
    else:
        found = bins.size - bins[::-1].searchsorted(x, side)
    return _int(np.asarray(found))


def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    """The same arithmetic as in compiled code."""
    usual = _floats(x, xp, fp) and xp.ndim == 1 and xp.shape == fp.shape
    if not usual or xp.size < 2 or not left is right is period is None:
        return NotImplemented
    below = xp[1:-1].searchsorted(x, "right")
    width = (xp[1:] - xp[:-1]).take(below)
    y0 = fp.take(below)
    share = (x - xp.take(below)) / width
    line = np.asarray(y0 + share * (fp[1:] - fp[:-1]).take(below))
    np.putmask(line, width == 0, y0)
    np.putmask(line, x < xp[0], fp[0])
    np.putmask(line, x > xp[-1], fp[-1])
    return line


def histogram(
    a: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: Any = None
) -> Any:
    """Of few numbers, from the smallest to the largest."""
    usual = _floats(a) and 0 < a.size <= _MOST_PRODUCTS and type(bins) is int
    if not usual or bins < 1 or not range is weights is None or density:
        return NotImplemented
    low, high = a.min(), a.max()
    half = a.dtype.type(0.5 if low == high else 0)
    first, last = float(low - half), float(high + half)
    if not last - first < np.inf:
        return NotImplemented
    edges = np.empty(bins + 1, a.dtype)
    edges[:-1] = np.arange(bins) * ((last - first) / bins) + first
    edges[-1] = last
    places = edges[:-1].searchsorted(a.reshape(-1), "right")
    return np.bincount(places, None, bins + 1)[1:].astype(a.dtype), edges


# ---------------------------------------------------------------- chosen elements


def take(
    a: Any,
    indices: Any,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: Any = None,
) -> Any:
    """As NumPy, which refuses places out of range."""
    usual = plain(a) and _integers(indices) and type(axis) in _AXES
    if not usual or out is not None or mode is not None:
        return NotImplemented
    return np.asarray(a.take(indices, axis))


def compress(
    condition: Any,
    a: Any,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: Any = 0,
    out: None = None,
) -> Any:
    """As NumPy."""
    if not plain(condition, a) or size is not None or out is not None:
        return NotImplemented
    return np.compress(condition.astype(bool, copy=False), a, axis)


def extract(
    condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0
) -> Any:
    """As NumPy."""
    usual = plain(condition, arr) and condition.shape == arr.shape
    if not usual or size is not None:
        return NotImplemented
    return arr[condition.astype(bool, copy=False)]


def take_along_axis(
    arr: Any,
    indices: Any,
    axis: int | None = -1,
    mode: str | None = None,
    fill_value: Any = None,
    *,
    wrap_negative_indices: bool | None = None,
) -> Any:
    """As NumPy, which refuses places out of range."""
    if not plain(arr) or not _integers(indices) or arr.ndim != indices.ndim:
        return NotImplemented
    if mode is not None or wrap_negative_indices is False:
        return NotImplemented
    return np.take_along_axis(arr, indices, axis)


def delete(
    arr: Any,
    obj: Any,
    axis: int | None = None,
    *,
    assume_unique_indices: bool = False,
) -> Any:
    """As NumPy."""
    if not plain(arr) or type(obj) not in (int, slice):
        return NotImplemented
    return np.delete(arr, obj, axis)


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """As NumPy, for one place of a vector."""
    usual = plain(arr) and type(obj) is int and (arr.ndim == 1 or axis is None)
    number = type(values) is int and arr.dtype.kind in "iuf"
    number = number or (type(values) is float and arr.dtype.kind == "f")
    if not usual or not (number or (_alike(arr, values) and values.ndim < 2)):
        return NotImplemented
    return np.insert(arr, obj, values, axis)


def unravel_index(indices: Any, shape: Any) -> Any:
    """As NumPy, which refuses places out of range; the places' dtype."""
    if not _integers(indices) or indices.dtype.itemsize < 4:
        return NotImplemented
    found = np.unravel_index(indices, shape)
    return tuple([np.array(places, indices.dtype) for places in found])


# ---------------------------------------------------------------- numbers


def gcd(x1: Any, x2: Any) -> Any:
    """As NumPy."""
    if not _integers(x1, x2) or x1.dtype is not x2.dtype:
        return NotImplemented
    return np.asarray(np.gcd(x1, x2))


def lcm(x1: Any, x2: Any) -> Any:
    """As NumPy, where it fits."""
    if not _integers(x1, x2) or x1.dtype is not x2.dtype:
        return NotImplemented
    return np.abs(np.asarray(np.lcm(x1, x2)))


def frexp(x: Any, /) -> Any:
    """As NumPy; the exponent of infinities and NaN is 0."""
    if not _floats(x):
        return NotImplemented
    mantissa, exponent = np.frexp(x)
    return np.asarray(mantissa), np.asarray(exponent)


def bitwise_count(x: Any, /) -> Any:
    """As NumPy."""
    return np.asarray(np.bitwise_count(x)) if _integers(x) else NotImplemented


def sort_complex(a: Any) -> Any:
    """Of real numbers as NumPy."""
    if not plain(a) or a.dtype.kind != "f" or not a.ndim:
        return NotImplemented
    return np.sort(a, kind="stable").astype(dtypes.complex_dtype(a.dtype))


def packbits(a: Any, axis: int | None = None, bitorder: str = "big") -> Any:
    """As NumPy."""
    usual = plain(a) and a.dtype.kind in "biu"
    if not usual:
        return NotImplemented
    return np.packbits(a, axis, bitorder)  # type: ignore[call-overload]


def unpackbits(
    a: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Any:
    """As NumPy."""
    if not plain(a):
        return NotImplemented
    return np.unpackbits(a, axis=axis, count=count, bitorder=bitorder)  # type: ignore[call-overload]


def median(
    a: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:
    """The half of a `quantile`."""
    return quantile(a, 0.5, axis, out, overwrite_input, "linear", keepdims)


def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Any:
    """One of few elements: the arithmetic of compiled code."""
    usual = _floats(a) and 0 < a.size <= _FEW and type(q) in (float, int)
    usual = usual and method == "linear" and type(axis) in _AXES and 0 <= q <= 1
    if not usual or out is not None or keepdims or weights is not None:
        return NotImplemented
    ordered = a.flatten() if axis is None else np.moveaxis(a, axis, -1).copy()
    ordered.sort(-1, "stable")
    kind, n = a.dtype.type, ordered.shape[-1]
    position = kind(q) * kind(n - 1)
    low = int(position)
    high = min(low + 1, n - 1) if position > low else low
    weight = position - kind(low)
    if ordered.ndim == 1:
        below, above = ordered[low], ordered[high]
        gap = kind(0) if below >= above else above - below
        is_nan = ordered[-1] != ordered[-1]  # NaNs are the last ones
        return np.asarray(np.nan if is_nan else below + gap * weight, kind)
    below, above, last = ordered[..., low], ordered[..., high], ordered[..., -1]
    gap = np.where(below >= above, kind(0), above - below)
    return np.where(last != last, kind(np.nan), below + gap * weight)


def nanmedian(
    a: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:
    """As NumPy, of all elements."""
    usual = _floats(a) and a.size and axis is None and not overwrite_input
    if not usual or out is not None or keepdims:
        return NotImplemented
    known = a[a == a]
    return np.asarray(np.median(known) if known.size else np.nan, a.dtype)


# ---------------------------------------------------------------- sums of products


def convolve(
    a: Any,
    v: Any,
    mode: str = "full",
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """As NumPy, for few elements."""
    if not _vectors(a, v) or precision is not None or preferred_element_type:
        return NotImplemented
    return np.convolve(a, v, mode)  # type: ignore[call-overload]


def correlate(
    a: Any,
    v: Any,
    mode: str = "valid",
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """As NumPy, for few elements."""
    if not _vectors(a, v) or precision is not None or preferred_element_type:
        return NotImplemented
    return np.correlate(a, v, mode)  # type: ignore[call-overload]


def det(a: Any) -> Any:
    """As NumPy, of one matrix; small ones are written out in compiled code."""
    if not _floats(a) or a.ndim != 2 or a.shape[0] <= SMALL_DET:
        return NotImplemented
    return np.asarray(np.linalg.det(a))


def slogdet(a: Any) -> Any:
    """As NumPy, of one matrix."""
    if not _floats(a) or a.ndim != 2:
        return NotImplemented
    phase, size = np.linalg.slogdet(a)
    return np.asarray(phase), np.asarray(size)


def lstsq(
    a: Any, b: Any, rcond: float | None = None, *, numpy_resid: bool = False
) -> Any:
    """As NumPy, which leaves out some of the residuals."""
    usual = _floats(a, b) and a.ndim == 2 and a.size and 1 <= b.ndim <= 2 and b.size
    if not usual or numpy_resid:
        return NotImplemented
    if rcond is None:
        rcond = max(a.shape) * float(np.finfo(a.dtype).eps)
    found, _, rank, values = np.linalg.lstsq(a, b, rcond)
    rest = (b - a @ found).reshape(b.shape[0], -1)
    return found, (rest * rest).sum(0), _int(np.asarray(rank)), values


# ---------------------------------------------------------------- polynomials


def polyadd(a1: Any, a2: Any) -> Any:
    """As NumPy."""
    return np.polyadd(a1, a2) if _coefficients(a1, a2) else NotImplemented


def polysub(a1: Any, a2: Any) -> Any:
    """As NumPy."""
    return np.polysub(a1, a2) if _coefficients(a1, a2) else NotImplemented


def poly(seq_of_zeros: Any) -> Any:
    """As NumPy, of few roots."""
    usual = _floats(seq_of_zeros) and seq_of_zeros.ndim == 1 and seq_of_zeros.size
    if not usual:
        return NotImplemented
    return np.asarray(np.poly(seq_of_zeros), seq_of_zeros.dtype)


def polyfit(
    x: Any,
    y: Any,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: Any = None,
    cov: bool | str = False,
) -> Any:
    """As NumPy, but for its warning of matrices without full rank."""
    usual = _floats(x, y) and x.ndim == 1 and x.size and 1 <= y.ndim <= 2
    if not usual or len(x) != len(y) or deg < 0 or full or w is not None or cov:
        return NotImplemented
    if rcond is None:
        rcond = x.size * float(np.finfo(x.dtype).eps)
    left = np.vander(x, deg + 1).astype(x.dtype)
    scale = np.sqrt((left * left).sum(0))
    found = np.linalg.lstsq(left / scale, y, rcond)[0]
    return (found.T / scale).T


def _coefficients(x: Any, y: Any) -> bool:
    """Whether these are vectors of one dtype of numbers."""
    return _alike(x, y) and x.dtype.kind != "b" and x.ndim == y.ndim == 1


def _vectors(x: Any, y: Any) -> bool:
    """Whether these are vectors of few elements, of one dtype of numbers."""
    if not _alike(x, y) or x.dtype.kind == "b" or not x.ndim == y.ndim == 1:
        return False
    return 0 < x.size * y.size <= _MOST_PRODUCTS
