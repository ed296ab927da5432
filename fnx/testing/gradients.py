"""check_grads: derivatives against differences, in random directions.

Receives a function and arguments. Forward mode is compared with a central difference
along a random tangent (Richardson's extrapolation of two steps), reverse mode with the
adjoint identity <ct, J t> = <Jᵀ ct, t>; higher orders do the same with the derivatives.
Everything is computed in float64, unless the function converts to less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fnx import dtypes, errors, tree
from fnx.api.arguments import as_array, check_callable, leaf_names
from fnx.api.derivatives import jvp, vjp

Leaves = list[np.ndarray[Any, Any]]
FlatFunction = Callable[..., list[Any]]

# The relative error that a right derivative may have, by the dtype of the output.
TOLERANCES = {2: 1e-1, 4: 1e-2, 8: 1e-6}
STEPS = {2: 3e-1, 4: 1e-2, 8: 1e-3}
MODES = ("fwd", "rev")


@errors.api_boundary
def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int = 1,
    modes: Sequence[str] = MODES,
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
    seed: int = 0,
) -> None:
    """Checks the derivatives of a function up to `order` at `f(*args)`.

    Float leaves of the arguments are moved, in float64; integers stay. `modes` has
    "fwd" and "rev". `rtol` is relative to the largest element of a derivative (default
    1e-6, or 1e-2 and 1e-1 where the function computes in 32 or 16 bits), `atol` is
    absolute (default `rtol`), `eps` the step of the differences. Raises
    `AssertionError` naming the mode, the order and the output that differs.

    >>> import fnx
    >>> from fnx.testing import check_grads
    >>> check_grads(lambda x: x * x * x, (2.0,), order=2)
    """
    check_callable("check_grads", f)
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown:
        raise errors.OptionError(f"check_grads: modes are {MODES}, got {unknown[0]!r}.")
    with dtypes.default_dtypes(64):
        flat, leaves, names = _flattened(f, tuple(args))
        rng = np.random.default_rng(seed)
        check = _Check(tuple(modes), rtol, atol, eps, rng, names)
        check.run(flat, leaves, order, "")


def _flattened(
    f: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[FlatFunction, Leaves, list[str]]:
    """The function over its inexact leaves in 64 bits, to its inexact outputs."""
    leaves, treedef = tree.flatten(args)
    arrays = [np.asarray(leaf) for leaf in leaves]
    moving = [dtypes.is_inexact(dtypes.as_dtype(x.dtype)) for x in arrays]
    names: list[str] = []

    def flat(*values: Any) -> list[Any]:
        given = iter(values)
        full = [
            as_array(next(given) if moves else leaf, "check_grads", "an argument")
            for leaf, moves in zip(leaves, moving, strict=True)
        ]
        outputs, out_tree = tree.flatten(f(*treedef.unflatten(full)))
        labels = leaf_names(["output"], [out_tree])
        kept = [
            (x, name)
            for x, name in zip(outputs, labels, strict=True)
            if not hasattr(x, "dtype") or dtypes.is_inexact(x.dtype)
        ]
        names[:] = [name for _, name in kept]
        return [x for x, _ in kept]

    wide = [_widened(x) for x, moves in zip(arrays, moving, strict=True) if moves]
    return flat, wide, names


def _widened(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


@dataclass
class _Check:
    """The settings of one check, and the random numbers."""

    modes: tuple[str, ...]
    rtol: float | None
    atol: float | None
    eps: float | None
    rng: np.random.Generator
    names: list[str]

    def run(self, f: FlatFunction, leaves: Leaves, order: int, which: str) -> None:
        """Checks the derivative of `f`, then those of its derivatives."""
        outputs = _numbers(f(*leaves))
        width = min([x.dtype.itemsize // (1 + (x.dtype.kind == "c")) for x in outputs])
        tangents = self.direction(leaves)
        moved = self.difference(f, leaves, tangents, width)
        if "fwd" in self.modes:
            found = jvp(lambda *xs: f(*xs), tuple(leaves), tuple(tangents))[1]
            self.compare(_numbers(found), moved, width, f"jvp{which}")
        if "rev" in self.modes:
            self.adjoint(f, leaves, outputs, tangents, moved, width, which)
        if order > 1:
            self.deeper(f, leaves, outputs, tangents, order, which)

    def adjoint(
        self,
        f: FlatFunction,
        leaves: Leaves,
        outputs: Leaves,
        tangents: Leaves,
        moved: Leaves,
        width: int,
        which: str,
    ) -> None:
        """Compares the two sides of <ct, J t> = <Jᵀ ct, t>, an output at a time."""
        pull = vjp(lambda *xs: f(*xs), *leaves)[1]
        for i, name in enumerate(self.names):
            cts = [np.zeros_like(x) for x in outputs]
            (cts[i],) = self.direction([outputs[i]])
            pulled = _numbers(pull(cts))
            left, right = _inner([cts[i]], [moved[i]]), _inner(pulled, tangents)
            scale = float(np.linalg.norm(moved[i]) * np.linalg.norm(cts[i]))
            self.require(abs(left - right), scale, width, f"vjp{which}", name)

    def deeper(
        self,
        f: FlatFunction,
        leaves: Leaves,
        outputs: Leaves,
        tangents: Leaves,
        order: int,
        which: str,
    ) -> None:
        """Checks the derivatives of the derivatives, with directions held fixed."""
        if "fwd" in self.modes:

            def pushed(*values: Any) -> list[Any]:
                return list(jvp(lambda *xs: f(*xs), values, tuple(tangents))[1])

            self.run(pushed, leaves, order - 1, f"{which} of jvp")
        if "rev" in self.modes:
            cts = self.direction(outputs)

            def pulled(*values: Any) -> list[Any]:
                return list(vjp(lambda *xs: f(*xs), *values)[1](cts))

            inputs = [f"cotangent {i}" for i in range(len(leaves))]
            check = _Check(self.modes, self.rtol, self.atol, self.eps, self.rng, inputs)
            check.run(pulled, leaves, order - 1, f"{which} of vjp")

    def direction(self, leaves: Leaves) -> Leaves:
        """Random numbers in the shapes and dtypes of some leaves."""
        return [self._normal(x).astype(x.dtype) for x in leaves]

    def _normal(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        real = np.asarray(self.rng.standard_normal(x.shape))
        if x.dtype.kind != "c":
            return real
        return real + 1j * np.asarray(self.rng.standard_normal(x.shape))

    def difference(
        self, f: FlatFunction, leaves: Leaves, tangents: Leaves, width: int
    ) -> Leaves:
        """The derivative along the tangents, by differences with two steps."""
        step = self.eps or STEPS[width]
        coarse = _central(f, leaves, tangents, step)
        fine = _central(f, leaves, tangents, step / 2)
        return [(4 * b - a) / 3 for a, b in zip(coarse, fine, strict=True)]

    def compare(self, found: Leaves, wanted: Leaves, width: int, what: str) -> None:
        """Raises where two lists of derivatives differ."""
        for x, y, name in zip(found, wanted, self.names, strict=True):
            if x.size:
                error = float(np.max(np.abs(x - y)))
                self.require(error, float(np.max(np.abs(y))), width, what, name)

    def require(
        self, error: float, scale: float, width: int, what: str, name: str
    ) -> None:
        """Raises if an error is too large, or is no number."""
        rtol = TOLERANCES[width] if self.rtol is None else self.rtol
        atol = rtol if self.atol is None else self.atol
        if not error <= atol + rtol * scale:
            raise AssertionError(
                f"check_grads: {what} at {name} differs from finite differences by "
                f"{error:.3g}, where the derivative is of size {scale:.3g} "
                f"(rtol={rtol:g}, atol={atol:g})"
            )


def _central(f: FlatFunction, leaves: Leaves, tangents: Leaves, step: float) -> Leaves:
    pairs = list(zip(leaves, tangents, strict=True))
    above = _numbers(f(*[np.asarray(x + step * t) for x, t in pairs]))
    below = _numbers(f(*[np.asarray(x - step * t) for x, t in pairs]))
    return [
        (_widened(a) - _widened(b)) / (2 * step)
        for a, b in zip(above, below, strict=True)
    ]


def _inner(xs: Leaves, ys: Leaves) -> float:
    """The real part of the bilinear product, under which transposes are defined."""
    return float(sum(np.sum(x * y) for x, y in zip(xs, ys, strict=True)).real)


def _numbers(values: Any) -> Leaves:
    return [np.asarray(x) for x in tree.leaves(values)]
