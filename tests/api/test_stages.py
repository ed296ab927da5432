"""Ahead of time: trace, lower, compile; what a call costs in operations and memory.

Costs are compared with counts done by hand, and with those of JAX where both count the
same thing.
"""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.core.types import array_type

X = np.arange(3.0)
CAPTURED = fnx.numpy.asarray(np.float32(2))


def struct(*shape, dtype="float32"):
    return fnx.ShapeDtypeStruct(shape, dtype)


def test_what_is_said_of_arguments():
    def f(x, n, rest, *, z):
        return x * n, rest["a"] + z + CAPTURED

    options = {"static_argnums": 1, "donate_argnums": 2, "donate_argnames": "z"}
    jitted = fnx.jit(f, **options)
    args = struct(2), 3, {"a": struct(), "b": None}
    staged = jitted.trace(*args, z=struct(dtype="int32"))
    for stage in (staged, staged.lower(), staged.lower().compile()):
        (x, rest), named = stage.args_info
        assert (x.shape, x.dtype, x.donated) == ((2,), np.float32, False)
        assert rest["a"].donated and rest["b"] is None
        z = named["z"]
        assert (z.shape, z.dtype, z.donated) == ((), np.int32, True)
        assert repr(z) == "ArgInfo(shape=(), dtype=int32, donated=True)"
    assert x != struct(2) and x == staged.args_info[0][0]
    assert fnx.eval_shape(lambda x: x * 2, x) == struct(2)


def cost(f, *args):
    return fnx.jit(f).lower(*args).cost_analysis()


def memory(f, *args):
    return fnx.jit(f).lower(*args).compile().memory_analysis()


def test_stages():
    f = fnx.jit(lambda x, n: x * float(n), static_argnums=1)
    staged = f.trace(struct(3), 2)
    assert staged.out_info == struct(3)
    (info,), named = staged.args_info
    assert info.shape == (3,) and info.dtype == np.float32 and not info.donated
    assert not named and isinstance(info, fnx.stages.ArgInfo)
    assert staged.jaxpr.input_types == (array_type((3,), "float32"),)
    assert staged.fun_name == "<lambda>" and staged.out_tree.num_leaves == 1
    assert f.eval_shape(X, 2).shape == (3,)
    lowered = staged.lower()
    assert "mul" in lowered.as_text() and "mul" in lowered.as_text("program")
    assert lowered.as_text("plan") and lowered.as_text("kernel")
    compiled = lowered.compile()
    assert compiled.out_info == lowered.out_info == struct(3)
    assert compiled.as_text().startswith("plan: 1 steps")
    assert "@run" in compiled.as_text("llvm") and "ret" in compiled.as_text("asm")
    found = compiled(X.astype("f4"))
    np.testing.assert_allclose(found, 2 * X)
    assert found.dtype == np.float32
    with pytest.raises(errors.OptionError, match=r"'fortran'.*program, plan, kernel"):
        lowered.as_text("fortran")


def test_debug_info_shows_lines():
    lowered = fnx.jit(lambda x: x + 1.0).lower(2.0)
    line = lowered.as_text(debug_info=True).split("\n")[1]
    assert "# tests/api/test_stages.py:" in line and "x + 1.0" in line
    with pytest.raises(errors.OptionError, match="only the stage 'program'"):
        lowered.as_text("plan", debug_info=True)


def test_a_text_has_the_lines_of_its_own_function():
    def first(x):
        with fnx.named_scope("one"):
            return fnp.sin(x) * 3.0

    def second(x):
        with fnx.named_scope("two"):
            return fnp.sin(x) * 3.0

    for f, name in ((first, "# one"), (second, "# two")):
        assert name in fnx.jit(f).lower(X).compile().as_text("plan")


def test_captured_arrays_and_trees():
    w = fnp.asarray([1.0, 2.0, 3.0])
    f = fnx.jit(lambda p, *, k: {"y": p["x"] * w * k, "n": None})
    compiled = f.lower({"x": struct(3)}, k=2.0).compile()
    found = compiled({"x": np.ones(3, "f4")}, k=3.0)
    np.testing.assert_allclose(found["y"], [3.0, 6.0, 9.0])
    assert found["n"] is None


