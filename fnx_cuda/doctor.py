"""What `fnx.doctor()` shows of CUDA: packages, versions, libraries, devices.

Each line is looked at by itself, so that one that fails hides no other. Gives
`Finding`s. Next on the walk: `finding.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from fnx.runtime.backend import Finding, Found
from fnx_cuda import _cupy, finding, libraries, nvrtc
from fnx_cuda.cudnn_graph import LIBRARY
from fnx_cuda.memory import readable

_OWN = "nothing need be done: fnx has kernels of its own in its place"
_PARTLY = "without it, eigenvalues and singular values are computed on the host"


def found() -> Found:
    """The devices that there are, or why there are none."""
    return finding.found(_names, certain=_cupy.is_loaded())


def _names() -> list[str]:
    return [_cupy.device_name(number) for number in range(_cupy.device_count())]


def findings() -> list[Finding]:
    """All lines; those of CuPy and of devices only where there is one."""
    devices = found()
    lines = finding.packages()
    if not devices.kinds:
        return [Finding("CUDA devices", devices.reason, devices.fix), *lines]
    lines += [
        _line("CUDA runtime", lambda: _dotted(_cupy.runtime_version())),
        _line("CUDA of the driver", lambda: _dotted(_cupy.driver_version())),
        _line("NVRTC, loaded", lambda: nvrtc.compiler().name),
        _line("cuBLASLt, loaded", lambda: _library("cublasLt"), _OWN),
        _line("cuBLAS, loaded", lambda: _library("cublas"), _OWN),
        _line("cuDNN, loaded", lambda: _library("cudnn"), _OWN),
        _line("cuDNN's attention", _attention, _OWN),
        _line("cuFFT, loaded", lambda: _library("cufft"), _OWN),
        _line("cuSOLVER, loaded", lambda: _library("cusolver"), _PARTLY),
    ]
    count = len(devices.kinds)
    return lines + [
        _line(f"CUDA device {number}", functools.partial(_device, number))
        for number in range(count)
    ]


def _line(what: str, look: Callable[[], str], fix: str = "") -> Finding:
    try:
        return Finding(what, look())
    except Exception as error:  # whatever it is, the other lines are of use
        return Finding(what, f"{type(error).__name__}: {error}", fix)


def _device(number: int) -> str:
    capability = _cupy.compute_capability(number)
    processors = _cupy.attributes(number)["MultiProcessorCount"]
    return (
        f"{_cupy.device_name(number)}, compute capability {capability[:-1]}."
        f"{capability[-1]}, {processors} multiprocessors, "
        f"{readable(_cupy.total_memory(number))}"
    )


def _attention() -> str:
    if not LIBRARY.is_installed():
        raise ImportError("the package nvidia-cudnn-frontend is not there")
    if not LIBRARY.serves():
        raise ImportError("nvidia-cudnn-frontend finds no cuDNN, or an old one")
    return f"found, {LIBRARY.version()}"


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _library(name: str) -> str:
    if libraries.load(name) is None:
        raise ImportError(f"{name} is not there")
    return "found"
