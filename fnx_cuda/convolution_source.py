"""The text of what kernels ask of a convolution: windows, the kernel, and results.

Receives a `Convolved` with one axis of space at least and the `Order` of axes; gives
text, and adds the numbers of it. The number of a row is taken apart into an item of the
batch and a window's place, that of a sum into a feature and an offset in the window, by
divisors that are multiplied with. What depends on the row alone is computed once,
before the loop over k.
Next on the walk: `convolution.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.records import record
from fnx.runtime.plan import Convolved
from fnx_cuda.products_access import Ints, Parameters


@record
class Order:
    """The order of axes: whether windows are the columns and not the rows.

    And whether features are the innermost axis of what is summed, and the batch that of
    the windows.
    """

    swapped: bool
    features_last: bool
    batch_last: bool


def access_text(convolved: Convolved, order: Order, parameters: Parameters) -> str:
    """The sources of x and y."""
    _add_divisors(convolved, parameters)
    axes = convolved.axes
    x, kernel = convolved.x.strides, convolved.kernel.strides
    # The first element of a window begins `before` the first one of x.
    before = sum(axis.low * stride for axis, stride in zip(axes, x[3:], strict=True))
    parameters.wide(
        before=before,
        x_batch=x[1],
        x_feature=x[2],
        kernel_out=kernel[1],
        kernel_feature=kernel[2],
    )
    strides = [(axis.stride, axis.dilation) for axis in axes]
    pairs = list(zip(strides, x[3:], strict=True))
    parameters.wide(
        x_place=tuple([stride * own for (stride, _), own in pairs]),
        x_offset=tuple([dilation * own for (_, dilation), own in pairs]),
        kernel_offset=kernel[3:],
    )
    parameters.short(
        sizes=tuple([axis.size for axis in axes]),
        strides=tuple([axis.stride for axis in axes]),
        dilations=tuple([axis.dilation for axis in axes]),
        low=tuple([axis.low for axis in axes]),
    )
    parameters.short(windows=convolved.batch * convolved.places, outs=convolved.outs)
    names = ("Kernel", "Windows") if order.swapped else ("Windows", "Kernel")
    return _heading(convolved, order) + _SOURCES + _SIDES % names


def target_text(convolved: Convolved, order: Order, parameters: Parameters) -> str:
    """Where results lie."""
    out = convolved.out.strides
    parameters.wide(out_batch=out[1], out_feature=out[2], out_place=out[3:])
    text = _OUT % (("column", "row") if order.swapped else ("row", "column"))
    if not parameters.has("batch_divisor"):  # it is a kernel without windows
        _add_divisors(convolved, parameters)
        text = _heading(convolved, order) + text
    return text


def _heading(convolved: Convolved, order: Order) -> str:
    return _DIVISORS % {
        "rank": len(convolved.axes),
        "features_last": str(order.features_last).lower(),
        "batch_last": str(order.batch_last).lower(),
    }


# ---------------------------------------------------------------- divisors


def divisor(by: int) -> Ints:
    """What divides numbers below 2³¹ by a product: the divisor, a factor and a shift.

    The quotient is the upper half of number · factor, shifted (T. Granlund,
    P. Montgomery, Division by invariant integers using multiplication, 1994). The
    factor is given as a signed number of 32 bits.

    >>> divisor(10)
    (10, -858993459, 3)
    """
    by = max(by, 1)
    bits = 31 + (by - 1).bit_length()
    factor = -(-(1 << bits) // by) if by > 1 else 0
    return by, factor - (factor >> 31 << 32), max(bits - 32, 0)


def _add_divisors(convolved: Convolved, parameters: Parameters) -> None:
    parameters.short(
        batch_divisor=divisor(convolved.batch),
        feature_divisor=divisor(convolved.features),
        count_divisors=_divisors([axis.count for axis in convolved.axes]),
        window_divisors=_divisors([axis.window for axis in convolved.axes]),
    )


def _divisors(sizes: Sequence[int]) -> Ints:
    return tuple([number for size in sizes for number in divisor(size)])


# ---------------------------------------------------------------- text

_DIVISORS = """
constexpr int RANK = %(rank)d;
constexpr bool FEATURES_LAST = %(features_last)s, BATCH_LAST = %(batch_last)s;

