"""The transformations at the level of programs: what each promises of its result."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
from fnx import errors
from fnx.control.call import call
from fnx.core.check import find_problem
from fnx.core.primitive import MappedAxis
from fnx.core.reference import run_reference
from fnx.core.trace import trace
from fnx.core.types import array_type
from fnx.ops.arithmetic import add, mul
from fnx.ops.elementwise import exp, sin
from fnx.ops.reduce import reduce_sum
from fnx.ops.shape import iota
from fnx.transforms.batch import batch_program
from fnx.transforms.jvp import jvp_program
from fnx.transforms.split import linearize_program, split_program
from fnx.transforms.transpose import transpose_program

F3 = array_type((3,), "float64")
I3 = array_type((3,), "int64")
AXIS = MappedAxis("i", 4)


def program_of(function, *types):
    return trace(lambda *xs: function(*xs), types).program


def names(program):
    return [eqn.primitive.name for eqn in program.eqns]


# ---------------------------------------------------------------- jvp


def test_tangents_that_are_zero_by_structure_do_not_exist(rng):
    program = program_of(lambda x, y: (sin(x), mul(y, 2.0), mul(x, y)), F3, F3)
    moved, mask = jvp_program(program, (True, False))
    assert mask == (True, False, True)
    assert len(moved.inputs) == 3 and len(moved.outputs) == 5
    x, y, t = rng.standard_normal((3, 3))
    results = run_reference(moved, [x, y, t])
    np.testing.assert_allclose(results[3], np.cos(x) * t)
    np.testing.assert_allclose(results[4], y * t)
    same, none = jvp_program(program, (False, False))
    assert none == (False, False, False) and names(same) == names(program)


def test_integers_do_not_move():
    from fnx.ops.elementwise import convert

    i = np.dtype("int64")
    program = program_of(lambda x: (convert(x, dtype=i, weak=False), x), F3)
    assert jvp_program(program, (True,))[1] == (False, True)


def test_results_are_cached_by_structure():
    one, other = [program_of(lambda x: (mul(sin(x), x),), F3) for _ in range(2)]
    assert one is not other and one == other
    assert jvp_program(one, (True,))[0] is jvp_program(other, (True,))[0]
    with fnx.config.override(strong_zero=False):
        assert jvp_program(one, (True,))[0] != jvp_program(other, (True,))
    loose = jvp_program(one, (True,))[0]
    assert "mul_strong_zero" in str(loose)


# ---------------------------------------------------------------- split, linearize


def test_split_keeps_residuals_only(rng):
    program = program_of(lambda x, y: (exp(x), mul(sin(exp(x)), y)), F3, F3)
    parts = split_program(program, (True, False))
    assert parts.outputs_known == (True, False)
    assert parts.residuals == (F3,) and names(parts.unknown) == ["mul"]
    x, y = rng.standard_normal((2, 3))
    known = run_reference(parts.known, [x])
    (late,) = run_reference(parts.unknown, [*known[1:], y])
    np.testing.assert_allclose(late, np.sin(np.exp(x)) * y)


def test_split_repeats_constants():
    def f(x, y):
        n = iota(shape=(3,), dtype=F3.dtype, axis=0)
        return mul(x, n), mul(y, n)

    parts = split_program(program_of(f, F3, F3), (True, False))
    assert parts.residuals == ()
    assert "iota" in names(parts.known) and "iota" in names(parts.unknown)


def test_split_goes_through_calls(rng):
    inner = program_of(lambda x, y: (exp(x), mul(sin(x), y)), F3, F3)
    program = program_of(lambda x, y: call(x, y, program=inner, name="f"), F3, F3)
    parts = split_program(program, (True, False))
    assert names(parts.known) == names(parts.unknown) == ["call"]
    x, y = rng.standard_normal((2, 3))
    known = run_reference(parts.known, [x])
    (late,) = run_reference(parts.unknown, [*known[1:], y])
    np.testing.assert_allclose(late, np.sin(x) * y)


def test_linearize_gives_values_and_a_linear_program(rng):
    program = program_of(lambda x, y: (mul(sin(x), y), y), F3, F3)
    parts = linearize_program(program, (True, False))
    assert parts.moving_outputs == (True, False)
    x, y, t = rng.standard_normal((3, 3))
    values = run_reference(parts.primal, [x, y])
    np.testing.assert_allclose(values[0], np.sin(x) * y)
    (moved,) = run_reference(parts.linear, [*values[2:], t])
    np.testing.assert_allclose(moved, np.cos(x) * y * t)
    assert not {"sin", "cos"} & set(names(parts.linear))


def test_linearize_leaves_auxiliary_outputs_out():
    program = program_of(lambda x: (mul(x, 2.0), exp(sin(x))), F3)
    parts = linearize_program(program, (True,), 1)
    assert parts.moving_outputs == (True, False)
    assert parts.residuals == () and names(parts.linear) == ["mul"]
    assert len(linearize_program(program, (True,)).residuals) > 0


def test_a_tangent_that_is_known_is_the_zero_map():
    program = program_of(lambda x: (mul(x, 0.0) if False else x,), F3)
    assert linearize_program(program, (False,)).moving_outputs == (False,)


# ---------------------------------------------------------------- transpose


def test_transpose_gives_the_adjoint(rng):
    program = program_of(
        lambda c, x, y: (add(mul(c, x), y), reduce_sum(x, axes=(0,))), F3, F3, F3
    )
    turned, reached = transpose_program(program, (False, True, True), (True, True))
    assert reached == (True, True)
    c, x, y, u = rng.standard_normal((4, 3))
    v = np.asarray(rng.standard_normal())
    out = run_reference(program, [c, x, y])
    ct_x, ct_y = run_reference(turned, [c, u, v])
    np.testing.assert_allclose(out[0] @ u + out[1] * v, x @ ct_x + y @ ct_y)


def test_transpose_says_what_is_not_reached():
    program = program_of(lambda x, y: (mul(x, 2.0), mul(y, 3.0)), F3, F3)
    turned, reached = transpose_program(program, (True, True), (True, False))
    assert reached == (True, False) and len(turned.outputs) == 1
    nothing, reached = transpose_program(program, (True, True), (False, False))
    assert reached == (False, False) and nothing.outputs == ()


def test_transpose_of_an_output_that_is_an_input():
    program = program_of(lambda x: (x, x), F3)
    turned, reached = transpose_program(program, (True,), (True, True))
    assert reached == (True,) and names(turned) == ["add"]


def test_transpose_of_a_rule_that_is_missing():
    program = program_of(lambda x: (sin(x),), F3)
    with pytest.raises(errors.MissingRule, match="'sin' has no 'transpose' rule"):
        transpose_program(program, (True,), (True,))


# ---------------------------------------------------------------- batch


def test_batch_marks_what_has_the_axis(rng):
    program = program_of(lambda x, y: (mul(x, y), sin(y), add(x, 1.0)), F3, F3)
    lifted, mapped = batch_program(program, AXIS, (True, False))
    assert mapped == (True, False, True)
    x, y = rng.standard_normal((4, 3)), rng.standard_normal(3)
    product, sine, more = run_reference(lifted, [x, y])
    np.testing.assert_allclose(product, x * y)
    np.testing.assert_allclose(sine, np.sin(y))
    np.testing.assert_allclose(more, x + 1)


def test_batch_of_nothing_mapped_changes_nothing():
    program = program_of(lambda x: (sin(x),), F3)
    lifted, mapped = batch_program(program, AXIS, (False,))
    assert mapped == (False,) and lifted == program


def test_batch_goes_through_calls(rng):
    inner = program_of(lambda x, y: (mul(x, y), y), F3, F3)
    program = program_of(lambda x, y: call(x, y, program=inner, name="f"), F3, F3)
    lifted, mapped = batch_program(program, AXIS, (True, False))
    assert mapped == (True, False) and names(lifted) == ["call"]
    x, y = rng.standard_normal((4, 3)), rng.standard_normal(3)
    np.testing.assert_allclose(run_reference(lifted, [x, y])[0], x * y)


# ---------------------------------------------------------------- all of them


def test_every_result_is_a_valid_program():
    inner = program_of(lambda x, y: (mul(sin(x), y), exp(y)), F3, F3)
    program = program_of(lambda x, y: call(x, y, program=inner, name="f"), F3, F3)
    moved, _ = jvp_program(program, (True, True))
    parts = linearize_program(program, (True, True))
    count = len(parts.residuals)
    turned, _ = transpose_program(
        parts.linear, (False,) * count + (True, True), (True, True)
    )
    lifted, _ = batch_program(turned, AXIS, (True,) * len(turned.inputs))
    for result in (moved, parts.primal, parts.linear, turned, lifted):
        assert find_problem(result) is None


def test_sources_survive_every_transformation():
    # Of a shape of its own: equal programs share what is made of the first one.
    program = program_of(lambda x: (mul(sin(x), x),), array_type((1237,), "float32"))
    parts = linearize_program(program, (True,))
    turned, _ = transpose_program(
        parts.linear, (False,) * len(parts.residuals) + (True,), (True,)
    )
    for result in (jvp_program(program, (True,))[0], parts.linear, turned):
        sources = {str(eqn.source) for eqn in result.eqns}
        assert all("test_programs.py" in source for source in sources)
