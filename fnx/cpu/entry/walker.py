"""The call path as machine code: one function that serves every signature.

Gives the LLVM text of methods with CPython's METH_FASTCALL calling convention, one for
each class of functions. They read tables (made by `table.py`, one for each signature):
rows that check the arguments and find the memory behind them, rows that make output
arrays, and rows that build the result. Tables instead of code for each signature, so
that a signature with hundreds of leaves costs no compile. What the rows mean is said
where they are printed below.

A call owns a *frame* of words on the stack: values, pointers for the plan, the arrays
that it holds references to, scalars, and a stack from which the result is built.
The words of a row after its operation are called a, b, c, d and e; "frame a" is the
word number a of the frame. Next on the walk: `table.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from fnx.cpu.entry import layout
from fnx.cpu.entry.steps import STEPS

# A row of a table: an operation and its operands.
ROW_WORDS = 6
NO_MATCH = 1  # what `enter` gives where the arguments are not those of a table


class Word(IntEnum):
    """The words of a table's head."""

    POSITIONAL = 0  # how many arguments have no name
    NAMED = 1  # how many have one
    NAMES = 2  # the address of their names
    BITS = 3  # the default width of dtypes under which it was traced
    STRONG_ZERO = 4  # config.strong_zero under which it was traced
    CHECKS = 5  # first row of each kind; each kind ends where the next begins
    OUTPUTS = 6
    RESULTS = 7
    END = 8
    FRAME = 9  # words of the frame
    HELD = 10  # frame: the first array that is held, and behind the last
    HELD_END = 11
    POINTERS = 12  # frame: the pointers for the plan; the last one is the arena's
    ARENA_POINTER = 13
    ARENA = 14  # bytes of the arena
    ARENA_CELL = 15  # the address of the word that keeps a free arena
    STACK = 16  # frame: where the result is built
    RUN = 17  # the plan's function
    RELEASE = 18  # whether other Python threads may run meanwhile
    FAILED = 19  # called with the address of the pointers if the plan fails
    HITS = 20  # counts the calls
    DATA = 21  # the second argument of the plan's function


class Check(IntEnum):
    """Rows that check the arguments."""

    LOAD = 0
    SAME = 1
    ARRAY = 2
    NUMPY = 3
    DICT = 4
    ITEM = 5
    LIST = 6
    TUPLE = 7
    FLOAT32 = 8
    FLOAT64 = 9
    INTEGER = 10
    BOOL = 11
    INTEGER32 = 12
    INTEGER64 = 13
    SLICE = 14


class Build(IntEnum):
    """Rows that build the result; each leaves one value on the stack."""

    ARRAY = 0
    CONSTANT = 1
    VIEW = 2
    OBJECT = 3
    DICT = 4
    LIST = 5
    TUPLE = 6
    CALL = 7
    DATA = 8
    ARGUMENT = 9


@dataclass(frozen=True, slots=True)
class Caller:
    """A class of functions, by addresses."""

    name: str  # of its method in the module
    paths: int  # the slot of a function that holds its tables
    slow: int  # the Python function behind
    disabled: int | None  # a context variable that is False while calls may be native


@dataclass(frozen=True, slots=True)
class Site:
    """The objects that the code knows by their addresses."""

    array: int  # the class of arrays and its slots
    array_data: int
    array_type: int
    busy: int  # a list that is empty while native calls are allowed
    bits: int  # the context variable of the default width of dtypes
    strong_zero: int  # the address of the option's slot in `config`
    callers: tuple[Caller, ...]


def walker_text(site: Site) -> str:
    """The module that defines the methods."""
    calls = [_call(site, caller) for caller in site.callers]
    arguments = *calls, _CALLS, _enter(), _NAMES_MATCH, _check(site), _NUMBERS
    running = _outputs(), _RUN, STEPS, _LET_GO, _NOTHING
    results = _build(), _wrap(site), _CONTAINERS
    declared = [f"declare {line}" for line in _DECLARED.values()]
    return "\n".join((*arguments, *running, *results, *declared)) + "\n"


def imports() -> Mapping[str, int]:
    """The addresses of the functions that the module calls."""
    numpy = [name for name in _DECLARED if name.startswith(("PyArray", "PyDataMem"))]
    others = (name for name in _DECLARED if not name.startswith("llvm"))
    python = [name for name in others if name not in numpy]
    return {name: layout.python_address(name) for name in python} | {
        name: layout.numpy_address(name) for name in numpy
    }


