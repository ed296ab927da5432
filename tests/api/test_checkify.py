"""checkify: what failed first, through jit, vmap, derivatives, branches and loops."""

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import checkify, errors
from fnx.extend import Elementwise, Fault


def first_line(error):
    text = error.get()
    return None if text is None else text.splitlines()[0]


def root(x):
    checkify.check(x >= 0, "negative: {x}", x=x)
    return fnp.sqrt(x)


def each_way(f, *args, kinds=checkify.all_checks):
    """The first line, which is the same without and under jit, and the result."""
    checked = checkify.checkify(f, errors=kinds)
    error, out = checked(*args)
    again, same = fnx.jit(checked)(*args)
    assert error.get() == again.get()
    for x, y in zip(fnx.tree.leaves(out), fnx.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(x, y)
    return first_line(error), out


def test_a_check_that_holds_and_one_that_does_not():
    assert each_way(root, 9.0) == (None, 3.0)
    text, out = each_way(root, -9.0)
    assert text == "negative: -9.0"
    assert np.isnan(out)


def test_the_error_names_the_line():
    error, _ = checkify.checkify(root)(-1.0)
    assert "test_checkify.py" in error.get()
    assert "checkify.check(x >= 0" in error.get()
    with pytest.raises(errors.CheckError, match=r"negative: -1\.0"):
        error.throw()


def test_the_first_of_several_counts():
    def f(x):
        checkify.check(x < 5, "5: {}", x)
        checkify.check(x < 3, "3: {}", x)
        checkify.check(x < 7, "7: {}", x)
        return x

    assert [each_way(f, x)[0] for x in (2, 4, 6, 8)] == [None, "3: 4", "5: 6", "5: 8"]


def test_what_is_shown_may_be_arrays_and_trees():
    def f(x):
        checkify.check(x["a"].sum() > 10, "{0} and {y[b]:.2f}", x["a"], y={"b": 2 / 3})
        return x["a"]

    assert each_way(f, {"a": np.arange(3)})[0] == "[0 1 2] and 0.67"


def test_vmap_outside_has_an_error_for_each_member():
    x = np.array([4.0, -1.0, 9.0, -2.5])
    error, out = fnx.vmap(checkify.checkify(root))(x)
    lines = [line for line in error.get().splitlines() if line.startswith("at mapped")]
    assert lines == [
        "at mapped index 1: negative: -1.0",
        "at mapped index 3: negative: -2.5",
    ]
    np.testing.assert_array_equal(out[::2], [2.0, 3.0])
    assert fnx.vmap(checkify.checkify(root))(np.ones(3))[0].get() is None


def test_vmap_inside_has_the_first_member():
    f = fnx.vmap(fnx.vmap(root))
    x = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, -6.0], [-7.0, 8.0, 9.0]])
    assert each_way(f, x)[0] == "at mapped index 1, 2: negative: -6.0"


@pytest.mark.parametrize("transform", [fnx.grad, fnx.value_and_grad, fnx.jacfwd])
def test_derivatives_are_checked(transform):
    assert each_way(transform(root), 4.0)[0] is None
    assert each_way(transform(root), -4.0)[0] == "negative: -4.0"


def test_the_derivative_of_a_checked_function():
    def f(x):
        error, y = checkify.checkify(root, errors=checkify.all_checks)(x)
        return y, error

    slope, error = fnx.grad(f, has_aux=True)(4.0)
    assert slope == 0.25
    assert error.get() is None
    assert first_line(fnx.grad(f, has_aux=True)(-1.0)[1]) == "negative: -1.0"


def test_a_custom_derivative_is_kept():
    @fnx.custom_jvp
    def f(x):
        checkify.check(x > 1, "{}", x)
        return x * x

    f.defjvp(lambda primals, tangents: (f(*primals), 7 * tangents[0]))

    def checked(x):
        return checkify.checkify(f)(x)[::-1]

    slope, error = fnx.grad(checked, has_aux=True)(3.0)
    assert (slope, error.get()) == (7.0, None)
    assert each_way(f, 0.5)[0] == "0.5"


# ---------------------------------------------------------------- loops and branches


def test_scan_has_the_first_round():
    def f(x, ys):
        def body(total, y):
            checkify.check(y < 3, "y={} total={}", y, total)
            return total + y, total

        return fnx.lax.scan(body, x, ys)

    text, (total, rows) = each_way(f, 1.0, np.arange(6.0))
    assert text == "y=3.0 total=4.0"
    assert total == 16
    np.testing.assert_array_equal(rows, [1, 1, 2, 4, 7, 11])
    assert each_way(f, 1.0, np.zeros(0))[0] is None


