"""What stands in the places of NVIDIA's libraries: one mechanism for all of them.

A function is a method by its name without the library's prefix. It is called as ctypes
calls it, and what it starts runs when the stream that was set comes to it; the run
gives the ranges of memory that it has written. `fails` has a function give a status,
`missing` ones are not there. Next: `fft_fake.py`, `solver_fakes.py`.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.cuda_emulator.memory import INITIALISED

Written = Sequence[tuple[int, int]]
Run = Callable[[], Written]
Later = Callable[[int, Run], None]
"""Puts a run into a stream."""


def number(argument: Any) -> Any:
    """An argument as the library gets it of ctypes; arrays and references stay."""
    return (argument.value or 0) if hasattr(argument, "value") else argument


def memory(address: int, size: int, dtype: Any) -> Any:
    """Memory of this process as an array."""
    nbytes = size * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype)


def later_on(machine: Any) -> Later:
    """What puts a library's work into the machine's streams."""

    def later(handle: int, run: Run) -> None:
        stream = machine.stream(handle)

        def run_on_device() -> None:
            for address, size in run():
                machine.memories[stream.device].mark(address, size, INITIALISED)

        machine.enqueue(stream, run_on_device, "work of a library")

    return later


def now(stream: int, run: Run) -> None:
    """Runs at once."""
    run()


class Fake:
    """A library with functions that fail, streams, and a list of what ran."""

    prefix = ""

    def __init__(self) -> None:
        self.fails: dict[str, int] = {}
        self.missing: set[str] = set()
        self.later: Later = now
        self.is_on_device: Callable[[int], bool] = bool
        self.ran: list[str] = []
        self.numbers = itertools.count(1)
        self.stream: int | None = None

    def __getattr__(self, name: str) -> Any:
        routine = name.removeprefix(self.prefix)
        method = None if routine == name else self.find(routine)
        if method is None or name in self.missing:
            raise AttributeError(name)
        return lambda *arguments: (
            self.status(name) or method(*map(number, arguments)) or 0
        )

    def status(self, name: str) -> int:
        """What a function that fails gives."""
        return self.fails.get(name, 0)

    def find(self, routine: str) -> Callable[..., Any] | None:
        """What a function does; `None` if there is none."""
        if routine.startswith("Create"):
            return self.create
        routine = routine.removesuffix("_v2")
        names = {"SetStream": "set_stream", "GetProperty": "get_property"}
        return getattr(self, names[routine]) if routine in names else None

    def create(self, made: Any) -> None:
        made._obj.value = next(self.numbers)

    def set_stream(self, handle: int, stream: int) -> None:
        assert handle
        self.stream = stream

    def get_property(self, which: int, found: Any) -> None:
        found._obj.value = (12, 6, 3)[which]

    def start(self, name: str, run: Run) -> None:
        """Has a run come in its stream."""
        assert self.stream is not None

        def noted() -> Written:
            self.ran.append(name)
            return run()

        self.later(self.stream, noted)
