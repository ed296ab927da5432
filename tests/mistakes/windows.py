"""Mistakes that users make with convolutions and windows.

Each function makes one; its docstring is the whole text of the error, where `here:`
stands for the file and line of this file. Next on the walk: `../test_mistakes.py`.
"""

from __future__ import annotations

import numpy as np

from fnx import lax
from tests.mistakes.made import mistake

IMAGE = np.ones((1, 5, 5, 2))
KERNEL = np.ones((3, 3, 2, 4))
LAST = "NHWC", "HWIO", "NHWC"


@mistake
def channels_where_jax_has_rows() -> None:
    """
    conv_general_dilated(f64[1,5,5,2], f64[3,3,2,4]): lhs has 5 features, rhs takes 3.
      Fix: dimension_numbers says which axes these are; by default the second ones.
    """
    lax.conv(IMAGE, KERNEL, (1, 1), "SAME")


@mistake
def a_kernel_without_its_features() -> None:
    """
    conv_dimension_numbers((1, 5, 5, 2), (3, 2, 4)): the operands have 4 and 3 axes.
      Fix: both have two axes and one for each dimension of space.
    """
    lax.conv_general_dilated(IMAGE, KERNEL[0], (1, 1), "SAME", None, None, LAST)


@mistake
def one_stride_for_two_axes() -> None:
    """
    conv_general_dilated over (5, 5) by windows of (3, 3): window_strides=(2,) must be 2 numbers from 1 on.
    """
    lax.conv_general_dilated(IMAGE, KERNEL, (2,), "SAME", None, None, LAST)


@mistake
def an_unknown_padding() -> None:
    """
    padtype_to_pads((5, 5), padding='FULL'): an unknown padding.
      Fix: take 'SAME', 'SAME_LOWER' or 'VALID', or pairs of numbers.
    """
    lax.conv_general_dilated(IMAGE, KERNEL, (1, 1), "FULL", None, None, LAST)


@mistake
def one_pair_of_padding_for_two_axes() -> None:
    """
    conv_general_dilated over (5, 5) by windows of (3, 3): padding has 1 pairs for 2 axes.
    """
    lax.conv_general_dilated(IMAGE, KERNEL, (1, 1), [(1, 1)], None, None, LAST)


@mistake
def a_spread_image_with_a_named_padding() -> None:
    """
    conv_general_dilated over (5, 5) by windows of (3, 3): padding='SAME' is for arrays that are not spread.
      Fix: give the padding in numbers, or use conv_transpose.
    """
    lax.conv_general_dilated(IMAGE, KERNEL, (1, 1), "SAME", (2, 2), None, LAST)


@mistake
def a_letter_too_few() -> None:
    """
    conv_dimension_numbers((1, 5, 5, 2), (3, 3, 2, 4)): dimension_numbers[2]='NHC' must have length 4.
    """
    numbers = "NHWC", "HWIO", "NHC"
    lax.conv_general_dilated(IMAGE, KERNEL, (1, 1), "SAME", None, None, numbers)


@mistake
def a_letter_for_features_that_is_none() -> None:
    """
    dimension_numbers=('NHWD', 'HWIO', 'NHWC'): 'NHWD' must have the letters N and C once.
    """
    numbers = "NHWD", "HWIO", "NHWC"
    lax.conv_general_dilated(IMAGE, KERNEL, (1, 1), "SAME", None, None, numbers)


@mistake
def groups_that_do_not_divide() -> None:
    """
    conv_general_dilated(f64[1,5,5,2], f64[3,3,1,3]): feature_group_count=2 does not divide the output features, 3.
    """
    lax.conv_general_dilated(
        IMAGE, KERNEL[:, :, :1, :3], (1, 1), "SAME", None, None, LAST, 2
    )


@mistake
def a_kernel_in_double_precision() -> None:
    """
    conv_general_dilated(f32[1,5,5,2], f64[3,3,2,4]): the operands have dtypes float32 and float64.
      Fix: convert one of them; fnx.numpy and fnx.lax promote.
    """
    image = IMAGE.astype("float32")
    lax.conv_general_dilated(image, KERNEL, (1, 1), "SAME", None, None, LAST)


@mistake
def an_integer_start_for_floats() -> None:
    """
    reduce_window(f64[1,5,5,2], i32[]): init_value must be a scalar of dtype float64.
      Fix: convert it.
    """
    lax.reduce_window(IMAGE, np.int32(0), lax.add, (1, 2, 2, 1))


@mistake
def a_window_of_two_axes_over_four() -> None:
    """
    reduce_window over (1, 5, 5, 2) by windows of (2, 2): there are 2 window sizes for 4 axes.
    """
    lax.reduce_window(IMAGE, 0.0, lax.add, (2, 2))


@mistake
def a_window_of_nothing() -> None:
    """
    reduce_window_sum(f64[1,5,5,2], Windows(size=(1, 0, 2, 1), strides=(1, 1, 1, 1), padding=((0, 0), (0, 0), (0, 0), (0, 0)), base_dilation=(1, 1, 1, 1), dilation=(1, 1, 1, 1))): the window size of axis 1 is 0.
      Fix: it must be at least 1.
    """
    lax.reduce_window(IMAGE, 0.0, lax.add, (1, 0, 2, 1))
