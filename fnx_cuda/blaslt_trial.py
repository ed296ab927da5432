"""Whether the library's ReLU and its derivative do with NaN what ours do: it is tried.

Our ReLU of NaN is NaN, and its derivative passes there; where it does not pass, a
gradient is 0, whatever came from above. The library's documentation says nothing of
that, and it may be another thing for each algorithm. Receives the form of a product,
what runs an algorithm, and addresses, whose outputs are overwritten; gives an answer.
Next on the walk: `multiply.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fnx.records import record
from fnx_cuda import _cupy
from fnx_cuda.blaslt import Candidate, Form, Side
from fnx_cuda.blaslt_api import Epilogue
from fnx_cuda.called import LibraryError
from fnx_cuda.device import device
from fnx_cuda.memory import Buffer

_NAN = 0xFF
"""All bytes 0xff are NaN in every dtype."""

_HALF = 0x55
"""A mask that passes the first element, and then every other one."""


@record
class Addresses:
    """Where a step's operands are, and `WORKSPACE` bytes of workspace; the stream.

    And the bias of an epilogue that has one, or its gradient, and what its derivative
    needs.
    """

    out: int
    x: int
    y: int
    workspace: int
    stream: int
    bias: int = 0
    aux: int = 0


Run = Callable[[Candidate, Addresses], None]
"""Runs an algorithm on addresses."""


class Trial:
    """Tries algorithms of a form, on operands of NaN."""

    def __init__(self, form: Form, number: int, run: Run, at: Addresses) -> None:
        self._form = form
        self._memory = device(number).memory
        self._try = run
        self._at = at

    def passes(self, candidate: Candidate) -> bool:
        """Whether an algorithm runs, and does with NaN what we mean."""
        if self._form.epilogue in (Epilogue.DRELU, Epilogue.DRELU_BGRAD):
            return self._derives(candidate)
        return self._keeps_nan(candidate)

    def _keeps_nan(self, candidate: Candidate) -> bool:
        """Of a bias of NaN ReLU must be NaN, and its mask must let that pass."""
        form, at = self._form, self._at
        bias = self._filled(form.n * form.out_dtype.itemsize, _NAN)
        row = self._row(candidate, replace(at, bias=bias.pointer))
        if row is None or not np.isnan(row).all():
            return False
        if not form.epilogue.has_aux:
            return True
        bits = np.frombuffer(_fetched(at.aux, form.aux_leading // 8, at), np.uint8)
        return bool(np.unpackbits(bits, bitorder="little")[: form.n].all())

    def _derives(self, candidate: Candidate) -> bool:
        """A product of NaN must be NaN where the mask is 1, and 0 where it is 0."""
        form, at = self._form, self._at
        x, y = _nbytes(form, form.x, form.m), _nbytes(form, form.y, form.n)
        mask = self._filled(form.m * form.aux_leading // 8, _HALF)
        operand = self._filled(min(x, y), _NAN)
        one = {"x" if x <= y else "y": operand.pointer}
        row = self._row(candidate, replace(at, aux=mask.pointer, **one))
        if row is None:
            return False
        passed, blocked = row[::2], row[1::2]
        return bool(np.isnan(passed).all() and (blocked == 0).all())

    def _filled(self, nbytes: int, byte: int) -> Buffer:
        """New memory, all bytes of which are one."""
        made = self._memory.allocate(nbytes, "a trial of a product")
        _cupy.fill(made.pointer, byte, nbytes, self._at.stream)
        return made

    def _row(self, candidate: Candidate, at: Addresses) -> np.ndarray[Any, Any] | None:
        """The first row of what an algorithm gives; `None` if it does not run."""
        try:
            self._try(candidate, at)
        except LibraryError:
            return None
        form = self._form
        content = _fetched(at.out, form.n * form.out_dtype.itemsize, at)
        return np.frombuffer(content, form.out_dtype).astype(np.float64)


# ---------------------------------------------------------------- memory


def _nbytes(form: Form, side: Side, rows: int) -> int:
    """The bytes of an operand, whose rows (of y: columns) are those of the result."""
    stretches = form.k if side.transposed == (side is form.x) else rows
    return stretches * side.leading * form.dtype.itemsize


def _fetched(address: int, nbytes: int, at: Addresses) -> bytes:
    """Bytes of the device, after all that the stream has to do."""
    buffer, done = _cupy.pinned(nbytes), _cupy.new_event()
    _cupy.copy_to_host(buffer.ptr, address, nbytes, at.stream)
    _cupy.record_on(done, at.stream)
    done.synchronize()
    return ctypes.string_at(buffer.ptr, nbytes)
