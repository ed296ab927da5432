"""The suites of the other folders, on a CUDA device, against the CPU.

Every case of every primitive, random programs and their transformations, control flow
under every transformation, random nestings, activations, optimizers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as fnp
from fnx import dtypes, nn, optim, tree
from fnx.compiler.pipeline import plan_program
from fnx.core.array import Array
from tests.cases import CASES
from tests.compiler import test_complex
from tests.control.flows import FLOWS, STACK, TRANSFORMS, X
from tests.nn.test_nn import ACTIVATIONS
from tests.optim.test_optimizers import TABLE, loss, make, params_like
from tests.programs import SIZES, Recipe, recipes
from tests.random.test_samplers import MAPPED, key
from tests.rules import arguments, call, many, named, operands, value
from tests.test_composition import assert_close, total
from tests.test_primitives import assert_ulps

pytestmark = pytest.mark.cuda

MOST_BYTES = 2**26
"""Loops of unknown length reserve memory that takes the emulator too long to check."""

# Replicas run on the devices that they name, of which there is one here:
# `test_replicas.py` has several, and `test_replicas_inside.py` programs around them.
PRIMITIVES = sorted({case.primitive for case in CASES} - {"spmd"})


def on(device: Any, function: Callable[..., Any], *args: Any) -> Any:
    """What a function gives for arguments on a device, compiled for it."""
    with fnx.default_device(device):  # that of functions without arguments
        found = fnx.jit(function)(*fnx.device_put(args, device))
    for leaf in tree.leaves(found):
        assert leaf.devices() == {device}
    return fnx.device_get(found)


def close(found: Any, wanted: Any) -> None:
    """Trees of arrays that are equal to rounding."""
    for x, y in zip(tree.leaves(found), tree.leaves(wanted), strict=True):
        assert_close(x, y)


# ---------------------------------------------------------------- primitives


@pytest.mark.parametrize("name", PRIMITIVES)
def test_primitives(name: str, gpu: Any) -> None:
    for case in (case for case in CASES if case.primitive == name):
        try:
            check_case(case, gpu)
        except Exception as error:
            error.add_note(f"This is the case {case.id}.")
            raise


def check_case(case: Any, gpu: Any) -> None:
    """A primitive on the device is its reference."""
    args = operands(case, arguments(case))
    arrays = [x for x in args if isinstance(x, Array)]

    def function(*given: Any) -> Sequence[Any]:
        rest = iter(given)
        return call(case, [next(rest) if isinstance(x, Array) else x for x in args])

    found = on(gpu, function, *map(value, arrays))
    primitive = named(case.primitive)
    with np.errstate(all="ignore"):
        values = primitive.reference(*[value(x) for x in args], **case.params)
    for x, wanted in zip(found, many(primitive, values), strict=True):
        assert x.dtype == wanted.dtype
        assert_ulps(x, np.asarray(wanted), case.ulp, case.id)


# ---------------------------------------------------------------- random programs


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "bf16"])
def test_random_programs(dtype: str, gpu: Any) -> None:
    @settings(max_examples=60)
    @given(recipes(dtype, most=6))
    def run(recipe: Recipe) -> None:
        check_recipe(recipe, gpu)

    run()


@pytest.mark.parametrize("dtype", ["f4", "f8", "bf16"])
def test_random_programs_at_every_size(dtype: str, gpu: Any) -> None:
    @settings(max_examples=25)
    @given(recipes(dtype, most=4, shapes=SIZES))
    def run(recipe: Recipe) -> None:
        check_recipe(recipe, gpu)

    run()


def check_recipe(recipe: Recipe, gpu: Any) -> None:
    """A program on the device gives what it gives when it is called eagerly."""
    inputs = recipe.inputs()
    wanted = recipe.function(*map(fnp.asarray, inputs))
    found = on(gpu, lambda *xs: tuple(recipe.function(*xs)), *inputs)
    for x, y, exact in zip(found, wanted, recipe.exactness(), strict=True):
        assert_close(x, y)
        if exact:
            np.testing.assert_array_equal(x, np.asarray(y))


# The device is the same for all examples.
ONE_DEVICE = [HealthCheck.function_scoped_fixture]


@settings(max_examples=30, suppress_health_check=ONE_DEVICE)
@given(recipe=recipes("f8", most=5))
def test_transformed_programs(gpu: Any, recipe: Recipe) -> None:
    function, inputs = total(recipe), recipe.inputs()
    gradient = fnx.grad(function, argnums=tuple(range(len(inputs))))
    close(on(gpu, gradient, *inputs), gradient(*inputs))
    stacked = [np.stack([x, x * 0.5, -x]) for x in inputs]
    mapped = fnx.vmap(gradient)
    close(on(gpu, mapped, *stacked), mapped(*stacked))


@pytest.mark.parametrize("program", test_complex.PROGRAMS)
def test_complex_programs(program: Callable[..., Any], gpu: Any) -> None:
    z, w = test_complex.arguments("complex64")
    function = test_complex.loss(fnp, program)
    slope = fnx.value_and_grad(function, (0, 1))
    (value, found), (size, wanted) = on(gpu, slope, z, w), slope(z, w)
    np.testing.assert_allclose(value, size, rtol=1e-4)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4 * np.abs(other).max())


# ---------------------------------------------------------------- control flow


@pytest.mark.parametrize("flow", FLOWS, ids=[flow.name for flow in FLOWS])
def test_control_flow(flow: Any, gpu: Any) -> None:
    for name, (transform, maps) in TRANSFORMS.items():
        function = transform(flow.function)
        function, x = (fnx.vmap(function), STACK) if maps else (function, X)
        if plan_program(fnx.make_jaxpr(function)(x)).arena > MOST_BYTES:
            continue
        try:
            np.testing.assert_allclose(on(gpu, function, x), function(x), 1e-9, 1e-9)
        except Exception as error:
            error.add_note(f"This is under {name}.")
            raise


# ---------------------------------------------------------------- models


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str, gpu: Any) -> None:
    function = getattr(nn, name)
    x = (np.random.default_rng(0).standard_normal((5, 66)) * 3).astype("float32")
    close(on(gpu, function, x), function(x))
    slope = fnx.grad(lambda x: fnp.sum(function(x) ** 2))
    close(on(gpu, slope, x), slope(x))


@pytest.mark.parametrize("name", TABLE)
def test_optimizers(name: str, gpu: Any) -> None:
    optimizer = make(name)

    def steps(params: Any) -> Any:
        state = optimizer.init(params)
        for _ in range(3):
            updates, state = optimizer.update(fnx.grad(loss)(params), state, params)
            params = optim.apply_updates(params, updates)
        return params, state

    params = params_like()
    close(on(gpu, steps, params), fnx.device_get(steps(params)))


@settings(max_examples=20, suppress_health_check=ONE_DEVICE)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(), (3,), (1000,), (7, 33)]),
)
def test_random_numbers(gpu: Any, seed: int, shape: tuple[int, ...]) -> None:
    def draw(key: Any) -> Any:
        a, b = fnx.random.split(key)
        return fnx.random.normal(a, shape), fnx.random.randint(b, shape, 0, 1000)

    key = fnx.random.PRNGKey(seed)
    for x, y in zip(on(gpu, draw, key), draw(key), strict=True):
        if dtypes.is_inexact(x.dtype):
            np.testing.assert_allclose(x, np.asarray(y), rtol=1e-6)
        else:
            np.testing.assert_array_equal(x, np.asarray(y))


# ---------------------------------------------------------------- random samples


@pytest.mark.parametrize("name", MAPPED)
def test_samplers(name: str, gpu: Any) -> None:
    """The loops of samplers accept the same numbers on every device."""
    close(on(gpu, MAPPED[name], key(15)), MAPPED[name](key(15)))
