"""Devices, where an array is, and where a program runs.

Receives what the backends say of their devices; gives `Device`s and `Placement`s: an
array that somebody put on a device is *committed* to it, and a program runs where its
committed arrays are; the others follow. Without any, it runs on the default device.
Importing this asks for no device: the first operation does. Next on the walk:
`device_array.py`.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from fnx import config as options
from fnx import errors
from fnx.config import busy, config
from fnx.records import record
from fnx.runtime import processes as jobs
from fnx.runtime.backend import (
    DeviceBackend,
    Found,
    device_backend,
    device_platforms,
    found_devices,
)
from fnx.runtime.processes import processes


@record
class Device:
    """A place where arrays live and programs run.

    `platform` is "cpu" or "gpu", and `backend` what runs programs there ("cpu",
    "cuda"). A device is written `cuda:0`. Its `id` is its own among those of all
    processes, its `ordinal` among those of its process, which the backend calls it by.
    """

    id: int
    platform: str
    device_kind: str
    process_index: int = 0
    backend: str = "cpu"
    ordinal: int = 0

    @property
    def local_hardware_id(self) -> int:
        """Its number among those of its kind that its process has."""
        return self.ordinal

    def __repr__(self) -> str:
        return f"{self.backend.capitalize()}Device(id={self.id})"

    def __str__(self) -> str:
        return f"{self.backend}:{self.id}"

    def memory_stats(self) -> Mapping[str, int] | None:
        """Bytes in use, their peak and limit, by name; `None` for the CPU."""
        if self.backend == "cpu":
            return None
        return device_backend(self.backend).memory_stats(self.ordinal)


CPU = Device(0, "cpu", "cpu")
"""The first CPU device, where everything is that nobody put anywhere."""


class Placement:
    """A device, and whether arrays are there because somebody said so.

    Equal ones are the same object (`placed`).
    """

    __slots__ = ("_backend", "committed", "device")

    def __init__(self, device: Device, committed: bool) -> None:
        self.device = device
        self.committed = committed
        self._backend: DeviceBackend | None = None

    @property
    def backend(self) -> DeviceBackend:
        """What runs programs there; not for the CPU."""
        if self._backend is None:
            self._backend = device_backend(self.device.backend)
        return self._backend

    def __reduce__(self) -> tuple[Any, ...]:
        return placed, (self.device, self.committed)


_placements: dict[tuple[str, int, bool], Placement] = {}


def placed(device: Device, committed: bool) -> Placement:
    """The placement on a device."""
    key = (device.backend, device.id, committed)
    found = _placements.get(key)
    if found is None:
        found = _placements.setdefault(key, Placement(device, committed))
    return found


# ---------------------------------------------------------------- which there are


@cache
def found(name: str) -> Found:
    """What the backend of that name has; said aloud, once, where hardware lies idle."""
    try:
        result = found_devices(name)
    except ImportError as error:
        result = Found((), f"{error}", f"install what fnx[{name}] needs")
    if result.unusable:
        warnings.warn(
            f"this machine has a device for {name} that fnx cannot use: "
            f"{result.reason}. Programs run on the CPU.\n  Fix: {result.fix}; "
            "fnx.doctor() shows more, and FNX_DEFAULT_DEVICE=cpu says that it is meant",
            RuntimeWarning,
            stacklevel=2,
        )
    return result


_cpus = [CPU]


def cpus() -> tuple[Device, ...]:
    """This process's CPU devices: as many as `fnx.config.cpu_devices` says."""
    count, process = config.cpu_devices, processes().index
    while len(_cpus) < count:
        _cpus.append(Device(_cpus[0].id + len(_cpus), "cpu", "cpu", process))
    if (CPU.id, CPU.process_index) != (process * count, process):
        _renumber(process * count, process)
    return tuple(_cpus[:count])


def _renumber(first: int, process: int) -> None:
    """Gives the CPU devices the numbers that they have among all processes'.

    They stay the same objects: what lies on them still does.
    """
    for id, device in enumerate(_cpus, first):
        object.__setattr__(device, "id", id)
        object.__setattr__(device, "process_index", process)
    known = list(_placements.values())
    _placements.clear()
    for placement in known:
        device = placement.device
        _placements[device.backend, device.id, placement.committed] = placement


def all_devices(name: str | None = None) -> tuple[Device, ...]:
    """The devices of all processes, which have as many as this one.

    Raises `OptionError` if there are none.
    """
    own, found = devices(name), processes()
    if found.count == 1:
        return own
    return tuple(
        [
            one if p == found.index else _of_process(p, len(own), one)
            for p in range(found.count)
            for one in own
        ]
    )


def _of_process(process: int, count: int, own: Device) -> Device:
    """The device of another process that is like one of this one's."""
    number = process * count + own.id % count
    rest = own.platform, own.device_kind, process, own.backend, own.ordinal
    return Device(number, *rest)


@cache
def devices_of(name: str) -> tuple[Device, ...]:
    """This process's devices of a backend."""
    if name == "cpu":
        return cpus()
    platform, kinds = device_platforms()[name], found(name).kinds
    process = processes().index
    first = process * len(kinds)
    rows = enumerate(kinds)
    return tuple(
        [Device(first + i, platform, kind, process, name, i) for i, kind in rows]
    )


def forget() -> None:
    """Asks the backends again for their devices, when those are asked for.

    Arrays that are on one must not be used any more.
    """
    found.cache_clear()
    devices_of.cache_clear()
    for key in [key for key in _placements if key[0] != "cpu"]:
        del _placements[key]
    _default.change()


