"""extend.kernel: an operation whose code the user brings, and its rules.

Receives a C function, a function over NumPy arrays, CUDA C, and rules in fnx; gives a
function over arrays that works under every transformation whose rule it has. It binds
one equation of `fnx/control/foreign.py`. Next on the walk: `custom.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from fnx import dtypes, errors
from fnx.api.arguments import check_callable, name_of
from fnx.api.callbacks import Called, Declared, declared_results, host_call
from fnx.api.custom_rule import custom_rule
from fnx.api.inspect import ShapeDtypeStruct
from fnx.control.foreign import foreign
from fnx.core.foreign import Cuda, Foreign, Launch, Native

Function = Callable[..., Any]


_POINTER: type = ctypes.CFUNCTYPE(None).__mro__[1]
"""The class of all functions that ctypes has: not a public name of it."""


def kernel(
    out: Function,
    *,
    cpu: Any = None,
    cuda: Cuda | None = None,
    jvp: Function | None = None,
    vjp: tuple[Function, Function] | None = None,
    vmap: Function | None = None,
    name: str | None = None,
) -> Function:
    """An operation with code of your own: `kernel(...)(*args)` gives its results.

    `out(*args)` gets the arguments as `ShapeDtypeStruct`s and returns the shapes and
    dtypes of the results, as a tree of structs or arrays. It is the place to raise for
    arguments that the code does not take. Arguments are trees of arrays; the code gets
    their leaves.

    `cpu` is one of

    * a C function, as ctypes has it (numba's `cfunc(...).ctypes` is one), of the form
      `void f(const float *x, ..., float *y, ..., int64_t n, ...)`: the inputs, the
      outputs, then the sizes of all axes of all inputs. Arrays are in row-major order,
      and no two overlap. Its `argtypes` must be set, and are compared with the dtypes;
      complex numbers are pairs of floats, 16-bit floats `c_uint16`. Compiled programs
      call it directly; it may run while other Python threads do.
    * a function from read-only NumPy arrays, in the trees of the arguments, to a tree
      of arrays like `out`'s. Programs call back into Python for it.

    `cuda` is a `Cuda`, which programs on a GPU launch, also as part of their graphs.
    Without one, a GPU has the host do it, between two copies; without a `cpu`, running
    on the CPU raises `ArgumentError`.

    `jvp`, `vjp` and `vmap` are rules in fnx, as `fnx.custom_rule` takes them. Without a
    `jvp` or `vjp`, derivatives raise. Without a `vmap`, the kernel runs for one member
    after the other, in a compiled loop. The code must compute its results from its
    arguments alone: calls may be dropped, merged and made again.

    Raises `ArgumentError` without code or for code of another form, and at a call
    `DTypeError` where a C function takes other dtypes.

    >>> import fnx, numpy as np
    >>> hypot = fnx.extend.kernel(
    ...     lambda x, y: x,
    ...     cpu=np.hypot,
    ...     jvp=lambda p, t: (hypot(*p), (p[0] * t[0] + p[1] * t[1]) / hypot(*p)),
    ... )
    >>> fnx.jit(fnx.grad(hypot))(3.0, 4.0).item()
    0.6000000238418579
    """
    check_callable("extend.kernel: out", out)
    if cpu is None and cuda is None:
        raise errors.ArgumentError("extend.kernel: give cpu=, cuda= or both")
    if cuda is not None and not isinstance(cuda, Cuda):
        kind = type(cuda).__name__
        raise errors.ArgumentError(f"extend.kernel: cuda must be a Cuda, got a {kind}")
    if cpu is not None:
        check_callable("extend.kernel: cpu", cpu)
    made = _Kernel(out, cpu, cuda, name)
    if jvp is None and vjp is None and vmap is None:
        return made
    ruled: Function = custom_rule(made, jvp=jvp, vjp=vjp, vmap=vmap)
    return ruled


class _Kernel:
    """The operation without its rules."""

    def __init__(
        self, out: Function, cpu: Any, cuda: Cuda | None, name: str | None
    ) -> None:
        own = cuda.name if cpu is None and cuda is not None else name_of(cpu)
        self.__name__ = name or own
        self.out = out
        self.cpu = cpu
        self.cuda = cuda
        self.native = isinstance(cpu, _POINTER)
        if self.native and cpu.argtypes is None:
            raise errors.ArgumentError(
                errors.explain(
                    f"extend.kernel {self.__name__}: the C function has no argtypes",
                    "other dtypes than it takes would crash the process",
                    "set f.argtypes, and f.restype = None",
                )
            )
        # Equal programs share what is compiled of them if they hold the same object.
        self.codes: dict[Any, Foreign] = {}

    @errors.api_boundary
    def __call__(self, *args: Any) -> Any:
        called = host_call("extend.kernel", self._function, args, {})
        structs = [
            ShapeDtypeStruct(x.type.shape, x.type.dtype, weak_type=x.type.weak)
            for x in called.leaves
        ]
        given, _ = cast(Any, called.treedef.unflatten(structs))
        declared = declared_results(
            f"extend.kernel {self.__name__}", self.out(*given), "what out gives"
        )
        if self.native:
            self._check_argtypes(called, declared)
        results = foreign(
            *called.leaves,
            code=self._code(called, declared),
            declared=declared.types,
            launch=None if self.cuda is None else _launch(self.cuda, given),
        )
        return declared.treedef.unflatten(results)

    @property
    def _function(self) -> Function:
        return self.out if self.cpu is None or self.native else self.cpu

    def _code(self, called: Called, declared: Declared) -> Foreign:
        """The kernel for arguments and results in such trees."""
        key = None if self.native else (called.treedef, declared.treedef)
        if key not in self.codes:
            cpu = self.cpu
            if self.native:
                address = ctypes.cast(cpu, ctypes.c_void_p).value
                assert address is not None
                cpu = Native(address, cpu)
            elif cpu is not None:
                cpu = called.host(declared).function
            self.codes[key] = Foreign(self.__name__, cpu, self.cuda)
        return self.codes[key]

    def _check_argtypes(self, called: Called, declared: Declared) -> None:
        """Raises unless the C function takes these arrays, and their sizes."""
        types = [*[x.type for x in called.leaves], *declared.types]
        sizes = sum(x.type.ndim for x in called.leaves)
        argtypes = self.cpu.argtypes
        if len(argtypes) != len(types) + sizes:
            raise errors.ArgumentError(
                f"extend.kernel {self.__name__}: the C function takes "
                f"{len(argtypes)} arguments; this call has {len(types)} arrays and "
                f"{sizes} sizes of inputs"
            )
        for number, (argtype, type) in enumerate(zip(argtypes, types, strict=False)):
            if not _points_to(argtype, type.dtype):
                raise errors.DTypeError(
                    f"extend.kernel {self.__name__}: argument {number} of the C "
                    f"function is a {argtype.__name__}, and the array is {type}"
                )
        for number, argtype in enumerate(argtypes[len(types) :], len(types)):
            if _c_dtype(argtype) != np.int64:
                raise errors.DTypeError(
                    f"extend.kernel {self.__name__}: argument {number} of the C "
                    f"function is a size, which is a c_int64, not a {argtype.__name__}"
                )


def _points_to(argtype: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a type of ctypes points to elements of that dtype."""
    pointed = _c_dtype(getattr(argtype, "_type_", None))
    if dtypes.is_float(dtype) and dtype.itemsize == 2:
        return pointed == np.uint16
    if dtype.kind == "c":
        return pointed == dtypes.real_dtype(dtype)
    return pointed == dtype


def _c_dtype(ctype: Any) -> np.dtype[Any] | None:
    try:
        return None if ctype is None else np.dtype(ctype)
    except (TypeError, NotImplementedError):
        return None


def _launch(cuda: Cuda, args: Sequence[Any]) -> Launch:
    """How many blocks and threads run a kernel for these arguments."""
    grid = cuda.grid(*args) if callable(cuda.grid) else cuda.grid
    return Launch(
        _three(cuda, "grid", grid), _three(cuda, "block", cuda.block), cuda.shared
    )


def _three(cuda: Cuda, option: str, value: Any) -> tuple[int, int, int]:
    """A number or up to three, filled up with ones."""
    found = [value] if isinstance(value, int) else list(value)
    sizes = [*found, 1, 1]
    if len(found) > 3 or any(not isinstance(n, int) or n < 1 for n in sizes):
        raise errors.OptionError(
            f"extend.kernel {cuda.name}: {option}={value!r}; it is a positive integer "
            "or up to three"
        )
    return sizes[0], sizes[1], sizes[2]
