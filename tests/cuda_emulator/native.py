"""The runtime (runtime/*.cpp) built with g++ and bound with ctypes.

Receives nothing; gives `library()`, the structures that cross over to C++, and
`shared_object`, which compiles one translation unit of kernels. What was compiled is
kept in a folder of the user's cache, named by a hash of all that went into it, so that
a second run compiles nothing. Next: shim.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import threading
import time
from ctypes import (
    POINTER,
    c_bool,
    c_char,
    c_int,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path

HERE = Path(__file__).parent
SHIM = HERE / "shim.h"
COMPILER, OLDEST = "g++", 12
KEPT_DAYS = 30  # that a compiled module stays in the cache without being used

RUNTIME_FLAGS = (
    *("-std=c++17", "-O2", "-fPIC", "-shared", "-fno-exceptions", "-fno-rtti"),
    *("-fno-strict-aliasing", "-ffp-contract=off", "-Wall"),
    *("-fno-semantic-interposition", "-Wl,-Bsymbolic"),
)
# The hooks of -fsanitize are the runtime's own: no library of a sanitizer is linked.
KERNEL_FLAGS = (
    *("-x", "c++", "-std=c++17", "-O1", "-pipe", "-fPIC", "-w", "-fno-exceptions"),
    *("-fno-rtti", "-fno-threadsafe-statics", "-fvisibility=hidden", "-fsigned-char"),
    # what a thread has not set is no zero, as in a register of a GPU
    "-ftrivial-auto-var-init=pattern",
    *("-ffp-contract=off", "-fno-math-errno", "-fno-strict-aliasing", "-fwrapv"),
    "-fsanitize=thread,alignment,bounds",
    *("--param", "tsan-instrument-func-entry-exit=0"),
    *("--param", "tsan-distinguish-volatile=1"),
)
GUARDS, GUARD = 32, 128  # arrays of shared memory with a guard, and its bytes
LINK_FLAGS = ("-shared", "-nostdlib", "-Wl,--build-id=none", "-Wl,-z,norelro")


class Index(ctypes.Structure):
    """Three numbers: a grid, a block, a thread."""

    _fields_ = [("x", c_uint32), ("y", c_uint32), ("z", c_uint32)]


class Space(ctypes.Structure):
    """A range of addresses and its shadows (state.h)."""

    _fields_ = [
        ("start", c_uint64),
        ("size", c_uint64),
        ("state", c_uint64),
        ("cells", c_uint64),
        ("shared", c_uint8),
    ]


class Launch(ctypes.Structure):
    """All that the runtime needs to know of a launch (state.h)."""

    _fields_ = [
        ("run", c_uint64),
        ("parameters", c_uint64),
        ("grid", Index),
        ("block", Index),
        ("seed", c_uint32),
        ("shared_start", c_uint64),
        ("shared_size", c_uint64),
        ("shared_state", c_uint64),
        ("dynamic_shared", c_uint64),
        ("device", Space),
        ("own", c_uint64 * 6),
        ("unordered", c_uint64),
        ("unordered_count", c_uint64),
    ]


class Report(ctypes.Structure):
    """The first error of a launch (state.h)."""

    _fields_ = [
        *((name, c_int) for name in ("fault", "line", "write", "atomic")),
        *((name, c_uint64) for name in ("address", "size")),
        *((name, c_uint32) for name in ("thread", "other_thread")),
        *((name, c_uint64) for name in ("block", "other_block", "other_serial")),
        *((name, c_int) for name in ("other_write", "other_line")),
        *((name, c_uint32) for name in ("mask", "lanes")),
        ("note", c_char * 256),
    ]


@functools.cache
def reason_missing() -> str | None:
    """Why the emulator cannot run on this machine; None where it can."""
    machine = platform.machine()
    if platform.system() != "Linux" or machine not in ("x86_64", "aarch64"):
        return f"the CUDA emulator runs on Linux, x86-64 or aarch64, not on {machine}"
    if shutil.which(COMPILER) is None:
        return f"the CUDA emulator compiles kernels with {COMPILER}, which is missing"
    asked = subprocess.run([COMPILER, "-dumpversion"], capture_output=True, text=True)
    version = asked.stdout.strip()
    if int(version.split(".")[0] or 0) < OLDEST:
        return f"the CUDA emulator needs {COMPILER} {OLDEST}, this one is {version}"
    return None


@functools.cache
def cache_folder() -> Path:
    """Where compiled modules are kept: FNX_EMULATOR_CACHE, else the user's cache."""
    named = os.environ.get("FNX_EMULATOR_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
    folder = Path(named) if named else base / "fnx-cuda-emulator"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written
        folder = Path(tempfile.mkdtemp(prefix="fnx-cuda-emulator-"))
    return folder


def digest(*parts: str) -> str:
    """A name for what was made of these texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


class CompileError(Exception):
    """g++ refused a text; the message is its own."""


def compile_to(target: Path, command: list[str], text: str | None = None) -> None:
    """Run g++ and put its output in place at once, safe beside other processes."""
    scratch = target.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
    done = subprocess.run(
        [COMPILER, *command, "-o", str(scratch)],
        input=text,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise CompileError(done.stderr)
    scratch.replace(target)


@functools.cache
def runtime_path() -> Path:
    """The runtime's shared object, compiled if it is not there yet."""
    folder = HERE / "runtime"
    sources = sorted(folder.glob("*.cpp"))
    texts = [path.read_text() for path in [*sources, *sorted(folder.glob("*.h"))]]
    path = cache_folder() / f"runtime-{digest(*texts, *RUNTIME_FLAGS)}.so"
    if not path.exists():
        compile_to(path, [*RUNTIME_FLAGS, *map(str, sources)])
        _remove_old(cache_folder())
    return path


def _remove_old(folder: Path) -> None:
    """Remove modules that no test has used lately: they were for another runtime."""
    oldest = time.time() - KEPT_DAYS * 86400
    for path in folder.glob("*.so"):
        with contextlib.suppress(FileNotFoundError):  # another process does the same
            if path.stat().st_mtime < oldest:
                path.unlink()


@functools.cache
def guards_path() -> Path:
    """An object file with gaps before all arrays of shared memory, and at the end."""
    text = "".join(
        f'.section fnx_shared_{n},"aw"\n.zero {GUARD}\n' for n in range(GUARDS + 1)
    )
    path = cache_folder() / f"guards-{digest(text, platform.machine())}.o"
    if not path.exists():
        compile_to(path, ["-x", "assembler", "-c", "-"], text)
    return path


@functools.cache
def shim_path() -> Path:
    """A copy of shim.h with its precompiled form beside it, where g++ finds it."""
    name = digest(SHIM.read_text(), *KERNEL_FLAGS)
    path = cache_folder() / f"shim-{name}.h"
    if not path.exists():
        flags = ["c++-header" if flag == "c++" else flag for flag in KERNEL_FLAGS]
        compile_to(path.with_suffix(".h.gch"), [*flags, str(SHIM)])
        scratch = path.with_suffix(f".{os.getpid()}.tmp")
        shutil.copy(SHIM, scratch)
        scratch.replace(path)
    return path


@functools.cache
def library() -> ctypes.CDLL:
    """The runtime, loaded, with the types of its functions."""
    lib = ctypes.CDLL(str(runtime_path()))
    space, address = POINTER(Space), c_uint64
    lib.fnx_reserve.argtypes = [space, c_size_t]
    lib.fnx_reserve.restype = c_bool
    lib.fnx_release.argtypes = [space]
    lib.fnx_mark.argtypes = [space, address, c_size_t, c_uint8]
    lib.fnx_forget.argtypes = [space, address, c_size_t]
    lib.fnx_first_without.argtypes = [space, address, c_size_t, c_uint8]
    lib.fnx_first_without.restype = c_size_t
    lib.fnx_next_serial.restype = c_uint64
    lib.fnx_touch.argtypes = [space, address, c_size_t, c_int, c_void_p, c_size_t]
    lib.fnx_touch.restype = c_uint64
    lib.fnx_launch.argtypes = [POINTER(Launch)]
    lib.fnx_report.restype = POINTER(Report)
    return lib


@functools.cache
def _circumstances() -> str:
    """What a module depends on besides its text."""
    files = str(guards_path()), str(runtime_path()), str(shim_path())
    return digest(*files, *KERNEL_FLAGS, *LINK_FLAGS)


def shared_object(text: str) -> Path:
    """The shared object of a translation unit that is ready for g++."""
    path = cache_folder() / f"{digest(_circumstances(), text)}.so"
    if path.exists():
        os.utime(path)
    else:
        # In a section, what is named first comes first.
        before, after = ["-x", "none", str(guards_path())], ["-x", "none"]
        command = [*before, *KERNEL_FLAGS, "-include", str(shim_path()), "-", *after]
        compile_to(path, [*command, str(runtime_path()), *LINK_FLAGS], text)
    return path
