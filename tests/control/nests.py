"""Random functions made of loops, branches, custom rules and recomputation, nested.

A `Nest` is plain data: a kind, the nests inside of it and its choices. `apply` builds
its function once, from a `Way` of doing control flow: `FLOW` is fnx's; `plain(trail)`
is Python's own loops and branches, which take the decisions of a `Trail`. A trail notes
what was decided for a value, and tells it again when the function is differentiated,
where Python cannot know the value. Next on the walk: `test_nests.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fnx
import fnx.numpy as fnp
from fnx import lax
from fnx.tree import leaves as tree_leaves
from fnx.tree import map as tree_map

M = np.array([[0.4, -0.7, 0.2], [0.1, 0.5, -0.3], [-0.6, 0.2, 0.8]])
STEPS = np.arange(1.0, 6.0)[:, None] * np.array([0.3, -0.2, 0.1])


@dataclass(frozen=True)
class Nest:
    """A function of two arrays of three elements, x and w, that gives one."""

    kind: str
    inside: tuple[Nest, ...] = ()
    choice: tuple[int, ...] = (0,) * 8


@dataclass
class Trail:
    """What a function decides for a value: noted first, then told in the same order."""

    noted: list[Any] = field(default_factory=list)
    told: Iterator[Any] | None = None

    def decide(self, value: Callable[[], Any]) -> Any:
        """The decision that is due; `value` makes it where it is to be noted."""
        if self.told is not None:
            return next(self.told)
        self.noted.append(value())
        return self.noted[-1]

    def again(self) -> None:
        """Tells what was noted, from the beginning."""
        self.told = iter(self.noted)


@dataclass(frozen=True)
class Way:
    """How control flow is done: fnx's functions, or Python's own."""

    scan: Callable[..., Any]
    switch: Callable[..., Any]
    cond: Callable[..., Any]
    while_loop: Callable[..., Any]
    fori_loop: Callable[..., Any]
    checkpoint: Callable[..., Any]
    jit: Callable[..., Any]
    twice_jvp: Callable[..., Any]
    twice_vjp: Callable[..., Any]
    own_vmap: Callable[..., Any]


def _twice_jvp(f: Callable[..., Any]) -> Any:
    @fnx.custom_jvp
    def own(x: Any, w: Any) -> Any:
        return f(x, w)

    @own.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        return own(*primals), 2.0 * fnx.jvp(f, primals, tangents)[1]

    return own


def _twice_vjp(f: Callable[..., Any]) -> Any:
    @fnx.custom_vjp
    def own(x: Any, w: Any) -> Any:
        return f(x, w)

    def backward(residuals: Any, ct: Any) -> Any:
        return tuple([2.0 * c for c in fnx.vjp(f, *residuals)[1](ct)])

    own.defvjp(lambda x, w: (own(x, w), (x, w)), backward)
    return own


def _own_vmap(f: Callable[..., Any]) -> Any:
    own = fnx.custom_batching.custom_vmap(lambda x, w: f(x, w))

    @own.def_vmap
    def rule(size: int, mapped: Any, x: Any, w: Any) -> Any:
        axes = tuple([0 if flag else None for flag in mapped])
        return fnx.vmap(f, axes)(x, w), True

    return own


FLOW = Way(
    lax.scan,
    lax.switch,
    lax.cond,
    lax.while_loop,
    lax.fori_loop,
    lambda f, policy: fnx.checkpoint(f, policy=policy),
    fnx.jit,
    _twice_jvp,
    _twice_vjp,
    _own_vmap,
)


def plain(trail: Trail) -> Way:
    """Python's loops and branches, decided by a trail."""

    def scan(body: Any, carry: Any, xs: Any, length: int, **options: Any) -> Any:
        ys: dict[int, Any] = {}
        for i in reversed(range(length)) if options["reverse"] else range(length):
            row = tree_map(lambda x, i=i: x[i], xs)
            carry, ys[i] = body(carry, row)
        if not length:  # nothing is made of no rows but their sum
            return carry, None
        rows = [ys[i] for i in range(length)]
        return carry, tree_map(lambda *rows: fnp.stack(rows), *rows)

    def switch(index: Any, branches: Any, *operands: Any) -> Any:
        number = trail.decide(lambda: int(np.clip(int(index), 0, len(branches) - 1)))
        return branches[number](*operands)

    def cond(pred: Any, yes: Any, no: Any, *operands: Any) -> Any:
        return (yes if trail.decide(lambda: bool(pred)) else no)(*operands)

    def while_loop(test: Any, body: Any, value: Any, max_steps: Any = None) -> Any:
        while trail.decide(lambda: bool(test(value))):  # noqa: B023
            value = body(value)
        return value

    def fori_loop(lower: Any, upper: Any, body: Any, value: Any) -> Any:
        for i in trail.decide(lambda: range(int(lower), int(upper))):
            value = body(i, value)
        return value

    def twice(f: Any) -> Any:
        def doubled(x: Any, w: Any) -> Any:
            y = f(x, w)
            return 2.0 * y - lax.stop_gradient(y)

        return doubled

    return Way(
        scan,
        switch,
        cond,
        while_loop,
        fori_loop,
        lambda f, policy: f,
        lambda f: f,
        twice,
        twice,
        lambda f: f,
    )


