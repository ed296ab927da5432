"""What a native call runs: it makes output arrays, calls the plan, and lets go.

Gives the LLVM text of these functions. Next on the walk: `results.py`.
"""

from __future__ import annotations

from fnx.cpu.entry import layout
from fnx.cpu.entry.rows import ROW_WORDS, Word, address, at, field, frame, head, put


def outputs() -> str:
    """Makes the output arrays, which nobody may write to but the plan.

    A row has the dtype in place of its operation, then a: rank, b: sizes, c: frame for
    the memory, d: frame for the array, e: where memory comes from, or 0.
    """
    return f"""
define internal i1 @make_outputs(ptr %table, ptr %frame) {{
entry:
  {head("%first", Word.OUTPUTS, "ptr")}
  {head("%end", Word.RESULTS, "ptr")}
  br label %next
next:
  %row = phi ptr [ %first, %entry ], [ %after, %made ]
  %done = icmp eq ptr %row, %end
  br i1 %done, label %all, label %one
one:
  {field("%dtype", "@", "ptr")}
  {field("%rank", "a")}
  {field("%sizes", "b", "ptr")}
  {field("%handler", "e", "ptr")}
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
  {put("%holder", "d", "%array")}
  {at("%memory", "%array", layout.DATA)}
  {put("%pointer", "c", "%memory")}
  {at("%flags", "%array", layout.FLAGS, "i32")}
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
    ptr {address(layout.numpy_address("PyArray_Type"))}, ptr %dtype, i32 %ndim,
    ptr %sizes, ptr null, ptr %memory, i32 %flags, ptr null)
  ret ptr %array
}}
"""


RUN = f"""
; Runs the plan. A free arena waits in a cell that its calls share; whoever finds the
; cell empty makes one, and one that comes back to a full cell is freed.
define internal i1 @run(ptr %table, ptr %frame) {{
entry:
  {head("%pointers.n", Word.POINTERS)}
  {frame("%pointers", "%pointers.n")}
  {head("%plan", Word.RUN, "ptr")}
  {head("%data", Word.DATA, "ptr")}
  {head("%size", Word.ARENA)}
  {head("%cell", Word.ARENA_CELL, "ptr")}
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
  {head("%arena.n", Word.ARENA_POINTER)}
  {frame("%arena", "%arena.n")}
  store i64 %aligned, ptr %arena.at
  br label %ready
ready:
  %arena.block = phi ptr [ null, %entry ], [ %block, %place ]
  {head("%release", Word.RELEASE)}
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
  ret i1 %good ; a plan that fails leaves an exception set
}}
"""

LET_GO = f"""
; Gives up the references to the arrays of a call.
define internal void @let_go(ptr %table, ptr %frame) {{
entry:
  {head("%first", Word.HELD)}
  {head("%end", Word.HELD_END)}
  br label %next
next:
  %number = phi i64 [ %first, %entry ], [ %after, %one ]
  %done = icmp eq i64 %number, %end
  br i1 %done, label %all, label %one
one:
  {frame("%held", "%number", "ptr")}
  call void @Py_DecRef(ptr %held)
  %after = add i64 %number, 1
  br label %next
all:
  ret void
}}
"""

NOTHING = """
; A plan that does nothing, for the test at start.
define i32 @nothing(ptr %pointers, ptr %data) {
  ret i32 0
}
"""
