"""What every test shares: checkers on, fixed seeds, and the optional oracle.

Receives nothing; sets options before fnx is imported, loads the deterministic
hypothesis profile, and gives the `jax` fixture, which skips where JAX is not installed.
"""

from __future__ import annotations

import gc
import os

# Before the first import of fnx reads them. What a test compiles must come from the
# code under test, not from a cache on disk.
os.environ["FNX_CHECK"] = "1"
os.environ["FNX_DISK_CACHE"] = "0"

import hypothesis
import numpy as np
import pytest

hypothesis.settings.register_profile(
    "fnx", derandomize=True, deadline=None, database=None, print_blob=True
)
hypothesis.settings.load_profile("fnx")


def pytest_collection_finish() -> None:
    """What is there before the first test stays: nothing looks for garbage in it.

    It is more than a million objects, and every call of `gc.collect`, of which the
    tests of devices have two each, went through them for a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def rng() -> np.random.Generator:
    """NumPy random numbers, the same in every run."""
    return np.random.default_rng(20240607)


@pytest.fixture(scope="session")
def jax():
    """JAX with 64-bit types, the oracle of tests marked `oracle`."""
    module = pytest.importorskip("jax", reason="the oracle tests compare with JAX")
    pytest.importorskip("jax.numpy")
    module.config.update("jax_enable_x64", True)
    module.config.update("jax_platforms", "cpu")
    return module
