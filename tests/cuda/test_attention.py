"""cuDNN's attention: what it is given, who is chosen, and what runs without it.

The package `cudnn` is a stand-in whose work waits in the emulated machine's streams.
"""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import nn
from fnx.compiler.pipeline import plan_program
from fnx.runtime.plan import ArrayType, Attended, AttentionStep, all_steps
from fnx_cuda import attending, blaslt, choosing, instructions, transfer
from fnx_cuda.attention_problem import attends
from fnx_cuda.backend import BACKEND
from fnx_cuda.cudnn_graph import LIBRARY
from tests import cuda_emulator as emulator
from tests.cuda.attention_fake import STAGES, FakeCudnn
from tests.cuda.compare import on_cpu
from tests.cuda.conftest import emulated
from tests.cuda.library_fakes import later_on

pytestmark = pytest.mark.cuda
named = pytest.mark.parametrize

F16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
B, T, S, N, K, H = 2, 33, 40, 4, 2, 8


@pytest.fixture(params=[0, 1], ids=["seed0", "seed1"])
def machine(request, monkeypatch):
    """An emulated machine on which the stand-in is faster, unless it says otherwise."""
    with emulated(request.param) as made:
        choosing.forget()
        found = FakeCudnn()

        def clock_on(stream):
            def clock(start):
                before = len(found.ran)
                start()
                made.finish_stream(made.stream(stream))
                return found.theirs if len(found.ran) > before else 2.0

            return clock

        found.later, found.theirs = later_on(made), 1.0
        monkeypatch.setattr(choosing, "clock_on", clock_on)
        LIBRARY.use(found)
        with fnx.default_device(fnx.devices("cpu")[0]):
            yield found
        LIBRARY.use(None)
        choosing.forget()


def arrays(rng, dtype=F16, heads=(N, K), lengths=(T, S), width=H):
    q = rng.standard_normal((B, lengths[0], heads[0], width))
    k, v = rng.standard_normal((2, B, lengths[1], heads[1], width))
    return [x.astype(dtype) for x in (q, k, v)]


def attention(**options):
    return lambda q, k, v: nn.dot_product_attention(q, k, v, **options)


def gradients(**options):
    def loss(q, k, v):
        out = nn.dot_product_attention(q, k, v, **options)
        return (fnp.asarray(out, "float32") ** 2).sum() / 16

    return fnx.grad(loss, (0, 1, 2))


def repeated(function, *given, count=4):
    """What a function gives at the last of some calls, which are a graph by then."""
    program = fnx.make_jaxpr(function)(*given)
    compiled = BACKEND.compile(plan_program(program, BACKEND.target))
    run = BACKEND.load(compiled)
    buffers = [transfer.put(np.ascontiguousarray(x), 0) for x in given]
    for _ in range(count):
        outputs = run(buffers, 0)
    types = program.output_types
    return compiled, [
        transfer.get(outputs[output.index], type.shape, type.dtype)
        for output, type in zip(run.outputs, types, strict=True)
    ]


def close(found, function, given, tolerance):
    """Values on the device are those that the CPU has in double precision."""
    wanted = on_cpu(function, *[np.asarray(x, np.float64) for x in given])
    for got, want in zip(found, wanted, strict=True):
        got = got.astype(np.float64)
        np.testing.assert_allclose(got, want, 0, tolerance * abs(want).max())


def of_attention(compiled):
    return [
        item.step
        for item in compiled.body.instructions
        if isinstance(item, instructions.Attend)
    ]


BANDS = {
    "all": {},
    "causal": {"is_causal": True},
    "window": {"local_window_size": (5, 0)},
    "both-sides": {"local_window_size": (3, 4), "scale": 0.2},
}


@named("dtype", [F16, BF16], ids=str)
@named("band", BANDS)
def test_values_and_gradients(band, dtype, machine, rng):
    options, given = BANDS[band], arrays(rng, dtype)
    tolerance = 4e-3 if dtype == F16 else 3e-2
    compiled, found = repeated(attention(**options), *given)
    close(found, attention(**options), given, tolerance)
    assert set(machine.ran) == {"sdpa"} and len(of_attention(compiled)) == 1
    compiled, found = repeated(gradients(**options), *given)
    close(found, gradients(**options), given, tolerance)
    assert set(machine.ran) == {"sdpa", "sdpa_backward"}
    assert [step.part for step in of_attention(compiled)] == ["forward", "gradients"]


