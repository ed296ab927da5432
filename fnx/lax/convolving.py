"""Convolutions under the names of `jax.lax`, and the arithmetic of their shapes.

Receives arrays, strides, paddings and dimension numbers as strings ("NHWC") or as
numbers of axes; gives what `fnx.ops.conv` takes. Next on the walk: `windowing.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike, DTypeLike, as_array, shape_tuple
from fnx.ops import conv as convs
from fnx.ops.convolution import ConvDimensionNumbers, Convolution
from fnx.ops.dot import check_precision, dot_general
from fnx.ops.rearrange import dilated, inverse
from fnx.ops.shape import permute, reshape, reverse
from fnx.ops.windows import Windows, patches

ConvGeneralDilatedDimensionNumbers = tuple[str, str, str] | ConvDimensionNumbers | None
"""What dimension numbers may be: strings such as "NHWC", or numbers of axes."""

Ints = Sequence[int]
Pads = Sequence[tuple[int, int]]

# ---------------------------------------------------------------- dimension numbers


def conv_dimension_numbers(
    lhs_shape: Ints, rhs_shape: Ints, dimension_numbers: Any
) -> ConvDimensionNumbers:
    """Dimension numbers as numbers of axes; `None` stands for NCHW, OIHW and NCHW.

    Spatial axes are in the order in which the kernel has them.

    >>> conv_dimension_numbers((1, 9, 9, 3), (3, 3, 3, 8), ("NHWC", "HWIO", "NHWC"))[1]
    (3, 2, 0, 1)
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    ndim = len(lhs_shape)
    asked = f"conv_dimension_numbers({tuple(lhs_shape)}, {tuple(rhs_shape)})"
    if ndim != len(rhs_shape):
        reason = f"the operands have {ndim} and {len(rhs_shape)} axes"
        fix = "both have two axes and one for each dimension of space"
        raise errors.ShapeError(errors.explain(asked, reason, fix))
    if dimension_numbers is None:
        every = tuple(range(ndim))
        return ConvDimensionNumbers(every, every, every)
    specs = tuple(dimension_numbers)
    if len(specs) != 3:
        reason = f"there are {len(specs)} dimension numbers"
        fix = "give those of lhs, of rhs and of the output"
        raise errors.ArgumentError(errors.explain(asked, reason, fix))
    for position, spec in enumerate(specs):
        if len(spec) != ndim:
            reason = f"dimension_numbers[{position}]={spec!r} must have length {ndim}"
            raise errors.ArgumentError(errors.explain(asked, reason))
    if not all(isinstance(spec, str) for spec in specs):
        return ConvDimensionNumbers(*[tuple(map(int, spec)) for spec in specs])
    return ConvDimensionNumbers(*conv_general_permutations(specs))


def conv_general_permutations(dimension_numbers: Any) -> tuple[Any, Any, Any]:
    """For each of three strings the axes of batch and features, then those of space.

    >>> conv_general_permutations(("NHWC", "HWIO", "NHWC"))
    ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    """
    lhs, rhs, out = dimension_numbers
    asked = f"dimension_numbers={tuple(dimension_numbers)}"
    space = [letter for letter in rhs if letter not in "OI"]
    found = []
    for spec, pair in ((lhs, "NC"), (rhs, "OI"), (out, "NC")):
        if any(spec.count(letter) != 1 for letter in pair):
            reason = f"{spec!r} must have the letters {pair[0]} and {pair[1]} once"
            raise errors.ArgumentError(errors.explain(asked, reason))
        rest = [letter for letter in spec if letter not in pair]
        if sorted(rest) != sorted(set(space)):
            reason = f"{spec!r} and {rhs!r} name other axes of space, or one twice"
            raise errors.ArgumentError(errors.explain(asked, reason))
        found.append(tuple([spec.index(letter) for letter in (*pair, *space)]))
    return found[0], found[1], found[2]


# ---------------------------------------------------------------- padding and shapes


