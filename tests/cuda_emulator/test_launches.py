"""Launches have limits, errors stay, failures come on request."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests import cuda_emulator as emulator
from tests.cuda_emulator.conftest import ADD, SCALE, parameters

pytestmark = pytest.mark.cuda


EMPTY = 'extern "C" __global__ void __launch_bounds__(256) f(int n) {}'


@pytest.mark.parametrize(
    ("grid", "block", "shared", "status"),
    [
        ((1, 1, 1), (1025, 1, 1), 0, 1),
        ((1, 1, 1), (257, 1, 1), 0, 701),
        ((1, 1, 1), (1, 1, 65), 0, 1),
        ((0, 1, 1), (32, 1, 1), 0, 1),
        ((1, 65536, 1), (32, 1, 1), 0, 1),
        ((1, 1, 65536), (32, 1, 1), 0, 1),
        ((1, 1, 1), (32, 1, 1), (48 << 10) + 1, 1),
    ],
)
def test_limits_of_launches(cupy, launch, grid, block, shared, status):
    function = launch.function(EMPTY, "f")
    keep, table = parameters(np.int32(0))
    with pytest.raises(cupy.cuda.driver.CUDADriverError, match="f: ") as error:
        cupy.cuda.driver.launchKernel(
            function.ptr, *grid, *block, shared, launch.stream.ptr, table, 0
        )
    assert error.value.status == status
    del keep


def test_more_shared_memory_on_request(cupy, launch):
    text = """
    extern "C" __global__ void f(int* out) {
      __shared__ int fixed[256];
      extern __shared__ int s[];
      fixed[threadIdx.x] = 1;
      s[56000 + threadIdx.x] = threadIdx.x;
      __syncthreads();
      out[threadIdx.x] = s[56000 + 31 - threadIdx.x] + fixed[threadIdx.x ^ 1];
    }
    """
    driver = cupy.cuda.driver
    function = launch.function(text, "f")
    out = launch.empty(128)
    size = 4 * 56032
    with pytest.raises(driver.CUDADriverError, match="1024 static and 224128 dynamic"):
        launch.start(function, 1, 32, out, shared=size)
    with pytest.raises(driver.CUDADriverError, match="at most 232448"):
        driver.funcSetAttribute(function.ptr, 8, (227 << 10) - 1023)
    driver.funcSetAttribute(function.ptr, 8, size)
    launch.start(function, 1, 32, out, shared=size)
    wanted = np.arange(32)[::-1] + 1
    np.testing.assert_array_equal(launch.get(out, np.int32, 32), wanted)


def test_too_much_static_shared_memory_does_not_compile(cupy):
    text = """
    extern "C" __global__ void f(int* out) {
      __shared__ int s[12289];
      s[threadIdx.x] = 1;
      __syncthreads();
      out[threadIdx.x] = s[threadIdx.x ^ 1];
    }
    """
    with pytest.raises(cupy.cuda.compiler.CompileException, match=r"0xc004 bytes"):
        cupy.compile_text(text)
    cupy.compile_text(text.replace("12289", "12288"))


def test_parameters_have_a_limit(cupy, launch):
    text = 'struct P { char a[%d]; }; extern "C" __global__ void f(const P p) {}'
    for size in (4096, 4097):
        function = launch.function(text % size, "f")
        call = lambda f=function, n=size: launch.start(f, 1, 1, np.zeros(1, f"V{n}"))  # noqa: E731
        if size <= 4096:
            call()
        else:
            with pytest.raises(cupy.cuda.driver.CUDADriverError, match="4097 bytes"):
                call()


def test_functions_and_streams_belong_to_a_device(cupy, launch):
    function = launch.function(EMPTY, "f")
    keep, table = parameters(np.int32(0))
    driver = cupy.cuda.driver
    with (
        cupy.cuda.Device(1),
        pytest.raises(driver.CUDADriverError, match="on device 0, not 1"),
    ):
        driver.launchKernel(function.ptr, *[1] * 6, 0, 0, table, 0)
    with cupy.cuda.Device(1):
        far = cupy.cuda.Stream()
    with pytest.raises(driver.CUDADriverError, match="stream is one of device 1"):
        driver.launchKernel(function.ptr, *[1] * 6, 0, far.ptr, table, 0)
    pointer = function.ptr
    del function
    with pytest.raises(driver.CUDADriverError, match="no loaded function"):
        driver.launchKernel(pointer, *[1] * 6, 0, 0, table, 0)
    del keep


def test_parameters_are_copied_at_the_call(cupy, launch):
    function = launch.function(ADD, "f")
    x = launch.put(np.zeros(32, np.float32))
    (buffers, table), address = parameters(np.uint64(x.ptr), np.float32(1))
    for value in (1, 2, 4):
        buffers[1].raw = np.float32(value).tobytes()
        cupy.cuda.driver.launchKernel(
            function.ptr, 1, 1, 1, 32, 1, 1, 0, launch.stream.ptr, address, 0
        )
    buffers[1].raw = np.float32(99).tobytes()
    assert set(launch.get(x, np.float32, 32)) == {7.0}
    del table


def test_raw_kernels(cupy, launch):
    x = launch.put(np.zeros(32, np.float32))
    launch.stream.synchronize()
    kernel = cupy.RawKernel(ADD, "f")
    assert kernel.code == ADD and kernel.name == "f"
    for again in (kernel, cupy.RawModule(code=ADD).get_function("f")):
        again((1,), (32,), (np.uint64(x.ptr), np.float32(2)))
        assert again.kernel.ptr
        with pytest.raises(cupy.cuda.driver.CUDADriverError, match="2 parameters"):
            again((1,), (32,), (np.uint64(x.ptr),))
    cupy.cuda.runtime.deviceSynchronize()
    assert set(launch.get(x, np.float32, 32)) == {4.0}
    with pytest.raises(cupy.cuda.driver.CUDADriverError, match="named symbol not foun"):
        cupy.RawKernel(ADD, "g").compile()
    # as with CuPy, a Python float is a double: a float parameter reads its first half
    kernel((1,), (32,), (np.uint64(x.ptr), 2.0))
    cupy.cuda.runtime.deviceSynchronize()
    assert set(launch.get(x, np.float32, 32)) == {4.0}


# ---------------------------------------------------------------- errors


def test_an_illegal_address_is_not_recovered_from(cupy, launch):
    runtime = cupy.cuda.runtime
    x = launch.empty(64)
    launch.start(launch.function(ADD, "f"), 1, 16, x, np.float32(0))
    with pytest.raises(emulator.Finding, match="nobody has written"):
        launch.stream.synchronize()
    launch(ADD.replace("+=", "="), 1, 16, x, np.float32(0))  # a finding is no error
    launch.start(launch.function(ADD.replace("+=", "="), "f"), 1, 32, x, np.float32(0))
    for call in (
        launch.stream.synchronize,
        runtime.deviceSynchronize,
        lambda: runtime.malloc(8),
        lambda: launch.put(np.zeros(1)),
        lambda: cupy.cuda.Stream(),
    ):
        with pytest.raises(runtime.CUDARuntimeError) as error:
            call()
        assert error.value.status == 700
    assert "past the end of the allocation of 64 bytes" in str(error.value)
    emulator.machine().error = None  # what only a new process can do on a GPU
    runtime.deviceSynchronize()


def test_injected_failures(cupy, launch):
    inject, cuda = emulator.inject, cupy.cuda
    inject.out_of_memory(after=1)
    launch.empty(8)
    for _ in range(2):
        with pytest.raises(cuda.runtime.CUDARuntimeError, match="out of memory"):
            launch.empty(8)
    with pytest.raises(cuda.memory.OutOfMemoryError):
        cuda.MemoryPool().malloc(8)
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="pinned"):
        cuda.alloc_pinned_memory(8)
    inject.out_of_memory(always=False)
    cuda.MemoryPool().malloc(8)  # the pool tries again
    inject.compile_error(match="+=")
    with pytest.raises(cuda.compiler.CompileException, match="injected"):
        launch.function(ADD, "f")
    launch.function(SCALE, "f")
    inject.clear()
    inject.launch_error(after=1)
    x = launch.put(np.zeros(32, np.float32))
    launch(ADD, 1, 32, x, np.float32(1))
    with pytest.raises(cuda.driver.CUDADriverError, match="injected"):
        launch(ADD, 1, 32, x, np.float32(1))
    launch(ADD, 1, 32, x, np.float32(1))
    assert set(launch.get(x, np.float32, 32)) == {2.0}
    inject.device_lost()
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="lost"):
        launch.stream.synchronize()


def test_devices(cupy):
    cuda = cupy.cuda
    assert cuda.is_available() and cuda.runtime.getDeviceCount() == 2
    with cuda.Device(1) as device:
        assert cuda.runtime.getDevice() == device.id == int(cuda.Device()) == 1
    assert cuda.Device().id == 0
    assert cuda.Device(1).compute_capability == "90"
    assert cuda.Device(0).attributes["MultiProcessorCount"] == 16
    assert cuda.runtime.deviceGetAttribute(97, 0) == 227 << 10
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="InvalidDevice"):
        cuda.Device(2).use()
    with emulator.another(emulator.Settings(devices=0)):
        assert not cuda.is_available()
        with pytest.raises(cuda.runtime.CUDARuntimeError, match="NoDevice"):
            cuda.runtime.getDeviceCount()


def test_threads_have_their_own_device(cupy):
    seen = []

    def work():
        seen.append(cupy.cuda.runtime.getDevice())

    with cupy.cuda.Device(1):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen == [0]
