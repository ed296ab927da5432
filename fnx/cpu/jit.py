"""Machine code in this process: LLVM IR text to object code to callable addresses.

`assemble` turns text into object code for this CPU (which a cache may keep), `load`
links it into the process, `load_fixed` does both and keeps the code. No pass pipeline
runs, but for tight loops: the emitter has printed what it wants to see, and code
generation alone takes milliseconds. It takes a fifth of them for what is brief.
Receives the text of `emit.Module`, gives a `Library`.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fnx import cache
from fnx.config import config
from fnx.cpu.llvm import HELPERS, Text
from fnx.errors import InternalError
from fnx.locks import fork_safe_lock
from fnx.records import record

if TYPE_CHECKING:
    from llvmlite.binding.orcjit import LLJIT, ResourceTracker


# llvmlite has a lock around each call of LLVM, which a fork would leave locked in the
# child if another thread was compiling. A fork waits for this one.
_llvm_is_ours = fork_safe_lock(rank=1)


@functools.cache
def _llvm() -> Any:
    # lazy: llvmlite takes a tenth of a second to import; only a compile pays it.
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@functools.cache
def host() -> tuple[str, str]:
    """The name and the features of this CPU."""
    llvm = _llvm()
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@functools.cache
def machine() -> str:
    """What object code depends on besides its text: this CPU, and LLVM's version."""
    return " ".join([*host(), f"llvmlite {version('llvmlite')}"])


@functools.cache
def _target_machine(opt: int = 2, thread: int = 0) -> Any:
    """What generates code; each of the threads that do so at once has its own."""
    name, features = host()
    target = _llvm().Target.from_default_triple()
    return target.create_target_machine(cpu=name, features=features, opt=opt, jit=True)


@functools.cache
def _linker() -> LLJIT:
    # JITLink is LLVM's newer linker; it is not complete for Windows.
    return _llvm().create_lljit_compiler(use_jit_link=sys.platform != "win32")


_library_numbers = itertools.count()


@record
class Code:
    """Object code for this CPU, and the text of the helpers that it calls."""

    objects: tuple[bytes, ...]
    helpers: str


def assemble(text: str, opt: int = 2) -> Code:
    """Compile the text of a module to object code for this CPU.

    `opt` is the effort of code generation, 0 to 3: 0 takes a fifth of the time.
    Raises `InternalError` with the text where it does not parse.
    """
    own, _, helpers = text.partition(HELPERS)
    with _llvm_is_ours:
        return Code((_object(_Part(own, opt), _target_machine(opt)),), helpers)


def assemble_module(module: Text, threads: int) -> Code:
    """Compile a module to object code, on several threads if it is long."""
    parts = sorted(_parts(module, threads), key=_effort, reverse=True)
    with _llvm_is_ours:
        machines = [_target_machine(part.opt, n) for n, part in enumerate(parts)]
        if threads < 2 or sum(map(_effort, parts)) < _PART:
            objects = list(map(_object, parts, machines))
        else:
            with ThreadPoolExecutor(threads) as pool:
                objects = list(pool.map(_object, parts, machines))
        return Code(tuple(objects), module.helpers())


@record
class _Part:
    """A module to be compiled: with how much effort, and after passes or without."""

    text: str
    opt: int = 2
    optimised: bool = False


def _parts(module: Text, threads: int = 1) -> list[_Part]:
    """The parts of a module, to be linked, for so many threads."""
    return [
        *[_Part(text) for text in module.cut(threads, _PART)],
        *[_Part(text, opt=0) for text in module.brief()],
        *[_Part(text, optimised=True) for text in module.tight_texts()],
    ]


def _effort(part: _Part) -> int:
    """How long LLVM takes for a part, as the length of a text without passes."""
    length = len(part.text)
    return 2 * length if part.optimised else length if part.opt else length // 5


_PART = 6_000  # characters that are worth a thread: some milliseconds of LLVM's time


