"""What goes wrong in pmap and shard_map: errors, timeouts, and threads that meet."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.sharding import Mesh, NamedSharding
from fnx.sharding import PartitionSpec as P
from tests.spmd.arrays import random

pytestmark = pytest.mark.multi_device


def over_two(in_specs, out_specs):
    """The identity on two devices."""
    mesh = fnx.make_mesh((2,), ("a",))
    return fnx.shard_map(lambda x: x, mesh=mesh, in_specs=in_specs, out_specs=out_specs)


BAD = {
    "more members than devices": (
        lambda: fnx.pmap(lambda x: x)(np.zeros(9)),
        errors.ArgumentError,
        "size 9.*there are 8 devices.*cpu_devices = 9",
    ),
    "sizes differ": (
        lambda: fnx.pmap(lambda x, y: x)(np.zeros(3), np.zeros(4)),
        errors.ShapeError,
        "equal sizes",
    ),
    "a name that is bound": (
        lambda: fnx.vmap(lambda x: fnx.pmap(lambda y: y, "i")(x), axis_name="i")(
            np.zeros((2, 2))
        ),
        errors.AxisError,
        "is bound around it",
    ),
    "a name that is not bound": (
        lambda: fnx.pmap(lambda x: lax.psum(x, "j"), "i")(np.zeros(2)),
        errors.AxisError,
        "'j' is not bound",
    ),
    "in_axes": (
        lambda: fnx.pmap(lambda x: x, in_axes=(0, 1))(np.zeros(2)),
        errors.ArgumentError,
        "in_axes=.* has 2 entries",
    ),
    "no such axis": (
        lambda: fnx.pmap(lambda x: x, in_axes=1)(np.zeros(2)),
        errors.AxisError,
        "no axis 1",
    ),
    "devices and backend": (
        lambda: fnx.pmap(lambda x: x, devices=fnx.devices(), backend="cpu"),
        errors.OptionError,
        "both given",
    ),
    "a mesh that is too large": (
        lambda: fnx.make_mesh((3, 3), ("a", "b")),
        errors.ArgumentError,
        "takes 9 devices.*cpu_devices = 9",
    ),
    "no members": (
        lambda: fnx.pmap(lambda x: x)(np.zeros((0, 3))),
        errors.ArgumentError,
        "have size 0: there is no member",
    ),
    "an axis of no devices": (
        lambda: fnx.make_mesh((2, 0), ("a", "b")),
        errors.ArgumentError,
        "each axis has one device or more",
    ),
    "a mesh of no devices": (
        lambda: Mesh(np.zeros((0,)), ("a",)),
        errors.ArgumentError,
        "a mesh has one or more",
    ),
    "a name twice": (
        lambda: fnx.make_mesh((2, 2), ("a", "a")),
        errors.AxisError,
        "each name is of one axis",
    ),
    "a device twice": (
        lambda: Mesh(fnx.devices()[:1] * 2, ("a",)),
        errors.ArgumentError,
        "stands twice",
    ),
    "an unknown name": (
        lambda: fnx.shard_map(
            lambda x: x,
            mesh=fnx.make_mesh((2,), ("a",)),
            in_specs=P("b"),
            out_specs=P(),
        )(np.zeros(2)),
        errors.AxisError,
        "no axis 'b'",
    ),
    "no multiple": (
        lambda: fnx.shard_map(
            lambda x: x,
            mesh=fnx.make_mesh((2,), ("a",)),
            in_specs=P("a"),
            out_specs=P("a"),
        )(np.zeros(3)),
        errors.ShapeError,
        "axis 0 of x.*3 is no multiple of 2",
    ),
    "an axis twice in a spec": (
        lambda: over_two(P("a", "a"), P())(np.zeros((4, 4))),
        errors.AxisError,
        "an axis of the mesh stands in it twice",
    ),
    "an axis twice in a sharding": (
        lambda: NamedSharding(fnx.make_mesh((2,), ("a",)), P(("a", "a"))),
        errors.AxisError,
        "an axis of the mesh stands in it twice",
    ),
    "too many entries": (
        lambda: over_two(P(None, "a"), P())(np.zeros(4)),
        errors.AxisError,
        "more axes than there are",
    ),
    "an argument by name": (
        lambda: over_two(P(), P())(x=np.zeros(4)),
        errors.ArgumentError,
        "x is passed by name",
    ),
    "no spec": (
        lambda: over_two("a", P())(np.zeros(4)),
        errors.ArgumentError,
        "a spec is a PartitionSpec",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    call, kind, text = BAD[what]
    with pytest.raises(kind, match=f"(?s){text}"):
        call()


def diverging(x):
    """The first replica takes another branch, with a collective more."""
    return lax.cond(lax.axis_index("i") == 0, lambda: lax.psum(x, "i"), lambda: x * 2)


def differing(x):
    """Replicas call different collectives."""
    return lax.cond(
        lax.axis_index("i") == 0,
        lambda: lax.psum(x, "i"),
        lambda: lax.pmax(x, "i"),
    )


def looping(x):
    """Replicas make different numbers of rounds, with a collective in each."""
    return lax.while_loop(
        lambda c: c[0] <= lax.axis_index("i"),
        lambda c: (c[0] + 1, lax.psum(c[1], "i")),
        (0, x),
    )[1]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (diverging, r"(replica \d has|replicas (\d, )+\d have) ended without it"),
        (differing, "do not call the same"),
        (looping, "has ended without it"),
    ],
)
@pytest.mark.parametrize("n", [3, 50000])
def test_replicas_that_do_not_meet(function, text, n):
    with pytest.raises(errors.CollectiveError, match=text):
        fnx.pmap(function, "i")(random(4, n))
    # nothing is left over
    np.testing.assert_array_equal(
        fnx.pmap(lambda x: lax.psum(x, "i"), "i")(np.ones((4, 2))), np.full((4, 2), 4)
    )


def test_an_error_in_a_callback_of_one_replica():
    def host(x):
        if x[0] == 2:
            raise ValueError("the third one")
        return x

    def f(x):
        x = fnx.pure_callback(host, fnx.ShapeDtypeStruct(x.shape, x.dtype), x)
        return lax.psum(x, "i")

    x = np.arange(4.0)[:, None]
    with pytest.raises(ValueError, match="the third one") as caught:
        fnx.pmap(f, "i")(x)
    assert "replica 2 of 4" in "".join(caught.value.__notes__)


def test_a_replica_that_does_not_come_in_time():
    gate = threading.Event()

    def host(x):
        if x[0] == 1:
            gate.wait(20)
        return x

    def f(x):
        x = fnx.pure_callback(host, fnx.ShapeDtypeStruct(x.shape, x.dtype), x)
        return lax.psum(x, "i")

    timer = threading.Timer(2, gate.set)
    timer.start()
    with (
        fnx.config.override(collective_timeout=1),
        pytest.raises(errors.CollectiveError, match=r"replica 1 has not come within 1"),
    ):
        fnx.pmap(f, "i")(np.arange(3.0)[:, None])
    timer.join()


def test_threads_run_replicas_at_the_same_time():
    f = fnx.pmap(lambda x: lax.psum(x * 2, "i"), "i")
    x = random(4, 3000)
    want = np.asarray(f(x))
    wrong = []

    def work():
        for _ in range(20):
            if not np.array_equal(f(x), want):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong


def test_nans_are_found():
    with (
        fnx.debug_nans(True),
        pytest.raises(errors.NonFiniteError, match="log"),
    ):
        fnx.pmap(lambda x: fnp.log(x))(np.array([1.0, -1.0]))


def test_the_number_of_devices_from_the_environment():
    code = "import fnx; print(fnx.device_count(), fnx.devices()[2])"
    run = [sys.executable, "-c", code]
    found = subprocess.run(
        run, env={"FNX_CPU_DEVICES": "3", "PATH": ""}, capture_output=True, text=True
    )
    assert found.stdout.split() == ["3", "cpu:2"], found.stderr
