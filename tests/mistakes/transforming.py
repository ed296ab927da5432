"""Mistakes that users make with transformations and custom rules.

Each function makes one; its docstring is the whole text of the error, where `here:`
stands for the file and line of this file. Next on the walk: `../test_mistakes.py`.
"""

from __future__ import annotations

import numpy as np

import fnx
import fnx.numpy as fnp
from fnx import lax
from tests.mistakes.made import PARAMS, ROWS, X, mistake

# ---------------------------------------------------------------- transformations


@mistake
def a_gradient_of_a_vector() -> None:
    """
    grad needs a scalar output: the function returned f64[2].
      Fix: take fnx.numpy.sum or mean of it, return one output (the others with has_aux=True), or use fnx.jacrev for all derivatives.
    """

    def loss(params, x):
        return x @ params["w"]

    fnx.grad(loss)(PARAMS, X)


@mistake
def a_gradient_of_a_pair() -> None:
    """
    grad needs a scalar output: the function returned a tree: (f64[], f64[3])
      Fix: take fnx.numpy.sum or mean of it, return one output (the others with has_aux=True), or use fnx.jacrev for all derivatives.
    """

    def loss(params, x):
        return (x @ params["w"]).sum(), x

    fnx.grad(loss)(PARAMS, X)


@mistake
def a_gradient_by_an_integer() -> None:
    """
    grad: params['steps'] is i32[]*: there is no derivative by an integer.
      Fix: pass a float (such as params['steps'].astype('float32')), choose other argnums, or pass allow_int=True to get float0 zeros.
    """

    def loss(params):
        return params["w"] * params["steps"]

    fnx.grad(loss)({"w": 1.0, "steps": 3})


@mistake
def a_gradient_by_an_argument_that_is_not_there() -> None:
    """
    grad: argnums=2: the call has 2 positional arguments.
      Fix: pass that argument by position, or change the number.
    """

    def loss(params, x):
        return x.sum()

    fnx.grad(loss, argnums=2)(PARAMS, X)


@mistake
def has_aux_without_a_pair() -> None:
    """
    grad with has_aux=True: the function must return a pair (output, auxiliary data): it returned np.float64(3.0) of type float64.
    """

    def loss(params, x):
        return x.sum()

    fnx.grad(loss, has_aux=True)(PARAMS, X)


@mistake
def sizes_that_differ() -> None:
    """
    vmap: the mapped axes must have equal sizes:
      params['b'][0]: f64[2] has 2 at axis 0
      params['b'][1]: f64[2] has 2 at axis 0
      params['w']: f64[3,2] has 3 at axis 0
      x: f64[4,3] has 4 at axis 0
    """

    def predict(params, x):
        return x @ params["w"]

    fnx.vmap(predict)(PARAMS, ROWS)


@mistake
def an_axis_that_is_not_there() -> None:
    """
    vmap: x is f64[4,3]: it has no axis 2 to map.
      Fix: give it None in in_axes, so that all members share it.
    """

    def predict(params, x):
        return x @ params["w"]

    fnx.vmap(predict, in_axes=(None, 2))(PARAMS, ROWS)


@mistake
def an_axis_of_a_scalar() -> None:
    """
    vmap: scale is f32[]*: it has no axis 0 to map.
      Fix: give it None in in_axes, so that all members share it.
    """

    fnx.vmap(lambda x, scale: x * scale)(ROWS, 2.0)


@mistake
def axes_for_fewer_arguments() -> None:
    """
    vmap: in_axes=(None,) has 1 entries: the function was called with 2 positional arguments.
      Fix: give in_axes one entry for each positional argument.
    """

    def predict(params, x):
        return x @ params["w"]

    fnx.vmap(predict, in_axes=(None,))(PARAMS, ROWS)


@mistake
def axes_of_another_structure() -> None:
    """
    prefix of a tree: the tree does not have the structure of vmap's in_axes:
      at [0]['bias']: only in vmap's in_axes
      at [0]['b']: only in the tree
    """

    def predict(params, x):
        return x @ params["w"]

    fnx.vmap(predict, in_axes=({"w": None, "bias": None}, 0))(PARAMS, ROWS)


@mistake
def nothing_that_is_mapped() -> None:
    """
    vmap: no argument is mapped: in_axes is None for all of them.
      Fix: map an argument, or pass axis_size.
    """

    fnx.vmap(lambda x: x, in_axes=None)(X)


@mistake
def an_axis_that_is_a_float() -> None:
    """
    vmap: in_axes=0.5: axes are integers or None, got 0.5.
    """

    fnx.vmap(lambda x: x, in_axes=0.5)(X)