# ---------------------------------------------------------------- the kinds

KINDS: dict[str, Callable[..., Any]] = {}
INSIDE: dict[str, int] = {}


def kind(name: str, inside: int = 1) -> Callable[[Any], Any]:
    """Registers what applies a nest of a kind: `run(way, nest, x, w)`."""

    def register(run: Any) -> Any:
        KINDS[name], INSIDE[name] = run, inside
        return run

    return register


def apply(way: Way, nest: Nest, x: Any, w: Any) -> Any:
    """The nest's function, at x and w: of the size of 1, whatever is inside."""
    return KINDS[nest.kind](way, nest, x, w)


def _within(way: Way, nest: Nest, number: int = 0) -> Callable[[Any, Any], Any]:
    inside = nest.inside[number]
    return lambda x, w: apply(way, inside, x, w)


LEAVES: list[Callable[[Any, Any], Any]] = [
    lambda x, w: fnp.sin(x) * fnp.cos(w),
    lambda x, w: fnp.cos(x[::-1]) - 0.5 * fnp.sin(w),
    lambda x, w: fnp.tanh(M @ x) + 0.2 * fnp.cos(w),
    lambda x, w: fnp.sin(fnp.cumsum(x)) * 0.7,
    lambda x, w: fnp.sin(x).at[1].set(fnp.cos(w[2] * x[0])),
    lambda x, w: fnp.tanh(x) * fnp.sin(w).sum(),
    lambda x, w: fnp.outer(fnp.sin(x), fnp.cos(w)) @ fnp.tanh(x + w),
    # Cosines of the same meet here, and eager ones differ in the last place.
    lambda x, w: fnp.where(x > w + 0.01, fnp.sin(x), fnp.cos(w)),
    lambda x, w: fnp.cos(w) * 0.5,
    lambda x, w: fnp.full(3, 0.4, np.float64),
    lambda x, w: lax.stop_gradient(fnp.sin(x)) + 0.3 * fnp.sin(w),
    lambda x, w: (x * 8).astype(np.int32) * 0.125 + fnp.sin(w) * x[np.array([2, 0, 0])],
]


@kind("leaf", inside=0)
def _leaf(way: Way, nest: Nest, x: Any, w: Any) -> Any:
    return LEAVES[nest.choice[0] % len(LEAVES)](x, w)


@kind("chain", inside=2)
def _chain(way: Way, nest: Nest, x: Any, w: Any) -> Any:
    y = _within(way, nest)(x, w)
    return _within(way, nest, 1)(y, x if nest.choice[0] % 2 else w)


def _rows(choice: int, length: int, x: Any) -> Any:
    """The rows of a scan: none, constants, what depends on x, or a tree of both."""
    moving = fnp.sin(x * STEPS[:length] + 1.0)
    whole = np.arange(length, dtype=np.int32)
    return [None, STEPS[:length], moving, {"r": moving, "n": whole}][choice % 4]


def _row(x: Any) -> Any:
    if x is None:
        return 0.125
    return x["r"] * 0.3 + x["n"] * 0.125 if isinstance(x, dict) else x * 0.3


@kind("scan")
def _scan(way: Way, nest: Nest, x: Any, w: Any) -> Any:
    a, b, c, d, e, f, g, h = nest.choice
    length = (0, 1, 2, 3, 4, 3)[a % 6]
    child = _within(way, nest)

    def body(carry: Any, row: Any) -> Any:
        first, second, number, total = carry
        held = (w, x, second, w * 0.5 + _row(row))[d % 4]
        found = child(first, held) + _row(row)
        # Carries that stay, that trade places, that count, and one of a Python number.
        second = (second, first, found * 0.5, x)[e % 4]
        ys = (None, first, (number, found * w), found.sum())[f % 4]
        total = total + (0.0 if h % 3 else (found * w).sum())
        return (found, second, number + 1, total), ys

    init = x, fnp.cos(w), 0, 0.5
    (last, second, number, total), ys = way.scan(
        body,
        init,
        _rows(b, length, x),
        length=length,
        reverse=bool(c % 2),
        unroll=(1, 1, 2, 3, True)[g % 5],
        checkpoint=(None, None, 2, "sqrt")[h % 4],
    )
    flat = sum([fnp.sum(y) * 0.125 for y in tree_leaves(ys)], 0.0)
    return fnp.sin(last + 0.3 * second + number * 0.125 + total * 0.125 + flat)


