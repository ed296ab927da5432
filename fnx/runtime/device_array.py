"""DeviceArray: an immutable array in the memory of a device.

Receives the `Buffer` of a backend, whose values may still be on their way; asked for
its value, it waits, copies it to the host and keeps the copy. Native calls know only
`ConcreteArray` itself, so that what is done with these arrays goes through Python.
Next on the walk: `eager.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from fnx import errors
from fnx.config import busy
from fnx.core.program import Literal
from fnx.core.types import ArrayType
from fnx.dtypes import as_dtype
from fnx.errors import Source
from fnx.records import record
from fnx.runtime.array import ConcreteArray, at_host, deleted, from_numpy, wrap
from fnx.runtime.backend import Buffer, device_backend
from fnx.runtime.device import Placement, default, devices_of, found, placed

# What the interface calls the stream whose handle is 0.
_LEGACY_STREAM = 1


@record
class Origin:
    """Which call an array comes from: what ran, and the user's line."""

    what: str
    source: Source | None


class DeviceArray(ConcreteArray):
    """An array on a device. Made by `put`, and by every program that runs there.

    `shared` says that somebody else reads its memory: another array, or a library.
    `_data` is the copy on the host, once there is one.
    """

    __slots__ = ("_buffer", "origin", "placement", "shared")

    _buffer: Buffer | None
    _data: Any
    placement: Placement

    def __init__(
        self,
        buffer: Buffer,
        type: ArrayType,
        placement: Placement,
        origin: Origin | None = None,
        shared: bool = False,
    ) -> None:
        self._buffer = buffer
        self._data = None
        self.type = type
        self.placement = placement
        self.origin = origin
        self.shared = shared

    @property
    def buffer(self) -> Buffer:
        """The memory; raises if it has been given back."""
        if self._buffer is None:
            raise deleted(self.type)
        return self._buffer

    def _numpy(self) -> np.ndarray[Any, Any]:
        if self._data is None or self._buffer is None:
            buffer, type = self.buffer, self.type
            data = self._waited(
                lambda: self.placement.backend.get(buffer, type.shape, type.dtype)
            )
            data.setflags(write=False)
            self._data = data
        found: np.ndarray[Any, Any] = self._data
        return found

    def block_until_ready(self) -> DeviceArray:
        """Itself, once it has its value; raises what went wrong in making it."""
        buffer = self.buffer
        self._waited(lambda: self.placement.backend.wait(buffer))
        return self

    def is_ready(self) -> bool:
        """Whether the value is there, so that nobody has to wait for it."""
        return self.placement.backend.is_ready(self.buffer)

    def _waited(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except Exception as error:
            _raise(error, self.origin)

    def delete(self) -> None:
        """Gives the memory back; the array cannot be used any more."""
        self._buffer = self._data = None

    def is_deleted(self) -> bool:
        """Whether the memory has been given back."""
        return self._buffer is None

    def copied(self) -> DeviceArray:
        """The same values in memory of their own."""
        place = self.placement
        buffer = place.backend.moved(self.buffer, place.device.ordinal)
        return DeviceArray(buffer, self.type, place, self.origin)

    def exported(self) -> Any:
        """An array of the platform's own library (CuPy's) on the same memory.

        Whoever writes to it breaks what arrays are.
        """
        self.shared = True
        return self._view()

    def _view(self) -> Any:
        type = self.type
        return self.placement.backend.view(self.buffer, type.shape, type.dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.exported().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, int]:
        found: tuple[Any, int] = self._view().__dlpack_device__()
        return found

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        device = self.placement.device
        dtype = self.type.dtype
        if device.backend != "cuda" or dtype.isbuiltin != 1:
            raise AttributeError(
                f"an array of {dtype.name} on {device} has no CUDA array interface"
            )
        buffer = self.buffer
        self.shared = True
        return {
            "shape": self.type.shape,
            "typestr": dtype.str,
            "data": (buffer.pointer, True),
            "version": 3,
            "strides": None,
            "stream": self.placement.backend.stream(device.ordinal) or _LEGACY_STREAM,
        }

    def __repr__(self) -> str:
        if self._buffer is None:
            return f"Array(deleted, {self.type})"
        return super().__repr__()

    def __str__(self) -> str:
        return repr(self) if self._buffer is None else super().__str__()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (np.array(self._numpy()), self.type)


def _raise(error: Exception, origin: Origin | None) -> NoReturn:
    """Raises what went wrong in a run that has been started before, with its line."""
    if origin is None:
        raise error
    if isinstance(error, errors.DeviceError):
        raise type(error)(
            errors.explain(
                f"{origin.what}, which was started there",
                f"{error}",
                source=origin.source,
            )
        ) from error
    line = f", at {origin.source}" if origin.source else ""
    error.add_note(f"raised while {origin.what} ran on a device{line}")
    raise error


# ---------------------------------------------------------------- memory


def buffer_at(x: ConcreteArray, placement: Placement) -> Buffer:
    """The memory of an array on a device, to which it is copied if it is elsewhere."""
    device, backend = placement.device, placement.backend
    if isinstance(x, DeviceArray) and x.device.backend == device.backend:
        there = x.device is device
        return x.buffer if there else backend.moved(x.buffer, device.ordinal)
    return backend.put(x._numpy(), device.ordinal)


# The memory of numbers, which come again and again.
_numbers: OrderedDict[Any, Buffer] = OrderedDict()
_MOST_NUMBERS = 1024


def number_at(number: Literal, placement: Placement) -> Buffer:
    """The memory of a number on a device, which nothing may write to."""
    device = placement.device
    value = np.asarray(number.value, number.type.dtype)
    key = device.backend, device.ordinal, number.type.dtype, value.tobytes()
    found = _numbers.get(key)
    if found is None:
        found = _numbers[key] = placement.backend.put(value, device.ordinal)
        while len(_numbers) > _MOST_NUMBERS:
            _numbers.popitem(last=False)
    return found


def forget_numbers() -> None:
    """Gives the memory of numbers back."""
    _numbers.clear()


# ---------------------------------------------------------------- moving


def put(x: ConcreteArray, placement: Placement) -> ConcreteArray:
    """The array at a place: itself if it is there, a copy if it is elsewhere.

    Copying to a device and between devices does not wait.
    """
    if x.placement is placement:
        return x
    device = placement.device
    if device.backend == "cpu":
        found = x if x.__class__ is ConcreteArray else wrap(x._numpy(), x.type)
        return at_host(found, placement)
    origin = x.origin if isinstance(x, DeviceArray) else None
    result = DeviceArray(buffer_at(x, placement), x.type, placement, origin)
    if isinstance(x, DeviceArray) and x.device is device:
        x.shared = result.shared = True
    return result


def on_default(x: ConcreteArray) -> ConcreteArray:
    """An array that has just been made on the host, on the default device."""
    placement = default()
    return x if placement is None else put(x, placement)


def made_at(x: ConcreteArray, placement: Placement) -> ConcreteArray:
    """A new array, of which nobody else knows, that is there already, as put there."""
    if not isinstance(x, DeviceArray):
        return put(x, placement)
    x.placement = placement
    return x


def beside(data: np.ndarray[Any, Any], *operands: Any) -> ConcreteArray:
    """What NumPy has computed of operands, where those are; nobody may write to it."""
    x = from_numpy(data)
    own = [getattr(operand, "placement", None) for operand in operands]
    held = [placement for placement in own if placement and placement.committed]
    if held:
        return put(x, held[0])
    return on_default(x) if busy else x


# DLPack's numbers for the memory of a backend's devices.
_DLPACK = {2: "cuda", 13: "cuda"}


def taken(source: Any) -> DeviceArray | None:
    """An array on the memory of another library's array, if that is on a device.

    It has `__cuda_array_interface__` or `__dlpack__`. The memory is copied, on the
    device, only where the elements do not lie one after another.
    """
    if isinstance(source, ConcreteArray):
        return None
    name: str | None = None
    if hasattr(source, "__cuda_array_interface__"):
        name = "cuda"
    elif hasattr(source, "__dlpack_device__"):
        name = _DLPACK.get(int(source.__dlpack_device__()[0]))
    if name is None:
        return None
    there = devices_of(name)
    if not there:
        raise errors.DeviceError(
            errors.explain(
                f"an array on a device of {name} ({type(source).__name__})",
                f"fnx has no such device: {found(name).reason}",
                found(name).fix,
            )
        )
    buffer, shape, dtype = device_backend(name).taken(source)
    placement = placed(there[buffer.device], True)
    return DeviceArray(
        buffer, ArrayType(shape, as_dtype(dtype)), placement, shared=True
    )


def _restore(data: Any, type: ArrayType) -> ConcreteArray:
    """An unpickled array, on the default device."""
    return on_default(wrap(data, type))
