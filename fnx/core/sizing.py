"""Things with formulas in the place of sizes: what they are for sizes that are known.

Receives types, params, plans or any record, in which a `Size` may stand wherever an
integer does; gives the same with integers. Next on the walk: `fnx.transforms.sized`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fnx.core.types import ArrayType
from fnx.sizes import Size, Symbol

Sizes = Mapping[Symbol, int]


def at_sizes(thing: Any, sizes: Sizes) -> Any:
    """The same thing with the values of its formulas; the thing itself without any."""
    match thing:
        case Size():
            return thing.at(sizes)
        case int() | str() | float() | None:
            return thing
        case ArrayType():
            shape = at_sizes(thing.shape, sizes)
            return thing if shape is thing.shape else thing.with_shape(shape)
        case tuple():
            items = [at_sizes(item, sizes) for item in thing]
            if all(a is b for a, b in zip(items, thing, strict=True)):
                return thing
            return type(thing)(*items) if hasattr(thing, "_fields") else tuple(items)
        case Mapping():
            return {name: at_sizes(item, sizes) for name, item in thing.items()}
    if not dataclasses.is_dataclass(thing) or isinstance(thing, type):
        return thing
    names = [field.name for field in dataclasses.fields(thing)]
    fields = {name: getattr(thing, name) for name in names}
    changed = {name: at_sizes(item, sizes) for name, item in fields.items()}
    if all(changed[name] is item for name, item in fields.items()):
        return thing
    return dataclasses.replace(thing, **changed)