def test_other_types_are_shown_by_name():
    f = fnx.jit(lambda x, p: x @ p["w"] + p["b"])
    compiled = f.lower(struct(2, 3), {"w": struct(3, 4), "b": 0.0}).compile()
    good = np.ones((2, 3), "f4"), {"w": np.ones((3, 4), "f4"), "b": 1.0}
    assert compiled(*good).shape == (2, 4)
    # A strong type in the place of a weak one is another program, and the same code.
    assert compiled(good[0], good[1] | {"b": np.float32(1)}).shape == (2, 4)
    with pytest.raises(errors.ArgumentError) as caught:
        compiled(np.ones((2, 5), "f4"), {"w": np.ones((3, 4)), "b": 1})
    assert str(caught.value) == (
        "jit of <lambda>: other argument types:\n"
        "  x: compiled for f32[2,3], called with f32[2,5]\n"
        "  p['b']: compiled for f32[]*, called with i32[]*\n"
        "  p['w']: compiled for f32[3,4], called with f64[3,4]\n"
        "  Fix: convert the arguments, or call the jitted function itself, which "
        "compiles for each type."
    )
    with pytest.raises(errors.TreeError) as caught:
        compiled(good[0], {"w": good[1]["w"]})
    assert str(caught.value) == (
        "jit of <lambda>: other arguments:\n"
        "  at [0][1]['b']: only in the compiled function"
    )
    with pytest.raises(errors.ArgumentError, match=r"x is 'a' of type str"):
        compiled("a", good[1])
    with pytest.raises(errors.ArgumentError, match="called while tracing"):
        fnx.vmap(lambda x: compiled(x, good[1]))(np.ones((2, 2, 3), "f4"))


def test_compiled_functions_donate():
    compiled = fnx.jit(lambda x, y: x + y, donate_argnums=0).lower(X, X).compile()
    x, y = fnp.asarray(X), fnp.asarray(X)
    np.testing.assert_allclose(compiled(x, y), 2 * X)
    assert x.is_deleted() and not y.is_deleted()
    with pytest.raises(errors.ArgumentError, match="is donated"):
        compiled(y, y)


def test_compile_compiles():
    f = fnx.jit(lambda x: x * 17.25)
    compiled = f.lower(X).compile()
    with fnx.no_recompile():
        np.testing.assert_allclose(compiled(X), 17.25 * X)


# ---------------------------------------------------------------- costs


def test_operations_by_hand():
    x, row = struct(20, 30), struct(30)
    assert cost(lambda x: x * 2.0 + 1.0, x)["flops"] == 1200
    assert cost(lambda x: (x * x).sum(), x)["flops"] == 1200
    assert cost(lambda x, r: x - r, x, row)["flops"] == 600
    assert cost(lambda x: x.T, x)["flops"] == 0
    assert cost(lambda x: x.max(1), x)["flops"] == 600
    assert cost(lambda x: x.argmax(1), x)["flops"] == 600
    assert cost(lambda x: fnp.cumsum(x, 1), x)["flops"] == 600
    big = struct(64, 100), struct(100, 32)
    assert cost(lambda x, y: x @ y, *big)["flops"] == 2 * 64 * 100 * 32
    integers = struct(20, 30, dtype="int32")
    assert cost(lambda x: x * 2 + 1, integers)["flops"] == 0
    assert cost(lambda x: x[1:3], x)["bytes accessed"] == 2 * 2 * 30 * 4
    added = cost(lambda x, i: x.at[i].add(1.0), x, struct(5, dtype="int32"))
    assert added["flops"] == 5 * 30


def test_functions_are_counted_by_their_values():
    x = struct(500)
    found = cost(lambda x: fnp.exp(x) + fnp.sin(x), x)
    assert found["transcendentals"] == 1000
    assert 5000 < found["flops"] < 50_000
    assert cost(lambda x: fnp.sqrt(x) / x, x)["transcendentals"] == 0
    scanned = cost(lambda x: lax.map(lambda v: fnp.exp(v) * 2.0, x), x)
    assert scanned["transcendentals"] == 500


