"""custom_rule: any of a function's rules at once; linear_call: its transpose.

Receives a function and rules; gives one of the decorated functions of `custom.py` and
`custom_vmap.py`, or a function that is known by its transpose.
Next on the walk: `device.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx import dtypes, errors
from fnx.api.arguments import TracedTree, check_callable, name_of
from fnx.api.custom import Custom, custom_jvp, custom_vjp, fixed_places
from fnx.api.custom_call import Call
from fnx.api.custom_vmap import custom_vmap
from fnx.api.rules import cotangent_leaves
from fnx.api.tangents import zeros
from fnx.control.call import chosen
from fnx.control.constant import closed
from fnx.control.custom import custom_vjp_linear
from fnx.control.held import arranged, others
from fnx.core.program import Program
from fnx.core.simplify import simplify
from fnx.core.trace import trace

Function = Callable[..., Any]


def custom_rule(
    fun: Function | None = None,
    *,
    jvp: Function | None = None,
    vjp: tuple[Function, Function] | None = None,
    vmap: Function | None = None,
    transpose: Function | None = None,
    nondiff_argnums: int | Sequence[int] = (),
    nondiff_argnames: str | Sequence[str] = (),
) -> Any:
    """Decorates a function with any of its rules; what has none is derived from it.

    * `jvp(primals, tangents)` gives the output and its tangent, as in `custom_jvp`;
    * `vjp` is a pair: `forward(*args)` gives the output and residuals,
      `backward(residuals, ct)` a tuple of cotangents, as in `custom_vjp`. With both
      rules forward mode takes the first, and reverse mode the second;
    * `vmap(axis_size, in_batched, *args)` gives the output and which of it is mapped,
      as in `fnx.custom_batching.custom_vmap`;
    * `transpose(ct)` says that the function is linear, and gives a tuple of cotangents;
      jvp and vjp rules are not needed then.

    Arguments in `nondiff_argnums` (or `nondiff_argnames`) are not differentiated by (a
    function with a `transpose` need not be linear in them); the rules but `vmap` get
    them first, by position. Raises `ArgumentError` without a rule or for one that is no
    function, and `OptionError` for `transpose` beside `jvp` or `vjp`.

    >>> import fnx, numpy as np
    >>> @fnx.custom_rule(
    ...     jvp=lambda primals, tangents: (primals[0] ** 2, 7.0 * tangents[0]),
    ...     vjp=(lambda x: (x**2, None), lambda _, ct: (8.0 * ct,)),
    ... )
    ... def square(x):
    ...     return x**2
    >>> fnx.jvp(square, (3.0,), (1.0,))[1].item(), fnx.grad(square)(3.0).item()
    (7.0, 8.0)

    >>> @fnx.custom_rule(transpose=lambda n, ct: (ct[:n],), nondiff_argnums=0)
    ... def padded(n, x):
    ...     return fnx.numpy.concatenate([x, np.zeros(2)])
    >>> fnx.vjp(lambda x: padded(3, x), np.ones(3))[1](np.arange(5.0))
    (Array([0., 1., 2.], dtype=float64),)
    """
    if fun is None:
        return lambda later: custom_rule(
            later,
            jvp=jvp,
            vjp=vjp,
            vmap=vmap,
            transpose=transpose,
            nondiff_argnums=nondiff_argnums,
            nondiff_argnames=nondiff_argnames,
        )
    check_callable("custom_rule", fun)
    given = {"jvp": jvp, "vmap": vmap, "transpose": transpose}
    for name, rule in given.items():
        if rule is not None:
            check_callable(f"custom_rule: {name}", rule)
    if vjp is None and all(rule is None for rule in given.values()):
        raise errors.ArgumentError("custom_rule: give one of jvp, vjp, vmap, transpose")
    if transpose is not None and not (jvp is None and vjp is None):
        raise errors.OptionError(
            errors.explain(
                "custom_rule: transpose beside jvp or vjp",
                "a linear function is its own derivative, whose transpose is given",
                "leave jvp and vjp out, or transpose",
            )
        )
    nondiff = nondiff_argnums, nondiff_argnames
    inner = _differentiable(fun, jvp, vjp, transpose, nondiff)
    if vmap is None:
        return inner
    outer = custom_vmap(inner)
    outer.nondiff = fixed_places("custom_rule", fun, *nondiff)
    outer.def_vmap(vmap)
    return outer


def _differentiable(
    fun: Function,
    jvp: Function | None,
    vjp: tuple[Function, Function] | None,
    transpose: Function | None,
    nondiff: tuple[Any, Any],
) -> Any:
    """The function with its derivative rules, if there are any."""
    if transpose is not None:
        return _Linear(fun, transpose, *nondiff)
    if vjp is not None:
        if not isinstance(vjp, tuple | list) or len(vjp) != 2:
            raise errors.ArgumentError(
                f"custom_rule: vjp is a pair (forward, backward), got {vjp!r}"
            )
        reverse = custom_vjp(fun, *nondiff)
        reverse.defvjp(*vjp)
        reverse.jvp = jvp
        return reverse
    if jvp is not None:
        forward = custom_jvp(fun, *nondiff)
        forward.defjvp(jvp)
        return forward
    return fun


class _Linear(Custom):
    """A function that is linear in its differentiable arguments, and its transpose."""

    kind = "custom_rule"

    def __init__(self, fun: Function, rule: Function, *nondiff: Any) -> None:
        super().__init__(fun, *nondiff)
        self.rule = rule

    def _check_rule(self) -> None:
        pass  # it is there from the beginning

    def _record(self, call: Call) -> Any:
        traced = call.trace_function()
        fixed = len(traced.captured)
        linear = (False,) * fixed + call.differentiable
        numbers = range(len(linear))
        residuals = others(numbers, linear)
        operands = [*traced.captured, *call.operands]
        for type in traced.out_types:
            if not dtypes.is_inexact(type.dtype):
                raise errors.DTypeError(
                    f"{call.asker}: the output has a leaf of type {type}; that of a "
                    "linear function is real or complex"
                )
        results = custom_vjp_linear(
            *others(operands, linear),
            *chosen(operands, linear),
            backward=_transpose_rule(call, traced, self.rule),
            forward=arranged(traced.program, [*residuals, *chosen(numbers, linear)]),
            residuals=len(residuals),
            outputs=traced.out_types,
            name=name_of(self.fun),
        )
        return traced.out_tree.unflatten(results)


def _transpose_rule(call: Call, traced: TracedTree, rule: Function) -> Program:
    """The rule over captured arrays, operands that are not linear, and cotangents."""
    types = [x.type for x in call.operands]
    mask, kept = call.differentiable, len(traced.captured)
    fixed = others(types, mask)

    def run(*values: Any) -> list[Any]:
        given = iter(values)
        rows = zip(types, mask, strict=True)
        # the values of linear arguments have no part in the rule: zeros stand for them
        operands = [zeros(type) if linear else next(given) for type, linear in rows]
        apart, primals = call.parted(operands)
        ct = traced.out_tree.unflatten(list(given))
        primal_types = call.primal_types(types)
        return cotangent_leaves(call.asker, rule(*apart, ct), primals, primal_types)

    names = [f"a cotangent of {call.asker}"] * (len(fixed) + len(traced.out_types))
    made = trace(
        run, [*fixed, *traced.out_types], names=names, captured=traced.captured
    )
    return simplify(closed(made, f"the transpose rule of {call.asker}", kept))


@errors.api_boundary
def linear_call(
    fun: Function, fun_transpose: Function, residual_args: Any, linear_args: Any
) -> Any:
    """Calls `fun(residual_args, linear_args)`, whose transpose is known.

    `fun` is linear in `linear_args`, a tree of real or complex arrays;
    `fun_transpose(residual_args, ct)` takes a cotangent of the output and gives one of
    `linear_args`. Both trees are like those of any function.

    Raises `ArgumentError`, `TreeError` or `ShapeError` where the transpose gives
    something else than `linear_args`, `DTypeError` for an output of integers.

    >>> import fnx
    >>> def twice(x):
    ...     scale = lambda r, x: r * x
    ...     return fnx.custom_derivatives.linear_call(scale, scale, 2.0, x)
    >>> twice(3.0), fnx.grad(twice)(3.0).item()
    (6.0, 2.0)
    """
    check_callable("linear_call", fun)
    check_callable("linear_call: fun_transpose", fun_transpose)

    def rule(residuals: Any, ct: Any) -> tuple[Any]:
        return (fun_transpose(residuals, ct),)

    return _Linear(fun, rule, 0)(residual_args, linear_args)


__all__ = ["custom_rule", "linear_call"]
