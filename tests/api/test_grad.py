"""grad and value_and_grad: values, trees, options, values on demand, error texts."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
from fnx import errors
from fnx.ops.elementwise import cos, exp, sin
from fnx.ops.parts import imag, real
from fnx.ops.reduce import reduce_sum
from fnx.testing import check_grads


def total(x):
    return reduce_sum(x, axes=tuple(range(x.ndim)))


def test_nested_grad_gives_higher_derivatives():
    cube = lambda x: x * x * x  # noqa: E731
    assert fnx.grad(cube)(3.0).item() == 27.0
    assert fnx.grad(fnx.grad(cube))(3.0).item() == 18.0
    assert fnx.grad(fnx.grad(fnx.grad(cube)))(3.0).item() == 6.0


def test_perturbations_are_not_confused():
    inner = lambda x: fnx.grad(lambda y: x + y)(1.0)  # noqa: E731
    assert fnx.grad(lambda x: x * inner(x))(3.0).item() == 1.0


def test_gradient_has_the_tree_shapes_and_dtypes_of_its_argument(rng):
    params = {
        "w": [rng.standard_normal((2, 3)).astype("f4"), np.float64(2.0)],
        "b": (1.5, None),
    }

    def loss(p):
        return total(p["w"][0] * p["w"][0]).sum() * 1.0 + 0.0 * p["b"][0]

    g = fnx.grad(loss)(params)
    assert fnx.tree.structure(g) == fnx.tree.structure(params)
    assert g["w"][0].dtype == np.float32
    np.testing.assert_allclose(g["w"][0], 2 * params["w"][0])
    assert g["w"][1].dtype == np.float64 and g["w"][1].item() == 0.0
    assert g["b"][0].weak_type


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_gradient_has_the_dtype_of_its_argument(dtype):
    x = fnx.device_put(np.ones(3, fnx.dtypes.as_dtype(dtype)))
    g = fnx.grad(lambda x: total(x * x))(x)
    assert g.dtype == x.dtype and not g.weak_type
    np.testing.assert_array_equal(np.asarray(g, "f4"), 2)


def test_argnums():
    f = lambda x, y, z: x * y * z  # noqa: E731
    assert fnx.grad(f, 1)(2.0, 3.0, 5.0).item() == 10.0
    assert fnx.grad(f, -1)(2.0, 3.0, 5.0).item() == 6.0
    both = fnx.grad(f, (0, 2))(2.0, 3.0, 5.0)
    assert [x.item() for x in both] == [15.0, 6.0]
    (one,) = fnx.grad(f, (0,))(2.0, 3.0, 5.0)
    assert one.item() == 15.0


def test_other_arguments_are_passed_on_as_they_are():
    def f(x, n, *, mode):
        assert type(n) is int and mode == "up"
        return x**n

    assert fnx.grad(f)(2.0, 3, mode="up").item() == 12.0


def test_aux_may_hold_anything():
    def f(x):
        y = x * x
        return y, {"y": y, "n": 3, "text": "abc"}

    g, aux = fnx.grad(f, has_aux=True)(3.0)
    assert g.item() == 6.0
    assert aux["y"].item() == 9.0 and aux["n"] == 3 and aux["text"] == "abc"
    (value, aux), g = fnx.value_and_grad(f, has_aux=True)(3.0)
    assert (value.item(), g.item()) == (9.0, 6.0)
    assert fnx.grad(lambda x: fnx.grad(f, has_aux=True)(x)[0])(3.0).item() == 2.0
    through = fnx.grad(lambda x: fnx.grad(f, has_aux=True)(x)[1]["y"])
    assert through(3.0).item() == 6.0


def test_python_sees_values_through_nested_gradients(capsys):
    def f(x):
        if x > 1:
            print(float(x), np.asarray(x * 2))
            return x * x
        return x

    assert fnx.grad(fnx.grad(f))(3.0).item() == 2.0
    assert capsys.readouterr().out == "3.0 6.0\n"
    assert fnx.grad(f)(0.5).item() == 1.0


def test_allow_int_gives_float0():
    g = fnx.grad(lambda p: p["x"] * 2.0, allow_int=True)({"x": 1.0, "n": 3})
    assert g["n"].dtype == fnx.float0 and g["n"].shape == ()


def test_complex_gradient_is_conjugate_of_steepest_ascent():
    z = np.complex128(3 + 4j)
    f = lambda z: real(z) * real(z) + 3.0 * imag(z)  # noqa: E731
    assert fnx.grad(f)(z).item() == 6 - 3j
    square = fnx.grad(lambda z: z * z, holomorphic=True)(z)
    assert square.item() == 6 + 8j


def test_value_that_does_not_depend_on_the_argument():
    assert fnx.grad(lambda x: 5.0)(1.0).item() == 0.0
    constant = fnx.device_put(np.float32(2))
    assert fnx.grad(lambda x: constant)(1.0).item() == 0.0


def test_captured_arrays_are_constants():
    c = fnx.device_put(np.array([1.0, 2.0]))
    np.testing.assert_array_equal(fnx.grad(lambda x: total(c * x))(np.ones(2)), c)


def test_inside_jit_and_vmap():
    f = lambda x: sin(x) * x  # noqa: E731
    x = np.array([0.5, 1.0, 2.0])
    wanted = np.cos(x) * x + np.sin(x)
    np.testing.assert_allclose(fnx.vmap(fnx.grad(f))(x), wanted)
    np.testing.assert_allclose(fnx.jit(fnx.vmap(fnx.grad(f)))(x), wanted)
    np.testing.assert_allclose(fnx.vmap(fnx.jit(fnx.grad(fnx.jit(f))))(x), wanted)
    total_grad = fnx.grad(lambda x: total(fnx.vmap(f)(x)))
    np.testing.assert_allclose(total_grad(x), wanted)


def test_check_grads_accepts_right_and_refuses_wrong_rules(rng):
    x = rng.standard_normal(4).astype("f4")
    check_grads(lambda p: exp(p["a"]) * cos(p["a"]) * p["b"], [{"a": x, "b": x}], 2)
    check_grads(lambda z: z * z, (x + 1j * x,), order=1)

    @fnx.custom_jvp
    def wrong(x):
        return x * x

    wrong.defjvp(lambda p, t: (wrong(*p), 2.002 * p[0] * t[0]))
    with pytest.raises(AssertionError, match=r"jvp at output differs"):
        check_grads(wrong, (1.5,), modes=("fwd",))
    with pytest.raises(AssertionError, match=r"vjp at output differs"):
        check_grads(wrong, (1.5,), modes=("rev",))


@pytest.mark.oracle
def test_against_jax(jax, rng):
    def f(p, y):
        return (p["a"] * p["b"] * y + p["a"] ** 2).sum()

    p = {"a": rng.standard_normal(3), "b": rng.standard_normal(3)}
    y = rng.standard_normal(3)
    wanted = jax.value_and_grad(f, (0, 1))(p, y)
    found = fnx.value_and_grad(f, (0, 1))(p, y)
    for a, b in zip(jax.tree.leaves(wanted), fnx.tree.leaves(found), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


@pytest.mark.oracle
def test_weak_types_are_those_of_jax(jax):
    for x in (1.0, np.float32(1.0)):
        wanted = jax.grad(lambda x: x * 2.0)(x)
        assert fnx.grad(lambda x: x * 2.0)(x).weak_type == wanted.weak_type


ONES = np.ones(3, np.float32)
BAD = {
    "vector output": (
        lambda: fnx.grad(lambda x: x * 2.0)(ONES),
        errors.ShapeError,
        r"scalar output: the function returned f32\[3\](.|\n)*sum(.|\n)*jacrev",
    ),
    "tree output": (
        lambda: fnx.grad(lambda x: (x, x))(1.0),
        errors.ShapeError,
        r"returned a tree: \(f32\[\]\*, f32\[\]\*\)",
    ),
    "integer argument": (
        lambda: fnx.grad(lambda p: p["n"][0] * 2.0)({"n": [3]}),
        errors.DTypeError,
        r"p\['n'\]\[0\] is i32\[\]\*: there is no derivative by an integer(.|\n)*"
        r"allow_int=True",
    ),
    "bool argument": (
        lambda: fnx.grad(lambda flag: 2.0)(True),
        errors.DTypeError,
        r"flag is bool\[\]: there is no derivative by a bool",
    ),
    "complex output": (
        lambda: fnx.grad(lambda z: z * z)(1j),
        errors.DTypeError,
        r"the output is c64\[\]\*: the output must be real(.|\n)*holomorphic=True",
    ),
    "integer output": (
        lambda: fnx.grad(lambda x: 3)(1.0),
        errors.DTypeError,
        r"the output is i32\[\]\*: integers and bools do not move",
    ),
    "holomorphic with a real argument": (
        lambda: fnx.grad(lambda z: z * 1j, holomorphic=True)(1.0),
        errors.DTypeError,
        r"z is f32\[\]\*: a holomorphic function takes complex arguments",
    ),
    "holomorphic with a real output": (
        lambda: fnx.grad(real, holomorphic=True)(1j),
        errors.DTypeError,
        r"the output is f32\[\].*: a holomorphic function gives complex values",
    ),
    "argnums out of range": (
        lambda: fnx.grad(lambda x: x, 1)(1.0),
        errors.ArgumentError,
        r"argnums=1: the call has 1 positional argument\.",
    ),
    "argnums twice": (
        lambda: fnx.grad(lambda x, y: x * y, (0, 0))(2.0, 3.0),
        errors.ArgumentError,
        r"grad: \(0, 0\) chooses an argument twice",
    ),
    "argnums twice, once from the end": (
        lambda: fnx.jacfwd(lambda x, y: x * y, (1, 0, -1))(2.0, 3.0),
        errors.ArgumentError,
        r"jacfwd: \(1, 0, -1\) chooses an argument twice",
    ),
    "argnames twice": (
        lambda: fnx.hessian(lambda x, y: x * y, argnames=("x", "x"))(2.0, y=3.0),
        errors.ArgumentError,
        r"\('x', 'x'\) chooses an argument twice",
    ),
    "argnums of fwd_and_bwd twice": (
        lambda: fnx.fwd_and_bwd(lambda x, y: x * y, (0, -2))[0](2.0, 3.0),
        errors.ArgumentError,
        r"fwd_and_bwd: \(0, -2\) chooses an argument twice",
    ),
    "argnums of a wrong kind": (
        lambda: fnx.grad(lambda x: x, "x"),
        errors.ArgumentError,
        r"argnums takes an integer or a sequence of integers: got 'x'",
    ),
    "string argument": (
        lambda: fnx.grad(lambda p: p)({"w": "abc"}),
        errors.ArgumentError,
        r"p\['w'\] is 'abc' of type str",
    ),
    "list output": (
        lambda: fnx.grad(lambda x: "a")(1.0),
        errors.ArgumentError,
        r"the function's result is 'a' of type str",
    ),
    "aux without a pair": (
        lambda: fnx.grad(lambda x: x, has_aux=True)(1.0),
        errors.ArgumentError,
        r"must return a pair",
    ),
    "no function": (
        lambda: fnx.grad(3),
        errors.ArgumentError,
        r"grad takes a function: got 3 of type int",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_say_what_why_and_what_to_do(name):
    call, error, match = BAD[name]
    with pytest.raises(error, match=match):
        call()


def test_leaked_tracers_are_found():
    kept = []

    def f(x):
        kept.append(x)
        return x * x

    fnx.jit(f)(2.0)
    with pytest.raises(errors.LeakedTracerError, match="after its trace had ended"):
        kept[0] + 1.0
    with pytest.raises(errors.LeakedTracerError):
        fnx.grad(lambda x: x * kept[0])(1.0)
    with pytest.raises(errors.LeakedTracerError):
        fnx.jit(lambda x: x)(kept[0])


def test_user_errors_show_no_frames_of_fnx():
    with pytest.raises(errors.ShapeError) as caught:
        fnx.grad(lambda x: x)(ONES)
    files = [entry.path for entry in caught.traceback]
    assert all("/fnx/" not in str(file).replace("/tests/", "") for file in files[1:])
