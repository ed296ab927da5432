"""Where CPython and NumPy keep what a native call path reads, checked once at start.

Gives the offsets inside objects and the addresses of the C functions and types that
`walker.py` calls. Everything here is checked against live objects by `check`; where a
check fails (another interpreter, a free-threaded build, a debug build) calls stay in
Python. Next on the walk: `walker.py`.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

# Every CPython object begins with a reference count and a pointer to its type.
TYPE = 8

# PyArrayObject_fields, part of NumPy's binary interface.
DATA, NDIM, DIMS, DESCR, FLAGS = 16, 24, 32, 56, 64
C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400

# PySliceObject: start, stop and step lie here one after the other.
SLICE = 16

# PyMemberDescrObject.d_member, and PyMemberDef.offset in what it points to.
_MEMBER, _OFFSET = 40, 16

# Rows of NumPy's table of C functions and types.
_NUMPY = {
    "PyArray_Type": 2,
    "PyArray_NewCopy": 85,
    "PyArray_NewFromDescr": 94,
    "PyArray_SetBaseObject": 282,
    "PyDataMem_SetHandler": 304,
}


class Unsupported(Exception):
    """This interpreter is laid out in a way that native call paths do not know."""


def word(address: int) -> int:
    """The 64-bit word at an address."""
    return ctypes.c_uint64.from_address(address).value


def slot_offset(owner: type, name: str) -> int:
    """How many bytes into an instance a slot of a class with `__slots__` lies.

    Raises `Unsupported` where the number found is none that an instance can have.
    """
    member = owner.__dict__[name]
    if type(member).__name__ != "member_descriptor":
        raise Unsupported(f"{owner.__name__}.{name} is no slot")
    offset = word(word(id(member) + _MEMBER) + _OFFSET)
    if not 2 * TYPE <= offset <= owner.__basicsize__ - TYPE or offset % TYPE:
        raise Unsupported(f"{owner.__name__}.{name} at {offset}")
    return offset


def check_slot(instance: Any, offset: int, value: object) -> None:
    """Raises `Unsupported` unless an instance has a value in the slot at an offset."""
    _expect("a slot", word(id(instance) + offset), id(value))


@cache
def python_address(name: str) -> int:
    """The address of a function of CPython's C interface."""
    try:
        function = getattr(ctypes.pythonapi, name)
    except AttributeError:
        raise Unsupported(f"no {name} in this interpreter") from None
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@cache
def numpy_address(name: str) -> int:
    """The address of a function or type of NumPy's C interface."""
    # NumPy 2 renamed the module that holds its table.
    core = getattr(np, "_core", None) or np.core
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    get = pointer(("PyCapsule_GetPointer", ctypes.pythonapi))
    return word(get(core.multiarray._ARRAY_API, None) + TYPE * _NUMPY[name])


@cache
def check() -> None:
    """Raises `Unsupported` unless objects are laid out as this file says."""
    if sys.implementation.name != "cpython" or sys.version_info < (3, 11):
        raise Unsupported(f"{sys.implementation.name} {sys.version.split()[0]}")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise Unsupported("a free-threaded build")
    _expect("the size of a pointer", ctypes.sizeof(ctypes.c_void_p), TYPE)
    values: tuple[Any, ...] = ({}, [], (), 1.5, np.float32, None)
    for value in values:
        _expect("an object's type", word(id(value) + TYPE), id(type(value)))
    parts = slice(object(), "stop", 2.5)
    found = [word(id(parts) + SLICE + TYPE * n) for n in range(3)]
    _expect("a slice", found, [id(parts.start), id(parts.stop), id(parts.step)])
    _expect("NumPy's table", numpy_address("PyArray_Type"), id(np.ndarray))
    for shape, dtype in (((2, 3), np.float32), ((), np.int64), ((0, 5), np.bool_)):
        _check_array(np.empty(shape, dtype))


def _check_array(x: np.ndarray[Any, Any]) -> None:
    for writeable in (True, False):
        x.flags.writeable = writeable
        start = id(x)
        _expect("an array's data", word(start + DATA), x.ctypes.data)
        _expect("an array's rank", word(start + NDIM) & 0xFFFFFFFF, x.ndim)
        _expect("an array's dtype", word(start + DESCR), id(x.dtype))
        flags = word(start + FLAGS) & 0xFFFFFFFF
        _expect("an array's flags", flags, x.flags.num)
        wanted = C_CONTIGUOUS | ALIGNED | (WRITEABLE if writeable else 0)
        mask = C_CONTIGUOUS | ALIGNED | WRITEABLE
        _expect("an array's flags", flags & mask, wanted)
        sizes = word(start + DIMS)
        found = [word(sizes + TYPE * axis) for axis in range(x.ndim)]
        _expect("an array's shape", tuple(found), x.shape)


def _expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise Unsupported(f"{what}: found {found}, expected {wanted}")


# PyUFuncObject: how many operands, the loops and their data, how many loops there are.
_NARGS, _LOOPS, _LOOP_DATA, _LOOP_COUNT = 24, 32, 40, 48


def ufunc_loops(
    ufunc: np.ufunc, inputs: Sequence[Any], outputs: Sequence[Any]
) -> tuple[int, int, list[np.dtype[Any]]]:
    """The loop of a ufunc over arrays of these dtypes: function, data, all dtypes.

    Inputs that are Python numbers take the dtype that the loop has for them. Raises
    `Unsupported` where no loop takes and gives exactly these.
    """
    start = id(ufunc)
    count = word(start + _LOOP_COUNT) & 0xFFFFFFFF
    _expect("a ufunc's operands", word(start + _NARGS) & 0xFFFFFFFF, ufunc.nargs)
    _expect("a ufunc's loops", count, ufunc.ntypes)
    wanted = [getattr(x, "dtype", None) for x in (*inputs, *outputs)]
    for number, types in enumerate(ufunc.types):
        dtypes = [np.dtype(letter) for letter in types.replace("->", "")]
        if all(w is None or w == d for w, d in zip(wanted, dtypes, strict=True)):
            at = number * TYPE
            function = word(word(start + _LOOPS) + at)
            data = word(word(start + _LOOP_DATA) + at)
            return function, data, dtypes
    raise Unsupported(f"{ufunc} has no loop over {wanted}")