_DECLARED = {
    "Py_IncRef": "void @Py_IncRef(ptr)",
    "Py_DecRef": "void @Py_DecRef(ptr)",
    "PyArray_NewFromDescr": (
        "ptr @PyArray_NewFromDescr(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)"
    ),
    "PyArray_SetBaseObject": "i32 @PyArray_SetBaseObject(ptr, ptr)",
    "PyBytes_AsString": "ptr @PyBytes_AsString(ptr)",
    "PyContextVar_Get": "i32 @PyContextVar_Get(ptr, ptr, ptr)",
    "PyDataMem_SetHandler": "ptr @PyDataMem_SetHandler(ptr)",
    "PyDict_GetItemWithError": "ptr @PyDict_GetItemWithError(ptr, ptr)",
    "PyDict_New": "ptr @PyDict_New()",
    "PyDict_SetItem": "i32 @PyDict_SetItem(ptr, ptr, ptr)",
    "PyDict_Size": "i64 @PyDict_Size(ptr)",
    "PyErr_Clear": "void @PyErr_Clear()",
    "PyErr_NoMemory": "ptr @PyErr_NoMemory()",
    "PyEval_RestoreThread": "void @PyEval_RestoreThread(ptr)",
    "PyEval_SaveThread": "ptr @PyEval_SaveThread()",
    "PyFloat_AsDouble": "double @PyFloat_AsDouble(ptr)",
    "PyList_GetItem": "ptr @PyList_GetItem(ptr, i64)",
    "PyList_New": "ptr @PyList_New(i64)",
    "PyList_SetItem": "i32 @PyList_SetItem(ptr, i64, ptr)",
    "PyList_Size": "i64 @PyList_Size(ptr)",
    "PyLong_AsLongLongAndOverflow": "i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)",
    "PyLong_FromVoidPtr": "ptr @PyLong_FromVoidPtr(ptr)",
    "PyMem_RawFree": "void @PyMem_RawFree(ptr)",
    "PyMem_RawMalloc": "ptr @PyMem_RawMalloc(i64)",
    "PyObject_Vectorcall": "ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)",
    "PyTuple_GetItem": "ptr @PyTuple_GetItem(ptr, i64)",
    "PyTuple_New": "ptr @PyTuple_New(i64)",
    "PyTuple_SetItem": "i32 @PyTuple_SetItem(ptr, i64, ptr)",
    "PyTuple_Size": "i64 @PyTuple_Size(ptr)",
    "PyType_GenericAlloc": "ptr @PyType_GenericAlloc(ptr, i64)",
    "llvm.fabs.f32": "float @llvm.fabs.f32(float)",
    "llvm.fabs.f64": "double @llvm.fabs.f64(double)",
    "llvm.memcpy.p0.p0.i64": "void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    "llvm.memset.p0.i64": "void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
}


# ---------------------------------------------------------------- pieces of text


def _address(value: int) -> str:
    return f"inttoptr (i64 {value} to ptr)"


def _at(name: str, base: str, offset: int, type_: str = "ptr") -> str:
    """Loads what lies some bytes into an object."""
    return (
        f"{name}.at = getelementptr i8, ptr {base}, i64 {offset}\n"
        f"  {name} = load {type_}, ptr {name}.at"
    )


def _head(name: str, word: Word, type_: str = "i64") -> str:
    """Loads a word of the table's head."""
    return _at(name, "%table", 8 * word, type_)


def _field(name: str, letter: str, type_: str = "i64", row: str = "%row") -> str:
    """Loads an operand of a row: 'a' to 'e'; its operation is '@'."""
    return _at(name, row, 8 * "@abcde".index(letter), type_)


def _frame(name: str, number: str, type_: str | None = None) -> str:
    """The place of a word of the frame (`name.at`), and its value if asked for."""
    place = f"{name}.at = getelementptr i64, ptr %frame, i64 {number}"
    return (
        place if type_ is None else f"{place}\n  {name} = load {type_}, ptr {name}.at"
    )


def _put(name: str, letter: str, value: str, type_: str = "ptr") -> str:
    """Stores a value in the word of the frame that a row's operand names."""
    return (
        f"{_field(f'{name}.n', letter)}\n  {_frame(name, f'{name}.n')}\n"
        f"  store {type_} {value}, ptr {name}.at"
    )


# ---------------------------------------------------------------- the method


def _call(site: Site, caller: Caller) -> str:
    """A method: every table of the function in turn, then the way through Python.

    The tuple in the function's slot is held meanwhile: it keeps tables and code alive.
    """
    enabled = "br label %ready"
    if caller.disabled is not None:
        enabled = f"""%disabled = call ptr @variable(ptr {_address(caller.disabled)})
  %usual = icmp eq ptr %disabled, {_address(id(False))}
  br i1 %usual, label %ready, label %slow"""
    return f"""
define ptr @{caller.name}(ptr %self, ptr %args, i64 %count, ptr %names) {{
entry:
  %busy = call i64 @PyList_Size(ptr {_address(site.busy)})
  %idle = icmp eq i64 %busy, 0
  br i1 %idle, label %enabled, label %slow
enabled:
  {enabled}
ready:
  {_at("%paths", "%self", caller.paths)}
  %none = icmp eq ptr %paths, null
  br i1 %none, label %slow, label %some
some:
  %size = call i64 @PyTuple_Size(ptr %paths)
  %empty = icmp slt i64 %size, 1
  br i1 %empty, label %slow, label %hold
hold:
  call void @Py_IncRef(ptr %paths)
  %bits = call ptr @variable(ptr {_address(site.bits)})
  %strong = load ptr, ptr {_address(site.strong_zero)}
  %bytes = call ptr @PyTuple_GetItem(ptr %paths, i64 0)
  %tables = call ptr @PyBytes_AsString(ptr %bytes)
  br label %next
next:
  %place = phi ptr [ %tables, %hold ], [ %after, %other ]
  %table = load ptr, ptr %place
  %last = icmp eq ptr %table, null
  br i1 %last, label %unknown, label %try
try:
  {_head("%wanted.bits", Word.BITS, "ptr")}
  {_head("%wanted.strong", Word.STRONG_ZERO, "ptr")}
  %same.bits = icmp eq ptr %bits, %wanted.bits
  %same.strong = icmp eq ptr %strong, %wanted.strong
  %same = and i1 %same.bits, %same.strong
  br i1 %same, label %enter, label %other
enter:
  %result = call ptr @enter(ptr %table, ptr %args, i64 %count, ptr %names)
  %differs = icmp eq ptr %result, {_address(NO_MATCH)}
  br i1 %differs, label %other, label %done
other:
  %after = getelementptr ptr, ptr %place, i64 1
  br label %next
done:
  call void @Py_DecRef(ptr %paths)
  ret ptr %result
unknown:
  call void @Py_DecRef(ptr %paths)
  br label %slow
slow:
  %named = call i64 @length(ptr %names)
  %total = add i64 %count, %named
  %more = add i64 %total, 1
  %all = alloca ptr, i64 %more
  store ptr %self, ptr %all
  %rest = getelementptr ptr, ptr %all, i64 1
  %nbytes = mul i64 %total, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %rest, ptr %args, i64 %nbytes, i1 false)
  %given = add i64 %count, 1
  %answer = call ptr @PyObject_Vectorcall(
    ptr {_address(caller.slow)}, ptr %all, i64 %given, ptr %names)
  ret ptr %answer
}}
"""


