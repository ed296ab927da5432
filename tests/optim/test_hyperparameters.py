"""Values that an optimizer refuses, each error naming the function and the argument."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import optim
from fnx.errors import ArgumentError, OptionError

NAN, INF = float("nan"), float("inf")
BAD_VALUES = [
    (lambda: optim.sgd(-0.1), r"sgd: learning_rate must be a finite number, 0 or more"),
    (lambda: optim.sgd(NAN), r"sgd: learning_rate .* got nan"),
    (lambda: optim.sgd(fnp.array(-1.0)), r"sgd: learning_rate .* got -1.0"),
    (lambda: optim.sgd(0.1, momentum=1.5), r"sgd: momentum must be from 0 to 1"),
    (lambda: optim.sgd(0.1, nesterov=True), r"sgd: nesterov has a meaning only with"),
    (
        lambda: optim.sgd(0.1, accumulator_dtype="float32"),
        r"sgd: accumulator_dtype has a meaning only with momentum",
    ),
    (
        lambda: optim.sgd(0.1, 0.9, accumulator_dtype="int32"),
        r"sgd: accumulator_dtype must be a floating-point dtype, got int32",
    ),
    (lambda: optim.trace(-0.1), r"trace: decay must be from 0 to 1"),
    (lambda: optim.adam(INF), r"adam: learning_rate .* got inf"),
    (lambda: optim.adam(0.1, b1=1.0), r"adam: b1 must be from 0 up to, not including"),
    (lambda: optim.adam(0.1, b2=-0.1), r"adam: b2 must be"),
    (lambda: optim.adam(0.1, eps=-1e-8), r"adam: eps must be"),
    (lambda: optim.adam(0.1, eps_root=-1.0), r"adam: eps_root must be"),
    (lambda: optim.adam(0.1, eps=0), r"adam: eps and eps_root are both 0"),
    (lambda: optim.adam(0.1, mu_dtype=bool), r"adam: mu_dtype must be a floating-p"),
    (lambda: optim.adamw(0.1, weight_decay=-1), r"adamw: weight_decay must be"),
    (lambda: optim.scale(NAN), r"scale: step_size must be a finite number, got nan"),
    (lambda: optim.clip(-1.0), r"clip: max_delta must be"),
    (
        lambda: optim.clip_by_global_norm(0.0),
        r"clip_by_global_norm: max_norm must be a finite number above 0, got 0.0",
    ),
    (
        lambda: optim.add_decayed_weights(-0.1),
        r"add_decayed_weights: weight_decay must",
    ),
]
BAD_KINDS = [
    (lambda: optim.sgd("0.1"), r"sgd: learning_rate must be a number .* got '0.1'"),
    (lambda: optim.sgd(None), r"sgd: learning_rate must be a number .* got None"),
    (lambda: optim.sgd(True), r"sgd: learning_rate must be a number .* got True"),
    (lambda: optim.sgd(fnp.ones(3)), r"sgd: learning_rate .* got f32\[3\] of type"),
    (lambda: optim.sgd(fnp.array(True)), r"sgd: learning_rate .* got bool\[\]"),
    (lambda: optim.scale_by_schedule(0.1), r"step_size_fn must be a function"),
    (lambda: optim.chain(optim.scale), r"chain: argument 0 must be a gradient transf"),
]


@pytest.mark.parametrize(("make", "match"), BAD_VALUES, ids=[m for _, m in BAD_VALUES])
def test_bad_values(make, match):
    with pytest.raises(OptionError, match=match):
        make()


@pytest.mark.parametrize(("make", "match"), BAD_KINDS, ids=[m for _, m in BAD_KINDS])
def test_bad_kinds(make, match):
    with pytest.raises(ArgumentError, match=match):
        make()


@pytest.mark.parametrize("rate", [0, np.float32(0.1), np.float64(0.1), fnp.array(0.1)])
def test_numbers_of_every_kind_are_taken(rate):
    updates, _ = optim.scale_by_learning_rate(rate).update(fnp.ones(1), ())
    assert float(updates[0]) == pytest.approx(-float(rate))
    assert updates.dtype == "float32"


def test_traced_values_are_checked_for_their_shape_only():
    fnx.jit(optim_step)(0.1)
    with pytest.raises(ArgumentError, match=r"got f32\[2\]"):
        fnx.jit(optim_step)(fnp.ones(2))


def optim_step(rate):
    return optim.scale(rate).update(fnp.ones(2), ())[0]
