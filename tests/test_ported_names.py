"""Names under which programs that were written for JAX look for what fnx has.

The counts of whole modules are in `test_api_names.py`; here each name is used as
a ported program uses it. Next: `test_lazy_names.py`.
"""

import importlib

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx.sharding import PartitionSpec as P


def test_annotations():
    from fnx.typing import Array, ArrayLike, DTypeLike

    assert isinstance(fnp.zeros(2), Array)
    assert all(isinstance(x, ArrayLike) for x in (1, 2.5, np.ones(2), fnp.zeros(2)))
    assert not isinstance("text", ArrayLike)
    assert DTypeLike is not None


def test_tracers():
    seen = []
    fnx.jit(lambda x: seen.append(isinstance(x, fnx.core.Tracer)))(1.0)
    assert seen == [True] and not isinstance(fnp.zeros(2), fnx.core.Tracer)


ASKS_FOR_A_VALUE = {
    "ConcretizationTypeError": float,
    "TracerBoolConversionError": bool,
    "TracerIntegerConversionError": lambda x: [1, 2][x.astype(int)],
    "TracerArrayConversionError": np.asarray,
    "NonConcreteBooleanIndexError": lambda x: fnp.zeros(3)[x > 0],
}


@pytest.mark.parametrize("name", ASKS_FOR_A_VALUE)
def test_errors_of_tracers(name):
    with pytest.raises(getattr(fnx.errors, name)):
        fnx.jit(ASKS_FOR_A_VALUE[name])(fnp.ones(3) if "Index" in name else 1.0)


def test_the_error_of_a_leak():
    kept = []
    fnx.jit(kept.append)(1.0)
    with pytest.raises(fnx.errors.UnexpectedTracerError):
        print(kept[0] + 1)


def test_older_homes():
    module = importlib.import_module("fnx.experimental.shard_map")
    mesh = fnx.make_mesh((1,), ("i",))
    x = np.arange(6, dtype="float32").reshape(2, 3)

    def total(x):
        return fnx.lax.psum(x * 2, "i")

    for options in ({}, {"check_rep": False}):
        found = module.shard_map(total, mesh, P("i"), P(), **options)(x)
        np.testing.assert_array_equal(found, x * 2)
    pjit = importlib.import_module("fnx.experimental.pjit").pjit
    np.testing.assert_array_equal(pjit(lambda x: x + 1)(x), x + 1)
