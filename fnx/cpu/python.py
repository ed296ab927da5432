"""How a plan's code calls Python: host steps, and signals that arrive meanwhile.

Gives the LLVM text of functions that take the GIL, call Python, and let go. Where
Python raises, they give 1 and leave the exception set for this thread; the plan's code
ends at once, and what called it finds the exception. A signal (Ctrl-C) is only noted by
the interpreter until Python code runs in the main thread. Long loops look for one:
they read the clock now and then, and ask the interpreter every 50 ms.
Next on the walk: `driver.py`.
"""

from __future__ import annotations

import time

from fnx.cpu.llvm import Text

SERVE = "fnx_serve"
"""The symbol whose address is that of the Python function that runs host steps. It is
called with the step's number and the address of an array of addresses: those of its
inputs and outputs."""

LISTEN = "fnx_listen"
"""The symbol whose address is that of the Python function that raises in a thread that
is to stop, although no signal reaches it."""

_TAKE = "call i32 @PyGILState_Ensure()"
_LET_GO = "call void @PyGILState_Release(i32 %state)"

CALL_PYTHON = f"""
define hidden i32 @call_python(i64 %step, ptr %operands) {{
entry:
  %arguments = alloca [2 x ptr]
  %state = {_TAKE}
  %first = call ptr @PyLong_FromLongLong(i64 %step)
  %second = call ptr @PyLong_FromVoidPtr(ptr %operands)
  %second.at = getelementptr ptr, ptr %arguments, i64 1
  store ptr %first, ptr %arguments
  store ptr %second, ptr %second.at
  %result = call ptr @PyObject_Vectorcall(
    ptr @{SERVE}, ptr %arguments, i64 2, ptr null)
  call void @Py_DecRef(ptr %first)
  call void @Py_DecRef(ptr %second)
  call void @Py_DecRef(ptr %result)
  {_LET_GO}
  %failed = icmp eq ptr %result, null
  %status = zext i1 %failed to i32
  ret i32 %status
}}
"""

_NANOSECONDS = 50_000_000

# The deadline is 0 until a call has looked at the clock for the first time.
LOOK = f"""
define hidden i32 @look(ptr %deadline) {{
entry:
  %time = alloca [2 x i64]
  call i32 @clock_gettime(i32 {getattr(time, "CLOCK_MONOTONIC", 0)}, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  %due = load i64, ptr %deadline
  %early = icmp slt i64 %now, %due
  br i1 %early, label %done, label %late
late:
  %next = add i64 %now, {_NANOSECONDS}
  store i64 %next, ptr %deadline
  %first = icmp eq i64 %due, 0
  br i1 %first, label %done, label %ask
ask:
  %state = {_TAKE}
  %raised = call i32 @PyErr_CheckSignals()
  %interrupted = icmp ne i32 %raised, 0
  br i1 %interrupted, label %leave, label %hear
hear:
  %heard = call ptr @PyObject_Vectorcall(ptr @{LISTEN}, ptr null, i64 0, ptr null)
  call void @Py_DecRef(ptr %heard)
  %stopped = icmp eq ptr %heard, null
  br label %leave
leave:
  %failed = phi i1 [ true, %ask ], [ %stopped, %hear ]
  {_LET_GO}
  %status = zext i1 %failed to i32
  ret i32 %status
done:
  ret i32 0
}}
"""

CALL = "call"
"""The name of the function that runs a plan while other Python threads may run."""

_CALL = f"""
define i32 @{CALL}(ptr %pointers) {{
entry:
  %thread = call ptr @PyEval_SaveThread()
  %status = call i32 @run(ptr %pointers)
  call void @PyEval_RestoreThread(ptr %thread)
  ret i32 %status
}}
"""

_DECLARED = {
    "PyEval_SaveThread": "ptr @PyEval_SaveThread()",
    "PyEval_RestoreThread": "void @PyEval_RestoreThread(ptr)",
    "PyGILState_Ensure": "i32 @PyGILState_Ensure()",
    "PyGILState_Release": "void @PyGILState_Release(i32)",
}
_TO_CALL = {
    "PyLong_FromLongLong": "ptr @PyLong_FromLongLong(i64)",
    "PyLong_FromVoidPtr": "ptr @PyLong_FromVoidPtr(ptr)",
    "PyObject_Vectorcall": "ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)",
    "Py_DecRef": "void @Py_DecRef(ptr)",
}
_TO_LOOK = {
    "PyErr_CheckSignals": "i32 @PyErr_CheckSignals()",
    "PyObject_Vectorcall": _TO_CALL["PyObject_Vectorcall"],
    "Py_DecRef": _TO_CALL["Py_DecRef"],
}


def has_clock() -> bool:
    """Whether there is POSIX's clock."""
    return hasattr(time, "clock_gettime")


def define(module: Text, calls: bool, looks: bool) -> set[str]:
    """Adds what a plan needs that calls Python or looks for signals; its symbols."""
    if not (calls or looks):
        return set()
    declared = _DECLARED | (_TO_CALL if calls else {}) | (_TO_LOOK if looks else {})
    for name, head in declared.items():
        module.declare(name, f"declare {head}")
    symbols = {*declared}
    if calls:
        module.declare(SERVE, f"@{SERVE} = external global i8")
        module.define(CALL_PYTHON, brief=True)
        symbols.add(SERVE)
    if looks:
        module.declare(LISTEN, f"@{LISTEN} = external global i8")
        symbols.add(LISTEN)
        module.declare("clock_gettime", "declare i32 @clock_gettime(i32, ptr)")
        module.define(LOOK, brief=True)
    module.define(_CALL, brief=True)
    return symbols