_CALLS = """
; The length of a tuple, or 0 where there is none.
define internal i64 @length(ptr %tuple) {
  %none = icmp eq ptr %tuple, null
  br i1 %none, label %absent, label %present
absent:
  ret i64 0
present:
  %size = call i64 @PyTuple_Size(ptr %tuple)
  ret i64 %size
}

; The value of a context variable, for comparison with objects that live for ever.
define internal ptr @variable(ptr %variable) {
  %place = alloca ptr
  store ptr null, ptr %place
  %status = call i32 @PyContextVar_Get(ptr %variable, ptr null, ptr %place)
  %value = load ptr, ptr %place
  %none = icmp eq ptr %value, null
  br i1 %none, label %absent, label %present
absent:
  call void @PyErr_Clear()
  ret ptr null
present:
  call void @Py_DecRef(ptr %value)
  ret ptr %value
}
"""


def _enter() -> str:
    """One table: checks, output arrays, the plan, the result; then lets go of all."""
    return f"""
define ptr @enter(ptr %table, ptr %args, i64 %count, ptr %names) {{
entry:
  {_head("%positional", Word.POSITIONAL)}
  {_head("%named", Word.NAMED)}
  %same = icmp eq i64 %positional, %count
  %given = call i64 @length(ptr %names)
  %same.named = icmp eq i64 %named, %given
  %fits = and i1 %same, %same.named
  br i1 %fits, label %prepare, label %differs
prepare:
  {_head("%size", Word.FRAME)}
  %frame = alloca i64, i64 %size, align 16
  {_head("%held", Word.HELD)}
  {_head("%held.end", Word.HELD_END)}
  {_frame("%first", "%held")}
  %held.count = sub i64 %held.end, %held
  %held.bytes = mul i64 %held.count, 8
  call void @llvm.memset.p0.i64(ptr %first.at, i8 0, i64 %held.bytes, i1 false)
  %total = add i64 %count, %given
  %nbytes = mul i64 %total, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %frame, ptr %args, i64 %nbytes, i1 false)
  %by.name = call i1 @names_match(ptr %table, ptr %names, i64 %given)
  br i1 %by.name, label %check, label %differs
check:
  %matches = call i1 @check(ptr %table, ptr %frame)
  br i1 %matches, label %make, label %mismatch
make:
  {_head("%hits", Word.HITS)}
  %more = add i64 %hits, 1
  store i64 %more, ptr %hits.at
  %made = call i1 @make_outputs(ptr %table, ptr %frame)
  br i1 %made, label %run, label %failed
run:
  %ran = call i1 @run(ptr %table, ptr %frame)
  br i1 %ran, label %build, label %failed
build:
  %result = call ptr @build(ptr %table, ptr %frame)
  call void @let_go(ptr %table, ptr %frame)
  ret ptr %result
failed:
  call void @let_go(ptr %table, ptr %frame)
  ret ptr null
mismatch:
  call void @let_go(ptr %table, ptr %frame)
  br label %differs
differs:
  ret ptr {_address(NO_MATCH)}
}}
"""


_NAMES_MATCH = f"""
; Whether the named arguments are those of the table, in its order.
define internal i1 @names_match(ptr %table, ptr %names, i64 %count) {{
entry:
  {_head("%wanted", Word.NAMES, "ptr")}
  br label %next
next:
  %number = phi i64 [ 0, %entry ], [ %after, %one ]
  %done = icmp eq i64 %number, %count
  br i1 %done, label %same, label %look
look:
  %name = call ptr @PyTuple_GetItem(ptr %names, i64 %number)
  %place = getelementptr ptr, ptr %wanted, i64 %number
  %known = load ptr, ptr %place
  %equal = icmp eq ptr %name, %known
  br i1 %equal, label %one, label %differs
one:
  %after = add i64 %number, 1
  br label %next
same:
  ret i1 true
differs:
  ret i1 false
}}
"""


# ---------------------------------------------------------------- the arguments


def _switch(operations: type[IntEnum]) -> str:
    cases = " ".join(f"i64 {op.value}, label %{op.name.lower()}" for op in operations)
    return f"switch i64 %op, label %unknown [ {cases} ]"


