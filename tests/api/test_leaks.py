"""Tracers that outlive their trace: where they were made, and who holds them."""

import gc

import numpy as np
import pytest

import fnx
from fnx import errors


@pytest.fixture(autouse=True, scope="module")
def everything_is_looked_through():
    """Who holds a tracer is asked of the collector, which tests have spare modules."""
    gc.unfreeze()
    yield
    gc.freeze()


stash = None
shelf = []


class Model:
    def __init__(self):
        self.state = None
        self.table = {}


class Slotted:
    __slots__ = ("state",)


def leak(store):
    """What a leaked tracer's use says."""

    def f(x):
        doubled = x * 2
        store(doubled)
        return x

    fnx.jit(f)(np.ones(3))


def use(tracer):
    with pytest.raises(errors.LeakedTracerError) as info:
        tracer + 1
    return str(info.value)


def store_global(x):
    global stash
    stash = x


def test_a_global():
    leak(store_global)
    text = use(stash)
    assert "f64[3], made at" in text
    assert "doubled = x * 2" in text
    assert f"held by global stash of module {__name__}" in text


def test_a_list_that_is_a_global():
    leak(shelf.append)
    assert f"held by global shelf[0] of module {__name__}" in use(shelf[0])
    shelf.clear()


def test_attributes():
    model, slotted = Model(), Slotted()
    leak(lambda x: setattr(model, "state", x))
    assert "held by attribute state of a Model" in use(model.state)
    leak(lambda x: model.table.update(a=[0, x]))
    assert "held by attribute table['a'][1] of a Model" in use(model.table["a"][1])
    leak(lambda x: setattr(slotted, "state", x))
    assert "held by attribute state of a Slotted" in use(slotted.state)


def test_a_variable_of_a_closure():
    kept = None

    def keep(x):
        nonlocal kept
        kept = x

    leak(keep)
    assert "held by variable kept, which" in use(kept)
    assert "keep closes over" in use(kept)


def test_an_argument_is_called_by_its_name():
    model = Model()

    def f(weights):
        model.state = weights["w"]
        return 0

    fnx.jit(f)({"w": np.ones(2)})
    text = use(model.state)
    assert "which stands for weights['w']" in text
    assert "f64[2]" in text


# ---------------------------------------------------------------- at once


@pytest.mark.parametrize("transform", [fnx.jit, fnx.grad, fnx.vmap, fnx.make_jaxpr])
def test_checking_leaks_raises_at_once(transform):
    model = Model()

    def f(x):
        model.state = x * 2
        return x

    x = np.ones(2) if transform is fnx.vmap else 1.0
    expected = pytest.raises(errors.LeakedTracerError, match="attribute state of a Mod")
    with fnx.checking_leaks(), expected:
        transform(f)(x)
    with fnx.checking_leaks(False):
        transform(f)(x)


def test_checking_leaks_of_a_loop():
    model = Model()

    def body(carry, x):
        model.state = carry
        return carry + x, x

    expected = pytest.raises(errors.LeakedTracerError, match="outlives its trace")
    with fnx.checking_leaks(), expected:
        fnx.lax.scan(body, 0.0, np.ones(3))


def test_checking_leaks_has_no_false_alarms():
    @fnx.custom_vjp
    def g(x):
        return x * x

    g.defvjp(lambda x: (g(x), x), lambda x, ct: (2 * x * ct,))

    def f(x):
        held = {"x": x}
        values = [g(held["x"])]
        loop = fnx.lax.scan(lambda c, y: (c + y, c), x, x[None] + x)[0]
        inner = fnx.jit(lambda y: y * held["x"])(values[0])
        branch = fnx.lax.cond(x.sum() > 0, lambda: values[0], lambda: x)
        return (loop + inner + fnx.checkpoint(fnx.numpy.sin)(branch)).sum()

    x = np.arange(3.0)
    wanted = fnx.grad(f)(x)
    with fnx.checking_leaks():
        found = fnx.jit(fnx.grad(f))(x)
        fnx.hessian(f)(x)
        fnx.vmap(fnx.grad(f))(x[None])
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_the_search_is_bounded(monkeypatch):
    """Each look takes as long as there are objects: their number must not grow."""
    looks = []
    referrers = gc.get_referrers
    monkeypatch.setattr(
        gc, "get_referrers", lambda *args: looks.append(len(args)) or referrers(*args)
    )
    shelf.clear()
    leak(lambda x: shelf.extend([[x] for _ in range(300)]))
    (tracer,) = shelf[0]
    text = use(tracer)
    assert "global shelf[" in text
    assert len(looks) <= 6
    assert max(looks) <= 101


def test_a_holder_is_named_once_for_each_of_its_places():
    global stash
    shelf.clear()
    leak(lambda x: shelf.append([x]))
    stash = shelf[0][0]
    text = use(stash)
    assert "global stash of module" in text
    assert "global shelf[0][0] of module" in text
