"""threefry2x32: the random function that everything in `fnx.random` is made of.

Receives a key and a counter, two 32-bit words each, and gives two words of random bits:
a hash, with no state (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC 2011, with 20 rounds). Elementwise, so that it fuses with whatever uses the bits.
Next on the walk: `fnx/random/keys.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.core.types import ArrayType
from fnx.ops.families import UNSIGNED, Elementwise

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA

# Elements hashed at a time: what the 100 passes of NumPy touch then stays in cache.
_BLOCK = 1 << 14


class _Threefry(Elementwise):
    """threefry2x32(k0, k1, x0, x1): the two words of a block, encrypted."""

    multiple = True

    def infer(self, *types: ArrayType) -> tuple[ArrayType, ArrayType]:
        """Two arrays of the operands' common shape."""
        type = super().infer(*types)
        return type, type

    def check_dtypes(self, types: Sequence[ArrayType]) -> None:
        """Raises unless all operands are uint32."""
        if any(t.dtype != dtypes.uint32 for t in types):
            shown = ", ".join(map(str, types))
            raise errors.DTypeError(
                f"{self.name}: keys and counters are words of uint32, got {shown}"
            )

    def reference(self, *operands: Any) -> tuple[Any, Any]:
        """The 20 rounds in NumPy, a block of the arrays at a time."""
        k0, k1, x0, x1 = np.broadcast_arrays(*operands)
        shape = k0.shape
        words = [x.reshape(-1) for x in (k0, k1, x0, x1)]
        outputs = (
            np.empty(words[0].shape, np.uint32),
            np.empty(words[0].shape, np.uint32),
        )
        for block in _blocks(words[0].size):
            y0, y1 = _hashed(*[x[block] for x in words])
            outputs[0][block], outputs[1][block] = y0, y1
        return outputs[0].reshape(shape), outputs[1].reshape(shape)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """Bits have no derivative."""
        return self(*primals), (None, None)

    def element(self, k: Any, index: Any, *inputs: Any) -> tuple[Any, Any]:
        """The 20 rounds as scalar operations."""
        k0, k1, x0, x1 = [x(index) for x in inputs]

        def number(n: int) -> Any:
            return k.constant(n, dtypes.uint32)

        keys = [k0, k1, k.xor(k.xor(k0, k1), number(PARITY))]
        x0, x1 = k.add(x0, k0), k.add(x1, k1)
        for group in range(5):
            for r in ROTATIONS[group % 2]:
                x0 = k.add(x0, x1)
                left, right = k.shl(x1, number(r)), k.shr_logical(x1, number(32 - r))
                x1 = k.xor(k.or_(left, right), x0)
            x0 = k.add(x0, keys[(group + 1) % 3])
            x1 = k.add(k.add(x1, keys[(group + 2) % 3]), number(group + 1))
        return x0, x1


def _blocks(size: int) -> Iterator[slice]:
    for start in range(0, size, _BLOCK):
        yield slice(start, start + _BLOCK)


def _hashed(k0: Any, k1: Any, x0: Any, x1: Any) -> tuple[Any, Any]:
    keys = [k0, k1, k0 ^ k1 ^ np.uint32(PARITY)]
    x0, x1 = x0 + k0, x1 + k1
    left = np.empty_like(x1)
    for group in range(5):
        for r in ROTATIONS[group % 2]:
            np.add(x0, x1, out=x0)
            np.left_shift(x1, np.uint32(r), out=left)
            np.right_shift(x1, np.uint32(32 - r), out=x1)
            np.bitwise_or(left, x1, out=x1)
            np.bitwise_xor(x1, x0, out=x1)
        np.add(x0, keys[(group + 1) % 3], out=x0)
        np.add(x1, keys[(group + 2) % 3], out=x1)
        np.add(x1, np.uint32(group + 1), out=x1)
    return x0, x1


threefry2x32 = _Threefry("threefry2x32", UNSIGNED, _hashed)
