"""The forms of operands in which a convolution is a product of patches and kernel.

A patch is what a window covers, written out as a row (or a column) of a matrix. In each
`Form` BLAS reads patches and kernel where they lie: features are the last axis, or
space is; and patches are rows that the batch is made of, or they are summed over, as in
the gradient of the kernel. Receives operands in a form, gives the output in it.
Next on the walk: `dense.py`, which brings them into one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.ops.convolution import ConvDimensionNumbers, Convolution
from fnx.ops.dot import dot_general
from fnx.ops.pieces import slice_
from fnx.ops.rearrange import Ints
from fnx.ops.shape import permute, reshaped
from fnx.ops.windows import Windows, patches
from fnx.records import record


@record
class Form:
    """How operands and output lie.

    `last`: features are the last axis, space comes before. `summed`: the leading axis
    of both operands is summed over; otherwise it is the batch.
    """

    last: bool
    summed: bool

    def dims(self, ndim: int) -> ConvDimensionNumbers:
        """The axes of the operands and of the output."""
        inner = tuple(range(1, ndim - 1)) if self.last else tuple(range(2, ndim))
        feature = ndim - 1 if self.last else 1
        window = tuple(range(ndim - 2)) if self.last else tuple(range(2, ndim))
        if self.summed:
            out = (ndim - 2, ndim - 1) if self.last else (1, 0)
            return ConvDimensionNumbers(
                (feature, 0, *inner), (feature, 0, *inner), (*out, *window)
            )
        kernel = (ndim - 1, ndim - 2) if self.last else (0, 1)
        return ConvDimensionNumbers(
            (0, feature, *inner), (*kernel, *window), (0, feature, *inner)
        )


# ---------------------------------------------------------------- products of patches


def form_product(form: Form, convolution: Convolution, x: Any, kernel: Any) -> Any:
    """The convolution as products of patches and the kernel, all of them in the form.

    Features are cut into groups, which are a batch axis of the product.
    """
    shape = convolution.output_shape(x.shape, kernel.shape)
    made = (_rows_last, _rows_first, _sums_last, _sums_first)[
        2 * form.summed + (not form.last)
    ]
    y = made(x, kernel, convolution.windows, convolution.groups)
    return reshaped(y, shape)


def _rows_last(x: Any, kernel: Any, windows: Windows, groups: int) -> Any:
    """Of x (n, *space, features), kernel (*window, features, outs)."""
    rank = x.ndim - 2
    x, kernel = _cut(x, rank + 1, groups), _cut(kernel, rank + 1, groups)
    n, *space, group, c = range(rank + 3)
    window = _after(x.ndim, rank)
    rows = _patches(x, windows, 1, (group, n, *space, *window, c))
    y = dot_general(
        rows,
        kernel,
        contract=(_after(rank + 2, rank + 1), _after(0, rank + 1)),
        batch=((0,), (rank + 1,)),
    )
    return permute(y, dims=(*_after(1, rank + 1), 0, rank + 2))


def _rows_first(x: Any, kernel: Any, windows: Windows, groups: int) -> Any:
    """Of x (n, features, *space), kernel (outs, features, *window)."""
    rank = x.ndim - 2
    x, kernel = _cut(x, 1, groups), _cut(kernel, 0, groups)
    n, group, c, *space = range(rank + 3)
    window = _after(x.ndim, rank)
    columns = _patches(x, windows, 3, (n, group, c, *window, *space))
    y = dot_general(
        kernel,
        columns,
        contract=(_after(2, rank + 1), _after(2, rank + 1)),
        batch=((0,), (1,)),
    )
    return permute(y, dims=(2, 0, 1, *_after(3, rank)))


def _sums_last(x: Any, kernel: Any, windows: Windows, groups: int) -> Any:
    """Of x (n, *space, features), kernel (n, *window, outs)."""
    rank = x.ndim - 2
    x, kernel = _cut(x, rank + 1, groups), _cut(kernel, rank + 1, groups)
    n, *space, group, c = range(rank + 3)
    window = _after(x.ndim, rank)
    rows = _patches(x, windows, 1, (group, n, *window, *space, c))
    y = dot_general(
        rows,
        kernel,
        contract=(_after(1, rank + 1), _after(0, rank + 1)),
        batch=((0,), (rank + 1,)),
    )
    return permute(y, dims=(*_after(1, rank + 1), 0, rank + 2))


def _sums_first(x: Any, kernel: Any, windows: Windows, groups: int) -> Any:
    """Of x (n, features, *space), kernel (n, outs, *window)."""
    rank = x.ndim - 2
    x, kernel = _cut(x, 1, groups), _cut(kernel, 1, groups)
    n, group, c, *space = range(rank + 3)
    window = _after(x.ndim, rank)
    rows = _patches(x, windows, 3, (group, c, *space, n, *window))
    return dot_general(
        kernel,
        rows,
        contract=((0, *_after(3, rank)), _after(rank + 2, rank + 1)),
        batch=((1,), (0,)),
    )


def _after(first: int, count: int) -> Ints:
    """So many axes in a row."""
    return tuple(range(first, first + count))


def _cut(x: Any, axis: int, groups: int) -> Any:
    """The array with an axis as one of groups and one of what is in them."""
    size = x.shape[axis] // groups
    return reshaped(x, (*x.shape[:axis], groups, size, *x.shape[axis + 1 :]))


def _patches(x: Any, windows: Windows, first: int, order: Ints) -> Any:
    """What windows cover; `first` is the first spatial axis of x.

    The axes are those of x, then those of a window, in the given order.
    """
    ndim, rank = x.ndim, len(windows.size)
    kinds = _plain_axes(windows, x.shape[first : first + rank])
    if None not in kinds:
        return _plain_patches(x, windows, first, order, kinds)
    counts = windows.over(x.shape[first : first + rank])
    sizes = (*x.shape[:first], *counts, *x.shape[first + rank :], *windows.size)
    single = [d for d in range(ndim) if not first <= d < first + rank]
    dims = [ndim + d for d in single]
    dims += [d if d < ndim else d + first for d in order]
    beside = windows.beside(first, ndim - first - rank)
    found = patches(x, windows=beside, dims=tuple(dims))
    return reshaped(found, tuple([sizes[d] for d in order]))


def _plain_patches(
    x: Any, windows: Windows, first: int, order: Ints, kinds: Sequence[Any]
) -> Any:
    """What single elements, or whole axes, cover: the elements of x, permuted."""
    ndim = x.ndim
    pairs = zip(kinds, windows.strides, strict=True)
    strides = [1] * first + [step if kind == _SINGLE else 1 for kind, step in pairs]
    strides += [1] * (ndim - len(strides))
    if any(step > 1 for step in strides):
        x = slice_(x, start=(0,) * ndim, stop=x.shape, strides=tuple(strides))
    # Where each axis of x is in the order: as one of windows, or of what they cover.
    places = list(range(ndim))
    for axis, kind in enumerate(kinds):
        if kind == _WHOLE:
            places[first + axis] = ndim + axis
    dims = tuple([places.index(d) for d in order if d in places])
    shape = dict(zip(places, x.shape, strict=True))
    return reshaped(permute(x, dims=dims), tuple([shape.get(d, 1) for d in order]))


_SINGLE, _WHOLE = "single", "whole"


def _plain_axes(windows: Windows, space: Ints) -> list[str | None]:
    """For each spatial axis whether a window is one element, or all there is."""
    kinds: list[str | None] = []
    for n, (size, _, _, _, spread) in zip(space, windows.rows, strict=True):
        whole = size == n and spread == 1
        kinds.append(_SINGLE if size == 1 else _WHOLE if whole else None)
    return kinds


def is_plain(convolution: Convolution, shape: Ints) -> bool:
    """Whether patches are the elements as they are (if nothing is padded)."""
    space = tuple([shape[d] for d in convolution.dims.lhs_spec[2:]])
    return None not in _plain_axes(convolution.windows, space)
