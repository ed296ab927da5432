"""What stands for a function looks like it: jit, pmap, shard_map and the others."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax
from fnx.sharding import NamedSharding
from fnx.sharding import PartitionSpec as P

pytestmark = pytest.mark.multi_device


@pytest.fixture(autouse=True)
def eight():
    """Eight CPU devices."""
    with fnx.config.override(cpu_devices=8):
        yield


def total(x):
    """The sum of all rows."""
    return lax.psum(x.sum(0), "i")


total.unit = "kg"


def mapped():
    mesh = fnx.make_mesh((8,), ("i",))
    return fnx.shard_map(total, mesh=mesh, in_specs=P("i"), out_specs=P())


def stacked():
    return fnx.pmap(lambda x: lax.pmean(x, "i"), "i")


def custom():
    @fnx.custom_jvp
    def double(x):
        return 2 * x

    double.defjvp(lambda primals, tangents: (double(*primals), 3 * tangents[0]))
    return double


def jitted():
    return fnx.jit(fnp.cumsum)


MADE = {"shard_map": mapped, "pmap": stacked, "custom_jvp": custom, "jit": jitted}


@pytest.mark.parametrize("name", MADE)
def test_any_of_them_under_jit_with_shardings(name):
    """Each has attributes of its own, which are not those of what is around it."""
    inner = MADE[name]()
    place = NamedSharding(fnx.make_mesh((8,), ("i",)), P("i"))
    x = np.random.default_rng(0).standard_normal((8, 4)).astype("float32")
    want = np.asarray(inner(x))
    for around in (
        fnx.jit(inner, in_shardings=place),
        fnx.jit(fnx.jit(inner), in_shardings=place),
        fnx.jit(fnx.checkpoint(inner), in_shardings=place),
    ):
        np.testing.assert_allclose(around(x), want, 1e-5, 1e-6)


def test_names_texts_and_attributes():
    for around in (mapped(), fnx.jit(mapped()), fnx.jit(total), fnx.pmap(total, "i")):
        assert around.__name__ == "total"
        assert around.__doc__ == "The sum of all rows."
        assert around.unit == "kg"
