"""CUDA C text to functions on a device: compiled once, kept in memory and on disk.

Receives texts and a device; gives loaded modules and their functions. What is missing
is compiled on several threads. A module stays loaded as long as somebody holds it or a
function of it, and a cubin stays on disk for later processes. A text that fails leaves
nothing behind. Next on the walk: `device.py`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol
from weakref import WeakValueDictionary

from fnx import cache as disk
from fnx.config import config
from fnx.errors import CompileError, explain
from fnx.locks import fork_safe_lock
from fnx.records import record
from fnx_cuda import _cupy, nvrtc

_NOT_FOUND = 500  # the driver's number of it

# Modules that nobody holds any more. The garbage collector may run while a graph is
# captured, where unloading is not allowed and would wait for the device.
_unused: deque[tuple[int, Any, Any]] = deque()


@record(eq=False)
class Function:
    """A kernel on a device; `pointer` is what launches take, valid while this lives."""

    pointer: int
    name: str
    module: Module


class Module:
    """A text that is loaded on a device; it stays so while this object lives."""

    __slots__ = ("__weakref__", "_functions", "_loaded", "_shared", "_text", "device")

    def __init__(self, text: str, device: int, loaded: Any) -> None:
        self.device, self._text, self._loaded = device, text, loaded
        self._functions: dict[str, Any] = {}
        self._shared: dict[str, int] = {}

    def function(self, name: str, shared: int = 0) -> Function:
        """A kernel of the text that may use so many bytes of dynamic shared memory.

        Raises `CompileError` where the text has no `extern "C"` kernel of that name.
        """
        with _loading, _current(self.device):
            if name not in self._functions:
                self._functions[name] = self._found(name)
            pointer = self._functions[name].ptr
            # Without the attribute it is 48 KB, together with the static part.
            if shared > self._shared.get(name, 0):
                _cupy.set_attribute(pointer, _cupy.MAX_DYNAMIC_SHARED, shared)
                self._shared[name] = shared
        return Function(pointer, name, self)

    def _found(self, name: str) -> Any:
        try:
            return self._loaded.get_function(name)
        except _cupy.cuda_errors() as error:
            if error.status != _NOT_FOUND:  # type: ignore[attr-defined]
                raise
            message = explain(
                f"kernel {name!r}",
                "the CUDA C has none of that name",
                f'declare it as extern "C" __global__ void {name}(...)',
            )
            raise CompileError(message, text=self._text) from error

    def __del__(self, unused: deque[tuple[int, Any, Any]] = _unused) -> None:
        unused.append((self.device, self._functions, self._loaded))


def function(text: str, name: str, device: int, shared: int = 0) -> Function:
    """A kernel of a text on a device, with so much dynamic shared memory at most.

    Raises `CompileError` for a text that does not compile, and what CuPy raises where
    it cannot be loaded.
    """
    (module,) = prepare([text], device)
    return module.function(name, shared)


def prepare(texts: Sequence[str], device: int) -> list[Module]:
    """The modules of texts on a device; those that are missing are compiled at once.

    Hold what this gives until the functions are taken. Raises as `function` does.
    """
    with _loading, _current(device):
        _unload()
        keys = {text: _key(text, device) for text in texts}
        held = {text: _modules.get(key) for text, key in keys.items()}
        missing = [text for text, module in held.items() if module is None]
        made = dict(
            zip(missing, _made(missing, device) if missing else [], strict=True)
        )
        for text, module in made.items():
            _modules[keys[text]] = module
        return [held[text] or made[text] for text in texts]


# ---------------------------------------------------------------- memory

# One thread at a time makes modules, on as many threads as there are; a fork waits.
_loading = fork_safe_lock(rank=2)

_modules: WeakValueDictionary[tuple[Any, ...], Module] = WeakValueDictionary()


def _key(text: str, device: int) -> tuple[Any, ...]:
    """What a module is found by; what another module in CuPy's place loaded, is not."""
    return _cupy.cupy(), device, text


def _unload() -> None:
    while _unused:
        device, functions, loaded = _unused.popleft()
        with _current(device):
            del functions, loaded


@contextmanager
def _current(device: int) -> Iterator[None]:
    before = _cupy.current_device()
    _cupy.ensure_context(device)
    try:
        yield
    finally:
        _cupy.set_device(before)


# ---------------------------------------------------------------- compiling


def _made(texts: list[str], device: int) -> list[Module]:
    """The modules of texts, compiled on several threads and loaded on this one."""
    toolchain = _toolchain(device)
    threads = min(len(texts), os.cpu_count() or 1)
    if threads == 1:
        codes = [toolchain.code(text) for text in texts]
    else:
        with ThreadPoolExecutor(threads) as pool:
            codes = list(pool.map(toolchain.code, texts))
    loaded = [_loaded(toolchain, *pair) for pair in zip(texts, codes, strict=True)]
    return [Module(text, device, it) for text, it in zip(texts, loaded, strict=True)]


def _loaded(toolchain: _Toolchain, text: str, code: bytes) -> Any:
    try:
        return _cupy.load_module(code)
    except _cupy.cuda_errors():  # it may be what was on disk that does not fit
        return _cupy.load_module(toolchain.compile(text))


class _Toolchain(Protocol):
    """What makes code of texts, on any thread."""

    def code(self, text: str) -> bytes:
        """The code of a text, which may be found on disk."""

    def compile(self, text: str) -> bytes:
        """The code of a text, made anew."""


def _toolchain(device: int) -> _Toolchain:
    emulator = _cupy.cupy()
    if getattr(emulator, "EMULATES", False):
        return _Emulated(emulator)
    compiler = nvrtc.compiler(_cupy.driver_version() // 1000)
    return _Nvrtc(compiler, compiler.target(_cupy.compute_capability(device)))


@record
class _Nvrtc:
    compiler: nvrtc.Compiler
    target: str

    def code(self, text: str) -> bytes:
        if not _uses_disk():
            return self.compile(text)
        found = disk.load(self._key(text))
        return self.compile(text) if found is None else found

    def compile(self, text: str) -> bytes:
        code = self.compiler.compile(text, self.target).code
        if _uses_disk():
            disk.store(self._key(text), code)
        return code

    def _key(self, text: str) -> str:
        options = self.compiler.options(text, self.target)
        return disk.key("cuda", self.compiler.name, *options, text)


def _uses_disk() -> bool:
    return config.disk_cache and config.debug < 2


@record
class _Emulated:
    emulator: Any

    def code(self, text: str) -> bytes:
        return self.compile(text)

    def compile(self, text: str) -> bytes:
        refused = self.emulator.cuda.compiler.CompileException
        try:
            code: bytes = self.emulator.compile_text(text)  # it has a cache of its own
        except refused as error:
            log = str(error)
            raise CompileError(explain("CUDA C", log), log, text) from error
        return code
