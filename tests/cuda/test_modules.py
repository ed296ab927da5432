"""From texts to functions: what is compiled, when, how often, and what is kept.

The compiler is NVRTC where it is installed, and CuPy is a stand-in that loads nothing:
it notes what it is asked, and on which device.
"""

from __future__ import annotations

import gc
import os
import threading
import types
from weakref import WeakValueDictionary

import pytest

from fnx import cache
from fnx.config import config
from fnx.errors import CompileError
from fnx_cuda import _cupy, modules, nvrtc

HALF = 'extern "C" __global__ void half_of(float* x) { x[0] *= 0.5f; }'
TWICE = 'extern "C" __global__ void twice(float* x) { x[0] *= 2.0f; }'
BROKEN = 'extern "C" __global__ void broken(float* x) { x[0] = y; }'


class CudaError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class Refused(Exception):
    """What CuPy raises for a text that does not compile."""


class Driver:
    """What CuPy does for modules, with a note of each call."""

    def __init__(self, capability: str = "90") -> None:
        self.capability = capability
        self.device = 0
        self.loaded: list[tuple[int, bytes]] = []
        self.unloaded: list[int] = []
        self.shared: list[tuple[int, int]] = []
        self.refuses = lambda code: False
        driver = self

        class Function:
            def __init__(self, module, name):
                if name.encode() not in module.code:
                    raise CudaError(500)
                self.module = module
                self.ptr = 1000 * len(driver.loaded) + len(name)

        class Module:
            home = None

            def load(self, code):
                if driver.refuses(code):
                    raise CudaError(200)
                driver.loaded.append((driver.device, code))
                self.code, self.home = code, driver.device

            def get_function(self, name):
                return Function(self, name)

            def __del__(self):
                if self.home is not None:
                    assert driver.device == self.home
                    driver.unloaded.append(self.home)

        def set_device(device):
            driver.device = device

        self.module = types.ModuleType("cupy")
        self.module.cuda = types.SimpleNamespace(
            compiler=types.SimpleNamespace(CompileException=Refused),
            function=types.SimpleNamespace(Module=Module),
            Device=lambda device: types.SimpleNamespace(
                compute_capability=self.capability
            ),
            driver=types.SimpleNamespace(
                funcSetAttribute=lambda f, attribute, value: self.shared.append(
                    (attribute, value)
                ),
                CUDADriverError=CudaError,
            ),
            runtime=types.SimpleNamespace(
                getDevice=lambda: self.device,
                setDevice=set_device,
                memGetInfo=lambda: (1, 1),
                driverGetVersion=lambda: 13000,
                CUDARuntimeError=CudaError,
            ),
        )


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """The stand-in, a cache folder of the test's own, and a count of compiles."""
    try:
        nvrtc.compiler(13)
    except CompileError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("FNX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_known_size", None)
    driver = Driver()
    driver.compiled = []
    whole = nvrtc.Compiler.compile

    def compile(self, text, target):
        made = whole(self, text, target)
        driver.compiled.append((text, target))
        return made

    monkeypatch.setattr(nvrtc.Compiler, "compile", compile)
    gc.collect()
    before = _cupy._module  # the emulator, where other tests have put it
    if before is not None:
        modules._unload()
    monkeypatch.setattr(modules, "_modules", WeakValueDictionary())
    _cupy.use(driver.module)
    with config.override(disk_cache=True):
        yield driver
    gc.collect()
    modules._unload()
    _cupy.use(before)


# ---------------------------------------------------------------- memory


def test_a_function_is_compiled_and_loaded_once_a_device(driver):
    first = modules.function(HALF, "half_of", 0)
    assert modules.function(HALF, "half_of", 0).pointer == first.pointer
    other = modules.function(HALF, "half_of", 1)
    assert other.pointer != first.pointer
    assert [device for device, _ in driver.loaded] == [0, 1]
    assert driver.compiled == [(HALF, "sm_90")]  # the second device found it on disk
    assert driver.device == 0  # which was the current one


def test_a_module_lives_as_long_as_its_functions(driver):
    held = modules.function(HALF, "half_of", 1)
    gc.collect()
    modules.function(TWICE, "twice", 0)
    assert driver.unloaded == []
    del held
    gc.collect()
    # A collection unloads nothing itself: a graph may be captured meanwhile.
    assert driver.unloaded == []
    again = modules.function(HALF, "half_of", 0)
    assert sorted(driver.unloaded) == [0, 1]
    assert len(driver.loaded) == 3 and again.pointer


def test_texts_are_prepared_together(driver):
    held = modules.prepare([HALF, TWICE, HALF], 0)
    assert held[0] is held[2] and held[0] is not held[1]
    assert sorted(driver.compiled) == sorted([(HALF, "sm_90"), (TWICE, "sm_90")])
    loaded = len(driver.loaded)
    assert modules.function(TWICE, "twice", 0).module is held[1]
    assert modules.prepare([], 0) == []
    assert len(driver.loaded) == loaded == 2