def devices(name: str | None = None) -> tuple[Device, ...]:
    """This process's devices of a backend or platform; without one, of the default's.

    Raises `OptionError` if there are none.
    """
    if name is None:
        return devices_of(default_device().backend)
    if name == "cpu":
        return cpus()
    platforms = device_platforms()
    names = [key for key, kind in platforms.items() if name in (key, kind)]
    for key in names:
        if devices_of(key):
            return devices_of(key)
    if not names:
        known = ", ".join(map(repr, sorted({"cpu", *platforms.values(), *platforms})))
        raise errors.OptionError(
            errors.explain(f"devices({name!r})", f"the platforms are {known}")
        )
    result = found(names[0])
    raise errors.OptionError(
        errors.explain(
            f"devices({name!r})",
            f"there are none: {result.reason}" if result.reason else "there are none",
            result.fix,
        )
    )


def others() -> bool:
    """Whether there is any device but the first CPU."""
    return config.cpu_devices > 1 or any(
        devices_of(name) for name in device_platforms()
    )


def named(what: Any, asker: str, names: bool = True) -> Device:
    """A device that is given as such, or as the name of a platform or of a device.

    Raises `ArgumentError` for anything else, and for names where `names` is false.
    """
    if isinstance(what, Device):
        for device in devices_of(what.backend):
            if device == what:
                return device
    elif isinstance(what, str) and names:
        name, colon, number = what.partition(":")
        if not colon or number.isdecimal():
            there = devices(name)
            if int(number or 0) < len(there):
                return there[int(number or 0)]
    raise errors.ArgumentError(
        errors.explain(
            f"{asker}: {what!r}",
            "this is no device",
            "pass one of fnx.devices()"
            + ", or a name such as 'cpu', 'gpu' or 'cuda:1'" * names,
        )
    )


# ---------------------------------------------------------------- the default


class _Default:
    """The device where programs run if nothing says where, found at the first use.

    While it is not known, or not the CPU, calls go through Python.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._placement: Placement | None = None
        self._known = False
        self._busy = False
        self.change()

    def change(self) -> None:
        """It may be another one from now on."""
        with self._lock:
            self._known = False
            if not self._busy:
                busy.append(None)
                self._busy = True

    def get(self) -> Placement | None:
        """Its placement; `None` for the CPU."""
        if self._known:
            return self._placement
        with self._lock:
            device = self._wanted()
            elsewhere = device is not CPU
            self._placement = placed(device, False) if elsewhere else None
            self._known = True
            if self._busy and not elsewhere:
                busy.pop()
                self._busy = False
        return self._placement

    @staticmethod
    def _wanted() -> Device:
        if config.default_device is not None:
            return named(config.default_device, "fnx.config.default_device")
        for name, platform in device_platforms().items():
            if platform == "gpu" and devices_of(name):
                return devices_of(name)[0]
        return CPU


_default = _Default()
options.changed["default_device"] = _default.change


def _count_again() -> None:
    """There are other devices, or other processes, from now on."""
    devices_of.cache_clear()
    cpus()


options.changed["cpu_devices"] = jobs.changed = _count_again

_chosen: ContextVar[Device | None] = ContextVar("fnx_default_device", default=None)


def default() -> Placement | None:
    """Where programs run if nothing says where; `None` is the CPU.

    It need not be asked while `fnx.config.busy` is empty.
    """
    chosen = _chosen.get()
    if chosen is None:
        return _default.get()
    return None if chosen is CPU else placed(chosen, False)


def default_device() -> Device:
    """The device where programs run if nothing says where."""
    placement = default()
    return CPU if placement is None else placement.device


@contextmanager
def defaulting(device: Device | None) -> Iterator[None]:
    """A context with another default device, for this thread; `None` changes nothing.

    The CPU's arrays are told apart by identity, so that it is `CPU`.
    """
    token = _chosen.set(_chosen.get() if device is None else device)
    if device is not None and device is not CPU:
        busy.append(None)
    try:
        yield
    finally:
        if device is not None and device is not CPU:
            busy.pop()
        _chosen.reset(token)


# ---------------------------------------------------------------- where programs run


class Conflict(Exception):
    """Two arrays, by number, that are committed to different devices."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(first, second)
        self.numbers = first, second


def where(arrays: Sequence[Any]) -> Placement | None:
    """Where a program of these arrays runs; `None` is the CPU, uncommitted.

    What is no concrete array says nothing. Raises `Conflict` if arrays are committed to
    different devices.
    """
    placement: Placement | None = None
    first = 0
    for number, x in enumerate(arrays):
        own = getattr(x, "placement", None)
        if own is placement or own is None or not own.committed:
            continue
        if placement is not None:
            raise Conflict(first, number)
        placement, first = own, number
    if placement is not None:
        return placement
    return default() if busy else None


def conflict(
    asker: str, arrays: Sequence[Any], names: Sequence[str], numbers: tuple[int, int]
) -> Exception:
    """The error for arrays of these numbers, which are on different devices."""
    shown = " and ".join(
        [f"{names[i]} ({arrays[i].type}) on {arrays[i].device}" for i in numbers]
    )
    return errors.ArgumentError(
        errors.explain(
            f"{asker}: arrays are committed to different devices",
            shown,
            "move them to one device with fnx.device_put(x, device)",
        )
    )
