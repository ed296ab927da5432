"""custom_vmap and sequential_vmap: functions that bring their own batching.

Receives a function and its rule over trees; outside of a trace a call runs the plain
function, inside it records one equation of `fnx/control/custom_vmap.py`, with the rule
as programs that are traced when something is mapped. Next on the walk:
`custom_rule.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fnx import errors, tree
from fnx.api.arguments import (
    TracedTree,
    as_array,
    check_callable,
    kind_of,
    leaf_names,
    name_of,
    with_type,
)
from fnx.api.custom import Custom
from fnx.api.custom_call import Call
from fnx.api.held import check_same_tree, mismatch
from fnx.api.loops import map as map_
from fnx.control.constant import closed
from fnx.control.custom_vmap import Batched, BatchRule, custom_vmap_call
from fnx.core.simplify import simplify
from fnx.core.trace import trace
from fnx.transforms.batch import batched
from fnx.transforms.rewrite import Mask


class custom_vmap(Custom):
    """Decorates a function that is given a rule for `vmap` with `def_vmap`.

    The rule takes the number of members, a tuple that says for each argument (for each
    of its leaves, if it is a tree) whether it is mapped, and the arguments; those that
    are mapped have the members along their first axis. It gives the output and, as a
    tree of bools (or one for all), which of its leaves have that axis. Derivatives of
    a mapped function are those of the rule; where `vmap` maps a gradient, the forward
    and backward passes that it consists of are batched without the rule.

    Raises `ArgumentError` when called without a rule, or if its result does not fit.

    >>> import fnx, numpy as np
    >>> @fnx.custom_batching.custom_vmap
    ... def product(a, x):
    ...     return a @ x
    >>> @product.def_vmap
    ... def product_of_many(size, mapped, a, x):
    ...     a_mapped, x_mapped = mapped
    ...     print(f"{size} members, mapped: {a_mapped}, {x_mapped}")
    ...     many = (x @ a.T) if not a_mapped else (a @ x[..., None])[..., 0]
    ...     return many, True
    >>> fnx.vmap(product, (None, 0))(2.0 * np.eye(2), np.ones((3, 2))).shape
    3 members, mapped: False, True
    (3, 2)
    """

    kind = "custom_vmap"
    vmap_rule: Callable[..., Any] | None = None

    def __init__(self, fun: Callable[..., Any]) -> None:
        super().__init__(fun)

    def def_vmap(self, vmap_rule: Callable[..., Any]) -> Callable[..., Any]:
        """Sets the rule; gives it back, so that this is a decorator."""
        check_callable(f"{self._asker}: def_vmap", vmap_rule)
        self.vmap_rule = vmap_rule
        return vmap_rule

    def _check_rule(self) -> None:
        if self.vmap_rule is None:
            raise errors.ArgumentError(
                errors.explain(
                    f"{self._asker} has no rule", "", "define one with def_vmap"
                )
            )

    def _record(self, call: Call) -> Any:
        assert self.vmap_rule is not None
        traced = call.trace_function()
        rule = functools.partial(_batched, call, traced, self.vmap_rule)
        results = custom_vmap_call(
            *traced.captured,
            *call.operands,
            program=traced.program,
            rule=BatchRule(rule),
            name=name_of(self.fun),
        )
        return traced.out_tree.unflatten(results)


def _batched(
    call: Call, traced: TracedTree, rule: Callable[..., Any], size: int, mapped: Mask
) -> Batched:
    """The rule over captured arrays and operands, of which some are mapped."""
    kept = len(traced.captured)
    for x, flag in zip(traced.captured, mapped, strict=False):
        if flag:
            raise errors.ArgumentError(
                errors.explain(
                    f"{call.asker} is mapped",
                    f"it closes over an array of type {x.type} that is mapped, which "
                    "its rule does not know",
                    "pass that array as an argument",
                )
            )
    flags = mapped[kept:]
    out_flags: Mask = ()

    def run(*operands: Any) -> list[Any]:
        nonlocal out_flags
        marks = iter(flags)
        shown = [wanted and next(marks) for wanted in call.is_operand]
        in_batched: Any = call.in_tree.unflatten(shown)
        result = rule(size, tuple(in_batched), *call.arguments(operands))
        outputs, out_flags = _checked(call, traced, result, size)
        return outputs

    rows = zip(call.operands, flags, strict=True)
    types = [batched(x.type, size) if flag else x.type for x, flag in rows]
    made = trace(run, types, names=call.operand_names, captured=traced.captured)
    program = simplify(closed(made, f"the vmap rule of {call.asker}", kept))
    return program, out_flags


def _checked(
    call: Call, traced: TracedTree, result: Any, size: int
) -> tuple[list[Any], Mask]:
    """The leaves of what a rule returned, and which have the axis."""
    asker, treedef = f"{call.asker}: the vmap rule", traced.out_tree
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise errors.ArgumentError(
            errors.explain(
                f"{asker} must return a pair (output, which of it is mapped)",
                f"it returned {kind_of(result)}",
            )
        )
    output, out_batched = result
    leaves, found = tree.flatten(output)
    check_same_tree(asker, treedef, found, "the function's output", "its output")
    flags = tree.broadcast_prefix(out_batched, treedef, f"{asker}: which is mapped")
    names = leaf_names(["its output"], [treedef])
    arrays, lines = [], []
    rows = zip(leaves, traced.out_types, flags, names, strict=True)
    for leaf, one, flag, name in rows:
        array = as_array(leaf, asker, name)
        wanted = batched(one, size) if flag else one
        if (array.shape, array.dtype) != (wanted.shape, wanted.dtype):
            lines.append(f"{name} is {array.type}, and should be {wanted}")
        else:
            arrays.append(with_type(array, wanted))
    if lines:
        raise mismatch(f"{asker} gives other types than the function", lines)
    return arrays, tuple([bool(flag) for flag in flags])


def sequential_vmap(f: Callable[..., Any]) -> custom_vmap:
    """Decorates a function that `vmap` applies to one member after the other.

    It saves memory, and it serves functions that must not run for several members at
    once. Results and derivatives are those of `vmap`.

    >>> import fnx, numpy as np
    >>> slow = fnx.custom_batching.sequential_vmap(lambda x, y: x * y)
    >>> fnx.vmap(slow, (0, None))(np.arange(3.0), 2.0)
    Array([0., 2., 4.], dtype=float64)
    """
    wrapped = custom_vmap(f)

    def rule(size: int, in_batched: Sequence[Any], *args: Any) -> Any:
        leaves, treedef = tree.flatten(args)
        flags = tree.leaves(in_batched)
        rows = list(zip(leaves, flags, strict=True))

        def one(members: list[Any]) -> Any:
            given = iter(members)
            values = [next(given) if flag else leaf for leaf, flag in rows]
            return wrapped(*treedef.unflatten(values))

        return map_(one, [leaf for leaf, flag in rows if flag]), True

    wrapped.def_vmap(rule)
    return wrapped


__all__ = ["custom_vmap", "sequential_vmap"]
