"""Steps that run on the host: a primitive's `write` rule between two copies.

Receives a `HostStep`; gives an action that copies its inputs to the host, waits, lets
other threads have the device while Python runs, and sends the results back.
Next on the walk: `multiply.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx import errors
from fnx.runtime.plan import HostStep, Literal
from fnx_cuda import transfer
from fnx_cuda.device import Device
from fnx_cuda.frame import Frame


def host_action(step: HostStep, device: Device) -> Callable[[Frame, int], None]:
    """Runs a step; what its rule raises ends the run."""
    name = step.primitive.name

    def act(at: Frame, stream: int) -> None:
        values = []
        for item, type in zip(step.inputs, step.input_types, strict=True):
            if isinstance(item, Literal):
                values.append(item.value)
            else:
                out = np.empty(type.size * type.dtype.itemsize, np.uint8)
                what = f"what comes before {name!r}"
                transfer.receive(device, at.at(item), out, stream, what)
                values.append(out.view(type.dtype).reshape(type.shape))
        with device.yielded():
            results = _results(step, values)
        for place, data in zip(step.outputs, results, strict=True):
            transfer.send(device, at.at(place), data, stream)

    return act


@errors.api_boundary
def _results(step: HostStep, values: list[Any]) -> list[Any]:
    results = [np.empty(type.shape, type.dtype) for type in step.output_types]
    with np.errstate(all="ignore"):
        step.primitive.write(results, *values, **step.params)
    return results
