"""Cases of `fnx/ops/elementwise.py` and `fnx/ops/parts.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx import dtypes, errors
from tests.cases import BAD_CASES, CASES, Arrays, BadCase, Case
from tests.cases_arithmetic import (
    jnp,
    lax,
    numbers,
    register,
    register_bad,
    register_scalar,
    specials,
)

DType = np.dtype[Any]

# ---------------------------------------------------------------- functions of one x

# name: the interval in which derivatives are tested
_SMOOTH_FUNCTIONS = {
    "abs": (0.5, 2.0),
    "sqrt": (0.2, 3.0),
    "rsqrt": (0.2, 3.0),
    "cbrt": (0.2, 3.0),
    "exp": (-2.0, 2.0),
    "exp2": (-2.0, 2.0),
    "expm1": (-2.0, 2.0),
    "log": (0.2, 3.0),
    "log1p": (-0.8, 3.0),
    "sin": (-2.0, 2.0),
    "cos": (-2.0, 2.0),
    "tan": (-1.2, 1.2),
    "asin": (-0.9, 0.9),
    "acos": (-0.9, 0.9),
    "atan": (-2.0, 2.0),
    "sinh": (-2.0, 2.0),
    "cosh": (-2.0, 2.0),
    "tanh": (-2.0, 2.0),
    "asinh": (-2.0, 2.0),
    "acosh": (1.2, 3.0),
    "atanh": (-0.9, 0.9),
    "logistic": (-2.0, 2.0),
    "erf": (-2.0, 2.0),
    "erfc": (-2.0, 2.0),
    "erf_inv": (-0.9, 0.9),
}
# JAX's exp2 rounds x * log(2) to bfloat16; SciPy's erfc errs by up to 3 ulp itself.
_ORACLE_ULP = {"exp2": 64, "sinh": 16, "cosh": 16, "erfc": 8}

for _name, _interval in _SMOOTH_FUNCTIONS.items():
    register(
        _name,
        intervals=_interval,
        smooth=(0,),
        oracle=lax(_name) if _name != "abs" else jnp("abs"),
        signed_zeros=_name != "erf_inv",  # JAX loses the sign
        oracle_ulp=_ORACLE_ULP.get(_name, 4),
    )
    register_bad(_name, 1, dtypes.bool_)

for _name in (
    "sech_squared",
    "one_minus_square",
    "rsqrt_one_plus_square",
    "exp_neg_square",
):
    register(_name, smooth=(0,))
    register_bad(_name, 1, dtypes.int32)

_FLAT_FUNCTIONS = {
    "floor": "floor",
    "ceil": "ceil",
    "is_finite": "is_finite",
    "not": "bitwise_not",
    "population_count": "population_count",
    "clz": "clz",
    "stop_gradient": "stop_gradient",
}
for _name, _oracle in _FLAT_FUNCTIONS.items():
    register(_name, oracle=lax(_oracle))
for _name in ("floor", "ceil", "trunc", "round", "is_finite"):
    register_bad(_name, 1, dtypes.int32)
for _name in ("not", "population_count", "clz"):
    register_bad(_name, 1, dtypes.float32)


def _round(x: Any) -> Any:
    import jax  # only where the oracle is asked

    return jax.lax.round(x, jax.lax.RoundingMethod.TO_NEAREST_EVEN)


register("round", oracle=_round)
register("trunc", oracle=jnp("trunc"))
register("sign", oracle=lax("sign"), signed_zeros=False)
register_bad("sign", 1, dtypes.bool_)
# JAX has no derivative of the sign of a complex number.
CASES.append(
    Case(
        "sign",
        "turning",
        lambda rng: (numbers(rng, (5,), dtypes.complex128),),
        smooth=(0,),
    )
)

# ---------------------------------------------------------------- functions of x and y

register("ne", 2, oracle=lax("ne"))
register_bad("ne", 2)
for _name in ("lt", "le", "gt", "ge"):
    register(_name, 2, oracle=lax(_name))
for _name in ("lt", "le", "gt", "ge", "max", "min"):
    register_bad(_name, 2, dtypes.complex64)

for _name, _oracle in {
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "shift_left": "shift_left",
    "shift_right_logical": "shift_right_logical",
    "shift_right_arithmetic": "shift_right_arithmetic",
}.items():
    register(_name, 2, oracle=lax(_oracle))
    register_bad(_name, 2, dtypes.float32)

register("nextafter", 2, oracle=lax("nextafter"))
register_bad("nextafter", 2, dtypes.int32)


def _powers(dtype: DType) -> Callable[[np.random.Generator], Arrays]:
    """Small bases to powers that wrap, the greatest of them, and negative ones."""

    def draw(rng: np.random.Generator) -> Arrays:
        info = np.iinfo(dtype)
        signed = info.min < 0
        bases = [0, 1, 2, 3, 7, 10, info.max, info.min, *[-1] * signed]
        powers = [0, 1, 2, 63, 64, 65, 100, info.max, *[-1, -2] * signed]
        grid = np.meshgrid(np.array(bases, dtype), np.array(powers, dtype))
        return tuple([np.ascontiguousarray(x) for x in grid])

    return draw


for _dtype in (
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
):
    CASES.append(Case("wrapped_pow", _dtype, _powers(np.dtype(_dtype))))
register_bad("wrapped_pow", 2, dtypes.float32)

_POSITIVE = (0.3, 2.0)


def _nonzero(name: str) -> Callable[..., Any]:
    """The oracle of div and rem, which are 0 where an integer is divided by 0."""

    def call(x: Any, y: Any) -> Any:
        z = lax(name)(x, y)
        return jnp("where")(y == 0, 0, z) if x.dtype.kind in "iu" else z

    return call


register("max", 2, smooth=(0, 1), oracle=lax("max"), signed_zeros=False)
register("min", 2, smooth=(0, 1), oracle=lax("min"), signed_zeros=False)
register(
    "div",
    2,
    intervals=_POSITIVE,
    smooth=(0, 1),
    linear=((0,),),
    oracle=_nonzero("div"),
)
register(
    "rem",
    2,
    intervals=((3.1, 3.9), (0.9, 1.0)),
    smooth=(0, 1),
    oracle=_nonzero("rem"),
)
_FLOATS = [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64]
register(
    "pow",
    2,
    intervals=_POSITIVE,
    smooth=(0, 1),
    oracle=lax("pow"),
    only=_FLOATS,
    oracle_ulp=8,
)
# At 0 JAX's complex power is NaN.
register(
    "pow",
    2,
    intervals=_POSITIVE,
    smooth=(0, 1),
    only=[dtypes.complex64, dtypes.complex128],
    ulp=16,  # the error of log x, times the exponent
)
CASES.append(
    Case(
        "pow",
        "complex-jax",
        lambda rng: tuple(numbers(rng, (2, 9), dtypes.complex128)),
        smooth=(0, 1),
        oracle=lax("pow"),
    )
)
register("atan2", 2, smooth=(0, 1), oracle=lax("atan2"))
register("copysign", 2, smooth=(0, 1), oracle=jnp("copysign"))
for _name in ("div", "rem", "pow", "atan2", "copysign"):
    register_bad(_name, 2, dtypes.bool_)
for _name, _scalar in {
    "max": 0.0,
    "min": 0.0,
    "div": 3.0,
    "pow": 2.5,
    "atan2": 0.7,
    "copysign": -1.0,
    "rem": 0.75,
}.items():
    register_scalar(_name, _POSITIVE, _scalar, 0)
    register_scalar(_name, _POSITIVE, _scalar, 1)
register_scalar("pow", _POSITIVE, 0.0, 1)
register_scalar("pow", _POSITIVE, 1.0, 1)
register_scalar("pow", _POSITIVE, 2.0, 1)
CASES.append(
    Case(
        "pow",
        "zero-exponent",  # the mixed second derivative at p = 0 is 1/x
        lambda rng: (np.array([0.5, 2.0]), np.zeros(2)),
        smooth=(0, 1),
        oracle=None,
    )
)

# ---------------------------------------------------------------- integer_pow


def _integer_pow(x: Any, *, y: int) -> Any:
    import jax  # only where the oracle is asked

    return jax.lax.integer_pow(x, y)


for _y in (-3, -1, 0, 1, 2, 3, 7):
    register(
        "integer_pow",
        intervals=(0.4, 1.5),
        smooth=(0,),
        params={"y": _y},
        label=f"{_y}-",
        oracle=_integer_pow,
        only=[*map(np.dtype, ("f4", "f8", "c16")), *([np.dtype("i1")] * (_y >= 0))],
    )
register(
    "integer_pow",
    params={"y": 5},
    label="5-",
    only=[dtypes.uint8, dtypes.int32, dtypes.float16, dtypes.bfloat16],
)
BAD_CASES.append(
    BadCase(
        "integer_pow",
        "negative",
        lambda rng: (np.arange(3),),
        errors.OptionError,
        "no negative powers",
        {"y": -1},
    )
)

# ---------------------------------------------------------------- clamp


def _triple(dtype: DType, shape: tuple[int, ...]) -> Callable[..., Arrays]:
    def args(rng: np.random.Generator) -> Arrays:
        low, x, high = [numbers(rng, shape, dtype) for _ in range(3)]
        return np.minimum(low, high), x, np.maximum(low, high)

    return args


register("clamp", 3)
register_bad("clamp", 3, dtypes.bool_)
CASES.extend(
    [
        Case(
            "clamp",
            "f64-smooth",
            _triple(dtypes.float64, (9,)),
            smooth=(0, 1, 2),
            oracle=lax("clamp"),
        ),
        Case(
            "clamp",
            "scalars",
            lambda rng: (-1.0, numbers(rng, (9,), dtypes.float64), 1.0),
            smooth=(1,),
        ),
        Case(
            "clamp",
            "empty-interval",
            lambda rng: (np.full(3, 1.0), np.array([-2.0, 0.0, 2.0]), np.full(3, -1.0)),
            smooth=(0, 1, 2),
        ),
    ]
)

# ---------------------------------------------------------------- conversions


def _converted(x: Any, *, dtype: DType, weak: bool = False) -> Any:
    import jax  # only where the oracle is asked

    if dtype.kind == "f" and x.dtype.kind == "c":
        x = x.real  # else JAX warns
    return jax.lax.convert_element_type(x, dtype)


for _source in dtypes.SUPPORTED:
    for _target in dtypes.SUPPORTED:
        CASES.append(
            Case(
                "convert",
                f"{dtypes.short(_source)}-{dtypes.short(_target)}",
                lambda rng, source=_source: (specials(source),),
                {"dtype": _target, "weak": False},
            )
        )


def _stored(dtype: DType) -> Any:
    """All numbers of a dtype for storage."""
    width = int("".join(filter(str.isdigit, dtype.name))[0])
    return np.arange(2**width, dtype=np.uint8).view(dtype)


for _kind in dtypes.STORAGE:
    CASES.append(
        Case(
            "convert",
            f"f4-{_kind.name}",
            lambda rng: (specials(dtypes.float32),),
            {"dtype": _kind, "weak": False},
        )
    )
    CASES.append(
        Case(
            "convert",
            f"{_kind.name}-f4",
            lambda rng, kind=_kind: (_stored(kind)[:, None],),
            {"dtype": dtypes.float32, "weak": False},
        )
    )
for _source, _target in (
    ("f8", "f8"),
    ("f8", "c16"),
    ("c16", "f8"),
    ("c16", "c16"),
):
    CASES.append(
        Case(
            "convert",
            f"smooth-{_source}-{_target}",
            lambda rng, source=_source: (numbers(rng, (3, 1, 5), np.dtype(source)),),
            {"dtype": np.dtype(_target), "weak": False},
            smooth=(0,),
            linear=((0,),),
            oracle=_converted,
        )
    )
CASES.append(
    Case(
        "convert",
        "weak",
        lambda rng: (np.ones(3, np.int32),),
        {"dtype": dtypes.float32, "weak": True},
    )
)

for _source, _target in (
    ("f4", "i4"),
    ("i4", "f4"),
    ("f8", "u8"),
    ("f2", "i2"),
    ("i1", "u1"),
    ("u8", "f8"),
    ("f4", "f4"),
):
    CASES.append(
        Case(
            "bitcast",
            f"{_source}-{_target}",
            lambda rng, source=_source: (specials(np.dtype(source)),),
            {"dtype": np.dtype(_target)},
        )
    )
CASES.append(
    Case(
        "bitcast",
        "bf16-u16",
        lambda rng: (specials(dtypes.bfloat16)[:, None],),
        {"dtype": dtypes.uint16},
    )
)
BAD_CASES.extend(
    [
        BadCase(
            "bitcast",
            "width",
            lambda rng: (np.ones(3, np.float32),),
            errors.DTypeError,
            "the same width",
            {"dtype": dtypes.int64},
        ),
        BadCase(
            "bitcast",
            "bool",
            lambda rng: (np.ones(3, bool),),
            errors.DTypeError,
            "is not supported",
            {"dtype": dtypes.int8},
        ),
        BadCase(
            "bitcast",
            "to-bool",
            lambda rng: (np.ones(3, np.int8),),
            errors.DTypeError,
            "the same width",
            {"dtype": dtypes.bool_},
        ),
    ]
)

# ---------------------------------------------------------------- complex numbers

for _name in ("real", "imag", "conj"):
    register(_name, smooth=(0,), linear=((0,),), oracle=lax(_name))
    register_bad(_name, 1, dtypes.float32)
register(
    "complex",
    2,
    smooth=(0, 1),
    linear=((0,), (1,), (0, 1)),
    oracle=lax("complex"),
    only=[dtypes.float32, dtypes.float64],
)
register_bad("complex", 2, dtypes.int32)
register_scalar("complex", (-2.0, 2.0), 0.5, 0)
register_scalar("complex", (-2.0, 2.0), 0.5, 1)
BAD_CASES.append(
    BadCase(
        "complex",
        "half",
        lambda rng: (np.ones(3, np.float16),) * 2,
        errors.DTypeError,
        "no complex dtype",
    )
)
