"""lax.platform_dependent: the function of the platform that the program runs on."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax

pytestmark = pytest.mark.cuda


def chosen(x):
    return lax.platform_dependent(
        x, cpu=lambda x: x + 1, cuda=lambda x: x * 10, default=lambda x: x
    )


@pytest.fixture
def both(gpu):
    """The same array here and there."""
    x = np.arange(3, dtype=np.float32)
    return fnp.array(x), fnx.device_put(x, gpu)


def test_the_device_of_the_arguments_chooses(both):
    for function in (chosen, fnx.jit(chosen)):
        assert [function(x).tolist() for x in both] == [[1, 2, 3], [0, 10, 20]]
    with fnx.default_device(both[1].device):
        assert fnx.jit(chosen)(np.ones(2, "f4")).tolist() == [10, 10]
        assert chosen(fnp.ones(2)).tolist() == [10, 10]


def test_under_transformations(both):
    slope = fnx.jit(fnx.vmap(fnx.grad(chosen)))
    assert [slope(x).tolist() for x in both] == [[1, 1, 1], [10, 10, 10]]

    def steps(x):
        return lax.scan(lambda c, _: (chosen(c), None), x, None, length=2)[0]

    stepped = fnx.jit(steps)
    assert [stepped(x).tolist() for x in both] == [[2, 3, 4], [0, 100, 200]]


def test_other_names_and_no_function(both):
    def by_kind(x):
        return lax.platform_dependent(x, gpu=lambda x: -x, default=lambda x: x)

    def only_here(x):
        return lax.platform_dependent(x, cpu=lambda x: x + 1)

    here, there = both
    for wrap in (lambda f: f, fnx.jit):
        assert wrap(by_kind)(here).tolist() == [0, 1, 2]
        assert wrap(by_kind)(there).tolist() == [0, -1, -2]
        assert wrap(only_here)(here).tolist() == [1, 2, 3]
        with pytest.raises(fnx.errors.ArgumentError, match="for the platform cuda"):
            wrap(only_here)(there)


def test_results_must_agree_where_both_are_traced(both):
    def differs(x):
        return lax.platform_dependent(x, cpu=lambda x: x, cuda=lambda x: x[:1])

    assert differs(both[1]).tolist() == [0]  # only one is called
    with pytest.raises(fnx.errors.ShapeError):
        fnx.jit(differs)(both[1])
