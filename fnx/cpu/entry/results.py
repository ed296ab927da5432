"""The result of a native call: arrays and containers, built from the rows of a table.

Gives the LLVM text of the functions that build. Next on the walk: `making.py`.
"""

from __future__ import annotations

from fnx.cpu.entry.rows import (
    ROW_WORDS,
    Build,
    Site,
    Word,
    address,
    field,
    frame,
    head,
    switch,
)

_ARRAYS = f"""\
array:  ; an array of type b around the NumPy array in frame a
  {frame("%held", "%a", "ptr")}
  call void @Py_IncRef(ptr %held)
  %array.value = call ptr @wrap(ptr %held, ptr %b)
  br label %push

constant:  ; an array of type b around the NumPy array c
  {field("%fixed", "c", "ptr")}
  call void @Py_IncRef(ptr %fixed)
  %constant.value = call ptr @wrap(ptr %fixed, ptr %b)
  br label %push

data:  ; the NumPy array in frame a itself
  {frame("%data.value", "%a", "ptr")}
  call void @Py_IncRef(ptr %data.value)
  br label %push

argument:  ; the object in frame a
  {frame("%argument.value", "%a", "ptr")}
  call void @Py_IncRef(ptr %argument.value)
  br label %push

view:  ; an array of type b on the memory of the array in frame a, from its pointer on;
       ; c dtype, d rank, e points to how many bytes further, and the sizes
  {frame("%base", "%a", "ptr")}
  {head("%held.first", Word.HELD)}
  {head("%pointers.first", Word.POINTERS)}
  %base.number = sub i64 %a, %held.first
  %start.n = add i64 %pointers.first, %base.number
  {frame("%start", "%start.n", "ptr")}
  {field("%dtype", "c", "ptr")}
  {field("%rank", "d")}
  {field("%place.sizes", "e", "ptr")}
  %view.value = call ptr @view(
    ptr %base, ptr %start, ptr %b, ptr %dtype, i64 %rank, ptr %place.sizes)
  br label %push

"""

_OBJECTS = """\
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
"""


def build() -> str:
    """Builds the result on the stack; null, with an error set, if something fails."""
    return f"""
define internal ptr @build(ptr %table, ptr %frame) {{
entry:
  {head("%first", Word.RESULTS, "ptr")}
  {head("%end", Word.END, "ptr")}
  {head("%stack.n", Word.STACK)}
  {frame("%stack", "%stack.n")}
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
  {field("%op", "@")}
  {field("%a", "a")}
  {field("%b", "b", "ptr")}
  %count.negative = sub i64 0, %a
  %operands = getelementptr ptr, ptr %top, i64 %count.negative
  {switch(Build)}
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

{_ARRAYS}{_OBJECTS}}}
"""


def wrap(site: Site) -> str:
    """Makes arrays around NumPy arrays, of which they take over the reference."""
    return f"""
define internal ptr @wrap(ptr %data, ptr %type) {{
entry:
  %none = icmp eq ptr %data, null
  br i1 %none, label %failed, label %make
make:
  %array = call ptr @PyType_GenericAlloc(ptr {address(site.array)}, i64 0)
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
  ptr %base, ptr %start, ptr %type, ptr %dtype, i64 %rank, ptr %place) {{
entry:
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


CONTAINERS = f"""
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
