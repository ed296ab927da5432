"""What equations remember of the user's code: lines and scopes, however transformed.

The functions below are the only user's code; whatever a transformation makes of them
must come from a line of theirs, never from the line that asked for the transformation.
"""

from __future__ import annotations

import linecache

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.core.printer import print_program
from fnx.core.program import walk

X = np.linspace(0.2, 0.9, 6).reshape(2, 3)
USERS = {
    *("arithmetic", "scanned", "looped", "chosen", "held", "own_jvp", "own_vjp"),
    *("with_rule", "rule_of_jvp", "rule_forward", "rule_backward", "step", "again"),
    *("body", "small", "large", "inner", "with_vjp"),
}


def arithmetic(x):
    y = fnp.sin(x) @ fnp.exp(x).T
    return fnp.sort(y.ravel())[:2].sum() + fnp.cumsum(x).max()


def step(carry, row):
    carry = fnp.tanh(carry * row + carry)
    return carry, carry * row


def scanned(x):
    carry, rows = lax.scan(step, x[0], x, reverse=True)
    return (carry * rows).sum()


def again(state):
    return state[0] < 3


def body(state):
    return state[0] + 1, state[1] * fnp.cos(state[1])


def looped(x):
    return lax.while_loop(again, body, (0, x), max_steps=4)[1].sum()


def small(x):
    return x * x


def large(x):
    return fnp.exp(-x)


def chosen(x):
    return lax.cond(x.sum() < 1.0, small, large, x).sum()


@fnx.jit
def inner(x):
    return fnp.sqrt(x) * 2.0


def held(x):
    return inner(x).sum()


@fnx.custom_jvp
def with_rule(x):
    return fnp.log(x)


@with_rule.defjvp
def rule_of_jvp(primals, tangents):
    return with_rule(primals[0]), tangents[0] / primals[0]


def own_jvp(x):
    return with_rule(x).sum()


@fnx.custom_vjp
def with_vjp(x):
    return fnp.log(x)


def rule_forward(x):
    return fnp.log(x), x


def rule_backward(x, ct):
    return (ct / x,)


with_vjp.defvjp(rule_forward, rule_backward)


def own_vjp(x):
    return with_vjp(x).sum()


FUNCTIONS = (arithmetic, scanned, looped, chosen, held, own_jvp, own_vjp)


def rows(f):
    return fnx.vmap(f)(np.stack([X, X + 0.05, X - 0.1]))


TRANSFORMED = {
    "none": lambda f: f(X),
    "jvp": lambda f: fnx.jvp(f, (X,), (X,)),
    "grad": lambda f: fnx.grad(f)(X),
    "vmap": rows,
    "vmap(grad)": lambda f: rows(fnx.grad(f)),
    "grad(vmap)": lambda f: fnx.grad(lambda s: rows(lambda x: f(x * s)).sum())(1.0),
    "jit(grad)": lambda f: fnx.jit(fnx.grad(f))(X),
    "hessian": lambda f: fnx.hessian(f)(X),
    "vmap(vmap(jvp))": lambda f: rows(
        lambda x: fnx.vmap(lambda t: fnx.jvp(f, (x,), (t,)))(np.stack([X, X]))
    ),
}
# What transformations do with the arguments and results of the function as a whole.
OF_TRANSFORMATIONS = {
    *("mul", "mul_strong_zero", "reduce_sum", "broadcast_in_dim", "iota", "eq", "add"),
    *("call", "reshape", "convert", "slice", "concatenate", "permute"),
}


@pytest.mark.parametrize("how", TRANSFORMED)
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_every_equation_comes_from_a_line_of_the_function(f, how):
    program = fnx.make_jaxpr(lambda: TRANSFORMED[how](f))()
    eqns = list(walk(program))
    assert eqns
    lost = [eqn.primitive.name for eqn in eqns if eqn.source is None]
    assert not lost, f"without a line: {lost}"
    strange = {str(e.source) for e in eqns if e.source.file != __file__}
    assert not strange
    around = {e.primitive.name for e in eqns if e.source.function not in USERS}
    assert around <= OF_TRANSFORMATIONS


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_the_backward_pass_is_marked(f):
    forward = fnx.make_jaxpr(lambda x: fnx.jvp(f, (x,), (x,)))(X)
    assert not any(eqn.source.role == "backward" for eqn in walk(forward))
    both = fnx.make_jaxpr(fnx.grad(f))(X)
    marks = {name: set() for name in ("forward", "backward")}
    for eqn in walk(both):
        marks["backward" if eqn.source.role == "backward" else "forward"].add(
            eqn.primitive.name
        )
    assert marks["backward"]
    # What only the values need is computed forward, once.
    assert not marks["backward"] & {"sin", "exp", "tanh", "sort", "cos", "sqrt", "log"}


def test_rules_of_the_user_are_named_by_their_own_lines():
    for f, rule in ((own_jvp, "rule_of_jvp"), (own_vjp, "rule_backward")):
        program = fnx.make_jaxpr(fnx.grad(f))(X)
        divided = [e for e in walk(program) if e.primitive.name == "div"]
        assert {e.source.function for e in divided} == {rule}
    backward = fnx.make_jaxpr(fnx.grad(own_vjp))(X)
    assert all(
        e.source.role == "backward" for e in walk(backward) if e.primitive.name == "div"
    )


