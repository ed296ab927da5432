"""Stores that may meet at one element: which schedule for GPUs each kind gets.

What they come to is tested by running them (`tests/cuda/test_scatter.py`).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import fnx
from fnx.compiler.pipeline import plan_program
from fnx.errors import InternalError
from fnx.kernel.check import check_kernel
from fnx.kernel.ir import Kernel, Launch, Loop, Run, Sort, Store, loops
from fnx.kernel.meeting import FEW
from fnx.kernel.printer import kernel_text
from tests.targets import GRID

INDEX = np.dtype("int32")


def update(function: Any, *inputs: tuple[tuple[int, ...], Any]) -> Kernel:
    """The kernel that updates an array, checked."""
    types = [fnx.ShapeDtypeStruct(shape, np.dtype(dtype)) for shape, dtype in inputs]
    plan = plan_program(fnx.make_jaxpr(function)(*types), GRID)
    for kernel in plan.kernels:
        check_kernel(kernel)
    return plan.kernels[-1]


def stores(kernel: Kernel) -> list[Store]:
    """The last launch's stores."""
    launch = kernel.launches[-1]
    assert isinstance(launch, Launch)
    inner = [stmt for loop in loops(launch.body) for stmt in loop.body]
    return [stmt for stmt in (*launch.body, *inner) if isinstance(stmt, Store)]


def scatter(how: str, dtype: str, count: int = 5000, **options: Any) -> Kernel:
    """The kernel of an update of 100 elements."""
    return update(
        lambda o, i, x: getattr(o.at[i], how)(x, **options),
        ((100,), dtype),
        ((count,), INDEX),
        ((count,), dtype),
    )


@pytest.mark.parametrize(
    ("how", "dtype"),
    [
        ("add", "int32"),
        ("add", "uint16"),
        ("min", "int64"),
        ("max", "float16"),
        ("min", "float64"),
    ],
)
def test_what_combines_to_the_same_in_any_order_is_atomic(how: str, dtype: str) -> None:
    kernel = scatter(how, dtype)
    (launch,) = kernel.launches
    (store,) = stores(kernel)
    assert store.atomic
    assert isinstance(launch, Launch)
    assert launch.groups * launch.width == 5000
    assert " atomically" in kernel_text(kernel)


@pytest.mark.parametrize(
    ("how", "dtype"),
    [("add", "float32"), ("multiply", "int32"), ("set", "int32"), ("max", "int8")],
)
def test_where_the_order_decides_updates_are_sorted(how: str, dtype: str) -> None:
    first, sort, last, *long = scatter(how, dtype).launches
    assert len(long) == (how != "set")
    assert isinstance(first, Launch)
    assert isinstance(sort, Sort)
    assert isinstance(last, Launch)
    assert first.groups == 5000
    assert last.groups == 5000
    assert sort.bits == 7  # of 0..99, and 100 for what is outside


def test_the_text_says_what_is_sorted_and_where_runs_begin() -> None:
    text = kernel_text(scatter("add", "float32"))
    assert "part0, part1 = sort part2 by 7 bits" in text
    run = "in the run of at most 64 of part0 that begins at i0"
    assert f"for i1 in 0..5000 {run}:" in text
    long = "in the run of at least 65 of part0 that begins at v15"
    assert f"for i2 in 0..5000 spread {long}:" in text


def test_where_threads_are_side_by_side_they_go_through_long_runs_too() -> None:
    kernel = update(
        lambda o, i, x: o.at[i].add(x),
        ((100, 32), "float32"),
        ((5000,), INDEX),
        ((5000, 32), "float32"),
    )
    assert len(kernel.launches) == 3
    assert "in the run of part0 that begins at i0:" in kernel_text(kernel)


def test_promised_to_be_unique_they_are_plain_stores() -> None:
    for how in ("add", "set"):
        kernel = scatter(how, "float32", unique_indices=True)
        (store,) = stores(kernel)
        assert store.apart
        assert not store.atomic
        assert len(kernel.launches) == 1


@pytest.mark.parametrize(("count", "launches"), [(FEW - 1, 1), (FEW, 3), (FEW + 1, 4)])
def test_few_updates_run_one_after_the_other(count: int, launches: int) -> None:
    assert len(scatter("add", "float32", count).launches) == launches


