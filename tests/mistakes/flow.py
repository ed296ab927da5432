"""Mistakes that users make with loops and branches.

Each function makes one; its docstring is the whole text of the error, where `here:`
stands for the file and line of this file. Next on the walk: `transforming.py`.
"""

from __future__ import annotations

import numpy as np

import fnx
import fnx.numpy as fnp
from fnx import lax
from tests.mistakes.made import PARAMS, ROWS, X, mistake

# ---------------------------------------------------------------- carries


@mistake
def a_carry_that_changes_its_dtype() -> None:
    """
    scan: step: the carry must keep its shapes and dtypes:
      init['pos']: it is given f64[3], it returns f32[3]
      Fix: convert what it returns, or begin with the type that it becomes.
    """

    def step(state, row):
        return {"pos": state["pos"].astype(np.float32), "n": state["n"]}, None

    lax.scan(step, {"pos": X, "n": 0}, ROWS)


@mistake
def a_carry_that_changes_its_shape() -> None:
    """
    scan: step: the carry must keep its shapes and dtypes:
      init: it is given f32[]*, it returns f64[3]
      Fix: convert what it returns, or begin with the type that it becomes.
    """

    def step(total, row):
        return total + row, total

    lax.scan(step, 0.0, ROWS)


@mistake
def an_integer_carry_that_becomes_a_float() -> None:
    """
    scan: step: the carry must keep its shapes and dtypes:
      init: it is given i32[], it returns f32[]*
      Fix: convert what it returns, or begin with the type that it becomes.
    """

    def step(count, row):
        return count + 0.5, None

    lax.scan(step, np.int32(0), ROWS)


@mistake
def a_python_float_that_becomes_an_integer() -> None:
    """
    scan: step: the carry must keep its shapes and dtypes:
      init: it is given f32[]*, it returns i32[]
      Fix: convert what it returns, or begin with the type that it becomes.
    """

    def step(count, row):
        return count.astype(np.int32), None

    lax.scan(step, 1.5, ROWS)


@mistake
def two_leaves_that_change() -> None:
    """
    scan: step: the carry must keep its shapes and dtypes:
      init[0]: it is given f64[3], it returns f64[2]
      init[1]: it is given f64[3], it returns bool[3]
      Fix: convert what it returns, or begin with the type that it becomes.
    """

    def step(state, row):
        position, speed = state
        return (position[:2], speed > 0), None

    lax.scan(step, (X, X), ROWS)


@mistake
def a_carry_that_loses_a_key() -> None:
    """
    scan: step: the carry that it is given and the carry that it returns differ:
      at ['speed']: only in the carry that it is given
    """

    def step(state, row):
        return {"pos": state["pos"] + row}, None

    lax.scan(step, {"pos": X, "speed": X}, ROWS)


@mistake
def a_carry_that_becomes_none() -> None:
    """
    scan: step: the carry that it is given and the carry that it returns differ:
      at the root: the carry that it is given has a leaf, the carry that it returns has None
    """

    def step(state, row):
        return None, state

    lax.scan(step, X, ROWS)


@mistake
def none_that_becomes_a_carry() -> None:
    """
    scan: step: the carry that it is given and the carry that it returns differ:
      at the root: the carry that it is given has None, the carry that it returns has a leaf
    """

    def step(state, row):
        return row, None

    lax.scan(step, None, ROWS)


@mistake
def a_tuple_that_becomes_a_list() -> None:
    """
    while_loop: body: the carry that it is given and the carry that it returns differ:
      at the root: the carry that it is given has a tuple of length 2, the carry that it returns has a list of length 2
    """

    def body(state):
        position, n = state
        return [position * 2, n + 1]

    lax.while_loop(lambda state: state[1] < 3, body, (X, 0))


@mistake
def a_while_value_that_changes_its_dtype() -> None:
    """
    while_loop: body: the carry must keep its shapes and dtypes:
      init_val: it is given i32[], it returns f32[]
      Fix: convert what it returns, or begin with the type that it becomes.
    """

    def body(state):
        return state / 2

    lax.while_loop(lambda state: state > 1, body, np.int32(8))