def _check(site: Site) -> str:
    """Goes through the rows of checks; false at the first that does not hold.

    Arrays are held (a reference each) as soon as they are found, so that neither
    `delete` nor another thread can take their memory away during the call.
    """
    return f"""
define internal i1 @check(ptr %table, ptr %frame) {{
entry:
  {_head("%first", Word.CHECKS, "ptr")}
  {_head("%end", Word.OUTPUTS, "ptr")}
  br label %next
next:
  %row = phi ptr [ %first, %entry ], [ %after, %holds ]
  %done = icmp eq ptr %row, %end
  br i1 %done, label %all, label %one
one:
  {_field("%op", "@")}
  {_field("%a", "a")}
  {_frame("%x", "%a", "ptr")}
  {_field("%b", "b", "ptr")}
  {_switch(Check)}
holds:
  %after = getelementptr i64, ptr %row, i64 {ROW_WORDS}
  br label %next
all:
  ret i1 true
unknown:
  br label %differs
differs:
  ret i1 false

load:  ; frame a = the object b
  store ptr %b, ptr %x.at
  br label %holds

same:  ; frame a is the object b
  %is.same = icmp eq ptr %x, %b
  br i1 %is.same, label %holds, label %differs

array:  ; frame a is an array of type b; its memory is frame c, what holds it frame d
  {_at("%array.class", "%x", layout.TYPE)}
  %is.array = icmp eq ptr %array.class, {_address(site.array)}
  br i1 %is.array, label %array.type, label %differs
array.type:
  {_at("%of.type", "%x", site.array_type)}
  %is.type = icmp eq ptr %of.type, %b
  br i1 %is.type, label %array.hold, label %differs
array.hold:
  {_at("%held", "%x", site.array_data)}
  br label %hold
hold:
  %owner = phi ptr [ %held, %array.hold ], [ %x, %numpy.hold ]
  call void @Py_IncRef(ptr %owner)
  {_put("%holder", "d", "%owner")}
  {_at("%memory", "%owner", layout.DATA)}
  {_put("%pointer", "c", "%memory")}
  br label %holds

numpy:  ; frame a is a NumPy array of dtype b; c, d as before; e has rank and sizes
  {_at("%numpy.class", "%x", layout.TYPE)}
  %is.numpy = icmp eq ptr %numpy.class, {_address(layout.numpy_address("PyArray_Type"))}
  br i1 %is.numpy, label %numpy.dtype, label %differs
numpy.dtype:
  {_at("%dtype", "%x", layout.DESCR)}
  %is.dtype = icmp eq ptr %dtype, %b
  {_at("%flags", "%x", layout.FLAGS, "i32")}
  %usable = and i32 %flags, {layout.C_CONTIGUOUS | layout.ALIGNED}
  %is.usable = icmp eq i32 %usable, {layout.C_CONTIGUOUS | layout.ALIGNED}
  {_field("%shape", "e", "ptr")}
  %rank = load i64, ptr %shape
  {_at("%ndim", "%x", layout.NDIM, "i32")}
  %ndim.wide = zext i32 %ndim to i64
  %is.rank = icmp eq i64 %ndim.wide, %rank
  %plain = and i1 %is.dtype, %is.usable
  %numpy.fits = and i1 %plain, %is.rank
  br i1 %numpy.fits, label %numpy.sizes, label %differs
numpy.sizes:
  {_at("%dims", "%x", layout.DIMS)}
  br label %numpy.next
numpy.next:
  %axis = phi i64 [ 0, %numpy.sizes ], [ %axis.next, %numpy.axis ]
  %no.more = icmp eq i64 %axis, %rank
  br i1 %no.more, label %numpy.hold, label %numpy.axis
numpy.axis:
  %axis.next = add i64 %axis, 1
  %size.at = getelementptr i64, ptr %shape, i64 %axis.next
  %size = load i64, ptr %size.at
  %dim.at = getelementptr i64, ptr %dims, i64 %axis
  %dim = load i64, ptr %dim.at
  %is.size = icmp eq i64 %size, %dim
  br i1 %is.size, label %numpy.next, label %differs
numpy.hold:
  br label %hold

slice:  ; frame a is a slice; its start, stop and step go to the frame from c on
  {_at("%slice.class", "%x", layout.TYPE)}
  %is.slice = icmp eq ptr %slice.class, {_address(id(slice))}
  br i1 %is.slice, label %slice.parts, label %differs
slice.parts:
  {_field("%slice.n", "c")}
  {_frame("%slice.first", "%slice.n")}
  %slice.from = getelementptr i8, ptr %x, i64 {layout.SLICE}
  call void @llvm.memcpy.p0.p0.i64(
    ptr %slice.first.at, ptr %slice.from, i64 {3 * 8}, i1 false)
  br label %holds

dict:  ; frame a is a dict with b entries
  {_at("%dict.class", "%x", layout.TYPE)}
  %is.dict = icmp eq ptr %dict.class, {_address(id(dict))}
  br i1 %is.dict, label %dict.size, label %differs
dict.size:
  %entries = call i64 @PyDict_Size(ptr %x)
  %entries.wanted = ptrtoint ptr %b to i64
  %is.full = icmp eq i64 %entries, %entries.wanted
  br i1 %is.full, label %holds, label %differs

item:  ; frame c = the entry of the dict in frame a at the key b
  %entry.value = call ptr @PyDict_GetItemWithError(ptr %x, ptr %b)
  %is.absent = icmp eq ptr %entry.value, null
  br i1 %is.absent, label %item.absent, label %item.found
item.absent:
  call void @PyErr_Clear()
  br label %differs
item.found:
  {_put("%item", "c", "%entry.value")}
  br label %holds

list:  ; frame a is a list of length b; its elements go to the frame from c on
  {_at("%list.class", "%x", layout.TYPE)}
  %is.list = icmp eq ptr %list.class, {_address(id(list))}
  br i1 %is.list, label %list.size, label %differs
list.size:
  %listed = call i64 @PyList_Size(ptr %x)
  br label %sequence

tuple:  ; frame a is of class d, a tuple of length b; its elements likewise
  {_at("%tuple.class", "%x", layout.TYPE)}
  {_field("%tuple.wanted", "d", "ptr")}
  %is.tuple = icmp eq ptr %tuple.class, %tuple.wanted
  br i1 %is.tuple, label %tuple.size, label %differs
tuple.size:
  %tupled = call i64 @PyTuple_Size(ptr %x)
  br label %sequence

sequence:
  %length = phi i64 [ %listed, %list.size ], [ %tupled, %tuple.size ]
  %length.wanted = ptrtoint ptr %b to i64
  %is.long = icmp eq i64 %length, %length.wanted
  br i1 %is.long, label %elements, label %differs
elements:
  {_field("%target", "c")}
  {_frame("%elements.first", "%target")}
  br label %element
element:
  %index = phi i64 [ 0, %elements ], [ %index.next, %element.put ]
  %no.element = icmp eq i64 %index, %length
  br i1 %no.element, label %holds, label %element.get
element.get:
  %of.list = icmp eq i64 %op, {Check.LIST.value}
  br i1 %of.list, label %list.get, label %tuple.get
list.get:
  %from.list = call ptr @PyList_GetItem(ptr %x, i64 %index)
  br label %element.put
tuple.get:
  %from.tuple = call ptr @PyTuple_GetItem(ptr %x, i64 %index)
  br label %element.put
element.put:
  %element.value = phi ptr [ %from.list, %list.get ], [ %from.tuple, %tuple.get ]
  %element.at = getelementptr ptr, ptr %elements.first.at, i64 %index
  store ptr %element.value, ptr %element.at
  %index.next = add i64 %index, 1
  br label %element

float32:
  br label %number
float64:
  br label %number
integer:
  br label %number
integer32:
  br label %number
integer64:
  br label %number
bool:
  br label %number
number:  ; frame a is a Python number that fits, an integer one if it is in [d, e]; it
         ; is stored in frame b, and frame c is the address of that
  {_field("%scratch.n", "b")}
  {_frame("%scratch", "%scratch.n")}
  {_put("%number", "c", "%scratch.at")}
  {_field("%low", "d")}
  {_field("%high", "e")}
  %is.number = call i1 @store_number(
    i64 %op, ptr %x, ptr %scratch.at, i64 %low, i64 %high)
  br i1 %is.number, label %holds, label %differs
}}
"""


