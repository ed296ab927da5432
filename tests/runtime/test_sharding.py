"""fnx/sharding.py: what meshes, shardings and arrays in parts say of themselves.

The oracle for parts of arrays is slicing by hand, in the order of the mesh.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, sharding
from fnx.experimental import mesh_utils, multihost_utils
from fnx.sharding import AxisType, Mesh, NamedSharding
from fnx.sharding import PartitionSpec as P

pytestmark = pytest.mark.multi_device

X = np.arange(48, dtype="int32").reshape(8, 6)


@pytest.fixture(autouse=True)
def eight():
    """Eight CPU devices."""
    with fnx.config.override(cpu_devices=8):
        yield


@pytest.fixture
def mesh():
    return fnx.make_mesh((4, 2), ("a", "b"))


def test_a_mesh(mesh):
    assert not mesh.empty
    assert mesh.axis_types == (AxisType.Auto, AxisType.Auto)
    assert mesh.shape_tuple == (("a", 4), ("b", 2))
    np.testing.assert_array_equal(mesh.device_ids, np.arange(8).reshape(4, 2))
    assert not mesh.is_multi_process
    same = fnx.make_mesh((4, 2), ("a", "b"))
    assert mesh == same and hash(mesh) == hash(same)
    assert mesh != fnx.make_mesh((2, 4), ("a", "b"))
    assert mesh != fnx.make_mesh((4, 2), ("b", "a"))
    assert pickle.loads(pickle.dumps(mesh)) == mesh


def test_types_of_axes(mesh):
    auto = (AxisType.Auto,) * 2
    assert fnx.make_mesh((4, 2), ("a", "b"), axis_types=auto) == mesh
    assert Mesh(mesh.devices, ("a", "b"), axis_types=auto) == mesh
    for types in ((AxisType.Explicit,) * 2, (AxisType.Auto,), (AxisType.Manual, None)):
        with pytest.raises(errors.OptionError, match=r"AxisType\.Auto"):
            fnx.make_mesh((4, 2), ("a", "b"), axis_types=types)


def test_the_mesh_around(mesh):
    other = fnx.make_mesh((8,), ("c",))
    with pytest.raises(errors.ArgumentError, match="no mesh around"):
        sharding.get_mesh()
    with fnx.set_mesh(mesh) as found:
        assert found is mesh and sharding.get_mesh() is mesh
        got = fnx.jit(lambda x: x * 2, in_shardings=P("a"))(X)
        assert got.sharding == NamedSharding(mesh, P("a"))
        with sharding.use_mesh(other):
            assert sharding.get_mesh() is other
        with other:
            assert sharding.get_mesh() is other
        assert sharding.get_mesh() is mesh
        # As a call it stays until the block ends.
        fnx.set_mesh(other)
        assert sharding.get_mesh() is other
    with pytest.raises(errors.ArgumentError, match="no mesh around"):
        sharding.get_mesh()
    with pytest.raises(errors.ArgumentError, match="no Mesh"):
        fnx.set_mesh("a")


SPECS = [P(), P("a"), P(None, "b"), P("a", "b"), P(("a", "b")), P("b")]


@pytest.mark.parametrize("spec", SPECS)
def test_parts(mesh, spec):
    named = NamedSharding(mesh, spec)
    x = fnx.device_put(X, named)
    assert named.num_devices == 8 and named.has_addressable_devices
    indices = named.devices_indices_map(X.shape)
    assert named.addressable_devices_indices_map(X.shape) == indices
    assert named.is_fully_replicated == (spec == P())
    assert [s.index for s in x.global_shards] == list(indices.values())
    for number, (device, index) in enumerate(indices.items()):
        shard = x.global_shards[number]
        assert shard.device == device
        np.testing.assert_array_equal(shard.data, X[index])
        np.testing.assert_array_equal(x.addressable_data(number), X[index])
        assert X[index].shape == named.shard_shape(X.shape)
    again = sharding.reshard(x, NamedSharding(mesh, P("b", None)))
    np.testing.assert_array_equal(again, X)
    assert again.sharding.spec == P("b")


def test_equivalence(mesh):
    turned = Mesh(mesh.devices.T, ("b", "a"))
    for one, other, ndim, wanted in (
        (P("a"), P("a", None), 2, True),
        (P("a"), P("a"), 1, True),
        (P("a"), P("b"), 2, False),
        (P(("a", "b")), P(("b", "a")), 1, False),
        (P(None, "a"), P("a"), 2, False),
    ):
        first = NamedSharding(mesh, one)
        assert first.is_equivalent_to(NamedSharding(mesh, other), ndim) is wanted
        assert first.is_equivalent_to(NamedSharding(turned, one), ndim)


def test_an_array_that_is_not_there(mesh):
    named = NamedSharding(mesh, P("a", "b"))
    x = fnx.ShapeDtypeStruct((8, 6), "float32", sharding=named)
    assert x.sharding == named
    assert x == fnx.ShapeDtypeStruct((8, 6), "float32", sharding=named)
    assert x != fnx.ShapeDtypeStruct((8, 6), "float32")
    assert "PartitionSpec('a', 'b')" in repr(x)
    assert fnx.ShapeDtypeStruct((2,), "float32").sharding is None
    compiled = fnx.jit(lambda x: x.sum(1)).lower(x).compile()
    got = compiled(fnx.device_put(X.astype("float32"), named))
    np.testing.assert_array_equal(got, X.sum(1))
    assert got.sharding == NamedSharding(mesh, P("a"))


def test_devices_as_a_mesh():
    grid = mesh_utils.create_device_mesh((2, 4))
    assert Mesh(grid, ("a", "b")) == fnx.make_mesh((2, 4), ("a", "b"))
    last = fnx.devices()[4:]
    assert [d.id for d in mesh_utils.create_device_mesh((4,), last)] == [4, 5, 6, 7]
    with pytest.raises(errors.ArgumentError, match="takes 9 devices"):
        mesh_utils.create_device_mesh((9,))
    hybrid = mesh_utils.create_hybrid_device_mesh((2, 4), (1, 1))
    assert np.array_equal(hybrid, grid)
    with pytest.raises(errors.ShapeError, match="a size within a process"):
        mesh_utils.create_hybrid_device_mesh((2, 4), (1,))


@pytest.mark.parametrize("spec", SPECS)
def test_arrays_of_hosts(mesh, spec):
    whole = multihost_utils.host_local_array_to_global_array(
        {"x": X, "y": (X + 1,)}, mesh, {"x": spec, "y": None}
    )
    assert whole["x"].sharding == NamedSharding(mesh, spec)
    assert whole["y"][0].sharding == NamedSharding(mesh, P())
    back = multihost_utils.global_array_to_host_local_array(
        whole, mesh, {"x": spec, "y": P()}
    )
    np.testing.assert_array_equal(back["x"], X)
    np.testing.assert_array_equal(back["y"][0], X + 1)
    if spec != P():
        with pytest.raises(errors.ArgumentError, match="not as"):
            multihost_utils.global_array_to_host_local_array(whole["x"], mesh, P())


def test_waits_are_as_short_as_one_likes():
    with fnx.config.override(collective_timeout=0.5):
        assert fnx.config.collective_timeout == 0.5
    option = fnx.config.override
    for wrong in (0, -1.0, 2.0**20):
        with (
            pytest.raises(errors.OptionError, match="more than 0"),
            option(collective_timeout=wrong),
        ):
            pass
    for wrong in ("1", True, None):
        with (
            pytest.raises(errors.ArgumentError, match="takes a number"),
            option(collective_timeout=wrong),
        ):
            pass
    Config = type(fnx.config)
    for text, wanted in (("0.25", 0.25), ("7", 7)):
        found = Config({"FNX_COLLECTIVE_TIMEOUT": text}).collective_timeout
        assert found == wanted and type(found) is type(wanted)
    with pytest.raises(errors.OptionError, match="takes a number, got 'soon'"):
        Config({"FNX_COLLECTIVE_TIMEOUT": "soon"})
    with pytest.raises(errors.OptionError, match="more than 0"):
        Config({"FNX_COLLECTIVE_TIMEOUT": "nan"})


def test_names_for_programs_of_jax():
    assert fnp.asarray(X).global_shards[0].data.shape == X.shape
    names = {"AxisType", "Mesh", "NamedSharding", "PartitionSpec", "Sharding"}
    names |= {"SingleDeviceSharding", "get_mesh", "reshard", "set_mesh"}
    assert names <= {*sharding.__all__}
