"""What a compiled kernel takes of a multiprocessor, read from the assembler's report.

Receives the log of `nvrtc.py`; gives registers, shared memory, stack and spills of each
function by name. A spilled register is one that the assembler keeps in memory because
there are not enough. Next on the walk: `modules.py`.
"""

from __future__ import annotations

import re

from fnx.records import record


@record
class Resources:
    """Of one function: registers of a thread, and bytes.

    `shared` is the static part, for a block; `stack` and spills are for a thread. A
    function that kernels call has no registers of its own here.
    """

    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int

    @property
    def spills(self) -> int:
        """Bytes that go to memory and come back because registers ran out."""
        return self.spill_stores + self.spill_loads


_FUNCTION = re.compile(
    r"Function properties for (?P<name>\S+)\n"
    r"\D*(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads"
    r"(?:\n[^\n]*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*))?"
)


def resources(log: str) -> dict[str, Resources]:
    """The report of each function in a log.

    >>> report = '''ptxas info    : Compiling entry function 'f' for 'sm_90'
    ... ptxas info    : Function properties for f
    ...     0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
    ... ptxas info    : Used 24 registers, used 1 barriers, 128 bytes smem
    ... '''
    >>> resources(report)["f"].registers, resources(report)["f"].spills
    (24, 20)
    """
    found = {}
    for match in _FUNCTION.finditer(log):
        shared = re.search(r"(\d+) bytes smem", match["rest"] or "")
        found[match["name"]] = Resources(
            registers=int(match["registers"] or 0),
            shared=int(shared[1]) if shared else 0,
            stack=int(match["stack"]),
            spill_stores=int(match["stores"]),
            spill_loads=int(match["loads"]),
        )
    return found
