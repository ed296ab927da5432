"""Code for all sizes: one compile, against the plain jit at each size.

Sizes are awkward ones: the least, about the lanes of a vector, one more and one less
than the blocks of long sums, and what threads share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax, nn
from fnx.api import dynamic
from fnx.compiler.inline import inline
from fnx.config import config
from fnx.core.array import Array
from fnx.core.program import Program
from fnx.cpu import jit as machine
from fnx.runtime.any_size import compiled_for_sizes, executable_at
from fnx.runtime.executable import executable_for
from fnx.sizes import Symbol, Undecided
from fnx.transforms.sized import samples, sized_program
from tests.cases import CASES as ALL_CASES
from tests.rules import operands, rng_of, value
from tests.transforms.test_padded import WITHOUT, stacked_calls

SIZES = (9, 2, 3, 7, 8, 17, 1000, 4095, 4096, 8193)
FEW = (9, 2, 3, 7, 8, 17, 130)


def arrays(size: int, *shapes: Any) -> list[Any]:
    """Arrays of these shapes, in which `None` is the size."""
    rng = np.random.default_rng(size)
    return [
        rng.standard_normal([size if n is None else n for n in s]).astype("float32")
        for s in shapes
    ]


def same(found: Any, wanted: Any, rtol: float = 3e-5) -> None:
    a, b = fnx.tree.leaves(found), fnx.tree.leaves(wanted)
    for x, y in zip(a, b, strict=True):
        assert (x.shape, x.dtype, x.weak_type) == (y.shape, y.dtype, y.weak_type)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)


def check(
    f: Callable[..., Any], shapes: Any, dynamic: Any, sizes: Any = SIZES, **close: Any
) -> Any:
    """One compile, and at each size what the plain jit gives."""
    jitted = fnx.jit(f, dynamic=dynamic)
    for size in sizes:
        args = arrays(size, *shapes)
        same(jitted(*args), fnx.jit(f)(*args), **close)
    assert jitted.cache_info().misses == 1
    return jitted


N = None
CASES: dict[str, tuple[Callable[..., Any], Any]] = {
    "elementwise": (lambda x: fnp.tanh(x) * fnp.exp(-x * x), (N, 3)),
    "of one axis": (lambda x: fnp.sin(x) + 1, (N,)),
    "sums": (lambda x: (x.sum(), x.sum(0), x.sum(1), x.mean()), (N, 5)),
    "in float16": (lambda x: x.astype("float16").sum(0), (N, 5)),
    "products": (lambda x: fnp.prod(1 + x / 1000, 0), (N, 3)),
    "extremes": (
        lambda x: (x.max(0), x.argmax(0), x.argmin(), fnp.max(x), x.argmin(1)),
        (N, 3),
    ),
    "logic": (lambda x: ((x > -3).all(0), (x > 3).any(), (x > 0).sum()), (N, 3)),
    "moments": (lambda x: ((x - x.mean(0)) / x.std(0), fnp.var(x, ddof=1)), (N, 4)),
    "softmax": (lambda x: (nn.softmax(x, 0), nn.softmax(x, 1)), (N, 9)),
    "running sums": (lambda x: (fnp.cumsum(x, 0), fnp.cumsum(x, 1)), (N, 3)),
    "slices": (lambda x: (x[1:], x[:-1], x[::2], x[::-1]), (N, 3)),
    "pads": (lambda x: fnp.pad(x, ((1, 2), (0, 1)), constant_values=7.0), (N, 3)),
    "joined": (lambda x: fnp.concatenate([x, 2 * x, fnp.ones((3, 3))]), (N, 3)),
    "tiled": (lambda x: (fnp.tile(x, (2, 1)), fnp.repeat(x, 3, 0)), (N, 3)),
    "reshaped": (lambda x: (x.reshape(-1), x.T.ravel(), x.T), (N, 3)),
    "looked up": (lambda x: (x[fnp.array([1, 0])], x[fnp.argmax(x[:, 0])]), (N, 3)),
    "counted": (lambda x: (x[:, 0] * fnp.arange(len(x)), len(x), 1.5 * len(x)), (N, 3)),
    "updated": (lambda x: (x.at[0].set(5.0), x.at[1:].add(1.0)), (N, 3)),
    "scattered": (lambda x: fnp.zeros(4).at[fnp.arange(len(x)) % 4].add(x), (N,)),
    "sorted": (lambda x: (fnp.sort(x, 0), fnp.argsort(x[:, 0])), (N, 3)),
    "random": (lambda x: x * fnx.random.normal(fnx.random.key(1), x.shape), (N, 3)),
    "by the other axis": (lambda x: (x.sum(1), x * 2, x.mean(0)), (5, N)),
    "of the middle axis": (lambda x: x.transpose(1, 0, 2).sum(1), (5, N, 3)),
    "of members": (fnx.vmap(lambda r: nn.softmax(r) * r.sum()), (N, 7)),
    "gradient": (
        lambda x: fnx.grad(lambda x: (nn.logsumexp(x, 0) ** 2).mean())(x),
        (N, 3),
    ),
    "chosen": (
        lambda x: lax.cond(x.sum() > 0, lambda x: x - x.mean(0), lambda x: x * 2, x),
        (N, 3),
    ),
    "rounds of a fixed number": (
        lambda x: lax.fori_loop(0, 5, lambda i, s: fnp.sin(s) + x.mean(), x),
        (N, 3),
    ),
    "solved": (
        lambda x: fnp.linalg.solve(x.T @ x / len(x) + fnp.eye(3), fnp.ones(3)),
        (N, 3),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_compile_is_right_at_each_size(name: str) -> None:
    f, shape = CASES[name]
    axis = tuple([n for n, size in enumerate(shape) if size is None])
    # Sums of sizes that are not known are made one after the other, not in chunks.
    rtol = 1e-4 if name == "running sums" else 3e-5
    check(lambda x: f(x), [shape], {"x": axis}, rtol=rtol)


ROUNDS: dict[str, Callable[..., Any]] = {
    "scan": lambda x: lax.scan(
        lambda c, r: (fnp.sin(0.9 * c + r), c.sum()), fnp.zeros(3, x.dtype), x
    ),
    "reverse": lambda x: lax.scan(
        lambda c, r: (c * 0.5 + r, c), fnp.zeros(3, x.dtype), x, reverse=True
    ),
    "gradient of scan": lambda x: fnx.grad(
        lambda x: lax.scan(lambda c, r: (c * r.mean(), c), 1.0, x)[1].mean()
    )(x),
    "gradient by the weights of scan": lambda x: fnx.grad(
        lambda w: lax.scan(lambda c, r: (fnp.tanh(r @ w + c), None), w[0], x)[0].sum()
    )(fnp.full((3, 5), 0.1)),
    "size of the carry": lambda x: lax.scan(
        lambda c, _: (fnp.tanh(c - c.mean(0)), c.sum()), x, None, length=4
    ),
    "while": lambda x: lax.while_loop(
        lambda s: (s * s).mean() < 50, lambda s: s * 1.5 + x.mean() + 0.1, x
    ),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_loops_over_and_around_what_varies(name: str) -> None:
    f = ROUNDS[name]
    check(lambda x: f(x), [(N, 3)], {"x": 0}, FEW)


def test_matrix_products() -> None:
    both = {"x": 0, "y": 0}
    check(lambda x, y: x @ y, [(N, 16), (16, 33)], {"x": 0})
    check(lambda x, y: x.T @ y, [(N, 16), (N, 70)], both)
    check(lambda x, y: x @ y.T, [(7, 3), (N, 3)], {"y": 0})
    check(lambda x: x @ x.T, [(N, 16)], {"x": 0}, FEW)
    check(lambda x: x @ x, [(N, 17, 17)], {"x": 0}, FEW)
    check(lambda x: fnp.einsum("nij,njk->ik", x, x), [(N, 3, 3)], {"x": 0}, FEW)
    check(lambda x: nn.softmax(x @ x.T / 4) @ x, [(N, 16)], {"x": 0}, FEW)


def test_convolutions_of_any_batch() -> None:
    def loss(x: Any, w: Any) -> Any:
        return (nn.relu(lax.conv(x, w, (1, 1), "SAME")) ** 2).mean()

    check(loss, [(N, 3, 8, 8), (4, 3, 3, 3)], {"x": 0}, FEW)
    check(fnx.grad(loss, (0, 1)), [(N, 3, 8, 8), (4, 3, 3, 3)], {"x": 0}, FEW)


def step(params: Any, x: Any, y: Any) -> Any:
    """A step of gradient descent for a small network."""

    def loss(params: Any) -> Any:
        w, b, v = params
        h = fnp.tanh(x @ w + b)
        return ((h @ v - y) ** 2).mean()

    value, grads = fnx.value_and_grad(loss)(params)
    return value, fnx.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def test_training_on_batches_of_any_size() -> None:
    jitted, plain = fnx.jit(step, dynamic={"x": 0, "y": 0}), fnx.jit(step)
    params = mine = tuple(arrays(1, (6, 40), (40,), (40,)))
    for size in (32, 5, 32, 1000, 1, 2):
        x, y = arrays(size, (N, 6), (N,))
        value, params = jitted(params, x, y)
        wanted, mine = plain(mine, x, y)
        same((value, params), (wanted, mine))
    assert jitted.cache_info().misses == 2  # a batch of one is another program


def test_sizes_that_are_shared_and_sizes_that_are_not() -> None:
    def f(x: Any, y: Any) -> Any:
        return x.sum(0) + y.mean(0), (x @ y.T).sum(1), fnp.concatenate([x, y]), len(y)

    jitted, plain = fnx.jit(f, dynamic={"x": 0, "y": 0}), fnx.jit(f)
    for many, more in ((9, 20), (2, 3), (1000, 5), (5, 1000), (21, 20)):
        x, y = *arrays(many, (N, 3)), *arrays(more, (N, 3))
        same(jitted(x, y), plain(x, y))
    assert jitted.cache_info().misses == 1
    for size in (9, 30):  # as one size
        x, y = arrays(size, (N, 3), (N, 3))
        same(jitted(x, y), plain(x, y))
    assert jitted.cache_info().misses == 2


def written_in_steps(x: Any) -> Any:
    """What lies between every second row, or third one, is as long as the size says."""
    return x.at[::2].multiply(2.0), x.at[1::3].set(7.0), x[::2], x[2::4].sum(0)


@pytest.mark.parametrize("first", [7, 9, 100, 101])
def test_steps_over_rows_are_one_program(first: int) -> None:
    sizes = (first, 9, 8, 17, 16, 4, 102, 4097, 4098)
    check(written_in_steps, [(N, 3)], {"x": 0}, sizes)
    check(
        lambda x: fnx.grad(lambda x: (x[::2] ** 2).sum() + x[1::3].mean())(x),
        [(N,)],
        {"x": 0},
        sizes,
    )


def test_what_is_left_of_a_loop_may_be_nothing() -> None:
    """Then nothing is written: neither there nor behind the end of the output."""

    def between(x: Any) -> Any:
        return lax.pad(x[::2], 5.0, [(0, 1 - len(x) % 2, 1), (0, 0, 0)])

    def program(size: int) -> Program:
        (x,) = arrays(size, (N, 3))
        return inline(fnx.make_jaxpr(between)(x), hoists=False)

    n = Symbol("n")
    sampled = samples({n: 4096})
    others = [program(values[n]) for values in sampled]
    made = sized_program(program(4096), {n: 4096}, others, sampled)
    code = compiled_for_sizes(made.program)
    for size in (4096, 4097, 9, 8, 3, 2):
        (x,) = arrays(size, (N, 3))
        around = np.full((size + 4, 3), -7.0, "float32")
        executable_at(program(size), code, {n: size}).native([x], {0: around[:size]})
        wanted = np.full((size, 3), 5.0, "float32")
        wanted[::2] = x[::2]
        assert np.array_equal(around[:size], wanted)
        assert np.array_equal(around[size:], np.full((4, 3), -7.0))


def test_an_arena_holds_what_is_larger_at_some_sizes() -> None:
    """Places are used again where that fits at any size; others stay beside them."""

    def f(x: Any) -> Any:
        return fnp.argsort(x, 0), fnp.argsort(x[:, 0], descending=True)

    rows = np.random.default_rng(1).permutation(900).reshape(-1, 3).astype("float32")
    jitted = fnx.jit(f, dynamic={"x": 0})
    for size in (257, 2, 3, 300):
        x = rows[:size]
        both, one = jitted(x)
        assert np.array_equal(both, np.argsort(x, 0, stable=True))
        assert np.array_equal(one, np.argsort(-x[:, 0], stable=True))
    assert jitted.cache_info().misses == 1


def test_complex_numbers_that_follow_from_the_size() -> None:
    """Either part of a number may vary, or both."""

    def f(x: Any) -> Any:
        z, n = lax.complex(x, 2 * x), len(x)
        return z.mean(0), z.var(), z * n, z + complex(3, n), z * complex(-1 / n, n * n)

    jitted = check(f, [(N, 3)], {"x": 0})
    (x,) = arrays(11, (N, 3))
    z = x + 2j * x
    means, _, _, sums, products = jitted(x)
    np.testing.assert_allclose(means, z.mean(0), rtol=1e-5)
    np.testing.assert_allclose(sums, z + (3 + 11j), rtol=1e-6)
    np.testing.assert_allclose(products, z * complex(-1 / 11, 121), rtol=1e-5)
    check(lambda x: (x.astype("complex128") * len(x)).sum(), [(N,)], {"x": 0})


TABLE = np.arange(300, dtype="float32").reshape(100, 3)


def from_a_table(x: Any) -> Any:
    assert len(x) <= len(TABLE)
    return x + fnp.array(TABLE)[: len(x)]


@pytest.mark.parametrize("first", [100, 99, 98, 20, 9, 3])
def test_a_function_may_have_a_largest_size(first: int) -> None:
    """It is traced at sizes that are not larger, if larger ones raise."""
    jitted, plain = fnx.jit(from_a_table, dynamic={"x": 0}), fnx.jit(from_a_table)
    for size in (first, 50, 97, 5, 100):
        (x,) = arrays(size, (N, 3))
        same(jitted(x), plain(x))
    assert jitted.cache_info().misses <= 2  # at 100 rows the table is not cut


def test_the_first_size_may_be_a_special_one() -> None:
    """A size at which Python takes another branch does not raise, first or last."""

    def small(x: Any) -> Any:
        return x * 2 if len(x) < 10 else fnp.roll(x, 2, 0)

    def one(x: Any) -> Any:
        return x * 2 if len(x) == 100 else x.sum()

    for f, first in ((small, 9), (small, 2), (one, 100)):
        jitted, plain = fnx.jit(f, dynamic={"x": 0}), fnx.jit(f)
        for size in (first, 50, 97, 200):
            (x,) = arrays(size, (N,))
            same(jitted(x), plain(x))
        assert jitted.cache_info().misses == 2


@pytest.mark.parametrize("share", [0.25, 0.3, 1.0])
@pytest.mark.parametrize("first", [9, 10, 101])
def test_quantiles_between_any_two_elements_are_one_program(
    first: int, share: float
) -> None:
    def quantiles(x: Any) -> Any:
        return fnp.median(x, 0) + fnp.quantile(x, share, 0)

    jitted = fnx.jit(quantiles, dynamic={"x": 0})
    for size in (first, 9, 10, 101, 3000, 7):
        (x,) = arrays(size, (N, 3))
        wanted = np.median(x, 0) + np.quantile(x, share, 0)
        np.testing.assert_allclose(jitted(x), wanted, rtol=1e-5, atol=1e-6)
    assert jitted.cache_info().misses == 1


def written_out(rounds: int, x: Any) -> Any:
    def body(c: Any, y: Any) -> Any:
        return fnp.sin(0.9 * c + y), c * y

    return lax.scan(body, 0.0, x, unroll=rounds)


def checkpointed(rounds: int, x: Any) -> Any:
    def last(x: Any) -> Any:
        body = lambda c, y: (fnp.sin(0.9 * c + y), None)  # noqa: E731
        return lax.scan(body, 0.0, x, checkpoint=rounds)[0]

    return fnx.value_and_grad(last)(x)


@pytest.mark.parametrize("rounds", [2, 3, 4, 8])
@pytest.mark.parametrize("f", [written_out, checkpointed])
@pytest.mark.parametrize("first", [17, 41, 102])
def test_rounds_left_over_are_a_program_each(f: Any, rounds: int, first: int) -> None:
    """Of sizes that leave the same rest there is one compile, whichever comes first."""
    jitted = fnx.jit(lambda x: f(rounds, x), dynamic={"x": 0})
    plain = fnx.jit(lambda x: f(rounds, x))
    sizes = [first + n * rounds for n in (0, 1, 7, 200)]
    for size in sizes:
        (x,) = arrays(size, (N,))
        same(jitted(x), plain(x))
    assert jitted.cache_info().misses == 1
    for size in range(8, 8 + 2 * rounds):
        (x,) = arrays(size, (N,))
        same(jitted(x), plain(x))
    assert jitted.cache_info().misses <= rounds


def test_bits_are_those_of_the_plain_jit_where_nothing_is_added_up() -> None:
    def f(x: Any) -> Any:
        return fnp.exp(-x * x) + x[::-1], x.max(0), nn.softmax(x, 1), x.argmin(0)

    jitted, plain = fnx.jit(f, dynamic={"x": 0}), fnx.jit(f)
    for size in SIZES:
        (x,) = arrays(size, (N, 9))
        pairs = zip(fnx.tree.leaves(jitted(x)), fnx.tree.leaves(plain(x)), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs)


def test_long_sums_are_as_exact_as_any() -> None:
    jitted = fnx.jit(lambda x: (x.sum(), x.mean(1)), dynamic={"x": 1})
    for size in (100_003, 1 << 20):
        x = np.full((2, size), 0.1, np.float32)
        total, mean = jitted(x)
        np.testing.assert_allclose(total, 2 * size * 0.1, rtol=1e-5)
        np.testing.assert_allclose(mean, 0.1, rtol=1e-5)


def test_a_new_size_runs_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    jitted = fnx.jit(step, dynamic={"x": 0, "y": 0})
    params = tuple(arrays(1, (6, 40), (40,), (40,)))
    jitted(params, *arrays(20, (N, 6), (N,)))

    def never(*args: Any) -> Any:
        raise AssertionError("LLVM was asked for code")

    monkeypatch.setattr(machine, "assemble_module", never)
    for size in (2, 21, 5000):
        x, y = arrays(size, (N, 6), (N,))
        value, _ = jitted(params, x, y)
        wanted, _ = step(params, x, y)
        np.testing.assert_allclose(value, wanted, rtol=1e-4)


def test_sizes_that_take_too_much_memory_are_forgotten_and_found_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dynamic, "MOST_BYTES", 2**18)
    jitted = fnx.jit(lambda x: fnp.tanh(x) - x.mean(), dynamic={"x": 0})
    for size in (*range(2, 40), *range(2, 40), 3):
        (x,) = arrays(size, (N, 3))
        np.testing.assert_allclose(jitted(x), np.tanh(x) - x.mean(), atol=1e-6)
    info = jitted.cache_info()
    assert info.misses == 1 and 1 < info.currsize < 10


def test_repeated_calls_of_each_size_go_on_to_be_right() -> None:
    """Those that come again and again are made in machine code."""
    jitted = fnx.jit(lambda x: (x * len(x), x.mean(0)), dynamic={"x": 0})
    for _ in range(40):
        for size in (5, 300, 17):
            x = fnp.asarray(*arrays(size, (N, 3)))
            scaled, mean = jitted(x)
            np.testing.assert_allclose(scaled, np.asarray(x) * size, rtol=1e-6)
            np.testing.assert_allclose(mean, np.mean(x, 0), rtol=1e-4, atol=1e-6)
    assert jitted.cache_info()[:2] == (119, 1)


def test_code_is_found_on_disk(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any) -> Any:
        return fnp.sin(x).sum(0) * 3.25 + x.shape[0]

    monkeypatch.setenv("FNX_CACHE_DIR", str(tmp_path))
    with config.override(disk_cache=True):
        (x,) = arrays(9, (N, 3))
        wanted = fnx.jit(f, dynamic={"x": 0})(x)
        fnx.clear_caches()
        monkeypatch.setattr(machine, "assemble_module", None)
        same(fnx.jit(f, dynamic={"x": 0})(x), wanted)


# ---------------------------------------------------------------- every primitive

EACH = {case.primitive: case for case in ALL_CASES if case.primitive not in WITHOUT}

# How routines of LAPACK share a stack of matrices depends on how many there are.
RANGES = {
    *("cholesky", "eig", "eigh", "factored_solve", "geqrf", "hessenberg", "lu", "qr"),
    *("householder_product", "ormqr", "schur", "svd", "triangular_solve"),
    *("tridiagonal", "tridiagonal_solve"),
}


@pytest.mark.parametrize("name", EACH)
def test_as_many_calls_as_there_are(name: str) -> None:
    """The axis of `vmap` may be of any size, whatever the operation is."""
    case = EACH[name]
    rng, n = rng_of(case), Symbol("n")
    calls = [operands(case, case.args(rng)) for _ in range(11)]
    places = [i for i, x in enumerate(calls[0]) if isinstance(x, Array)]
    if not places:
        return

    def program(size: int) -> Program:
        return inline(stacked_calls(case, calls[0], size), hoists=False)

    sampled = samples({n: 11})
    others = [program(values[n]) for values in sampled]
    try:
        made = sized_program(program(11), {n: 11}, others, sampled)
        code = compiled_for_sizes(made.program)
    except (errors.DynamicSizeError, Undecided):
        assert name in RANGES
        return
    for size in (11, 3):
        exact = program(size)
        again = sized_program(exact, {n: size}, others, sampled)
        assert again.program == made.program
        stacks = [np.stack([value(c[i]) for c in calls[:size]]) for i in places]
        found = executable_at(exact, code, again.values).native(stacks)
        wanted = executable_for(exact).native(stacks)
        for a, b in zip(found, wanted, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            close = [np.asarray(x, np.complex128) for x in (a, b)]
            np.testing.assert_allclose(*close, rtol=1e-5, atol=1e-6)
