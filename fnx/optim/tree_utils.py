"""Arithmetic of trees, under the older names of `optax.tree_utils`.

The walk goes on in `tree.py`.

>>> tree_add([1.0], [2.0])
[Array(3., dtype=float32, weak_type=True)]
"""

from fnx.optim import tree

tree_add = tree.add
tree_add_scale = tree.add_scale
tree_allclose = tree.allclose
tree_bias_correction = tree.bias_correction
tree_cast = tree.cast
tree_cast_like = tree.cast_like
tree_clip = tree.clip
tree_conj = tree.conj
tree_div = tree.div
tree_dtype = tree.dtype
tree_full_like = tree.full_like
tree_get = tree.get
tree_get_all_with_path = tree.get_all_with_path
tree_max = tree.max
tree_min = tree.min
tree_mul = tree.mul
tree_norm = tree.norm
tree_ones_like = tree.ones_like
tree_random_like = tree.random_like
tree_real = tree.real
tree_scale = tree.scale
tree_set = tree.set
tree_size = tree.size
tree_split_key_like = tree.split_key_like
tree_sub = tree.sub
tree_sum = tree.sum
tree_update_infinity_moment = tree.update_infinity_moment
tree_update_moment = tree.update_moment
tree_update_moment_per_elem_norm = tree.update_moment_per_elem_norm
tree_vdot = tree.vdot
tree_where = tree.where
tree_zeros_like = tree.zeros_like
tree_l2_norm = tree.norm
tree_add_scalar_mul = tree.add_scale
tree_scalar_mul = tree.scale