@mistake
def an_output_that_is_mapped_and_should_not_be() -> None:
    """
    vmap: out_axes is None for the output: it depends on a mapped argument, so each member has its own.
      Fix: give it an axis in out_axes.
    """

    fnx.vmap(lambda x: x * 2, out_axes=None)(X)


@mistake
def a_static_argument_that_has_no_hash() -> None:
    """
    jit of make: the static shape is of type list: static values must be hashable, since each has its own program.
      Fix: pass a tuple or a frozen dataclass, or do not make it static.
    """

    @fnx.jit(static_argnames="shape")
    def make(x, shape):
        return fnp.broadcast_to(x, shape)

    make(1.0, shape=[2, 3])


@mistake
def a_static_argument_that_is_an_array() -> None:
    """
    jit of scale: the static argument 1 is of type ndarray: static values must be hashable, since each has its own program.
      Fix: pass a tuple or a frozen dataclass, or do not make it static.
    """

    @fnx.jit(static_argnums=1)
    def scale(x, factor):
        return x * factor

    scale(X, X)


@mistake
def a_string_that_is_not_static() -> None:
    """
    jit of reduce: mode is 'sum' of type str: only arrays, numbers and trees of them can be here.
      Fix: name it in static_argnames if it is an option of the function.
    """

    @fnx.jit
    def reduce(x, mode):
        return x.sum() if mode == "sum" else x

    reduce(X, "sum")


@mistake
def a_static_name_that_is_not_there() -> None:
    """
    jit: static_argnames has 'axes', and the function has no argument of that name; it takes x, axis.
    """

    @fnx.jit(static_argnames="axes")
    def reduce(x, axis):
        return x.sum(axis)

    reduce(X, 0)


@mistake
def a_shape_that_is_traced() -> None:
    """
    Python asked for the value of a traced array of type i32[]*, which depends on n, unknown while tracing.
      For a choice by it use fnx.numpy.where(condition, a, b); to make an argument known, mark it in jit(..., static_argnums=...), or move the test outside of the transformed function.
    """

    @fnx.jit
    def zeros(n):
        return fnp.zeros(n)

    zeros(3)


@mistake
def a_tracer_that_is_kept() -> None:
    """
    a traced array of type f64[3], made at here: (a_tracer_that_is_kept.<locals>.f): kept.append(x * 2), was used after its trace had ended. A transformed function must return what it computes, not store it in a global, an attribute or a list that outlives the call.
      It is held by variable kept[0], which a_tracer_that_is_kept.<locals>.f closes over.
    """

    kept = []

    @fnx.jit
    def f(x):
        kept.append(x * 2)
        return x

    f(X)
    kept[0] + 1


@mistake
def a_mask_of_unknown_size() -> None:
    """
    a mask as an index must be known, since the result's shape depends on it: Python asked for the value of a traced array of type bool[3], which depends on x, unknown while tracing.
      it was made at here: (a_mask_of_unknown_size.<locals>.positive): return x[x > 0]
      For a choice by it use fnx.numpy.where(condition, a, b); to make an argument known, mark it in jit(..., static_argnums=...), or move the test outside of the transformed function.
      Use fnx.numpy.where(mask, x, y), or x.at[mask].set(scalar).
    """

    @fnx.jit
    def positive(x):
        return x[x > 0]

    positive(X)


@mistake
def writing_into_an_array() -> None:
    """
    arrays never change, so x[i] = v cannot be; write x = x.at[i].set(v). For x[i] += v write x = x.at[i].add(v).
    """

    @fnx.jit
    def f(x):
        x[0] = 1.0
        return x

    f(X)


@mistake
def a_tangent_of_another_shape() -> None:
    """
    jvp: the tangents[0] is f64[4,3]: the primals there is f64[3], and the shapes must be equal.
    """

    fnx.jvp(lambda x: x * 2, (X,), (ROWS,))


@mistake
def a_cotangent_of_another_structure() -> None:
    """
    vjp: the cotangent must have the structure of the output:
      at the root: the output has a dict with keys 'y', the cotangent has a leaf
    """

    _, pull = fnx.vjp(lambda x: {"y": x * 2}, X)
    pull(X)


@mistake
def a_collective_over_no_axis() -> None:
    """
    the axis name 'batch' is not bound: no axis is bound here.
      Fix: call it inside fnx.vmap(..., axis_name=...), pmap or shard_map with that name.
    """

    fnx.jit(lambda x: lax.psum(x, "batch"))(X)


# ---------------------------------------------------------------- custom rules


@mistake
def a_custom_jvp_without_a_rule() -> None:
    """
    custom_jvp of safe_log has no rule.
      Fix: define one with defjvp or defjvps.
    """

    @fnx.custom_jvp
    def safe_log(x):
        return fnp.log(x)

    fnx.grad(safe_log)(1.0)


