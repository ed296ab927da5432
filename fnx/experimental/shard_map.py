"""fnx.experimental.shard_map: `fnx.shard_map`, where and as JAX had it.

Receives a function and a mesh, gives the function of whole arrays. Next on the walk:
`fnx/api/shard_map.py`, which does it.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

from fnx.api import shard_map as api
from fnx.runtime.mesh import Mesh

__all__ = ["shard_map"]


def shard_map(
    f: Callable[..., Any],
    mesh: Mesh,
    in_specs: Any,
    out_specs: Any,
    check_rep: bool = True,
    auto: Set[str] = frozenset(),
) -> Any:
    """`fnx.shard_map` with the older order of arguments.

    `auto` names the axes of the mesh that stay automatic; `check_rep` is
    `check_vma`.

    >>> import fnx, numpy as np
    >>> from fnx.sharding import PartitionSpec as P
    >>> mesh = fnx.make_mesh((1,), ("i",))
    >>> total = shard_map(lambda x: fnx.lax.psum(x, "i"), mesh, P("i"), P())
    >>> total(np.ones(2, "float32"))
    Array([1., 1.], dtype=float32)
    """
    manual = set(mesh.axis_names) - set(auto) if auto else None
    return api.shard_map(
        f,
        mesh=mesh,
        in_specs=in_specs,
        out_specs=out_specs,
        check_vma=check_rep,
        axis_names=manual,
    )
