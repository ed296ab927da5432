"""Keys: where all randomness comes from. A key is two words of 32 bits.

`key(seed)` makes a `Key`; `split` and `fold_in` derive new ones, each with a stream of
bits of its own. `PRNGKey` makes the older form, a bare array of two words: functions
take both and give back the form that they got. The bits are those of JAX's default
generator (Threefry-2x32, "partitionable"). Next on the walk: `reuse.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.arguments import as_array
from fnx.api.key_arrays import classes, on_words
from fnx.core.array import Array
from fnx.ops.elementwise import convert
from fnx.ops.parts import or_, shift_right_logical
from fnx.ops.pieces import concatenate, part_of
from fnx.ops.rng import threefry2x32
from fnx.ops.shape import broadcast_in_dim, full, reshape, scalar
from fnx.random import reuse
from fnx.random.arguments import Shape, shape_of
from fnx.random.counters import counters
from fnx.records import record
from fnx.runtime.device_array import beside
from fnx.tree_nodes import GetAttrKey, register_pytree_with_keys_class

IMPLEMENTATION = "threefry2x32"

Words = tuple[Any, Any]


@record
class KeyDType:
    """The dtype of keys of one generator; its name is JAX's."""

    name = "key<fry>"
    itemsize = 8
    type = dtypes.prng_key

    impl: str = IMPLEMENTATION

    def __repr__(self) -> str:
        return self.name


@register_pytree_with_keys_class
class Key:
    """A key, or an array of keys; a tree whose one leaf holds the words.

    >>> import fnx.runtime.eager
    >>> key(0).shape, split(key(0), 3).shape
    ((), (3,))
    """

    __slots__ = ("words",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, words: Any) -> None:
        self.words = words

    def tree_flatten_with_keys(self) -> tuple[Any, None]:
        """The words are the only child."""
        return ((GetAttrKey("words"), self.words),), None

    @classmethod
    def tree_unflatten(cls, static: None, children: Any) -> Key:
        """A key of whatever stands for the words."""
        return cls(*children)

    @property
    def shape(self) -> Shape:
        """The shape of the array of keys: () for a single key."""
        return self.words.shape[:-1]

    @property
    def ndim(self) -> int:
        """The number of axes of the array of keys."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of keys."""
        return self.words.size // 2

    @property
    def dtype(self) -> KeyDType:
        """What tells keys from numbers: `key_dtype()`."""
        return KeyDType()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a single key has no length; split it to get several")
        return self.shape[0]

    def __iter__(self) -> Iterator[Key]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Key:
        entries = index if isinstance(index, tuple) else (index,)
        words = self.words[(*entries, *self._rest(entries))]
        if reuse.watching() and all(type(e) is int for e in entries):
            places = zip(entries, self.shape, strict=False)
            steps = [("part", e % size) for e, size in places]
            reuse.derived(words, self.words, *steps)
        return Key(words)

    def _rest(self, entries: tuple[Any, ...]) -> tuple[slice, ...]:
        # After an ellipsis the last entry would take the axis of the words.
        return (slice(None),) if any(e is Ellipsis for e in entries) else ()

    @property
    def T(self) -> Key:
        """The keys with their axes in reverse order."""
        return self.transpose()

    @property
    def at(self) -> KeyUpdates:
        """`at[index].set(keys)` gives the keys with others there, `get` those there."""
        return KeyUpdates(self)

    def reshape(self, *shape: Any) -> Key:
        """The same keys with another shape, given as one sequence or as integers."""
        sizes = shape[0] if len(shape) == 1 else shape
        return self._moved("reshape", sizes)

    def ravel(self) -> Key:
        """The keys row by row."""
        return self.reshape(-1)

    flatten = ravel

    def transpose(self, *axes: Any) -> Key:
        """The keys with permuted axes, given as one sequence or as integers."""
        order = axes[0] if len(axes) == 1 else axes or None
        return self._moved("transpose", order)

    def squeeze(self, axis: Any = None) -> Key:
        """The keys without axes of size 1."""
        return self._moved("squeeze", axis)

    def _moved(self, name: str, *args: Any) -> Key:
        import fnx.numpy  # lazy: keys are made and used without it

        found: Key = on_words(getattr(fnx.numpy, name), self, *args)
        return found

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, Key):
            return NotImplemented
        return on_words(operator.eq, self, other)

    def __ne__(self, other: object) -> Any:
        if not isinstance(other, Key):
            return NotImplemented
        return on_words(operator.ne, self, other)

    def __repr__(self) -> str:
        return f"Key({self.shape}, {IMPLEMENTATION}) overlaying:\n{self.words}"


classes.append(Key)


