"""Matrix products read and write arrays where they lie: no kernel only moves elements.

Receives the plans of small programs: which steps they have, and that they compute what
the reference rules do.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import fnx
from fnx import lax, nn
from fnx import numpy as np_
from tests.compiler.test_fuse import data, kinds, planned


def heads(x: Any) -> Any:
    batch, tokens, width = x.shape
    return x.reshape(batch, tokens, 4, width // 4).transpose(0, 2, 1, 3)


def attention(x: Any, w: Any, out: Any) -> Any:
    q, k, v = map(heads, np_.split(x @ w, 3, axis=-1))
    mixed = nn.softmax(q @ k.transpose(0, 1, 3, 2), axis=-1) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(x.shape) @ out


def test_attention_has_products_and_one_softmax() -> None:
    plan = planned(attention, data(2, 32, 64), data(64, 192) / 30, data(64, 64))
    assert kinds(plan) == ["matmul", "matmul", "kernel", "matmul", "matmul"]


def test_the_gradient_of_attention_permutes_nothing() -> None:
    def loss(*args: Any) -> Any:
        return (attention(*args) ** 2).sum()

    args = data(2, 32, 64), data(64, 192) / 30, data(64, 64) / 8
    text = str(planned(fnx.grad(loss, (0, 1, 2)), *args))
    assert text.count(" @ ") == 12
    assert "permute" not in text


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_a_stack_of_products_is_written_in_another_order(order: Any) -> None:
    def function(x: Any, y: Any) -> Any:
        return (x @ y).transpose(order)

    plan = planned(function, data(3, 20, 30), data(3, 30, 25))
    # BLAS has no stride for both axes of a matrix.
    last = ["kernel"] if order[2] == 0 else []
    assert kinds(plan) == ["matmul", *last]


def test_a_product_that_something_else_reads_stays_as_it_is() -> None:
    def function(x: Any, y: Any) -> Any:
        z = x @ y
        return z, z.transpose(0, 2, 1)

    plan = planned(function, data(3, 20, 30), data(3, 30, 25))
    assert kinds(plan) == ["matmul", "kernel"]


def test_what_follows_a_permuted_product_reads_it() -> None:
    def function(x: Any, y: Any, z: Any) -> Any:
        moved = (x @ y).transpose(1, 0, 2).reshape(20, 75)
        return np_.tanh(moved) + moved @ z

    plan = planned(function, data(3, 20, 30), data(3, 30, 25) / 9, data(75, 75) / 9)
    assert kinds(plan) == ["matmul", "matmul", "kernel"]


CUTS = {
    "slice": lambda x: x[:, 3:30, 5:],
    "every-other-row": lambda x: x[:, 1::2],
    "every-other-matrix": lambda x: x[::2],
    "permuted-slice": lambda x: x.transpose(0, 2, 1)[:, 2:, :40],
    "heads": lambda x: x.reshape(5, 45, 4, 10).transpose(0, 2, 1, 3)[:, 1],
}


@pytest.mark.parametrize("name", CUTS)
def test_a_product_reads_parts_of_what_is_stored(name: str) -> None:
    def function(x: Any) -> Any:
        part = CUTS[name](x)
        return part @ part.transpose(0, 2, 1)

    assert kinds(planned(function, data(5, 45, 40))) == ["matmul"]


def test_elements_that_lie_apart_are_gathered_by_one_kernel() -> None:
    def function(x: Any, y: Any) -> Any:
        return x[:, ::2] @ y

    plan = planned(function, data(30, 40), data(20, 30))
    assert kinds(plan) == ["kernel", "matmul"]


def test_a_part_of_what_is_not_stored_is_computed_alone() -> None:
    def function(x: Any, y: Any) -> Any:
        return np_.sin(x)[:20] @ y

    plan = planned(function, data(4000, 30), data(30, 30))
    assert kinds(plan) == ["kernel", "matmul"]
    assert plan.arena < 4000


def test_repeated_matrices_are_stored_once() -> None:
    def function(x: Any, y: Any) -> Any:
        return lax.dot_general(
            np_.broadcast_to(np_.sin(x), (6, 20, 30)), y, (((2,), (1,)), ((0,), (0,)))
        )

    plan = planned(function, data(20, 30), data(6, 30, 25))
    assert kinds(plan) == ["kernel", "matmul"]
    assert plan.arena < 4000


def test_a_matrix_times_a_stack_copies_nothing() -> None:
    plan = planned(lambda x, y: x @ y, data(20, 30), data(6, 30, 25))
    assert kinds(plan) == ["matmul"]


def test_an_operand_that_is_an_output_too() -> None:
    def function(x: Any, y: Any) -> Any:
        moved = np_.sin(x).transpose(1, 0)
        return moved, moved @ y

    plan = planned(function, data(30, 20), data(30, 25))
    assert kinds(plan).count("matmul") == 1


def test_both_operands_come_from_one_array() -> None:
    def function(x: Any) -> Any:
        y = np_.exp(x)
        return y[:, :30] @ y[:, 30:].T, y.sum()

    planned(function, data(40, 60))


def test_what_must_be_copied_is_copied_from_its_origin() -> None:
    def function(x: Any, y: Any, z: Any) -> Any:
        part = (x @ y)[2:].reshape(18, 30, 40)
        return lax.dot_general(part, z, (((0,), (0,)), ((2,), (1,))))

    arrays = data(20, 50), data(50, 1200) / 9, data(18, 40, 21)
    plan = planned(function, *arrays)
    assert kinds(plan) == ["matmul", "kernel", "matmul"]
    (copy,) = plan.kernels
    assert copy.name == "permute"
    assert [buffer.size for buffer in copy.buffers] == [24000, 21600]
