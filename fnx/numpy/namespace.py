"""What the array API standard (2024.12) asks of a namespace: what it can do, and where.

`x.__array_namespace__()` gives `fnx.numpy`; `__array_namespace_info__()` gives an
`Information`. Next on the walk: `methods.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.numpy.scalars import isdtype
from fnx.runtime.device import Device, default_device, devices, named

VERSION = "2024.12"
# The versions whose functions are all there: each has those of the one before.
_VERSIONS = ("2021.12", "2022.12", "2023.12", VERSION)
# The dtypes that the standard knows.
_STANDARD = tuple(
    dtype
    for dtype in dtypes.SUPPORTED
    if dtype not in (dtypes.float16, dtypes.bfloat16)
)


def check_version(api_version: str | None) -> None:
    """Raises for a version of the standard that is not there."""
    if api_version is not None and api_version not in _VERSIONS:
        raise errors.OptionError(
            f"__array_namespace__: version {api_version!r} is none of "
            f"{', '.join(_VERSIONS)}"
        )


class Information:
    """What this namespace can do, on which devices, and with which dtypes."""

    __slots__ = ()

    def capabilities(self) -> dict[str, Any]:
        """What of the standard's options there is; shapes are known while tracing."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": 64,
        }

    def default_device(self) -> Device:
        """Where arrays are made."""
        return default_device()

    def devices(self) -> list[Device]:
        """Where arrays can be."""
        return list(dict.fromkeys([*devices(), *devices("cpu")]))

    def default_dtypes(self, *, device: Device | None = None) -> dict[str, Any]:
        """What Python numbers become, and places in arrays; the same everywhere."""
        _check_device(device)
        return {
            "real floating": dtypes.default_float(),
            "complex floating": dtypes.default_complex(),
            "integral": dtypes.default_int(),
            "indexing": dtypes.default_int(),
        }

    def dtypes(
        self, *, device: Device | None = None, kind: Any = None
    ) -> dict[str, np.dtype[Any]]:
        """The standard's dtypes by name, of a kind (see `isdtype`) or of all."""
        _check_device(device)
        return {
            dtype.name: dtype
            for dtype in _STANDARD
            if kind is None or isdtype(dtype, kind)
        }


def _check_device(device: Device | None) -> None:
    if device is not None:
        named(device, "__array_namespace_info__", names=False)


def __array_namespace_info__() -> Information:
    """What this namespace can do.

    >>> sorted(__array_namespace_info__().dtypes(kind="real floating"))
    ['float32', 'float64']
    """
    return Information()
