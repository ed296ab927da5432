"""Arrays of keys go through the functions that move elements about, as in JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax, random


def _matrix(library):
    return library.random.split(library.random.key(3), (2, 3))


# (namespaces of NumPy, lax and random, six keys as a matrix, one more) -> keys
CASES = {
    "stack": lambda xp, lax, keys, key: xp.stack([keys, keys[::-1]], axis=1),
    "concatenate": lambda xp, lax, keys, key: xp.concatenate([keys, keys], 1),
    "vstack": lambda xp, lax, keys, key: xp.vstack([keys, keys[0]]),
    "hstack": lambda xp, lax, keys, key: xp.hstack([keys, keys]),
    "append": lambda xp, lax, keys, key: xp.append(keys, key),
    "array": lambda xp, lax, keys, key: xp.array([key, keys[0, 1]]),
    "asarray": lambda xp, lax, keys, key: xp.asarray(keys),
    "full": lambda xp, lax, keys, key: xp.full((2, 1), key),
    "full_like": lambda xp, lax, keys, key: xp.full_like(keys, key),
    "ones_like": lambda xp, lax, keys, key: [
        xp.ones_like(keys),
        xp.full_like(keys, 7),
        xp.full_like(keys, 7, shape=(2, 3)),
    ],
    "zeros_like": lambda xp, lax, keys, key: [
        xp.zeros_like(keys),
        xp.empty_like(key, shape=(2,)),
    ],
    "where": lambda xp, lax, keys, key: xp.where(
        xp.array([[True], [False]]), keys, key
    ),
    "select": lambda xp, lax, keys, key: lax.select(
        xp.array([True, False, True]), keys[0], keys[1]
    ),
    "broadcast_to": lambda xp, lax, keys, key: xp.broadcast_to(key, (2, 2)),
    "take": lambda xp, lax, keys, key: xp.take(keys, xp.array([2, 0]), axis=1),
    "take_along_axis": lambda xp, lax, keys, key: xp.take_along_axis(
        keys, xp.array([[1, 0, 2]]), axis=1
    ),
    "expand_dims": lambda xp, lax, keys, key: xp.expand_dims(keys, 1),
    "squeeze": lambda xp, lax, keys, key: xp.squeeze(keys[None]),
    "reshape": lambda xp, lax, keys, key: xp.reshape(keys, (3, -1)),
    "ravel": lambda xp, lax, keys, key: xp.ravel(keys),
    "transpose": lambda xp, lax, keys, key: xp.transpose(keys),
    "moveaxis": lambda xp, lax, keys, key: xp.moveaxis(keys, 0, -1),
    "flip": lambda xp, lax, keys, key: xp.flip(keys, 1),
    "roll": lambda xp, lax, keys, key: xp.roll(keys, 1),
    "tile": lambda xp, lax, keys, key: xp.tile(keys, 2),
    "repeat": lambda xp, lax, keys, key: xp.repeat(keys, 2, axis=0),
    "split": lambda xp, lax, keys, key: xp.split(keys, 3, axis=1),
    "delete": lambda xp, lax, keys, key: xp.delete(keys, 1, axis=1),
    "dynamic_slice": lambda xp, lax, keys, key: lax.dynamic_slice(keys, (0, 1), (2, 2)),
    "dynamic_update": lambda xp, lax, keys, key: lax.dynamic_update_slice(
        keys, keys[:1, :2], (1, 1)
    ),
    "methods": lambda xp, lax, keys, key: [
        keys.T,
        keys.transpose(1, 0),
        keys.reshape(-1, 2),
        keys.ravel(),
        keys.flatten(),
        keys[None].squeeze(0),
    ],
    "indices": lambda xp, lax, keys, key: [
        keys[1],
        keys[:, ::2],
        keys[..., -1],
        keys[xp.array([1, 0])],
        keys[:, None],
    ],
    "set": lambda xp, lax, keys, key: [
        keys.at[1].set(key),
        keys.at[0, 1:].set(keys[1, :2]),
        keys.at[:, xp.array([2, 0])].set(key),
        keys.at[xp.array([1, 0])].set(keys),
    ],
    "get": lambda xp, lax, keys, key: keys.at[1, 1:].get(),
    "scan": lambda xp, lax, keys, key: lax.scan(
        lambda held, row: (row[0], xp.stack([held, row[2]])), key, keys
    ),
    "equal": lambda xp, lax, keys, key: [keys == keys[::-1], keys != keys[0, 0]],
}


def _plain(tree, library):
    def words(x):
        is_key = str(x.dtype) == "key<fry>"
        return np.asarray(library.random.key_data(x) if is_key else x)

    def is_leaf(x):
        return hasattr(x, "dtype")

    return [
        (x.shape, str(x.dtype), words(x).tolist())
        for x in library.tree.leaves(tree, is_leaf=is_leaf)
    ]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_keys_move_as_in_jax(name, compiled):
    def found(library, xp, lax):
        f = lambda keys, key: CASES[name](xp, lax, keys, key)  # noqa: E731
        f = library.jit(f) if compiled else f
        return _plain(f(_matrix(library), library.random.key(7)), library)

    assert found(fnx, fnp, lax) == found(jax, jnp, jax.lax)


def test_every_key_of_a_moved_array_has_its_stream():
    keys = random.split(random.key(0), 4)
    moved = fnp.reshape(fnp.flip(keys), (2, 2))
    draw = fnx.vmap(fnx.vmap(lambda key: random.bits(key, (3,))))(moved)
    for i in range(4):
        wanted = random.bits(keys[3 - i], (3,))
        np.testing.assert_array_equal(draw[i // 2, i % 2], wanted)


@pytest.mark.parametrize("out_axis", [0, -1, -2])
@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_axes_of_keys_are_counted_without_their_words(axis, out_axis):
    def found(library):
        f = lambda row: library.random.split(row[1])  # noqa: E731
        return _plain(library.vmap(f, axis, out_axis)(_matrix(library)), library)

    assert found(fnx) == found(jax)


def test_replicas_count_axes_of_keys_as_members_do():
    keys = random.split(random.key(1), (3, 1))  # there is one device
    each = fnx.pmap(lambda row: row[1:], in_axes=-1, out_axes=-1)(keys)
    assert random.key_data(each).tolist() == random.key_data(keys[1:]).tolist()


@pytest.mark.parametrize(
    "mixed",
    [
        lambda key: fnp.stack([key, fnp.zeros(())]),
        lambda key: fnp.where(True, key, 1),
        lambda key: fnp.append(fnp.arange(3), key),
        lambda key: key.at[...].set(3),
        lambda key: fnp.sin(key),
        lambda key: fnp.sum(key),
    ],
)
def test_keys_are_no_numbers(mixed):
    with pytest.raises(fnx.errors.ArgumentError, match=r"Key|keys"):
        mixed(random.key(0))
