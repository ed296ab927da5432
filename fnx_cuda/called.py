"""Libraries of NVIDIA's that are called by ctypes, where they are there.

Receives a library's name; its functions give a status, which is raised as
`LibraryError` unless it is 0. Tests put a stand-in in a library's place with `use`.
Used by `blaslt_api.py`, `cudnn.py`, `cufft.py`, `cusolver.py` and `stacks.py`; next on
the walk: `cufft.py`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from fnx.errors import FnxError
from fnx_cuda import _cupy, libraries


class LibraryError(FnxError):
    """A call of a library failed; `status` is its number, and `meaning` what it says.

    >>> LibraryError("cublasLtCreate", 1, "not initialized")
    LibraryError('cublasLtCreate gave status 1 (not initialized).')
    """

    def __init__(self, function: str, status: int, meaning: str = "") -> None:
        told = f" ({meaning})" if meaning else ""
        super().__init__(f"{function} gave status {status}{told}.")
        self.status = status


def _undeclared(found: ctypes.CDLL) -> None:
    """For a library whose numbers are of 32 bits unless they say otherwise."""


class Library:
    """A library, which is looked for at the first call.

    `declare` tells ctypes the types of the functions of one that has been loaded;
    `failed` makes the error of a function's status. One that is `forbidden` does not
    serve, though it may be there.
    """

    def __init__(
        self,
        name: str,
        declare: Callable[[ctypes.CDLL], None] = _undeclared,
        failed: Callable[[str, int], LibraryError] = LibraryError,
    ) -> None:
        self.name = name
        self.forbidden = False
        self._declare = declare
        self._failed = failed
        self._lock = threading.Lock()
        self._made = threading.local()
        self._found: Any = None
        self._looked = False
        self._stands_in = False
        self._uses = 0

    def use(self, stand_in: Any) -> None:
        """Puts a stand-in in its place; `None` has it looked for again."""
        with self._lock:
            self._found = stand_in
            self._looked = self._stands_in = stand_in is not None
            self._uses += 1

    def serves(self) -> bool:
        """Whether it is there for the devices that there are.

        It has no use for an emulated device, nor for a driver that is older.
        """
        if self.forbidden:
            return False
        if self._stands_in:
            return True
        if getattr(_cupy.cupy(), "EMULATES", False):
            return False
        with self._lock:
            if not self._looked:
                self._found, self._looked = self._load(), True
        return self._found is not None

    def _load(self) -> ctypes.CDLL | None:
        found = libraries.load(self.name, newest=_cupy.driver_version() // 1000)
        if found is not None:
            self._declare(found)
        return found

    def has(self, name: str) -> bool:
        """Whether the library that there is now has a function; an old one may not."""
        return hasattr(self._found, name)

    def version(self) -> int:
        """A number of its version: 12103 for 12.1.3."""
        found = ctypes.c_int()
        version = 0
        for number in range(3):  # libraryPropertyType: major, minor and patch level
            self.call(f"{self.name}GetProperty", number, ctypes.byref(found))
            version = 100 * version + found.value
        return version

    def made(self, create: str, device: int) -> Any:
        """What a function creates for this thread on the current device, once.

        Handles of one library are of no use to another that is put in its place.
        """
        everything: dict[Any, Any] = self._made.__dict__.setdefault("made", {})
        key = self._uses, create, device
        if key not in everything:
            found = ctypes.c_void_p()
            self.call(create, ctypes.byref(found))
            everything[key] = found
        return everything[key]

    def function(self, name: str) -> Any:
        """A function of the library that there is now."""
        return getattr(self._found, name)

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function; raises what its status says."""
        status = self.function(name)(*arguments)
        if status:
            raise self._failed(name, status)


def address(pointer: int) -> Any:
    """An address as an argument."""
    return ctypes.c_void_p(pointer)
