"""Devices for tests: the mirror's, and emulated ones of CUDA."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import pytest

import fnx
from fnx.config import busy
from fnx.runtime import device as devices
from tests import mirror


@pytest.fixture(params=["mirror", pytest.param("cuda", marks=pytest.mark.cuda)])
def platform(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a backend that has two devices; neither is the default one."""
    made = mirror.offered if request.param == "mirror" else _emulated
    with made(), fnx.config.override(default_device="cpu"):
        yield request.param
    devices.default()
    assert not busy


@contextlib.contextmanager
def _emulated() -> Iterator[None]:
    emulator = pytest.importorskip("tests.cuda_emulator")
    from fnx_cuda import _cupy, device

    if emulator.reason_missing():
        pytest.skip(emulator.reason_missing())
    before = _cupy._module
    _cupy.use(emulator.cupy_module())
    device.forget()
    devices.forget()
    made = emulator.reset(emulator.Settings())
    try:
        yield
    finally:
        fnx.clear_caches()
        gc.collect()
        device.forget()
        _cupy.use(before)
        devices.forget()
    assert not made.findings


@pytest.fixture
def a(platform: str) -> Any:
    """The first device."""
    return fnx.devices(platform)[0]


@pytest.fixture
def b(platform: str) -> Any:
    """The second device."""
    return fnx.devices(platform)[1]