@kind("cond", inside=2)
def _cond(way: Way, nest: Nest, x: Any, w: Any) -> Any:
    a, b, *_ = nest.choice
    yes, no = _within(way, nest), _within(way, nest, 1)
    pred = ((x.sum() > 0.2), (x[0] > w[1]), (w.sum() < 0.1), True)[a % 4]
    if b % 3 == 0:
        return way.cond(pred, yes, no, x, w)
    if b % 3 == 1:  # what the branches close over, and a result that only one has
        found, more = way.cond(
            pred, lambda y: (yes(y, w), 1.0), lambda y: (no(w, y), y.sum()), x
        )
        return fnp.sin(found * more)
    return way.cond(pred, lambda y, v: fnp.cos(y) * v, yes, x, w)


@kind("switch", inside=2)
def _switch(way: Way, nest: Nest, x: Any, w: Any) -> Any:
    a, *_ = nest.choice
    branches = [_within(way, nest), lambda x, w: x * 0.5, _within(way, nest, 1)]
    index = (x.sum() * 2 + a % 3).astype(np.int32)
    return way.switch(index, branches, x, w)


@kind("while_loop")
def _while(way: Way, nest: Nest, x: Any, w: Any) -> Any:
    a, b, c, d, *_ = nest.choice
    child, most = _within(way, nest), (0, 1, 2, 3, 4)[a % 5]

    def goes_on(state: Any) -> Any:
        y, _, count, limit = state
        if b % 3 == 0:
            return count < most
        return (count < most) & (y.sum() < limit + 0.1)

    def body(state: Any) -> Any:
        y, old, count, limit = state
        found = child(y, (w, x, old)[c % 3]) + 0.1 * w
        return found, y, count + 1, limit

    start = x, w, 0, fnp.cos(w).sum()
    bound = None if d % 2 else 6
    y, old, count, _ = way.while_loop(goes_on, body, start, max_steps=bound)
    return fnp.sin(y + 0.5 * old + count)


@kind("fori_loop")
def _fori(way: Way, nest: Nest, x: Any, w: Any) -> Any:
    a, b, c, *_ = nest.choice
    child = _within(way, nest)
    upper = a % 4 if b % 2 else (abs(x).sum() * 2).astype(np.int32) % 4

    def body(i: Any, state: Any) -> Any:
        y, table = state
        y = child(y, w * 0.5 + i * 0.25 if c % 2 else table[i])
        return y, table.at[i].set(y * 0.5) if c % 3 else table

    table = fnp.stack([x, w, x * w, fnp.cos(x)])
    y, table = way.fori_loop(0, upper, body, (x, table))
    return fnp.sin(y + table.sum(0) * 0.3)


@kind("checkpoint")
def _checkpoint(way: Way, nest: Nest, x: Any, w: Any) -> Any:
    policies = fnx.checkpoint_policies
    policy = (None, policies.dots_saveable, policies.everything_saveable)
    child = _within(way, nest)
    if nest.choice[1] % 2:
        return way.checkpoint(lambda y: child(y, w), policy[nest.choice[0] % 3])(x)
    return way.checkpoint(child, policy[nest.choice[0] % 3])(x, w)


@kind("jit")
def _jit(way: Way, nest: Nest, x: Any, w: Any) -> Any:
    child = _within(way, nest)
    if nest.choice[0] % 2:
        return way.jit(lambda y: child(y, w))(x)
    return way.jit(child)(x, w)


@kind("custom_jvp")
def _custom_jvp(way: Way, nest: Nest, x: Any, w: Any) -> Any:
    return way.twice_jvp(_within(way, nest))(x, w)


@kind("custom_vjp")
def _custom_vjp(way: Way, nest: Nest, x: Any, w: Any) -> Any:
    return way.twice_vjp(_within(way, nest))(x, w)


@kind("custom_vmap")
def _custom_vmap(way: Way, nest: Nest, x: Any, w: Any) -> Any:
    return way.own_vmap(_within(way, nest))(x, w)
