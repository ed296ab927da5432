"""Runs instructions: each becomes an action that is given addresses and a stream.

Receives a `Body` and a device; gives a `Ready` body, whose actions have their functions
loaded and their parameters' memory laid out. On a stream that is captured, an action
becomes nodes of a graph. Next on the walk: `host.py`.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from fnx.runtime.plan import Place
from fnx_cuda import _cupy, failures, frame, modules
from fnx_cuda.attending import attend_action
from fnx_cuda.collectives import is_captured, meeting_action, numbered_action
from fnx_cuda.convolving import convolve_action
from fnx_cuda.device import Device
from fnx_cuda.flow import branch_action, loop_action
from fnx_cuda.frame import Frame
from fnx_cuda.graph import Graphs
from fnx_cuda.host import host_action
from fnx_cuda.instructions import (
    Attend,
    Body,
    Branch,
    Convolve,
    Copy,
    Host,
    Instruction,
    Launch,
    Loop,
    Meet,
    Numbered,
    Product,
    Served,
)
from fnx_cuda.multiply import followed_action, multiply_action
from fnx_cuda.serving import served_action

Action = Callable[[Frame, int], None]
"""Starts an instruction: with the addresses of a frame, in the order of a stream."""


class Ready:
    """A body that is ready to run on a device."""

    def __init__(self, body: Body, device: Device) -> None:
        self.instructions = body.instructions
        self.device = device
        self.scopes = body.scopes or ("",) * len(body.instructions)
        self.actions = [action(item, device) for item in body.instructions]
        self.nodes = frame.body_nodes(body, is_captured)
        self.parts = self._parts()
        self.ends = frame.ends_of_collectives(body.instructions)
        self.aside = {number: Aside(device) for number in self.ends}

    def run(self, at: Frame, stream: int) -> None:
        """Starts everything, by graphs where that is possible."""
        going: list[int] = []
        for start, stop, stretch in self.parts:
            if stretch is None:
                self._start(at, stream, start, stop, going)
            else:
                self._await(going, stop - 1, stream)
                stretch.run(self, at, stream)
        self._await(going, len(self.actions), stream)

    def start(
        self, at: Frame, stream: int, begin: int = 0, end: int | None = None
    ) -> None:
        """Starts the instructions of a range one by one."""
        going: list[int] = []
        self._start(at, stream, begin, end, going)
        self._await(going, len(self.actions), stream)

    def _await(self, going: list[int], number: int, stream: int) -> None:
        """Has a stream wait for the collectives that an instruction needs."""
        for meeting in [each for each in going if self.ends[each] <= number]:
            self.aside[meeting].join(stream)
            going.remove(meeting)

    def _start(
        self, at: Frame, stream: int, begin: int, end: int | None, going: list[int]
    ) -> None:
        """Starts instructions; notes the collectives that go on aside."""
        number = begin
        try:
            for act in self.actions[begin:end]:
                if going:
                    self._await(going, number, stream)
                if number in self.aside:
                    self.aside[number].start(act, at, stream)
                    going.append(number)
                else:
                    act(at, stream)
                number += 1
        except _cupy.cuda_errors() as error:
            what = frame.name(self.instructions[number])
            raise failures.device_error(
                error, self.device.number, what, self.scopes[number]
            ) from error

    def _parts(self) -> list[tuple[int, int, Stretch | None]]:
        """Ranges of instructions: what a graph can hold, and what cuts it."""
        parts: list[tuple[int, int, Stretch | None]] = []
        counts = [frame.nodes(item, is_captured) for item in self.instructions]
        start = 0
        while start < len(counts):
            stop = start + 1
            if counts[start] is not None:
                while stop < len(counts) and counts[stop] is not None:
                    stop += 1
            nodes = sum(count or 0 for count in counts[start:stop])
            # A graph of one launch costs more than the launch.
            stretch = Stretch(self, start, stop) if nodes > 1 else None
            parts.append((start, stop, stretch))
            start = stop
        return parts


class Aside:
    """Has a collective go on beside what the device computes, on its own stream."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.before, self.after = _cupy.new_event(), _cupy.new_event()

    def start(self, act: Action, at: Frame, stream: int) -> None:
        """Starts it behind all that is on a stream."""
        own = self.device.collective
        _cupy.record_on(self.before, stream)
        _cupy.wait_for_event_of(own, self.before)
        act(at, own)
        _cupy.record_on(self.after, own)

    def join(self, stream: int) -> None:
        """Has a stream wait for it."""
        _cupy.wait_for_event_of(stream, self.after)