// What is left of a number by a divisor; the number becomes the quotient.
__device__ __forceinline__ int taken(unsigned& number, const int* divisor) {
  unsigned quotient = number;
  if (divisor[0] > 1)
    quotient = (unsigned)((unsigned long long)number * (unsigned)divisor[1] >> 32)
             >> divisor[2];
  const int rest = (int)(number - quotient * (unsigned)divisor[0]);
  number = quotient;
  return rest;
}
// The number of a window as an item of the batch and a place.
struct Place {
  int item, at[RANK];
  __device__ __forceinline__ Place(const P& p, unsigned number) {
    if (BATCH_LAST) item = taken(number, p.batch_divisor);
#pragma unroll
    for (int axis = RANK - 1; axis >= 0; --axis)
      at[axis] = BATCH_LAST && axis == 0 ? (int)number
                                         : taken(number, p.count_divisors + 3 * axis);
    if (!BATCH_LAST) item = (int)number;
  }
};
"""

_SOURCES = """
// The number of what is summed as a feature and an offset in a window.
struct Offset {
  int feature, at[RANK];
  __device__ __forceinline__ Offset(const P& p, unsigned number) {
    if (FEATURES_LAST) feature = taken(number, p.feature_divisor);
#pragma unroll
    for (int axis = RANK - 1; axis >= 0; --axis)
      at[axis] = FEATURES_LAST && axis == 0
                     ? (int)number
                     : taken(number, p.window_divisors + 3 * axis);
    if (!FEATURES_LAST) feature = (int)number;
  }
};
// Windows over x: what of them is outside is zero.
struct Windows {
  const Element* from;
  const P& p;
  __device__ __forceinline__ bool find(int line, int depth, int end, Index& at) const {
    const Place place(p, line);
    const Offset offset(p, depth);
    bool inside = line < p.windows && depth < end;
    Index begin = (Index)place.item * (Index)p.x_batch - (Index)p.before;
    Index behind = (Index)offset.feature * (Index)p.x_feature;
#pragma unroll
    for (int axis = 0; axis < RANK; ++axis) {
      const int start = place.at[axis] * p.strides[axis] - p.low[axis];
      const int element = start + offset.at[axis] * p.dilations[axis];
      inside = inside && (unsigned)element < (unsigned)p.sizes[axis];
      begin += (Index)place.at[axis] * (Index)p.x_place[axis];
      behind += (Index)offset.at[axis] * (Index)p.x_offset[axis];
    }
    at = begin + behind;
    return inside;
  }
};
// The kernel: lines are output features.
struct Kernel {
  const Element* from;
  const P& p;
  __device__ __forceinline__ bool find(int line, int depth, int end, Index& at) const {
    const Offset offset(p, depth);
    Index behind = (Index)offset.feature * (Index)p.kernel_feature;
#pragma unroll
    for (int axis = 0; axis < RANK; ++axis)
      behind += (Index)offset.at[axis] * (Index)p.kernel_offset[axis];
    at = (Index)line * (Index)p.kernel_out + behind;
    return line < p.outs && depth < end;
  }
};
"""

_SIDES = """
typedef %s XSource;
typedef %s YSource;
__device__ __forceinline__ XSource x_source(const P& p, const Element* from) {
  return {from, p};
}
__device__ __forceinline__ YSource y_source(const P& p, const Element* from) {
  return {from, p};
}
"""

_OUT = """
__device__ __forceinline__ Index out_place(const P& p, int row, int column) {
  const Place place(p, %s);
  Index at = (Index)place.item * (Index)p.out_batch
           + (Index)%s * (Index)p.out_feature;
#pragma unroll
  for (int axis = 0; axis < RANK; ++axis)
    at += (Index)place.at[axis] * (Index)p.out_place[axis];
  return at;
}
"""