@record
class KeyUpdates:
    """What `keys.at` is: updates of elements of an array of keys."""

    keys: Key

    def __getitem__(self, index: Any) -> KeyUpdate:
        return KeyUpdate(self.keys, index)


@record
class KeyUpdate:
    """What `keys.at[index]` is; the options are those of `x.at[index]` of arrays."""

    keys: Key
    index: Any

    def set(self, values: Key, **options: Any) -> Key:
        """The keys with others at the index.

        >>> keys = split(key(0), 3)
        >>> bool((keys.at[1].set(keys[2])[1] == keys[2]))
        True
        """
        if not isinstance(values, Key):
            raise errors.ArgumentError(
                f"keys.at[...].set takes keys, got {type(values).__name__}"
            )
        found: Key = on_words(self._set, self.keys, values, options)
        return found

    def get(self, **options: Any) -> Key:
        """The keys at the index."""
        found: Key = on_words(self._get, self.keys, options)
        return found

    def _set(self, keys: Any, values: Any, options: Any) -> Any:
        return keys.at[self.index].set(values, **options)

    def _get(self, keys: Any, options: Any) -> Any:
        return keys.at[self.index].get(**options)


def key(seed: Any, *, impl: str | None = None, dtype: Any = None) -> Key:
    """A key from an integer seed: a Python integer, or an integer array of rank 0.

    A Python integer is taken modulo 2**32, as in JAX; under `default_dtypes(64)`, and
    from a 64-bit array, all of its 64 bits count. `impl` may name the generator, of
    which there is one, "threefry2x32"; or `dtype`, which also takes `key_dtype()`.

    >>> import fnx.runtime.eager
    >>> key_data(key(7))
    Array([0, 7], dtype=uint32)
    """
    return Key(_seeded("key", seed, _one_of("key", impl, dtype)))


def PRNGKey(seed: Any, *, impl: str | None = None) -> Array:
    """A key in the older form: a bare uint32 array of two words.

    >>> import fnx.runtime.eager
    >>> PRNGKey(7)
    Array([0, 7], dtype=uint32)
    """
    return _seeded("PRNGKey", seed, impl)


def split(key: Any, num: int | tuple[int, ...] = 2) -> Any:
    """`num` new keys (or an array of them, of that shape) from one key.

    >>> import fnx.runtime.eager
    >>> split(PRNGKey(0))
    Array([[1797259609, 2579123966],
           [ 928981903, 3453687069]], dtype=uint32)
    """
    shape = shape_of("split", num)
    return _like(key, _split(key_words("split", key), shape))


def _split(words: Words, shape: Shape) -> Any:
    column = (*shape, 1)
    columns = [reshape(word, shape=column) for word in hashed(words, shape)]
    return concatenate(*columns, axis=len(shape))


def fold_in(key: Any, data: Any) -> Any:
    """A new key from a key and an integer of 32 bits, such as the number of a step.

    >>> import fnx.runtime.eager
    >>> fold_in(PRNGKey(0), 7)
    Array([2716826189,  292468403], dtype=uint32)
    """
    words = key_words("fold_in", key)
    zero = full((), dtypes.uint32, 0)
    folded = _joined(*threefry2x32(*words, zero, _data_word(data)))
    if reuse.watching() and isinstance(data, int | np.integer):
        reuse.derived(folded, key_data(key), ("fold", int(data)))
    return _like(key, folded)


def key_data(keys: Any) -> Array:
    """The words of keys as a uint32 array with a last axis of size 2."""
    return keys.words if isinstance(keys, Key) else _checked_words("key_data", keys)


def wrap_key_data(
    key_bits_array: Any, *, impl: str | None = None, dtype: Any = None
) -> Key:
    """Keys from their words: the inverse of `key_data`; options as in `key`."""
    _check_implementation("wrap_key_data", _one_of("wrap_key_data", impl, dtype))
    return Key(_checked_words("wrap_key_data", key_bits_array))


def key_impl(keys: Any) -> str:
    """The name of the generator that keys belong to.

    >>> import fnx.runtime.eager
    >>> key_impl(key(0))
    'threefry2x32'
    """
    key_data(keys)
    return IMPLEMENTATION


def key_dtype(impl_spec: Any = None) -> KeyDType:
    """The dtype of the keys of a generator, of which there is one.

    >>> import fnx.runtime.eager
    >>> key(0).dtype == key_dtype("threefry2x32"), key_dtype()
    (True, key<fry>)
    """
    _check_implementation("key_dtype", impl_spec)
    return KeyDType()


def clone(key: Any) -> Any:
    """The same key, for a second use that is meant."""
    words = key_data(key)
    # While key_reuse watches, the copy is another array.
    return _like(key, or_(words, scalar(0, words.dtype))) if reuse.watching() else key


