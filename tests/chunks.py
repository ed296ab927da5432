"""Kernels whose parallel loops are run in chunks, from the last chunk to the first.

Receives a kernel and arrays; what a thread pool does in any order at once is done here
by one thread in the order that is most unlike that of the loop.
"""

from __future__ import annotations

import numpy as np

from fnx.cpu import emit, jit
from fnx.cpu.grain import Share
from fnx.cpu.pool import RUN
from fnx.kernel.ir import Kernel, parallel_loops

BACKWARDS = """
define void @run(ptr %part, ptr %context, i64 %rounds, i64 %chunk) {
entry:
  %last = sub i64 %rounds, 1
  %first = urem i64 %last, %chunk
  %begin = sub i64 %last, %first
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %before, %loop ]
  %full = add i64 %i, %chunk
  %over = icmp ugt i64 %full, %rounds
  %end = select i1 %over, i64 %rounds, i64 %full
  call void %part(ptr %context, i64 %i, i64 %end)
  %before = sub i64 %i, %chunk
  %more = icmp ne i64 %i, 0
  br i1 %more, label %loop, label %after
after:
  ret void
}
"""


def run_in_chunks(kernel: Kernel, vectors: int, *arrays: np.ndarray) -> None:
    """Run a kernel on contiguous arrays, in chunks of so many vectors."""
    pool = jit.load(jit.assemble(BACKWARDS), ["run"])
    module = emit.Module()
    cuts = {p: Share(p.extent, vectors * p.width) for p in parallel_loops(kernel)}
    name = module.add(kernel, cuts)
    module.define(emit.exported("main", name, len(arrays)))
    code = jit.assemble(module.text())
    library = jit.load(code, ["main"], {RUN: pool.address("run")})
    library.function("main", len(arrays))(*[a.ctypes.data for a in arrays])
