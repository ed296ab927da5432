"""The program checker finds what a broken transformation could make."""

from __future__ import annotations

import pytest

from fnx import errors
from fnx.config import config
from fnx.core.check import checked, find_problem
from fnx.core.primitive import primitive
from fnx.core.program import Eqn, Program, Var
from fnx.core.types import array_type
from fnx.ops.arithmetic import add

F3 = array_type((3,), "float32")
F4 = array_type((4,), "float32")


def program(x: Var, y: Var, out: Var, *, result: Var | None = None) -> Program:
    eqn = Eqn(add, (x, y), (out,), {}, None)
    return Program((x,), (eqn,), (result or out,))


def test_a_right_program_has_no_problem() -> None:
    x = Var(F3)
    assert find_problem(program(x, x, Var(F3))) is None
    assert primitive("add") is add


def test_an_undefined_input_is_found() -> None:
    problem = find_problem(program(Var(F3), Var(F3), Var(F3)))
    assert problem is not None
    assert "equation 0 (add)" in problem
    assert "not defined before" in problem


def test_a_wrong_output_type_is_found() -> None:
    x = Var(F3)
    problem = find_problem(program(x, x, Var(F4)))
    assert problem is not None
    assert "f32[4]" in problem
    assert "f32[3]" in problem


def test_a_variable_defined_twice_is_found() -> None:
    x = Var(F3)
    assert "defined already" in (find_problem(program(x, x, x)) or "")


def test_an_undefined_output_is_found() -> None:
    x = Var(F3)
    assert "output" in (find_problem(program(x, x, Var(F3), result=Var(F3))) or "")


def test_checked_raises_with_the_pass_and_the_program_before_and_after() -> None:
    x = Var(F3)
    right, wrong = program(x, x, Var(F3)), program(x, x, Var(F4))
    with config.override(check=True):
        assert checked(right, "batch", right) is right
        with pytest.raises(errors.InternalError, match="'batch'") as caught:
            checked(wrong, "batch", right)
    assert f"before batch\n{right}" in str(caught.value)
    assert f"after batch\n{wrong}" in str(caught.value)
    with config.override(check=False):
        assert checked(wrong, "batch", right) is wrong
