"""Functions of loaded modules and their launches: limits, parameters, reports.

`launch` checks what CUDA checks at the call, copies the parameters, and puts the run
into the stream; what the runtime finds while it runs becomes a message that names the
kernel, the thread, the block and the memory. Next: modules.py.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from dataclasses import dataclass

import numpy as np

from . import native
from .copies import device_of
from .errors import CUDADriverError
from .machine import Machine, StreamState
from .modules import Image, Kernel

SHARED_DEFAULT, SHARED_MOST = 48 << 10, 227 << 10
PARAMETERS_MOST = 4096
ATTRIBUTE_MAX_DYNAMIC_SHARED = 8

FAULTS = (
    *("none", "out of bounds", "uninitialised", "race", "misaligned"),
    *("divergent barrier", "divergent warp", "bad lane", "endless"),
    *("division by zero", "stack overflow", "index out of bounds"),
)


class FunctionState:
    """What a CUfunction is: a kernel of a module loaded on one device."""

    def __init__(self, image: Image, kernel: Kernel, device: int) -> None:
        self.image = image
        self.kernel = kernel
        self.device = device
        self.dynamic_shared_limit = SHARED_DEFAULT - kernel.static_shared
        states = np.zeros(image.shared_size, np.uint8)
        for _, offset, size in kernel.shared:
            states[offset : offset + size] = 1
        self.shared_states = states


_functions: weakref.WeakValueDictionary[int, FunctionState] = (
    weakref.WeakValueDictionary()
)
_handles = itertools.count(0x7000_0000, 16)


def register(function: FunctionState) -> int:
    """A handle for a function, valid as long as the function lives."""
    handle = next(_handles)
    _functions[handle] = function
    return handle


def function_of(handle: int) -> FunctionState:
    """The function of a handle."""
    function = _functions.get(handle)
    if function is None:
        raise CUDADriverError(400, "no loaded function has this handle")
    return function


@dataclass(frozen=True)
class Configuration:
    """The numbers of a launch."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int


def _check_limits(function: FunctionState, c: Configuration, device: int) -> None:
    kernel, name = function.kernel, function.kernel.name
    threads = c.block[0] * c.block[1] * c.block[2]
    total = kernel.static_shared + c.shared
    wrong = None
    if function.device != device:
        wrong = f"{name} was loaded on device {function.device}, not {device}"
    elif min(*c.grid, *c.block) < 1:
        wrong = f"{name}: grid {c.grid}, block {c.block} has an empty side"
    elif threads > 1024 or c.block[2] > 64:
        wrong = f"{name}: a block of {c.block} threads; at most 1024, 64 along z"
    elif c.grid[0] > 2**31 - 1 or c.grid[1] > 65535 or c.grid[2] > 65535:
        wrong = f"{name}: grid {c.grid}; at most 2^31 - 1, 65535, 65535"
    elif c.shared > function.dynamic_shared_limit:
        wrong = (
            f"{name}: {kernel.static_shared} static and {c.shared} dynamic bytes of "
            f"shared memory; at most {function.dynamic_shared_limit} dynamic ones "
            "without cuFuncSetAttribute"
        )
    elif sum(kernel.sizes) > PARAMETERS_MOST:
        wrong = f"{name}: {sum(kernel.sizes)} bytes of parameters; at most 4096"
    if wrong:
        raise CUDADriverError(400 if function.device != device else 1, wrong)
    if kernel.bounds[0] and threads > kernel.bounds[0]:
        note = f"{name}: {threads} threads, its launch bounds say {kernel.bounds[0]}"
        raise CUDADriverError(701, note)
    assert total <= SHARED_MOST


def set_attribute(function: FunctionState, attribute: int, value: int) -> None:
    """cuFuncSetAttribute."""
    if attribute != ATTRIBUTE_MAX_DYNAMIC_SHARED:
        return
    static = function.kernel.static_shared
    if not 0 <= value <= SHARED_MOST - static:
        note = f"{static} static bytes and {value} dynamic ones; at most {SHARED_MOST}"
        raise CUDADriverError(1, note)
    function.dynamic_shared_limit = value


def launch(
    machine: Machine,
    function: FunctionState,
    configuration: Configuration,
    stream: StreamState,
    parameters: int,
) -> None:
    """cuLaunchKernel; `parameters` is the address of the table of their addresses."""
    _check_limits(function, configuration, machine.device)
    if stream.device != machine.device:
        note = f"the stream is one of device {stream.device}, not {machine.device}"
        raise CUDADriverError(400, note)
    kernel = function.kernel
    count = len(kernel.sizes)
    table = (ctypes.c_uint64 * count).from_address(parameters) if count else ()
    values = [
        ctypes.create_string_buffer(ctypes.string_at(address, size), max(size, 1))
        for address, size in zip(table, kernel.sizes, strict=True)
    ]

    def run() -> None:
        _run(machine, function, configuration, values)

    machine.enqueue(stream, run, f"kernel {kernel.name}")


