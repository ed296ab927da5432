"""Complex numbers and Fourier transforms.

Receives whether to be quick (leaves out the largest arrays), gives cases: elementwise
functions of complex numbers in one loop, their sum, transforms along one axis and two,
and a low-pass filter, of which the transforms are a part.
Next on the walk: `random_samplers.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Build, Case, Inputs, everywhere, normal

COMPLEX = np.complex64().itemsize


def chain(xp: Any) -> Any:
    return lambda z, w: xp.exp(1j * z.real) * w + xp.sqrt(z) / (w + 3) - z * xp.conj(w)


def product(xp: Any) -> Any:
    return lambda z, w: z * w + z


def power(xp: Any) -> Any:
    return lambda z, w: xp.sum(xp.abs(z * w) ** 2)


def transform(name: str) -> Callable[[Any], Any]:
    return lambda xp: getattr(xp.fft, name)


def filtered(xp: Any) -> Any:
    def low_pass(x: Any) -> Any:
        spectrum = xp.fft.rfft(x)
        keep = xp.exp(-xp.arange(spectrum.shape[0]) * 1e-5)
        return xp.fft.irfft(spectrum * keep)

    return low_pass


def draws(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], Inputs]:
    """Inputs: complex64 arrays of unit variance."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        parts = rng.standard_normal((*shape, 2), np.float32)
        return (parts * np.float32(np.sqrt(0.5))).view(np.complex64)[..., 0]

    return lambda rng: tuple(draw(rng, shape) for shape in shapes)


def compiled(make: Callable[[Any], Any]) -> dict[str, Build]:
    """fnx, JAX and NumPy: what is written in NumPy's names only."""
    columns = everywhere(make)
    return {name: columns[name] for name in ("fnx", "jax", "numpy")}


def with_scipy(name: str) -> dict[str, Build]:
    """A transform by fnx, JAX and PyTorch; by SciPy, with all threads, for NumPy."""

    def scipy(library: Any, inputs: Inputs) -> Any:
        function = getattr(importlib.import_module("scipy.fft"), name)
        return lambda: function(*inputs, workers=-1)

    return everywhere(transform(name)) | {"numpy": scipy}


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    sizes = {"1e4": 10**4, "1e6": 10**6}
    elementwise = [
        Case(
            f"{title}, {text}",
            draws((n,), (n,)),
            compiled(make),
            tolerance=1e-4,
            moved=moved * COMPLEX * n,
        )
        for title, make, moved in (
            ("exp-sqrt-div chain", chain, 3),
            ("z*w + z", product, 3),
            ("sum of abs(z*w)^2", power, 2),
        )
        for text, n in sizes.items()
    ]
    lengths = [2**10, 2**16] + ([] if quick else [2**20])
    single = [
        Case(
            f"fft, 2^{length.bit_length() - 1}",
            draws((length,)),
            with_scipy("fft"),
            tolerance=1e-4,
            moved=2 * COMPLEX * length,
        )
        for length in lengths
    ]
    side = 512 if quick else 1024
    count = 2**16 if quick else 2**20
    several = [
        Case(
            f"rfft, 2^{count.bit_length() - 1}",
            normal(count),
            with_scipy("rfft"),
            tolerance=1e-4,
        ),
        Case(
            f"fft2, {side}^2", draws((side, side)), with_scipy("fft2"), tolerance=1e-4
        ),
        Case(
            f"low-pass filter, 2^{count.bit_length() - 1}",
            normal(count),
            compiled(filtered),
            tolerance=1e-4,
        ),
    ]
    return elementwise + single + several
