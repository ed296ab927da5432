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
word number a of the frame. Next on the walk:
`arguments.py`, `running.py`, `results.py`, `making.py`, which print its parts.
"""

from __future__ import annotations

from collections.abc import Mapping

from fnx.cpu.entry import layout
from fnx.cpu.entry.arguments import NAMES_MATCH, NUMBERS, check
from fnx.cpu.entry.making import makers
from fnx.cpu.entry.results import CONTAINERS, build, wrap
from fnx.cpu.entry.rows import NO_MATCH, Caller, Site, Word, address, at, frame, head
from fnx.cpu.entry.running import LET_GO, NOTHING, RUN, outputs
from fnx.cpu.entry.steps import STEPS


def walker_text(site: Site) -> str:
    """The module that defines the methods."""
    calls = [_call(site, caller) for caller in site.callers]
    calls += [_member(*pair) for pair in enumerate(site.members)]
    arguments = *calls, _CALLS, _enter(), NAMES_MATCH, check(site), NUMBERS
    running = outputs(), RUN, STEPS, LET_GO, NOTHING
    results = build(), wrap(site), CONTAINERS, makers(site)
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
    "PyArray_NewCopy": "ptr @PyArray_NewCopy(ptr, i32)",
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
    "llvm.fshl.i64": "i64 @llvm.fshl.i64(i64, i64, i64)",
    "llvm.memcpy.p0.p0.i64": "void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    "llvm.memset.p0.i64": "void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
}


def _call(site: Site, caller: Caller) -> str:
    """A method: every table of the function in turn, then the way through Python.

    The tuple in the function's slot is held meanwhile: it keeps tables and code alive.
    """
    enabled = "br label %ready"
    if caller.disabled is not None:
        enabled = f"""%disabled = call ptr @variable(ptr {address(caller.disabled)})
  %usual = icmp eq ptr %disabled, {address(id(False))}
  br i1 %usual, label %ready, label %slow"""
    return f"""
define ptr @{caller.name}(ptr %self, ptr %args, i64 %count, ptr %names) {{
entry:
  %busy = call i64 @PyList_Size(ptr {address(site.busy)})
  %idle = icmp eq i64 %busy, 0
  br i1 %idle, label %enabled, label %slow
enabled:
  {enabled}
ready:
  {at("%paths", "%self", caller.paths)}
  %none = icmp eq ptr %paths, null
  br i1 %none, label %slow, label %some
some:
  %size = call i64 @PyTuple_Size(ptr %paths)
  %empty = icmp slt i64 %size, 1
  br i1 %empty, label %slow, label %hold
hold:
  call void @Py_IncRef(ptr %paths)
  %bits = call ptr @variable(ptr {address(site.bits)})
  %strong = load ptr, ptr {address(site.strong_zero)}
  %bytes = call ptr @PyTuple_GetItem(ptr %paths, i64 0)
  %tables = call ptr @PyBytes_AsString(ptr %bytes)
  br label %next
next:
  %place = phi ptr [ %tables, %hold ], [ %after, %other ]
  %table = load ptr, ptr %place
  %last = icmp eq ptr %table, null
  br i1 %last, label %unknown, label %try
try:
  {head("%wanted.bits", Word.BITS, "ptr")}
  {head("%wanted.strong", Word.STRONG_ZERO, "ptr")}
  %same.bits = icmp eq ptr %bits, %wanted.bits
  %same.strong = icmp eq ptr %strong, %wanted.strong
  %same = and i1 %same.bits, %same.strong
  br i1 %same, label %enter, label %other
enter:
  %result = call ptr @enter(ptr %table, ptr %args, i64 %count, ptr %names)
  %differs = icmp eq ptr %result, {address(NO_MATCH)}
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
  %answer = call ptr @with_first(ptr @PyObject_Vectorcall,
    ptr {address(caller.slow)}, ptr %self, ptr %args, i64 %count, ptr %names)
  ret ptr %answer
}}
"""


def _member(number: int, function: int) -> str:
    """A method of arrays: the eager function is given the array first."""
    return f"""
define ptr @member_{number}(ptr %self, ptr %args, i64 %count, ptr %names) {{
  %answer = call ptr @with_first(ptr @eager,
    ptr {address(function)}, ptr %self, ptr %args, i64 %count, ptr %names)
  ret ptr %answer
}}
"""


_CALLS = """
; A function, called as %call does it, with one more argument before the others.
define internal ptr @with_first(
  ptr %call, ptr %function, ptr %first, ptr %args, i64 %count, ptr %names) {
  %named = call i64 @length(ptr %names)
  %total = add i64 %count, %named
  %more = add i64 %total, 1
  %all = alloca ptr, i64 %more
  store ptr %first, ptr %all
  %rest = getelementptr ptr, ptr %all, i64 1
  %nbytes = mul i64 %total, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %rest, ptr %args, i64 %nbytes, i1 false)
  %given = add i64 %count, 1
  %answer = call ptr %call(ptr %function, ptr %all, i64 %given, ptr %names)
  ret ptr %answer
}

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
  {head("%positional", Word.POSITIONAL)}
  {head("%named", Word.NAMED)}
  %same = icmp eq i64 %positional, %count
  %given = call i64 @length(ptr %names)
  %same.named = icmp eq i64 %named, %given
  %fits = and i1 %same, %same.named
  br i1 %fits, label %prepare, label %differs
prepare:
  {head("%size", Word.FRAME)}
  %frame = alloca i64, i64 %size, align 16
  {head("%held", Word.HELD)}
  {head("%held.end", Word.HELD_END)}
  {frame("%first", "%held")}
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
  {head("%hits", Word.HITS)}
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
  ret ptr {address(NO_MATCH)}
}}
"""
