"""Native call paths: a jitted function's call without a line of Python.

`NativeCalls` gives a class of functions a `__call__` in machine code, which compares
the arguments with the tables in a slot of the function, runs the plan of the table that
fits, and calls the class's Python way where none does. Only this folder knows how
CPython and NumPy lay out objects (`layout.py`); it is checked at start, and where a
check fails there are no native calls. The code is in `walker.py`, the tables in
`table.py`. This is the end of the walk.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.config import Config, config
from fnx.cpu import jit
from fnx.cpu.entry import layout
from fnx.cpu.entry.layout import Unsupported
from fnx.cpu.entry.table import ArenaCell, Table, make_table
from fnx.cpu.entry.walker import NO_MATCH, Site, imports, walker_text
from fnx.errors import InternalError
from fnx.runtime.backend import CallForm, CallSite, Leaf
from fnx.runtime.plan import Output, Plan

_FASTCALL, _KEYWORDS = 0x80, 0x02  # METH_FASTCALL, METH_KEYWORDS


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class NativeCalls:
    """The native `__call__` of a class of functions.

    Raises `Unsupported` on an interpreter that it does not know, and `ImportError`
    without llvmlite.
    """

    def __init__(self, site: CallSite) -> None:
        layout.check()
        self.site = site
        text = walker_text(_addresses(site))
        names = ["call", "enter", "nothing"]
        # Little of a call is spent here: code made in a hurry is fast enough.
        self.code = jit.load(jit.assemble(text, opt=0), names, imports())
        self._test()
        doc = (site.owner.__call__.__doc__ or "").encode()
        self._definition = _Method(
            b"__call__", self.code.address("call"), _FASTCALL | _KEYWORDS, doc
        )
        new: Any = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.py_object, ctypes.POINTER(_Method)
        )(layout.python_address("PyDescr_NewMethod"))
        self.method: Any = new(site.owner, ctypes.pointer(self._definition))

    def install(self) -> None:
        """Makes the method the class's `__call__`."""
        self.site.owner.__call__ = self.method

    @staticmethod
    def linked(tables: Sequence[Table]) -> tuple[Any, ...]:
        """What the slot of a function holds: tables in the order they are tried."""
        addresses = np.array([*[table.address for table in tables], 0], np.int64)
        return (addresses.tobytes(), *tables)

    def _test(self) -> None:
        """Raises `Unsupported` unless a call through a small table goes right."""
        x = np.ones((2, 3), np.float32)
        kinds = {"whole": _Type((2, 3)), "flat": _Type((6,)), "number": _Type(())}
        table = _test_table(self.code.address("nothing"), kinds)
        held = self.site.array(x, kinds["whole"])
        found = self._enter(table, ({"x": held}, [None, 2.5]))
        wrong = self._enter(table, ({"x": x}, [None, 2.5]))
        whole: Any
        whole, rest = found if isinstance(found, tuple) else (None, {})
        flat: Any = rest.get("flat") if isinstance(rest, dict) else None
        arrays = isinstance(whole, self.site.array) and type(flat) is type(whole)
        if wrong != NO_MATCH or not arrays:
            raise Unsupported("a call through a table gave another result")
        if whole._data is not x or flat.type is not kinds["flat"]:
            raise Unsupported("an array of the result is not what it should be")
        if flat._data.base is not x or flat._data.shape != (6,) or table.hits != 1:
            raise Unsupported("a view in the result is not what it should be")

    def _enter(self, table: Table, args: tuple[Any, ...]) -> Any:
        """The result of a call through one table; `NO_MATCH` if it does not fit."""
        pointer = ctypes.c_void_p
        enter = ctypes.PYFUNCTYPE(pointer, pointer, pointer, ctypes.c_int64, pointer)(
            self.code.address("enter")
        )
        values = (ctypes.py_object * len(args))(*args)
        address = enter(table.address, ctypes.addressof(values), len(args), None)
        if not address or address == NO_MATCH:
            return address
        result = ctypes.cast(address, ctypes.py_object).value
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(result))
        return result


def native_calls(site: CallSite) -> NativeCalls | None:
    """The native calls of a class, or `None` where there are none."""
    try:
        return NativeCalls(site)
    except (Unsupported, ImportError, InternalError):
        # The last: a platform on which LLVM wants functions that are not there.
        return None


def _addresses(site: CallSite) -> Site:
    option = layout.slot_offset(Config, "strong_zero")
    layout.check_slot(config, option, config.strong_zero)
    data, type_ = (layout.slot_offset(site.array, n) for n in ("_data", "type"))
    values = np.zeros(1), object()
    array = site.array(*values)
    layout.check_slot(array, data, values[0])
    layout.check_slot(array, type_, values[1])
    function = site.owner.__new__(site.owner)
    paths = layout.slot_offset(site.owner, site.slot)
    empty: tuple[Any, ...] = ()
    setattr(function, site.slot, empty)
    layout.check_slot(function, paths, empty)
    return Site(
        array=id(site.array),
        array_data=data,
        array_type=type_,
        paths=paths,
        busy=id(site.busy),
        disabled=id(site.disabled),
        bits=id(dtypes.default_bits_variable),
        strong_zero=id(config) + option,
        slow=id(site.slow),
    )


@dataclass(frozen=True, slots=True)
class _Type:
    """Stands for an array type in the test at start."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any] = dtypes.float32


def _test_table(run: int, kinds: dict[str, Any]) -> Table:
    whole, flat, number = kinds["whole"], kinds["flat"], kinds["number"]
    outputs = tuple([Output("input", 0, None, t) for t in (whole, flat)])
    plan = Plan((whole, number), outputs, (), (), 256)
    args = {"x": Leaf(0, "array")}, [None, Leaf(1, "float")]
    result = Leaf(0), {"flat": Leaf(1), "none": None}
    form = CallForm(args, (), result, (), 32, True)
    table = make_table(plan, run, ArenaCell(), form, release=True, failed=print)
    if table is None:
        raise Unsupported("the table of the test cannot be expressed")
    return table
