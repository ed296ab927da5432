"""The memory of large output arrays: blocks that are used again instead of given back.

Fresh pages from the system cost more than the arithmetic of many kernels: each is
cleared and mapped when it is first touched. Receives sizes; gives NumPy arrays whose
memory comes from here and returns here (NumPy's memory handlers, NEP 49), on huge pages
where the system has them. Blocks of eight sizes an octave are kept; together at most as
much as is in use, or 64 MiB. Whoever allocates or frees holds the interpreter's lock.
Next on the walk: `table.py`.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fnx.cpu import jit
from fnx.cpu.entry import layout

LARGE = 2**22
"""Bytes of an array whose memory comes from here; the C library is good at less."""


class Stats(NamedTuple):
    """Bytes of blocks that arrays use, and of blocks that wait to be used again."""

    used: int
    kept: int


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array that is not initialised."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes >= PROMISED:
        return scratch(nbytes).view(dtype).reshape(shape)
    own = handler() if is_large(shape, dtype) else None
    if own is None:
        return np.empty(shape, dtype)
    before = _set_handler()(own)
    try:
        return np.empty(shape, dtype)
    finally:
        _set_handler()(before)


def scratch(nbytes: int) -> np.ndarray[Any, Any]:
    """Bytes for a plan's values; of many, only the pages that are written take memory.

    Loops in loops reserve more rows than a system promises, and fill the first few.
    """
    if nbytes < PROMISED or sys.platform != "linux":
        block = np.empty(nbytes + _LINE, np.uint8)
        begin = -block.ctypes.data % _LINE
        return block[begin : begin + nbytes]
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    try:
        return np.frombuffer(mmap.mmap(-1, nbytes, flags=flags), np.uint8)
    except (OSError, OverflowError):
        raise MemoryError(f"a plan needs {nbytes / 2**30:.1f} GiB") from None


PROMISED = 2**32
"""From so many bytes on, memory is asked for without a promise that it is there."""

_LINE = 64
"""Bytes of a line of the cache: a vector that lies across two of them is read twice."""

_NORESERVE = 0x4000
"""MAP_NORESERVE of Linux, for which Python has no name."""


def stats() -> Stats:
    """What is used and kept now."""
    return Stats(*[_counter(name).value for name in ("fnx_used", "fnx_kept")])


def is_large(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Whether an array is to have memory from here, if it can."""
    return math.prod(shape) * dtype.itemsize >= LARGE


@cache
def handler() -> Any:
    """This allocator as NumPy wants it, a capsule; `None` where it cannot be."""
    if (
        sys.platform == "win32"
    ):  # it has no memory of a given alignment that `free` takes
        return None
    names = ("fnx_malloc", "fnx_calloc", "fnx_realloc", "fnx_free")
    functions = [_library().address(name) for name in names]
    made = _Handler(b"fnx", 1, None, *functions)
    _alive.append(made)
    new = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
    )(("PyCapsule_New", ctypes.pythonapi))
    return new(ctypes.addressof(made), _CAPSULE, None)


class _Handler(ctypes.Structure):
    """PyDataMem_Handler."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


_CAPSULE = b"mem_handler"
_alive: list[Any] = []  # arrays may be freed as long as the process lives


@cache
def _set_handler() -> Any:
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(
        layout.numpy_address("PyDataMem_SetHandler")
    )


def _counter(name: str) -> ctypes.c_int64:
    return ctypes.c_int64.from_address(_library().address(name))


@cache
def _library() -> jit.Library:
    names = ("malloc", "calloc", "realloc", "free", "used", "kept")
    exports = [f"fnx_{name}" for name in names]
    library = jit.load_fixed(_text(sys.platform), exports, opt=0)
    _alive.append(library)
    return library


def _text(platform: str) -> str:
    """The allocator. Before each block lies its size, in a cache line of its own."""
    advise = "ret void"
    if platform == "linux":
        advise = "call i32 @madvise(ptr %block, i64 %size, i32 14)\n  ret void"
    return _TEXT.replace("ADVISE", advise)


_TEXT = """
@fnx_used = global i64 0
@fnx_kept = global i64 0
@lists = internal global [512 x ptr] zeroinitializer

declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare i32 @madvise(ptr, i64, i32)
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.umax.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; The block size for so many bytes with their header, and the number of its list.
define internal { i64, i64 } @class(i64 %nbytes) {
  %with = add i64 %nbytes, 64
  %some = call i64 @llvm.umax.i64(i64 %with, i64 4096)
  %last = sub i64 %some, 1
  %zeros = call i64 @llvm.ctlz.i64(i64 %last, i1 true)
  %exponent = sub i64 63, %zeros
  %shift = sub i64 %exponent, 3
  %eighths = lshr i64 %last, %shift
  %up = add i64 %eighths, 1
  %size = shl i64 %up, %shift
  %octave = mul i64 %exponent, 8
  %list = add i64 %octave, %eighths
  %number = sub i64 %list, 8
  %half = insertvalue { i64, i64 } poison, i64 %size, 0
  %both = insertvalue { i64, i64 } %half, i64 %number, 1
  ret { i64, i64 } %both
}

define internal void @advise(ptr %block, i64 %size) {
  ADVISE
}