@mistake
def a_while_value_that_changes_its_shape() -> None:
    """
    while_loop: body: the carry must keep its shapes and dtypes:
      init_val['w']: it is given f64[3,2], it returns f64[2,3]
      Fix: convert what it returns, or begin with the type that it becomes.
    """

    def body(params):
        return {"w": params["w"].T, "b": params["b"]}

    lax.while_loop(lambda params: params["w"].sum() < 9, body, PARAMS)


@mistake
def a_fori_value_that_changes_its_shape() -> None:
    """
    fori_loop: body: the carry must keep its shapes and dtypes:
      init_val: it is given f32[]*, it returns f64[3]
      Fix: convert what it returns, or begin with the type that it becomes.
    """

    def body(i, total):
        return total + X

    lax.fori_loop(0, 3, body, 0.0)


@mistake
def a_fori_body_that_returns_nothing() -> None:
    """
    fori_loop: body: the carry that it is given and the carry that it returns differ:
      at the root: the carry that it is given has a leaf, the carry that it returns has None
    """

    def body(i, total):
        fnp.add(total, i)

    lax.fori_loop(0, 3, body, 0.0)


# ---------------------------------------------------------------- loops


@mistake
def a_scan_body_that_returns_no_pair() -> None:
    """
    scan: step must return a pair (carry, y): it returned an array of type f64[3].
      Fix: return (carry, None) where there is nothing to stack.
    """

    def step(total, row):
        return total + row

    lax.scan(step, X, ROWS)


@mistake
def a_scan_body_that_returns_three() -> None:
    """
    scan: step must return a pair (carry, y): it returned a tuple of length 3.
      Fix: return (carry, None) where there is nothing to stack.
    """

    def step(total, row):
        return total, row, row

    lax.scan(step, X, ROWS)


@mistake
def rows_of_different_lengths() -> None:
    """
    scan: the leading axes must have one length:
      xs['x']: f64[4,3]
      xs['y']: f64[3]
    """

    lax.scan(lambda c, row: (c, None), X, {"x": ROWS, "y": X})


@mistake
def rows_that_are_a_scalar() -> None:
    """
    scan: xs[1] is f32[]*: it has no leading axis to go along.
      Fix: close over it, or put it into the carry.
    """

    lax.scan(lambda c, row: (c, None), X, (ROWS, 1.0))


@mistake
def rows_and_another_length() -> None:
    """
    scan: the leading axes must have one length:
      xs: f64[4,3]
      length: 5
    """

    lax.scan(lambda c, row: (c, None), X, ROWS, length=5)


@mistake
def no_rows_and_no_length() -> None:
    """
    scan: xs has no arrays.
      Fix: pass length=.
    """

    lax.scan(lambda c, row: (c, None), X)


@mistake
def a_string_among_the_rows() -> None:
    """
    scan: xs['name'] is 'adam' of type str: only arrays, numbers and trees of them can be here.
    """

    lax.scan(lambda c, row: (c, None), X, {"x": ROWS, "name": "adam"})


@mistake
def a_scan_without_a_body() -> None:
    """
    scan takes functions: got None.
    """

    lax.scan(None, X, ROWS)


@mistake
def unroll_that_is_not_positive() -> None:
    """
    scan: unroll must be a positive integer or a bool, got -1
    """

    lax.scan(lambda c, row: (c, None), X, ROWS, unroll=-1)


@mistake
def a_checkpoint_with_another_name() -> None:
    """
    scan: checkpoint must be a positive integer, 'sqrt' or None, got 'log'
    """

    lax.scan(lambda c, row: (c, None), X, ROWS, checkpoint="log")


@mistake
def a_test_that_gives_an_array() -> None:
    """
    while_loop: goes_on must return a bool scalar: it returned bool[3].
      Fix: reduce it with all() or any(), or map the loop with fnx.vmap.
    """

    def goes_on(x):
        return x < 10

    lax.while_loop(goes_on, lambda x: x * 2, X)


