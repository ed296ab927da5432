"""Things with formulas in the place of sizes: what they are for sizes that are known.

Receives types, params, plans or any record, in which a `Size` may stand wherever an
integer does; gives the same with integers. Next on the walk: `fnx.transforms.sized`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from fnx.core.types import ArrayType
from fnx.sizes import Size, Symbol

Sizes = Mapping[Symbol, int]


def at_sizes(thing: Any, sizes: Sizes) -> Any:
    """The same thing with the values of its formulas."""
    return _mapped(thing, lambda size: size.at(sizes))


def has_sizes(thing: Any) -> bool:
    """Whether there is a formula in it."""
    found: list[Size] = []

    def note(size: Size) -> Size:
        found.append(size)
        return size

    _mapped(thing, note)
    return bool(found)


def _mapped(thing: Any, change: Callable[[Size], Any]) -> Any:
    match thing:
        case Size():
            return change(thing)
        case int() | str() | float() | None:
            return thing
        case ArrayType():
            shape = _mapped(thing.shape, change)
            return thing if shape is thing.shape else thing.with_shape(shape)
        case tuple():
            items = [_mapped(item, change) for item in thing]
            if all(a is b for a, b in zip(items, thing, strict=True)):
                return thing
            return type(thing)(*items) if hasattr(thing, "_fields") else tuple(items)
        case Mapping():
            return {name: _mapped(item, change) for name, item in thing.items()}
    if not dataclasses.is_dataclass(thing) or isinstance(thing, type):
        return thing
    names = [field.name for field in dataclasses.fields(thing)]
    fields = {name: getattr(thing, name) for name in names}
    changed = {name: _mapped(item, change) for name, item in fields.items()}
    if all(changed[name] is item for name, item in fields.items()):
        return thing
    return dataclasses.replace(thing, **changed)
