"""Whether a library or our kernels do a routine: timed once, and kept on disk.

A choice is kept by the routine and its calls, the device and the library's version, so
that all of a process and later ones make the same one. Receives what starts either,
gives which; used by `serving.py`, which is next on the walk.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx import cache
from fnx.config import config
from fnx_cuda import _cupy
from fnx_cuda.blaslt_tuning import clock_on, fastest
from fnx_cuda.instructions import Call, Served
from fnx_cuda.stacks import Stack

Start = Callable[[], None]

_known: dict[str, bool] = {}


def takes_library(
    item: Served, device: int, stream: int, library: Start, own: Start
) -> bool:
    """Whether a library does a routine."""
    return is_quicker(_key(item, device), stream, library, own)


def is_quicker(key: str, stream: int, library: Start, own: Start) -> bool:
    """Whether a library does it; the first time both are timed, and waited for."""
    if key not in _known:
        kept = cache.load(key) if config.disk_cache else None
        if kept is None:
            _known[key] = fastest([library, own], clock_on(stream)) == 0
            if config.disk_cache:
                cache.store(key, str(int(_known[key])).encode())
        else:
            _known[key] = kept == b"1"
    return _known[key]


def forget() -> None:
    """Forgets what this process has chosen, but not what is on disk."""
    _known.clear()


def _key(item: Served, device: int) -> str:
    calls = [stage.made for stage in item.stages if isinstance(stage, Call)]
    stacks = [made for made in calls if isinstance(made, Stack)]
    versions = [made.library.version() for made in stacks]
    what = item.step.routine, sorted(item.step.params.items()), stacks, versions
    return cache.key("served", repr(what), _cupy.device_name(device))
