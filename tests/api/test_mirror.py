"""What arrays on devices ask of a backend: when something is copied, run, waited for.

The mirror (`tests/mirror.py`) logs what it is asked, computes nothing before somebody
waits, and fails when it is told to. Its devices are compared with NumPy.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors
from fnx.config import busy
from fnx.runtime.array import ConcreteArray
from fnx.runtime.device_array import taken
from tests import mirror

X = np.array([[0.5, -1.25, 3.0], [2.0, 0.0, -0.0]], np.float32)


@pytest.fixture
def there() -> Any:
    with mirror.offered() as backend:
        yield backend
    assert not busy


@pytest.fixture
def a(there: Any) -> Any:
    return fnx.devices("mirror")[0]


@pytest.fixture
def b(there: Any) -> Any:
    return fnx.devices("mirror")[1]


def at(x: Any) -> tuple[str, bool]:
    return str(x.device), x.committed


# ---------------------------------------------------------------- devices


def test_devices_have_names(there, a, b):
    assert fnx.devices("mirror") == [a, b] == fnx.local_devices("mirror")
    assert fnx.device_count("mirror") == 2
    assert (str(b), repr(b)) == ("mirror:1", "MirrorDevice(id=1)")
    assert (a.platform, a.device_kind, a.process_index) == (
        "mirror",
        "looking glass",
        0,
    )
    assert a.memory_stats() == {"bytes_in_use": 0}
    assert fnx.devices("cpu")[0].memory_stats() is None
    assert fnx.devices() == fnx.devices("cpu")  # it is no GPU


@pytest.mark.parametrize("name", ["cuda", "gpu"])
def test_a_platform_without_devices_says_why(there, name):
    if fnx.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(
        errors.OptionError, match=f"devices\\('{name}'\\): there are no"
    ):
        fnx.devices(name)


@pytest.mark.parametrize("what", ["mirror:2", "mirror:x", "mirror:-1", 3])
def test_what_is_no_device(there, what):
    with pytest.raises(errors.ArgumentError, match=r"this is no device"):
        fnx.device_put(X, what)
    with pytest.raises(errors.ArgumentError, match=r"this is no device"):
        fnx.default_device(what)
    lost = fnx.Device(2, "mirror", "looking glass", 0, "mirror")
    with pytest.raises(errors.ArgumentError, match=r"this is no device"):
        fnx.device_put(X, lost)


def test_an_unknown_platform(there):
    with pytest.raises(errors.OptionError, match=r"the platforms are .*'mirror'"):
        fnx.default_device("nowhere:0")


# ---------------------------------------------------------------- placement


# What is done with arrays on two devices, in words that JAX understands, too.
def test_without_other_devices_nothing_is_committed_to_the_cpu():
    if fnx.cuda.is_available():
        pytest.skip("there is a GPU")
    x = fnx.device_put(X, fnx.devices("cpu")[0])
    assert type(x) is ConcreteArray
    assert at(x) == ("cpu:0", False)
    assert x.devices() == {fnx.devices("cpu")[0]}


def test_captured_arrays_follow_the_arguments_once(there, a, b):
    held = fnx.device_put(X, a)
    free = fnp.ones(3) * 2
    f = fnx.jit(lambda x: x * held + free)
    there.log.clear()
    y = fnx.device_put(X, b)
    for _ in range(3):
        assert at(f(y)) == ("mirror:1", True)
    assert sum(row.startswith("move") for row in there.log) == 1
    assert sum(row.startswith("put 12") for row in there.log) == 1
    np.testing.assert_array_equal(np.asarray(f(y)), X * X + 2)
    # Where nothing else says where, they do.
    assert at(f(X)) == at(fnx.jit(lambda: held + 1)()) == ("mirror:0", True)
    other = fnx.device_put(X, b)
    with pytest.raises(
        errors.ArgumentError, match=r"captured array 0 .* captured arra"
    ):
        fnx.jit(lambda: held + other)()


def test_each_device_has_its_entry_and_equal_programs_one_executable(there, a, b):
    f = fnx.jit(lambda x: x * 3)
    for _ in range(3):
        for device in (a, b):
            f(fnx.device_put(X, device))
    f(X)
    assert f.cache_info()[:2] == (4, 3)
    assert "the device: mirror:1 (committed) before, cpu:0 now" in f.explain_miss()
    compiled = fnx.jit(lambda x: x * 3).lower(fnx.device_put(X, b)).compile()
    assert at(compiled(X)) == ("mirror:1", True)


# ---------------------------------------------------------------- moving


def test_putting_what_is_there_copies_nothing(there, a, b):
    x = fnx.device_put(X, a)
    there.log.clear()
    assert fnx.device_put(x, a) is x
    assert fnx.device_put(x) is x
    with fnx.default_device(a):
        free = fnp.array(X)
        there.log.clear()
        assert fnx.device_put(free, a).buffer is free.buffer
    assert there.log == []
    fnx.device_put(x, b)
    assert there.log == ["move 24 from 0 to 1"]


def test_nothing_waits_but_what_needs_a_value(there, a):
    x = fnx.device_put(X, a)
    y = fnx.jit(lambda x: x * 2 + 1)(x) + x
    assert not [row for row in there.log if row.startswith("get")]
    assert not y.is_ready()
    assert y.block_until_ready() is y
    assert y.is_ready()
    assert fnx.block_until_ready({"y": [y, 1]})["y"][0] is y
    there.log.clear()
    np.testing.assert_array_equal(np.asarray(y), 3 * X + 1)
    np.testing.assert_array_equal(np.array(y), 3 * X + 1)
    assert str(y) and repr(y)
    assert there.log == ["get 24"]  # the copy is kept


# ---------------------------------------------------------------- donation, deletion


def test_donated_memory_goes_to_the_program(there, a):
    step = fnx.jit(lambda x, y: (x + y, y), donate_argnums=(0, 1))
    x, y = fnx.device_put(X, a), fnx.device_put(X + 1, a)
    total, same = step(x, y)
    # What is passed through is not the program's to write to.
    assert there.log[-1] == "run on 0, donated (0,)"
    assert x.is_deleted() and y.is_deleted()
    np.testing.assert_array_equal(np.asarray(total), X + X + 1)
    np.testing.assert_array_equal(np.asarray(same), X + 1)
    with pytest.raises(errors.ArgumentError, match=r"used after it had been deleted"):
        x + 1
    with pytest.raises(errors.ArgumentError, match=r"used after it had been deleted"):
        np.asarray(x)
    with pytest.raises(errors.ArgumentError, match=r"used after it had been deleted"):
        step(total, x)
    assert repr(x) == str(x) == "Array(deleted, f32[2,3])"
    with pytest.raises(
        errors.ArgumentError, match=r"the same array is another argument"
    ):
        step(same, same)


def test_results_can_be_donated(there, a):
    step = fnx.jit(lambda x: x * 2, donate_argnums=0)
    x = fnx.device_put(X, a)
    for _ in range(3):
        x = step(x)
    assert there.log.count("run on 0, donated (0,)") == 3
    np.testing.assert_array_equal(np.asarray(x), X * 8)


def test_memory_that_somebody_else_reads_is_not_donated(there, a):
    step = fnx.jit(lambda x: x + 1, donate_argnums=0)
    x = fnx.device_put(X, a)
    (alias,) = fnx.jit(lambda x: (x,))(x)
    assert alias.buffer is x.buffer
    step(alias)
    assert alias.is_deleted()
    np.testing.assert_array_equal(np.asarray(x), X)
    view = np.from_dlpack(x)
    step(x)
    np.testing.assert_array_equal(view, X)
    twice = fnx.jit(lambda x: (x + 1, x + 1))(fnx.device_put(X, a))
    step(twice[0])
    np.testing.assert_array_equal(np.asarray(twice[1]), X + 1)


def test_what_was_moved_for_a_call_is_donated_too(there, a, b):
    step = fnx.jit(lambda x, y: x + y, donate_argnums=0)
    free = fnp.array(X)
    result = step(free, fnx.device_put(X, b))
    assert there.log[-1] == "run on 1, donated (0,)"
    assert free.is_deleted()
    np.testing.assert_array_equal(np.asarray(result), X + X)


# ---------------------------------------------------------------- other libraries


def test_dlpack_out_without_a_copy(a):
    x = fnx.device_put(X, a)
    view = np.from_dlpack(x)
    np.testing.assert_array_equal(view, X)
    assert np.shares_memory(view, x.buffer.content)
    assert not hasattr(x, "__cuda_array_interface__")


class Foreign:
    """Another library's array on a device, as CUDA's interfaces show it."""

    def __init__(self, content: np.ndarray, device: int, interface: bool) -> None:
        self.content, self.device = content, device
        if interface:
            self.__cuda_array_interface__ = {"version": 3}
        else:
            self.__dlpack_device__ = lambda: (2, device)


@pytest.mark.parametrize("interface", [True, False])
def test_arrays_of_other_libraries_are_shared(interface):
    source = Foreign(X.copy(), 1, interface)
    with mirror.offered("cuda", "other") as there:
        for take in (fnp.from_dlpack, fnp.asarray, lambda x: fnp.array(x, copy=False)):
            x = take(source)
            assert at(x) == ("cuda:1", True)
            assert x.buffer.content is source.content
            np.testing.assert_array_equal(np.asarray(x + 1), X + 1)
        copied = fnp.array(source)
        assert at(copied) == ("cuda:1", True)
        assert "move 24 from 1 to 1" in there.log
        assert fnp.asarray(source, "int32").dtype == np.int32
        step = fnx.jit(lambda x: x + 1, donate_argnums=0)
        step(taken(source)).block_until_ready()
        np.testing.assert_array_equal(source.content, X)  # it is not ours to give


def test_the_interface_of_cuda():
    with mirror.offered("cuda", "other"):
        device = fnx.devices("cuda")[1]
        x = fnx.device_put(X, device)
        faced = x.__cuda_array_interface__
        assert faced["data"] == (x.buffer.pointer, True)
        assert (faced["shape"], faced["typestr"]) == ((2, 3), "<f4")
        assert (faced["version"], faced["strides"], faced["stream"]) == (3, None, 1)
        half = fnx.device_put(fnp.ones(2, "bfloat16"), device)
        assert not hasattr(half, "__cuda_array_interface__")
        np.testing.assert_array_equal(fnx.cuda.as_cupy(x), X)
        assert fnx.cuda.memory_stats("cuda:1") == {"bytes_in_use": 0}
        with pytest.raises(
            errors.ArgumentError, match=r"cpu:0 has no memory of its own"
        ):
            fnx.cuda.memory_stats("cpu")


def test_an_array_of_a_gpu_that_fnx_has_not():
    if fnx.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(errors.DeviceError, match=r"fnx has no such device"):
        fnp.asarray(Foreign(X, 0, True))
    with pytest.raises(errors.ArgumentError, match=r"as_cupy: the array is on cpu:0"):
        fnx.cuda.as_cupy(fnp.ones(2))
    with pytest.raises(errors.OptionError, match=r"there are none"):
        fnx.cuda.memory_stats()


# ---------------------------------------------------------------- what goes wrong


def test_an_error_of_a_run_comes_with_the_line_of_the_call(there, a):
    x = fnx.device_put(X, a)
    g = fnx.jit(lambda x: x * 2)
    g(x).block_until_ready()
    there.fail(errors.DeviceError("mirror:0: cracked"))
    y = g(x)  # this is the line
    for use in (np.asarray, float, fnx.block_until_ready, fnx.device_get, str):
        with pytest.raises(errors.DeviceError) as found:
            use(y)
        lines = str(found.value).split("\n")
        assert "test_mirror.py" in lines[0] and "# this is the line" in lines[0]
        assert (
            lines[1] == "jit of <lambda>, which was started there: mirror:0: cracked."
        )
    z = y + 1  # it surfaces in what is made of it
    with pytest.raises(errors.DeviceError, match=r"cracked"):
        z.block_until_ready()
    np.testing.assert_array_equal(np.asarray(g(x)), X * 2)  # the next call works


def test_an_error_of_the_users_keeps_its_type(there, a):
    x = fnx.device_put(X, a)
    g = fnx.jit(lambda x: x * 2)
    there.fail(ZeroDivisionError("in a callback"))
    y = g(x)
    with pytest.raises(ZeroDivisionError, match=r"in a callback") as found:
        y.block_until_ready()
    assert "jit of <lambda>" in found.value.__notes__[0]


def test_what_a_device_lacks_raises(there, a):
    there.missing = "no polish"
    x = fnx.device_put(X, a)
    with pytest.raises(
        errors.DeviceError, match=r"cannot be compiled for mirror: no pol"
    ):
        fnx.jit(lambda x: fnp.cos(x) * 17)(x)
    with pytest.raises(errors.DeviceError, match=r"doctor"):
        fnp.arctan2(x, x)
    there.missing = ""
    np.testing.assert_allclose(
        np.asarray(fnx.jit(lambda x: fnp.cos(x) * 17)(x)), np.cos(X) * 17, rtol=1e-6
    )


def test_numbers_are_put_there_once(there, a):
    x = fnx.device_put(X, a)
    there.log.clear()
    for _ in range(3):
        x + 7
    assert there.log.count("put 4 on 0") == 1
    assert there.log.count("run on 0") == 3


def test_check_compares_what_the_device_computes(there, a):
    x = fnx.device_put(X, a)
    before = len(there.log)
    report = fnx.check(lambda x: fnp.sin(x) * 2 + x.sum())(x)
    assert report.equations == 5
    runs = [row for row in there.log[before:] if row.startswith("run")]
    assert len(runs) == 6


def test_stages(a):
    lowered = fnx.jit(lambda x: x + 1).lower(fnx.device_put(X, a))
    assert "kernel" in lowered.as_text("kernel")
    assert "enifed" in lowered.as_text("mirrored")
    with pytest.raises(errors.OptionError, match=r"program, plan, kernel, mirrored"):
        lowered.as_text("llvm")
    # What another platform would be given is shown from everywhere.
    assert "enifed" in fnx.jit(lambda x: x + 1).lower(X).as_text("mirrored")
    assert "define" in fnx.jit(lambda x: x + 1).lower(X).as_text("llvm")


# ---------------------------------------------------------------- the disk cache


def test_the_disk_cache_tells_backends_apart(there, a, monkeypatch, tmp_path):
    monkeypatch.setenv("FNX_CACHE_DIR", str(tmp_path))
    with fnx.config.override(disk_cache=True):
        g = fnx.jit(lambda x: x * 3 + 0.125)
        before = fnx.cache.info()
        np.asarray(g(X)), np.asarray(g(fnx.device_put(X, a)))
        assert fnx.cache.info().entries - before.entries == 2
        fnx.clear_caches()
        monkeypatch.setattr(type(there), "compile", None)
        again = g(fnx.device_put(X, a))
        assert fnx.cache.info().hits - before.hits == 1
        np.testing.assert_array_equal(np.asarray(again), X * 3 + np.float32(0.125))


# ---------------------------------------------------------------- what is found


def test_hardware_that_cannot_be_used_is_said_aloud_once():
    with mirror.offered(platform="gpu") as there:
        lost = mirror.Found(
            (), "CuPy is not installed", "pip install it", unusable=True
        )
        there.found = lambda: lost
        with pytest.warns(RuntimeWarning, match=r"CuPy is not installed.*\n.*pip inst"):
            x = fnp.ones(3)
        assert at(x) == at(fnp.ones(3) + 1) == ("cpu:0", False)  # and no other warning
        assert not busy


def test_a_gpu_is_the_default_device():
    with mirror.offered(platform="gpu"):
        assert at(fnp.ones(3)) == ("mirror:0", False)
        assert fnx.default_backend() == "gpu"
        assert fnx.devices("gpu") == fnx.devices("mirror") == fnx.devices()
        assert at(fnx.jit(lambda x: x + 1)(X)) == ("mirror:0", False)
        cpu = fnx.device_put(X, fnx.devices("cpu")[0])
        assert at(cpu + 1) == ("cpu:0", True)
    assert at(fnp.ones(3)) == ("cpu:0", False)


def test_importing_asks_for_no_device():
    code = """
import sys
import fnx, fnx.numpy
heavy = {"fnx_cuda", "fnx_cuda.backend", "cupy", "fnx.runtime.placed"} & {*sys.modules}
assert not heavy, heavy
assert len(fnx.config.__class__.__slots__) and fnx.runtime.device.busy == [None]
fnx.numpy.ones(3)
assert fnx.runtime.device.busy == []
"""
    environment = os.environ | {"FNX_DEFAULT_DEVICE": "cpu"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_the_doctor_sees_devices(there, capsys):
    report = fnx.doctor()
    printed = capsys.readouterr().out
    assert printed == f"{report}\n"
    rows = {finding.what: finding.found for finding in report.findings}
    assert rows["mirror:1"] == "looking glass"
    assert rows["mirror"] == "polished"
    assert rows["numpy"] == np.__version__
    assert rows["programs run on"].startswith("cpu:0")
    assert "cuda" in rows or "cuda:0" in rows