@mistake
def a_test_that_gives_a_number() -> None:
    """
    while_loop: goes_on must return a bool scalar: it returned i32[]*.
      Fix: return a comparison, such as value > 0.
    """

    def goes_on(n):
        return 10 - n

    lax.while_loop(goes_on, lambda n: n + 1, 0)


@mistake
def a_test_that_gives_nothing() -> None:
    """
    while_loop: goes_on must return a bool scalar: it returned None.
    """

    def goes_on(n):
        fnp.less(n, 10)

    lax.while_loop(goes_on, lambda n: n + 1, 0)


@mistake
def bounds_that_are_floats() -> None:
    """
    fori_loop: upper must be an integer, got f32[]*
    """

    lax.fori_loop(0, 3.0, lambda i, x: x, X)


@mistake
def bounds_that_are_arrays() -> None:
    """
    fori_loop: lower must be a scalar, got i64[2]
    """

    lax.fori_loop(np.arange(2), 3, lambda i, x: x, X)


@mistake
def checkpoint_with_a_traced_bound() -> None:
    """
    fori_loop: checkpoint='sqrt': nobody knows how many rounds there will be.
      Fix: pass max_steps=, or a number of rounds as checkpoint=.
    """

    @fnx.jit
    def power(x, n):
        return lax.fori_loop(0, n, lambda i, y: y * x, x, checkpoint="sqrt")

    power(2.0, 3)


@mistake
def more_rounds_than_max_steps() -> None:
    """
    while_loop in reverse mode: more than 2 rounds: max_steps=2 was given.
      Fix: give a larger max_steps to while_loop.
    """

    def halve(x):
        return lax.while_loop(lambda y: y > 1, lambda y: y / 2, x, max_steps=2)

    fnx.grad(halve)(100.0)


@mistake
def a_batch_size_of_zero() -> None:
    """
    map: batch_size must be a positive integer, got 0
    """

    lax.map(lambda row: row, ROWS, batch_size=0)


@mistake
def python_while_on_a_traced_value() -> None:
    """
    Python asked for the value of a traced array of type bool[], which depends on x, unknown while tracing.
      it was made at here: (python_while_on_a_traced_value.<locals>.halve): while x > 1:
      For a choice by it use fnx.numpy.where(condition, a, b); to make an argument known, mark it in jit(..., static_argnums=...), or move the test outside of the transformed function.
    """

    @fnx.jit
    def halve(x):
        while x > 1:
            x = x / 2
        return x

    halve(8.0)


@mistake
def python_range_on_a_traced_value() -> None:
    """
    Python asked for the value of a traced array of type i32[]*, which depends on n, unknown while tracing.
      For a choice by it use fnx.numpy.where(condition, a, b); to make an argument known, mark it in jit(..., static_argnums=...), or move the test outside of the transformed function.
    """

    @fnx.jit
    def power(x, n):
        for _ in range(n):
            x = x * x
        return x

    power(2.0, 3)


# ---------------------------------------------------------------- branches


@mistake
def a_python_if_on_a_traced_value() -> None:
    """
    Python asked for the value of a traced array of type bool[], which depends on x, unknown while tracing.
      it was made at here: (a_python_if_on_a_traced_value.<locals>.relu): if x.sum() > 0:
      For a choice by it use fnx.numpy.where(condition, a, b); to make an argument known, mark it in jit(..., static_argnums=...), or move the test outside of the transformed function.
    """

    @fnx.jit
    def relu(params, x):
        if x.sum() > 0:
            return x
        return 0.0 * x

    relu(PARAMS, X)


@mistake
def a_python_if_in_a_mapped_function() -> None:
    """
    Python asked for the value of a traced array of type bool[], which depends on x (mapped by vmap), unknown while tracing.
      it was made at here: (a_python_if_in_a_mapped_function.<locals>.relu): return x if x > 0 else 0.0
      For a choice by it use fnx.numpy.where(condition, a, b); to make an argument known, mark it in jit(..., static_argnums=...), or move the test outside of the transformed function.
    """

    def relu(x):
        return x if x > 0 else 0.0

    fnx.vmap(relu)(X)


