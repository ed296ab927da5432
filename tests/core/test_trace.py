"""Tracing, captured values, values on demand, and the errors of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fnx import errors
from fnx.core.program import Literal
from fnx.core.simplify import simplify
from fnx.core.trace import evaluate, trace, tracing
from fnx.core.types import ArrayType, array_type
from fnx.ops.arithmetic import add, mul, neg, select
from fnx.ops.elementwise import gt
from fnx.ops.shape import permute
from fnx.runtime.array import from_numpy

F3 = array_type((3,), "float32")


def array(*values: float) -> Any:
    return from_numpy(np.array(values, np.float32))


def test_types_are_interned_and_print() -> None:
    assert array_type((3, 4), "float32") is ArrayType((3, 4), np.dtype("float32"))
    assert str(array_type((3, 4), "float32")) == "f32[3,4]"
    assert str(array_type((), "bool")) == "bool[]"
    assert str(array_type((), "int32", weak=True)) == "i32[]*"


def test_a_program_prints_like_a_jaxpr() -> None:
    program = trace(lambda x, y: [mul(add(x, y), 2.0)], [F3, F3]).program
    assert str(program) == (
        "{ lambda a:f32[3] b:f32[3]. let\n"
        "    c:f32[3] = add a b\n"
        "    d:f32[3] = mul c 2.0:f32[]*\n"
        "  in (d,) }"
    )


def test_equal_programs_are_equal_and_hash_alike() -> None:
    first = trace(lambda x: [add(x, 1.0)], [F3]).program
    second = trace(lambda x: [add(x, 1.0)], [F3]).program
    other = trace(lambda x: [add(x, -0.0)], [F3]).program
    zero = trace(lambda x: [add(x, 0.0)], [F3]).program
    assert first == second
    assert hash(first) == hash(second)
    assert other != zero


def test_each_equation_keeps_the_user_line() -> None:
    def user_function(x: Any) -> Any:
        return [neg(x)]

    (eqn,) = trace(user_function, [F3]).program.eqns
    assert eqn.source is not None
    assert eqn.source.file == __file__
    assert eqn.source.text == "return [neg(x)]"


def test_concrete_arrays_are_captured_once() -> None:
    held = array(1, 2, 3)
    traced = trace(lambda x: [add(x, held), mul(x, held)], [F3])
    assert [value is held for value in traced.captured] == [True]
    assert len(traced.program.inputs) == 2
    x = array(10, 20, 30)
    total, product = evaluate(traced.program, [*traced.captured, x])
    np.testing.assert_array_equal(np.asarray(total), [11, 22, 33])
    np.testing.assert_array_equal(np.asarray(product), [10, 40, 90])


def test_an_outer_tracer_is_captured_by_every_trace_between() -> None:
    inner: list[Any] = []

    def outer(x: Any) -> Any:
        def middle(y: Any) -> Any:
            traced = trace(lambda z: [mul(add(x, y), z)], [F3])
            inner.append(traced)
            return evaluate(traced.program, [*traced.captured, y])

        traced = trace(middle, [F3])
        return evaluate(traced.program, [*traced.captured, x])

    program = trace(outer, [F3]).program
    assert len(inner[0].captured) == 2
    (result,) = evaluate(program, [array(1, 2, 3)])
    np.testing.assert_array_equal(np.asarray(result), [2, 8, 18])


def test_everything_bound_inside_is_recorded() -> None:
    held = array(1, 2, 3)
    traced = trace(lambda x: [add(x, neg(held))], [F3])
    assert [eqn.primitive.name for eqn in traced.program.eqns] == ["neg", "add"]


def test_known_values_are_there_on_demand() -> None:
    seen: list[Any] = []

    def function(x: Any) -> Any:
        y = mul(x, 2.0)
        if float(np.asarray(y)[1]) > 3:
            seen.append(np.asarray(y).tolist())
        return [add(y, 1.0)]

    trace(function, [F3], known=[array(1, 2, 3)])
    assert seen == [[2.0, 4.0, 6.0]]


def test_values_are_known_through_outer_traces() -> None:
    seen: list[float] = []

    def outer(x: Any) -> Any:
        def inner(y: Any) -> Any:
            z = mul(y, x)
            seen.append(float(np.asarray(z)[2]))
            return [z]

        traced = trace(inner, [F3], known=[add(x, 1.0)])
        return evaluate(traced.program, [*traced.captured, x])

    trace(outer, [F3], known=[array(1, 2, 3)])
    assert seen == [12.0]


def test_values_that_depend_on_no_argument_are_known() -> None:
    held = array(1, 2, 3)

    def function(x: Any) -> Any:
        assert float(np.asarray(add(held, 1.0))[0]) == 2.0
        return [x]

    trace(function, [F3])


def test_asking_for_an_unknown_value_names_the_argument_and_the_fix() -> None:
    def function(x: Any) -> Any:
        return [x if gt(add(x, 1.0), x) else neg(x)]

    with pytest.raises(errors.TracerValueError) as caught:
        trace(function, [array_type((), "float32")], names=["params['w']"])
    message = str(caught.value)
    assert "bool[]" in message
    assert "params['w']" in message
    assert "static_argnums" in message
    assert "return [x if gt(add(x, 1.0), x) else neg(x)]" in message


def test_a_leaked_tracer_says_what_it_is() -> None:
    kept: list[Any] = []

    def function(x: Any) -> Any:
        kept.append(neg(x))
        return [x]

    trace(function, [F3])
    with pytest.raises(errors.LeakedTracerError, match=r"f32\[3\].*neg\(x\)"):
        add(kept[0], array(1, 2, 3))
    with pytest.raises(errors.LeakedTracerError, match=r"f32\[3\]"):
        trace(lambda y: [add(y, kept[0])], [F3])


def test_a_failed_trace_leaves_no_trace_behind() -> None:
    def fails(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        trace(fails, [F3])
    assert not tracing()


def test_simplify_removes_dead_repeated_and_trivial_equations() -> None:
    def function(x: Any, y: Any) -> Any:
        mul(x, y)
        a, b = add(x, y), add(y, x)
        return [mul(mul(a, b), 1.0), select(True, x, y)]

    clean = simplify(trace(function, [F3, F3]).program)
    assert [eqn.primitive.name for eqn in clean.eqns] == ["add", "mul"]
    assert clean.outputs[1] is clean.inputs[0]


def test_simplify_keeps_what_ieee_tells_apart() -> None:
    def function(x: Any) -> Any:
        return [add(x, 0.0), mul(x, 0.0), add(x, -0.0)]

    clean = simplify(trace(function, [F3]).program)
    assert [eqn.primitive.name for eqn in clean.eqns] == ["add", "mul"]
    assert clean.outputs[2] is clean.inputs[0]


def test_simplify_makes_one_permutation_of_several() -> None:
    x = array_type((2, 3, 4), "float32")

    def turned(*many: tuple[int, ...]) -> list[str]:
        def run(x: Any) -> list[Any]:
            for dims in many:
                x = permute(x, dims=dims)
            return [mul(x, 2.0)]

        program = simplify(trace(run, [x]).program)
        return [str(eqn.params.get("dims")) for eqn in program.eqns]

    assert turned((1, 0, 2), (1, 0, 2)) == ["None"]
    assert turned((1, 2, 0), (1, 2, 0), (1, 2, 0)) == ["None"]
    assert turned((1, 2, 0), (1, 0, 2)) == ["(2, 1, 0)", "None"]


def test_simplify_folds_scalars() -> None:
    def function(x: Any) -> Any:
        return [add(x, mul(Literal(2.0), Literal(3.0)))]

    clean = simplify(trace(function, [array_type((), "float32")]).program)
    (eqn,) = clean.eqns
    assert isinstance(eqn.inputs[1], Literal)
    assert eqn.inputs[1].value == 6.0
