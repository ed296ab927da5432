"""Where the schedule puts things: read off the printed kernels."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from fnx import dtypes
from fnx.errors import InternalError
from fnx.kernel.build import KernelBuilder
from fnx.kernel.check import check_kernel
from fnx.kernel.expr import Expr, linear_offset
from fnx.kernel.ir import Eval, Kernel, Loop, Store, loops, parallel_loops
from fnx.kernel.printer import kernel_text
from fnx.sizes import symbol

F32 = dtypes.float32


def skeleton(kernel: Kernel) -> list[str]:
    """The loops of a kernel, indented, each with its extent, width and folds."""
    lines = []

    def visit(body, depth):
        for stmt in body:
            if isinstance(stmt, Loop):
                folds = "".join(f" {fold.combine}" for fold in stmt.folds)
                lines.append("  " * depth + f"{stmt.extent} by {stmt.width}{folds}")
                visit(stmt.body, depth + 1)

    visit(check_kernel(kernel).body, 0)
    return lines


def unary(shape, function, strides=None) -> Kernel:
    """A kernel over one array of a shape, read with other strides if given."""
    k = KernelBuilder()
    size = (
        1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if strides
        else 1
    )
    for extent in shape:
        size = size if strides else size * extent
    source = k.buffer("x", F32, size, "in")
    target = k.buffer("y", F32, size, "out")
    index = k.domain(shape)
    offset = linear_offset(index, shape)
    if strides:
        offset = sum(
            (i * s for i, s in zip(index, strides, strict=True)), k.table.number(0)
        )
    k.store(target, linear_offset(index, shape), function(k, k.load(source, offset)))
    return k.finish("unary")


def row_kernel(shape, stages) -> Kernel:
    """A kernel whose value at (i, j) is `stages(k, at, j)` over an array's rows."""
    k = KernelBuilder()
    source = k.buffer("x", F32, shape[0] * shape[1], "in")
    target = k.buffer("y", F32, shape[0] * shape[1], "out")
    i, j = k.domain(shape)
    value = stages(k, lambda m: k.load(source, i * shape[1] + m), j)
    k.store(target, i * shape[1] + j, value)
    return k.finish("row")


def softmax(k: KernelBuilder, at, j) -> Expr:
    largest = k.fold("max", "row", [1000], lambda m: at(m[0]))
    total = k.fold("add", "row", [1000], lambda m: k.sub(at(m[0]), largest))
    return k.div(k.sub(at(j), largest), total)


# ---------------------------------------------------------------- loops


def test_contiguous_loops_collapse():
    assert skeleton(unary((4, 5, 16), lambda k, x: k.neg(x))) == ["320 by 32"]


def test_loops_that_memory_breaks_stay():
    kernel = unary((4, 16), lambda k, x: k.neg(x), strides=(20, 1))
    assert skeleton(kernel) == ["4 by 1", "  16 by 16"]


def test_small_extents_have_narrow_vectors():
    assert skeleton(unary((5,), lambda k, x: k.neg(x))) == ["5 by 4"]
    assert skeleton(unary((1,), lambda k, x: k.neg(x))) == []


def test_heavy_bodies_use_one_register_each():
    assert skeleton(unary((4096,), lambda k, x: k.op("exp", x))) == ["4096 by 8"]


