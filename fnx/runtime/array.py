"""ConcreteArray: an immutable array in host memory.

Receives NumPy arrays that nobody else writes to, and keeps them read-only and
C-contiguous, so that NumPy views and native kernels read them without a copy.
Next on the walk: `device_array.py`, for other memory, and `eager.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx import errors
from fnx.core.array import Array
from fnx.core.types import ArrayType
from fnx.dtypes import as_dtype
from fnx.runtime.device import CPU, Device, Placement


class ConcreteArray(Array):
    """An array with a value. Made by `wrap`, `fnx.numpy.array` and every operation.

    `placement` is where it is, `None` for arrays on the CPU that nobody put there.
    """

    __slots__ = ("__weakref__", "_data", "type")

    placement: Placement | None = None
    # What arrays that are cut have (`in_parts.py`), which few programs load.
    _sharding: Any = None
    parts: Sequence[ConcreteArray] | None = None
    # Whether other processes have parts that this one lacks.
    is_remote: bool = False

    def __init__(self, data: np.ndarray[Any, Any], type: ArrayType) -> None:
        self._data = data
        self.type = type

    def _numpy(self) -> np.ndarray[Any, Any]:
        return self._data

    def concrete(self) -> ConcreteArray:
        """Itself: the value is there."""
        return self

    @property
    def device(self) -> Device:
        """Where it is."""
        return CPU if self.placement is None else self.placement.device

    @property
    def committed(self) -> bool:
        """Whether programs must run where it is: it was put there."""
        return self.placement is not None and self.placement.committed

    def devices(self) -> set[Device]:
        """The one device that it is on, as a set."""
        return {self.device}

    @property
    def sharding(self) -> Any:
        """How it is cut, and where its parts are (`fnx.sharding`)."""
        return _in_parts().sharding_of(self)

    @property
    def addressable_shards(self) -> list[Any]:
        """Its parts on the devices of this process."""
        shards: list[Any] = _in_parts().shards_of(self)
        return shards

    def addressable_data(self, index: int) -> ConcreteArray:
        """The values of one of its parts on the devices of this process."""
        data: ConcreteArray = self.addressable_shards[index].data
        return data

    @property
    def global_shards(self) -> list[Any]:
        """Its parts on all devices; those of other processes have no data here."""
        shards: list[Any] = _in_parts().shards_of(self, everywhere=True)
        return shards

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all its parts are on devices of this process."""
        return bool(self.sharding.is_fully_addressable)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each of its devices has all of it."""
        return bool(self.sharding.is_fully_replicated)

    def block_until_ready(self) -> ConcreteArray:
        """Itself: operations on the CPU have ended when they return."""
        return self

    def is_ready(self) -> bool:
        """Whether the value is there, so that nobody has to wait for it."""
        return True

    def delete(self) -> None:
        """Gives the memory back; the array cannot be used any more."""
        self._data = np.empty(0, np.uint8)
        self.__class__ = self._gone

    @property
    def _gone(self) -> Any:
        """The class of such an array without memory."""
        return DeletedArray

    def is_deleted(self) -> bool:
        """Whether the memory has been given back."""
        return isinstance(self, Deleted)

    def __dlpack__(self, **options: Any) -> Any:
        # From version 1.0 on the protocol can say that memory is read-only. An older
        # consumer gets a view that only its own contract keeps it from writing to.
        data = self._numpy()
        if (options.get("max_version") or (0, 0)) < (1, 0):
            data = _writable_view(data)
        return data.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, int]:
        return self._numpy().__dlpack_device__()

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.type.weak else ""
        text = np.array2string(self._numpy(), separator=", ", prefix="Array(")
        # The shape of an array without elements does not show in its text.
        empty = "" if self.size or self.ndim == 1 else f", shape={self.shape}"
        return f"Array({text}{empty}, dtype={self.type.dtype.name}{weak})"

    def __str__(self) -> str:
        return str(self._numpy())

    def __copy__(self) -> ConcreteArray:
        return self

    def __deepcopy__(self, memo: Any) -> ConcreteArray:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (np.array(self._numpy()), self.type)


class HostArray(ConcreteArray):
    """An array that is on a certain CPU device, because somebody said so.

    Native calls do not know it, so that what is done with it goes through Python.
    """

    __slots__ = ("placement",)

    placement: Placement

    def __init__(
        self, data: np.ndarray[Any, Any], type: ArrayType, placement: Placement
    ) -> None:
        super().__init__(data, type)
        self.placement = placement

    @property
    def _gone(self) -> Any:
        return DeletedHostArray


def at_host(array: ConcreteArray, placement: Placement | None) -> ConcreteArray:
    """The array in host memory as one that is at a place; `None` is anywhere."""
    if placement is None or (placement.device is CPU and not placement.committed):
        return array
    return HostArray(array._numpy(), array.type, placement)


def followed_shardings(arrays: Sequence[Any]) -> Any:
    """How arrays are cut, if what is computed of them is to be cut so, too."""
    if all(getattr(x, "_sharding", None) is None for x in arrays):
        return None
    return _in_parts().followed_shardings(arrays)


def _in_parts() -> Any:
    # lazy: few look at parts of arrays
    from fnx.runtime import in_parts

    return in_parts


def deleted(type: ArrayType) -> Exception:
    """The error for the use of an array whose memory has been given back."""
    return errors.ArgumentError(
        errors.explain(
            f"an array of type {type} was used after it had been deleted",
            "its memory was donated to a jitted function (donate_argnums), or "
            "x.delete() was called",
            "do not use it afterwards, or do not donate it",
        )
    )


class Deleted:
    """What the classes of arrays without memory share."""

    __slots__ = ()

    type: ArrayType

    def _numpy(self) -> np.ndarray[Any, Any]:
        raise deleted(self.type)

    def __repr__(self) -> str:
        return f"Array(deleted, {self.type})"

    __str__ = __repr__


class DeletedArray(Deleted, ConcreteArray):
    """What an array turns into when its memory has been given away."""

    __slots__ = ()


class DeletedHostArray(Deleted, HostArray):
    """What an array on a certain CPU device turns into then."""

    __slots__ = ()


# Making eager calls native takes as long as some thousand of them take in Python, so
# that is when it pays: after so many arrays. `api.promote` puts in `awake` what is
# called then, once.
_asleep = 5000


def awake() -> None:
    """Nothing to be done."""


def _doze() -> None:
    global _asleep
    _asleep = max(_asleep - 1, 0)
    if not _asleep:
        awake()


def wrap(data: Any, type: ArrayType) -> ConcreteArray:
    """A fresh NumPy result as an array: contiguous, of the type's dtype, read-only."""
    if _asleep:
        _doze()
    if data.__class__ is not np.ndarray or not data.flags.c_contiguous:
        data = np.ascontiguousarray(data).reshape(type.shape)
    data.setflags(False)  # to be written; by its name the option takes twice as long
    return ConcreteArray(data, type)


def from_numpy(data: np.ndarray[Any, Any], weak: bool = False) -> ConcreteArray:
    """A NumPy array as an array that shares its memory; nobody may write to it."""
    return wrap(data, ArrayType(data.shape, data.dtype, weak))


def own(data: Any) -> ConcreteArray:
    """A NumPy array (or scalar) as an array of ours: a copy, its dtype kept.

    Raises `DTypeError` for dtypes that arrays cannot have.
    """
    # A copy, since the caller may write into the array later.
    return from_numpy(np.array(data, as_dtype(data.dtype), order="C"))


# Native calls put functions in machine code in the place of these. Whoever makes many
# arrays looks them up in this module when it makes one.
MAKERS: dict[str, Callable[..., Any]] = {
    "wrap": wrap,
    "from_numpy": from_numpy,
    "own": own,
}


def _restore(data: np.ndarray[Any, Any], type: ArrayType) -> ConcreteArray:
    return wrap(data, type)


def _writable_view(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if data.flags.writeable:
        return data
    pointer = data.__array_interface__ | {"data": (data.ctypes.data, False)}
    return np.asarray(_Exported(pointer, data))


class _Exported:
    """Carries an array interface, and keeps the memory behind it alive."""

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__ = interface
        self.owner = owner
