"""Many CPU devices: what a step costs on two, a call on eight, a sum between two.

Receives whether to be quick (smaller arrays), gives cases, each measured by a process
of its own, since JAX has as many host devices as it was started with. The remarks
compare a training step on two devices of one thread with that on one of two, call by
call in turns, and with what is simulated of it. Next on the walk: `process.py`.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import mlp
from benchmarks.harness import (
    Build,
    Case,
    Inputs,
    Reported,
    Row,
    Run,
    both,
    copy_time,
    cores,
    fetch,
    load,
    matmul_rate,
    put,
)
from fnx.distributed import Chip, Cluster, Level, simulate

CHILD = """
from benchmarks import pmap
pmap.report({library!r}, {what!r}, {size})
"""
DEVICES = {"step": 2, "stacked": 2, "one": 2, "call": 8, "sum": 2}
ROUNDS = 41
STEPS = 10
PREDICTED = (2, 4, 8)


# ---------------------------------------------------------------- the new process


def report(column: str, what: str, size: int) -> None:
    """Print the first results, and the median seconds of a call."""
    library = load(column)
    if column == "fnx":
        library.config.cpu_devices = DEVICES[what]
    run = RUNS[what](library, size)
    first = [float(np.abs(x).sum(dtype="f8")) for x in fetch(run())]
    (seconds,) = in_turns([waited(library, run)])
    print(json.dumps({"first": first, "seconds": seconds}))


def compare(size: int) -> None:
    """Print the seconds of the step of fnx on two devices, and on one, in turns."""
    library = load("fnx")
    library.config.cpu_devices = 2
    runs = [waited(library, RUNS[what](library, size)) for what in ("step", "one")]
    print(json.dumps(in_turns(runs)))


def predict() -> None:
    """Print seconds that are simulated, and measured, of a step on 2, 4, 8 devices.

    What the simulation knows of this machine is measured on one device and between
    two: the rate of products and of copies, and how long sums of two sizes take.
    """
    library = load("fnx")
    library.config.cpu_devices = max(PREDICTED)
    cluster = functools.partial(described, library, *between_two(library))
    rows = []
    for devices in PREDICTED:
        run, steps, arguments = parallel_steps(library, devices)
        axes = {"data": devices}
        found = simulate(steps, cluster(devices), *arguments, axes=axes, overlap=False)
        (seconds,) = in_turns([waited(library, run)])
        rows.append((devices, found.seconds / STEPS, seconds / STEPS, found.bound))
    print(json.dumps(rows))


def between_two(library: Any) -> tuple[float, float]:
    """The seconds of a message between two devices, and their bytes a second."""
    small, large = 10, 10**6
    times = in_turns([waited(library, sum_between(library, n)) for n in (small, large)])
    # an all-reduce of two is two messages of half of the bytes
    return times[0] / 2, 4 * large / (times[1] - times[0])


def described(library: Any, latency: float, bandwidth: float, devices: int) -> Cluster:
    """This machine: so many devices that share its cores."""
    share = min(1.0, cores() / devices) / cores()
    copied = 2**26
    chip = Chip(
        flops=share * matmul_rate("float32"),
        bandwidth=share * copied / copy_time(copied),
        memory=1e9,
    )
    busy = max(1.0, devices / cores())
    link = Level("memory", devices, bandwidth / busy, latency * busy)
    return Cluster(chip, (link,))


def waited(library: Any, run: Run) -> Run:
    return lambda: library.block_until_ready(run())


def in_turns(runs: Sequence[Run]) -> list[float]:
    """The median seconds of each: A B A B …, after some calls to warm up."""
    samples: list[list[float]] = [[] for _ in runs]
    for turn in range(ROUNDS + 5):
        for run, times in zip(runs, samples, strict=True):
            start = time.perf_counter()
            run()
            if turn >= 5:
                times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in samples]


def parallel_step(library: Any, size: int, shared: bool = True) -> Run:
    """A step of `mlp.py`: each of two devices has half of the batch.

    The weights are one array, which both read, or `shared` is false and each device has
    its own, stacked.
    """
    devices = DEVICES["step"]
    params, *batch = put(library, mlp.data(np.random.default_rng(0)))
    parts = in_parts(batch, devices)
    axis = None
    if not shared:
        axis = 0
        stack = library.numpy.stack
        params = library.tree.map(lambda a: stack([a] * devices), params)
    step = replica_step(library)
    train = library.pmap(step, "data", in_axes=(axis, 0, 0), out_axes=axis)

    def run() -> Any:
        nonlocal params
        loss, params = train(params, *parts)
        return loss, params

    return run


def stacked_step(library: Any, size: int) -> Run:
    """The step with a copy of the weights for each device."""
    return parallel_step(library, size, shared=False)


def parallel_steps(library: Any, devices: int) -> tuple[Run, Any, tuple[Any, ...]]:
    """Some steps in a loop, whose replicas have a thread each and exchange gradients.

    Gives a run on so many devices, what one of them does, and its arguments.
    """
    params, *batch = put(library, mlp.data(np.random.default_rng(0)))
    parts = in_parts(batch, devices)
    step = replica_step(library)

    def steps(params: Any, x: Any, y: Any) -> Any:
        def again(params: Any, _: Any) -> Any:
            loss, params = step(params, x, y)
            return params, loss

        return library.lax.scan(again, params, None, length=STEPS)

    train = library.pmap(steps, "data", in_axes=(None, 0, 0), out_axes=None)
    own = [part[0] for part in parts]
    return lambda: train(params, *parts), steps, (params, *own)


def replica_step(library: Any) -> Any:
    """What a device does of a step: its part of the gradient, and the mean of all."""
    gradient = library.value_and_grad(mlp.loss_function(library))

    def step(params: Any, x: Any, y: Any) -> Any:
        loss, found = library.lax.pmean(gradient(params, x, y), "data")
        return loss, mlp.sgd(library, params, None, found)[0]

    return step


def in_parts(batch: Sequence[Any], devices: int) -> list[Any]:
    """The batch with a leading axis of devices."""
    return [a.reshape(devices, -1, a.shape[1]) for a in batch]


def single_step(library: Any, size: int) -> Run:
    """The same step on one device."""
    inputs = put(library, mlp.data(np.random.default_rng(0)))
    return mlp.training(mlp.sgd)(library, inputs)


def call(library: Any, size: int) -> Run:
    """Next to nothing, on each of eight devices."""
    x = library.numpy.ones((8, size))
    function = library.pmap(lambda x: x + 1)
    x = function(x)  # lies on the devices from here on
    return lambda: function(x)


def sum_between(library: Any, size: int) -> Run:
    """The sum of an array of each of two devices."""
    rng = np.random.default_rng(0)
    x = put(library, rng.standard_normal((2, size), dtype=np.float32))
    x = library.pmap(lambda x: x * 1)(x)
    function = library.pmap(lambda x: library.lax.psum(x, "i"), "i")
    return lambda: function(x)


RUNS: dict[str, Callable[[Any, int], Run]] = {
    "step": parallel_step,
    "stacked": stacked_step,
    "one": single_step,
    "call": call,
    "sum": sum_between,
}


# ---------------------------------------------------------------- the measuring one


def child(code: str, devices: int) -> Any:
    """What a new process that has so many devices prints, read as JSON."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"XLA_FLAGS": flags},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def measured(what: str, size: int) -> Build:
    def build(library: Any, inputs: Inputs) -> Run:
        code = CHILD.format(library=library.__name__, what=what, size=size)

        def run() -> Reported:
            found = child(code, DEVICES[what])
            return Reported([np.asarray(x) for x in found["first"]], found["seconds"])

        return run

    return build


