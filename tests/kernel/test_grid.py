"""The schedules of kernels for GPUs: which threads do what, and in which launches.

What the launches compute is tested by running them (`tests/cuda`); here it is that the
checker accepts them and that each kind of kernel gets the schedule meant for it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx.compiler.pipeline import plan_program
from fnx.errors import InternalError
from fnx.kernel.check import check_kernel
from fnx.kernel.expr import Load
from fnx.kernel.grid import FEW_GROUPS, LONG_ROW
from fnx.kernel.ir import Eval, Kernel, Launch, Recall, Stmt, loops
from fnx.kernel.printer import kernel_text
from tests.targets import GRID


def kernels(function: Any, *shapes: Any, dtype: Any = "float32") -> list[Kernel]:
    """The scheduled kernels of a function of arrays, checked and printed."""
    inputs = [fnx.ShapeDtypeStruct(shape, np.dtype(dtype)) for shape in shapes]
    plan = plan_program(fnx.make_jaxpr(function)(*inputs), GRID)
    for kernel in plan.kernels:
        assert check_kernel(kernel) is kernel
        assert kernel_text(kernel).count("launch") == len(kernel.launches)
    return list(plan.kernels)


def launches(function: Any, *shapes: Any, dtype: Any = "float32") -> tuple[Launch, ...]:
    """The launches of a function that is one kernel."""
    (kernel,) = kernels(function, *shapes, dtype=dtype)
    return kernel.launches


def reads(body: tuple[Stmt, ...]) -> list[type]:
    """How the statements of a loop come by what is in memory or was kept."""
    exprs = [s.expr if isinstance(s, Eval) else s for s in body]
    return [type(x) for x in exprs if isinstance(x, Load | Recall)]


def extents(launch: Launch) -> list[int]:
    return [index.extent for index in launch.indices]


# ---------------------------------------------------------------- elements


@pytest.mark.parametrize(
    ("dtype", "width"), [("float32", 4), ("float64", 2), ("float16", 8), ("int8", 16)]
)
def test_a_thread_does_as_many_elements_as_it_reads_at_once(
    dtype: str, width: int
) -> None:
    (launch,) = launches(lambda x: x + x, (2048, 1024), dtype=dtype)
    assert (launch.threads, launch.width) == (1, width)
    assert launch.groups * width == 2048 * 1024


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x + x, (2**20 + 1,)),  # no multiple of a vector
        (lambda x: x[1:] * 2, (2**20 + 1,)),  # not aligned
        (lambda x: x + x, (1000,)),  # too few threads would be left
    ],
)
def test_elsewhere_a_thread_does_one_element(function: Any, shape: Any) -> None:
    (launch,) = launches(function, shape)
    assert (launch.threads, launch.width) == (1, 1)


# ---------------------------------------------------------------- rows


def test_a_row_program_is_one_launch_that_reads_once() -> None:
    (launch,) = launches(fnx.nn.softmax, (8192, 1024))
    assert extents(launch) == [8192]
    assert launch.threads == 32
    assert [(loop.spread, loop.width) for loop in loops(launch.body)] == [(True, 4)] * 3
    first, *later = [reads(loop.body) for loop in loops(launch.body)]
    assert first == [Load]
    assert later == [[Recall], [Recall]]


def test_long_rows_have_blocks_of_threads() -> None:
    (launch,) = launches(fnx.nn.softmax, (1024, 4096))
    assert launch.threads == 512


def test_very_short_rows_have_a_thread_each() -> None:
    (launch,) = launches(lambda x: fnp.sum(x, axis=1), (100_000, 10))
    assert (launch.threads, extents(launch)) == (1, [100_000])


def test_rows_too_long_for_registers_are_read_again() -> None:
    (launch,) = launches(fnx.nn.softmax, (1024, 2**17))
    assert [reads(loop.body) for loop in loops(launch.body)] == [[Load]] * 3


def test_few_long_rows_are_shared_by_all_groups() -> None:
    folds = launches(lambda x: fnp.sum(x, axis=1), (3, 10 * LONG_ROW))
    assert extents(folds[0])[0] == 3
    assert folds[0].groups >= FEW_GROUPS // 2
    assert extents(folds[-1]) == [3]
    row_program = launches(fnx.nn.softmax, (3, 10 * LONG_ROW))
    assert row_program[-1].groups * row_program[-1].width == 3 * 10 * LONG_ROW


# ---------------------------------------------------------------- folds


def test_one_fold_over_everything_is_shared_in_chunks() -> None:
    first, last = launches(fnp.sum, (2**20,))
    assert first.groups * 2048 == 2**20
    assert last.groups == 1
    assert len(launches(fnp.sum, (2**20 + 3,))) == 3  # the rest has its own


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_chunks_of_positions(name: str) -> None:
    assert len(launches(getattr(fnp, name), (2**20 + 3,))) == 3


def test_columns_are_read_side_by_side() -> None:
    (launch,) = launches(lambda x: fnp.sum(x, axis=0), (100, 2**17))
    assert launch.threads == 1
    assert launch.groups * launch.width == 2**17
    first, last = launches(lambda x: fnp.sum(x, axis=0), (2**14, 128))
    assert extents(first)[-1] == 128
    assert first.threads == 1
    assert extents(last) == [128]


def test_what_all_groups_need_comes_first() -> None:
    *_, last = launches(lambda x: x / fnp.sum(fnp.abs(x)), (512, 512))
    assert last.groups * last.width == 512 * 512
    assert not any(loop.folds for loop in loops(last.body))


def test_two_loops_of_a_fold_become_one() -> None:
    (launch,) = launches(lambda x: fnp.sum(x, axis=(0, 2)), (8, 300, 64))
    assert extents(launch) == [300]
    assert [loop.extent for loop in loops(launch.body)] == [512]


# ---------------------------------------------------------------- order


def test_updates_of_rows_share_the_columns_only() -> None:
    index = np.array([1, 2, 1])
    (kernel,) = kernels(lambda x: x.at[index].add(1.0), (40, 300))
    (launch,) = kernel.launches
    assert extents(launch) == [300]
    assert [loop.extent for loop in loops(launch.body)] == [3]


def test_running_sums_of_rows() -> None:
    (launch,) = launches(lambda x: fnp.cumsum(x, axis=1), (40, 300))
    assert (extents(launch), launch.threads) == ([40], 64)
    (launch,) = launches(lambda x: fnp.cumsum(x, axis=0), (200, 4000))
    assert (extents(launch), launch.threads) == ([4000], 1)


# ---------------------------------------------------------------- the checker


def test_the_checker_finds_groups_that_are_no_warps() -> None:
    (kernel,) = kernels(fnx.nn.softmax, (8192, 1024))
    for threads in (1, 33, 2048):
        broken = dataclasses.replace(kernel.launches[0], threads=threads)
        with pytest.raises(InternalError, match=r"warps|shares"):
            check_kernel(dataclasses.replace(kernel, launches=(broken,)))


def test_kernels_that_differ_in_names_only_have_one_key() -> None:
    (a,) = kernels(fnx.nn.softmax, (64, 128))
    (b,) = kernels(lambda y: fnx.nn.softmax(y), (64, 128))
    (c,) = kernels(fnx.nn.softmax, (64, 256))
    assert a.key == b.key != c.key
