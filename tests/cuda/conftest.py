"""Emulated CUDA machines: a new one for each test, or one for a module's tests.

They skip, with the reason, where the emulator cannot run. What the emulator finds and a
GPU would not report (a race, memory that is not there or not initialised, a wait that
is missing) fails the test, whatever its result.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

import fnx
import fnx.runtime.device as runtime
from fnx_cuda import _cupy, device
from tests import cuda_emulator as emulator
from tests.cuda.kept import keeping


@contextmanager
def emulated(seed: int) -> Iterator[Any]:
    """A new machine with two devices; streams run in the order that the seed draws."""
    reason = emulator.reason_missing()
    if reason:
        pytest.skip(f"the CUDA emulator cannot run: {reason}")
    before = _cupy._module
    _cupy.use(cupy())
    forget()
    # Its memory goes back to the system at the end.
    with emulator.another(emulator.Settings(seed=seed)) as made:
        try:
            yield made
        finally:
            emulator.inject.clear()
            forget()
            _cupy.use(before)
    assert not made.findings


@cache
def cupy() -> Any:
    """The emulator in CuPy's place, which keeps the texts that it compiles."""
    module = emulator.cupy_module()
    module.compile_text = keeping(module.compile_text)
    return module


def forget() -> None:
    """Lets go of all that fnx keeps of devices: programs that are loaded there, too."""
    fnx.clear_caches()
    gc.collect()
    device._devices.clear()
    runtime.forget()


@pytest.fixture(params=[0, 1], ids=["seed0", "seed1"])
def machine(request: Any) -> Iterator[Any]:
    """A machine for one test."""
    with emulated(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def gpus() -> Iterator[list[Any]]:
    """The devices of a machine for all tests of a module; the CPU is the default."""
    with emulated(0), fnx.default_device(fnx.devices("cpu")[0]):
        yield fnx.devices("cuda")


@pytest.fixture
def gpu(gpus: list[Any]) -> Any:
    """The first device; nothing wrong must be found by the test."""
    yield gpus[0]
    assert emulator.machine().findings == []
