"""fwd_and_bwd and hvp: the two passes of reverse mode apart, and one over the other.

Receives a function; gives its forward and backward pass as two functions, or the
product of its Hessian with a vector. Next on the walk: `jet.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fnx import errors
from fnx.api.arguments import check_callable, name_of
from fnx.api.derivatives import jvp, linearized
from fnx.api.grad import Selection, check_inputs, choose, grad
from fnx.api.jit import jit
from fnx.tree import Partial


def fwd_and_bwd(
    fun: Callable[..., Any],
    argnums: int | Sequence[int],
    has_aux: bool = False,
    jitted: bool = True,
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The forward and the backward pass of `fun`, as two functions.

    `fwd(*args)` gives `(output, residuals)`, and the auxiliary data behind them with
    `has_aux`; `bwd(residuals, ct)` gives the cotangent of the argument of number
    `argnums`, or a tuple of them if it is a tuple. The residuals are a tree of arrays.
    Both are compiled once, for as many calls as there are, unless `jitted=False`.

    Raises what `vjp` raises.

    >>> import fnx, numpy as np
    >>> fwd, bwd = fnx.fwd_and_bwd(lambda x, w: fnx.numpy.sin(w * x), argnums=(0, 1))
    >>> y, residuals = fwd(np.array([1.0, 2.0]), 0.0)
    >>> bwd(residuals, np.ones(2))[1].item()
    3.0
    """
    check_callable("fwd_and_bwd", fun)
    selection = Selection.of("fwd_and_bwd", fun, argnums, None)

    @functools.wraps(fun)
    def fwd(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        asker = "fwd_and_bwd"
        chosen = choose(asker, fun, selection, args, kwargs)
        check_inputs(asker, chosen, holomorphic=False, allow_int=True)
        point = linearized(asker, chosen.call, chosen.args, chosen.roots, has_aux)
        residuals = Partial(point.map.pull, point.residuals)
        both = point.result(), residuals
        return (*both, point.aux) if has_aux else both

    def bwd(residuals: Any, ct: Any) -> Any:
        return selection.result(residuals(ct))

    bwd.__name__ = f"bwd of {name_of(fun)}"
    if jitted:
        return jit(fwd), jit(bwd)
    return errors.api_boundary(fwd), errors.api_boundary(bwd)


@errors.api_boundary
def hvp(
    fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]
) -> Any:
    """The product of the Hessian of `fun` with a vector, without the Hessian.

    `fun` gives a scalar; `primals` are its arguments, `tangents` the vector, two tuples
    of one structure. The product has the structure of the argument, if there is one,
    else that of the tuple. It costs a few times as much as `fun`: it is the jvp of the
    gradient.

    Raises what `grad` and `jvp` raise.

    >>> import fnx, numpy as np
    >>> x, v = np.array([1.0, 2.0]), np.array([1.0, 0.0])
    >>> fnx.hvp(lambda x: (x**3).sum(), (x,), (v,))
    Array([6., 0.], dtype=float64)
    """
    check_callable("hvp", fun)
    if not isinstance(primals, tuple | list):
        kind = type(primals).__name__
        raise errors.ArgumentError(
            errors.explain(
                "hvp: primals must be a tuple or list, one entry for each argument",
                f"got {kind}",
                "write (primals,)",
            )
        )
    numbers = 0 if len(primals) == 1 else tuple(range(len(primals)))
    return jvp(grad(fun, numbers), primals, tangents)[1]


__all__ = ["fwd_and_bwd", "hvp"]
