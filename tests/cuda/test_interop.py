"""Arrays of other libraries: taken without a copy, passed on, in order both ways.

The other library is CuPy as the emulator plays it, on a stream of its own; what it
does to an array is a kernel that takes its time.
"""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from fnx import errors
from fnx_cuda import _cupy, device, interop, modules
from tests import cuda_emulator as emulator
from tests.cuda.parts import (
    F32,
    SCALE_ADD,
    f32,
    got,
    inputs,
    numbers,
    outputs,
    plan,
    program,
    put,
    scale_add,
)

pytestmark = pytest.mark.cuda

N = 200


def adding():
    (a, b), (out,) = inputs(0, 1), outputs(0)
    return program(plan([f32(N)] * 2, [f32(N)]), [scale_add(a, b, out, 1.0, N)])


@pytest.fixture
def cupy(machine):
    return emulator.cupy_module()


def cupy_array(cupy, values):
    array = cupy.ndarray(values.shape, values.dtype)
    array.set(values)
    return array


def double(cupy, array):
    """Starts array = array * 1 + array on CuPy's current stream."""
    import ctypes
    import struct

    function = modules.function(SCALE_ADD, "scale_add", 0)
    pointer = array.data.ptr
    parameters = ctypes.create_string_buffer(
        struct.pack("3Qfi", pointer, pointer, pointer, 1.0, array.size)
    )
    table = (ctypes.c_void_p * 1)(ctypes.addressof(parameters))
    stream = cupy.cuda.get_current_stream().ptr
    _cupy.launch(
        function.pointer, (2, 1, 1), (64, 1, 1), 0, stream, ctypes.addressof(table)
    )


class Interface:
    """Only `__cuda_array_interface__`, as Numba's arrays have it."""

    def __init__(self, array, stream=None, **changes):
        self.array = array
        found = array.__cuda_array_interface__ | changes
        found.pop("stream")
        self.__cuda_array_interface__ = found | (
            {} if stream is None else {"stream": stream}
        )


@pytest.mark.parametrize("own_stream", [False, True])
@pytest.mark.parametrize("way", ["dlpack", "interface", "interface without stream"])
def test_taken_without_a_copy_after_what_makes_it(machine, cupy, way, own_stream):
    run, x, y = adding(), numbers(1, N), numbers(2, N)
    stream = (
        cupy.cuda.Stream(non_blocking=True) if own_stream else cupy.cuda.Stream.null
    )
    for _ in range(4):
        with stream:
            array = cupy_array(cupy, x)
            double(cupy, array)
            source = array
            if way != "dlpack":
                named = None if "without" in way else stream.ptr or 1
                source = Interface(array, named)
            buffer, shape, dtype = interop.taken(source)
        assert (buffer.pointer, buffer.device) == (array.data.ptr, 0)
        assert (shape, dtype) == ((N,), F32)
        assert not buffer.ours
        (found,) = run([buffer, *put(y)], 0)
        np.testing.assert_array_equal(got(found, x), x + x + y)
        np.testing.assert_array_equal(got(buffer, x), x + x)


def test_what_is_taken_stays_alive(machine, cupy):
    x = numbers(1, N)
    array = cupy_array(cupy, x)
    alive = weakref.ref(array)
    buffer, *_ = interop.taken(array)
    del array
    gc.collect()
    assert alive() is not None
    np.testing.assert_array_equal(got(buffer, x), x)
    del buffer
    gc.collect()
    assert alive() is None


def test_taken_from_the_other_device(machine, cupy):
    x = numbers(1, 7, 3)
    with cupy.cuda.Device(1):
        array = cupy_array(cupy, x)
    for source in (array, Interface(array)):
        buffer, shape, _ = interop.taken(source)
        assert (buffer.device, shape) == (1, (7, 3))
        np.testing.assert_array_equal(got(buffer, x), x)


