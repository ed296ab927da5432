"""The backend that a program is compiled for, as the compiler sees it.

Receives nothing: each backend has one record of these, which says how its kernels are
scheduled and what it computes besides kernels. Next on the walk: `pipeline.py`.
"""

from __future__ import annotations

from fnx.compiler.multiply import BLAS, Products
from fnx.kernel.schedule import Schedule, schedule
from fnx.records import record


@record
class Target:
    """A backend: its name, how its kernels are scheduled, its matrix products.

    `name` is what branches of `platform_dependent` go by. Where it has `streams`,
    collectives go on beside the steps behind them.
    """

    name: str
    schedule: Schedule
    products: Products
    streams: bool


CPU = Target("cpu", schedule, BLAS, streams=False)
"""CPUs, whose code `fnx.cpu` prints."""
