"""The arguments of a native call: whether they are those of a table.

Gives the LLVM text of the functions that compare names, go through the rows of checks
and store Python numbers. Next on the walk: `running.py`.
"""

from __future__ import annotations

from fnx.cpu.entry import layout
from fnx.cpu.entry.rows import (
    ROW_WORDS,
    Check,
    Site,
    Word,
    address,
    at,
    field,
    frame,
    head,
    put,
    switch,
)

NAMES_MATCH = f"""
; Whether the named arguments are those of the table, in its order.
define internal i1 @names_match(ptr %table, ptr %names, i64 %count) {{
entry:
  {head("%wanted", Word.NAMES, "ptr")}
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


_SLICE = f"""\
slice:  ; frame a is a slice; its start, stop and step go to the frame from c on
  {at("%slice.class", "%x", layout.TYPE)}
  %is.slice = icmp eq ptr %slice.class, {address(id(slice))}
  br i1 %is.slice, label %slice.parts, label %differs
slice.parts:
  {field("%slice.n", "c")}
  {frame("%slice.first", "%slice.n")}
  %slice.from = getelementptr i8, ptr %x, i64 {layout.SLICE}
  call void @llvm.memcpy.p0.p0.i64(
    ptr %slice.first.at, ptr %slice.from, i64 {3 * 8}, i1 false)
  br label %holds

"""

_INDEX = f"""\
index:  ; frame a is an int in [-d, d); as far as it is from b (taken modulo d), so many
        ; times e bytes the pointer in frame c moves
  {at("%index.class", "%x", layout.TYPE)}
  %is.index = icmp eq ptr %index.class, {address(id(int))}
  br i1 %is.index, label %index.value, label %differs
index.value:
  %given = call i64 @PyLong_AsLongLongAndOverflow(ptr %x, ptr %overflow.at)
  %overflow = load i32, ptr %overflow.at
  %exact = icmp eq i32 %overflow, 0
  {field("%axis.size", "d")}
  %from.end = icmp slt i64 %given, 0
  %counted = add i64 %given, %axis.size
  %place = select i1 %from.end, i64 %counted, i64 %given
  %is.below = icmp ult i64 %place, %axis.size
  %in.range = and i1 %exact, %is.below
  br i1 %in.range, label %index.move, label %differs
index.move:
  %known = ptrtoint ptr %b to i64
  %distance = sub i64 %place, %known
  {field("%step", "e")}
  %nbytes = mul i64 %distance, %step
  {field("%moved.n", "c")}
  {frame("%moved", "%moved.n", "ptr")}
  %moved.to = getelementptr i8, ptr %moved, i64 %nbytes
  store ptr %moved.to, ptr %moved.at
  br label %holds

"""

_CONTAINERS = f"""\
dict:  ; frame a is a dict with b entries
  {at("%dict.class", "%x", layout.TYPE)}
  %is.dict = icmp eq ptr %dict.class, {address(id(dict))}
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
  {put("%item", "c", "%entry.value")}
  br label %holds

list:  ; frame a is a list of length b; its elements go to the frame from c on
  {at("%list.class", "%x", layout.TYPE)}
  %is.list = icmp eq ptr %list.class, {address(id(list))}
  br i1 %is.list, label %list.size, label %differs
list.size:
  %listed = call i64 @PyList_Size(ptr %x)
  br label %sequence

tuple:  ; frame a is of class d, a tuple of length b; its elements likewise
  {at("%tuple.class", "%x", layout.TYPE)}
  {field("%tuple.wanted", "d", "ptr")}
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
  {field("%target", "c")}
  {frame("%elements.first", "%target")}
  br label %element
element:
  %element.n = phi i64 [ 0, %elements ], [ %element.next, %element.put ]
  %no.element = icmp eq i64 %element.n, %length
  br i1 %no.element, label %holds, label %element.get
element.get:
  %of.list = icmp eq i64 %op, {Check.LIST.value}
  br i1 %of.list, label %list.get, label %tuple.get
list.get:
  %from.list = call ptr @PyList_GetItem(ptr %x, i64 %element.n)
  br label %element.put
tuple.get:
  %from.tuple = call ptr @PyTuple_GetItem(ptr %x, i64 %element.n)
  br label %element.put
element.put:
  %element.value = phi ptr [ %from.list, %list.get ], [ %from.tuple, %tuple.get ]
  %element.at = getelementptr ptr, ptr %elements.first.at, i64 %element.n
  store ptr %element.value, ptr %element.at
  %element.next = add i64 %element.n, 1
  br label %element

