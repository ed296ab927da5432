"""`cupy.RawKernel` and `cupy.RawModule`: user kernels, compiled when first needed.

`compile_text` is what NVRTC is on a real machine. Next: pools.py.
"""

from __future__ import annotations

from typing import Any

from . import inject, modules, native
from .driver_api import Function, Module
from .errors import CompileException
from .kernels import SHARED_DEFAULT, FunctionState
from .machine import machine


def compile_text(text: str) -> bytes:
    """Compile CUDA C; what NVRTC is on a real machine. CompileException on errors."""
    return compile_texts([text])[0]


def compile_texts(texts: list[str]) -> list[bytes]:
    """Compile several texts, two at a time."""
    for text in texts:
        if inject.compilation_fails(text):
            raise CompileException("error: a compile error (injected)", text)
    try:
        return [check_resources(cubin) for cubin in modules.compile_all(texts)]
    except native.CompileError as error:
        raise CompileException(str(error), "\n".join(texts)) from None


def check_resources(cubin: bytes) -> bytes:
    """What the assembler of CUDA refuses: too much static shared memory."""
    for kernel in modules.load(cubin).kernels.values():
        if kernel.static_shared > SHARED_DEFAULT:
            raise CompileException(
                f"ptxas error: Entry function '{kernel.name}' uses too much shared "
                f"data ({kernel.static_shared:#x} bytes, {SHARED_DEFAULT:#x} max)"
            )
    return cubin


class RawModule:
    """`cupy.RawModule`."""

    def __init__(
        self,
        *,
        code: str | None = None,
        path: str | None = None,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
        name_expressions: list[str] | None = None,
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        jitify: bool = False,
    ) -> None:
        if (code is None) == (path is None):
            raise TypeError(
                "Exactly one of `code` and `path` keyword arguments must be given."
            )
        if not isinstance(options, tuple):
            raise TypeError("compile options must be a tuple of str")
        self.code, self.file_path = code, path
        self.options, self.backend = options, backend
        self._modules: dict[tuple[int, int], Module] = {}

    def compile(self, log_stream: Any = None) -> None:
        """Compile now."""
        self._module()

    def _module(self) -> Module:
        key = id(machine()), machine().device
        if key not in self._modules:
            module = Module()
            if self.code is not None:
                module.load(compile_text(self.code))
            else:
                module.load_file(self.file_path or "")
            self._modules[key] = module
        return self._modules[key]

    def get_function(self, name: str) -> RawKernel:
        """A kernel by its name."""
        kernel = RawKernel(self.code or "", name, self.options, self.backend)
        kernel._owner = self
        kernel.kernel  # noqa: B018  an unknown name fails here, as with CuPy
        return kernel


class RawKernel:
    """`cupy.RawKernel`."""

    def __init__(
        self,
        code: str,
        name: str,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
        *,
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        jitify: bool = False,
    ) -> None:
        self.code, self.name = code, name
        self.options, self.backend = options, backend
        self._owner: RawModule | None = None
        self._functions: dict[tuple[int, int], Function] = {}

    @property
    def kernel(self) -> Function:
        """The function on the current device; compiled if it is not yet."""
        key = id(machine()), machine().device
        if key not in self._functions:
            if self._owner is None:
                self._owner = RawModule(code=self.code, options=self.options)
            self._functions[key] = self._owner._module().get_function(self.name)
        return self._functions[key]

    @property
    def _state(self) -> FunctionState:
        return self.kernel._state

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        *,
        shared_mem: int = 0,
        stream: Any = None,
    ) -> None:
        """Launch on the current stream, or another."""
        self.kernel(grid, block, args, shared_mem, stream)

    def compile(self, log_stream: Any = None) -> None:
        """Compile now."""
        _ = self.kernel

    @property
    def attributes(self) -> dict[str, int]:
        """What CUDA tells of a function; registers are not known."""
        state = self._state
        return {
            "max_threads_per_block": state.kernel.bounds[0] or 1024,
            "shared_size_bytes": state.kernel.static_shared,
            "const_size_bytes": 0,
            "local_size_bytes": 0,
            "num_regs": 0,
            "max_dynamic_shared_size_bytes": state.dynamic_shared_limit,
        }

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        """The most dynamic shared memory that a launch may ask for."""
        return self._state.dynamic_shared_limit

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, size: int) -> None:
        self._state.dynamic_shared_limit = size
