"""Runs matrix products: by cuBLASLt where that is chosen, else by our kernels.

Receives a `MatmulStep`, a device and what starts our kernels; gives an action like
those of other instructions. A device has one workspace for good, which is enough for
all products, as they are in the order of one stream. Next on the walk: `flow.py`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from fnx.runtime.plan import MatmulStep
from fnx_cuda import blaslt_tuning
from fnx_cuda.blaslt import WORKSPACE
from fnx_cuda.blaslt_api import Epilogue
from fnx_cuda.blaslt_gradients import aux_leading
from fnx_cuda.blaslt_tuning import Addresses
from fnx_cuda.device import Device
from fnx_cuda.frame import Frame
from fnx_cuda.instructions import After
from fnx_cuda.memory import Buffer

Action = Callable[[Frame, int], None]

# What graphs have the addresses of is not given back while the device is in use.
_workspaces: weakref.WeakKeyDictionary[Device, Buffer] = weakref.WeakKeyDictionary()


def multiply_action(step: MatmulStep, device: Device, own: Action) -> Action:
    """A matrix product; `own` starts our kernels for it.

    Its first run may take times, and must not be captured.
    """
    library = blaslt_tuning.chosen(step, device.number)
    if library is None:
        return own

    def act(at: Frame, stream: int) -> None:
        out, x, y = at.all((step.out, step.x, step.y))
        addresses = Addresses(out, x, y, workspace(device).pointer, stream)
        library.run(addresses, lambda: own(at, stream))

    return act


def followed_action(
    step: MatmulStep, after: After, device: Device, apart: Action
) -> Action:
    """A matrix product and what follows it; `apart` does one behind the other.

    The library does both in one call where it has the epilogue and that is faster.
    """
    epilogue = Epilogue(after.epilogue)
    leading = aux_leading(epilogue, step.product.n)
    library = blaslt_tuning.chosen(step, device.number, epilogue, leading)
    if library is None:
        return apart

    def act(at: Frame, stream: int) -> None:
        out, x, y = at.all((after.out, step.x, step.y))
        bias = 0 if after.bias is None else at.at(after.bias)
        aux = 0 if after.aux is None else at.at(after.aux)
        own = workspace(device).pointer
        addresses = Addresses(out, x, y, own, stream, bias, aux)
        library.run(addresses, lambda: apart(at, stream))

    return act


def workspace(device: Device) -> Buffer:
    """The workspace of a device's products, which is the current one."""
    found = _workspaces.get(device)
    if found is None:
        found = device.memory.allocate(WORKSPACE, "the workspace of matrix products")
        _workspaces[device] = found
    return found
