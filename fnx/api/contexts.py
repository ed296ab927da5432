"""Contexts and answers that JAX's users know: enable_x64, live_arrays and the like.

Each context has an effect in fnx, or is not here; the README lists those that are not.
Receives options, gives context managers. Next on the walk: `fnx/numpy`.
"""

from __future__ import annotations

import gc
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from fnx import dtypes, errors
from fnx.api.device import process_count, process_index
from fnx.api.doctor import report
from fnx.api.misses import no_recompile
from fnx.api.refs import Ref, freeze, new_ref
from fnx.api.switches import checking_leaks
from fnx.config import config
from fnx.core.array import Array
from fnx.core.trace import suspended
from fnx.ops.dot import PRECISION_ALIASES
from fnx.ops.shape import full
from fnx.runtime.array import ConcreteArray

# ---------------------------------------------------------------- options for a while


@contextmanager
def default_matmul_precision(new_val: str | None) -> Iterator[None]:
    """A context with another precision for products and convolutions that ask for none.

    "default", "high", "highest", or one of JAX's other names for them. It holds in the
    whole process, for what is traced inside of it. On a GPU float32 operands may be
    rounded to TF32 by "default" and "high"; on the CPU all products are exact.

    >>> import fnx, fnx.numpy as fnp
    >>> with fnx.default_matmul_precision("high"):
    ...     program = fnx.make_jaxpr(fnp.dot)(fnp.ones(3), fnp.ones(3))
    >>> program.eqns[0].params["precision"]
    'high'
    """
    name = PRECISION_ALIASES.get(str(new_val), new_val)
    with config.override(default_matmul_precision=name):
        yield


@contextmanager
def numpy_dtype_promotion(new_val: str) -> Iterator[None]:
    """A context in which arrays of different dtypes do not go together, if "strict".

    Python numbers still take the dtype of the array beside them. Holds in the whole
    process; "standard" is the usual promotion.

    >>> import fnx, fnx.numpy as fnp
    >>> with fnx.numpy_dtype_promotion("strict"):
    ...     fnp.ones(2, "float32") + fnp.ones(2, "float16")
    Traceback (most recent call last):
    fnx.errors.DTypeError: add: float16 and float32 have no dtype in common while ...
    """
    with config.override(numpy_dtype_promotion=new_val):
        yield


@contextmanager
def numpy_rank_promotion(new_val: str) -> Iterator[None]:
    """A context in which arrays of different ranks warn or raise when broadcast.

    "allow", "warn" or "raise"; scalars go with everything. Holds in the whole process.

    >>> import fnx, fnx.numpy as fnp
    >>> with fnx.numpy_rank_promotion("raise"):
    ...     fnp.ones((2, 3)) + fnp.ones(3)
    Traceback (most recent call last):
    fnx.errors.ShapeError: add: arrays of ranks [1, 2] are broadcast, ...
    """
    with config.override(numpy_rank_promotion=new_val):
        yield


@contextmanager
def enable_x64(new_val: bool = True) -> Iterator[None]:
    """A context in which the default dtypes have 64 bits, or 32 if it is false.

    Explicit dtypes of 64 bits work everywhere; see `fnx.default_dtypes`.

    >>> import fnx, fnx.numpy as fnp
    >>> with fnx.enable_x64():
    ...     fnp.zeros(2).dtype
    dtype('float64')
    """
    with dtypes.default_dtypes(64 if new_val else 32):
        yield


@contextmanager
def enable_checks(new_val: bool = True) -> Iterator[None]:
    """A context in which a checker runs after each pass of the compiler.

    >>> import fnx
    >>> with fnx.enable_checks():
    ...     fnx.jit(lambda x: x + 1)(1.0).item()
    2.0
    """
    with config.override(check=new_val):
        yield


@contextmanager
def check_tracer_leaks(new_val: bool = True) -> Iterator[None]:
    """The same as `fnx.checking_leaks`.

    >>> import fnx
    >>> with fnx.check_tracer_leaks():
    ...     fnx.jit(lambda x: x + 1)(1.0).item()
    2.0
    """
    with checking_leaks(new_val):
        yield


@contextmanager
def no_tracing(new_val: bool = True) -> Iterator[None]:
    """The same as `fnx.no_recompile`, if it is true.

    >>> import fnx
    >>> with fnx.no_tracing(False):
    ...     fnx.jit(lambda x: x + 1)(1.0).item()
    2.0
    """
    with no_recompile() if new_val else nullcontext():
        yield


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """A context in which operations run at once, also while a function is traced.

    What they are applied to must be known, and so are their results; to use what
    depends on an argument raises `LeakedTracerError`.

    >>> import fnx, fnx.numpy as fnp
    >>> @fnx.jit
    ... def f(x):
    ...     with fnx.ensure_compile_time_eval():
    ...         table = fnp.arange(3) ** 2  # is no part of the program
    ...     return x + table[2]
    >>> f(1.0).item()
    5.0
    """
    with suspended():
        yield


# ---------------------------------------------------------------- what there is


def live_arrays(platform: str | None = None) -> list[Array]:
    """The arrays that are in memory, of all platforms or of one ("cpu", "gpu").

    >>> import fnx, fnx.numpy as fnp
    >>> x = fnp.ones(3)
    >>> any(x is y for y in fnx.live_arrays())
    True
    """
    found = [x for x in gc.get_objects() if isinstance(x, ConcreteArray)]
    return [
        x for x in found if not x.is_deleted() and platform in (None, x.device.platform)
    ]


def print_environment_info(return_string: bool = False) -> str | None:
    """Prints what there is for a report of a fault: versions, system, devices.

    With `return_string` it gives the text instead. `fnx.doctor()` says more.

    >>> import fnx
    >>> "numpy" in fnx.print_environment_info(return_string=True)
    True
    """
    lines = [
        f"python    {sys.version}",
        f"platform  {platform.platform()}",
        str(report()),
    ]
    text = "\n".join(lines)
    if return_string:
        return text
    print(text)
    return None


def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of all processes.

    >>> import fnx
    >>> fnx.process_indices()
    [0]
    """
    return list(range(process_count(backend)))


def host_id(backend: str | None = None) -> int:
    """JAX's older name of `process_index`."""
    return process_index(backend)


def host_ids(backend: str | None = None) -> list[int]:
    """JAX's older name of `process_indices`."""
    return process_indices(backend)


def host_count(backend: str | None = None) -> int:
    """JAX's older name of `process_count`."""
    return process_count(backend)


# ---------------------------------------------------------------- refs


def empty_ref(ty: Any, memory_space: None = None) -> Ref:
    """A ref of a type, `fnx.ShapeDtypeStruct` or an array, that begins as zeros.

    >>> import fnx
    >>> fnx.empty_ref(fnx.ShapeDtypeStruct((2,), "float32"))[...].tolist()
    [0.0, 0.0]
    """
    if memory_space is not None:
        raise errors.OptionError("empty_ref: there is one memory; leave it out")
    return new_ref(full(tuple(ty.shape), dtypes.as_dtype(ty.dtype), 0))


def free_ref(ref: Ref) -> None:
    """Makes a ref that cannot be used any more, as `freeze` does.

    >>> import fnx
    >>> fnx.free_ref(fnx.new_ref(1.0))
    """
    freeze(ref)
