"""NVRTC through ctypes: CUDA C text to a cubin, to PTX, and to the assembly of it.

It needs no device, so that everything that fnx prints can be compiled anywhere.
Arithmetic is as written: no contraction of products and sums, no flush of subnormal
numbers to zero, divisions and roots rounded correctly. Receives text and a target
("sm_90"); gives bytes and the log, which `resources.py` reads. A text that does not
compile is a `CompileError`. Next on the walk: `resources.py`.
"""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fnx.errors import CompileError, explain
from fnx.records import record
from fnx_cuda import libraries
from fnx_cuda.resources import resources

OPTIONS = (
    "--std=c++17",
    "--fmad=false",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "--ptxas-options=-v",
)
"""How every text is compiled; the last one has the log say what a kernel takes."""

_FILE = "kernel.cu"


@record
class Compiled:
    """A cubin, or PTX for a target "compute_90", and all that NVRTC said."""

    code: bytes
    log: str


@record(eq=False)
class Compiler:
    """A loaded NVRTC: its version, and what it compiles for ("sm_80", "sm_90", ...)."""

    library: Any
    version: tuple[int, int]
    targets: tuple[str, ...]

    @property
    def name(self) -> str:
        """What a cubin depends on besides its text, target and options."""
        return "NVRTC {}.{}".format(*self.version)

    def target(self, capability: str) -> str:
        """What to compile for on a device of a compute capability such as "90".

        A device runs cubins for smaller capabilities of its own generation. Where NVRTC
        is older than the device's generation, the driver compiles PTX.
        """
        own = int(capability)
        numbers = [int(target.removeprefix("sm_")) for target in self.targets]
        fitting = [number for number in numbers if number <= own]
        if not fitting:
            raise CompileError(
                explain(
                    f"CUDA C for a device of compute capability {own / 10}",
                    f"{self.name} compiles for {numbers[0] / 10} and later",
                    "install an older NVRTC, or use another device",
                )
            )
        same = max(fitting) // 10 == own // 10
        return f"{'sm' if same else 'compute'}_{max(fitting)}"

    def options(self, text: str, target: str) -> tuple[str, ...]:
        """The options for a text: only one that includes headers gets any."""
        options = (*OPTIONS, f"--gpu-architecture={target}")
        if "#include" in text:
            folders = libraries.header_folders(self.version[0])
            return (*options, *(f"--include-path={folder}" for folder in folders))
        return (*options, "--minimal") if self.version >= (12, 4) else options

    def compile(self, text: str, target: str) -> Compiled:
        """Compiles a text for "sm_90" to a cubin, or for "compute_90" to PTX.

        >>> compiler().compile("__global__ void f() {}", "sm_80").code[1:4]
        b'ELF'

        A kernel that spills registers is compiled again with room for them. Raises
        `CompileError` with the log's first error, its line, and what to do.
        """
        made = self._compiled(text, target)
        spilling = [name for name, it in resources(made.log).items() if it.spills]
        roomier = with_room(text, spilling)
        return made if roomier == text else self._compiled(roomier, target)

    def _compiled(self, text: str, target: str) -> Compiled:
        program, name = ctypes.c_void_p(), _FILE.encode()
        status = self.library.nvrtcCreateProgram(
            ctypes.byref(program), text.encode(), name, 0, None, None
        )
        if status:
            raise CompileError(f"NVRTC makes no program: {self._says(status)}.")
        try:
            options = [option.encode() for option in self.options(text, target)]
            array = (ctypes.c_char_p * len(options))(*options)
            status = self.library.nvrtcCompileProgram(program, len(options), array)
            log = self._text(program, "ProgramLog").rstrip(b"\0").decode()
            if status:
                raise _refused(text, target, log or self._says(status))
            kind = "PTX" if target.startswith("compute") else "CUBIN"
            return Compiled(self._text(program, kind), log)
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, kind: str) -> bytes:
        """What a program has of a kind; of PTX and the log with the closing zero."""
        size = ctypes.c_size_t()
        getattr(self.library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self.library, f"nvrtcGet{kind}")(program, buffer)
        return buffer.raw

    def _says(self, status: int) -> str:
        says: bytes = self.library.nvrtcGetErrorString(status)
        return says.decode()


@functools.cache
def compiler(newest: int | None = None) -> Compiler:
    """The newest NVRTC that there is, up to the major version of the driver's CUDA.

    Raises `CompileError` where there is none; the next call looks again.
    """
    library = libraries.load("nvrtc", newest)
    if library is None:
        raise CompileError(
            explain(
                "CUDA C to a cubin",
                "there is no NVRTC"
                + (f" of CUDA {newest} or before" if newest else ""),
                "install the wheel nvidia-cuda-nvrtc (CUDA 13) or "
                "nvidia-cuda-nvrtc-cu12, as cupy-cuda13x[ctk] and cupy-cuda12x[ctk] do",
            )
        )
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    library.nvrtcGetSupportedArchs(numbers)
    targets = tuple(f"sm_{number}" for number in numbers)
    return Compiler(library, (major.value, minor.value), targets)


def with_room(text: str, kernels: Sequence[str]) -> str:
    r"""A text whose kernels may take as many registers as one block leaves them.

    Left to itself, the assembler spills a few to have another block beside it, which
    costs more than it gives; but all kernels would grow if none were left to it.

    >>> with_room("__launch_bounds__(256)\nk0(", ["k0"])
    '__launch_bounds__(256, 1)\nk0('
    """
    for kernel in kernels:
        bounds = rf"(__launch_bounds__\(\w+)\)(\s+{re.escape(kernel)}\()"
        text = re.sub(bounds, r"\1, 1)\2", text)
    return text


# ---------------------------------------------------------------- what it says

# Of the front end, and of the assembler.
_IN_TEXT = re.compile(rf"^{re.escape(_FILE)}\((\d+)\): .*?error.*?: (.*)$", re.M)
_ELSEWHERE = re.compile(r"^.*\berror\b.*$", re.M)


def _refused(text: str, target: str, log: str) -> CompileError:
    line, reason = _first_error(text, log)
    message = explain(
        f"CUDA C for {target}",
        reason,
        "correct the text, or report it if fnx has printed it; the error's `log` is "
        "all that the compiler said, and its `text` what it read",
        source=line,
    )
    return CompileError(message, log, text)


def _first_error(text: str, log: str) -> tuple[str | None, str]:
    """The line of the first error, if it has one, and what is wrong with it."""
    found = _IN_TEXT.search(log)
    if found:
        number, reason = int(found[1]), found[2]
        lines = text.splitlines()
        line = lines[number - 1].strip() if number <= len(lines) else ""
        return f"line {number}: {line}", reason
    said = _ELSEWHERE.search(log)
    return None, said[0].strip() if said else log.strip()


# ---------------------------------------------------------------- assembly


def assembly(cubin: bytes) -> str | None:
    """The machine code of a cubin as text; `None` where CUDA's programs are not."""
    for tool, option in (("nvdisasm", "--print-code"), ("cuobjdump", "--dump-sass")):
        path = shutil.which(tool)
        if path is not None:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "kernel.cubin"
                file.write_bytes(cubin)
                command = [path, option, str(file)]
                return subprocess.check_output(command, text=True)
    return None