def test_scan_in_reverse_in_a_branch_in_a_scan():
    def f(x):
        def inner(total, y):
            checkify.check(y != 2, "inner {} {}", total, y)
            return total + y, None

        def outer(total, y):
            def loop():
                return fnx.lax.scan(inner, total, x, reverse=True)[0]

            return fnx.lax.cond(y > 1, loop, lambda: total), None

        return fnx.lax.scan(outer, 0, np.arange(3))[0]

    assert each_way(f, np.array([1, 2, 3, 4]))[0] == "inner 7 2"
    assert each_way(f, np.array([1, 3, 4])) == (None, 8)


def test_branches_that_do_not_run_are_not_looked_at():
    def f(n, x):
        def one(x):
            return 1 // x

        def two(x):
            return fnp.arange(3)[x]

        return fnx.lax.switch(n, [lambda x: x, one, two], x)

    assert each_way(f, 0, 7) == (None, 7)
    assert each_way(f, 1, 0)[0] == "division by zero"
    outside = "index 7 is out of bounds for axis 0 with size 3"
    assert each_way(f, 2, 7)[0] == outside
    assert each_way(f, 2, 2) == (None, 2)


def test_vmap_of_branches():
    def f(x):
        return fnx.lax.cond(x > 0, fnp.log, lambda x: x, x)

    checked = checkify.checkify(f, errors=checkify.nan_checks)
    error, out = fnx.vmap(checked)(np.array([-1.0, 1.0]))
    assert error.get() is None
    np.testing.assert_array_equal(out, [-1.0, 0.0])


def test_while_loops_check_their_test_and_body():
    def f(x):
        def test(v):
            return fnp.log(v - 3) > -100

        return fnx.lax.while_loop(test, lambda v: v - 1, x)

    text, out = each_way(f, 5.5)
    assert (text, out) == ("nan generated by primitive: log", 2.5)
    assert each_way(f, 2.0)[0] == "nan generated by primitive: log"

    def g(n):
        def body(v):
            checkify.check(v[0] != 3, "at {} of {}", v[0], n)
            return v[0] + 1, v[1] * 2

        return fnx.lax.while_loop(lambda v: v[0] < n, body, (0, 1))

    assert each_way(g, 3) == (None, (3, 8))
    assert each_way(g, 5) == ("at 3 of 5", (5, 32))


def test_the_gradient_of_a_while_loop():
    def f(x):
        def body(y):
            checkify.check(y < 50, "{:.0f}", y)
            return y * y

        return fnx.lax.while_loop(lambda y: y < 1000, body, x)

    text, slope = each_way(fnx.grad(f), 3.0)
    assert text == "81"
    assert slope == 8 * 3.0**7


def test_fori_loop_and_remat():
    @fnx.checkpoint
    def f(x):
        return fnx.lax.fori_loop(0, 4, lambda i, v: v / (x - i), 1.0)

    assert each_way(f, np.float32(0.5))[0] is None
    assert each_way(f, np.float32(2.0))[0] == "division by zero"
    assert each_way(fnx.grad(f), np.float32(0.5))[0] is None


# ---------------------------------------------------------------- automatic checks


@pytest.mark.parametrize(
    ("f", "x", "text"),
    [
        (lambda x: fnp.log(x), -1.0, "nan generated by primitive: log"),
        (lambda x: x - x, np.inf, "nan generated by primitive: sub"),
        (lambda x: fnp.sum(x), np.array([np.inf, -np.inf]), "reduce_sum"),
        (lambda x: x @ x, np.array([np.inf, 1j]), "dot_general"),
        (lambda x: 1 / x, 0.0, "division by zero"),
        (lambda x: 7 % x, 0, "division by zero"),
        (lambda x: fnp.ones((2, 3))[:, x], 3, "index 3 is out of bounds for axis 1"),
        (lambda x: fnp.ones(3)[x], np.array([[0, -4]]), "index -1 is out of bounds"),
        (lambda x: fnp.ones(3).at[x].add(1), 5, "index 5 is out of bounds for axis 0"),
        (
            lambda x: fnx.lax.dynamic_slice(fnp.ones(5), (x,), (3,)),
            3,
            "index 3 is out of bounds for axis 0 with size 5",
        ),
        (
            lambda x: fnx.lax.dynamic_update_slice(fnp.ones(5), fnp.ones(2), (x,)),
            -6,
            "index -1 is out of bounds for axis 0 with size 5",
        ),
    ],
)
def test_automatic_checks(f, x, text):
    found, _ = each_way(f, x, kinds=checkify.automatic_checks)
    assert text in found
    assert each_way(f, x, kinds=checkify.user_checks)[0] is None


