"""Complex programs compile as real ones do: fused, without the host, under every
transformation; gradients are JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax
import fnx.numpy as fnp
from fnx.compiler.pipeline import plan_program
from fnx.compiler.step import HostStep, KernelStep

SHAPE = (37, 19)


def chain(np: Any, z: Any, w: Any) -> Any:
    """One kernel: everything is elementwise."""
    u = np.exp(1j * z.real) * w + np.sqrt(z) / (w + 3) - np.conj(z) ** 2
    v = np.where(np.abs(u) > 1, np.tanh(u / 4), np.log(u + 5)) * np.angle(w)
    return v * (np.sin(z / 3) + np.isfinite(w.imag))


def rows(np: Any, z: Any, w: Any) -> Any:
    """Folds along rows that are repeated over them."""
    total = np.sum(z * np.conj(w), axis=1, keepdims=True)
    return z - w * total / np.sum(np.abs(w) ** 2, axis=1, keepdims=True)


def moved(np: Any, z: Any, w: Any) -> Any:
    """Layouts, gathers, updates and running sums."""
    both = np.concatenate([z[:, ::-1], np.pad(w, ((1, 0), (0, 2)))[1:, :]], axis=1)
    return np.cumsum(both[:, [0, 3, 1, -1, 20]], axis=0) + np.roll(z, 3, 0)[:, :5]


def products(np: Any, z: Any, w: Any) -> Any:
    """Matrix products of both kinds: worth a call, and not."""
    return (z @ w.T) @ z + np.einsum("ij,ij->i", z, w)[:, None] + np.prod(z / 2, 0)


PROGRAMS = [chain, rows, moved, products]
DTYPES = ["complex64", "complex128"]


def arguments(dtype: str, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    draws = rng.standard_normal((2, *SHAPE, 2))
    return [np.ascontiguousarray(x).view("c16")[..., 0].astype(dtype) for x in draws]


def close(found: Any, wanted: Any, dtype: str) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    size = np.abs(wanted).max()
    assert np.abs(found - wanted).max() <= 200 * np.finfo(dtype).eps * size


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_values_without_the_host(program: Callable[..., Any], dtype: str) -> None:
    z, w = arguments(dtype)
    traced = fnx.make_jaxpr(lambda z, w: program(fnp, z, w))(z, w)
    steps = plan_program(traced).steps
    assert not any(isinstance(step, HostStep) for step in steps)
    if program is chain:
        assert [type(step) for step in steps] == [KernelStep]
    found = fnx.jit(lambda z, w: program(fnp, z, w))(z, w)
    close(found, program(np, z, w).astype(dtype), dtype)


def loss(np: Any, program: Callable[..., Any]) -> Callable[..., Any]:
    return lambda z, w: np.sum(np.abs(program(np, z, w)) ** 2)


@pytest.mark.oracle
@pytest.mark.parametrize("program", [chain, rows, products])
def test_gradients_are_those_of_jax(program: Callable[..., Any], jax: Any) -> None:
    z, w = arguments("complex128")
    found = fnx.jit(fnx.grad(loss(fnp, program), (0, 1)))(z, w)
    wanted = jax.grad(loss(jax.numpy, program), (0, 1))(z, w)
    for one, other in zip(found, wanted, strict=True):
        close(one, other, "complex64")


@pytest.mark.parametrize("program", PROGRAMS)
def test_batches_and_loops(program: Callable[..., Any]) -> None:
    draws = [arguments("complex128", seed) for seed in range(3)]
    stacks = [np.stack(parts) for parts in zip(*draws, strict=True)]

    def function(z: Any, w: Any) -> Any:
        return program(fnp, z, w)

    wanted = np.stack([np.asarray(function(*each)) for each in draws])
    close(fnx.jit(fnx.vmap(function))(*stacks), wanted, "complex128")
    looped = fnx.lax.map(lambda pair: function(*pair), tuple(stacks))
    close(looped, wanted, "complex128")


def test_the_carry_of_a_loop() -> None:
    """Newton's method for a cube root of 1, whose carry is complex."""

    def step(z: Any, _: Any) -> Any:
        return z - (z**3 - 1) / (3 * z**2), fnp.abs(z)

    start = np.array([1.3 + 0.4j, -0.4 + 1.1j, -0.7 - 0.8j])
    ends, sizes = fnx.jit(lambda z: fnx.lax.scan(step, z, None, 30))(start)
    roots = np.exp(2j * np.pi / 3 * np.array([0, 1, -1]))
    np.testing.assert_allclose(ends, roots, atol=1e-14)
    np.testing.assert_allclose(sizes[0], np.abs(start), rtol=1e-15)


def test_updates_in_place() -> None:
    z = np.arange(12.0) * (1 + 2j)
    places = np.array([3, 0, 3, 11])

    def update(z: Any) -> Any:
        return z.at[places].add(1j), z.at[places[:3]].set(z[5]), z.at[2:4].set(0.5j)

    added, put, cut = fnx.jit(update)(z)
    wanted = z.copy()
    np.add.at(wanted, places, 1j)
    np.testing.assert_array_equal(added, wanted)
    wanted = z.copy()
    wanted[places[:3]] = z[5]
    np.testing.assert_array_equal(put, wanted)
    wanted = z.copy()
    wanted[2:4] = 0.5j
    np.testing.assert_array_equal(cut, wanted)


def test_conversions_and_constants() -> None:
    def function(x: Any) -> Any:
        z = fnp.asarray(x, "complex64") + 2j
        lines = fnp.arange(5) * (1 + 1j) + fnp.linspace(0, 1j, 5)
        return z, lines, (z * 0).astype(bool), z.real.astype("int32"), fnp.full(3, 1j)

    z, lines, flags, whole, filled = fnx.jit(function)(np.array([1.5, -2.0], "f4"))
    np.testing.assert_array_equal(z, np.array([1.5 + 2j, -2 + 2j], "c8"))
    wanted = np.arange(5) * (1 + 1j) + np.linspace(0, 1j, 5)
    np.testing.assert_allclose(lines, wanted, rtol=1e-6)
    np.testing.assert_array_equal(flags, [False, False])
    np.testing.assert_array_equal(whole, np.array([1, -2], "i4"))
    np.testing.assert_array_equal(filled, np.full(3, 1j))