def _run(
    machine: Machine,
    function: FunctionState,
    configuration: Configuration,
    values: list[ctypes.Array[ctypes.c_char]],
) -> None:
    # A launch may be repeated by a graph: the kernel gets a copy of its parameters.
    copies = [ctypes.create_string_buffer(v.raw, len(v)) for v in values]
    table = (ctypes.c_uint64 * max(len(copies), 1))(*map(ctypes.addressof, copies))
    image = function.image
    unordered = machine.trail.unordered(machine.position)
    library = native.library()
    first = library.fnx_next_serial()
    launch_ = native.Launch(
        run=function.kernel.run,
        parameters=ctypes.addressof(table),
        grid=native.Index(*configuration.grid),
        block=native.Index(*configuration.block),
        seed=machine.random.getrandbits(32),
        shared_start=image.shared_start,
        shared_size=image.shared_size,
        shared_state=function.shared_states.ctypes.data,
        dynamic_shared=configuration.shared,
        device=machine.memories[function.device].space,
        own=(ctypes.c_uint64 * 6)(*image.own),
        unordered=ctypes.addressof(unordered),
        unordered_count=len(unordered),
    )
    machine.launches += 1
    failed = library.fnx_launch(launch_)
    label = f"kernel {function.kernel.name}"
    machine.trail.note(machine.position, first, library.fnx_next_serial(), label)
    if failed:
        _raise(machine, function, configuration, library.fnx_report().contents)


# ---------------------------------------------------------------- messages


def _place(c: Configuration, block: int, thread: int) -> str:
    (gx, gy, _), (bx, by, _) = c.grid, c.block
    where = thread % bx, thread // bx % by, thread // (bx * by)
    block_ = block % gx, block // gx % gy, block // (gx * gy)
    return f"thread {where} of block {block_}"


def _describe(machine: Machine, function: FunctionState, address: int) -> str:
    memory = device_of(machine, address)
    if memory is not None:
        other = "" if memory.device == function.device else " (another device)"
        return memory.describe(address) + other
    image = function.image
    offset = address - image.shared_start
    if 0 <= offset < image.shared_size:
        for name, start, size in function.kernel.shared:
            if start <= offset < start + size:
                inside = offset - start
                return f"byte {inside} of the shared array {name} ({size} bytes)"
        return "shared memory, outside of every array"
    dynamic = ctypes.c_char.in_dll(native.library(), "fnx_dynamic_shared")
    offset = address - ctypes.addressof(dynamic)
    if 0 <= offset < SHARED_MOST:
        return f"byte {offset} of the dynamic shared memory"
    return "memory of the host" if address > 0xFFFF else "a null pointer"


def _raise(
    machine: Machine, function: FunctionState, c: Configuration, report: native.Report
) -> None:
    fault = FAULTS[report.fault]
    here = _place(c, report.block, report.thread)
    verb = "an atomic" if report.atomic else "a write" if report.write else "a read"
    text = f"kernel {function.kernel.name}, {here}: "
    access = f"{verb} of {report.size} bytes at {report.address:#x}"
    where = _describe(machine, function, report.address)
    if fault == "out of bounds":
        machine.fail(700, f"{text}{access} is out of bounds: {where}")
    if fault == "misaligned":
        machine.fail(716, f"{text}{access} is not aligned: {where}")
    if fault == "endless":
        machine.fail(719, f"{text}waits for ever with atomics at {where}")
    if fault == "stack overflow":
        machine.fail(719, f"{text}uses more than 256 KB of local memory")
    if fault == "division by zero":
        text += "an integer is divided by zero, or the smallest one by -1"
    elif fault == "uninitialised":
        text += f"{access} finds memory that nobody has written: {where}"
    elif fault == "race" and report.other_serial:
        other = machine.trail.label(report.other_serial)
        before = "written" if report.other_write else "read"
        text += (
            f"{access} is a race: {other}, in a stream that the kernel does not wait "
            f"for, has {before} it ({where})"
        )
    elif fault == "race":
        other = _place(c, report.other_block, report.other_thread)
        before = "written" if report.other_write else "read"
        text += f"{access} is a race: {other} has {before} it ({where})"
    else:
        text += f"{fault} at line {report.line}: {report.note.decode()}"
        if fault == "divergent barrier" and report.other_line:
            text += f", that of line {report.other_line}"
        if report.mask:
            text += f" (mask {report.mask:08x})"
    machine.finding(text)
