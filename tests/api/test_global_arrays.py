"""fnx/api/global_arrays.py in a job of one process; tests/distributed has several."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
from fnx.errors import ArgumentError, ShapeError
from fnx.sharding import NamedSharding
from fnx.sharding import PartitionSpec as P

X = np.arange(48, dtype="int32").reshape(8, 6)


@pytest.fixture
def mesh():
    with fnx.config.override(cpu_devices=4):
        yield fnx.make_mesh((2, 2), ("a", "b"))


SPECS = [P(), P("a"), P(None, "b"), P("a", "b"), P(("a", "b")), P("b")]


@pytest.mark.parametrize("spec", SPECS)
def test_all_is_here(mesh, spec):
    sharding = NamedSharding(mesh, spec)
    shape = (8, 6)
    made = [
        fnx.make_array_from_process_local_data(sharding, X),
        fnx.make_array_from_process_local_data(sharding, X, shape),
        fnx.make_array_from_callback(shape, sharding, lambda index: X[index]),
    ]
    pieces = [
        fnx.device_put(shard.data, shard.device)
        for shard in fnx.device_put(X, sharding).addressable_shards
    ]
    made.append(fnx.make_array_from_single_device_arrays(shape, sharding, pieces))
    for array in made:
        assert array.is_fully_addressable and array.sharding == sharding
        assert array.dtype == X.dtype and np.array_equal(array, X)
        for shard in array.addressable_shards:
            assert np.array_equal(shard.data, X[shard.index])


def test_a_tree_of_data(mesh):
    sharding = NamedSharding(mesh, P("a"))
    made = fnx.make_array_from_process_local_data(sharding, {"x": X, "y": X[:, 0]})
    assert made["x"].shape == (8, 6) and made["y"].shape == (8,)


def test_a_callback_is_asked_once_for_each_part(mesh):
    asked = []

    def part(index):
        asked.append(index)
        return X[index]

    fnx.make_array_from_callback((8, 6), NamedSharding(mesh, P("a")), part)
    assert [(i.start, i.stop) for i, _ in asked] == [(0, 4), (4, 8)]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda s: fnx.make_array_from_process_local_data(s, X[:7]),
            ShapeError,
            r"axis 0 of local_data, of shape \(7, 6\): .* 2 parts",
        ),
        (
            lambda s: fnx.make_array_from_process_local_data(s, X, (16, 6)),
            ShapeError,
            "of axis 0 this process has 16 of 16",
        ),
        (
            lambda s: fnx.make_array_from_callback((8, 6), s, lambda index: X[:3]),
            ShapeError,
            r"is i32\[3,6\]: it must have the shape \(4, 3\)",
        ),
        (
            lambda s: fnx.make_array_from_single_device_arrays((8, 6), s, [X]),
            ArgumentError,
            "arrays are on cpu:0: .* on each of cpu:0, cpu:1, cpu:2, cpu:3",
        ),
        (
            lambda s: fnx.make_array_from_single_device_arrays(
                (8, 6), s, [fnx.device_put(X, d) for d in fnx.devices()]
            ),
            ShapeError,
            r"an array is i32\[8,6\]: .* the shape \(4, 3\)",
        ),
    ],
)
def test_what_does_not_fit(mesh, call, error, text):
    with pytest.raises(error, match=text):
        call(NamedSharding(mesh, P("a", "b")))
