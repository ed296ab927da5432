"""An update of a whole tree is few kernels: one pass over each leaf, as Adam's."""

from __future__ import annotations

import itertools

import pytest

import fnx
import fnx.numpy as fnp
from fnx import optim, tree

SIZES = (30, 20, 20, 10)
PARAMS = [
    {"w": fnp.ones((m, n)), "b": fnp.ones(n)} for m, n in itertools.pairwise(SIZES)
]
LEAVES = len(tree.leaves(PARAMS))
# what the count of updates costs, apart from the leaves
COUNTS = 3
ONE_PASS = """adabelief adadelta adagrad adam adamax adamw adan amsgrad fromage lars
    nadam optimistic_gradient_descent radam rmsprop rprop sgd sign_sgd signum
    yogi""".split()
# norms and means of a leaf come before its steps; Lion signs what it also averages
SEVERAL_PASSES = "adafactor lamb lion novograd sm3".split()


def plan_steps(optimizer):
    state = optimizer.init(PARAMS)

    def step(params, state, grads):
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state

    text = fnx.jit(step).lower(PARAMS, state, PARAMS).as_text("plan")
    return int(text.split("plan: ")[1].split()[0])


@pytest.mark.parametrize("name", ONE_PASS)
def test_one_kernel_a_leaf(name):
    assert plan_steps(getattr(optim, name)(0.1)) <= LEAVES + COUNTS


@pytest.mark.parametrize("name", SEVERAL_PASSES)
def test_few_kernels_a_leaf(name):
    assert plan_steps(getattr(optim, name)(0.1)) <= 3 * LEAVES + COUNTS


def test_masked_and_injected_are_what_they_hold():
    plain = plan_steps(optim.adam(0.1))
    every = optim.masked(optim.adam(0.1), True)
    labelled = optim.partition({"a": optim.adam(0.1)}, "a")
    assert plan_steps(every) == plan_steps(labelled) == plain
    assert plan_steps(optim.inject_hyperparams(optim.adam)(0.1)) <= plain + COUNTS
