"""The optimizers of `contrib`, against their papers' rules and optax."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import optim, tree
from fnx.errors import ArgumentError, OptionError, ShapeError
from fnx.optim import contrib

RATE, B1 = 0.1, 0.8
RNG = np.random.default_rng(2)
START = RNG.normal(size=(3, 2))
GRADS = RNG.normal(size=(8, 3, 2))
LOSSES = np.array([3.0, 2.5, 2.6, 2.6, 2.55, 0.5, 0.6, 0.4])
WITH_LOSS = {"momo", "momo bound", "momo adam", "momo adam bound", "plateau"}


def run(o, contribution, optimizer, asarray, jit):
    params = {"w": asarray(START), "b": asarray(START[1]), "c": asarray(START[2, 0])}
    state, update = optimizer.init(params), jit(optimizer.update)
    visited = []
    for g, loss in zip(GRADS, LOSSES, strict=True):
        g, loss = asarray(g), asarray(loss)
        grads = {"w": g, "b": g[0], "c": g[1, 1]}
        options = {"value": loss} if contribution in WITH_LOSS else {}
        updates, state = update(grads, state, params, **options)
        params = o.apply_updates(params, updates)
        leaves = [np.ravel(params[name]) for name in "wbc"]
        visited.append(np.concatenate(leaves))
    return np.array(visited), params, state


@pytest.mark.parametrize("warmup", [None, 3])
def test_schedule_free_is_the_papers_rule(warmup):
    optimizer = contrib.schedule_free_sgd(RATE, warmup, b1=B1)
    visited, params, state = run(optim, "", optimizer, fnp.asarray, fnx.jit)
    z = x = y = START
    weights = 0.0
    for t, g in enumerate(GRADS, 1):
        rate = RATE * min(1, (t - 1) / warmup) if warmup else RATE
        z = z - rate * g
        weights += rate**2
        part = rate**2 / weights if weights else 0
        x = (1 - part) * x + part * z
        y = (1 - B1) * z + B1 * x
        np.testing.assert_allclose(visited[t - 1][:6], y.ravel(), rtol=1e-6)
    found = contrib.schedule_free_eval_params(state, params)
    np.testing.assert_allclose(found["w"], x, rtol=1e-6)


OPTIMIZERS = {
    "sgd": lambda o, c: c.schedule_free_sgd(RATE, weight_decay=0.1),
    "adamw": lambda o, c: c.schedule_free_adamw(RATE, weight_decay=0.1),
    "sam": lambda o, c: c.sam(o.adam(RATE), o.chain(c.normalize(), o.sgd(0.3))),
    "sam of 3": lambda o, c: c.sam(
        o.sgd(RATE), o.sgd(0.1, momentum=0.5), sync_period=3, reset_state=False
    ),
    "dog": lambda o, c: c.dog(weight_decay=0.1),
    "dog of a distance": lambda o, c: c.dog(0.7, ("distance", 0.2), eps=1e-3),
    "dog of a rate": lambda o, c: c.dog(init_step=("learning_rate", 0.3)),
    "dowg": lambda o, c: c.dowg(0.9, init_estim_sq_dist=0.3, weight_decay=0.1),
    "dowg from eps": lambda o, c: c.dowg(eps=0.01),
    "cocob": lambda o, c: c.cocob(0.5, alpha=3.0, weight_decay=0.1),
    "prodigy": lambda o, c: c.prodigy(estim_lr0=0.05, weight_decay=0.1),
    "prodigy of a schedule": lambda o, c: c.prodigy(
        o.linear_schedule(0.1, 1.0, 4), (0.8, 0.9), 0.7, 1e-3, 0.1, 0.5, 0.0, True
    ),
    "dadapt": lambda o, c: c.dadapt_adamw(estim_lr0=0.05, weight_decay=0.1),
    "dadapt of a schedule": lambda o, c: c.dadapt_adamw(
        o.linear_schedule(0.1, 1.0, 4), (0.8, 0.9), 1e-3, 0.2
    ),
    "mechanize": lambda o, c: c.mechanize(o.adam(RATE), s_init=0.1),
    "mechanize two": lambda o, c: c.mechanize(o.sgd(1.0), 0.3, 1e-3, 0.2, 2),
    "momo": lambda o, c: c.momo(0.5),
    "momo bound": lambda o, c: c.momo(2.0, 0.5, 0.3, 0.1, True),
    "momo adam": lambda o, c: c.momo_adam(0.5),
    "momo adam bound": lambda o, c: c.momo_adam(
        2.0, 0.5, 0.6, 1e-3, 0.3, 0.1, adapt_lower_bound=True
    ),
    "muon": lambda o, c: c.muon(RATE, weight_decay=0.1),
    "muon adaptive": lambda o, c: c.muon(
        RATE, ns_steps=3, nesterov=False, adaptive=True, consistent_rms=0.2
    ),
    "muon spectral": lambda o, c: c.muon(RATE, "dion", preconditioning="spectral"),
    "muon aol": lambda o, c: c.muon(RATE, preconditioning="aol"),
    "muon schatten": lambda o, c: c.muon(RATE, preconditioning="schatten"),
    "muon numbers": lambda o, c: c.muon(
        RATE,
        muon_weight_dimension_numbers={
            "w": c.MuonDimensionNumbers(1, (0,)),
            "b": None,
            "c": None,
        },
    ),
    "acprop": lambda o, c: c.acprop(RATE, 0.8, 0.9, 1e-4, 1e-5, weight_decay=0.1),
    "ademamix": lambda o, c: c.ademamix(RATE, weight_decay=0.1),
    "ademamix of schedules": lambda o, c: c.ademamix(
        RATE, b3=o.linear_schedule(0.5, 0.9, 4), alpha=o.linear_schedule(0.0, 2.0, 3)
    ),
    "simplified": lambda o, c: c.simplified_ademamix(
        RATE, 0.9, 0.8, o.linear_schedule(0.0, 2.0, 3), 1e-3, 1e-4, 0.1
    ),
    "adopt": lambda o, c: c.adopt(RATE),
    "adopt nesterov": lambda o, c: c.adopt(
        RATE, 0.8, 0.7, nesterov=True, use_clipping=False
    ),
    "madgrad": lambda o, c: c.madgrad(RATE, weight_decay=0.1),
    "plateau": lambda o, c: o.chain(
        o.sgd(RATE), c.reduce_on_plateau(0.5, 2, 0.01, 0.0, 1, 1, 0.1)
    ),
    "split": lambda o, c: c.split_real_and_imaginary(o.adam(RATE)),
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optax_does_the_same(name, jax):
    optax = pytest.importorskip("optax", reason="the oracle of optimizers")
    import optax.contrib as theirs

    make = OPTIMIZERS[name]
    found, *_ = run(optim, name, make(optim, contrib), fnp.asarray, fnx.jit)
    asarray = jax.numpy.asarray
    expected, *_ = run(optax, name, make(optax, theirs), asarray, jax.jit)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_types_are_kept(name):
    optimizer = OPTIMIZERS[name](optim, contrib)
    params = {"w": fnp.ones((2, 2), "bfloat16"), "c": None, "b": fnp.ones(0)}
    state = optimizer.init(params)
    options = {"value": 2.0} if name in WITH_LOSS else {}
    updates, new = fnx.jit(optimizer.update)(params, state, params, **options)
    for found, wanted in ((updates, params), (new, state)):
        types = [[x.type for x in tree.leaves(t)] for t in (found, wanted)]
        assert types[0] == types[1]


def test_bad_arguments():
    with pytest.raises(OptionError, match="schedule_free: b1 must be above 0 and belo"):
        contrib.schedule_free(optim.sgd(0.1), 0.1, b1=0.0)
    with pytest.raises(OptionError, match="sam: sync_period must be 2 or more"):
        contrib.sam(optim.sgd(0.1), optim.sgd(0.1), 1)
    with pytest.raises(ArgumentError, match="state must be that of schedule_free"):
        contrib.schedule_free_eval_params((), fnp.ones(2))
    optimizer = contrib.schedule_free_sgd(0.1)
    with pytest.raises(ArgumentError, match="schedule_free: the average needs the par"):
        optimizer.update(fnp.ones(2), optimizer.init(fnp.ones(2)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: contrib.dog(init_step=("guess", 1.0)),
            "dog: init_step is a pair of one",
        ),
        (
            lambda: contrib.dog(init_step=("distance", 0)),
            r"dog: init_step\[1\] must be a",
        ),
        (lambda: contrib.dowg(init_estim_sq_dist=0.0), "dowg: init_estim_sq_dist must"),
        (lambda: contrib.cocob(alpha=-1.0), "scale_by_cocob: alpha must be a finite"),
        (
            lambda: contrib.prodigy(betas=(0.9, 1.0)),
            r"prodigy: betas\[1\] must be from 0",
        ),
        (lambda: contrib.prodigy(estim_lr0=0), "prodigy: estim_lr0 must be a finite"),
        (lambda: contrib.dadapt_adamw(betas=0.9), "dadapt_adamw: betas must be a pair"),
        (lambda: contrib.mechanize(optim.sgd(1.0), num_betas=0), "num_betas must be 1"),
        (
            lambda: contrib.mechanize(0.1),
            "mechanize: base_optimizer must be a gradient",
        ),
        (lambda: contrib.momo(beta=1.0), "momo: beta must be from 0 up to"),
        (
            lambda: contrib.muon(0.1, "best"),
            "muon: ns_coeffs 'best' is none of standard",
        ),
        (lambda: contrib.muon(0.1, (1.0, 2.0)), "ns_coeffs must have shape"),
        (lambda: contrib.muon(0.1, "dion", 3), "ns_coeffs has 5 rows for ns_steps=3"),
        (
            lambda: contrib.muon(0.1, preconditioning="no"),
            "preconditioning 'no' is none",
        ),
        (
            lambda: contrib.adopt(0.1, eps=0.0),
            "adopt: eps must be a finite number above",
        ),
        (
            lambda: contrib.madgrad(-0.1),
            "madgrad: learning_rate must be a finite number",
        ),
        (lambda: contrib.reduce_on_plateau(1.0), "factor must be above 0 and below 1"),
        (lambda: contrib.reduce_on_plateau(rtol=0), "rtol and atol are both 0"),
    ],
)
def test_what_makes_no_optimizer(make, words):
    with pytest.raises((OptionError, ArgumentError, ShapeError), match=words):
        make()


def test_what_an_update_needs():
    one = fnp.ones((2, 2))
    for optimizer in (contrib.momo(), contrib.momo_adam(), contrib.reduce_on_plateau()):
        state = optimizer.init(one)
        with pytest.raises(ArgumentError, match="value=loss"):
            optimizer.update(one, state, one)
    for name in ("dog", "dowg", "cocob", "prodigy", "dadapt_adamw"):
        optimizer = getattr(contrib, name)()
        with pytest.raises(ArgumentError, match="needs the parameters"):
            optimizer.update(one, optimizer.init(one))
    numbers = contrib.MuonDimensionNumbers(0, (0, 1))
    optimizer = contrib.scale_by_muon(weight_dimension_numbers=numbers)
    with pytest.raises(ShapeError, match=r"names an axis of f32.2,2. twice"):
        optimizer.update(one, optimizer.init(one))


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if n != "muon numbers"])
def test_without_gradients_steps_are_finite(name):
    optimizer = OPTIMIZERS[name](optim, contrib)
    params = {"w": fnp.ones((2, 3)), "b": fnp.zeros(2)}
    zero = tree.map(fnp.zeros_like, params)
    options = {"value": 1.0} if name in WITH_LOSS else {}
    state = optimizer.init(params)
    for _ in range(3):
        updates, state = fnx.jit(optimizer.update)(zero, state, params, **options)
        assert all(bool(fnp.isfinite(u).all()) for u in tree.leaves(updates))


def test_complex_parameters_are_pairs():
    optimizer = contrib.split_real_and_imaginary(optim.adam(RATE))
    pair = optim.adam(RATE)
    z, xy = fnp.array([1 + 2j, 3 - 1j]), fnp.array([[1.0, 3.0], [2.0, -1.0]])
    state, beside = optimizer.init(z), pair.init(xy)
    for g in (1 - 3j, 2 + 0.5j):
        moved, state = optimizer.update(z * g, state, z)
        parts = fnp.stack([fnp.real(z * g), fnp.imag(z * g)])
        wanted, beside = pair.update(parts, beside, xy)
        np.testing.assert_allclose(moved, wanted[0] + 1j * wanted[1], rtol=1e-6)


def test_muon_makes_matrices_orthogonal():
    g = fnp.array(RNG.normal(size=(4, 3, 2)), "float32")
    numbers = contrib.MuonDimensionNumbers(2, 0)
    optimizer = contrib.scale_by_muon(ns_steps=12, weight_dimension_numbers=numbers)
    step, _ = optimizer.update(g, optimizer.init(g))
    for middle in range(3):
        sizes = np.linalg.svd(np.asarray(step)[:, middle], compute_uv=False)
        assert np.all((sizes > 0.6) & (sizes < 1.3))
