"""debug.key_reuse, debug_key_reuse: each random key may be used once.

Next on the walk: `leaks.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fnx.api.disabling import disable_jit
from fnx.random.reuse import watched


@contextmanager
def key_reuse() -> Iterator[None]:
    """A context in which using a random key twice raises `KeyReuseError`.

    The error names both lines. Samplers and `split` use a key up; so they do with an
    array of keys of which it is a part. `fold_in` does not: another number makes
    another key (the same number makes the same key again). A `clone` is another key.

    Inside of it `jit` is disabled, so that every use of every key is seen: in each
    round of a loop, and in each call.

    >>> import fnx
    >>> with fnx.debug.key_reuse():
    ...     key = fnx.random.key(0)
    ...     x = fnx.random.normal(key), fnx.random.uniform(key)
    Traceback (most recent call last):
    fnx.errors.KeyReuseError: the key that uniform is given has been used: by normal
    ...
    """
    with disable_jit(), watched():
        yield


@contextmanager
def debug_key_reuse(enable: bool = True) -> Iterator[None]:
    """`fnx.debug.key_reuse` under JAX's name; `False` turns it off inside of it.

    >>> import fnx
    >>> with fnx.debug_key_reuse(True):
    ...     key = fnx.random.key(0)
    ...     with fnx.debug_key_reuse(False):
    ...         x = fnx.random.normal(key), fnx.random.normal(key)
    """
    if enable:
        with key_reuse():
            yield
    else:
        with watched(False):
            yield