"""

_NUMBER = f"""\
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
  {field("%scratch.n", "b")}
  {frame("%scratch", "%scratch.n")}
  {put("%number", "c", "%scratch.at")}
  {field("%low", "d")}
  {field("%high", "e")}
  %is.number = call i1 @store_number(
    i64 %op, ptr %x, ptr %scratch.at, i64 %low, i64 %high)
  br i1 %is.number, label %holds, label %differs
"""


def _array(site: Site) -> str:
    """The rows of fnx's own arrays, and of NumPy's."""
    return f"""\
array:  ; frame a is an array of type b; its memory is frame c, what holds it frame d
  {at("%array.class", "%x", layout.TYPE)}
  %is.array = icmp eq ptr %array.class, {address(site.array)}
  br i1 %is.array, label %array.type, label %differs
array.type:
  {at("%of.type", "%x", site.array_type)}
  %is.type = icmp eq ptr %of.type, %b
  br i1 %is.type, label %array.hold, label %differs
array.hold:
  {at("%held", "%x", site.array_data)}
  br label %hold
hold:
  %owner = phi ptr [ %held, %array.hold ], [ %x, %numpy.hold ]
  call void @Py_IncRef(ptr %owner)
  {put("%holder", "d", "%owner")}
  {at("%memory", "%owner", layout.DATA)}
  {put("%pointer", "c", "%memory")}
  br label %holds

numpy:  ; frame a is a NumPy array of dtype b; c, d as before; e has rank and sizes
  {at("%numpy.class", "%x", layout.TYPE)}
  %is.numpy = icmp eq ptr %numpy.class, {address(layout.numpy_address("PyArray_Type"))}
  br i1 %is.numpy, label %numpy.dtype, label %differs
numpy.dtype:
  {at("%dtype", "%x", layout.DESCR)}
  %is.dtype = icmp eq ptr %dtype, %b
  {at("%flags", "%x", layout.FLAGS, "i32")}
  %usable = and i32 %flags, {layout.C_CONTIGUOUS | layout.ALIGNED}
  %is.usable = icmp eq i32 %usable, {layout.C_CONTIGUOUS | layout.ALIGNED}
  {field("%shape", "e", "ptr")}
  %rank = load i64, ptr %shape
  {at("%ndim", "%x", layout.NDIM, "i32")}
  %ndim.wide = zext i32 %ndim to i64
  %is.rank = icmp eq i64 %ndim.wide, %rank
  %plain = and i1 %is.dtype, %is.usable
  %numpy.fits = and i1 %plain, %is.rank
  br i1 %numpy.fits, label %numpy.sizes, label %differs
numpy.sizes:
  {at("%dims", "%x", layout.DIMS)}
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

"""


def check(site: Site) -> str:
    """Goes through the rows of checks; false at the first that does not hold.

    Arrays are held (a reference each) as soon as they are found, so that neither
    `delete` nor another thread can take their memory away during the call.
    """
    return f"""
define internal i1 @check(ptr %table, ptr %frame) {{
entry:
  %overflow.at = alloca i32
  {head("%first", Word.CHECKS, "ptr")}
  {head("%end", Word.OUTPUTS, "ptr")}
  br label %next
next:
  %row = phi ptr [ %first, %entry ], [ %after, %holds ]
  %done = icmp eq ptr %row, %end
  br i1 %done, label %all, label %one
one:
  {field("%op", "@")}
  {field("%a", "a")}
  {frame("%x", "%a", "ptr")}
  {field("%b", "b", "ptr")}
  {switch(Check)}
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

{_array(site)}{_SLICE}{_INDEX}{_CONTAINERS}{_NUMBER}}}
"""


NUMBERS = f"""
; Stores a Python number; false where it is of another class or does not fit. Eight
; bytes of an integer are stored: the first ones are those of the narrower dtypes.
define internal i1 @store_number(
  i64 %op, ptr %x, ptr %target, i64 %low, i64 %high) {{
entry:
  %overflow.at = alloca i32
  {at("%class", "%x", layout.TYPE)}
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
  %is.real = icmp eq ptr %class, {address(id(float))}
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
  %is.integer = icmp eq ptr %class, {address(id(int))}
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
  %is.truth = icmp eq ptr %class, {address(id(bool))}
  br i1 %is.truth, label %truth.value, label %differs
truth.value:
  %true = icmp eq ptr %x, {address(id(True))}
  %byte = zext i1 %true to i8
  store i8 %byte, ptr %target
  br label %fits
}}
"""
