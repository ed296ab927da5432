"""Finds NVIDIA's libraries: wheels first, then what CuPy would find, then the loader.

Receives the name of a library ("nvrtc") and the newest major version of CUDA that the
driver supports; gives the loaded library, or `None` where there is none, since each of
them is optional or has a substitute. Next on the walk: `nvrtc.py`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_LOADERS = (13, 12)  # major versions that are asked of the loader, which cannot list
_OF_THEIR_OWN = {"cudnn": (9,)}  # those of libraries that do not count as CUDA does

_BEHIND = {"cufft": 1, "cusolver": 1}
"""Libraries whose own major version is that of CUDA less this."""


def load(name: str, newest: int | None = None) -> ctypes.CDLL | None:
    """A library of a major version of CUDA, the newest one that fits.

    What a newer CUDA made, an older driver does not load: with `newest`, libraries of
    later major versions are passed over.

    >>> load("no_such_library") is None
    True
    """
    for path in _candidates(name):
        version = _major(name, path)
        if newest is None or version is None or version <= newest:
            with suppress(OSError):
                return _opened(path)
    return None


def _candidates(name: str) -> Iterator[str]:
    yield from _in_wheels(name)
    yield from _of_pathfinder(name)
    majors, behind = _OF_THEIR_OWN.get(name, _LOADERS), _BEHIND.get(name, 0)
    yield from (f"lib{name}.so.{major - behind}" for major in majors)


def _in_wheels(name: str) -> list[str]:
    """The library in wheels of NVIDIA's, the newest first.

    The wheels of CUDA 13 share one folder, and each of CUDA 12 has its own.
    """
    paths = [p for root in _wheels() for p in Path(root).glob(f"*/lib/lib{name}.so.*")]
    return sorted(
        map(str, paths), key=lambda path: _major(name, path) or 0, reverse=True
    )


def _of_pathfinder(name: str) -> Iterator[str]:
    """What NVIDIA's own finder loads, which CuPy brings: conda, CUDA_PATH, Windows."""
    with suppress(ImportError, RuntimeError, OSError):
        # lazy: CuPy depends on it, fnx does not
        from cuda import pathfinder

        path = pathfinder.load_nvidia_dynamic_lib(name).abs_path
        if path is not None:
            yield path


def header_folders(major: int) -> tuple[str, ...]:
    """The folder of the headers of a major version of CUDA, where there is one."""
    wheel = f"cu{major}" if major > 12 else "cuda_runtime"
    for root in _wheels():
        folder = Path(root, wheel, "include")
        if (folder / "cuda_runtime.h").exists():
            return (str(folder),)
    with suppress(ImportError, RuntimeError, OSError):
        # lazy: CuPy depends on it, fnx does not
        from cuda import pathfinder

        found = pathfinder.find_nvidia_header_directory("cudart")
        return () if found is None else (found,)
    return ()


def _wheels() -> Sequence[str]:
    """The folders that the wheels of NVIDIA's share."""
    found = importlib.util.find_spec("nvidia")
    return [] if found is None else found.submodule_search_locations or []


def _major(name: str, path: str) -> int | None:
    """The major version of CUDA that the name of a library's file tells, if any."""
    version = re.search(r"\.so\.(\d+)", path)
    return int(version[1]) + _BEHIND.get(name, 0) if version else None


def _opened(path: str) -> ctypes.CDLL:
    """The library, and before it the part of it that it looks for by name only."""
    file = Path(path)
    for part in file.parent.glob(f"{file.name.split('.')[0]}-builtins.so.*"):
        ctypes.CDLL(str(part))
    return ctypes.CDLL(path)