def test_strided_arrays_are_copied(machine, cupy):
    x = numbers(1, 6, 4)
    array = cupy_array(cupy, x)
    turned = cupy.ndarray((4, 6), F32, array.data, (4, 16))
    for source in (turned, Interface(turned)):
        buffer, shape, _ = interop.taken(source)
        assert buffer.pointer != array.data.ptr
        assert shape == (4, 6)
        np.testing.assert_array_equal(got(buffer, x.T), x.T)


def test_arrays_that_begin_anywhere_are_copied(machine, cupy):
    """Kernels read 16 bytes at once; a slice of an array begins where it likes."""
    x = numbers(1, 40)
    array = cupy_array(cupy, x)
    for skipped in (1, 2, 3, 4):
        part = cupy.ndarray((30,), F32, array.data + 4 * skipped)
        for source in (part, Interface(part)):
            buffer, *_ = interop.taken(source)
            assert buffer.pointer % 16 == 0
            assert (buffer.pointer == part.data.ptr) == (skipped == 4)
            wanted = x[skipped : skipped + 30]
            np.testing.assert_array_equal(got(buffer, wanted), wanted)


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_empty_arrays_are_taken(machine, cupy, shape):
    buffer, found, _ = interop.taken(cupy.ndarray(shape, F32))
    assert (buffer.nbytes, buffer.pointer, found) == (0, 0, shape)


def test_memory_of_the_host_is_refused(machine):
    with pytest.raises(errors.ArgumentError, match="not on a CUDA device"):
        interop.taken(np.zeros(3))


@pytest.mark.parametrize("own_stream", [False, True])
def test_a_view_comes_after_what_makes_its_values(machine, cupy, own_stream):
    run, x, y = adding(), numbers(1, N), numbers(2, N)
    stream = (
        cupy.cuda.Stream(non_blocking=True) if own_stream else cupy.cuda.Stream.null
    )
    for _ in range(4):
        (found,) = run(put(x, y), 0)
        with stream:
            array = interop.view(found, (N // 4, 4), F32)
            assert array.data.ptr == found.pointer
            np.testing.assert_array_equal(array.get(), (x + y).reshape(-1, 4))


def test_memory_that_was_out_waits_for_what_was_done_with_it(machine, cupy):
    run, x, y = adding(), numbers(1, N), numbers(2, N)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        out = cupy.ndarray((N,), F32)
    for _ in range(6):
        (found,) = run(put(x, y), 0)
        with stream:
            array = interop.view(found, (N,), F32)
            del found
            # CuPy reads the view, which is given back before that has happened.
            runtime = cupy.cuda.runtime
            runtime.memcpyAsync(out.data.ptr, array.data.ptr, 4 * N, 3, stream.ptr)
            del array
        gc.collect()
        results = [run(put(y, y), 0) for _ in range(3)]
        with stream:
            np.testing.assert_array_equal(out.get(), x + y)
        for (result,) in results:
            np.testing.assert_array_equal(got(result, y), y + y)


def test_memory_of_another_device_was_out(machine, cupy):
    """It is given back while a thread's current device is not its own."""
    (buffer,) = put(numbers(1, N), device=1)
    with cupy.cuda.Device(1):
        array = interop.view(buffer, (N,), F32)
    del buffer, array
    gc.collect()
    assert len(device.device(1)._foreign) == 1
    (buffer,) = put(numbers(2, N), device=1)
    np.testing.assert_array_equal(got(buffer, numbers(2, N)), numbers(2, N))
    assert len(device.device(1)._foreign) == 0


def test_a_view_keeps_its_memory(machine, cupy):
    run, x, y = adding(), numbers(1, N), numbers(2, N)
    (found,) = run(put(x, y), 0)
    array = interop.view(found, (N,), F32)
    del found
    others = [run(put(y, y), 0) for _ in range(3)]
    np.testing.assert_array_equal(array.get(), x + y)
    assert others
