"""`foreign`: the equation of a kernel that the user brought (`fnx.extend.kernel`).

A plan has a step for it, which the CPU runs as machine code at an address, or by a call
of Python. It has no derivative of its own, and `vmap` runs it for one member after the
other: what users give instead are rules around it.
Next on the walk: `custom.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import errors
from fnx.control.callback import private
from fnx.control.scan import member_by_member
from fnx.core.foreign import Foreign, Launch, Native
from fnx.core.primitive import MappedAxis, Primitive
from fnx.core.types import ArrayType

Types = tuple[ArrayType, ...]


class _Foreign(Primitive):
    """foreign(*arrays, code, declared, launch): arrays of the declared types.

    `launch` says how CUDA runs it, where there is a form for that.
    """

    multiple = True
    personal = True

    def infer(
        self,
        *types: ArrayType,
        code: Foreign,
        declared: Types,
        launch: Launch | None,
    ) -> Types:
        """The declared types."""
        return declared

    def reference(
        self, *arrays: Any, code: Foreign, declared: Types, launch: Launch | None
    ) -> tuple[Any, ...]:
        """The form for the CPU."""
        if code.cpu is None:
            raise code.missing("cpu")
        if isinstance(code.cpu, Native):
            return _called(code.cpu, arrays, declared)
        # Like a call of the user's own: compiled code has NumPy ignore errors.
        with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
            return tuple(code.cpu(list(map(private, arrays)), declared))

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        code: Foreign,
        declared: Types,
        launch: Launch | None,
    ) -> tuple[Any, Any]:
        """There is none."""
        raise errors.ArgumentError(
            errors.explain(
                f"kernel {code.name}: its derivative is asked for",
                "fnx does not see what a kernel computes",
                "pass jvp= or vjp= to fnx.extend.kernel, or keep the derivative away "
                "with fnx.lax.stop_gradient",
            )
        )

    def transpose(self, ct: Any, *inputs: Any, code: Foreign, **_: Any) -> Any:
        """There is none: nobody has said that it is linear."""
        raise errors.ArgumentError(
            errors.explain(
                f"kernel {code.name}: a cotangent is asked for",
                "a jvp rule applies it to tangents, and fnx does not see what it does",
                "compute the tangent by operations of fnx, or pass vjp=, too",
            )
        )

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        **params: Any,
    ) -> tuple[Any, Any]:
        """One member after the other."""
        return member_by_member(self, axis, args, mapped, params)

    def steps(
        self,
        plan: Any,
        *inputs: Any,
        code: Foreign,
        declared: Types,
        launch: Launch | None,
    ) -> None:
        """A step that the backend knows how to run."""
        plan.foreign(code, launch)


foreign = _Foreign("foreign")


def _called(native: Native, arrays: Sequence[Any], types: Types) -> tuple[Any, ...]:
    """What a C function writes."""
    given = [np.ascontiguousarray(x) for x in arrays]
    outputs = tuple([np.empty(type.shape, type.dtype) for type in types])
    sizes = [size for x in arrays for size in np.shape(x)]
    pointers = [x.ctypes.data for x in (*given, *outputs)]
    kinds = [*[ctypes.c_void_p] * len(pointers), *[ctypes.c_int64] * len(sizes)]
    ctypes.CFUNCTYPE(None, *kinds)(native.address)(*pointers, *sizes)
    return outputs
