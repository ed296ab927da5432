"""Eight CPU devices, and a mesh of them, for the tests of programs in parts."""

from __future__ import annotations

import pytest

import fnx


@pytest.fixture(autouse=True)
def eight():
    """Eight CPU devices."""
    with fnx.config.override(cpu_devices=8):
        yield


@pytest.fixture
def mesh():
    return fnx.make_mesh((2, 4), ("a", "b"))
