"""jit(dynamic=...): which sizes share code, what is told where they cannot.

What code for all sizes computes is tested in `test_any_size.py`, beside this file, what
padded programs compute in `tests/transforms/test_padded.py`.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from tests import mirror


def centred(x: Any) -> Any:
    return x - x.mean(0)


def check(f: Any, plain: Any, *args: Any, **kwargs: Any) -> None:
    found, wanted = f(*args, **kwargs), plain(*args, **kwargs)
    for a, b in zip(fnx.tree.leaves(found), fnx.tree.leaves(wanted), strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)


def ones(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def traced(x: Any) -> Any:
    """Has no code for all sizes: no polynomial is where the diagonal of a matrix is."""
    return fnp.trace(x[:, None] * x) + x


def test_one_compile_serves_all_sizes() -> None:
    f = fnx.jit(centred, dynamic={"x": 0})
    for number, size in enumerate((3, 8, 2, 5, 100, 997, 12, 97, 300)):
        check(f, centred, ones(size, 2))
        assert f.cache_info()[:2] == (number, 1)
    check(f, centred, ones(97, 2))
    assert f.cache_info()[:2] == (9, 1)


def test_what_has_no_such_code_is_compiled_once_for_a_range() -> None:
    f = fnx.jit(traced, dynamic={"x": 0})
    for size in (3, 8, 2, 5, 7, 4, 6):
        check(f, traced, ones(size))
    assert f.cache_info()[:2] == (6, 1)
    for size in (12, 9, 10, 11, 100, 128, 97):
        check(f, traced, ones(size))
    assert f.cache_info()[:2] == (11, 3)
    check(f, traced, ones(97))
    assert f.cache_info()[:2] == (12, 3)
    assert f.explain_miss().endswith(
        "it is compiled for a range of sizes: code for all sizes would have to know "
        "n0 + n0*n0 divided by 1 + n0, where n0 is one"
    )


def test_sizes_0_and_1_are_compiled_by_themselves() -> None:
    f = fnx.jit(lambda x: (x.sum(0), x * 2), dynamic={"x": 0})
    for size in (0, 1):
        check(f, lambda x: (x.sum(0), x * 2), fnp.asarray(ones(size, 3)))


def test_the_end_of_a_range_may_come_first() -> None:
    f = fnx.jit(lambda x: (x.mean(), x[-1], x.shape[0]), dynamic={"x": 0})
    for size in (16, 13, 15):
        mean, last, count = f(ones(size))
        assert (mean, last, count) == (ones(size).mean(), size - 1, size)
    assert f.cache_info().misses == 1


def test_trees_keywords_and_statics() -> None:
    def f(batch: Any, *, scale: Any, kind: str = "sum") -> Any:
        total = batch["x"].sum(0) if kind == "sum" else batch["x"].mean(0)
        return {"total": total * scale, "y": batch["y"] + len(batch["x"])}

    jitted = fnx.jit(f, static_argnames="kind", dynamic={"batch": 0})
    for kind in ("sum", "mean"):
        for size in (5, 6):
            batch = {"x": ones(size, 2), "y": np.arange(size)}
            check(jitted, f, batch, scale=np.float32(2.0), kind=kind)
    assert jitted.cache_info().misses == 2


def test_two_sizes_and_two_axes() -> None:
    def f(x: Any, y: Any) -> Any:
        return x[:, None] * y, fnp.concatenate([x, y]).mean(), len(x) * len(y)

    jitted = fnx.jit(f, dynamic={"x": 0, "y": -1})
    for sizes in ((9, 20), (11, 24), (10, 17), (12, 22)):
        check(jitted, f, *[ones(n) for n in sizes])
    assert jitted.cache_info().misses == 1
    for sizes in ((9, 10), (12, 11)):  # of one range, and yet two sizes
        check(jitted, f, *[ones(n) for n in sizes])
    for size in (9, 10):  # the same size may be the same axis
        check(jitted, f, ones(size), ones(size))
    square = fnx.jit(lambda x: fnp.linalg.norm(x @ x), dynamic={"x": (0, 1)})
    for size in (5, 7):
        x = ones(size, size) / 9
        np.testing.assert_allclose(square(x), np.linalg.norm(x @ x), rtol=1e-5)


def test_a_size_may_be_asked_for() -> None:
    """Sizes are numbers while a function is traced; branches make other programs."""

    def f(x: Any) -> Any:
        return x.sum() if x.shape[0] < 32 else x.max() * x.shape[0]

    jitted = fnx.jit(f, dynamic={"x": 0})
    for size in (33, 32, 4, 100, 7, 31):
        check(jitted, f, ones(size))
    assert jitted.cache_info().misses == 2
    assert "at these sizes its program is another one: mul" in jitted.explain_miss()


def test_a_size_that_is_another_program_is_compiled_by_itself() -> None:
    f = fnx.jit(lambda x: (x[1:] - x[:-1], x[:3].sum()), dynamic={"x": 0})
    plain = f.__wrapped__
    for size in (20, 3, 2, 1000, 2):
        check(f, plain, ones(size))
    assert f.cache_info()[:2] == (2, 3)


def test_other_transformations_around_and_inside() -> None:
    f = fnx.jit(lambda x: (centred(x) ** 3).mean(), dynamic={"x": 0})
    plain = f.__wrapped__
    x = ones(9, 2) / 9
    check(fnx.grad(f), fnx.grad(plain), x)
    check(fnx.vmap(f), fnx.vmap(plain), x)
    check(fnx.jit(lambda x: f(x) * 2), lambda x: plain(x) * 2, x)
    check(fnx.jit(fnx.grad(plain), dynamic={"x": 0}), fnx.grad(plain), x)
    with fnx.disable_jit():
        check(f, plain, x)


def test_no_recompile_knows_the_sizes() -> None:
    f, g = [fnx.jit(x, dynamic={"x": 0}) for x in (centred, traced)]
    f(ones(9, 2)), g(ones(9))
    with fnx.no_recompile():
        for size in (10, 13, 2000):
            check(f, centred, ones(size, 2))
        check(g, traced, ones(10))
        with pytest.raises(errors.RecompileError, match=r"sizes.*f32\[13\]"):
            g(ones(13))
        with pytest.raises(errors.RecompileError, match=r"sizes.*f32\[9,3\]"):
            f(ones(9, 3))


def test_caches_and_copies() -> None:
    f = fnx.jit(centred, dynamic={"x": 0})
    f(ones(9, 2))
    fnx.clear_caches()
    assert f.cache_info()[:2] == (0, 0)
    check(f, centred, ones(10, 2))
    again = pickle.loads(pickle.dumps(f))
    check(again, centred, ones(11, 2))
    assert again.cache_info().misses == 1


def test_nans_are_looked_for_at_the_true_size() -> None:
    f = fnx.jit(lambda x: 1.0 / x, dynamic={"x": 0})
    with fnx.debug_nans(True):
        assert np.isfinite(f(ones(5) + 1)).all()
        np.testing.assert_array_equal(
            fnx.jit(lambda x: x / x, dynamic={"x": 0})(ones(5) + 1), 1
        )
    assert np.isinf(f(ones(5))).sum() == 1


def test_devices_keep_their_arrays() -> None:
    f = fnx.jit(lambda x: (centred(x), x.shape[0] * 2), dynamic={"x": 0})
    with mirror.offered():
        device = fnx.devices("mirror")[0]
        for size in (9, 12, 10):
            y, count = f(fnx.device_put(ones(size, 2), device))
            assert y.devices() == count.devices() == {device}
            np.testing.assert_allclose(y, centred(ones(size, 2)), rtol=1e-6)
            assert count == 2 * size
        assert f.cache_info().misses == 1


@pytest.mark.parametrize("function", [centred, traced])
def test_donated_arrays_are_deleted(function: Any) -> None:
    f = fnx.jit(function, dynamic={"x": 0}, donate_argnums=0)
    for size in (9, 10):
        shape = (size, 2) if function is centred else (size,)
        x = fnp.asarray(ones(*shape))
        wanted = function(x)
        np.testing.assert_allclose(f(x), wanted, rtol=1e-6)
        assert x.is_deleted()


def test_results_are_arrays_of_their_own() -> None:
    f = fnx.jit(lambda x: x * 2, dynamic={"x": 0})
    y = f(ones(9, 2))
    assert y.shape == (9, 2)
    assert np.asarray(y).flags.c_contiguous
    check(fnx.jit(lambda x: x + 1), lambda x: x + 1, y)


@pytest.mark.parametrize(
    ("f", "match"),
    [
        (lambda x: lax.associative_scan(fnp.add, x), "it is another operation"),
        (lambda x: fnx.pure_callback(np.sin, x, x), "pure_callback .*no rule"),
        (lambda x: [*map(fnp.sin, x)], "it is not there at all sizes"),
    ],
)
def test_what_is_no_one_program_names_its_operation(f: Any, match: str) -> None:
    with pytest.raises(errors.DynamicSizeError, match=match) as caught:
        fnx.jit(f, dynamic={"x": 0})(ones(9))
    assert "jit of <lambda>" in str(caught.value)
    assert "Fix:" in str(caught.value)


def test_an_error_at_another_size_says_so() -> None:
    def f(x: Any) -> Any:
        if x.shape[0] > 9:
            raise ValueError("too many")
        return x

    with pytest.raises(errors.DynamicSizeError, match=r"size 12.*ValueError: too many"):
        fnx.jit(f, dynamic={"x": 0})(ones(9))


@pytest.mark.parametrize(
    "dynamic", [{}, "x", {"x": "n"}, {"x": ()}, {0: 0}, {"x": True}]
)
def test_the_option_is_checked(dynamic: Any) -> None:
    with pytest.raises(errors.OptionError, match=r"jit of centred: dynamic="):
        fnx.jit(centred, dynamic=dynamic)


def test_options_must_fit_each_other() -> None:
    with pytest.raises(
        errors.OptionError, match="no argument of that name; it takes x"
    ):
        fnx.jit(centred, dynamic={"y": 0})
    with pytest.raises(errors.OptionError, match="x is static and dynamic"):
        fnx.jit(centred, dynamic={"x": 0}, static_argnums=0)
    with pytest.raises(
        errors.AxisError, match=r"axis 2 of x: .*f32\[3,2\] has no such"
    ):
        fnx.jit(centred, dynamic={"x": 2})(ones(3, 2))