def test_equal_functions_keep_their_own_lines():
    def first(x):
        return (fnp.sin(x) * x).sum()

    def second(x):
        return (fnp.sin(x) * x).sum()

    for f in (first, second, first):
        program = fnx.make_jaxpr(fnx.vmap(fnx.grad(f)))(X)
        found = {eqn.source.function.split(".")[-1] for eqn in walk(program)}
        assert found == {f.__name__}


def test_lanes_are_marked_where_an_axis_leads():
    def f(x):
        return fnp.sqrt(x)

    program = fnx.make_jaxpr(fnx.vmap(fnx.vmap(f, 1)))(np.ones((2, 4, 3)))
    (root,) = [e for e in walk(program) if e.primitive.name == "sqrt"]
    assert root.source.lanes == (2, 3) and root.outputs[0].type.shape == (2, 3, 4)
    program = fnx.make_jaxpr(fnx.grad(lambda x: fnx.vmap(f)(x).sum()))(np.ones(5))
    assert all(e.source.lanes in ((), (5,)) for e in program.eqns)
    unmapped = fnx.make_jaxpr(fnx.vmap(lambda x, y: (x, fnp.sqrt(y)), (0, None)))
    (root,) = unmapped(np.ones(2), np.ones(2)).eqns[:1]
    assert root.source.lanes == ()


# ---------------------------------------------------------------- scopes


def scopes_of(program):
    return [(e.primitive.name, "/".join(e.source.scope)) for e in walk(program)]


def scoped(x):
    with fnx.named_scope("outer"):
        y = fnp.sin(x)
        with fnx.named_scope("inner"):
            y = fnp.exp(y)
        y = attention(y)
    return fnp.cos(y)


@fnx.named_scope("attention")
def attention(x):
    return fnp.tanh(x)


def test_scopes_nest_and_end():
    wanted = [("sin", "outer"), ("exp", "outer/inner"), ("tanh", "outer/attention")]
    wanted.append(("cos", ""))
    assert scopes_of(fnx.make_jaxpr(scoped)(1.0)) == wanted
    assert attention.__name__ == "attention"
    lifted = fnx.make_jaxpr(fnx.vmap(scoped))(np.ones(3))
    assert scopes_of(lifted) == wanted
    backward = fnx.make_jaxpr(fnx.grad(scoped))(1.0)
    assert {scope for _, scope in scopes_of(backward)} == {
        *("outer", "outer/inner", "outer/attention", "")
    }


def test_named_call_takes_the_name_of_the_function():
    def square(x):
        return x * x

    assert scopes_of(fnx.make_jaxpr(fnx.named_call(square))(1.0)) == [("mul", "square")]
    other = fnx.named_call(square, name="other")
    assert scopes_of(fnx.make_jaxpr(other)(1.0)) == [("mul", "other")]
    assert other.__name__ == "square"


def test_scopes_of_held_programs_are_those_inside():
    @fnx.jit
    def f(x):
        return attention(x) * 2.0

    def g(x):
        with fnx.named_scope("first"):
            x = f(x)
        with fnx.named_scope("second"):
            return f(x)

    assert scopes_of(fnx.make_jaxpr(g)(1.0)) == [
        *(("call", "first"), ("tanh", "attention"), ("mul", "")),
        *(("call", "second"), ("tanh", "attention"), ("mul", "")),
    ]

    def around(x):
        with fnx.named_scope("around"):
            return fnx.grad(lambda x: fnx.grad(scoped)(x))(x)

    found = scopes_of(fnx.make_jaxpr(around)(1.0))
    assert all(scope.startswith("around") for _, scope in found)
    assert any(scope == "around/outer/inner" for _, scope in found)


def test_scopes_are_in_programs_plans_and_errors():
    program = fnx.make_jaxpr(scoped)(1.0)
    line = print_program(program, sources=True).split("\n")[2]
    number = scoped.__code__.co_firstlineno + 4
    assert line.endswith(f"{number} (scoped, in outer/inner): y = fnp.exp(y)")
    assert linecache.getline(__file__, number).strip() == "y = fnp.exp(y)"

    def product(x):
        with fnx.named_scope("layer1"), fnx.named_scope("dense"):
            x = x @ x
        return x + 1.0

    plan = fnx.jit(product).lower(np.ones((64, 64), "f4")).as_text("plan")
    assert "# layer1/dense" in plan.split("\n")[1]
    assert "#" not in plan.split("\n")[2]

    def asks(x):
        with fnx.named_scope("layer1"):
            positive = x > 0
        return x if positive else -x

    with pytest.raises(
        errors.TracerValueError, match=r"asks, in layer1\): positive = x"
    ):
        fnx.jit(lambda x: asks(x))(1.0)

    def wrong(x):
        with fnx.named_scope("layer1"), fnx.named_scope("dense"):
            return x @ fnp.ones(7)

    with pytest.raises(errors.ShapeError) as caught:
        fnx.jit(wrong)(X)
    assert caught.value.__notes__ == ["in the scope 'dense'", "in the scope 'layer1'"]


def test_scopes_take_names():
    with pytest.raises(errors.ArgumentError, match="takes a name, got 3 of type int"):
        fnx.named_scope(3)
    with pytest.raises(errors.ArgumentError, match="takes a function"):
        fnx.named_scope("a")(3)
    scope = fnx.named_scope("a")
    with scope, scope:
        pass
    with pytest.raises(IndexError):
        scope.__exit__(None, None, None)
