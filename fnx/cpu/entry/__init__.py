"""Native call paths: calls of functions and operators without a line of Python.

`NativeCalls` gives classes of functions a `__call__` in machine code, which compares
the arguments with the tables in a slot of the function, runs what the table that fits
says, and calls the class's Python way where none does; operators and methods of arrays
likewise. What runs is a compiled plan (a jitted function), or NumPy's own loops (an
eager operation, `loops.py`). Only this folder knows how CPython and NumPy lay out
objects (`layout.py`); it is checked at start, and where a check fails there are no
native calls. The code is in `walker.py`, the tables in `table.py`. This is the end of
the walk.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.config import Config, config
from fnx.cpu import jit
from fnx.cpu.entry import layout
from fnx.cpu.entry.layout import Unsupported
from fnx.cpu.entry.loops import eager_loops
from fnx.cpu.entry.rows import NO_MATCH, Caller, Site
from fnx.cpu.entry.steps import RUN, STEP_FUNCTIONS
from fnx.cpu.entry.table import ArenaCell, Result, Runnable, Table, make_table
from fnx.cpu.entry.walker import imports, walker_text
from fnx.errors import InternalError
from fnx.records import record
from fnx.runtime.backend import CallForm, CallSite, Functions, Leaf, Member

_FASTCALL, _KEYWORDS = 0x80, 0x02  # METH_FASTCALL, METH_KEYWORDS


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_MethodAt = ctypes.POINTER(_Method)


class NativeCalls:
    """The native calls of two classes of functions, and of the methods of arrays.

    Raises `Unsupported` on an interpreter that it does not know, and `ImportError`
    without llvmlite.
    """

    def __init__(self, site: CallSite) -> None:
        layout.check()
        self.site = site
        text = walker_text(_addresses(site))
        makers = [f"make_{name}" for name in site.makers]
        members = [f"member_{number}" for number in range(len(site.members))]
        names = ["jitted", "eager", "enter", "nothing", *STEP_FUNCTIONS]
        # More effort would not make a call shorter; less would, by a tenth, longer.
        code = jit.assemble(text, opt=1)
        self.code = jit.load(code, [*names, *makers, *members], imports())
        self.steps = {name: self.code.address(name) for name in STEP_FUNCTIONS}
        self._definitions: list[_Method] = []
        self._methods: list[tuple[Any, str, Any]] = []
        for name, functions in (("jitted", site.jitted), ("eager", site.eager)):
            owner, doc = functions.owner, functions.owner.__call__.__doc__
            method = self._method(owner, self._definition("__call__", doc, name))
            self._methods.append((owner, "__call__", method))
        for name in site.makers:
            self._methods.append((site.arrays, name, self._maker(name)))
        for symbol, member in zip(members, site.members, strict=True):
            self._methods.append(
                (site.owner, member.name, self._member(member, symbol))
            )
        self._test()

    def _method(self, owner: Any, definition: Any) -> Any:
        """The code as a method of a class."""
        new: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, _MethodAt)(
            layout.python_address("PyDescr_NewMethod")
        )
        return new(owner, definition)

    def _member(self, member: Member, symbol: str) -> Any:
        """The code of a member as a method, or as a property."""
        doc = member.function.__doc__
        if member.is_property:
            definition = self._definition(member.name, doc, "eager")
            return property(self._function(definition, member.function), doc=doc)
        # A method of all objects: `Array.sum(x)` is for what is no array, too.
        return self._method(object, self._definition(member.name, doc, symbol))

    def _maker(self, name: str) -> Any:
        """The code that makes arrays, as a function."""
        doc = self.site.makers[name].__doc__
        return self._function(self._definition(name, doc, f"make_{name}"), None)

    def _function(self, definition: Any, bound: Any) -> Any:
        """A built-in function that is bound to an object."""
        new: Any = ctypes.PYFUNCTYPE(
            ctypes.py_object, _MethodAt, ctypes.py_object, ctypes.c_void_p
        )(layout.python_address("PyCFunction_NewEx"))
        return new(definition, bound, None)

    def _definition(self, name: str, doc: str | None, symbol: str) -> Any:
        address, flags = self.code.address(symbol), _FASTCALL | _KEYWORDS
        made = _Method(name.encode(), address, flags, (doc or "").encode())
        self._definitions.append(made)
        return ctypes.pointer(made)

    def install(self) -> None:
        """Gives the classes their methods."""
        for owner, name, method in self._methods:
            setattr(owner, name, method)

    def eager_path(
        self,
        form: CallForm,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        replay: Callable[..., Any],
    ) -> Table | None:
        """A table of the loops and copies that `replay` comes to, if that is all.

        `replay(watcher, *arrays)` computes with NumPy arrays of the types `inputs`; it
        passes what an operation gives through `watcher.settle`.
        """
        loops = eager_loops(self.steps, inputs, outputs, replay)
        if loops is None:
            return None
        return self._table(form, loops.runnable, loops.is_long, loops.data, loops)

    def calling_path(self, form: CallForm, inputs: Sequence[Any]) -> Table | None:
        """A table whose result is made by a Python function (`Called`)."""
        return self._table(form, Runnable(tuple(inputs)))

    def _table(
        self,
        form: CallForm,
        runnable: Runnable,
        release: bool = False,
        data: int = 0,
        keep: Any = None,
    ) -> Table | None:
        run = self.steps[RUN] if data else self.code.address("nothing")
        return make_table(
            runnable,
            run,
            ArenaCell(),
            form,
            release=release,
            keep=(keep, self.code),
            data=data,
        )

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
        for name in self.site.makers:
            self._test_maker(name)

    def _test_maker(self, name: str) -> None:
        """Raises `Unsupported` unless what it makes is what Python makes."""
        data, slow = np.ones((2, 3), np.float32), self.site.makers[name]
        args = (data, self.site.type((2, 3), dtypes.float32))[: 1 + (name == "wrap")]
        made = self._maker(name)
        # The second call finds what the first one noted.
        for wanted, found in ((slow(*args), made(*args)), (slow(*args), made(*args))):
            shares = [x._data is data for x in (wanted, found)]
            same = wanted.type is found.type and shares[0] == shares[1]
            if not same or found._data.flags.writeable or found._data.sum() != 6:
                raise Unsupported(f"{name} makes another array")

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
    values = np.zeros((), np.float32), site.type((), dtypes.float32)
    array = site.array(*values)
    layout.check_slot(array, data, values[0])
    layout.check_slot(array, type_, values[1])
    dtype = layout.slot_offset(site.type, "dtype")
    layout.check_slot(values[1], dtype, dtypes.float32)
    return Site(
        array=id(site.array),
        array_data=data,
        array_type=type_,
        type_dtype=dtype,
        makers={name: id(function) for name, function in site.makers.items()},
        busy=id(site.busy),
        bits=id(dtypes.default_bits_variable),
        strong_zero=id(config) + option,
        callers=(_caller("jitted", site.jitted), _caller("eager", site.eager)),
        members=tuple([id(member.function) for member in site.members]),
    )


def _caller(name: str, functions: Functions) -> Caller:
    paths = layout.slot_offset(functions.owner, "_paths")
    layout.check_slot(functions.one, paths, functions.one._paths)
    disabled = None if functions.disabled is None else id(functions.disabled)
    return Caller(name, paths, id(functions.slow), disabled)


@record
class _Type:
    """Stands for an array type in the test at start."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any] = dtypes.float32


def _test_table(run: int, kinds: dict[str, Any]) -> Table:
    whole, flat, number = kinds["whole"], kinds["flat"], kinds["number"]
    outputs = tuple([Result("input", 0, t) for t in (whole, flat)])
    plan = Runnable((whole, number), outputs, (), 256)
    args = {"x": Leaf(0, "array")}, [None, Leaf(1, "float")]
    result = Leaf(0), {"flat": Leaf(1), "none": None}
    form = CallForm(args, (), result, (), 32, True)
    table = make_table(plan, run, ArenaCell(), form, release=True)
    if table is None:
        raise Unsupported("the table of the test cannot be expressed")
    return table
