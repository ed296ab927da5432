"""Arrays around NumPy arrays, made for Python code: `wrap`, `from_numpy` and `own`.

Gives the LLVM text of functions that take the place of those of `fnx.runtime.array`.
They serve the usual case, a contiguous NumPy array of a type that was seen before, and
call the Python function for all else. The types that were seen are remembered in rows
whose number is a hash of dtype and shape; two of the same number take turns.
Next on the walk: `table.py`.
"""

from __future__ import annotations

from fnx.cpu.entry import layout
from fnx.cpu.entry.rows import Site, address, at

# A row: the type, the dtype and the rank, then the sizes of so many axes.
_MOST_AXES = 5
_ROW_WORDS = 3 + _MOST_AXES
_ROW_BITS = 9  # of a row's number
_MIX = 0x9E3779B97F4A7C15  # odd, its bits are spread: the high bits depend on all


def makers(site: Site) -> str:
    """The functions, and what they have in common."""
    return "".join(
        [
            _SEEN,
            _remember(site),
            _wrap(site),
            _made(site, "from_numpy", layout.C_CONTIGUOUS | layout.ALIGNED, _SHARED),
            _made(site, "own", 0, _COPIED),
        ]
    )


_SEEN = f"""
@seen = internal global [{1 << _ROW_BITS} x [{_ROW_WORDS} x i64]] zeroinitializer

; The row for the type of a NumPy array; null for other objects and for high ranks.
define internal ptr @seen_row(ptr %x) {{
entry:
  {at("%class", "%x", layout.TYPE)}
  %is.numpy = icmp eq ptr %class, {address(layout.numpy_address("PyArray_Type"))}
  br i1 %is.numpy, label %numpy, label %none
none:
  ret ptr null
numpy:
  {at("%ndim", "%x", layout.NDIM, "i32")}
  %is.low = icmp ule i32 %ndim, {_MOST_AXES}
  br i1 %is.low, label %low, label %none
low:
  {at("%dtype", "%x", layout.DESCR)}
  {at("%dims", "%x", layout.DIMS)}
  %rank = zext i32 %ndim to i64
  %start = ptrtoint ptr %dtype to i64
  br label %next
next:
  %axis = phi i64 [ 0, %low ], [ %axis.next, %one ]
  %hash = phi i64 [ %start, %low ], [ %mixed, %one ]
  %done = icmp eq i64 %axis, %rank
  br i1 %done, label %all, label %one
one:
  %dim.at = getelementptr i64, ptr %dims, i64 %axis
  %dim = load i64, ptr %dim.at
  %turned = call i64 @llvm.fshl.i64(i64 %hash, i64 %hash, i64 23)
  %added = add i64 %turned, %dim
  %mixed = mul i64 %added, {_MIX - (1 << 64)}
  %axis.next = add i64 %axis, 1
  br label %next
all:
  %spread = mul i64 %hash, {_MIX - (1 << 64)}
  %number = lshr i64 %spread, {64 - _ROW_BITS}
  %row = getelementptr [{_ROW_WORDS} x i64], ptr @seen, i64 %number
  ret ptr %row
}}

; The type that a row has for a NumPy array; null where it is for other arrays.
define internal ptr @seen_type(ptr %x, ptr %row) {{
entry:
  {at("%type", "%row", 0)}
  {at("%row.dtype", "%row", 8)}
  {at("%row.rank", "%row", 16)}
  {at("%dtype", "%x", layout.DESCR)}
  {at("%ndim", "%x", layout.NDIM, "i32")}
  {at("%dims", "%x", layout.DIMS)}
  %rank = zext i32 %ndim to i64
  %rank.known = ptrtoint ptr %row.rank to i64
  %is.dtype = icmp eq ptr %dtype, %row.dtype
  %is.rank = icmp eq i64 %rank, %rank.known
  %fits = and i1 %is.dtype, %is.rank
  br i1 %fits, label %next, label %other
next:
  %axis = phi i64 [ 0, %entry ], [ %axis.next, %one ]
  %done = icmp eq i64 %axis, %rank
  br i1 %done, label %all, label %one
one:
  %axis.next = add i64 %axis, 1
  %dim.at = getelementptr i64, ptr %dims, i64 %axis
  %dim = load i64, ptr %dim.at
  %size.n = add i64 %axis, 3
  %size.at = getelementptr i64, ptr %row, i64 %size.n
  %size = load i64, ptr %size.at
  %is.size = icmp eq i64 %dim, %size
  br i1 %is.size, label %next, label %other
all:
  ret ptr %type
other:
  ret ptr null
}}

; Nobody may write to a NumPy array any more.
define internal void @protect(ptr %x) {{
  {at("%flags", "%x", layout.FLAGS, "i32")}
  %fixed = and i32 %flags, {~layout.WRITEABLE}
  store i32 %fixed, ptr %flags.at
  ret void
}}
"""