class Stretch:
    """Instructions one after another that a graph can hold, and their graphs."""

    def __init__(self, body: Ready, start: int, stop: int) -> None:
        self.start = start
        self.stop = stop
        moving = frame.moving_places(body.instructions[start:stop])
        self.inputs = _getter(moving, "input")
        self.outputs = _getter(moving, "output")
        first = frame.name(body.instructions[start])
        self.graphs = Graphs(body.device, f"{first} and {stop - start - 1} more")

    def run(self, body: Ready, at: Frame, stream: int) -> None:
        """Starts them on a stream: as a graph from their second time on."""
        key = (at.arena, at.work, self.inputs(at.inputs), self.outputs(at.outputs))

        def record(stream: int) -> None:
            body.start(at, stream, self.start, self.stop)

        self.graphs.run(key, record, stream)


def _getter(places: Sequence[Place], role: str) -> Callable[[Sequence[int]], Any]:
    """What takes the addresses of a role's places out of all of them."""
    numbers = [place.index for place in places if place.role == role]
    return itemgetter(*numbers) if numbers else _nothing


def _nothing(addresses: Sequence[int]) -> tuple[()]:
    return ()


def ready(body: Body, device: Device) -> Ready:
    """A body whose kernels are compiled, all at once, and loaded."""
    # Held until the functions hold their modules.
    held = modules.prepare(list(dict.fromkeys(frame.texts(body))), device.number)
    made = Ready(body, device)
    del held
    return made


def action(instruction: Instruction, device: Device) -> Action:
    """What runs an instruction on a device."""
    match instruction:
        case Launch():
            return launch_action(instruction, device)
        case Copy():
            return copy_action(instruction)
        case Host(step):
            return host_action(step, device)
        case Meet(step):
            return meeting_action(step, device)
        case Numbered():
            return numbered_action(instruction, device, launch_action)
        case Product():
            return product_action(instruction, device)
        case Convolve(launches=launches, packing=packing):
            own, pack = _in_order(launches, device), _in_order(packing, device)
            return convolve_action(instruction, device, own, pack)
        case Attend(body=body):
            return attend_action(instruction, Ready(body, device), device)
        case Served():
            return served_action(instruction, device, launch_action)
        case Branch():
            bodies = [Ready(body, device) for body in instruction.branches]
            return branch_action(instruction.step, bodies, device)
        case Loop(step, body, test):
            asked = None if test is None else Ready(test, device)
            return loop_action(step, Ready(body, device), asked, device)


def launch_action(launch: Launch, device: Device) -> Action:
    """Launches a kernel; its parameters are packed into memory that is kept."""
    found = modules.function(launch.text, launch.function, device.number, launch.shared)
    function, pointers = found.pointer, launch.pointers
    grid, shared = launch.grid, launch.shared
    block = (launch.block, *launch.block_axes)
    layout = struct.Struct(f"{len(pointers)}Q")
    memory = bytearray(layout.size) + launch.numbers
    parameters = ctypes.addressof((ctypes.c_char * len(memory)).from_buffer(memory))
    starts = range(0, len(memory), 8) if launch.separate else (0,)
    table = (ctypes.c_void_p * len(starts))(*[parameters + n for n in starts])
    address = ctypes.addressof(table)
    pack, start = layout.pack_into, _cupy.launch

    def act(at: Frame, stream: int, keep: Any = (found, table)) -> None:
        # CUDA copies the parameters when it is called.
        pack(memory, 0, *at.all(pointers))
        start(function, grid, block, shared, stream, address)

    return act


def copy_action(copy: Copy) -> Action:
    """Copies bytes on the device."""
    out, source, nbytes = copy.out, copy.source, copy.nbytes

    def act(at: Frame, stream: int) -> None:
        target, begin = at.at(out), at.at(source)
        if target != begin and nbytes:
            _cupy.copy(target, begin, nbytes, stream)

    return act


def product_action(product: Product, device: Device) -> Action:
    """A matrix product and what follows it, by a library or by our launches."""
    apart = multiply_action(product.step, device, _in_order(product.launches, device))
    if product.after is None:
        return apart
    behind = _in_order(product.after.launches, device)

    def both(at: Frame, stream: int) -> None:
        apart(at, stream)
        behind(at, stream)

    return followed_action(product.step, product.after, device, both)


def _in_order(launches: Sequence[Launch], device: Device) -> Action:
    """One launch after the other."""
    actions = [launch_action(launch, device) for launch in launches]

    def act(at: Frame, stream: int) -> None:
        for one in actions:
            one(at, stream)

    return act