_NUMBERS = f"""
; Stores a Python number; false where it is of another class or does not fit. Eight
; bytes of an integer are stored: the first ones are those of the narrower dtypes.
define internal i1 @store_number(
  i64 %op, ptr %x, ptr %target, i64 %low, i64 %high) {{
entry:
  %overflow.at = alloca i32
  {_at("%class", "%x", layout.TYPE)}
  switch i64 %op, label %real [
    i64 {Check.INTEGER.value}, label %integer
    i64 {Check.INTEGER32.value}, label %integer
    i64 {Check.INTEGER64.value}, label %integer
    i64 {Check.BOOL.value}, label %truth ]
differs:
  ret i1 false
fits:
  ret i1 true

real:
  %is.real = icmp eq ptr %class, {_address(id(float))}
  br i1 %is.real, label %real.value, label %differs
real.value:
  %real64 = call double @PyFloat_AsDouble(ptr %x)
  %wide = icmp eq i64 %op, {Check.FLOAT64.value}
  br i1 %wide, label %real.wide, label %real.narrow
real.wide:
  store double %real64, ptr %target
  br label %fits
real.narrow:  ; one that is too large for 32 bits is left to Python
  %real32 = fptrunc double %real64 to float
  store float %real32, ptr %target
  %size64 = call double @llvm.fabs.f64(double %real64)
  %size32 = call float @llvm.fabs.f32(float %real32)
  %was.finite = fcmp one double %size64, 0x7FF0000000000000
  %is.infinite = fcmp oeq float %size32, 0x7FF0000000000000
  %overflows = and i1 %was.finite, %is.infinite
  br i1 %overflows, label %differs, label %fits

integer:
  %is.integer = icmp eq ptr %class, {_address(id(int))}
  br i1 %is.integer, label %integer.value, label %differs
integer.value:
  %int64 = call i64 @PyLong_AsLongLongAndOverflow(ptr %x, ptr %overflow.at)
  %overflow = load i32, ptr %overflow.at
  %exact = icmp eq i32 %overflow, 0
  br i1 %exact, label %integer.bounds, label %differs
integer.bounds:
  %not.low = icmp sge i64 %int64, %low
  %not.high = icmp sle i64 %int64, %high
  %inside = and i1 %not.low, %not.high
  br i1 %inside, label %integer.target, label %differs
integer.target:
  switch i64 %op, label %integer.plain [
    i64 {Check.INTEGER32.value}, label %integer.narrow
    i64 {Check.INTEGER64.value}, label %integer.wide ]
integer.plain:
  store i64 %int64, ptr %target
  br label %fits
integer.narrow:  ; a float of an integer beside 32-bit floats
  %rounded = sitofp i64 %int64 to float
  store float %rounded, ptr %target
  br label %fits
integer.wide:
  %exact64 = sitofp i64 %int64 to double
  store double %exact64, ptr %target
  br label %fits

truth:
  %is.truth = icmp eq ptr %class, {_address(id(bool))}
  br i1 %is.truth, label %truth.value, label %differs
truth.value:
  %true = icmp eq ptr %x, {_address(id(True))}
  %byte = zext i1 %true to i8
  store i8 %byte, ptr %target
  br label %fits
}}
"""