def _remember(site: Site) -> str:
    return f"""
; Notes in a row, if there is one, the type of what Python made of a NumPy array. Types
; live for ever, and so does a dtype that is the very one of a type: no other object can
; come to lie at its address.
define internal void @remember(ptr %row, ptr %args, ptr %made) {{
entry:
  %failed = icmp eq ptr %made, null
  %unusual = icmp eq ptr %row, null
  %nothing = or i1 %failed, %unusual
  br i1 %nothing, label %done, label %look
look:
  %x = load ptr, ptr %args
  {at("%class", "%made", layout.TYPE)}
  %is.array = icmp eq ptr %class, {address(site.array)}
  br i1 %is.array, label %array, label %done
array:
  {at("%type", "%made", site.array_type)}
  {at("%type.dtype", "%type", site.type_dtype)}
  {at("%dtype", "%x", layout.DESCR)}
  %is.canonical = icmp eq ptr %type.dtype, %dtype
  br i1 %is.canonical, label %note, label %done
note:
  {at("%ndim", "%x", layout.NDIM, "i32")}
  {at("%dims", "%x", layout.DIMS)}
  %rank = zext i32 %ndim to i64
  store ptr %type, ptr %row
  %dtype.to = getelementptr i64, ptr %row, i64 1
  store ptr %dtype, ptr %dtype.to
  %rank.to = getelementptr i64, ptr %row, i64 2
  store i64 %rank, ptr %rank.to
  %sizes.to = getelementptr i64, ptr %row, i64 3
  %nbytes = mul i64 %rank, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %sizes.to, ptr %dims, i64 %nbytes, i1 false)
  br label %done
done:
  ret void
}}
"""


def _wrap(site: Site) -> str:
    return f"""
define ptr @make_wrap(ptr %self, ptr %args, i64 %count, ptr %names) {{
entry:
  %unnamed = icmp eq ptr %names, null
  %two = icmp eq i64 %count, 2
  %usual = and i1 %unnamed, %two
  br i1 %usual, label %look, label %slow
look:
  %x = load ptr, ptr %args
  {at("%class", "%x", layout.TYPE)}
  %is.numpy = icmp eq ptr %class, {address(layout.numpy_address("PyArray_Type"))}
  br i1 %is.numpy, label %numpy, label %slow
numpy:
  {at("%flags", "%x", layout.FLAGS, "i32")}
  %contiguous = and i32 %flags, {layout.C_CONTIGUOUS}
  %is.contiguous = icmp ne i32 %contiguous, 0
  br i1 %is.contiguous, label %make, label %slow
make:
  {at("%type", "%args", 8)}
  call void @protect(ptr %x)
  call void @Py_IncRef(ptr %x)
  %made = call ptr @wrap(ptr %x, ptr %type)
  ret ptr %made
slow:
  %answer = call ptr @PyObject_Vectorcall(
    ptr {address(site.makers["wrap"])}, ptr %args, i64 %count, ptr %names)
  ret ptr %answer
}}
"""


_SHARED = """
  call void @Py_IncRef(ptr %x)
  %kept = getelementptr i8, ptr %x, i64 0"""
_COPIED = """
  %kept = call ptr @PyArray_NewCopy(ptr %x, i32 0)"""


def _made(site: Site, name: str, flags: int, keep: str) -> str:
    """A function of a NumPy array that has these flags; `keep` gives `%kept`."""
    return f"""
define ptr @make_{name}(ptr %self, ptr %args, i64 %count, ptr %names) {{
entry:
  %unnamed = icmp eq ptr %names, null
  %one = icmp eq i64 %count, 1
  %usual = and i1 %unnamed, %one
  br i1 %usual, label %look, label %slow
look:
  %x = load ptr, ptr %args
  %row = call ptr @seen_row(ptr %x)
  %unusual = icmp eq ptr %row, null
  br i1 %unusual, label %slow, label %usable
usable:
  {at("%flags", "%x", layout.FLAGS, "i32")}
  %wanted = and i32 %flags, {flags}
  %plain = icmp eq i32 %wanted, {flags}
  br i1 %plain, label %typed, label %slow
typed:
  %type = call ptr @seen_type(ptr %x, ptr %row)
  %new = icmp eq ptr %type, null
  br i1 %new, label %slow, label %found
found:{keep}
  %none = icmp eq ptr %kept, null
  br i1 %none, label %failed, label %finish
failed:
  ret ptr null
finish:
  call void @protect(ptr %kept)
  %made = call ptr @wrap(ptr %kept, ptr %type)
  ret ptr %made
slow:
  %note = phi ptr [ null, %entry ], [ null, %look ], [ null, %usable ], [ %row, %typed ]
  %answer = call ptr @PyObject_Vectorcall(
    ptr {address(site.makers[name])}, ptr %args, i64 %count, ptr %names)
  call void @remember(ptr %note, ptr %args, ptr %answer)
  ret ptr %answer
}}
"""
