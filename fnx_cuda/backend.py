"""The CUDA backend: compiles plans to instructions and runs them on devices.

It implements `DeviceBackend` of `fnx/runtime/backend.py`, which says what each method
gives and raises. Devices are CUDA's, by their numbers. This is the end of the walk from
a user's function to running code.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fnx.config import config
from fnx.kernel.grid import grid_schedule
from fnx.runtime.backend import Finding, Found
from fnx.runtime.plan import Plan, Target
from fnx_cuda import _cupy, doctor, frame, interop, nvrtc, transfer
from fnx_cuda import device as devices
from fnx_cuda.align import aligned
from fnx_cuda.collectives import Ranks
from fnx_cuda.convolution import PRODUCTS
from fnx_cuda.cudnn_graph import LIBRARY
from fnx_cuda.lower import lower
from fnx_cuda.memory import Buffer
from fnx_cuda.program import Compiled, Program
from fnx_cuda.usage import largest

NOWHERE = "80"
"""The compute capability that code is shown for where there is no device."""


class CudaBackend:
    """Runs plans on CUDA devices through CuPy."""

    stages = ("cuda", "ptx", "asm")
    target = Target("cuda", grid_schedule, PRODUCTS, streams=True)

    def found(self) -> Found:
        """The devices that there are, or why there are none."""
        return doctor.found()

    def findings(self) -> Sequence[Finding]:
        """What `fnx.doctor()` shows."""
        return doctor.findings()

    def machine(self) -> str:
        """Instructions run on every device: cubins are cached by themselves."""
        # Programs have attentions as such where the library for them is.
        return f"CUDA, CuPy {_cupy.version()}{', cuDNN' * LIBRARY.is_installed()}"

    def compile(self, plan: Plan) -> Compiled:
        """The plan as instructions; its kernels are compiled when it is loaded."""
        body = aligned(lower(plan))
        if config.debug >= 5:
            print(f"--- cuda\n{_cuda_text(plan)}", file=sys.stderr)
        if config.debug >= 6:
            print(f"--- asm\n{_machine_text(plan, 'asm')}", file=sys.stderr)
        rest = dataclasses.replace(plan, steps=(), scopes=())
        return Compiled(rest, body, largest(plan))

    def load(self, compiled: Compiled) -> Program:
        """The plan as one call, on any device."""
        return Program(compiled)

    def as_text(self, plan: Plan, stage: str) -> str:
        """The kernels of a plan: "cuda" C, "ptx", or machine code ("asm")."""
        return _cuda_text(plan) if stage == "cuda" else _machine_text(plan, stage)

    def put(self, data: np.ndarray[Any, Any], device: int) -> Buffer:
        """Memory with a copy of a contiguous array."""
        return transfer.put(data, device)

    def get(
        self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> np.ndarray[Any, Any]:
        """A new NumPy array with a copy of the memory; waits for it."""
        return transfer.get(buffer, shape, dtype)

    def wait(self, buffer: Buffer) -> None:
        """Waits until the memory has its values."""
        if buffer.moment is not None:
            buffer.moment.wait()

    def is_ready(self, buffer: Buffer) -> bool:
        """Whether `wait` would not wait."""
        return buffer.moment is None or buffer.moment.passed()

    def moved(self, buffer: Buffer, device: int) -> Buffer:
        """A copy of the memory on a device."""
        return transfer.moved(buffer, device)

    def taken(self, source: Any) -> tuple[Buffer, tuple[int, ...], np.dtype[Any]]:
        """The memory of an array of another library, its shape and dtype."""
        return interop.taken(source)

    def view(self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A CuPy array on the memory."""
        return interop.view(buffer, shape, dtype)

    def stream(self, device: int) -> int:
        """The handle of the stream that a device's work is on."""
        return devices.device(device).compute

    def communicator(self, member: Any, device: int) -> Ranks:
        """NCCL's, or over the host where there is none."""
        return Ranks(member, device)

    def memory_stats(self, device: int) -> Mapping[str, int]:
        """Bytes in use, and of the device."""
        with devices.device(device) as on:
            return on.memory.stats()


def _texts(plan: Plan) -> list[str]:
    return list(dict.fromkeys(frame.texts(lower(plan))))


def _cuda_text(plan: Plan) -> str:
    return "\n\n".join(_texts(plan))


def _machine_text(plan: Plan, stage: str) -> str:
    """PTX or machine code; PTX also where CUDA's disassembler is not installed."""
    compiler = nvrtc.compiler()
    target = compiler.target(_capability())
    shown = []
    for text in _texts(plan):
        code = None
        if stage == "asm" and target.startswith("sm_"):
            code = nvrtc.assembly(compiler.compile(text, target).code)
        if code is None:
            ptx = compiler.compile(text, target.replace("sm_", "compute_")).code
            code = ptx.rstrip(b"\0").decode()
        shown.append(code)
    return "\n\n".join(shown)


def _capability() -> str:
    kinds = doctor.found().kinds
    return _cupy.compute_capability(0) if kinds else NOWHERE


BACKEND = CudaBackend()
