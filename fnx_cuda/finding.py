"""Whether there is a GPU, and if it cannot be used, why not and what to do about it.

Receives nothing but the machine: device files and the versions of installed packages.
CuPy, which takes half a second to import, is asked only where there is a GPU. Gives
what `fnx.devices()` and `fnx.doctor()` need. Every process on a machine without a GPU
loads this module, and nothing else of fnx_cuda. Next on the walk: `backend.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from fnx.records import record
from fnx.runtime.backend import Finding, Found

# Where the kernel shows a GPU: NVIDIA's driver (a number follows), the one for Windows
# under WSL, and that of small boards.
_DEVICES, _DRIVERS = "/dev", ("dxg", "nvgpu", "nvhost-gpu")
_CARDS = "/sys/bus/pci/devices"
_NVIDIA, _COMPUTE, _DISPLAY = "0x10de", "0x0302", "0x0300"

_DRIVER = (
    "install NVIDIA's driver (`nvidia-smi` must show the GPU; in a container, start it "
    "with `--gpus all`)"
)
_CUPY = (
    'pip install "fnx[cuda13]", or "fnx[cuda12]" for a driver that `nvidia-smi` says '
    "is of CUDA 12"
)


@record
class Hardware:
    """What the machine shows of GPUs: whether one can be asked, and if not, why."""

    there: bool
    reason: str = ""
    fix: str = ""
    unusable: bool = False


def hardware() -> Hardware:
    """Whether a GPU can be asked; it costs less than a millisecond."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        hidden = "CUDA_VISIBLE_DEVICES hides all GPUs"
        return Hardware(False, hidden, "unset CUDA_VISIBLE_DEVICES")
    if sys.platform == "win32":
        system = os.environ.get("SYSTEMROOT", r"C:\Windows")
        if os.path.exists(os.path.join(system, "System32", "nvcuda.dll")):
            return Hardware(True)
    elif any(map(_is_gpu, _names(_DEVICES))):
        return Hardware(True)
    classes = {_class(f"{_CARDS}/{name}") for name in _names(_CARDS)}
    if classes & {_COMPUTE, _DISPLAY}:
        # A card for a screen may be meant for the screen alone.
        aloud = _COMPUTE in classes
        return Hardware(False, "there is a GPU, but no driver for it", _DRIVER, aloud)
    return Hardware(False, "this machine shows no NVIDIA GPU")


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _is_gpu(name: str) -> bool:
    numbered = name.startswith("nvidia") and name[len("nvidia") :].isdigit()
    return numbered or name in _DRIVERS


def _class(card: str) -> str:
    """What kind of card of NVIDIA's this is; '' for one of somebody else's."""
    try:
        with open(f"{card}/vendor") as vendor, open(f"{card}/class") as kind:
            return kind.read().strip()[:6] if vendor.read().strip() == _NVIDIA else ""
    except OSError:
        return ""


def glance() -> Found | None:
    """Why there is no GPU to be asked; `None` if there is one."""
    adapter = sys.modules.get("fnx_cuda._cupy")
    if adapter is not None and adapter.is_loaded():  # or what stands in CuPy's place
        return None
    seen = hardware()
    return None if seen.there else Found((), seen.reason, seen.fix, seen.unusable)


def found(names: Callable[[], Sequence[str]], certain: bool = False) -> Found:
    """The GPUs that can be used.

    `names` asks CuPy what they are called; it may raise. It is asked only if there is a
    GPU, or `certain` says so.
    """
    seen = Hardware(True) if certain else hardware()
    if not seen.there:
        return Found((), seen.reason, seen.fix, seen.unusable)
    try:
        kinds = tuple(names())
    except ImportError as error:
        return Found((), f"CuPy cannot be imported ({error})", _CUPY, True)
    except Exception as error:  # of a driver that cannot do what CuPy asks
        return Found((), _failure(error), _DRIVER, True)
    if not kinds:
        return Found((), "CUDA sees no GPU", _DRIVER, True)
    return Found(kinds)


def _failure(error: Exception) -> str:
    text = str(error)
    if "InsufficientDriver" in text:
        return "the driver is missing, or older than what CuPy was built for"
    return f"CUDA does not start: {text}"


# ---------------------------------------------------------------- what is installed

# What can be installed, each with its names for CUDA 12 and 13. Only CuPy must be there
# as a package: the toolkit may be the system's, and fnx has kernels of its own in the
# place of the other libraries.
_PARTS = (
    ("CuPy", "cupy-cuda12x", "cupy-cuda13x"),
    ("NVRTC", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc"),
    ("CUDA headers", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime"),
    ("cuBLAS", "nvidia-cublas-cu12", "nvidia-cublas"),
    ("cuDNN", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
    ("NCCL", "nvidia-nccl-cu12", "nvidia-nccl-cu13"),
)


def packages() -> list[Finding]:
    """The packages that fnx uses on a GPU, and where they do not fit together."""
    cuda = [n for n, name in ((12, _PARTS[0][1]), (13, _PARTS[0][2])) if _version(name)]
    return [_part(cuda, *part) for part in _PARTS] + _mismatch()


def _part(cuda: Sequence[int], what: str, twelve: str, thirteen: str) -> Finding:
    """A library; CuPy is there for these versions of CUDA."""
    names = {12: twelve, 13: thirteen}
    there = {n: name for n, name in names.items() if _version(name)}
    text = ", ".join([f"{name} {_version(name)}" for name in there.values()])
    if not there:
        if what == "CuPy":
            return Finding(what, "no package of it", _CUPY)
        return Finding(what, "no package of it: the system's is used, if there is one")
    if len(there) == 2:
        # CuPy for either finds the libraries of 13 first.
        extra = names[12 if 13 in cuda else 13]
        return Finding(what, f"two that do not fit: {text}", f"pip uninstall {extra}")
    ((number, name),) = there.items()
    if len(cuda) == 1 and number not in cuda:
        wrong = f"{text}, but CuPy is for CUDA {cuda[0]}"
        return Finding(what, wrong, f"pip uninstall {name}")
    return Finding(what, text)


def _mismatch() -> list[Finding]:
    """NVRTC and the headers must be of one version, or kernels do not compile."""
    for column in (1, 2):
        compiler, headers = (_version(_PARTS[row][column]) for row in (1, 2))
        if compiler and headers and _minor(compiler) != _minor(headers):
            package = _PARTS[2][column]
            return [
                Finding(
                    "CUDA headers",
                    f"of {_minor(headers)}, but NVRTC is of {_minor(compiler)}",
                    f'pip install "{package}=={_minor(compiler)}.*"',
                )
            ]
    return []


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _version(name: str) -> str | None:
    # lazy: only the doctor asks, and it takes longer to load than all the rest
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