def key_words(sampler: str, key: Any) -> Words:
    """The two words of a single key, as arrays of rank 0."""
    words = key.words if isinstance(key, Key) else _checked_words(sampler, key)
    if words.ndim != 1:
        shape = words.shape[:-1]
        raise errors.ShapeError(
            errors.explain(
                f"{sampler} takes a single key",
                f"it was given an array of keys of shape {shape}",
                "map over the keys with fnx.vmap",
            )
        )
    reuse.used(sampler, words)
    return row(words, 0), row(words, 1)


def split_words(words: Words, count: int) -> list[Words]:
    """The words of several new keys: what `split` does, for samplers."""
    keys = _split(words, (count,))
    return [(row(key, 0), row(key, 1)) for key in [row(keys, n) for n in range(count)]]


def hashed(words: Words, shape: Shape) -> Words:
    """The stream of a key: two words of random bits for every element of a shape."""
    spread = [broadcast_in_dim(word, shape=shape, dims=()) for word in words]
    high, low = threefry2x32(*spread, *counters(shape))
    return high, low


def row(x: Any, number: int) -> Any:
    """One row of an array."""
    return reshape(part_of(x, 0, number, number + 1), shape=x.shape[1:])


# ---------------------------------------------------------------- parts


def _like(key: Any, words: Any) -> Any:
    return Key(words) if isinstance(key, Key) else words


def _joined(high: Any, low: Any) -> Any:
    """Two words of rank 0 as one array."""
    return concatenate(*[reshape(w, shape=(1,)) for w in (high, low)], axis=0)


def _checked_words(sampler: str, words: Any) -> Array:
    found = as_array(words, sampler, "key", "make a key with fnx.random.key(seed)")
    if found.dtype != dtypes.uint32 or found.shape[-1:] != (2,):
        raise errors.ArgumentError(
            errors.explain(
                f"{sampler}: the key is {found.type}",
                "a key is a Key, or a uint32 array whose last axis has size 2",
                "make one with fnx.random.key(seed)",
            )
        )
    return found


def _one_of(function: str, impl: Any, dtype: Any) -> Any:
    """The generator that one of two arguments names."""
    if impl is not None and dtype is not None:
        raise errors.ArgumentError(f"{function}: pass impl= or dtype=, not both")
    return impl if dtype is None else dtype


def _check_implementation(function: str, impl: Any) -> None:
    if impl not in (None, IMPLEMENTATION, KeyDType()):
        raise errors.OptionError(
            f"{function}: impl={impl!r}: the one generator is {IMPLEMENTATION!r}"
        )


def _seeded(function: str, seed: Any, impl: Any) -> Array:
    """The words of a key from a seed."""
    _check_implementation(function, impl)
    if isinstance(seed, Key):
        raise errors.ArgumentError(f"{function} takes an integer seed, not a key")
    if isinstance(seed, int) and not isinstance(seed, bool | np.generic):
        return beside(np.array(_seed_words(function, seed), np.uint32))
    array = as_array(seed, function, "seed", "pass an integer")
    _check_integer(f"{function}: the seed", array)
    low = convert(array, dtype=dtypes.uint32)
    if array.dtype.itemsize < 8:
        return _joined(full((), dtypes.uint32, 0), low)
    high = shift_right_logical(array, scalar(32, array.dtype))
    return _joined(convert(high, dtype=dtypes.uint32), low)


def _seed_words(function: str, seed: int) -> tuple[int, int]:
    if not -(2**63) <= seed < 2**63:
        raise errors.OptionError(f"{function}: the seed {seed} has more than 64 bits")
    high = seed >> 32 if dtypes.default_bits() == 64 else 0
    return high & 0xFFFFFFFF, seed & 0xFFFFFFFF


def _data_word(data: Any) -> Any:
    """What is folded in, as a word of rank 0."""
    if isinstance(data, int) and not isinstance(data, bool | np.generic):
        if not 0 <= data < 2**32:
            raise errors.OptionError(
                errors.explain(
                    f"fold_in: the data is {data}",
                    "it must be from 0 to 2**32 - 1",
                    "reduce it modulo 2**32, or fold in its parts one by one",
                )
            )
        return full((), dtypes.uint32, data)
    array = as_array(data, "fold_in", "data", "pass an integer")
    _check_integer("fold_in: the data", array)
    return convert(array, dtype=dtypes.uint32)


def _check_integer(what: str, array: Array) -> None:
    if array.shape or not dtypes.is_integer(array.dtype):
        raise errors.ArgumentError(
            errors.explain(
                f"{what} is {array.type}",
                "it must be a single integer",
                "map over several with fnx.vmap" if array.shape else "convert it",
            )
        )