def case(name: str, what: str, size: int = 0, moved: int = 0) -> Case:
    columns = both(measured(what, size))
    return Case(
        name, lambda rng: (), columns, tolerance=1e-3, reported=True, moved=moved
    )


def remarks(rows: Sequence[Row]) -> list[str]:
    """How the step on two devices compares with that on one."""
    if not any(row.median("fnx") for row in rows):
        return []
    code = "from benchmarks import pmap\npmap.compare(0)"
    two, one = child(code, 2)
    guesses = child("from benchmarks import pmap\npmap.predict()", 2)
    return [
        f"MLP step on 2 devices / on one of {cores()} threads, in turns: "
        f"{two * 1e3:.2f} / {one * 1e3:.2f} ms = {two / one:.2f}",
        *[
            f"simulated on {devices} devices: {guess * 1e3:.2f} ms, bound by {bound}; "
            f"measured {seconds * 1e3:.2f} ms, {guess / seconds - 1:+.0%}"
            for devices, guess, seconds, bound in guesses
        ],
    ]


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    size = 10**5 if quick else 10**7
    return [
        case("MLP SGD step on one device", "one"),
        case("MLP SGD step on 2 devices", "step"),
        case("the same, a copy of the weights on each", "stacked"),
        case("x + 1 of 10 floats on each of 8 devices", "call", 10),
        # each device reads both arrays; half of them and both results are traffic
        case(f"psum of {size} floats on 2 devices", "sum", size, moved=4 * 4 * size),
    ]