def _object(part: _Part, machine: Any) -> bytes:
    """Object code of a text, made in a context of its own.

    llvmlite has one thread at a time call LLVM. Code generation is most of the work, is
    independent for each context and machine, and is called without llvmlite's lock.
    """
    llvm = _llvm()
    parsed = _parsed(part.text, llvm.create_context())
    if part.optimised:
        _optimise(parsed, machine)
    emit = llvm.ffi.lib.LLVMPY_TargetMachineEmitToMemory
    emit = getattr(emit, "_cfn", emit)
    with llvm.ffi.OutputString() as error:
        memory = emit(machine, parsed, 1, error)
        if not memory:
            raise InternalError(f"LLVM makes no object code: {error}\n{part.text}")
    try:
        start = llvm.ffi.lib.LLVMPY_GetBufferStart(memory)
        return ctypes.string_at(start, llvm.ffi.lib.LLVMPY_GetBufferSize(memory))
    finally:
        llvm.ffi.lib.LLVMPY_DisposeMemoryBuffer(memory)


def _optimise(parsed: Any, machine: Any) -> None:
    """Runs LLVM's passes, which inline calls and keep in registers what they can.

    They know of no fast mathematics: results are the same. These are half of what LLVM
    has: the emitter has unrolled what is short, chosen the lanes, and had all inlined.
    """
    llvm = _llvm()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, options)
    inlining = llvm.create_new_module_pass_manager()
    inlining.add_always_inliner_pass()
    inlining.run(parsed, builder)
    simplifying = builder.getFunctionPassManager()
    for function in parsed.functions:
        if not function.is_declaration:
            simplifying.run(function, builder)


def assembly(module: Text) -> str:
    """The machine code of a module, but for its helpers, as assembly."""
    texts: list[str] = []
    with _llvm_is_ours:
        for part in _parts(module):
            parsed, machine = _parsed(part.text), _target_machine(part.opt)
            if part.optimised:
                _optimise(parsed, machine)
            texts.append(str(machine.emit_assembly(parsed)))
    return "\n".join(texts)


def _parsed(text: str, context: Any = None) -> Any:
    try:
        return _llvm().parse_assembly(text, context)
    except RuntimeError as error:
        raise InternalError(f"LLVM does not parse the text: {error}\n{text}") from None


class Library:
    """Object code in memory; its functions live as long as it does."""

    def __init__(self, tracker: ResourceTracker) -> None:
        self._tracker = tracker

    def address(self, name: str) -> int:
        """The address of an exported function."""
        return int(self._tracker[name])

    def function(self, name: str, count: int) -> Any:
        """An exported function of so many pointers, for ctypes."""
        signature: Any = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count)
        function = signature(self.address(name))
        function.library = self  # the code must outlive the function
        return function


def load(
    code: Code, exports: Sequence[str], imports: Mapping[str, int] | None = None
) -> Library:
    """Link object code into this process.

    `exports` are the functions whose addresses are wanted; `imports` gives addresses of
    what the code declares and this process does not export (BLAS and LAPACK routines).
    """
    with _llvm_is_ours:
        addresses = {**_helpers(code.helpers), **(imports or {})}
        return Library(_linked(code, exports, addresses))


def load_fixed(
    text: str,
    exports: Sequence[str],
    imports: Mapping[str, int] | None = None,
    opt: int = 2,
) -> Library:
    """As `assemble` and `load`, for a text that is the same in every process.

    Its object code is kept on disk; what is found there and does not link is replaced.
    """
    if not config.disk_cache:
        return load(assemble(text, opt), exports, imports)
    key = cache.key(text, str(opt), machine())
    known = cache.load(key)
    if known is not None:
        with suppress(InternalError):
            return load(Code((known,), ""), exports, imports)
    code = assemble(text, opt)
    cache.store(key, *code.objects)
    return load(code, exports, imports)


@functools.cache
def _helpers(text: str) -> dict[str, int]:
    """The addresses of the helpers that a text defines."""
    if not text:
        return {}
    names = re.findall(r"^define .*@(\w+)\(", text, re.M)
    library = load_fixed(text, names)
    _kept.append(library)
    return {name: library.address(name) for name in names}


_kept: list[Library] = []  # the code of helpers is never dropped


def _linked(
    code: Code, exports: Sequence[str], imports: Mapping[str, int]
) -> ResourceTracker:
    builder = _llvm().JITLibraryBuilder().add_current_process()
    for image in code.objects:
        builder.add_object_img(image)
    for name in exports:
        builder.export_symbol(name)
    for name, address in imports.items():
        builder.import_symbol(name, address)
    try:
        return builder.link(_linker(), f"fnx{next(_library_numbers)}")
    except RuntimeError as error:
        raise InternalError(f"the object code does not link: {error}") from None