# ---------------------------------------------------------------- running


def _outputs() -> str:
    """Makes the output arrays, which nobody may write to but the plan.

    A row has the dtype in place of its operation, then a: rank, b: sizes, c: frame for
    the memory, d: frame for the array, e: where memory comes from, or 0.
    """
    return f"""
define internal i1 @make_outputs(ptr %table, ptr %frame) {{
entry:
  {_head("%first", Word.OUTPUTS, "ptr")}
  {_head("%end", Word.RESULTS, "ptr")}
  br label %next
next:
  %row = phi ptr [ %first, %entry ], [ %after, %made ]
  %done = icmp eq ptr %row, %end
  br i1 %done, label %all, label %one
one:
  {_field("%dtype", "@", "ptr")}
  {_field("%rank", "a")}
  {_field("%sizes", "b", "ptr")}
  {_field("%handler", "e", "ptr")}
  %usual = icmp eq ptr %handler, null
  br i1 %usual, label %small, label %large
small:
  %small.array = call ptr @new_array(ptr %dtype, i64 %rank, ptr %sizes, ptr null)
  br label %look
large:
  %before = call ptr @PyDataMem_SetHandler(ptr %handler)
  %refused = icmp eq ptr %before, null
  br i1 %refused, label %failed, label %allocate
allocate:
  %large.array = call ptr @new_array(ptr %dtype, i64 %rank, ptr %sizes, ptr null)
  %ours = call ptr @PyDataMem_SetHandler(ptr %before)
  call void @Py_DecRef(ptr %before)
  call void @Py_DecRef(ptr %ours)
  br label %look
look:
  %array = phi ptr [ %small.array, %small ], [ %large.array, %allocate ]
  %none = icmp eq ptr %array, null
  br i1 %none, label %failed, label %made
made:
  {_put("%holder", "d", "%array")}
  {_at("%memory", "%array", layout.DATA)}
  {_put("%pointer", "c", "%memory")}
  {_at("%flags", "%array", layout.FLAGS, "i32")}
  %fixed = and i32 %flags, {~layout.WRITEABLE}
  store i32 %fixed, ptr %flags.at
  %after = getelementptr i64, ptr %row, i64 {ROW_WORDS}
  br label %next
all:
  ret i1 true
failed:
  ret i1 false
}}

; A NumPy array of memory that is given, or of its own.
define internal ptr @new_array(ptr %dtype, i64 %rank, ptr %sizes, ptr %memory) {{
  call void @Py_IncRef(ptr %dtype)
  %own = icmp eq ptr %memory, null
  %flags = select i1 %own, i32 0, i32 {layout.C_CONTIGUOUS | layout.ALIGNED}
  %ndim = trunc i64 %rank to i32
  %array = call ptr @PyArray_NewFromDescr(
    ptr {_address(layout.numpy_address("PyArray_Type"))}, ptr %dtype, i32 %ndim,
    ptr %sizes, ptr null, ptr %memory, i32 %flags, ptr null)
  ret ptr %array
}}
"""


_RUN = f"""
; Runs the plan. A free arena waits in a cell that its calls share; whoever finds the
; cell empty makes one, and one that comes back to a full cell is freed.
define internal i1 @run(ptr %table, ptr %frame) {{
entry:
  {_head("%pointers.n", Word.POINTERS)}
  {_frame("%pointers", "%pointers.n")}
  {_head("%plan", Word.RUN, "ptr")}
  {_head("%data", Word.DATA, "ptr")}
  {_head("%size", Word.ARENA)}
  {_head("%cell", Word.ARENA_CELL, "ptr")}
  %without = icmp eq i64 %size, 0
  br i1 %without, label %ready, label %take
take:
  %kept = atomicrmw xchg ptr %cell, i64 0 seq_cst
  %waiting = inttoptr i64 %kept to ptr
  %empty = icmp eq i64 %kept, 0
  br i1 %empty, label %make, label %place
make:
  %more = add i64 %size, 64
  %new = call ptr @PyMem_RawMalloc(i64 %more)
  %none = icmp eq ptr %new, null
  br i1 %none, label %no.memory, label %place
no.memory:
  %error = call ptr @PyErr_NoMemory()
  ret i1 false
place:
  %block = phi ptr [ %waiting, %take ], [ %new, %make ]
  %start = ptrtoint ptr %block to i64
  %beyond = add i64 %start, 63
  %aligned = and i64 %beyond, -64
  {_head("%arena.n", Word.ARENA_POINTER)}
  {_frame("%arena", "%arena.n")}
  store i64 %aligned, ptr %arena.at
  br label %ready
ready:
  %arena.block = phi ptr [ null, %entry ], [ %block, %place ]
  {_head("%release", Word.RELEASE)}
  %short = icmp eq i64 %release, 0
  br i1 %short, label %keep, label %leave
keep:
  %status.kept = call i32 %plan(ptr %pointers.at, ptr %data)
  br label %ran
leave:
  %thread = call ptr @PyEval_SaveThread()
  %status.left = call i32 %plan(ptr %pointers.at, ptr %data)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %ran
ran:
  %status = phi i32 [ %status.kept, %keep ], [ %status.left, %leave ]
  br i1 %without, label %finish, label %return
return:
  %returned = ptrtoint ptr %arena.block to i64
  %before = atomicrmw xchg ptr %cell, i64 %returned seq_cst
  %surplus = inttoptr i64 %before to ptr
  call void @PyMem_RawFree(ptr %surplus)
  br label %finish
finish:
  %good = icmp eq i32 %status, 0
  br i1 %good, label %succeeded, label %raise
raise:  ; Python kept the error under the address of the pointers
  {_head("%failed", Word.FAILED, "ptr")}
  %address = call ptr @PyLong_FromVoidPtr(ptr %pointers.at)
  %argument = alloca ptr
  store ptr %address, ptr %argument
  %nothing = call ptr @PyObject_Vectorcall(
    ptr %failed, ptr %argument, i64 1, ptr null)
  call void @Py_DecRef(ptr %address)
  ret i1 false
succeeded:
  ret i1 true
}}
"""

