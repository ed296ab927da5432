"""Squares on GPUs: which kernels read through shared memory, and what they read."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import fnx
import fnx.numpy as fnp
from fnx.compiler.pipeline import plan_program
from fnx.errors import InternalError
from fnx.kernel.check import check_kernel
from fnx.kernel.ir import Kernel, Launch, Loop
from fnx.kernel.printer import kernel_text
from tests.targets import GRID


def scheduled(function: Any, *shapes: Any, dtype: str = "float32") -> Kernel:
    """The kernel of a function of arrays, checked."""
    inputs = [fnx.ShapeDtypeStruct(shape, fnp.dtype(dtype)) for shape in shapes]
    (kernel,) = plan_program(fnx.make_jaxpr(function)(*inputs), GRID).kernels
    return check_kernel(kernel)


def squares(kernel: Kernel) -> list[int]:
    """The sizes of the buffers in shared memory."""
    return [buffer.size for buffer in kernel.locals if buffer.role == "shared"]


def test_a_group_reads_a_square_and_writes_across_it() -> None:
    kernel = scheduled(lambda x: x.T * 2, (1024, 512))
    assert kernel_text(kernel) == TEXT


TEXT = """\
kernel kernel0
  in    in0   : f32[524288]
  out   out1  : f32[524288]
  shared part0 : f32[1056]
  launch for i0 in 0..16, i1 in 0..32, 256 threads each:
    v0: index = i0*32
    v1: index = v0 + i1*16384
    for i2 in 0..1024 spread:
      v2: index = i2 % 32
      v3: index = i2 // 32
      v4: index = v1 + v2 + v3*512
      v5: f32 = in0[v4]
      v6: index = v2 + v3*33
      part0[v6] = v5
    v7: index = i0*32768
    v8: index = v7 + i1*32
    for i2 in 0..1024 spread:
      v9: index = i2 // 32
      v10: index = i2 % 32
      v11: index = v9 + v10*33
      v12: f32 = part0[v11]
      v13: f32 = v12 * 2.0
      v14: index = v8 + v9*1024 + v10
      out1[v14] = v13
"""


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("float64", 33 * 32),
        ("float32", 33 * 32),
        ("float16", 66 * 64),
        ("int8", 68 * 64),
    ],
)
def test_rows_of_squares_are_a_word_longer(dtype: str, size: int) -> None:
    assert squares(scheduled(lambda x: x.T + x.T, (256, 256), dtype=dtype)) == [size]


def test_squares_of_small_elements_are_larger_where_that_is_not_outside() -> None:
    for shape, size in [((256, 256), 66 * 64), ((256, 32), 34 * 32), ((16, 16), 0)]:
        found = squares(scheduled(lambda x: x.T * 2, shape, dtype="float16"))
        assert sum(found) == size


def test_each_load_that_lies_across_has_a_square() -> None:
    def mixed(x: Any, y: Any, z: Any) -> Any:
        return x.T + y.T * z

    kernel = scheduled(mixed, (64, 32), (64, 32), (32, 64))
    assert len(squares(kernel)) == 2
    assert "(" not in kernel_text(kernel)  # nothing is outside: there are no masks


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x * 2, (256, 256)),  # the same way
        (lambda x: x.T, (15, 256)),  # too few columns
        (lambda x: x.T, (256, 15)),  # too few rows
        (lambda x: x.T, (33, 33)),  # most of four squares would be outside
        (lambda x: x[:, ::2], (256, 256)),  # far apart, but not across
    ],
)
def test_elsewhere_there_are_none(function: Any, shape: Any) -> None:
    assert squares(scheduled(function, shape)) == []


def test_more_squares_than_shared_memory_holds_are_not_made() -> None:
    def total(*arrays: Any) -> Any:
        return sum(x.T for x in arrays[1:]) + arrays[0].T

    few, many = [(64, 64)] * 4, [(64, 64)] * 5
    assert len(squares(scheduled(total, *few, dtype="float64"))) == 4
    assert squares(scheduled(total, *many, dtype="float64")) == []


def test_the_checker_finds_a_square_that_nobody_has_read() -> None:
    kernel = scheduled(lambda x: x.T * 2, (64, 64))
    (launch,) = kernel.launches
    assert isinstance(launch, Launch)
    body = tuple(s for s in launch.body if not isinstance(s, Loop))
    *_, last = launch.body
    other = dataclasses.replace(launch, body=(*body, last))
    with pytest.raises(InternalError, match="nothing is kept in part0"):
        check_kernel(dataclasses.replace(kernel, launches=(other,)))