def test_bytes_by_hand():
    x = struct(20, 30)
    assert cost(lambda x: x * 2.0 + 1.0, x)["bytes accessed"] == 4800
    assert cost(lambda x: (x * x).sum(), x)["bytes accessed"] == 2404
    # Each element once, however often it is read.
    assert cost(lambda x: x + x.T, struct(16, 16))["bytes accessed"] == 2 * 16 * 16 * 4
    big = struct(64, 100), struct(100, 32)
    wanted = 4 * (64 * 100 + 100 * 32 + 64 * 32)
    assert cost(lambda x, y: x @ y, *big)["bytes accessed"] == wanted


def test_matrices_that_many_products_take_are_read_once():
    each, shared = struct(5, 40, 50), struct(3, 50, 60)
    found = cost(lambda x, y: x[:, None] @ y, each, shared)["bytes accessed"]
    assert found == 4 * (5 * 40 * 50 + 3 * 50 * 60 + 15 * 40 * 60)
    found = cost(lambda x, y: x @ y, struct(40, 50), shared)["bytes accessed"]
    assert found == 4 * (40 * 50 + 3 * 50 * 60 + 3 * 40 * 60)


def test_loops_count_their_rounds():
    x = struct(100)

    def scanned(x, length):
        return lax.scan(lambda c, _: (c * 2.0 + 1.0, None), x, None, length)[0]

    for length in (1, 7, 50):
        found = cost(lambda x, length=length: scanned(x, length), x)
        assert found["flops"] == 200 * length and found["unknown loops"] == 0
    nested = cost(
        lambda x: lax.scan(lambda c, _: (scanned(c, 3), None), x, None, 5)[0], x
    )
    assert nested["flops"] == 15 * 200

    def until(x):
        return lax.while_loop(lambda c: c[0] < 3.0, lambda c: c * 2.0, x)

    found = cost(until, x)
    # One round of the test and of the body.
    assert found["flops"] == 101 and found["unknown loops"] == 1
    both = cost(lambda x: lax.scan(lambda c, _: (until(c), None), x, None, 4)[0], x)
    assert both["flops"] == 404 and both["unknown loops"] == 1


def test_of_a_branch_the_costliest_counts():
    found = cost(
        lambda x: lax.cond(x[0] > 0, lambda x: x * 2.0, lambda x: x * x + x, x),
        struct(100),
    )
    assert found["flops"] == 1 + 200


def test_host_calls_are_counted():
    found = cost(fnp.sort, struct(100))
    assert found["host calls"] == 1 and found["bytes accessed"] == 800


@pytest.mark.oracle
def test_costs_are_those_of_jax(jax):
    jnp = jax.numpy
    x = np.ones((24, 40), "f4")
    cases = {
        "affine": (lambda np: lambda x: x * 2.0 + 1.0, "flops"),
        "product": (lambda np: lambda x: x @ x.T, "flops"),
        "functions": (lambda np: lambda x: np.exp(x) + np.log(x), "transcendentals"),
        "bytes": (lambda np: lambda x: x * 2.0 + 1.0, "bytes accessed"),
    }
    for name, (make, key) in cases.items():
        theirs = jax.jit(make(jnp)).lower(x).compile().cost_analysis()[key]
        assert cost(make(fnp), x)[key] == theirs, name


def test_memory():
    big = struct(100, 100)
    found = memory(lambda x: (x @ x) @ x, big)
    assert found.argument_size_in_bytes == found.output_size_in_bytes == 40_000
    assert found.temp_size_in_bytes == 40_000 and found.alias_size_in_bytes == 0
    assert found.peak_memory_in_bytes == 120_000
    fused = memory(lambda x: fnp.tanh(x * 2.0 + 1.0), big)
    assert fused.temp_size_in_bytes == 0
    same = memory(lambda x: (x, x + 1.0), big)
    assert same.alias_size_in_bytes == 40_000
    assert same.peak_memory_in_bytes == 80_000
    # What is not needed any more makes room.
    chain = memory(lambda x: (((x @ x) @ x) @ x) @ x, big)
    assert chain.temp_size_in_bytes == 80_000
