"""custom_jvp and custom_vjp: functions that bring their own derivative.

Receives a function and its rules over trees; outside of a trace a call runs the plain
function, inside it records one equation of `control.custom`, with the rules as flat
programs that are traced when they are needed. What a rule closes over becomes a
constant of its program. Next on the walk: `device.py`.
"""

from __future__ import annotations

import functools
import inspect
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors, tree
from fnx.api.arguments import (
    TracedTree,
    check_callable,
    indices,
    look_like,
    name_of,
    output_arrays,
)
from fnx.api.custom_call import Call, bind_call, rule_program
from fnx.api.rules import check_pair, check_results, cotangent_leaves, tangent_leaves
from fnx.api.symbolic import SymbolicZero, instantiated
from fnx.api.tangents import moves, zeros
from fnx.control.call import chosen, spread
from fnx.control.constant import closed
from fnx.control.custom import Rule, custom_jvp_call, custom_vjp_call
from fnx.core.program import Program
from fnx.core.simplify import simplify
from fnx.core.trace import trace, tracing
from fnx.core.types import ArrayType
from fnx.ops.arithmetic import add
from fnx.records import record
from fnx.transforms.rewrite import Mask
from fnx.tree import PyTreeDef


class Custom(ABC):
    """What the two decorators share: the arguments, and methods."""

    kind = ""

    def __init__(
        self,
        fun: Callable[..., Any],
        nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ) -> None:
        check_callable(self.kind, fun)
        look_like(self, fun)
        self.fun = fun
        self.nondiff = fixed_places(self.kind, fun, nondiff_argnums, nondiff_argnames)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<{self.kind} of {name_of(self.fun)}>"

    @property
    def _asker(self) -> str:
        return f"{self.kind} of {name_of(self.fun)}"

    @errors.api_boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's value; inside a transformation it carries its rule."""
        self._check_rule()
        args = self._positional(args, kwargs)
        if not tracing():
            return self.fun(*args)
        return self._record(bind_call(self._asker, self.fun, self.nondiff, args))

    @functools.cached_property
    def _accepted(self) -> inspect.Signature:
        return inspect.signature(self.fun)

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """All arguments by position, defaults included, since rules have no names."""
        try:
            bound = self._accepted.bind(*args, **kwargs)
        except ValueError:  # a builtin without a signature
            return args
        bound.apply_defaults()
        if bound.kwargs:
            raise errors.ArgumentError(
                errors.explain(
                    f"{self._asker}: {next(iter(bound.kwargs))} is a keyword-only "
                    "argument",
                    "rules take their arguments by position",
                    "make it a positional argument",
                )
            )
        return bound.args

    @abstractmethod
    def _check_rule(self) -> None:
        """Raises if no rule was given."""

    @abstractmethod
    def _record(self, call: Call) -> Any:
        """The outputs of an equation with the rule."""


def fixed_places(
    asker: str,
    fun: Callable[..., Any],
    numbers: int | Sequence[int],
    names: str | Sequence[str],
) -> tuple[int, ...]:
    """The places of a function's arguments that are not differentiated by."""
    many = (names,) if isinstance(names, str) else tuple(names)
    known = list(inspect.signature(fun).parameters) if many else []
    for name in many:
        if name not in known:
            raise errors.OptionError(
                f"{asker}: nondiff_argnames has {name!r}; the function takes "
                f"{', '.join(known)}."
            )
    named = [known.index(name) for name in many]
    return (*indices(asker, "nondiff_argnums", numbers), *named)


# ---------------------------------------------------------------- custom_jvp