def test_divided_loops_are_split():
    k = KernelBuilder()
    source, target = (
        k.buffer(n, F32, 64 * 64, r) for n, r in (("x", "in"), ("y", "out"))
    )
    (i,) = k.domain((64 * 64,))
    k.store(target, i, k.load(source, (i % 64) * 64 + i // 64))
    kernel = k.finish("transposed")
    assert skeleton(kernel) == ["4 by 1", "  64 by 8", "    16 by 1"]


def test_transpositions_are_tiled():
    k = KernelBuilder()
    source, target = (
        k.buffer(n, F32, 96 * 80, r) for n, r in (("x", "in"), ("y", "out"))
    )
    i, j = k.domain((96, 80))
    k.store(target, i * 80 + j, k.load(source, j * 96 + i))
    assert skeleton(k.finish("transposed")) == ["6 by 1", "  80 by 8", "    16 by 1"]


def test_rows_that_fill_no_square_are_a_nest_of_their_own():
    k = KernelBuilder()
    source, target = (
        k.buffer(n, F32, 99 * 80, r) for n, r in (("x", "in"), ("y", "out"))
    )
    i, j = k.domain((99, 80))
    k.store(target, i * 80 + j, k.load(source, j * 99 + i))
    squares = ["6 by 1", "  80 by 8", "    16 by 1"]
    assert skeleton(k.finish("transposed")) == [*squares, "3 by 1", "  80 by 8"]


# ---------------------------------------------------------------- folds


def test_softmax_has_its_folds_under_the_row_loop():
    kernel = row_kernel((64, 1000), softmax)
    assert skeleton(kernel) == [
        "64 by 1",
        "  1000 by 32 max",
        "  1000 by 32 add",
        "  1000 by 32",
    ]


def test_softmax_over_columns_has_lanes_over_columns():
    k = KernelBuilder()
    source, target = (
        k.buffer(n, F32, 64_000, r) for n, r in (("x", "in"), ("y", "out"))
    )
    j, i = k.domain((1000, 64))

    def at(m):
        return k.load(source, m * 64 + i)

    k.store(target, j * 64 + i, softmax(k, at, j))
    kernel = k.finish("softmax")
    assert skeleton(kernel) == [
        "64 by 64",
        "  1000 by 1 max",
        "  1000 by 1 add",
        "  1000 by 1",
    ]


@pytest.mark.parametrize(("columns", "lanes"), [(3, 1), (4, 4), (7, 4), (8, 8)])
def test_folds_of_a_few_elements_have_no_lanes(columns, lanes):
    k = KernelBuilder()
    x, y = k.buffer("x", F32, 3 * columns, "in"), k.buffer("y", F32, 3, "out")
    (i,) = k.domain((3,))
    at = k.fold("add", "row", [columns], lambda m: k.load(x, i * columns + m[0]))
    k.store(y, i, at)
    kernel = k.finish("few")
    assert skeleton(kernel) == ["3 by 1", f"  {columns} by {lanes} add"]


def test_independent_folds_share_a_loop():
    def stages(k, at, j):
        total = k.fold("add", "row", [1000], lambda m: at(m[0]))
        largest = k.fold("max", "row", [1000], lambda m: at(m[0]))
        return k.add(at(j), k.mul(total, largest))

    assert skeleton(row_kernel((8, 1000), stages)) == [
        "8 by 1",
        "  1000 by 32 add max",
        "  1000 by 32",
    ]


def test_what_depends_on_the_row_only_is_computed_once_a_row():
    def stages(k, at, j):
        total = k.fold("add", "row", [1000], lambda m: at(m[0]))
        return k.mul(at(j), k.sqrt(total))

    (rows,) = row_kernel((8, 1000), stages).body
    assert isinstance(rows, Loop)
    names = [getattr(s.expr, "name", "") for s in rows.body if isinstance(s, Eval)]
    assert "sqrt" in names


def column_sum(rows: int, columns: int) -> Kernel:
    k = KernelBuilder()
    source = k.buffer("x", F32, rows * columns, "in")
    target = k.buffer("y", F32, columns, "out")
    (j,) = k.domain((columns,))
    total = k.fold("add", "r", [rows], lambda i: k.load(source, i[0] * columns + j))
    k.store(target, j, total)
    return k.finish("columns")


def test_column_sums_have_lanes_over_columns():
    assert skeleton(column_sum(100, 64)) == ["64 by 64", "  100 by 1 add"]


def test_long_column_sums_take_some_rows_together():
    k = KernelBuilder()
    x = k.buffer("x", F32, 65536 * 64, "in")
    y = k.buffer("y", F32, 64, "out")
    (j,) = k.domain((64,))
    k.store(y, j, k.fold("add", "r", [65536], lambda m: k.load(x, m[0] * 64 + j)))
    kernel = k.finish("columns")
    assert skeleton(kernel) == [
        "256 by 1",
        "  64 by 64",
        "    256 by 1 add",
        "64 by 64",
        "  256 by 1 add",
    ]
    first, second = (loop for loop in kernel.body if isinstance(loop, Loop))
    assert parallel_loops(kernel) == (first, second)
    with pytest.raises(InternalError, match="nothing is kept in sums0"):
        check_kernel(Kernel("second", kernel.buffers, (second,), kernel.locals))


def test_sums_down_long_columns_read_a_few_rows_side_by_side():
    kernel = column_sum(1024, 1024)
    assert skeleton(kernel) == [
        "32 by 1",
        "  1024 by 64",
        "    8 by 1 add",
        "  3 by 1",
        "    1024 by 64",
        "      8 by 1 add",
        "1024 by 64",
        "  32 by 1 add",
    ]
    assert parallel_loops(kernel) == kernel.body


def test_what_is_added_to_has_been_kept():
    kernel = column_sum(1024, 1024)
    blocks = kernel.body[0]
    assert isinstance(blocks, Loop)
    inner = [stmt for stmt in blocks.body if isinstance(stmt, Loop)]
    body = tuple(stmt for stmt in blocks.body if stmt is not inner[0])
    changed = replace(kernel, body=(replace(blocks, body=body), *kernel.body[1:]))
    with pytest.raises(InternalError, match="sums0 does not keep every element"):
        check_kernel(changed)


def test_sums_of_any_number_of_rows_have_lanes_over_whole_rows():
    """Folds that follow each other, or go on around others, keep no registers."""
    kernel = column_sum(symbol("n"), 64)
    lanes = [loop.width for loop in loops(kernel.body) if loop.extent == 64]
    assert lanes == [64, 64]


def test_long_sums_are_blocked():
    k = KernelBuilder()
    x, y = (
        k.buffer(n, F32, s, r) for n, s, r in (("x", 100_000, "in"), ("y", 1, "out"))
    )
    k.domain(())
    k.store(y, 0, k.fold("add", "r", [100_000], lambda m: k.load(x, m[0])))
    assert skeleton(k.finish("sum")) == ["25 by 1 add", "  4000 by 32 add"]


def test_long_sums_of_awkward_length_have_a_rest():
    k = KernelBuilder()
    source, target = k.buffer("x", F32, 100_003, "in"), k.buffer("y", F32, 1, "out")
    k.domain(())
    k.store(target, 0, k.fold("add", "r", [100_003], lambda i: k.load(source, i[0])))
    assert skeleton(k.finish("sum")) == [
        "24 by 1 add",
        "  4096 by 32 add",
        "1699 by 32 add",
    ]


def test_a_max_shares_the_loops_of_a_blocked_sum():
    k = KernelBuilder()
    source, target = k.buffer("x", F32, 64_000, "in"), k.buffer("y", F32, 1, "out")
    k.domain(())
    total, largest = (
        k.fold(name, "r", [64_000], lambda i: k.load(source, i[0]))
        for name in ("add", "max")
    )
    k.store(target, 0, k.mul(total, largest))
    assert skeleton(k.finish("both")) == ["16 by 1 add max", "  4000 by 32 add max"]


def test_combining_stores_keep_the_order_of_the_domain():
    k = KernelBuilder()
    source, target = k.buffer("x", F32, 320, "in"), k.buffer("y", F32, 10, "inout")
    i, j = k.domain((32, 10))
    k.store(target, j, k.load(source, i * 10 + j), combine="add")
    # each element has its own lane, in which the order is that of the domain
    assert skeleton(k.finish("sum")) == ["32 by 1", "  10 by 8"]


def test_combining_stores_that_may_meet_have_no_lanes():
    k = KernelBuilder()
    source, target = k.buffer("x", F32, 320, "in"), k.buffer("y", F32, 160, "inout")
    (i,) = k.domain((320,))
    k.store(target, i // 2, k.load(source, i), combine="add")
    assert skeleton(k.finish("pairs")) == ["160 by 1", "  2 by 1"]


def test_parallel_loops():
    def extents(kernel):
        return [loop.extent for loop in parallel_loops(kernel)]

    assert extents(unary((4, 16), lambda k, x: k.neg(x))) == [64]
    assert extents(row_kernel((64, 1000), softmax)) == [64]
    assert extents(column_sum(100, 64)) == [64]
    k = KernelBuilder()
    x, y = k.buffer("x", F32, 320, "in"), k.buffer("y", F32, 10, "inout")
    i, j = k.domain((32, 10))
    k.store(y, j, k.load(x, i * 10 + j), combine="add")
    assert extents(k.finish("rows")) == []


def test_parallel_loops_with_folds():
    def total(size):
        k = KernelBuilder()
        x, y = k.buffer("x", F32, size, "in"), k.buffer("y", F32, 1, "out")
        k.domain(())
        k.store(y, 0, k.fold("add", "i", (size,), lambda index: k.load(x, index[0])))
        return [loop.extent for loop in parallel_loops(k.finish("sum"))]

    assert total(64_000) == [16]  # over blocks
    assert total(64) == []  # with lanes


def test_rounds_that_read_what_others_store_are_not_parallel():
    k = KernelBuilder()
    x = k.buffer("x", F32, 65, "inout")
    (i,) = k.domain((64,))
    k.store(x, i + 1, k.load(x, i))
    assert parallel_loops(k.finish("shift")) == ()


# ---------------------------------------------------------------- text, key, checks


def test_kernels_print_readably():
    kernel = unary((4, 16), lambda k, x: k.add(x, k.constant(1, F32)), strides=(20, 1))
    assert kernel_text(kernel) == (
        "kernel unary\n"
        "  in    x : f32[76]\n"
        "  out   y : f32[76]\n"
        "  for i0 in 0..4:\n"
        "    v0: index = i0*16\n"
        "    v1: index = i0*20\n"
        "    for i1 in 0..16 by 16:\n"
        "      v2: index = v0 + i1\n"
        "      v3: index = v1 + i1\n"
        "      v4: f32 = x[v3]\n"
        "      v5: f32 = v4 + 1.0\n"
        "      y[v2] = v5\n"
    )


def test_keys_ignore_names_only():
    def scaled(name, buffer, factor, size=100):
        k = KernelBuilder()
        x = k.buffer(buffer, F32, size, "inout")
        (i,) = k.domain((size,))
        k.store(x, i, k.mul(k.load(x, i), k.constant(factor, F32)))
        return k.finish(name).key

    assert scaled("a", "x", 2.0) == scaled("b", "y", 2.0)
    assert scaled("a", "x", 2.0) != scaled("a", "x", 3.0)
    assert scaled("a", "x", 0.0) != scaled("a", "x", -0.0)
    assert scaled("a", "x", 2.0) != scaled("a", "x", 2.0, 101)


def test_the_last_vector_overlaps_unless_it_would_read_what_it_wrote():
    (loop,) = unary((101,), lambda k, x: k.neg(x)).body
    assert loop.width > 1 and loop.overlaps
    k = KernelBuilder()
    x = k.buffer("x", F32, 101, "inout")
    (i,) = k.domain((101,))
    k.store(x, i, k.neg(k.load(x, i)))
    (loop,) = k.finish("in place").body
    assert loop.width > 1 and not loop.overlaps


def test_constants_are_computed_and_neutral_operands_dropped():
    k = KernelBuilder()
    (i,) = k.domain((8,))
    x = k.load(k.buffer("x", F32, 8, "in"), i)
    n = k.load(k.buffer("n", dtypes.uint8, 8, "in"), i)

    def number(value, dtype=F32):
        return k.constant(value, dtype)

    assert k.op("exp", number(0.0)) is number(1.0)
    assert k.lt(number(1.0), number(2.0)) is number(True, dtypes.bool_)
    assert k.mul(number(1.0), x) is x and k.div(x, number(1.0)) is x
    assert k.add(x, number(-0.0)) is x and k.add(x, number(0.0)) is not x
    assert k.sub(x, number(0.0)) is x and k.sub(x, number(-0.0)) is not x
    assert k.sub(number(0.0), x) is not x and k.div(number(1.0), x) is not x
    assert k.and_(n, number(255, dtypes.uint8)) is n
    assert k.xor(number(0, dtypes.uint8), n) is n
    assert k.div(number(0.0), number(0.0)) is not number(float("nan"))


def broken(kernel: Kernel, body) -> Kernel:
    return Kernel(kernel.name, kernel.buffers, body)


def test_the_checker_finds_what_is_broken():
    kernel = unary((100,), lambda k, x: k.neg(x))
    (loop,) = check_kernel(kernel).body
    for body, reason in [
        (loop.body, "out of scope|used before it is computed"),
        ((Loop(loop.index, loop.body[1:], (), 32),), "used before it is computed"),
        ((Loop(loop.index, loop.body[:1] * 2, (), 32),), "computed twice"),
        ((Loop(loop.index, (loop,), (), 32),), "nested vector loops"),
        ((Loop(loop.index, loop.body, (), 1, True),), "overlaps without lanes"),
    ]:
        with pytest.raises(InternalError, match=reason):
            check_kernel(broken(kernel, body))


def test_the_checker_finds_offsets_out_of_range():
    k = KernelBuilder()
    x, y = k.buffer("x", F32, 10, "in"), k.buffer("y", F32, 10, "out")
    (i,) = k.domain((10,))
    k.store(y, i, k.load(x, i + 1))
    with pytest.raises(InternalError, match=re.escape("offset in 1..10 of buffer x")):
        check_kernel(k.finish("shifted"))


def test_the_builder_refuses_what_the_table_lacks():
    k = KernelBuilder()
    one, two = k.constant(1, F32), k.constant(2, dtypes.int32)
    with pytest.raises(InternalError, match=re.escape("add(f32, i32)")):
        k.add(one, two)
    with pytest.raises(InternalError, match="xor"):
        k.xor(one, one)
    with pytest.raises(InternalError, match="select"):
        k.select(one, one, one)


# ---------------------------------------------------------------- kept rows


def exponential_softmax(k: KernelBuilder, at, j) -> Expr:
    largest = k.fold("max", "row", [1000], lambda m: at(m[0]))

    def terms(m) -> Expr:
        return k.op("exp", k.sub(at(m), largest))

    return k.div(terms(j), k.fold("add", "row", [1000], lambda m: terms(m[0])))


def test_what_two_loops_over_a_row_need_is_kept():
    kernel = row_kernel((64, 1000), exponential_softmax)
    (row,) = kernel.locals
    assert (row.role, row.size, row.dtype) == ("local", 1000, F32)
    text = kernel_text(check_kernel(kernel))
    assert text.count("12583166.0)") == 1  # exp is computed once
    assert re.search(r"local row0 : f32\[1000\]", text)
    assert re.search(r"row0\[i1\] = v\d+\n", text)
    assert re.search(r"v\d+: f32 = row0\[i1\]\n", text)
    assert len(parallel_loops(kernel)) == 1
    assert skeleton(kernel) == [
        "64 by 1",
        "  1000 by 32 max",
        "  1000 by 8 add",
        "  1000 by 32",
    ]


def test_cheap_values_and_very_long_rows_are_computed_again():
    assert not row_kernel((64, 1000), softmax).locals
    k = KernelBuilder()
    x, y = (k.buffer(n, F32, 1 << 20, r) for n, r in (("x", "in"), ("y", "out")))
    i, j = k.domain((2, 1 << 19))

    def terms(m) -> Expr:
        return k.op("exp", k.load(x, i * (1 << 19) + m))

    total = k.fold("max", "row", [1 << 19], lambda m: terms(m[0]))
    k.store(y, i * (1 << 19) + j, k.div(terms(j), total))
    assert not k.finish("long").locals


def test_folds_over_pairs_of_a_row_keep_their_own_indices():
    def pairs(k: KernelBuilder, at, j) -> Expr:
        def inner(m):
            return k.fold(
                "add", "pair", [16], lambda n: k.op("exp", k.mul(at(m[0]), at(n[0])))
            )

        return k.mul(at(j), k.fold("max", "row", [16], inner))

    check_kernel(row_kernel((8, 16), pairs))


def test_the_checker_watches_what_is_kept():
    kernel = row_kernel((64, 1000), exponential_softmax)
    (rows,) = (stmt for stmt in kernel.body if isinstance(stmt, Loop))
    forgetful = tuple(
        Loop(s.index, s.body[:-1], s.folds, s.width)
        if isinstance(s, Loop) and isinstance(s.body[-1], Store) and s.folds
        else s
        for s in rows.body
    )
    body = (Loop(rows.index, forgetful, rows.folds),)
    broken = Kernel("broken", kernel.buffers, body, kernel.locals)
    with pytest.raises(InternalError, match="nothing is kept in row0"):
        check_kernel(broken)
