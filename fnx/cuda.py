"""What is CUDA's own: arrays as CuPy's, the memory of a GPU, whether there is one.

Everything else is the same on all devices. `import fnx` does not load this, and nothing
here is loaded with it; CuPy is, once there is a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fnx import errors
from fnx.api.foreign import kernel
from fnx.core.array import Array
from fnx.core.foreign import Cuda
from fnx.runtime.device import Device, devices_of, named
from fnx.runtime.device_array import DeviceArray


def is_available() -> bool:
    """Whether there is a GPU that fnx can use; `fnx.doctor()` says why not.

    >>> import fnx
    >>> fnx.cuda.is_available() in (True, False)
    True
    """
    return bool(devices_of("cuda"))


@errors.api_boundary
def as_cupy(x: Array) -> Any:
    """An array on a GPU as a CuPy array on the same memory, without a copy.

    Work that has been started on the array comes before what CuPy does with it. CuPy
    lets one write to it; whoever does breaks what fnx takes for granted. Raises
    `ArgumentError` for anything but an array on a GPU.

    >>> import fnx, fnx.numpy as fnp
    >>> fnx.cuda.as_cupy(fnx.device_put(fnp.ones(3), fnx.devices("cpu")[0]))
    Traceback (most recent call last):
    fnx.errors.ArgumentError: as_cupy: the array is on cpu:0, not on a GPU.
      Fix: move it with fnx.device_put(x, fnx.devices('cuda')[0])
    """
    if not isinstance(x, DeviceArray):
        on = f"is on {x.device}" if hasattr(x, "device") else f"is a {type(x).__name__}"
        raise errors.ArgumentError(
            errors.explain(
                f"as_cupy: the array {on}, not on a GPU",
                fix="move it with fnx.device_put(x, fnx.devices('cuda')[0])",
            )
        )
    return x.exported()


@errors.api_boundary
def from_rawkernel(
    raw: Any,
    out: Callable[..., Any],
    *,
    grid: int | tuple[int, ...] | Callable[..., Any],
    block: int | tuple[int, ...] = 256,
    shared: int = 0,
    cpu: Any = None,
    jvp: Callable[..., Any] | None = None,
    vjp: tuple[Callable[..., Any], Callable[..., Any]] | None = None,
    vmap: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """A CuPy `RawKernel` as an operation of fnx, under jit, derivatives and vmap.

    The kernel gets pointers of the inputs and outputs, in row-major order, then the
    sizes of all axes of all inputs as `long long`. `grid`, `block` and `shared` say how
    it is launched, as `fnx.extend.Cuda` takes them; the rest is as `fnx.extend.kernel`
    has it. Raises `ArgumentError` for what is no `RawKernel`.

    >>> import fnx
    >>> fnx.cuda.from_rawkernel("void f()", lambda x: x, grid=1)
    Traceback (most recent call last):
    fnx.errors.ArgumentError: from_rawkernel: 'void f()' has no code and name.
      Fix: pass cupy.RawKernel(code, name)
    """
    code, name = getattr(raw, "code", None), getattr(raw, "name", None)
    if not isinstance(code, str) or not isinstance(name, str):
        asked = f"from_rawkernel: {raw!r} has no code and name"
        fix = "pass cupy.RawKernel(code, name)"
        raise errors.ArgumentError(errors.explain(asked, fix=fix))
    cuda = Cuda(code, name, grid, block, shared)
    return kernel(out, cpu=cpu, cuda=cuda, jvp=jvp, vjp=vjp, vmap=vmap)


@errors.api_boundary
def memory_stats(device: Device | str | None = None) -> Mapping[str, int]:
    """The memory of a GPU in bytes, by name; of the first one unless it is given.

    Among the names are "bytes_in_use" (by arrays and programs), "peak_bytes_in_use" and
    "bytes_limit". Raises `OptionError` if there is no GPU, and `ArgumentError` for a
    device that is none.
    """
    found = named("cuda" if device is None else device, "memory_stats")
    stats = found.memory_stats()
    if stats is None:
        raise errors.ArgumentError(
            f"memory_stats: {found} has no memory of its own; it is the host's."
        )
    return stats


__all__ = ["as_cupy", "is_available", "memory_stats"]