class custom_jvp(Custom):
    """Decorates a function that is given a forward-mode rule with `defjvp`.

    The rule takes the primals and the tangents as two tuples and gives the output and
    its tangent; it must be linear in the tangents, so that reverse mode works too.
    Arguments in `nondiff_argnums` (or `nondiff_argnames`) are not differentiated by;
    the rule gets them first. Raises `ArgumentError` when called without a rule or if
    the rule's result does not fit the function's.

    >>> import fnx
    >>> @fnx.custom_jvp
    ... def square(x):
    ...     return x * x
    >>> @square.defjvp
    ... def square_jvp(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return square(x), 100.0 * x * t
    >>> fnx.grad(square)(3.0).item()
    300.0
    """

    kind = "custom_jvp"
    jvp: Callable[..., Any] | None = None
    symbolic_zeros = False

    def defjvp(
        self, jvp: Callable[..., Any], symbolic_zeros: bool = False
    ) -> Callable[..., Any]:
        """Sets the rule; gives it back, so that this is a decorator.

        With `symbolic_zeros`, tangents of arguments that do not move are given as
        `fnx.custom_derivatives.SymbolicZero`, and the rule may return such zeros.
        """
        check_callable(f"{self._asker}: defjvp", jvp)
        self.jvp, self.symbolic_zeros = jvp, bool(symbolic_zeros)
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Sets one rule for each argument: `rule(tangent, output, *primals)`.

        `None` stands for a derivative of zero.

        >>> import fnx
        >>> twice = fnx.custom_jvp(lambda x: 2.0 * x)
        >>> twice.defjvps(lambda t, output, x: 3.0 * t)
        >>> fnx.grad(twice)(1.0).item()
        3.0
        """
        if self.nondiff:
            raise errors.ArgumentError(
                f"{self._asker}: defjvps does not know nondiff_argnums; use defjvp."
            )

        def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
            output = self(*primals)
            if len(jvps) != len(primals):
                raise errors.ArgumentError(
                    f"{self._asker}: defjvps was given {len(jvps)} rules for "
                    f"{len(primals)} arguments; give one (or None) for each."
                )
            total: Any = None
            for rule, t in zip(jvps, tangents, strict=True):
                if rule is not None:
                    moved = rule(t, output, *primals)
                    total = moved if total is None else tree.map(add, total, moved)
            if total is None:
                total = tree.map(lambda x: zeros(x.type), output)
            return output, total

        self.jvp, self.symbolic_zeros = jvp, False

    def _check_rule(self) -> None:
        if self.jvp is None:
            raise errors.ArgumentError(
                errors.explain(
                    f"{self._asker} has no rule",
                    "",
                    "define one with defjvp or defjvps",
                )
            )

    def _record(self, call: Call) -> Any:
        assert self.jvp is not None
        traced = call.trace_function()
        results = custom_jvp_call(
            *traced.captured,
            *call.operands,
            program=traced.program,
            rule=jvp_rule(call, traced, self.jvp, self.symbolic_zeros),
            differentiable=(False,) * len(traced.captured) + call.differentiable,
            name=name_of(self.fun),
        )
        return traced.out_tree.unflatten(results)


def jvp_rule(
    call: Call, traced: TracedTree, jvp: Callable[..., Any], symbolic: bool
) -> Rule:
    """The rule over captured arrays, operands, and tangents of the differentiable.

    If it is `symbolic`, over those tangents that are not zero.
    """
    operand_types = [x.type for x in call.operands]
    types = chosen(operand_types, call.differentiable)

    def make(moving: Mask) -> Program:
        mask = moving if symbolic else (True,) * len(types)

        def run(operands: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
            apart, primals = call.parted(operands)
            treedef = tree.structure(primals)
            primal_types = call.primal_types(operand_types)
            moved = _with_zeros(iter(tangents), primal_types, mask)
            result = jvp(*apart, primals, treedef.unflatten(moved))
            output, tangent = check_pair(call.asker, "the jvp rule", result)
            out = traced.out_tree, traced.out_types
            outputs = check_results(call.asker, "the jvp rule", output, *out)
            return outputs + tangent_leaves(call.asker, instantiated(tangent), *out)

        return rule_program(call, traced, run, chosen(types, mask))

    return Rule(make, symbolic)


# ---------------------------------------------------------------- custom_vjp


class custom_vjp(Custom):
    """Decorates a function that is given a reverse-mode rule with `defvjp`.

    `forward` takes the function's arguments and gives the output and residuals (any
    tree of arrays); `backward` takes the residuals and the output's cotangent and gives
    a tuple with a cotangent for each argument, where `None` stands for zeros. Arguments
    in `nondiff_argnums` (or `nondiff_argnames`) are not differentiated by; `backward`
    gets them first. Forward mode works too where `backward` is linear in the
    cotangent. Raises `ArgumentError` when called without a rule, or if a rule's result
    does not fit.

    >>> import fnx
    >>> @fnx.custom_vjp
    ... def clipped(x):
    ...     return x
    >>> clipped.defvjp(lambda x: (x, None), lambda _, ct: (0.5 * ct,))
    >>> fnx.grad(lambda x: clipped(x) * 8.0)(1.0).item()
    4.0
    """

    kind = "custom_vjp"
    fwd: Callable[..., Any] | None = None
    bwd: Callable[..., Any] | None = None
    jvp: Callable[..., Any] | None = None
    symbolic_zeros = False

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Sets the forward and the backward rule.

        With `symbolic_zeros`, each differentiable leaf that `fwd` gets is a
        `fnx.custom_derivatives.CustomVJPPrimal`, which has a `value` and knows whether
        it is `perturbed`; the cotangents of outputs that do not matter come to `bwd`
        as `SymbolicZero`, and it may return such zeros. `optimize_remat` promises that
        `fwd` gives what the function gives, so that a forward pass that nobody
        differentiates may run the function; here it does so without it too.
        """
        check_callable(f"{self._asker}: defvjp", fwd)
        check_callable(f"{self._asker}: defvjp", bwd)
        if not isinstance(optimize_remat, bool):
            raise errors.OptionError(
                f"{self._asker}: optimize_remat is a bool, got {optimize_remat!r}"
            )
        self.fwd, self.bwd = fwd, bwd
        self.symbolic_zeros = bool(symbolic_zeros)

    def _check_rule(self) -> None:
        if self.fwd is None or self.bwd is None:
            raise errors.ArgumentError(
                errors.explain(
                    f"{self._asker} has no rule", "", "define one with defvjp"
                )
            )

    def _record(self, call: Call) -> Any:
        assert self.fwd is not None
        assert self.bwd is not None
        traced = call.trace_function()
        symbolic = self.symbolic_zeros
        rules = _VjpRules(call, traced, self.fwd, self.bwd, symbolic)
        tangent = self.jvp and jvp_rule(call, traced, self.jvp, False)
        results = custom_vjp_call(
            *traced.captured,
            *call.operands,
            program=traced.program,
            forward=rules.forward,
            backward=Rule(rules.make_backward, symbolic),
            tangent=tangent,
            differentiable=(False,) * len(traced.captured) + call.differentiable,
            name=name_of(self.fun),
        )
        return traced.out_tree.unflatten(results)


