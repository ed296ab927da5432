"""Control flow, custom rules and recomputation in each other, under transformations.

Nestings of depth 3 of the kinds of `nests.py`, and random ones; each under one, two or
three of jit, vmap, jvp and grad, against Python's own loops and branches under the
same. Every two kinds stand in each other at every two depths; with `FNX_FUZZ=10` in
the environment every three do, and there are ten times as many random ones.
"""

from __future__ import annotations

import itertools
import os
import re
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as fnp
from fnx import lax
from tests.control.flows import total
from tests.control.nests import FLOW, INSIDE, LEAVES, Nest, Trail, apply, plain

FUZZ = int(os.environ.get("FNX_FUZZ", "1"))
SEED = int(os.environ.get("FNX_FUZZ_SEED", "0"))
HOLDERS = sorted(set(INSIDE) - {"leaf", "chain"})
NAMES = ("jit", "vmap", "jvp", "grad")
TRANSFORMS = [
    names for count in (1, 2, 3) for names in itertools.product(NAMES, repeat=count)
]
Function = Callable[[Any], Any]


def stacked(f: Function) -> Function:
    """What `vmap` computes, row by row."""
    return lambda xs: fnp.stack([f(xs[i]) for i in range(len(xs))])


def moved(f: Function) -> Function:
    """The derivative in a direction that depends on the place."""
    return lambda x: fnx.jvp(f, (x,), (fnp.cos(x),))[1]


def sloped(f: Function) -> Function:
    """The gradient of a weighted sum."""
    return fnx.grad(total(f))


BY_FNX = {"jit": fnx.jit, "vmap": fnx.vmap, "jvp": moved, "grad": sloped}
BY_HAND = {"jit": lambda f: f, "vmap": stacked, "jvp": moved, "grad": sloped}
ONLY_ROWS = {name: stacked if name == "vmap" else lambda f: f for name in NAMES}


def transformed(f: Function, names: tuple[str, ...], by: Any) -> Function:
    """The function under transformations, the first of which is the outermost."""
    for name in reversed(names):
        f = by[name](f)
    return f