def test_no_false_alarms():
    def f(x):
        y = fnp.where(x > 0, x, np.nan)  # made of a NaN, not out of nothing
        z = fnp.ones(4)[np.array([0, 3, -4])].sum()
        return y + fnp.exp(y), z, x / 2, fnp.sum(fnp.sort(x)), x[::-1]

    x = np.array([1.0, -1.0, np.inf, 0.0])
    assert each_way(f, x)[0] is None


def test_index_of_a_narrow_dtype():
    def f(i):
        return fnp.arange(1000)[i]

    assert each_way(f, np.uint8(255)) == (None, 255)
    assert each_way(f, np.int8(-1)) == (None, 999)


# ---------------------------------------------------------------- without checkify


def test_checks_raise_where_they_are_no_values():
    assert root(4.0) == 2
    for f in (root, fnx.jit(root), fnx.grad(root), fnx.jit(fnx.grad(root))):
        with pytest.raises(errors.CheckError, match=r"^negative: -1\.0$"):
            f(-1.0)
    with pytest.raises(errors.CheckError, match=r"^at mapped index 1: negative: -2"):
        fnx.jit(fnx.vmap(root))(np.array([1.0, -2.0, -3.0]))
    with pytest.raises(ValueError, match="negative"):
        fnx.jit(lambda xs: fnx.lax.map(root, xs))(np.array([1.0, -2.0]))


def test_debug_checks_are_for_checkify_alone():
    def f(x):
        checkify.debug_check(x > 0, "{}", x)
        return x

    assert f(-1) == -1
    assert fnx.jit(f)(-1) == -1
    assert each_way(f, -1)[0] == "-1"


def test_errors_are_checked_again():
    def f(x):
        error, y = checkify.checkify(root)(x)
        checkify.check_error(error)
        return y

    assert f(4.0) == 2
    for run in (f, fnx.jit(f)):
        with pytest.raises(errors.CheckError, match="negative"):
            run(-4.0)
    assert each_way(f, -4.0, kinds=checkify.user_checks)[0] == "negative: -4.0"


def test_an_error_is_a_tree_of_arrays():
    error, _ = checkify.checkify(root)(-3.0)
    assert [x.shape for x in fnx.tree.leaves(error)] == [(), ()]
    same = fnx.jit(lambda error: error)(error)
    assert same.get() == error.get()
    assert repr(checkify.checkify(root)(1.0)[0]) == "Error(None)"

    def f(x):
        with pytest.raises(errors.TracerValueError):
            checkify.checkify(root)(x)[0].get()
        return x

    fnx.jit(f)(1.0)


def test_prints_beside_checks_happen_once(capsys):
    @fnx.custom_jvp
    def f(x):
        fnx.debug.print("x={}", x)
        checkify.check(x > 0, "no")
        return x

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    assert each_way(f, 1.0)[0] is None
    assert capsys.readouterr().out == "x=1.0\n" * 2


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: checkify.check(fnp.ones(2) > 0, ""), errors.ShapeError, "scalar"),
        (lambda: checkify.check(1, ""), errors.DTypeError, "bool"),
        (lambda: checkify.check(True, 3), errors.ArgumentError, "format string"),
        (lambda: checkify.check(True, "{}", "a"), errors.ArgumentError, "message"),
        (lambda: checkify.checkify(3), errors.ArgumentError, "takes a function"),
        (lambda: checkify.checkify(root, {"nans"}), errors.OptionError, "'nans'"),
        (lambda: checkify.check_error(1), errors.ArgumentError, "takes an Error"),
    ],
)
def test_mistakes(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


class _Halving(Elementwise):
    """x / 2 of integers, for which an odd one is a fault."""

    def faults(self, inputs, outputs):
        (x,) = inputs
        odd = fnx.lax.rem(x, fnx.lax.full_like(x, 2)) != 0
        return [Fault("index", "{value} is odd", odd, x)]


_halving = _Halving("test_halving", "i", lambda x: x // 2)


def halving(x):
    return _halving(x)


def test_a_primitive_of_the_users_tells_its_own_faults():
    text, out = each_way(halving, np.int32([4, 6]))
    assert text is None and out.tolist() == [2, 3]
    text, _ = each_way(halving, np.int32([4, 7, 9]))
    assert text == "7 is odd"

    def halved(x):
        return fnx.lax.fori_loop(0, 3, lambda _, x: halving(x), x)

    assert each_way(halved, np.int32(20))[0] == "5 is odd"
    checked = checkify.checkify(fnx.vmap(halved), errors=checkify.index_checks)
    assert first_line(checked(np.int32([16, 8, 12]))[0]) == "3 is odd"
