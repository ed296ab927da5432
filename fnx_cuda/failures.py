"""Errors of CUDA as errors of fnx: on which device, what ran, and what helps.

Receives what CuPy raised; gives a `DeviceError`. Next on the walk: `memory.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fnx import errors
from fnx_cuda import _cupy

LOST = frozenset({46, 214, 700, *range(702, 704), 710, *range(714, 720), 999})
"""Statuses after which a process cannot use the device any more: its context is gone
(illegal address, failed launch, assertion, uncorrectable memory error)."""

_NO_MEMORY = 2

TOO_LARGE = frozenset({1, 9, 701})
"""Statuses of a launch whose block, shared memory or registers the device lacks."""


def device_error(
    error: Exception, device: int, what: str, scope: str = ""
) -> errors.DeviceError:
    """The error to raise for one of CUDA's that came while `what` ran.

    >>> print(device_error(RuntimeError("cudaErrorLaunchFailure"), 1, "kernel 'add'"))
    kernel 'add' on CUDA device 1: cudaErrorLaunchFailure.
    """
    inside = f", in {scope}" if scope else ""
    status = getattr(error, "status", None)
    fix = ""
    if status in LOST:
        fix = (
            "the process has lost the device, start it again; with "
            "CUDA_LAUNCH_BLOCKING=1 in the environment kernels run one by one, and the "
            "error names the one that failed"
        )
    elif status in TOO_LARGE:
        fix = "this is a fault of fnx's schedule for this device, please report it"
    elif status == _NO_MEMORY:
        fix = "use smaller arrays, or see who else uses the device"
    asked = f"{what} on CUDA device {device}{inside}"
    kind = errors.DeviceMemoryError if status == _NO_MEMORY else errors.DeviceError
    return kind(errors.explain(asked, str(error), fix))


@contextmanager
def named(device: int, what: str) -> Iterator[None]:
    """Gives CUDA's errors the name of what is done."""
    try:
        yield
    except _cupy.cuda_errors() as error:
        raise device_error(error, device, what) from error