@mistake
def a_python_if_in_a_loop_body() -> None:
    """
    Python asked for the value of a traced array of type bool[], which depends on i, unknown while tracing.
      it was made at here: (a_python_if_in_a_loop_body.<locals>.body): return total + i if i > 1 else total
      For a choice by it use fnx.numpy.where(condition, a, b); to make an argument known, mark it in jit(..., static_argnums=...), or move the test outside of the transformed function.
    """

    def body(i, total):
        return total + i if i > 1 else total

    lax.fori_loop(0, 3, body, 0.0)


@mistake
def a_predicate_that_is_an_array() -> None:
    """
    cond: pred must be a scalar: it is bool[3].
      Fix: reduce it with all() or any(), choose element by element with fnx.numpy.where, or map the function with fnx.vmap.
    """

    lax.cond(X > 1, lambda x: x, lambda x: -x, X)


@mistake
def a_predicate_that_is_none() -> None:
    """
    cond: pred is None of type NoneType: only arrays, numbers and trees of them can be here.
    """

    lax.cond(None, lambda x: x, lambda x: -x, X)


@mistake
def branches_of_different_shapes() -> None:
    """
    cond: all branches must give the same types:
      at ['y']: the result of part (branch 0) is f64[2], the result of whole (branch 1) is f64[3]
      Fix: convert the results to one dtype and shape.
    """

    def whole(x):
        return {"y": x, "n": 0}

    def part(x):
        return {"y": x[:2], "n": 1}

    lax.cond(True, whole, part, X)


@mistake
def a_branch_whose_integer_meets_a_python_float() -> None:
    """
    cond: all branches must give the same types:
      at the top: the result of <lambda> (branch 0) is i32[], the result of <lambda> (branch 1) is f32[]*
      Fix: convert the results to one dtype and shape.
    """
    fnx.jit(lambda p: lax.cond(p, lambda: 1.5, lambda: np.int32(3)))(True)


@mistake
def branches_of_different_dtypes() -> None:
    """
    cond: all branches must give the same types:
      at the top: the result of rounded (branch 0) is i32[3], the result of exact (branch 1) is f64[3]
      Fix: convert the results to one dtype and shape.
    """

    def exact(x):
        return x

    def rounded(x):
        return x.astype(np.int32)

    lax.cond(True, exact, rounded, X)


@mistake
def branches_of_different_structure() -> None:
    """
    cond: the result of one (branch 0) and the result of both (branch 1) differ:
      at the root: the result of one (branch 0) has a dict with keys 'x', the result of both (branch 1) has a tuple of length 2
    """

    def both(x):
        return x, x

    def one(x):
        return {"x": x}

    lax.cond(True, both, one, X)


@mistake
def a_branch_that_returns_none() -> None:
    """
    cond: the result of log (branch 0) and the result of <lambda> (branch 1) differ:
      at the root: the result of log (branch 0) has None, the result of <lambda> (branch 1) has a leaf
    """

    def log(x):
        fnp.add(x, 1)

    lax.cond(True, lambda x: x, log, X)


@mistake
def a_switch_of_different_branches() -> None:
    """
    switch: all branches must give the same types:
      at the top: the result of <lambda> (branch 0) is f64[3], the result of <lambda> (branch 1) is f64[]
      Fix: convert the results to one dtype and shape.
    """

    lax.switch(1, [lambda x: x, lambda x: x.sum(), lambda x: x[0]], X)


@mistake
def a_switch_by_a_float() -> None:
    """
    switch: index must be an integer, got f32[]*
    """

    lax.switch(1.0, [lambda x: x, lambda x: -x], X)


@mistake
def a_switch_without_branches() -> None:
    """
    switch: branches is empty
    """

    lax.switch(0, [], X)


@mistake
def values_instead_of_branches() -> None:
    """
    cond takes functions: got a ndarray.
    """

    lax.cond(True, X, -X)


@mistake
def a_branch_with_more_parameters() -> None:
    """
    a_branch_with_more_parameters.<locals>.scale() missing 1 required positional argument: 'factor'
    """

    def scale(x, factor):
        return x * factor

    lax.cond(True, scale, lambda x: x, X)