@mistake
def a_jvp_rule_that_returns_no_pair() -> None:
    """
    custom_jvp of safe_log: the jvp rule must return a pair (output, tangent): it returned an array of type f32[]*.
    """

    @fnx.custom_jvp
    def safe_log(x):
        return fnp.log(x)

    @safe_log.defjvp
    def rule(primals, tangents):
        return tangents[0] / primals[0]

    fnx.grad(safe_log)(1.0)


@mistake
def a_tangent_of_another_dtype() -> None:
    """
    custom_jvp of safe_log: the tangent that the jvp rule returns is f32[3]: the output there is f64[3], and the dtypes must be equal.
      Fix: convert it with .astype('float64')
    """

    @fnx.custom_jvp
    def safe_log(x):
        return fnp.log(x)

    @safe_log.defjvp
    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        return safe_log(x), (t / x).astype(np.float32)

    fnx.jvp(safe_log, (X,), (X,))


@mistake
def a_custom_vjp_without_rules() -> None:
    """
    custom_vjp of clip has no rule.
      Fix: define one with defvjp.
    """

    @fnx.custom_vjp
    def clip(x):
        return x

    fnx.grad(clip)(1.0)


@mistake
def a_forward_rule_without_residuals() -> None:
    """
    custom_vjp of clip: the forward rule must return a pair (output, residuals): it returned an array of type f32[]*.
    """

    @fnx.custom_vjp
    def clip(x, bound):
        return fnp.minimum(x, bound)

    clip.defvjp(lambda x, bound: clip(x, bound), lambda res, ct: (ct, None))
    fnx.grad(clip)(1.0, 2.0)


@mistake
def a_backward_rule_with_one_cotangent_too_few() -> None:
    """
    custom_vjp of clip: the backward rule must return a tuple with a cotangent for each of the 2 arguments: it returned a tuple of length 1.
      Fix: return None in the place of an argument whose cotangent is zero, and a tuple of one for a single argument.
    """

    @fnx.custom_vjp
    def clip(x, bound):
        return fnp.minimum(x, bound)

    clip.defvjp(lambda x, bound: (clip(x, bound), None), lambda res, ct: (ct,))
    fnx.grad(clip)(1.0, 2.0)


@mistake
def a_cotangent_of_another_shape() -> None:
    """
    custom_vjp of scale: the cotangent of argument 1 is f64[3]: the argument there is f32[]*, and the shapes must be equal.
    """

    @fnx.custom_vjp
    def scale(x, factor):
        return x * factor

    def forward(x, factor):
        return scale(x, factor), (x, factor)

    def backward(residuals, ct):
        x, factor = residuals
        return ct * factor, ct * x

    scale.defvjp(forward, backward)
    fnx.grad(lambda factor: scale(X, factor).sum())(2.0)


@mistake
def a_vmap_rule_that_returns_no_flags() -> None:
    """
    custom_vmap of double: the vmap rule must return a pair (output, which of it is mapped): it returned an array of type f64[3].
    """

    @fnx.custom_batching.custom_vmap
    def double(x):
        return x * 2

    @double.def_vmap
    def rule(size, mapped, x):
        return x * 2

    fnx.vmap(double)(X)


@mistake
def a_custom_rule_that_closes_over_what_moves() -> None:
    """
    the derivative of scaled by an array of type f32[]* is asked for: the function closes over that array or has it among its nondiff_argnums, so its custom rule does not know it.
      Fix: pass the array as a differentiable argument and extend the rule.
    """

    def loss(w):
        @fnx.custom_jvp
        def scaled(x):
            return x * w

        @scaled.defjvp
        def rule(primals, tangents):
            return scaled(*primals), tangents[0] * 2.0

        return scaled(3.0)

    fnx.grad(loss)(2.0)


@mistake
def a_checkpoint_of_no_function() -> None:
    """
    checkpoint takes a function: got array([0., 1., 2.]) of type ndarray.
    """

    fnx.checkpoint(X)


@mistake
def a_policy_that_is_none_of_them() -> None:
    """
    checkpoint: policy is 'dots': a policy is a function policy(primitive, *types, **params) that says whether results are saved.
      Fix: take one from fnx.checkpoint_policies, or None.
    """

    fnx.checkpoint(lambda x: x, policy="dots")


@mistake
def a_solve_in_reverse_without_its_transpose() -> None:
    """
    custom_linear_solve in reverse mode: the transposed system has to be solved: neither transpose_solve nor symmetric=True was given.
      Fix: pass transpose_solve(vecmat, b), which may be the function that solve is; or symmetric=True if matvec is its own transpose.
    """

    def loss(b):
        x = lax.custom_linear_solve(lambda x: 2.0 * x, b, lambda matvec, b: b / 2.0)
        return x.sum()

    fnx.grad(loss)(X)
