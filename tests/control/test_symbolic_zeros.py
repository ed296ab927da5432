"""custom_vjp and custom_jvp: what rules are told about what is not differentiated."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import fnx
from fnx import errors
from fnx.custom_derivatives import CustomVJPPrimal, SymbolicZero
from tests.control.flows import X

AXES = pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def symbolic_product(seen):
    """x * y and x + y; the rules write down what they are told."""
    f = fnx.custom_vjp(lambda x, y, n: (x * y * n, x + y))

    def forward(x, y, n):
        assert all(isinstance(leaf, CustomVJPPrimal) for leaf in (x, y, n))
        seen.append(("forward", x.perturbed, y.perturbed, n.perturbed))
        return f(x.value, y.value, n.value), (x.value, y.value, n.value)

    def backward(residuals, cts):
        x, y, n = residuals
        seen.append(("backward", *[type(ct) is SymbolicZero for ct in cts]))
        zero = SymbolicZero(fnx.typeof(x)) if hasattr(x, "type") else None
        gx, gy = zero, zero
        if type(cts[0]) is not SymbolicZero:
            gx, gy = cts[0] * y * n, cts[0] * x * n
        if type(cts[1]) is not SymbolicZero:
            gx = cts[1] if type(gx) is SymbolicZero else gx + cts[1]
            gy = cts[1] if type(gy) is SymbolicZero else gy + cts[1]
        return gx, gy, None

    f.defvjp(forward, backward, symbolic_zeros=True)
    return f


def test_a_forward_rule_sees_what_is_differentiated():
    seen = []
    f = symbolic_product(seen)
    close(fnx.grad(lambda x: sum(f(x, 4.0, 2)))(3.0), 9.0)
    assert seen == [("forward", True, False, False), ("backward", False, False)]
    seen.clear()
    close(fnx.grad(lambda x, y: f(x, y, 2)[1], 1)(3.0, 4.0), 1.0)
    assert seen == [("forward", False, True, False), ("backward", True, False)]
    seen.clear()
    assert f(3.0, 4.0, 2)[0] == 24.0
    assert fnx.jit(f)(3.0, 4.0, 2)[0] == 24.0
    assert seen == []


@pytest.mark.parametrize("which", [0, 1, 2])
def test_symbolic_zeros_under_transformations(which):
    f = symbolic_product([])

    def one(x, y):
        outputs = f(x, y, np.int32(2))
        return sum(outputs) if which == 2 else outputs[which]

    def plain(x, y):
        outputs = x * y * 2, x + y
        return sum(outputs) if which == 2 else outputs[which]

    args = np.float64(1.5), np.float64(-0.5)
    for make in (
        lambda f: fnx.grad(f, (0, 1)),
        lambda f: fnx.jit(fnx.grad(f, (0, 1))),
        lambda f: fnx.hessian(f, (0, 1)),
        lambda f: lambda x, y: fnx.jvp(f, (x, y), (y, x)),
        lambda f: fnx.jacfwd(fnx.jacfwd(f, 1), 0),
        lambda f: fnx.grad(lambda x, y: fnx.grad(f)(x, y) * x, (0, 1)),
    ):
        found, wanted = make(one)(*args), make(plain)(*args)
        for a, b in zip(fnx.tree.leaves(found), fnx.tree.leaves(wanted), strict=True):
            close(a, b)


def test_residuals_that_are_numbers_of_python_stay_so():
    f = fnx.custom_vjp(lambda x, y: x * y)
    seen = []

    def forward(x, y):
        kept = {"moving": (x.perturbed, y.perturbed), "times": 2, "half": 0.5}
        return x.value * y.value, (x.value, y.value, kept, np.float32(3.0))

    def backward(residuals, ct):
        x, y, kept, three = residuals
        seen.append(kept["moving"])
        assert type(kept["times"]) is int and type(kept["half"]) is float
        assert three.dtype == "float32"
        ct = sum([ct] * kept["times"]) * kept["half"] * three / 3
        by_x, by_y = kept["moving"]
        return (ct * y if by_x else None), (ct * x if by_y else None)

    f.defvjp(forward, backward, symbolic_zeros=True)
    x, y = np.float64(3.0), np.float64(4.0)
    for argnums, moving in (
        (0, (True, False)),
        (1, (False, True)),
        ((0, 1), (True,) * 2),
    ):
        for make in (
            lambda g: g,
            fnx.jit,
            lambda g: lambda x, y: fnx.vmap(g)(np.array([x]), np.array([y])),
        ):
            seen.clear()
            found = make(fnx.grad(f, argnums))(x, y)
            wanted = [(4.0, 3.0)[n] for n in np.atleast_1d(argnums)]
            for a, b in zip(fnx.tree.leaves(found), wanted, strict=True):
                close(a, b)
            assert set(seen) == {moving}
    close(fnx.hessian(f, 1)(x, y), 0.0)
    close(fnx.grad(fnx.grad(f), 1)(x, y), 1.0)


@AXES
def test_symbolic_zeros_of_mapped_functions(axes):
    f = symbolic_product([])

    def one(x, y):
        return sum(f(x, y, np.int32(2)))

    def plain(x, y):
        return x * y * 2 + x + y

    x, y = [X * n if axis == 0 else np.float64(2.0) for n, axis in enumerate(axes)]
    mapped = fnx.vmap(fnx.grad(one, 1), axes)(x, y)
    close(mapped, fnx.vmap(fnx.grad(plain, 1), axes)(x, y))
    outer = fnx.grad(lambda x, y: fnx.vmap(one, axes)(x, y).sum(), 1)(x, y)
    close(outer, fnx.grad(lambda x, y: fnx.vmap(plain, axes)(x, y).sum(), 1)(x, y))


def test_symbolic_zeros_of_a_jvp_rule():
    seen = []
    f = fnx.custom_jvp(lambda x, y: x * y)

    @functools.partial(f.defjvp, symbolic_zeros=True)
    def rule(primals, tangents):
        x, y = primals
        seen.append(tuple(type(t) is SymbolicZero for t in tangents))
        tx, ty = tangents
        if type(tx) is SymbolicZero and type(ty) is SymbolicZero:
            return f(x, y), SymbolicZero(fnx.typeof(x * y))
        if type(tx) is SymbolicZero:
            assert tx.shape == x.shape and tx.dtype == x.dtype and tx.ndim == 0
            close(tx.instantiate(), 0.0)
            return f(x, y), 5.0 * x * ty
        if type(ty) is SymbolicZero:
            return f(x, y), 3.0 * tx * y
        return f(x, y), tx * y + x * ty

    x, y = np.float64(2.0), np.float64(7.0)
    close(fnx.grad(f)(x, y), 21.0)
    close(fnx.grad(f, 1)(x, y), 10.0)
    close(fnx.jvp(f, (x, y), (1.0, 1.0))[1], 9.0)
    assert seen == [(False, True), (True, False), (False, False)]
    close(fnx.vmap(fnx.grad(f), (0, None))(X, y), np.full(3, 21.0))
    close(fnx.grad(lambda x, y: fnx.vmap(f, (None, 0))(x, y).sum(), 1)(x, X), 10.0)


def test_a_promise_about_remat_changes_nothing_else():
    runs = []
    f = fnx.custom_vjp(lambda x: x * x)

    def forward(x):
        runs.append("forward")
        return x * x, x

    f.defvjp(forward, lambda x, ct: (10.0 * x * ct,), optimize_remat=True)
    assert fnx.jit(fnx.vmap(f))(X).shape == (3,)
    assert runs == []
    close(fnx.grad(f)(np.float64(3.0)), 30.0)
    assert runs == ["forward"]
    with pytest.raises(errors.OptionError, match="optimize_remat is a bool, got 3"):
        f.defvjp(forward, lambda x, ct: (ct,), optimize_remat=3)


def test_names_of_arguments_that_are_not_differentiated():
    calls = []
    f = fnx.custom_jvp(lambda scale, x, kind: x * scale, nondiff_argnames="kind")

    @f.defjvp
    def rule(kind, primals, tangents):
        calls.append(kind)
        return f(*primals, kind), 2.0 * tangents[1] * primals[0]

    close(fnx.grad(lambda x: f(3.0, x, kind="this"))(1.0), 6.0)
    assert set(calls) == {"this"}
    with pytest.raises(errors.OptionError, match="nondiff_argnames has 'that'"):
        fnx.custom_vjp(lambda x: x, nondiff_argnames=("that",))
