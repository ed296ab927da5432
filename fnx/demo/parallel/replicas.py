"""Arrays for replicas: cut along some axes, copied along others, and put together.

Receives arrays, gives arrays with a leading axis for each named one, on which
`on_devices` maps a function of one replica, or on a single device `on_replicas`.
Next on the walk: `data.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import fnx
import fnx.numpy as fnp

# The named axes and how many replicas lie along them, outermost first.
Axes = dict[str, int]
# For each named axis that an array is cut along, the array's axis.
Cuts = Mapping[str, int]


def on_replicas(function: Callable[..., Any], axes: Axes) -> Callable[..., Any]:
    """A function of one replica as a compiled one of arrays for all, on one device."""
    for name in reversed(axes):
        function = fnx.vmap(function, axis_name=name)
    return fnx.jit(function)


def on_devices(function: Callable[..., Any], axes: Axes) -> Callable[..., Any]:
    """A function of one replica as one of arrays for all, each on its device."""
    mesh = fnx.make_mesh(tuple(axes.values()), tuple(axes))
    member, whole = (0,) * len(axes), (None,) * len(axes)

    def one(*parts: Any) -> Any:
        found = function(*fnx.tree.map(lambda x: x[member], parts))
        return fnx.tree.map(lambda x: x[whole], found)

    cut = fnx.sharding.PartitionSpec(*axes)
    found: Callable[..., Any] = fnx.shard_map(
        one, mesh=mesh, in_specs=cut, out_specs=cut
    )
    return found


def spread(x: Any, axes: Axes, cuts: Cuts) -> Any:
    """An array for replicas: cut along the axes that `cuts` names, else copied.

    >>> spread(fnp.arange(4.0), {"data": 2}, {"data": 0}).tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    >>> spread(fnp.arange(2.0), {"data": 2}, {}).tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    for done, (name, size) in enumerate(reversed(axes.items())):
        if name in cuts:
            place = done + cuts[name]
            before, n, after = x.shape[:place], x.shape[place], x.shape[place + 1 :]
            x = fnp.moveaxis(x.reshape(*before, size, n // size, *after), place, 0)
        else:
            x = fnp.broadcast_to(x, (size, *x.shape))
    return x


def together(x: Any, axes: Axes, cuts: Cuts) -> Any:
    """The array that was spread; of copies, the first."""
    for left, name in zip(reversed(range(len(axes))), axes, strict=True):
        if name in cuts:
            place = left + cuts[name]
            x = fnp.moveaxis(x, 0, place)
            before, (n, m), after = (
                x.shape[:place],
                x.shape[place : place + 2],
                x.shape[place + 2 :],
            )
            x = x.reshape(*before, n * m, *after)
        else:
            x = x[0]
    return x
