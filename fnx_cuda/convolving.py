"""Runs convolutions: by cuDNN where that is chosen, else by our kernels.

Receives a `Convolve`, a device and what starts our kernels; gives an action like those
of other instructions. The first run times cuDNN's algorithms and our kernels, and the
choice is kept by what is computed, the device and the library's version. The workspace
is that of matrix products. Next on the walk: `flow.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from fnx import cache
from fnx_cuda import _cupy, blaslt_tuning, cudnn
from fnx_cuda.blaslt import WORKSPACE, Candidate
from fnx_cuda.blaslt_tuning import Kept, Start
from fnx_cuda.called import LibraryError
from fnx_cuda.cudnn import Algorithm, Convolution
from fnx_cuda.cudnn_problem import Problem, places, problem
from fnx_cuda.device import Device
from fnx_cuda.frame import Frame
from fnx_cuda.instructions import Convolve
from fnx_cuda.multiply import workspace

Action = Callable[[Frame, int], None]
At = tuple[int, int, int]


def convolve_action(
    convolve: Convolve, device: Device, own: Action, pack: Action
) -> Action:
    """A convolution; `own` starts our kernels for it, `pack` copies its filter.

    Its first run may take times, and must not be captured.
    """
    step = convolve.step
    found = problem(step) if cudnn.LIBRARY.serves() else None
    if found is None:
        return own
    chosen = Chosen(found, device)
    x_at, filter_at, y_at = places(found.kind, step)
    ends = x_at, convolve.packed or filter_at, y_at

    def act(at: Frame, stream: int) -> None:
        x, kernel, y = at.all(ends)
        starts = (lambda: own(at, stream)), (lambda: pack(at, stream))
        chosen.run((x, kernel, y), stream, *starts)

    return act


class Chosen:
    """A convolution by the library, with an algorithm that its first run chooses."""

    def __init__(self, problem: Problem, device: Device) -> None:
        self._problem = problem
        self._device = device
        self._made: Convolution | None = None
        self._algorithm: Algorithm | None = None
        self._is_chosen = False

    def run(self, at: At, stream: int, own: Start, pack: Start) -> None:
        """Starts it; `own` starts the same by our kernels, `pack` copies the filter."""
        try:
            if not self._is_chosen:
                self._algorithm = self._choose(at, stream, own, pack)
                self._is_chosen = True
            if self._algorithm is not None:
                self._start(self._algorithm, at, stream, pack)
                return
        except LibraryError as error:
            # It has no such convolution, or what was kept does not serve here.
            self._algorithm, self._is_chosen = None, True
            if error.status not in cudnn.NOT_SUPPORTED:
                _tell(error)
        own()

    def _start(self, algorithm: Algorithm, at: At, stream: int, pack: Start) -> None:
        made, room = self._convolution(), workspace(self._device).pointer
        if self._problem.kind == "filter":
            made.run(algorithm, at, room, stream)
            pack()
        else:
            pack()
            made.run(algorithm, at, room, stream)

    def _convolution(self) -> Convolution:
        if self._made is None:
            self._made = Convolution(self._problem, self._device.number)
        return self._made

    def _choose(self, at: At, stream: int, own: Start, pack: Start) -> Algorithm | None:
        name = _cupy.device_name(self._device.number)
        key = cache.key("cuDNN", repr(self._problem), name, str(cudnn.version()))
        kept = blaslt_tuning.remembered(key)
        if kept is not None:
            return None if kept.candidate is None else _algorithm(kept.candidate)
        found = self._convolution().algorithms(WORKSPACE)
        starts = [self._starting(each, at, stream, pack) for each in found]
        clock = blaslt_tuning.clock_on(stream)
        best = blaslt_tuning.fastest([*starts, own], clock)
        chosen = found[best] if best < len(found) else None
        blaslt_tuning.keep(key, Kept(None if chosen is None else _candidate(chosen)))
        return chosen

    def _starting(
        self, algorithm: Algorithm, at: At, stream: int, pack: Start
    ) -> Start:
        return lambda: self._start(algorithm, at, stream, pack)


def _candidate(algorithm: Algorithm) -> Candidate:
    return Candidate(bytes([algorithm.number, algorithm.math]), algorithm.workspace)


def _algorithm(candidate: Candidate) -> Algorithm:
    number, math = candidate.algorithm
    return Algorithm(number, math, candidate.workspace)


def _tell(error: LibraryError) -> None:
    warnings.warn(
        f"cuDNN fails, and convolutions take fnx's own kernels: {error}",
        RuntimeWarning,
        stacklevel=2,
    )