_LET_GO = f"""
; Gives up the references to the arrays of a call.
define internal void @let_go(ptr %table, ptr %frame) {{
entry:
  {_head("%first", Word.HELD)}
  {_head("%end", Word.HELD_END)}
  br label %next
next:
  %number = phi i64 [ %first, %entry ], [ %after, %one ]
  %done = icmp eq i64 %number, %end
  br i1 %done, label %all, label %one
one:
  {_frame("%held", "%number", "ptr")}
  call void @Py_DecRef(ptr %held)
  %after = add i64 %number, 1
  br label %next
all:
  ret void
}}
"""

_NOTHING = """
; A plan that does nothing, for the test at start.
define i32 @nothing(ptr %pointers, ptr %data) {
  ret i32 0
}
"""


# ---------------------------------------------------------------- the result


def _build() -> str:
    """Builds the result on the stack; null, with an error set, if something fails."""
    return f"""
define internal ptr @build(ptr %table, ptr %frame) {{
entry:
  {_head("%first", Word.RESULTS, "ptr")}
  {_head("%end", Word.END, "ptr")}
  {_head("%stack.n", Word.STACK)}
  {_frame("%stack", "%stack.n")}
  br label %next
next:
  %row = phi ptr [ %first, %entry ], [ %after, %pushed ]
  %top = phi ptr [ %stack.at, %entry ], [ %above, %pushed ]
  %done = icmp eq ptr %row, %end
  br i1 %done, label %finish, label %one
finish:
  %result = load ptr, ptr %stack.at
  ret ptr %result
one:
  {_field("%op", "@")}
  {_field("%a", "a")}
  {_field("%b", "b", "ptr")}
  %count.negative = sub i64 0, %a
  %operands = getelementptr ptr, ptr %top, i64 %count.negative
  {_switch(Build)}
unknown:
  ret ptr null
push:
  %value = phi ptr [ %array.value, %array ], [ %constant.value, %constant ],
    [ %view.value, %view ], [ %b, %object ], [ %dict.value, %dict ],
    [ %list.value, %list ], [ %tuple.value, %tuple ], [ %called.value, %call ],
    [ %data.value, %data ], [ %argument.value, %argument ]
  %place = phi ptr [ %top, %array ], [ %top, %constant ], [ %top, %view ],
    [ %top, %object ], [ %operands, %dict ], [ %operands, %list ],
    [ %operands, %tuple ], [ %operands, %call ], [ %top, %data ], [ %top, %argument ]
  %none = icmp eq ptr %value, null
  br i1 %none, label %failed, label %pushed
pushed:
  store ptr %value, ptr %place
  %above = getelementptr ptr, ptr %place, i64 1
  %after = getelementptr i64, ptr %row, i64 {ROW_WORDS}
  br label %next
failed:
  %from = ptrtoint ptr %stack.at to i64
  %to = ptrtoint ptr %place to i64
  %nbytes = sub i64 %to, %from
  %left = sdiv exact i64 %nbytes, 8
  call void @drop(ptr %stack.at, i64 %left)
  ret ptr null

array:  ; an array of type b around the NumPy array in frame a
  {_frame("%held", "%a", "ptr")}
  call void @Py_IncRef(ptr %held)
  %array.value = call ptr @wrap(ptr %held, ptr %b)
  br label %push

constant:  ; an array of type b around the NumPy array c
  {_field("%fixed", "c", "ptr")}
  call void @Py_IncRef(ptr %fixed)
  %constant.value = call ptr @wrap(ptr %fixed, ptr %b)
  br label %push

data:  ; the NumPy array in frame a itself
  {_frame("%data.value", "%a", "ptr")}
  call void @Py_IncRef(ptr %data.value)
  br label %push

argument:  ; the object in frame a
  {_frame("%argument.value", "%a", "ptr")}
  call void @Py_IncRef(ptr %argument.value)
  br label %push

view:  ; an array of type b on the memory of frame a; c dtype, d rank, e points to how
       ; many bytes into it, and the sizes
  {_frame("%base", "%a", "ptr")}
  {_field("%dtype", "c", "ptr")}
  {_field("%rank", "d")}
  {_field("%place.sizes", "e", "ptr")}
  %view.value = call ptr @view(
    ptr %base, ptr %b, ptr %dtype, i64 %rank, ptr %place.sizes)
  br label %push

object:  ; the object b
  call void @Py_IncRef(ptr %b)
  br label %push

dict:  ; a dict of the topmost a values, with the keys at b
  %dict.value = call ptr @new_dict(ptr %operands, i64 %a, ptr %b)
  br label %push

list:  ; a list of the topmost a values
  %list.value = call ptr @new_list(ptr %operands, i64 %a)
  br label %push

tuple:  ; a tuple of the topmost a values
  %tuple.value = call ptr @new_tuple(ptr %operands, i64 %a)
  br label %push

call:  ; b called with the topmost a values
  %called.value = call ptr @PyObject_Vectorcall(
    ptr %b, ptr %operands, i64 %a, ptr null)
  call void @drop(ptr %operands, i64 %a)
  br label %push
}}
"""


