"""Programs for all sizes, compiled once; ready to run at each size by itself.

Receives a program that has formulas in the place of sizes (`fnx.transforms.sized`);
gives, for the values of their symbols, an `Executable` like any other. All of them have
the same machine code, which is linked once more with other numbers: that takes a
fraction of a millisecond. Next on the walk: `compiling.py`.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from fnx.config import config
from fnx.core.cache import cached_by_structure
from fnx.core.program import Program
from fnx.core.sizing import Sizes
from fnx.runtime.backend import backend
from fnx.runtime.executable import Executable


@cached_by_structure
def compiled_for_sizes(program: Program) -> Any:
    """The machine code of a program for all sizes; `None` where there is no compiler.

    Raises `Undecided` where it would have to be another one for another size.
    """
    # lazy: the compiler takes longer to import than the rest
    from fnx.runtime import compiling

    start = time.perf_counter()
    code = compiling.compiled_for_sizes(program)
    if config.debug >= 1 or config.log_compiles:
        seconds = time.perf_counter() - start
        print(f"compiled for all sizes in {seconds:.4f} s", file=sys.stderr)
    return code


def executable_at(program: Program, code: Any, sizes: Sizes) -> Executable:
    """What runs the code at sizes, at which it computes the same as `program`."""
    cpu: Any = backend("cpu")
    return Executable(program, cpu.load_at(code, sizes), None)


def code_size(code: Any) -> int:
    """The bytes of the machine code, which each of the sizes has for itself."""
    return sum(map(len, code.code.objects))