@record
class _Residuals:
    """The structure of the residuals, and those that are Python's own numbers.

    Those stay what they are, and the backward rule may branch on them: on whether an
    argument was `perturbed`, for example. The others, None here, become arrays.
    """

    treedef: PyTreeDef
    known: tuple[Any, ...]

    def filled(self, arrays: Iterator[Any]) -> Any:
        """The residuals with the next arrays in the places of what is not known."""
        leaves = [next(arrays) if x is None else x for x in self.known]
        return self.treedef.unflatten(leaves)


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, bool | int | float | complex) and not isinstance(
        leaf, np.generic
    )


class _VjpRules:
    """The two rules of one call: the backward one needs the forward one's residuals.

    Masks are those of `control.custom`: of differentiable operands, and for the
    backward rule of the inexact outputs behind them.
    """

    def __init__(
        self,
        call: Call,
        traced: TracedTree,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic: bool,
    ) -> None:
        self.call, self.traced = call, traced
        self.fwd, self.bwd = fwd, bwd
        self.symbolic = symbolic
        self.forward = Rule(self.make_forward, symbolic)
        self.residuals: dict[Mask, _Residuals] = {}

    def make_forward(self, moving: Mask) -> Program:
        """Captured arrays and operands to the outputs and what `backward` is given:
        the operands that are not differentiable, and the residuals.
        """
        call, traced = self.call, self.traced
        perturbed = spread(moving, call.differentiable) if self.symbolic else None

        def run(operands: Sequence[Any], _: Sequence[Any]) -> list[Any]:
            result = self.fwd(*call.arguments(operands, perturbed))
            output, residuals = check_pair(call.asker, "the forward rule", result)
            types = traced.out_types
            outputs = check_results(
                call.asker, "the forward rule", output, traced.out_tree, types
            )
            leaves, treedef = tree.flatten(residuals)
            known = tuple([x if _is_number(x) else None for x in leaves])
            self.residuals[moving] = _Residuals(treedef, known)
            asker = f"{call.asker}: the residuals"
            arrays = output_arrays(asker, leaves, treedef)
            kept = chosen(arrays, tuple([x is None for x in known]))
            return [*outputs, *chosen(operands, call.is_apart()), *kept]

        return rule_program(call, traced, run, [])

    def make_backward(self, mask: Mask) -> Program:
        """Residuals and cotangents to a cotangent for each differentiable operand."""
        call, traced = self.call, self.traced
        moving, given = (
            mask[: sum(call.differentiable)],
            mask[sum(call.differentiable) :],
        )
        out_types = traced.out_types
        kept_types = self.forward.program(moving).output_types[len(out_types) :]
        # the forward rule that is not symbolic has been traced for some mask, once
        found = self.residuals
        kept = found[moving] if self.symbolic else next(iter(found.values()))
        shown = given if self.symbolic else (True,) * len(given)

        def run(*values: Any) -> list[Any]:
            rest = iter(values)
            rows = zip(call.operands, call.is_apart(), strict=True)
            operands = [next(rest) if apart else x for x, apart in rows]
            residuals = kept.filled(rest)
            cts = traced.out_tree.unflatten(_with_zeros(rest, out_types, shown))
            apart, primals = call.parted(operands)
            result = self.bwd(*apart, residuals, cts)
            types = call.primal_types([x.type for x in operands])
            return cotangent_leaves(call.asker, instantiated(result), primals, types)

        ct_types = chosen([t for t in out_types if dtypes.is_inexact(t.dtype)], shown)
        names = [f"a residual or cotangent of {call.asker}"]
        rule = trace(
            run,
            [*kept_types, *ct_types],
            names=names * (len(kept_types) + len(ct_types)),
        )
        return simplify(closed(rule, f"the backward rule of {call.asker}"))


def _with_zeros(
    given: Iterator[Any], types: Sequence[ArrayType], mask: Mask
) -> list[Any]:
    """Tangents in order, with float0 zeros for the leaves that have none.

    `mask` says which of the others are given; the rest are symbolic zeros.
    """
    marks = iter(mask)
    found: list[Any] = []
    for type, moving in zip(types, moves(types), strict=True):
        if not moving:
            found.append(zeros(type))
        else:
            found.append(next(given) if next(marks) else SymbolicZero(type))
    return found


__all__ = ["custom_jvp", "custom_vjp"]
