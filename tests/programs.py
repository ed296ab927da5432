"""Random programs for the composition tests: a recipe, drawn by hypothesis, that
builds a function of some input arrays from primitives.

A recipe is plain data, so that a failing one is printed and shrinks. Each value of a
program knows whether it is *exact*: computed by operations that every evaluation must
agree on bit for bit. Comparisons, sorting and roundings are only drawn on exact values,
where a last place cannot tip them over; sums, products of matrices and functions of
`kernel/math.py` are not exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from fnx.core.primitive import primitive
from fnx.core.program import Literal
from fnx.core.types import ArrayType
from fnx.runtime.array import from_numpy

SHAPES = [(), (1,), (3,), (2, 3), (3, 1), (2, 1, 4), (0, 2)]
# Around the lanes of a register, beyond a block of a sum, and up to rank 5.
SIZES = [(0,), (1,), (7,), (8,), (9,), (63,), (1000,), (100_003,), (2, 3, 2, 1, 5)]
SIZES += [(33, 70), (70, 33), (300, 257), (4, 2, 9, 8), (1000, 3), (5, 1, 1, 200)]
INEXACT = {
    "f2": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f4": np.float32,
    "f8": np.float64,
}


Pair = tuple[Any, bool]
"""A value and whether it is exact."""


@dataclass(frozen=True)
class Step:
    """One operation: its name, the values it reads (by number) and its choices."""

    name: str
    reads: tuple[int, ...]
    choice: tuple[int, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """Input shapes, a dtype, a seed for the inputs, and the steps."""

    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    seed: int
    steps: tuple[Step, ...]

    def inputs(self) -> list[Any]:
        """Input arrays of moderate size, with ties and zeros among them."""
        rng = np.random.default_rng(self.seed)
        dtype = INEXACT[self.dtype]
        values = [rng.integers(-8, 9, shape) / 4 for shape in self.shapes]
        noise = [rng.uniform(-0.1, 0.1, shape) for shape in self.shapes]
        keep = [rng.random(shape) < 0.5 for shape in self.shapes]
        rows = zip(values, noise, keep, strict=True)
        return [np.asarray(v + n * k).astype(dtype) for v, n, k in rows]

    def run(self, inputs: Sequence[Any]) -> list[Pair]:
        """The last values of the program on arrays or tracers."""
        values: list[Pair] = [(x, True) for x in inputs]
        for step in self.steps:
            read = [values[n % len(values)] for n in step.reads]
            values.append(OPERATIONS[step.name](step.choice, *read))
        return values[len(inputs) :][-3:]

    def function(self, *inputs: Any) -> list[Any]:
        """The program as a function of its input arrays."""
        return [x for x, _ in self.run(inputs)]

    def exactness(self) -> list[bool]:
        """For each output, whether it must agree bit for bit."""
        return [exact for _, exact in self.run([from_numpy(x) for x in self.inputs()])]

    @property
    def kinked(self) -> bool:
        """Whether differences say nothing of the derivative."""
        return any(step.name in KINKED for step in self.steps)


OPERATIONS: dict[str, Callable[..., Pair]] = {}
# Operations with kinks or steps, where differences say nothing of the derivative.
KINKED: set[str] = set()


def operation(name: str, kinked: bool = False) -> Callable[[Any], Any]:
    """Registers a builder of one step: `build(choice, *pairs) -> pair`."""

    def register(build: Any) -> Any:
        OPERATIONS[name] = build
        if kinked:
            KINKED.add(name)
        return build

    return register


def _bounded(x: Any) -> Any:
    """The value brought back to [-3, 3] without a kink in most of its range."""
    return primitive("clamp")(_constant(x, -3.0), x, _constant(x, 3.0))


def _constant(x: Any, value: float) -> Any:
    literal = Literal(value, ArrayType((), x.dtype))
    return primitive("broadcast_in_dim")(literal, shape=x.shape, dims=())


def _unary(name: str, exact: bool, prepare: Callable[[Any], Any] = lambda x: x) -> Any:
    def build(choice: tuple[int, ...], pair: Pair) -> Pair:
        x, was_exact = pair
        return primitive(name)(prepare(x)), exact and was_exact

    return build


for _name in ("sin", "cos", "tanh", "logistic", "erf", "atan", "expm1", "exp"):
    OPERATIONS[_name] = _unary(_name, exact=False, prepare=_bounded)
OPERATIONS["neg"] = _unary("neg", exact=True)
for _name in ("abs", "sign"):
    OPERATIONS[_name] = _unary(_name, exact=True)
    KINKED.add(_name)


def _positive(x: Any) -> Any:
    square = primitive("mul")(_bounded(x), _bounded(x))
    return primitive("add")(square, _constant(x, 0.5))


for _name in ("log", "sqrt", "rsqrt", "log1p", "cbrt"):
    OPERATIONS[_name] = _unary(_name, exact=False, prepare=_positive)


def _matched(x: Any, y: Any) -> Any:
    """y with the shape of x: summed to a scalar and repeated."""
    if x.shape == y.shape:
        return y
    total = primitive("reduce_max")(y, axes=tuple(range(y.ndim))) if y.size else None
    if total is None:
        return _constant(x, 1.0)
    return primitive("broadcast_in_dim")(total, shape=x.shape, dims=())


def _binary(name: str) -> Any:
    def build(choice: tuple[int, ...], left: Pair, right: Pair) -> Pair:
        (x, x_exact), (y, y_exact) = left, right
        return primitive(name)(
            _bounded(x), _bounded(_matched(x, y))
        ), x_exact and y_exact

    return build


for _name in ("add", "sub", "mul"):
    OPERATIONS[_name] = _binary(_name)
for _name in ("max", "min"):
    OPERATIONS[_name] = _binary(_name)
    KINKED.add(_name)


@operation("div")
def _div(choice: tuple[int, ...], left: Pair, right: Pair) -> Pair:
    (x, _), (y, _) = left, right
    return primitive("div")(_bounded(x), _positive(_matched(x, y))), False


@operation("where", kinked=True)
def _where(choice: tuple[int, ...], left: Pair, right: Pair) -> Pair:
    (x, x_exact), (y, y_exact) = left, right
    y = _matched(x, y)
    exact = x_exact and y_exact
    # A condition that a last place could tip over is replaced by one that it cannot.
    tested = primitive("gt")(x, y) if exact else primitive("eq")(x, x)
    return primitive("select")(tested, primitive("neg")(x), y), exact


@operation("reduce")
def _reduce(choice: tuple[int, ...], pair: Pair) -> Pair:
    x, _ = pair
    axes = tuple([axis for axis in range(x.ndim) if choice[0] >> axis & 1])
    return primitive("reduce_sum")(_bounded(x), axes=axes), False


@operation("reduce_max", kinked=True)
def _reduce_max(choice: tuple[int, ...], pair: Pair) -> Pair:
    x, exact = pair
    axes = tuple([axis for axis in range(x.ndim) if choice[0] >> axis & 1])
    if not x.size:
        return x, exact
    return primitive("reduce_max")(x, axes=axes), exact


@operation("softmax")
def _softmax(choice: tuple[int, ...], pair: Pair) -> Pair:
    x, _ = pair
    if not x.ndim or not x.size:
        return x, False
    axis = choice[0] % x.ndim
    dims = tuple([d for d in range(x.ndim) if d != axis])

    def back(row: Any) -> Any:
        return primitive("broadcast_in_dim")(row, shape=x.shape, dims=dims)

    top = primitive("stop_gradient")(primitive("reduce_max")(x, axes=(axis,)))
    weights = primitive("exp")(primitive("sub")(x, back(top)))
    total = primitive("reduce_sum")(weights, axes=(axis,))
    return primitive("div")(weights, back(total)), False


@operation("reshape")
def _reshape(choice: tuple[int, ...], pair: Pair) -> Pair:
    x, exact = pair
    shapes = [(x.size,), (x.size, 1), (1, *x.shape), x.shape[::-1]]
    return primitive("reshape")(x, shape=shapes[choice[0] % 4]), exact


@operation("permute")
def _permute(choice: tuple[int, ...], pair: Pair) -> Pair:
    x, exact = pair
    dims = sorted(range(x.ndim), key=lambda d: (d * (choice[0] + 1)) % 5)
    return primitive("permute")(x, dims=tuple(dims)), exact


@operation("reverse")
def _reverse(choice: tuple[int, ...], pair: Pair) -> Pair:
    x, exact = pair
    axes = tuple([axis for axis in range(x.ndim) if choice[0] >> axis & 1])
    return primitive("reverse")(x, axes=axes), exact


@operation("slice")
def _slice(choice: tuple[int, ...], pair: Pair) -> Pair:
    x, exact = pair
    begin = tuple([choice[0] % 2 if size > 1 else 0 for size in x.shape])
    strides = tuple([1 + choice[1] % 2 for _ in x.shape])
    return primitive("slice")(x, start=begin, stop=x.shape, strides=strides), exact


@operation("pad")
def _pad(choice: tuple[int, ...], pair: Pair) -> Pair:
    x, exact = pair
    low = tuple([choice[0] % 3 - 1 if size > 1 else 1 for size in x.shape])
    high = tuple([choice[1] % 2 for _ in x.shape])
    interior = tuple([choice[2] % 2 for _ in x.shape])
    return primitive("pad")(x, 0.5, low=low, high=high, interior=interior), exact


@operation("concatenate")
def _concatenate(choice: tuple[int, ...], left: Pair, right: Pair) -> Pair:
    (x, x_exact), (y, y_exact) = left, right
    if not x.ndim:
        return x, x_exact
    joined = primitive("concatenate")(x, _matched(x, y), axis=choice[0] % x.ndim)
    return joined, x_exact and y_exact


@operation("broadcast")
def _broadcast(choice: tuple[int, ...], pair: Pair) -> Pair:
    x, exact = pair
    if x.ndim > 3 or x.size > 64:
        return x, exact
    size = 1 + choice[0] % 3
    if choice[1] % 2:
        shape, dims = (size, *x.shape), tuple(range(1, x.ndim + 1))
    else:
        shape, dims = (*x.shape, size), tuple(range(x.ndim))
    return primitive("broadcast_in_dim")(x, shape=shape, dims=dims), exact


@operation("dot")
def _dot(choice: tuple[int, ...], left: Pair, right: Pair) -> Pair:
    (x, _), (y, _) = left, right
    y = _matched(x, y)
    axes = tuple(range(x.ndim))
    contract = axes[-1:]
    batch = axes[:-1] if choice[0] % 2 else ()
    if x.ndim > 2 and not batch:
        batch = axes[:1]
    product = primitive("dot_general")(
        _bounded(x), _bounded(y), contract=(contract, contract), batch=(batch, batch)
    )
    return product, False


@operation("complex")
def _complex(choice: tuple[int, ...], left: Pair, right: Pair) -> Pair:
    """A function of x + iy, of which one part is kept."""
    (x, _), (y, _) = left, right
    wide = np.dtype("f8" if x.dtype == np.float64 else "f4")
    ends = [_as_dtype(_bounded(part), wide) for part in (x, _matched(x, y))]
    z = primitive("complex")(*ends)
    z = COMPLEX[choice[0] % len(COMPLEX)](z)
    part = primitive(("real", "imag")[choice[1] % 2])(z)
    return _as_dtype(part, x.dtype), False


def _as_dtype(x: Any, dtype: Any) -> Any:
    return x if x.dtype == dtype else primitive("convert")(x, dtype=dtype)


def _turned(z: Any) -> Any:
    """A layout of z, its conjugate behind it, and parts of both taken out again."""
    if not z.ndim:
        return primitive("conj")(z)
    back = primitive("reverse")(primitive("conj")(z), axes=(0,))
    both = primitive("concatenate")(z, back, axis=0)
    stop = both.shape
    start = (z.shape[0] // 2, *[0] * (z.ndim - 1))
    stop = (start[0] + z.shape[0], *stop[1:])
    return primitive("slice")(both, start=start, stop=stop, strides=(1,) * z.ndim)


def _mean(z: Any) -> Any:
    """Sums along the first axis, repeated along it, and the sum of squares."""
    if not z.ndim:
        return z
    total = primitive("reduce_sum")(z, axes=(0,))
    dims = tuple(range(1, z.ndim))
    spread = primitive("broadcast_in_dim")(total, shape=z.shape, dims=dims)
    return primitive("sub")(z, primitive("mul")(spread, 0.25 - 0.5j))


def _moved_right(z: Any) -> Any:
    """z + 4, which lies off all branch cuts."""
    return primitive("add")(z, 4.0)


# On numbers with parts in [-3, 3].
COMPLEX: list[Callable[[Any], Any]] = [
    _turned,
    _mean,
    lambda z: primitive("exp")(primitive("mul")(z, 0.5 - 1j)),
    lambda z: primitive("div")(z, _moved_right(z)),
    lambda z: primitive("log")(_moved_right(z)),
    lambda z: primitive("sqrt")(_moved_right(z)),
    lambda z: primitive("sin")(primitive("mul")(z, 0.25j)),
    lambda z: primitive("tanh")(primitive("mul")(z, 0.25)),
    lambda z: primitive("integer_pow")(primitive("sub")(z, 0.5j), y=3),
]


@operation("sort", kinked=True)
def _sort(choice: tuple[int, ...], pair: Pair) -> Pair:
    x, exact = pair
    if not x.ndim or not exact:
        return x, exact
    (ordered,) = primitive("sort")(x, axis=choice[0] % x.ndim, num_keys=1, stable=True)
    return ordered, exact


def recipes(
    dtype: str, most: int = 7, shapes: Sequence[tuple[int, ...]] = SHAPES
) -> st.SearchStrategy[Recipe]:
    """Recipes of up to `most` steps over one or two inputs of a dtype."""
    numbers = st.integers(0, 11)
    steps = st.builds(
        Step,
        st.sampled_from(sorted(OPERATIONS)),
        st.tuples(numbers, numbers),
        st.tuples(numbers, numbers, numbers),
    ).map(_trimmed)
    return st.builds(
        Recipe,
        st.just(dtype),
        st.lists(st.sampled_from(shapes), min_size=1, max_size=2).map(tuple),
        st.integers(0, 2**16),
        st.lists(steps, min_size=1, max_size=most).map(tuple),
    )


_TWO = {"add", "sub", "mul", "max", "min", "div", "where", "concatenate", "dot"}
_TWO |= {"complex"}


def _trimmed(step: Step) -> Step:
    return step if step.name in _TWO else Step(step.name, step.reads[:1], step.choice)