define ptr @fnx_malloc(ptr %context, i64 %nbytes) {
entry:
  %place = alloca ptr
  %class = call { i64, i64 } @class(i64 %nbytes)
  %size = extractvalue { i64, i64 } %class, 0
  %number = extractvalue { i64, i64 } %class, 1
  %list = getelementptr ptr, ptr @lists, i64 %number
  %first = load ptr, ptr %list
  %none = icmp eq ptr %first, null
  br i1 %none, label %fresh, label %again
again:
  %next.at = getelementptr i8, ptr %first, i64 8
  %next = load ptr, ptr %next.at
  store ptr %next, ptr %list
  %kept = load i64, ptr @fnx_kept
  %kept.less = sub i64 %kept, %size
  store i64 %kept.less, ptr @fnx_kept
  br label %use
fresh:
  %status = call i32 @posix_memalign(ptr %place, i64 2097152, i64 %size)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %fail, label %made
fail:
  ret ptr null
made:
  %new = load ptr, ptr %place
  call void @advise(ptr %new, i64 %size)
  store i64 %size, ptr %new
  br label %use
use:
  %block = phi ptr [ %first, %again ], [ %new, %made ]
  %used = load i64, ptr @fnx_used
  %used.more = add i64 %used, %size
  store i64 %used.more, ptr @fnx_used
  %memory = getelementptr i8, ptr %block, i64 64
  ret ptr %memory
}

define ptr @fnx_calloc(ptr %context, i64 %count, i64 %each) {
entry:
  %nbytes = mul i64 %count, %each
  %memory = call ptr @fnx_malloc(ptr %context, i64 %nbytes)
  %failed = icmp eq ptr %memory, null
  br i1 %failed, label %done, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %memory, i8 0, i64 %nbytes, i1 false)
  br label %done
done:
  ret ptr %memory
}

define ptr @fnx_realloc(ptr %context, ptr %memory, i64 %nbytes) {
entry:
  %new = call ptr @fnx_malloc(ptr %context, i64 %nbytes)
  %failed = icmp eq ptr %new, null
  %nothing = icmp eq ptr %memory, null
  %stop = or i1 %failed, %nothing
  br i1 %stop, label %done, label %copy
copy:
  %block = getelementptr i8, ptr %memory, i64 -64
  %size = load i64, ptr %block
  %room = sub i64 %size, 64
  %less = icmp ult i64 %room, %nbytes
  %count = select i1 %less, i64 %room, i64 %nbytes
  call void @llvm.memcpy.p0.p0.i64(ptr %new, ptr %memory, i64 %count, i1 false)
  call void @fnx_free(ptr %context, ptr %memory, i64 0)
  br label %done
done:
  ret ptr %new
}

define void @fnx_free(ptr %context, ptr %memory, i64 %nbytes) {
entry:
  %nothing = icmp eq ptr %memory, null
  br i1 %nothing, label %done, label %some
some:
  %block = getelementptr i8, ptr %memory, i64 -64
  %size = load i64, ptr %block
  %used = load i64, ptr @fnx_used
  %used.less = sub i64 %used, %size
  store i64 %used.less, ptr @fnx_used
  %kept = load i64, ptr @fnx_kept
  %kept.more = add i64 %kept, %size
  %most = call i64 @llvm.umax.i64(i64 %used, i64 67108864)
  %keep = icmp ule i64 %kept.more, %most
  br i1 %keep, label %push, label %full
push:
  store i64 %kept.more, ptr @fnx_kept
  %room = sub i64 %size, 64
  %class = call { i64, i64 } @class(i64 %room)
  %number = extractvalue { i64, i64 } %class, 1
  %list = getelementptr ptr, ptr @lists, i64 %number
  %first = load ptr, ptr %list
  %next.at = getelementptr i8, ptr %block, i64 8
  store ptr %first, ptr %next.at
  store ptr %block, ptr %list
  br label %done
full:
  call void @free(ptr %block)
  %over = icmp ugt i64 %kept, %most
  br i1 %over, label %less, label %done
less:
  call void @trim(i64 %most)
  br label %done
done:
  ret void
}

; Gives back what is kept above so many bytes, since less is in use than before.
define internal void @trim(i64 %most) {
entry:
  br label %list
list:
  %number = phi i64 [ 511, %entry ], [ %lower, %empty ]
  %list.at = getelementptr ptr, ptr @lists, i64 %number
  br label %next
next:
  %kept = load i64, ptr @fnx_kept
  %over = icmp ugt i64 %kept, %most
  br i1 %over, label %look, label %done
look:
  %block = load ptr, ptr %list.at
  %none = icmp eq ptr %block, null
  br i1 %none, label %empty, label %drop
drop:
  %next.at = getelementptr i8, ptr %block, i64 8
  %rest = load ptr, ptr %next.at
  store ptr %rest, ptr %list.at
  %size = load i64, ptr %block
  %kept.less = sub i64 %kept, %size
  store i64 %kept.less, ptr @fnx_kept
  call void @free(ptr %block)
  br label %next
empty:
  %lower = sub i64 %number, 1
  %last = icmp eq i64 %number, 0
  br i1 %last, label %done, label %list
done:
  ret void
}
"""
