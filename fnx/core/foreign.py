"""Kernels of the user's own: what a backend needs to run one.

Made by `fnx.extend.kernel`, held by an equation (`fnx/control/foreign.py`) and by the
step of a plan, which each backend runs in the form that it knows. Next on the walk:
`primitive.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fnx import errors
from fnx.records import record


@record(eq=False)
class Native:
    """A C function `void f(const T *in, ..., T *out, ..., int64_t size, ...)`.

    It gets the arrays, in row-major order, and then the sizes of all axes of all
    inputs. `owner` keeps the code at `address` alive.
    """

    address: int
    owner: Any


@record(eq=False)
class Cuda:
    """CUDA C: `source` with `extern "C" __global__ void name(...)`.

    The kernel gets what a `Native` function gets: pointers of inputs and outputs, then
    `long long` sizes. `grid` is a number of blocks, a tuple of up to three, or a
    function that computes it of the arguments' shapes and dtypes; `block` a number of
    threads or such a tuple; `shared` the bytes of dynamic shared memory.
    """

    source: str
    name: str
    grid: int | tuple[int, ...] | Callable[..., Any]
    block: int | tuple[int, ...] = 256
    shared: int = 0


@record
class Launch:
    """How many blocks of how many threads run a CUDA kernel, along three axes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int


@record(eq=False)
class Foreign:
    """A kernel: equal only to itself. `None` where it has no form for a processor.

    `cpu` may be a function from NumPy arrays, and the types of the results, to arrays.
    """

    name: str
    cpu: Native | Callable[..., Any] | None
    cuda: Cuda | None

    def missing(self, form: str) -> errors.ArgumentError:
        """The error where the form for a processor ("cpu", "cuda") is not there."""
        given = "cuda" if form == "cpu" else "cpu"
        return errors.ArgumentError(
            errors.explain(
                f"kernel {self.name} has no form for the processor that is to run it",
                f"only {given}= was given",
                f"pass {form}= to fnx.extend.kernel, too",
            )
        )

    def __repr__(self) -> str:
        return self.name