def padtype_to_pads(
    in_shape: Ints, window_shape: Ints, window_strides: Ints, padding: Any
) -> list[tuple[int, int]]:
    """What a padding by name puts before and after each axis.

    "SAME" gives a window for every `stride` elements; where the padding is odd, the
    last one is after the axis, or before it in "SAME_LOWER". "VALID" puts nothing.

    >>> padtype_to_pads((5, 6), (3, 2), (2, 1), "SAME")
    [(1, 1), (0, 1)]
    """
    name = padding.upper() if isinstance(padding, str) else None
    if name not in ("SAME", "SAME_LOWER", "VALID"):
        asked = f"padtype_to_pads({tuple(in_shape)}, padding={padding!r})"
        fix = "take 'SAME', 'SAME_LOWER' or 'VALID', or pairs of numbers"
        raise errors.OptionError(errors.explain(asked, "an unknown padding", fix))
    if name == "VALID":
        return [(0, 0)] * len(in_shape)
    pads = []
    for n, size, stride in zip(in_shape, window_shape, window_strides, strict=True):
        total = max((-(-n // stride) - 1) * stride + size - n, 0)
        less, more = total // 2, total - total // 2
        pads.append((less, more) if name == "SAME" else (more, less))
    return pads


def conv_shape_tuple(
    lhs_shape: Ints,
    rhs_shape: Ints,
    strides: Ints,
    pads: Any,
    batch_group_count: int = 1,
) -> tuple[int, ...]:
    """The shape of a convolution of NCHW by OIHW.

    >>> conv_shape_tuple((1, 2, 5, 5), (3, 2, 3, 3), (1, 1), "SAME")
    (1, 3, 5, 5)
    """
    numbers = conv_dimension_numbers(lhs_shape, rhs_shape, None)
    windows = _windows("conv_shape_tuple", lhs_shape, rhs_shape, numbers, strides, pads)
    convolution = Convolution(numbers, windows, 1, batch_group_count)
    return convolution.output_shape(tuple(lhs_shape), tuple(rhs_shape))


def conv_general_shape_tuple(
    lhs_shape: Ints,
    rhs_shape: Ints,
    window_strides: Ints,
    padding: Any,
    dimension_numbers: Any,
) -> tuple[int, ...]:
    """The shape of a convolution without dilations or groups.

    >>> numbers = "NHWC", "HWIO", "NHWC"
    >>> conv_general_shape_tuple((1, 5, 5, 2), (3, 3, 2, 4), (1, 1), "SAME", numbers)
    (1, 5, 5, 4)
    """
    numbers = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    function = "conv_general_shape_tuple"
    windows = _windows(function, lhs_shape, rhs_shape, numbers, window_strides, padding)
    shapes = tuple(lhs_shape), tuple(rhs_shape)
    return Convolution(numbers, windows).output_shape(*shapes)


def conv_transpose_shape_tuple(
    lhs_shape: Ints,
    rhs_shape: Ints,
    window_strides: Ints,
    padding: Any,
    dimension_numbers: Any,
) -> tuple[int, ...]:
    """The shape that `conv_transpose` gives; a padding is that of its own windows.

    >>> numbers = "NHWC", "HWIO", "NHWC"
    >>> conv_transpose_shape_tuple((1, 5, 5, 2), (3, 3, 2, 4), (2, 2), "SAME", numbers)
    (1, 10, 10, 4)
    """
    numbers = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    window = [rhs_shape[d] for d in numbers.rhs_spec[2:]]
    pads = padding
    if isinstance(padding, str):
        pads = _turned_pads("conv_transpose", window, window_strides, padding)
    windows = _windows(
        "conv_transpose_shape_tuple",
        lhs_shape,
        rhs_shape,
        numbers,
        (1,) * len(window),
        pads,
        lhs_dilation=window_strides,
    )
    shapes = tuple(lhs_shape), tuple(rhs_shape)
    return Convolution(numbers, windows).output_shape(*shapes)


# ---------------------------------------------------------------- convolutions


def conv_general_dilated(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Ints,
    padding: str | Pads,
    lhs_dilation: Ints | None = None,
    rhs_dilation: Ints | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """Sums of products over windows of `lhs` and its features, of any rank.

    `lhs` has axes N (batch), C (features) and space, the kernel `rhs` has axes O
    (output features), I (input features) and the window; `dimension_numbers` names
    them, by default ("NCHW", "OIHW", "NCHW") with as many axes of space as there are.
    `padding` is "SAME", "SAME_LOWER", "VALID" or pairs (before, after), which may be
    negative. The dilations spread the elements of lhs and of the window. With feature
    groups each group of output features sees its own input features (as many groups
    as features is a depthwise convolution); with batch groups, its own part of the
    batch. The kernel is not reversed. Raises `ShapeError` where sizes do not fit.

    >>> import numpy as np
    >>> image, kernel = np.ones((1, 9, 9, 3)), np.ones((3, 3, 3, 8))
    >>> numbers = "NHWC", "HWIO", "NHWC"
    >>> conv_general_dilated(image, kernel, (2, 2), "SAME", None, None, numbers).shape
    (1, 5, 5, 8)
    """
    name = "conv_general_dilated"
    x, kernel = as_array(name, lhs), as_array(name, rhs, 1)
    numbers = conv_dimension_numbers(x.shape, kernel.shape, dimension_numbers)
    windows = _windows(
        name,
        x.shape,
        kernel.shape,
        numbers,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
    )
    groups = _count(feature_group_count), _count(batch_group_count)
    wanted = preferred_element_type
    return convs.conv_general_dilated(
        x,
        kernel,
        convolution=Convolution(numbers, windows, *groups),
        precision=precision,
        preferred_element_type=None if wanted is None else dtypes.as_dtype(wanted),
    )


def conv(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Ints,
    padding: str,
    precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """The convolution of NCHW by OIHW, with a padding by name.

    >>> import numpy as np
    >>> conv(np.ones((1, 2, 5, 5)), np.ones((3, 2, 3, 3)), (1, 1), "VALID").shape
    (1, 3, 3, 3)
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_with_general_padding(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Ints,
    padding: str | Pads,
    lhs_dilation: Ints | None,
    rhs_dilation: Ints | None,
    precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """The convolution of NCHW by OIHW, with any padding and dilations.

    >>> import numpy as np
    >>> image, kernel = np.ones((1, 2, 5, 5)), np.ones((3, 2, 3, 3))
    >>> pads = (1, 0), (2, 2)
    >>> conv_with_general_padding(image, kernel, (1, 1), pads, None, (2, 1)).shape
    (1, 3, 2, 7)
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


_CHANNELS_LAST = ("NC", "IO"), ("NHC", "HIO"), ("NHWC", "HWIO"), ("NHWDC", "HWDIO")


def conv_transpose(
    lhs: ArrayLike,
    rhs: ArrayLike,
    strides: Ints,
    padding: str | Pads,
    rhs_dilation: Ints | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: Any = None,
    preferred_element_type: DTypeLike = None,
    use_consistent_padding: bool = False,
) -> Array:
    """A convolution that spreads lhs by `strides`: as the gradient of one does.

    "SAME" and "VALID" are the padding of the convolution that it is the gradient of; so
    are pairs, if `use_consistent_padding`, which otherwise pad the spread lhs. The
    kernel is reversed and its features exchanged if `transpose_kernel`. Axes are NHWC
    and HWIO by default, for up to three axes of space.

    >>> import numpy as np
    >>> image, kernel = np.ones((1, 5, 5, 2)), np.ones((3, 3, 2, 4))
    >>> conv_transpose(image, kernel, (2, 2), "SAME").shape
    (1, 10, 10, 4)
    """
    x, kernel = as_array("conv_transpose", lhs), as_array("conv_transpose", rhs, 1)
    if dimension_numbers is None:
        if not 2 <= x.ndim <= 5:
            asked = f"conv_transpose({x.type}, {kernel.type})"
            reason = "there are default dimension numbers for 2 to 5 axes"
            fix = "give dimension_numbers"
            raise errors.ArgumentError(errors.explain(asked, reason, fix))
        layout, weights = _CHANNELS_LAST[x.ndim - 2]
        dimension_numbers = layout, weights, layout
    numbers = conv_dimension_numbers(x.shape, kernel.shape, dimension_numbers)
    outs, ins, *window = numbers.rhs_spec
    sizes = tuple([kernel.shape[d] for d in window])
    spread = dilated(sizes, tuple([n - 1 for n in rhs_dilation or (1,) * len(sizes)]))
    pads: Any = padding
    if use_consistent_padding or padding in ("SAME", "VALID"):
        pads = _turned_pads("conv_transpose", spread, strides, padding)
    if transpose_kernel:
        order = list(range(kernel.ndim))
        order[outs], order[ins] = ins, outs
        turned = reverse(kernel, axes=tuple(sorted(window)))
        kernel = permute(turned, dims=tuple(order))
    return conv_general_dilated(
        x,
        kernel,
        (1,) * len(window),
        pads,
        strides,
        rhs_dilation,
        numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated_patches(
    lhs: ArrayLike,
    filter_shape: Ints,
    window_strides: Ints,
    padding: str | Pads,
    lhs_dilation: Ints | None = None,
    rhs_dilation: Ints | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """What each window covers, as the features of the output.

    The output's features are those of lhs, each with the elements of the window in
    row-major order. The other arguments are those of `conv_general_dilated`; elements
    are copied, so that any `precision` is the same.

    >>> import numpy as np
    >>> image = np.arange(9.0).reshape(1, 1, 3, 3)
    >>> found = conv_general_dilated_patches(image, (2, 2), (1, 1), "VALID")
    >>> found[0, :, 0, 0].tolist()
    [0.0, 1.0, 3.0, 4.0]
    """
    name = "conv_general_dilated_patches"
    x, size = as_array(name, lhs), shape_tuple(name, filter_shape)
    numbers = conv_dimension_numbers(x.shape, (1, 1, *size), dimension_numbers)
    (batch, feature, *space), (_, _, *window), out_spec = numbers
    kernel = [1] * x.ndim
    for d, n in zip(window, size, strict=True):
        kernel[d] = n
    given = window_strides, padding, lhs_dilation, rhs_dilation
    windows = _windows(name, x.shape, kernel, numbers, *given)
    check_precision(f"{name}({x.type})", precision)
    # The axes of x as N, C and space; then those of windows, of which C takes its own.
    x = permute(x, dims=(batch, feature, *space))
    rank = len(space)
    ones, spots = (rank + 2, rank + 3), range(rank + 4, 2 * rank + 4)
    found = patches(
        x,
        windows=windows.beside(2, 0),
        dims=(*ones, 0, 1, *spots, *range(2, rank + 2)),
    )
    counts = found.shape[4 + rank :]
    features = x.shape[1] * math.prod(size)
    out = reshape(found, shape=(x.shape[0], features, *counts))
    out = permute(out, dims=inverse(out_spec))
    wanted = preferred_element_type
    return out if wanted is None else out.astype(dtypes.as_dtype(wanted))


def conv_general_dilated_local(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Ints,
    padding: str | Pads,
    filter_shape: Ints,
    lhs_dilation: Ints | None = None,
    rhs_dilation: Ints | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
) -> Array:
    """A convolution with a kernel of its own at each place of the output.

    `rhs` has the output's spatial shape; its input features are those that
    `conv_general_dilated_patches` gives.

    >>> import numpy as np
    >>> image, kernels = np.ones((1, 2, 5, 5)), np.ones((3, 18, 3, 3))
    >>> out = conv_general_dilated_local(image, kernels, (1, 1), "VALID", (3, 3))
    >>> out.shape, out[0, 0, 0, 0].item()
    ((1, 3, 3, 3), 18.0)
    """
    name = "conv_general_dilated_local"
    x, kernel = as_array(name, lhs), as_array(name, rhs, 1)
    numbers = conv_dimension_numbers(x.shape, kernel.shape, dimension_numbers)
    lhs_spec, (_, ins, *window), out_spec = numbers
    found = conv_general_dilated_patches(
        x,
        filter_shape,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        ConvDimensionNumbers(lhs_spec, numbers.rhs_spec, out_spec),
    )
    batch, feature, *space = out_spec
    product = dot_general(
        kernel,
        found,
        contract=((ins,), (feature,)),
        batch=(tuple(window), tuple(space)),
        precision=precision,
    )
    # Space comes first, then the output features, then the batch.
    rank = len(space)
    places = {batch: rank + 1, feature: rank}
    places.update({d: n for n, d in enumerate(space)})
    return permute(product, dims=tuple([places[d] for d in range(rank + 2)]))


# ---------------------------------------------------------------- arguments


def _windows(
    function: str,
    lhs_shape: Ints,
    rhs_shape: Ints,
    numbers: ConvDimensionNumbers,
    strides: Ints,
    padding: Any,
    lhs_dilation: Ints | None = None,
    rhs_dilation: Ints | None = None,
) -> Windows:
    """The windows of a convolution; a padding by name becomes numbers."""
    space = tuple([lhs_shape[d] for d in numbers.lhs_spec[2:]])
    size = tuple([rhs_shape[d] for d in numbers.rhs_spec[2:]])
    if isinstance(padding, str) and any(n != 1 for n in lhs_dilation or ()):
        asked = f"{function} over {space} by windows of {size}"
        reason = f"padding={padding!r} is for arrays that are not spread"
        fix = "give the padding in numbers, or use conv_transpose"
        raise errors.OptionError(errors.explain(asked, reason, fix))
    dilations = {"lhs_dilation": lhs_dilation, "rhs_dilation": rhs_dilation}
    return windows_of(function, space, size, strides, padding, dilations)


def windows_of(
    function: str,
    space: Ints,
    size: Ints,
    strides: Ints | None,
    padding: Any,
    dilations: Mapping[str, Ints | None],
) -> Windows:
    """Windows from the arguments of a function; the dilations have their names there.

    The first one is that of the array, the second that of the windows.
    """
    ones = (1,) * len(size)
    asked = f"{function} over {tuple(space)} by windows of {tuple(size)}"
    lists = []
    for argument, values in {"window_strides": strides, **dilations}.items():
        lists.append(ones if values is None else tuple([_count(n) for n in values]))
        if len(lists[-1]) != len(size) or min(lists[-1], default=1) < 1:
            reason = f"{argument}={values} must be {len(size)} numbers from 1 on"
            raise errors.OptionError(errors.explain(asked, reason))
    step, base, spread = lists
    if len(space) != len(size):
        reason = f"there are {len(size)} window sizes for {len(space)} axes"
        raise errors.ShapeError(errors.explain(asked, reason))
    if not isinstance(padding, str):
        pads = tuple([(_count(low), _count(high)) for low, high in padding])
        if len(pads) != len(size):
            reason = f"padding has {len(pads)} pairs for {len(size)} axes"
            raise errors.ArgumentError(errors.explain(asked, reason))
        return Windows(tuple(size), step, pads, base, spread)
    shape = dilated(tuple(space), tuple([n - 1 for n in base]))
    window = dilated(tuple(size), tuple([n - 1 for n in spread]))
    pads = tuple(padtype_to_pads(shape, window, step, padding))
    return Windows(tuple(size), step, pads, base, spread)


def _turned_pads(
    function: str, window: Ints, strides: Ints, padding: Any
) -> list[tuple[int, int]]:
    """The padding of the gradient of a convolution that has this one."""
    if padding == "VALID":
        rows = zip(window, strides, strict=True)
        return [(n - 1, n - 1 + max(step - n, 0)) for n, step in rows]
    if padding == "SAME":
        pads = []
        for n, step in zip(window, strides, strict=True):
            total = n + step - 2
            before = n - 1 if step > n - 1 else -(-total // 2)
            pads.append((before, total - before))
        return pads
    if isinstance(padding, str):
        asked = f"{function}(padding={padding!r})"
        fix = "take 'SAME' or 'VALID', or pairs of numbers"
        raise errors.OptionError(errors.explain(asked, "an unknown padding", fix))
    pairs = zip(window, padding, strict=True)
    return [(n - 1 - low, n - 1 - high) for n, (low, high) in pairs]


def _count(n: Any) -> int:
    """An argument that is an integer."""
    try:
        return int(n.__index__())
    except AttributeError:
        raise errors.ArgumentError(f"a number of elements, got {n!r}") from None