@named("heads", [(4, 4), (6, 1)], ids=str)
def test_heads(heads, machine, rng):
    given = arrays(rng, heads=heads)
    close(repeated(gradients(), *given)[1], gradients(), given, 4e-3)
    assert machine.ran[-2:] == ["sdpa", "sdpa_backward"]


def test_under_vmap_it_is_one_attention(machine, rng):
    given = [np.stack([x, x[::-1], x * 0.5]) for x in arrays(rng)]
    function = fnx.vmap(gradients(is_causal=True))
    compiled, found = repeated(function, *given)
    close(found, function, given, 4e-3)
    shapes = {step.input_types[0].shape for step in of_attention(compiled)}
    assert shapes == {(3 * B, T, N, H)} and machine.ran[-1] == "sdpa_backward"


def test_in_loops_and_beside_what_is_computed(machine, rng):
    q, k, v = arrays(rng, heads=(2, 2), lengths=(S, S))

    def layers(q, k, v):
        def layer(x, kv):
            return x + attention(is_causal=True)(fnp.sin(x), *kv), None

        x, _ = fnx.lax.scan(layer, q, (fnp.stack([k, v]), fnp.stack([v, k])))
        return (fnp.asarray(x, "float32") ** 2).sum() / 64

    function = fnx.grad(layers, (0, 1, 2))
    close(repeated(function, q, k, v)[1], function, (q, k, v), 1e-2)
    assert machine.ran.count("sdpa_backward") >= 8


def test_calls_on_arrays_take_it_too(machine, rng):
    given = arrays(rng)
    gpu = fnx.devices("cuda")[0]
    found = attention(is_causal=True)(*fnx.device_put(given, gpu))
    close([np.asarray(found)], attention(is_causal=True), given, 4e-3)
    assert machine.ran and set(machine.ran) == {"sdpa"}


def test_the_choice_is_kept(machine, rng, monkeypatch, tmp_path):
    monkeypatch.setenv("FNX_CACHE_DIR", str(tmp_path))
    given = arrays(rng)
    with fnx.config.override(disk_cache=True):
        repeated(attention(), *given)
        timed = len(machine.ran)
        assert timed > 5
        repeated(attention(), *given)
        assert len(machine.ran) == timed + 5  # the first call is tried before
        choosing.forget()  # it is on disk
        repeated(attention(), *given)
        assert len(machine.ran) == timed + 10


def test_the_plan_may_be_faster(machine, rng):
    machine.theirs, given = 3.0, arrays(rng)
    close(repeated(gradients(), *given)[1], gradients(), given, 4e-3)
    timed = len(machine.ran)
    close(repeated(gradients(), *given)[1], gradients(), given, 4e-3)
    assert timed > 4 and len(machine.ran) == timed + 2  # each is tried once


def test_what_the_library_does_not_have_is_the_plan(machine, rng, recwarn):
    machine.refused = {"sdpa_backward"}
    given = arrays(rng)
    close(repeated(gradients(), *given)[1], gradients(), given, 4e-3)
    assert set(machine.ran) == {"sdpa"} and not recwarn


@named("function", ["create_handle", "build_plans", "execute"])
def test_a_library_out_of_order_is_told(function, machine, rng):
    machine.fails, given = {function}, arrays(rng)
    with pytest.warns(RuntimeWarning, match=r"cuDNN fails.*EXECUTION_FAILED") as told:
        close(repeated(attention(), *given)[1], attention(), given, 4e-3)
    assert not machine.ran and len(told) == 1


def test_large_workspaces_are_shared(machine, rng):
    machine.workspace = blaslt.WORKSPACE + 1
    given = arrays(rng)
    close(repeated(gradients(), *given)[1], gradients(), given, 4e-3)
    (rooms,) = [*attending._rooms.values()]
    assert list(rooms) == [2 * blaslt.WORKSPACE]