def test_one_window_is_written_by_all_threads_at_once() -> None:
    kernel = update(
        lambda x, part, at: fnx.lax.dynamic_update_slice(x, part, (at, 0)),
        ((8192, 1024), "float32"),
        ((256, 1024), "float32"),
        ((), INDEX),
    )
    (launch,) = kernel.launches
    assert isinstance(launch, Launch)
    assert (launch.groups, launch.width) == (256 * 1024 // 4, 4)


def test_windows_are_not_sorted_but_done_side_by_side() -> None:
    kernel = update(
        lambda o, i, x: o.at[:, i].add(x),
        ((6, 50, 8), "float32"),
        ((300,), INDEX),
        ((6, 300, 8), "float32"),
    )
    _, sort, last = kernel.launches
    assert isinstance(sort, Sort)
    assert isinstance(last, Launch)
    assert sort.keys.size == 300
    assert sort.bits == 6  # of rows, not of elements
    assert [index.extent for index in last.indices] == [6, 300, 8]


def test_windows_that_overlap_are_side_by_side_where_they_do_not() -> None:
    """Parts of 3 rows: the elements of a row are apart, the rows of parts are not."""

    def parts(x: Any, starts: Any) -> Any:
        cut = fnx.vmap(lambda i: fnx.lax.dynamic_slice(x, (i, 0), (3, 40)))
        return fnx.numpy.sum(cut(starts) ** 2)

    kernel = update(fnx.grad(parts), ((50, 40), "float32"), ((300,), INDEX))
    _, sort, last = kernel.launches
    assert isinstance(sort, Sort)
    assert isinstance(last, Launch)
    assert sort.keys.size == 900
    assert [index.extent for index in last.indices] == [900, 40]


def test_batches_are_sorted_together() -> None:
    kernel = update(
        fnx.vmap(lambda o, i, x: o.at[i].set(x)),
        ((7, 40), "float32"),
        ((7, 300), INDEX),
        ((7, 300), "float32"),
    )
    assert isinstance(kernel.launches[1], Sort)
    assert kernel.launches[1].keys.size == 7 * 300


def test_folds_are_over_before_updates_are_combined() -> None:
    kernel = update(
        lambda o, i, x: o.at[i].add(fnx.numpy.max(x, axis=1)),
        ((40,), "float32"),
        ((300,), INDEX),
        ((300, 100), "float32"),
    )
    assert [type(each) for each in kernel.launches].count(Sort) == 1
    last = kernel.launches[-1]
    assert isinstance(last, Launch)
    assert not any(loop.folds for loop in loops(last.body))


def test_kernels_of_other_sorts_and_runs_share_no_code() -> None:
    kinds = [
        scatter("add", "float32"),
        scatter("multiply", "float32"),
        scatter("set", "float32"),
        scatter("add", "float32", unique_indices=True),
        scatter("add", "float32", mode="promise_in_bounds"),
    ]
    assert len({kernel.key for kernel in kinds}) == len(kinds)
    assert scatter("add", "float32").key == kinds[0].key


# ---------------------------------------------------------------- the checker


def test_a_sort_of_what_nobody_has_stored_is_refused() -> None:
    kernel = scatter("add", "float32")
    broken = dataclasses.replace(kernel, launches=kernel.launches[1:])
    with pytest.raises(InternalError, match="a sort of what nobody has stored"):
        check_kernel(broken)


def test_a_run_of_keys_that_are_not_sorted_is_refused() -> None:
    kernel = scatter("add", "float32")
    first, sort, last, _ = kernel.launches
    assert isinstance(last, Launch)
    assert isinstance(sort, Sort)
    *before, loop = last.body
    assert isinstance(loop, Loop)
    assert loop.run is not None
    run = Run(sort.keys, loop.run.start, loop.run.end)
    body = (*before, dataclasses.replace(loop, run=run))
    other = first, sort, dataclasses.replace(last, body=body)
    with pytest.raises(InternalError, match="is not sorted"):
        check_kernel(dataclasses.replace(kernel, launches=other))
