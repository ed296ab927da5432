"""The exceptions of CuPy, CUDA and NCCL, and what only the emulator finds.

An error that CUDA reports is raised as CuPy raises it. A mistake that a GPU would let
pass in silence (a race, a read of memory that nobody wrote) is a `Finding`: it is no
RuntimeError, so that no handler for CUDA's errors hides it, and it is also kept in
`machine.findings`.
"""

from __future__ import annotations

RUNTIME = {
    1: ("cudaErrorInvalidValue", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "out of memory"),
    9: ("cudaErrorInvalidConfiguration", "invalid configuration argument"),
    46: ("cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy"),
    98: ("cudaErrorInvalidDeviceFunction", "invalid device function"),
    100: ("cudaErrorNoDevice", "no CUDA-capable device is detected"),
    101: ("cudaErrorInvalidDevice", "invalid device ordinal"),
    400: ("cudaErrorInvalidResourceHandle", "invalid resource handle"),
    600: ("cudaErrorNotReady", "device not ready"),
    700: ("cudaErrorIllegalAddress", "an illegal memory access was encountered"),
    716: ("cudaErrorMisalignedAddress", "misaligned address"),
    719: ("cudaErrorLaunchFailure", "unspecified launch failure"),
    800: ("cudaErrorNotPermitted", "operation not permitted"),
    900: (
        "cudaErrorStreamCaptureUnsupported",
        "operation not permitted when stream is capturing",
    ),
    901: (
        "cudaErrorStreamCaptureInvalidated",
        "operation failed due to a previous error during capture",
    ),
    904: (
        "cudaErrorStreamCaptureUnjoined",
        "capturing stream has unjoined work",
    ),
    905: (
        "cudaErrorStreamCaptureIsolation",
        "dependency created on uncaptured work in another stream",
    ),
    906: (
        "cudaErrorStreamCaptureImplicit",
        "operation would make the legacy stream depend on a capturing blocking stream",
    ),
}
DRIVER = {
    1: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    200: ("CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"),
    400: ("CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"),
    500: ("CUDA_ERROR_NOT_FOUND", "named symbol not found"),
    700: ("CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    701: ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested"),
    719: ("CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"),
}
NCCL = {
    1: "NCCL_ERROR_UNHANDLED_CUDA_ERROR",
    2: "NCCL_ERROR_SYSTEM_ERROR",
    3: "NCCL_ERROR_INTERNAL_ERROR",
    4: "NCCL_ERROR_INVALID_ARGUMENT",
    5: "NCCL_ERROR_INVALID_USAGE",
}


def _message(table: dict[int, tuple[str, str]], status: int, note: str) -> str:
    name, text = table.get(status) or RUNTIME[status]
    return f"{name}: {text}" + (f"\nemulator: {note}" if note else "")


class CUDARuntimeError(RuntimeError):
    """`cupy.cuda.runtime.CUDARuntimeError`; `note` says what the emulator knows."""

    def __init__(self, status: int, note: str = "") -> None:
        self.status = status
        super().__init__(_message(RUNTIME, status, note))


class CUDADriverError(RuntimeError):
    """`cupy.cuda.driver.CUDADriverError`."""

    def __init__(self, status: int, note: str = "") -> None:
        self.status = status
        super().__init__(_message(DRIVER, status, note))


class OutOfMemoryError(MemoryError):
    """`cupy.cuda.memory.OutOfMemoryError`."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        text = f"Out of memory allocating {size:,} bytes"
        text += f" (allocated so far: {total:,} bytes"
        if limit:
            text += f", limit set to: {limit:,} bytes"
        super().__init__(text + ").")


class CompileException(Exception):
    """`cupy.cuda.compiler.CompileException`."""

    def __init__(
        self,
        message: str,
        source: str = "",
        name: str = "",
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
    ) -> None:
        super().__init__(message)
        self.source, self.name = source, name
        self.options, self.backend = options, backend

    def get_message(self) -> str:
        """The compiler's log."""
        return str(self)


class NcclError(RuntimeError):
    """`cupy.cuda.nccl.NcclError`."""

    def __init__(self, status: int, note: str = "") -> None:
        self.status = status
        super().__init__(NCCL[status] + (f": {note}" if note else ""))


class Finding(AssertionError):
    """A mistake that a GPU would not report."""