def test_without_the_package_it_fuses(machine, rng):
    LIBRARY.use(None)
    given = arrays(rng)
    compiled, found = repeated(gradients(is_causal=True), *given)
    close(found, gradients(is_causal=True), given, 4e-3)
    assert not of_attention(compiled) and emulator.machine().findings == []


def test_second_derivatives_are_those_of_the_program(machine, rng):
    given = arrays(rng, heads=(1, 1))

    def curvature(q, k, v):
        return fnx.grad(
            lambda q: (fnp.asarray(gradients()(q, k, v)[1], "float32") ** 2).sum()
        )(q)

    close(repeated(curvature, *given)[1], curvature, given, 2e-2)


# ---------------------------------------------------------------- which ones


@pytest.fixture
def served():
    """The stand-in, without a device."""
    LIBRARY.use(FakeCudnn())
    yield
    LIBRARY.use(None)


def types(lengths=(64, 64), width=64, dtype=F16):
    q = ArrayType((2, lengths[0], 4, width), dtype)
    k = ArrayType((2, lengths[1], 4, width), dtype)
    return q, k, k


@named(
    "change, given, taken",
    [
        ({}, {}, True),
        ({"right": 0}, {"dtype": BF16, "width": 256}, True),
        ({"left": 3, "right": 0}, {"lengths": (64, 80)}, True),
        ({}, {"lengths": (1, 4096)}, True),
        ({}, {"dtype": np.dtype(np.float32)}, False),
        ({}, {"width": 60}, False),
        ({}, {"width": 264}, False),
        ({}, {"lengths": (16, 16)}, False),
        ({}, {"lengths": (64, 0)}, False),
        ({"left": 3, "right": 3}, {"lengths": (80, 64)}, False),
        ({"scale": 0.0}, {}, False),
        ({"scale": -1.0}, {}, False),
        ({"scale": float("inf")}, {}, False),
        ({"scale": float("nan")}, {}, False),
    ],
    ids=str,
)
def test_which_attentions_are_steps(change, given, taken, served):
    attended = replace(Attended(0.125), **change)
    assert attends("forward", attended, types(**given)) == taken


def test_the_plan_shows_the_step(served, rng):
    program = fnx.make_jaxpr(gradients(local_window_size=(5, 0)))(*arrays(rng))
    plan = plan_program(program, BACKEND.target)
    steps = [step for step in all_steps(plan) if isinstance(step, AttentionStep)]
    assert len(steps) == 2
    assert "= attention(" in str(plan) and "= gradients of attention(" in str(plan)
    assert "t - 5 … t" in str(plan)


def test_the_package_has_our_names():
    """Where it is installed: what we say by name, it knows by that name."""
    cudnn = pytest.importorskip("cudnn")
    band = "attn_scale", "diagonal_alignment", "diagonal_band_left_bound"
    names = (*band, "diagonal_band_right_bound", "q", "k", "v")
    for name in (*names, "generate_stats"):
        assert f" {name}: " in cudnn.pygraph.sdpa.__doc__
    for name in (*names, "o", "dO", "stats", "use_deterministic_algorithm"):
        assert f" {name}: " in cudnn.pygraph.sdpa_backward.__doc__
    for name in ("io_data_type", "intermediate_data_type", "compute_data_type"):
        assert f" {name}: " in cudnn.pygraph.__init__.__doc__
    for name in (*STAGES, "execute", "get_workspace_size", "tensor"):
        assert hasattr(cudnn.pygraph, name)
    setters = "set_output", "set_dim", "set_stride", "set_data_type", "get_uid"
    assert all(hasattr(cudnn.tensor, name) for name in setters)
    assert {"HALF", "BFLOAT16", "FLOAT"} <= set(cudnn.data_type.__members__)
    assert cudnn.heur_mode.A and cudnn.diagonal_alignment.TOP_LEFT is not None
    assert issubclass(cudnn.cudnnGraphNotSupportedError, Exception)


def test_a_package_that_is_forbidden_does_not_serve(served):
    LIBRARY.forbidden = True
    assert not attends("forward", Attended(0.125), types())
    LIBRARY.forbidden = False
    assert attends("forward", Attended(0.125), types())
