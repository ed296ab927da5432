"""A backend with devices that are none: two memories that the host cannot see.

It is offered as the platform "mirror" to tests of what devices have in common. Its
buffers are opaque, its work is put in a queue for each device, and nothing of it runs
before somebody waits; programs then run by the CPU backend. Memory that was donated is
overwritten, so that whoever still reads it reads nonsense. `Mirror.fail` has the next
program fail when it runs, and `Mirror.log` says what was asked of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fnx
from fnx.compiler.target import CPU
from fnx.runtime import backend as offers
from fnx.runtime import device as devices
from fnx.runtime.backend import Finding, Found, backend


class Memory:
    """A buffer; its values are there once the device has come so far."""

    def __init__(self, device: int, nbytes: int) -> None:
        self.device = device
        self.nbytes = nbytes
        self.pointer = id(self)
        self.content: np.ndarray | None = None
        self.failure: BaseException | None = None


class Program:
    """A program of the CPU backend that runs when the device comes to it."""

    def __init__(self, mirror: Mirror, native: Any) -> None:
        self.mirror = mirror
        self.native = native
        self.outputs = native.outputs

    def __call__(
        self, inputs: Sequence[Memory], device: int, donated: Sequence[int] = ()
    ) -> list[Memory]:
        """Puts the program in the queue."""
        assert all(memory.device == device for memory in inputs)
        types = self.native.plan.buffers
        mirror = self.mirror
        made = [mirror.memory(device, t.size * t.dtype.itemsize) for t in types]
        failure, mirror.failure = mirror.failure, None
        mirror.log.append(f"run on {device}" + f", donated {donated}" * bool(donated))

        def work() -> None:
            wrong = failure or next((x.failure for x in inputs if x.failure), None)
            arrays: list[Any] = [x.content for x in inputs]
            try:
                if wrong is not None:
                    raise wrong
                types = self.native.plan.inputs
                shaped = [
                    x.reshape(t.shape) for x, t in zip(arrays, types, strict=True)
                ]
                for memory, data in zip(made, self.native(shaped), strict=True):
                    memory.content = data
            except BaseException as error:
                for memory in made:
                    memory.failure = error
                if self.native.hosts:
                    raise
            for number in donated:
                nonsense = np.frombuffer(b"\xa5" * inputs[number].nbytes, np.uint8)
                inputs[number].content = nonsense.view(arrays[number].dtype)

        mirror.queues[device].append(work)
        if self.native.hosts:  # what the host is asked is asked now
            mirror.flush(device)
        return made


class Mirror:
    """The backend; see above."""

    stages = ("mirrored",)

    def __init__(self, name: str = "mirror", count: int = 2) -> None:
        self.target = replace(CPU, name=name, streams=True)
        self.count = count
        self.turn = threading.RLock()
        self.queues: list[list[Callable[[], None]]] = [[] for _ in range(count)]
        self.log: list[str] = []
        self.failure: BaseException | None = None
        self.missing: str = ""

    def fail(self, error: Exception) -> None:
        """Has the next program fail when it runs."""
        self.failure = error

    def memory(self, device: int, nbytes: int) -> Memory:
        return Memory(device, nbytes)

    def flush(self, device: int) -> None:
        """Does all work of a device, in order; one thread at a time does."""
        with self.turn:
            while self.queues[device]:
                self.queues[device].pop(0)()

    # ------------------------------------------------------------ what it must have

    def found(self) -> Found:
        return Found(("looking glass",) * self.count)

    def findings(self) -> list[Finding]:
        return [Finding("mirror", "polished")]

    def machine(self) -> str:
        return f"mirror of {backend('cpu').machine()}"

    def compile(self, plan: Any) -> Any:
        if self.missing:
            raise ImportError(self.missing)
        return backend("cpu").compile(plan)

    def as_text(self, plan: Any, stage: str) -> str:
        return backend("cpu").as_text(plan, "llvm")[::-1]

    def load(self, compiled: Any) -> Program:
        return Program(self, backend("cpu").load(compiled))

    def put(self, data: np.ndarray, device: int) -> Memory:
        self.log.append(f"put {data.nbytes} on {device}")
        memory = self.memory(device, data.nbytes)

        def work() -> None:
            memory.content = np.array(data)

        self.queues[device].append(work)
        return memory

    def get(self, buffer: Memory, shape: Any, dtype: Any) -> np.ndarray:
        self.log.append(f"get {buffer.nbytes}")
        self.wait(buffer)
        assert buffer.content is not None
        return np.array(buffer.content).reshape(shape).astype(dtype, copy=False)

    def wait(self, buffer: Memory) -> None:
        self.flush(buffer.device)
        if buffer.failure is not None:
            raise buffer.failure

    def is_ready(self, buffer: Memory) -> bool:
        return not self.queues[buffer.device]

    def moved(self, buffer: Memory, device: int) -> Memory:
        self.log.append(f"move {buffer.nbytes} from {buffer.device} to {device}")
        memory = self.memory(device, buffer.nbytes)
        self.flush(buffer.device)  # the one that waits for the other

        def work() -> None:
            memory.content, memory.failure = buffer.content, buffer.failure

        self.queues[device].append(work)
        return memory

    def taken(self, source: Any) -> Any:
        data = source.content
        memory = self.memory(source.device, data.nbytes)
        memory.content = data
        return memory, data.shape, data.dtype

    def view(self, buffer: Memory, shape: Any, dtype: Any) -> np.ndarray:
        self.wait(buffer)
        assert buffer.content is not None
        return buffer.content.reshape(shape)

    def stream(self, device: int) -> int:
        return 0

    def communicator(self, member: Any, device: int) -> Any:
        return member

    def memory_stats(self, device: int) -> Mapping[str, int]:
        return {"bytes_in_use": 0}


BACKEND = Mirror()


@contextmanager
def offered(name: str = "mirror", platform: str = "mirror") -> Iterator[Mirror]:
    """A context in which a backend of that name is a fresh mirror."""
    global BACKEND
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(offers._modules, name, __name__)
        patch.setitem(offers._platforms, name, platform)
        patch.delitem(offers._modules, f"{name}.finding", raising=False)
        BACKEND = Mirror(name)
        devices.forget()
        yield BACKEND
    fnx.clear_caches()
    devices.forget()
    devices.default()  # so that it is known again