def check(nest: Nest, names: tuple[str, ...], seed: int) -> None:
    """Compares a nest under transformations with what Python does."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.5, 1.5, (2,) * names.count("vmap") + (3,))
    fixed = rng.uniform(-1.0, 1.0, 3)

    def function(way: Any) -> Function:
        return lambda x: apply(way, nest, x, fnp.cos(x) if seed % 2 else fixed)

    trail = Trail()
    by_hand = function(plain(trail))
    transformed(by_hand, names, ONLY_ROWS)(x)
    trail.again()
    wanted = np.asarray(transformed(by_hand, names, BY_HAND)(x))
    found = np.asarray(transformed(function(FLOW), names, BY_FNX)(x))
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    scale = 1e-10 * max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=scale)


# ---------------------------------------------------------------- every nesting

ROUNDS = list(itertools.product(HOLDERS, range(FUZZ)))


def leaf(rng: np.random.Generator) -> Nest:
    return Nest("leaf", (), (int(rng.integers(len(LEAVES))),))


def nested(kinds: tuple[str, ...], rng: np.random.Generator) -> Nest:
    """The kinds in each other, with random choices and leaves beside them."""
    if not kinds:
        return leaf(rng)
    name, *rest = kinds
    inside = [nested(tuple(rest), rng), *[leaf(rng) for _ in range(INSIDE[name] - 1)]]
    if rng.random() < 0.5:
        inside.reverse()
    return Nest(name, tuple(inside), tuple(rng.integers(0, 60, 8).tolist()))


@pytest.mark.parametrize(("outer", "part"), ROUNDS)
def test_nestings_of_depth_three(outer: str, part: int) -> None:
    for n, middle in enumerate(HOLDERS):
        inner = HOLDERS[(HOLDERS.index(outer) + n + part) % len(HOLDERS)]
        kinds = outer, middle, inner
        rng = np.random.default_rng([zlib.crc32("/".join(kinds).encode()), part, SEED])
        nest = nested(kinds, rng)
        names = TRANSFORMS[rng.integers(len(TRANSFORMS))]
        seed = int(rng.integers(2**16))
        try:
            check(nest, names, seed)
        except Exception as error:
            error.add_note(f"check({nest}, {names}, {seed})")
            raise


@pytest.mark.parametrize("outer", HOLDERS)
def test_nests_of_a_varying_number_of_lanes(outer: str) -> None:
    """`jit(dynamic=...)` pads the lanes; nothing of the padding is seen, or runs on."""
    number = HOLDERS.index(outer)
    middle, inner = [HOLDERS[(number + n) % len(HOLDERS)] for n in (3, 7)]
    kinds = outer, middle, inner
    seed = zlib.crc32("/".join(kinds).encode())
    nest = nested(kinds, np.random.default_rng([seed, SEED]))
    lanes = fnx.vmap(sloped(lambda x: apply(FLOW, nest, x, fnp.cos(x))))
    plain = fnx.jit(lambda xs: lanes(xs))
    padded = fnx.jit(lambda xs: lanes(xs), dynamic={"xs": 0})
    xs = np.random.default_rng(number).uniform(-1.5, 1.5, (6, 3))
    for count in (5, 6):
        wanted = plain(xs[:count])
        np.testing.assert_allclose(padded(xs[:count]), wanted, rtol=1e-9, atol=1e-9)
    assert padded.cache_info().misses == 1


# ---------------------------------------------------------------- what they found


def test_a_loop_in_a_loop_in_reverse_reserves_no_more_than_there_is() -> None:
    """Neither has max_steps; the rows of one hold all the rows of the other."""

    def inner(x: Any) -> Any:
        return lax.while_loop(
            lambda s: (s[0].sum() < 9.0) & (s[1] < 3),
            lambda s: (s[0] * 1.5 + fnp.sin(x), s[1] + 1),
            (x, 0),
        )[0]

    def outer(x: Any) -> Any:
        return lax.while_loop(
            lambda s: s[1] < 2, lambda s: (fnp.tanh(inner(s[0])), s[1] + 1), (x, 0)
        )[0]

    def by_hand(x: Any, value: Any) -> Any:
        for _ in range(2):
            y, at, count = x, value, 0
            while at.sum() < 9.0 and count < 3:
                y, at = y * 1.5 + fnp.sin(x), at * 1.5 + np.sin(value)
                count += 1
            x, value = fnp.tanh(y), np.tanh(at)
        return x

    x = values = np.array([[0.2, 0.5, 0.4], [1.0, 2.0, 3.0]])
    found = fnx.grad(total(fnx.vmap(outer)))(x)
    wanted = fnx.grad(
        total(lambda x: fnp.stack([by_hand(x[i], v) for i, v in enumerate(values)]))
    )
    np.testing.assert_allclose(found, wanted(x), rtol=1e-10)


def test_the_rows_of_a_mapped_loop_are_not_copied() -> None:
    """They are reserved for many rounds, and whoever copies them touches them all."""

    def f(x: Any) -> Any:
        step = lambda y: fnp.exp(y) * 1.5  # noqa: E731
        return lax.while_loop(lambda y: y.sum() < 9.0, step, x).sum()

    text = fnx.jit(fnx.vmap(fnx.grad(f))).lower(np.ones((4, 3))).as_text("plan")
    arena = int(text.split("arena ")[1].split()[0])
    assert arena > 2**24
    for size in re.findall(r"kernel\d+\(.*  (\d+) bytes", text):
        assert int(size) < 2**23, text  # the numbers of the rounds, at most


@pytest.mark.parametrize("inner", ["by its value", "by its number"])
@pytest.mark.parametrize("outer", ["scan", "while_loop"])
def test_the_rows_of_a_mapped_loop_in_a_loop_are_not_permuted(
    inner: str, outer: str
) -> None:
    """The outer one stacks all rows that the inner one reserves."""

    def short(x: Any) -> Any:
        if inner == "by its value":
            return lax.while_loop(lambda y: y.sum() < 9, lambda y: fnp.exp(y) * 1.5, x)
        step = lambda s: (fnp.tanh(s[0]) * 1.5, s[1] + 1)  # noqa: E731
        return lax.while_loop(lambda s: s[1] < 3, step, (x, 0))[0]

    def f(x: Any) -> Any:
        if outer == "scan":
            return lax.scan(lambda y, _: (short(y), None), x, None, length=2)[0].sum()
        step = lambda s: (short(s[0]), s[1] + 1)  # noqa: E731
        return lax.while_loop(lambda s: s[1] < 2, step, (x, 0))[0].sum()

    text = fnx.jit(fnx.vmap(fnx.grad(f))).lower(np.ones((4, 3))).as_text("plan")
    assert int(text.split("arena ")[1].split()[0]) > 2**26
    for size in re.findall(r"kernel\d+\(.*  (\d+) bytes", text):
        assert int(size) < 2**23, text  # the numbers of the rounds, at most


# ---------------------------------------------------------------- random nests

choices = st.tuples(*[st.integers(0, 59)] * 8)
leaves = st.builds(Nest, st.just("leaf"), st.just(()), choices)


def holding(inside: st.SearchStrategy[Nest]) -> st.SearchStrategy[Nest]:
    """Nests of any kind around these."""
    return st.sampled_from(["chain", *HOLDERS]).flatmap(
        lambda name: st.builds(
            Nest, st.just(name), st.tuples(*[inside] * INSIDE[name]), choices
        )
    )


some = st.one_of(leaves, holding(leaves))
deep = holding(st.one_of(some, holding(some)))


@settings(max_examples=20 * FUZZ)
@given(deep, st.sampled_from(TRANSFORMS), st.integers(0, 2**16))
def test_random_nests(nest: Nest, names: tuple[str, ...], seed: int) -> None:
    check(nest, names, seed)
