"""What the transformations share: trees checked against each other, numbers of a leaf.

Sixteen-bit arrays compute in float32 and are rounded once, as everywhere in fnx; an
update keeps the dtype of its gradient, a parameter its own. Receives trees, gives
trees. Next on the walk: `hyperparameters.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import fnx.numpy as fnp
from fnx import dtypes, tree
from fnx.api.custom import custom_jvp
from fnx.errors import DTypeError, ShapeError, TreeError, api_boundary
from fnx.optim.transformation import Params, Updates

Leaf = Any
"""An array; its operators are installed at run time, so that types cannot tell."""
_MOST_STEPS = 2**31 - 1


@api_boundary
def apply_updates(params: Params, updates: Updates) -> Params:
    """The parameters plus the updates, leaf by leaf; each keeps the parameter's dtype.

    Raises `TreeError` where the structures differ and `ShapeError` where shapes do,
    naming the place: an update is never broadcast over its parameter.

    >>> apply_updates({"w": fnp.array([1.0, 2.0])}, {"w": fnp.array([0.5, -0.5])})
    {'w': Array([1.5, 1.5], dtype=float32)}
    """
    params = floating("apply_updates", "params", params)
    updates = floating("apply_updates", "updates", updates)
    check_alike("apply_updates", "params", params, "updates", updates)
    return tree.map(lambda p, u: (wide(p) + wide(u)).astype(p.dtype), params, updates)


@api_boundary
def global_norm(updates: Updates) -> Leaf:
    """The Euclidean norm of all elements of a tree, as one array of rank 0.

    float32, or float64 if a leaf is; 0 for a tree without leaves. Where the norm is 0
    its gradient is 0, not NaN.

    >>> global_norm({"w": fnp.array([3.0]), "b": fnp.array([4.0])})
    Array(5., dtype=float32)
    """
    leaves = tree.leaves(floating("global_norm", "updates", updates))
    squares = [fnp.sum(squared(wide(x))) for x in leaves]
    return safe_root(tree.reduce(fnp.add, squares, fnp.zeros((), "float32")))


@api_boundary
def incremental_update(
    new_tensors: Params, old_tensors: Params, step_size: Any
) -> Params:
    """A part of the way from old to new: step_size · new + (1 - step_size) · old.

    Each leaf keeps the old one's dtype. Polyak averaging of parameters.

    >>> incremental_update(fnp.array([4.0]), fnp.array([0.0]), 0.25)
    Array([1.], dtype=float32)
    """
    new = floating("incremental_update", "new_tensors", new_tensors)
    old = floating("incremental_update", "old_tensors", old_tensors)
    check_alike("incremental_update", "new_tensors", new, "old_tensors", old)

    def between(x: Leaf, y: Leaf) -> Leaf:
        return (step_size * wide(x) + (1 - step_size) * wide(y)).astype(y.dtype)

    return tree.map(between, new, old)


@api_boundary
def periodic_update(
    new_tensors: Params, old_tensors: Params, steps: Any, update_period: int
) -> Params:
    """The new tree where `steps` is a multiple of `update_period`, else the old one.

    >>> periodic_update(fnp.array([4.0]), fnp.array([0.0]), 7, update_period=5)
    Array([0.], dtype=float32)
    """
    now = fnp.equal(fnp.remainder(steps, update_period), 0)
    new = tree.map(fnp.asarray, new_tensors)
    old = tree.map(fnp.asarray, old_tensors)
    check_alike("periodic_update", "new_tensors", new, "old_tensors", old)
    return tree.map(lambda x, y: fnp.where(now, x.astype(y.dtype), y), new, old)


@api_boundary
def safe_norm(
    x: Any, min_norm: Any, ord: Any = None, axis: Any = None, keepdims: bool = False
) -> Leaf:
    """The norm of an array, at least `min_norm`, with gradient 0 where it is that.

    `ord`, `axis` and `keepdims` are those of `fnx.numpy.linalg.norm`; without `ord` the
    Euclidean norm of all elements along the axes.

    >>> safe_norm(fnp.array([3.0, 4.0]), 0.0), safe_norm(fnp.zeros(2), 0.1)
    (Array(5., dtype=float32), Array(0.1, dtype=float32))
    """
    x = floating("safe_norm", "x", x)
    if ord is not None:
        norm: Leaf = fnp.linalg.norm(x, ord, axis, True)
        above = norm > min_norm
        norm = fnp.linalg.norm(fnp.where(above, x, 1), ord, axis, keepdims)
        above = above if keepdims else fnp.reshape(above, norm.shape)
        return fnp.where(above, norm, fnp.asarray(min_norm, norm.dtype))
    norm = safe_root(fnp.sum(squared(x), axis=axis, keepdims=keepdims))
    return fnp.maximum(norm, fnp.asarray(min_norm, norm.dtype))


def root_mean_square(x: Leaf, least: Any) -> Leaf:
    """The root of the mean square of an array, at least `least`; 0 for no elements."""
    root = safe_root(fnp.sum(squared(x)) / max(x.size, 1))
    return fnp.maximum(root, fnp.asarray(least, root.dtype))


def safe_root(square: Leaf) -> Leaf:
    """The square root, with gradient 0 at 0."""
    positive = square > 0
    return fnp.where(positive, fnp.sqrt(fnp.where(positive, square, 1)), 0)


# ---------------------------------------------------------------- one leaf


def wide(x: Leaf) -> Leaf:
    """The array in the dtype that its elements are computed in: float32 for 16 bit."""
    return x.astype(dtypes.compute_dtype(x.dtype))


def scaled(x: Leaf, factor: Any) -> Leaf:
    """The array times a number, in the array's dtype."""
    x_wide = wide(x)
    return (x_wide * fnp.asarray(factor, x_wide.dtype)).astype(x.dtype)


