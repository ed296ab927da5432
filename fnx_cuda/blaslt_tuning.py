"""Which algorithm computes a product: timed once, and kept on disk.

Receives a `MatmulStep`, addresses and a stream; runs one of cuBLASLt's algorithms, or
kernels of our own where the library is missing, has no such product or is slower. A
choice is kept by the product's form, the device and the library's version, so that all
of a process and later ones make the same one, and get the same bits.
Next on the walk: `multiply.py`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence

from fnx import cache
from fnx.config import config
from fnx.records import record
from fnx.runtime.plan import MatmulStep
from fnx_cuda import _cupy
from fnx_cuda import blaslt_api as api
from fnx_cuda.blaslt import Calls, Candidate, Matmul, calls
from fnx_cuda.blaslt_api import Epilogue
from fnx_cuda.blaslt_trial import Addresses, Trial
from fnx_cuda.called import LibraryError
from fnx_cuda.products import way

ROUNDS = 5
"""How often each candidate is timed; the least time counts."""

MARGIN = 0.97
"""A candidate takes the place of one before it with this part of its time or less: the
first one is the library's own choice."""

Start = Callable[[], None]
Clock = Callable[[Start], float]
"""Runs something; how long it took on the device."""


def choice(step: MatmulStep) -> str:
    """Who computes a step: "library", where it is there and takes it, or "kernels".

    Products that only move memory, with a few rows or columns or tiny matrices, go to
    our kernels, and so do stacks that would be many calls.
    """
    if way(step) not in ("tensor", "tiles") or calls(step) is None:
        return "kernels"
    return "library" if api.LIBRARY.serves() else "kernels"


def chosen(
    step: MatmulStep,
    device: int,
    epilogue: Epilogue = Epilogue.DEFAULT,
    aux_leading: int = 0,
) -> Chosen | None:
    """What runs a step by the library; `None` where our kernels do."""
    made = calls(step, epilogue, aux_leading)
    if made is None or choice(step) == "kernels":
        return None
    return Chosen(made, device)


class Chosen:
    """A step by the library, with an algorithm that its first run chooses."""

    def __init__(self, made: Calls, device: int) -> None:
        size, out_size = made.form.dtype.itemsize, made.form.out_dtype.itemsize
        self._offsets = [
            (out * out_size, x * size, y * size) for out, x, y in made.offsets
        ]
        self._matmul = Matmul(made.form, device)
        self._kept: Kept | None = None

    def run(self, at: Addresses, own: Start) -> None:
        """Starts the step; `own` starts the same by our kernels.

        The first run takes times, if none has before, and waits for them: it must not
        be captured.
        """
        if self._kept is None:
            self._kept = self._choose(at, own)
        candidate = self._kept.candidate
        if candidate is None:
            own()
            return
        try:
            self._run(candidate, at)
        except LibraryError as error:
            # What was kept on disk does not serve here, or the library is out of order.
            self._kept = _refused(error)
            own()

    def _run(self, candidate: Candidate, at: Addresses) -> None:
        for out, x, y in self._offsets:
            addresses = at.out + out, at.x + x, at.y + y
            ends = at.workspace, at.stream, at.bias, at.aux
            self._matmul.run(candidate, *addresses, *ends)

    def _choose(self, at: Addresses, own: Start) -> Kept:
        key = choice_key(self._matmul)
        kept = remembered(key)
        if kept is not None:
            return kept
        try:
            candidates = self._matmul.candidates()
        except LibraryError as error:
            return _refused(error)
        if self._matmul.form.epilogue.masks:
            trial = Trial(self._matmul.form, self._matmul.device, self._run, at)
            candidates = [each for each in candidates if trial.passes(each)]
        starts = [self._start(candidate, at) for candidate in candidates]
        best = fastest([*starts, own], clock_on(at.stream))
        kept = Kept(candidates[best] if best < len(candidates) else None)
        keep(key, kept)
        return kept

    def _start(self, candidate: Candidate, at: Addresses) -> Start:
        return lambda: self._run(candidate, at)


# ---------------------------------------------------------------- timing


def fastest(starts: Sequence[Start], clock: Clock) -> int:
    """The number of what is fastest, of which the library refuses to run none.

    Times are taken in turns, and the least of each counts.
    """
    times: dict[int, float] = {}
    for number, start in enumerate(starts):
        try:
            clock(start)  # loads what it needs
            times[number] = clock(start)
        except LibraryError:
            continue
    for _ in range(ROUNDS - 1):
        for number in times:
            times[number] = min(times[number], clock(starts[number]))
    best = next(iter(times))
    for number, time in times.items():
        if time < MARGIN * times[best]:
            best = number
    return best


def clock_on(stream: int) -> Clock:
    """Times by events on a stream, in milliseconds."""

    def clock(start: Start) -> float:
        before, after = _cupy.new_timer(), _cupy.new_timer()
        _cupy.record_on(before, stream)
        start()
        _cupy.record_on(after, stream)
        after.synchronize()
        return _cupy.milliseconds(before, after)

    return clock


# ---------------------------------------------------------------- what is kept


@record
class Kept:
    """A choice: an algorithm, or `None` for our kernels."""

    candidate: Candidate | None


_known: dict[str, Kept] = {}


def _refused(error: LibraryError) -> Kept:
    """Our kernels, for a product that the library refuses; a failure is told."""
    if not isinstance(error, api.NotSupported):
        warnings.warn(
            f"cuBLASLt fails, and products take fnx's own kernels, which are slower: "
            f"{error}",
            RuntimeWarning,
            stacklevel=2,
        )
    return Kept(None)


def choice_key(matmul: Matmul) -> str:
    """What a choice depends on: the form, the device and the library."""
    name, version = _cupy.device_name(matmul.device), api.version()
    return cache.key("cublasLt", repr(matmul.form), name, str(version))


def forget() -> None:
    """Forgets what this process has chosen, but not what is on disk."""
    _known.clear()


def keep(key: str, kept: Kept) -> None:
    """Keeps a choice, in this process and on disk."""
    _known[key] = kept
    one = kept.candidate
    told = None if one is None else [one.algorithm.hex(), one.workspace]
    if config.disk_cache:
        cache.store(key, json.dumps(told).encode())


def remembered(key: str) -> Kept | None:
    """The choice that is kept under a key, if there is one."""
    if key in _known:
        return _known[key]
    content = cache.load(key) if config.disk_cache else None
    if content is None:
        return None
    told = json.loads(content)
    kept = Kept(None)
    if told is not None:
        algorithm, workspace = told
        kept = Kept(Candidate(bytes.fromhex(algorithm), workspace))
    _known[key] = kept
    return kept