def test_texts_are_compiled_on_several_threads(driver, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    meeting = threading.Barrier(3, timeout=30)
    whole = nvrtc.Compiler.compile

    def compile(self, text, target):
        meeting.wait()
        return whole(self, text, target)

    monkeypatch.setattr(nvrtc.Compiler, "compile", compile)
    texts = [TWICE.replace("2.0f", f"{n}.0f") for n in range(3)]
    assert len(modules.prepare(texts, 0)) == 3


def test_threads_that_ask_for_one_text_compile_it_once(driver):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(modules.prepare([HALF], 0)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(driver.compiled) == len(driver.loaded) == 1
    assert len({id(module) for (module,) in found}) == 1


def test_dynamic_shared_memory_is_allowed_once(driver):
    for shared in (0, 1024, 60_000, 1024, 100_000):
        modules.function(HALF, "half_of", 0, shared)  # each time loaded anew
    held = modules.prepare([HALF], 0)[0]
    driver.shared.clear()
    for shared in (0, 60_000, 1024, 60_000, 100_000):
        held.function("half_of", shared)
    assert driver.shared == [(8, 60_000), (8, 100_000)]


def test_a_newer_device_is_given_ptx(driver):
    driver.capability = "990"
    modules.function(HALF, "half_of", 0)
    (_, code), (_, target) = driver.loaded[0], driver.compiled[0]
    assert target.startswith("compute_") and b".entry half_of" in code


# ---------------------------------------------------------------- disk


def as_in_a_new_process() -> None:
    """Nothing is in memory: whoever held modules has gone."""
    gc.collect()
    assert not modules._modules


def entry() -> str:
    (name,) = os.listdir(cache.directory())
    return os.path.join(cache.directory(), name)


def test_a_later_process_finds_the_cubin(driver):
    modules.function(HALF, "half_of", 0)
    as_in_a_new_process()
    before = cache.info().hits
    modules.function(HALF, "half_of", 0)
    assert len(driver.compiled) == 1 and cache.info().hits == before + 1
    assert driver.loaded[0] == driver.loaded[1]


def test_texts_targets_and_compilers_have_entries_of_their_own(driver, monkeypatch):
    modules.function(HALF, "half_of", 0)
    modules.function(TWICE, "twice", 0)
    driver.capability = "80"
    as_in_a_new_process()
    modules.function(HALF, "half_of", 0)
    as_in_a_new_process()
    monkeypatch.setattr(nvrtc.Compiler, "name", "NVRTC 99.0")
    modules.function(HALF, "half_of", 0)
    assert len(driver.compiled) == cache.info().entries == 4


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b[:-1] + b"?"])
def test_a_torn_entry_is_compiled_anew_and_replaced(driver, damage):
    modules.function(HALF, "half_of", 0)
    as_in_a_new_process()
    with open(entry(), "r+b") as file:
        content = damage(file.read())
        file.seek(0)
        file.truncate()
        file.write(content)
    modules.function(HALF, "half_of", 0)
    as_in_a_new_process()
    modules.function(HALF, "half_of", 0)
    assert len(driver.compiled) == 2
    assert len({code for _, code in driver.loaded}) == 1


def test_an_entry_that_the_driver_refuses_is_compiled_anew(driver):
    modules.function(HALF, "half_of", 0)
    as_in_a_new_process()
    (_, good), key = driver.loaded.pop(), os.path.basename(entry()).split(".")[0]
    cache.store(key, b"of another driver")
    driver.refuses = lambda code: code == b"of another driver"
    modules.function(HALF, "half_of", 0)
    assert driver.loaded == [(0, good)] and cache.load(key) == good


def test_without_the_disk_cache_nothing_is_written(driver):
    with config.override(disk_cache=False):
        modules.function(HALF, "half_of", 0)
    with config.override(debug=2):
        modules.function(TWICE, "twice", 0)
    assert cache.info().entries == 0 and len(driver.compiled) == 2


# ---------------------------------------------------------------- errors


def test_a_text_that_does_not_compile_leaves_nothing_behind(driver):
    for _ in range(2):
        with pytest.raises(CompileError, match='identifier "y" is undefined'):
            modules.function(BROKEN, "broken", 0)
    with pytest.raises(CompileError) as error:
        modules.prepare([HALF, BROKEN, TWICE], 0)
    assert error.value.text == BROKEN
    assert not driver.loaded and not modules._modules
    assert modules.function(HALF, "half_of", 0).pointer


def test_a_kernel_that_is_not_there_is_an_error(driver):
    with pytest.raises(CompileError, match="none of that name") as error:
        modules.function(HALF, "third_of", 0)
    assert error.value.text == HALF and "Fix: declare it" in str(error.value)
    assert modules.function(HALF, "half_of", 0).pointer


def test_a_load_that_fails_is_cupys_error(driver):
    driver.refuses = lambda code: True
    with pytest.raises(CudaError, match="status 200"):
        modules.function(HALF, "half_of", 1)
    assert driver.device == 0 and not modules._modules
    driver.refuses = lambda code: False
    assert modules.function(HALF, "half_of", 1).pointer


# ---------------------------------------------------------------- the emulator


def test_an_emulator_compiles_texts_itself(driver):
    texts = []

    def compile_text(text):
        texts.append(text)
        return text.encode()

    driver.module.EMULATES = True
    driver.module.compile_text = compile_text
    held = modules.function(HALF, "half_of", 0)
    assert modules.function(HALF, "half_of", 0).pointer == held.pointer
    assert texts == [HALF] and driver.loaded == [(0, HALF.encode())]
    assert not driver.compiled and cache.info().entries == 0


def test_an_emulators_compile_error_is_ours(driver):
    def compile_text(text):
        if text == BROKEN:
            raise Refused("error: y is not declared")
        return text.encode()

    driver.module.EMULATES = True
    driver.module.compile_text = compile_text
    with pytest.raises(CompileError, match="y is not declared") as error:
        modules.function(BROKEN, "broken", 0)
    assert error.value.text == BROKEN
    assert modules.function(HALF, "half_of", 0).pointer


def test_what_one_driver_loaded_is_not_anothers(driver):
    held = modules.function(HALF, "half_of", 0)
    other = Driver()
    _cupy.use(other.module)
    try:
        modules.function(HALF, "half_of", 0)
        assert len(other.loaded) == len(driver.loaded) == 1
    finally:
        _cupy.use(driver.module)
    del held