def squared(x: Leaf) -> Leaf:
    """The squared magnitude of each element: real also for complex arrays."""
    if dtypes.is_complex(x.dtype):
        return fnp.add(fnp.square(fnp.real(x)), fnp.square(fnp.imag(x)))
    return fnp.square(x)


def first_count() -> Leaf:
    """The number of updates before the first one."""
    return fnp.zeros((), "int32")


def next_count(count: Leaf) -> Leaf:
    """One more; it stays at the largest int32 rather than become negative."""
    return fnp.add(fnp.minimum(count, _MOST_STEPS - 1), 1)


def safe_increment(count: Any) -> Leaf:
    """One more than an integer or floating-point count; the largest value stays.

    >>> int(safe_increment(fnp.array(255, "uint8")))
    255
    """
    x: Leaf = fnp.asarray(count)
    info = fnp.finfo if dtypes.is_inexact(x.dtype) else fnp.iinfo
    most = fnp.asarray(info(x.dtype).max, x.dtype)
    return fnp.where(x < most, x + fnp.ones((), x.dtype), most)


safe_int32_increment = safe_increment


def safe_root_mean_squares(x: Any, min_rms: Any) -> Leaf:
    """The root of the mean square of an array, at least `min_rms`.

    Its gradient is 0 where it is less.

    >>> safe_root_mean_squares(fnp.array([1.0, 7.0]), 0.0)
    Array(5., dtype=float32)
    """
    return root_mean_square(floating("safe_root_mean_squares", "x", x), min_rms)


def scale_gradient(inputs: Any, scale: float) -> Any:
    """The inputs as they are, whose gradients are multiplied by `scale`.

    >>> from fnx import grad
    >>> grad(lambda x: scale_gradient(x, 0.5) ** 2)(fnp.float32(3.0))
    Array(3., dtype=float32)
    """
    same = custom_jvp(lambda x: x)
    same.defjvp(lambda primals, tangents: (primals[0], scaled(tangents[0], scale)))
    return tree.map(lambda x: same(fnp.asarray(x)), inputs)


# ---------------------------------------------------------------- trees


def inner(x: Any, y: Any, dtype: Any) -> Leaf:
    """The real part of the inner product of two trees of arrays, in a dtype."""

    def product(a: Leaf, b: Leaf) -> Leaf:
        dot: Leaf = fnp.real(fnp.vdot(wide(a), wide(b)))
        return dot.astype(dtype)

    return tree.reduce(fnp.add, tree.map(product, x, y), fnp.zeros((), dtype))


def number_dtype(params: Params) -> Any:
    """What numbers about a whole tree are kept in: float32, or float64 if a leaf is."""
    kinds = [dtypes.real_dtype(wide(p).dtype) for p in tree.leaves(params)]
    return fnp.result_type(*kinds) if kinds else np.dtype("float32")


def floating(function: str, name: str, values: Any) -> Any:
    """The tree with every leaf as an array; `DTypeError` if one is no float."""
    leaves, treedef = tree.flatten(values)
    arrays = [fnp.asarray(leaf) for leaf in leaves]
    for place, x in enumerate(arrays):
        if not dtypes.is_inexact(x.dtype):
            path = tree.keystr(tree.paths(treedef)[place])
            raise DTypeError(
                f"{function}: {name}{path} is {x.type}; an optimizer works on "
                "floating-point arrays. Keep other values out of the parameters"
            )
    return tree.unflatten(treedef, arrays)


def check_alike(function: str, first: str, a: Any, second: str, b: Any) -> None:
    """Raise unless two trees of arrays have the same structure and the same shapes."""
    difference = tree.difference(a, b, first=first, second=second)
    if difference:
        raise TreeError(
            f"{function}: {first} and {second} differ in structure\n{difference}"
        )
    shapes = [
        [x.shape for x in tree.leaves(a)],
        [x.shape for x in tree.leaves(b)],
    ]
    if shapes[0] != shapes[1]:
        difference = tree.difference(
            a, b, first=first, second=second, describe=_describe
        )
        raise ShapeError(f"{function}: {first} and {second} differ\n{difference}")


def _describe(x: Leaf) -> str:
    return f"shape {x.shape}"
