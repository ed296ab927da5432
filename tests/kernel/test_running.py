"""Running values on GPUs: which rows are cut in chunks, and the launches of those."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx.compiler.pipeline import plan_program
from fnx.kernel.check import check_kernel
from fnx.kernel.grid import FEW_GROUPS, LONG_ROW, SERIAL
from fnx.kernel.ir import Kernel, Launch, loops
from tests.targets import GRID


def scan(shape: tuple[int, ...], axis: int) -> Kernel:
    """The kernel of sums along an axis, checked."""
    x = fnx.ShapeDtypeStruct(shape, np.dtype("float32"))
    program = fnx.make_jaxpr(lambda x: fnp.cumsum(x, axis=axis))(x)
    (kernel,) = plan_program(program, GRID).kernels
    return check_kernel(kernel)


def groups(kernel: Kernel) -> list[int]:
    return [each.groups for each in kernel.launches if isinstance(each, Launch)]


def scans(kernel: Kernel) -> list[bool]:
    """Which launches have running values."""
    return [
        any(loop.scans for loop in loops(each.body))
        for each in kernel.launches
        if isinstance(each, Launch)
    ]


def test_a_long_row_is_cut_in_chunks() -> None:
    kernel = scan((2**22,), 0)
    chunks = groups(kernel)[0]
    assert chunks > FEW_GROUPS
    assert groups(kernel) == [chunks, 1, chunks]
    assert scans(kernel) == [False, True, True]


def test_what_is_left_of_a_row_has_a_launch_of_its_own() -> None:
    kernel = scan((2**22 + 1,), 0)
    assert scans(kernel) == [False, True, True, False]  # of one element
    assert scans(scan((2**22 + 5,), 0)) == [False, True, True, True]


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((FEW_GROUPS, 2**15), 1), ((1, LONG_ROW), 1), ((SERIAL, 2**10), 0)],
)
def test_enough_rows_or_short_ones_are_not_cut(shape: Any, axis: int) -> None:
    kernel = scan(shape, axis)
    assert len(kernel.launches) == 1


def test_columns_are_cut_until_there_are_enough_threads() -> None:
    kernel = scan((2**16, 64), 0)
    first, *_, last = kernel.launches
    assert isinstance(first, Launch)
    assert isinstance(last, Launch)
    assert first.threads == last.threads == 1
    assert last.indices[-1].extent == 64  # threads side by side read side by side
    assert last.groups >= 2**16


def test_rows_of_chunks_are_cut_again() -> None:
    kernel = scan((2**30,), 0)
    assert len(kernel.launches) > 4
    assert min(groups(kernel)) == 1