def _wrap(site: Site) -> str:
    """Makes arrays around NumPy arrays, of which they take over the reference."""
    return f"""
define internal ptr @wrap(ptr %data, ptr %type) {{
entry:
  %none = icmp eq ptr %data, null
  br i1 %none, label %failed, label %make
make:
  %array = call ptr @PyType_GenericAlloc(ptr {_address(site.array)}, i64 0)
  %no.array = icmp eq ptr %array, null
  br i1 %no.array, label %failed, label %made
made:
  call void @Py_IncRef(ptr %type)
  %data.at = getelementptr i8, ptr %array, i64 {site.array_data}
  store ptr %data, ptr %data.at
  %type.at = getelementptr i8, ptr %array, i64 {site.array_type}
  store ptr %type, ptr %type.at
  ret ptr %array
failed:
  call void @Py_DecRef(ptr %data)
  ret ptr null
}}

; An array of another shape on the memory of a NumPy array.
define internal ptr @view(
  ptr %base, ptr %type, ptr %dtype, i64 %rank, ptr %place) {{
entry:
  {_at("%start", "%base", layout.DATA)}
  %offset = load i64, ptr %place
  %memory = getelementptr i8, ptr %start, i64 %offset
  %sizes = getelementptr i64, ptr %place, i64 1
  %array = call ptr @new_array(ptr %dtype, i64 %rank, ptr %sizes, ptr %memory)
  %none = icmp eq ptr %array, null
  br i1 %none, label %failed, label %made
made:
  call void @Py_IncRef(ptr %base)
  %status = call i32 @PyArray_SetBaseObject(ptr %array, ptr %base)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %based, label %unbased
based:
  %result = call ptr @wrap(ptr %array, ptr %type)
  ret ptr %result
unbased:
  call void @Py_DecRef(ptr %array)
  br label %failed
failed:
  ret ptr null
}}
"""


def _sequence(kind: str) -> str:
    return f"""
; A {kind} of values, of which it takes over the references.
define internal ptr @new_{kind.lower()}(ptr %values, i64 %count) {{
entry:
  %made = call ptr @Py{kind}_New(i64 %count)
  %none = icmp eq ptr %made, null
  br i1 %none, label %failed, label %next
next:
  %number = phi i64 [ 0, %entry ], [ %after, %one ]
  %done = icmp eq i64 %number, %count
  br i1 %done, label %all, label %one
one:
  %place = getelementptr ptr, ptr %values, i64 %number
  %value = load ptr, ptr %place
  %status = call i32 @Py{kind}_SetItem(ptr %made, i64 %number, ptr %value)
  %after = add i64 %number, 1
  br label %next
all:
  ret ptr %made
failed:
  call void @drop(ptr %values, i64 %count)
  ret ptr null
}}
"""


_CONTAINERS = f"""
{_sequence("List")}
{_sequence("Tuple")}
; A dict of values, of which it takes over the references.
define internal ptr @new_dict(ptr %values, i64 %count, ptr %keys) {{
entry:
  %made = call ptr @PyDict_New()
  %none = icmp eq ptr %made, null
  br i1 %none, label %failed, label %next
next:
  %number = phi i64 [ 0, %entry ], [ %after, %put ]
  %done = icmp eq i64 %number, %count
  br i1 %done, label %all, label %one
one:
  %place = getelementptr ptr, ptr %values, i64 %number
  %value = load ptr, ptr %place
  %key.at = getelementptr ptr, ptr %keys, i64 %number
  %key = load ptr, ptr %key.at
  %status = call i32 @PyDict_SetItem(ptr %made, ptr %key, ptr %value)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %put, label %broken
put:
  %after = add i64 %number, 1
  br label %next
broken:
  call void @Py_DecRef(ptr %made)
  br label %failed
all:
  call void @drop(ptr %values, i64 %count)
  ret ptr %made
failed:
  call void @drop(ptr %values, i64 %count)
  ret ptr null
}}

; Gives up the references to some values.
define internal void @drop(ptr %values, i64 %count) {{
entry:
  br label %next
next:
  %number = phi i64 [ 0, %entry ], [ %after, %one ]
  %done = icmp eq i64 %number, %count
  br i1 %done, label %all, label %one
one:
  %place = getelementptr ptr, ptr %values, i64 %number
  %value = load ptr, ptr %place
  call void @Py_DecRef(ptr %value)
  %after = add i64 %number, 1
  br label %next
all:
  ret void
}}
"""
