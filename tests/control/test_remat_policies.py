"""What the policies of a checkpoint keep."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import checkpoint_policies as policies
from fnx import lax
from fnx.ad_checkpoint import checkpoint_name, print_saved_residuals
from fnx.core.digest import program_digest
from tests.control.checkpoints import NAMED, POLICIES, W, close, kept, layer
from tests.control.flows import X

# ---------------------------------------------------------------- what is kept


def one(policy):
    def f(x, w):
        hidden = checkpoint_name(fnp.sin(x) @ w, "hidden")
        return fnp.exp(fnp.tanh(hidden).sum(0, keepdims=True))

    return fnx.checkpoint(f, policy=policy)


ARGUMENTS = ["f64[2,3]", "f64[3,5]"]


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        (None, []),
        (policies.nothing_saveable, []),
        (policies.dots_saveable, ["f64[2,5]"]),
        (policies.checkpoint_dots, ["f64[2,5]"]),
        (policies.dots_with_no_batch_dims_saveable, ["f64[2,5]"]),
        (policies.checkpoint_dots_with_no_batch_dims, ["f64[2,5]"]),
        (policies.offload_dot_with_no_batch_dims("device", "host"), ["f64[2,5]"]),
        (NAMED, ["f64[2,5]"]),
        (policies.save_only_these_names("other"), []),
        (policies.save_any_names_but_these("other"), ["f64[2,5]"]),
        (policies.save_any_names_but_these("hidden", "other"), []),
        (
            policies.save_from_both_policies(policies.nothing_saveable, NAMED),
            ["f64[2,5]"],
        ),
        (
            policies.save_and_offload_only_these_names(
                names_which_can_be_saved=["other"],
                names_which_can_be_offloaded=["hidden"],
                offload_src="device",
                offload_dst="pinned_host",
            ),
            ["f64[2,5]"],
        ),
        (lambda primitive, *types, **params: primitive.name == "exp", ["f64[1,5]"]),
    ],
)
def test_a_policy_says_what_is_kept(policy, wanted):
    x, w = np.ones((2, 3)), np.ones((3, 5))
    assert kept(one(policy), x, w) == sorted([*ARGUMENTS, *wanted])


def test_everything_may_be_kept():
    x, w = np.ones((2, 3)), np.ones((3, 5))
    assert kept(one(policies.everything_saveable), x, w) == kept(
        lambda x, w: fnp.exp(fnp.tanh(fnp.sin(x) @ w).sum(0, keepdims=True)), x, w
    )


def test_products_with_batch_axes_are_told_apart():
    def f(x, y):
        return fnp.sin(fnp.einsum("bij,bjk->bik", fnp.sin(x), y))

    x, y = np.ones((4, 2, 3)), np.ones((4, 3, 5))
    given = ["f64[4,2,3]", "f64[4,3,5]"]
    wrap = functools.partial(fnx.checkpoint, f)
    assert kept(wrap(policy=policies.dots_saveable), x, y) == sorted(
        [*given, "f64[4,2,5]"]
    )
    assert kept(wrap(policy=policies.dots_with_no_batch_dims_saveable), x, y) == given


def test_convolutions_are_products_without_batch_axes_they_are_not():
    def f(x, kernel):
        return fnp.sin(lax.conv(fnp.sin(x), kernel, (1, 1), "VALID"))

    x, kernel = np.ones((2, 3, 8, 8)), np.ones((5, 3, 2, 2))
    given = ["f64[2,3,8,8]", "f64[5,3,2,2]"]
    wrap = functools.partial(fnx.checkpoint, f)
    made = "f64[2,5,7,7]"
    assert kept(wrap(policy=policies.dots_saveable), x, kernel) == [
        *given[:1],
        made,
        given[1],
    ]
    assert (
        kept(wrap(policy=policies.dots_with_no_batch_dims_saveable), x, kernel) == given
    )


def test_a_value_that_is_not_to_be_kept_is_not_kept_without_its_name():
    def f(x):
        return fnp.sin(fnp.sin(checkpoint_name(fnp.exp(x), "a")))

    def count(policy):
        return len(kept(fnx.checkpoint(f, policy=policy), X))

    assert count(policies.everything_saveable) == 3  # exp(x), and two cosines
    # the cosines, and x, from which exp(x) is computed again
    assert (
        kept(
            fnx.checkpoint(f, policy=policies.save_anything_except_these_names("a")), X
        )
        == ["f64[3]"] * 3
    )
    spied = []

    def spy(primitive, *types, **params):
        spied.append((primitive.name, *map(str, types), params.get("name")))
        return False

    assert count(spy) == 1
    assert ("exp", "f64[3]", None) in spied
    assert ("checkpoint_name", "f64[3]", "a") in spied


def test_functions_under_jit_are_seen_by_policies():
    f = fnx.checkpoint(
        fnx.jit(lambda x: fnp.sin(fnx.jit(lambda y: fnp.sin(y) @ W)(x))),
        policy=policies.dots_saveable,
    )
    x = np.ones((5, 3))
    assert kept(f, x).count("f64[5,3]") == 2


def scanned(policy):
    """A scan with a product in each round, under jit; rows of weights; two results."""

    def f(x, ws):
        def body(carry, w):
            hidden = fnx.jit(lambda y: fnp.tanh(y @ w))(carry["y"])
            state = {"y": fnp.sin(hidden), "n": carry["n"] + 1}
            return state, (hidden.sum(), carry["n"])

        last, (sums, numbers) = lax.scan(body, {"y": x, "n": 0}, ws, reverse=True)
        return (last["y"] * 2).sum() + (sums**2 * numbers).sum()

    return fnx.checkpoint(f, policy=policy) if policy else f


WS = np.stack([W, W.T, W @ W, -W])


def test_a_policy_keeps_rows_of_a_scan():
    x = np.ones((2, 3))
    given, rows = ["f64[2,3]", "f64[4,3,3]"], "f64[4,2,3]"
    assert kept(scanned(policies.nothing_saveable), x, WS) == given
    assert kept(scanned(policies.dots_saveable), x, WS) == sorted([*given, rows])

    def products(policy):
        both = fnx.value_and_grad(scanned(policy))
        return str(fnx.make_jaxpr(both)(x, WS)).count("dot_general")

    # one in a round forward, one backward, and one again where none is kept
    assert products(policies.dots_saveable) == 2
    assert products(policies.nothing_saveable) == 3


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_that_are_kept_change_no_value(policy):
    x = np.arange(6.0).reshape(2, 3) * 0.3 - 0.7
    f, plain_f = scanned(POLICIES[policy]), scanned(None)

    def slope(f):
        return fnx.grad(lambda x, ws: (fnx.grad(f, 1)(x, ws) ** 2).sum(), (0, 1))

    for found, wanted in zip(
        fnx.jit(slope(f))(x, WS), slope(plain_f)(x, WS), strict=True
    ):
        close(found, wanted)
    stack = np.stack([x, -x])
    found = fnx.vmap(fnx.grad(f), (0, None))(stack, WS)
    close(found, np.stack([fnx.grad(plain_f)(x, WS) for x in stack]))


def test_rows_that_a_call_reads_are_not_stacked_once_more():
    x = np.ones((2, 3))
    assert kept(scanned(None), x, WS).count("f64[4,3,3]") == 1


def test_what_is_kept_is_printed(capsys):
    outside = fnp.array(X)

    def f(params, *, scale):
        hidden = fnx.jit(lambda w: checkpoint_name(w @ W, "a"))(params["w"])
        return fnp.sin(hidden * scale) * outside

    x = fnx.ShapeDtypeStruct((3,), "float64")
    f_named = fnx.checkpoint(f, policy=policies.save_only_these_names("a"))
    print_saved_residuals(f_named, {"w": x}, scale=X)
    lines = capsys.readouterr().out.splitlines()
    places = [line.partition(" at ")[0] for line in lines]
    assert sorted(places) == [
        "f64[3,3] an array from outside",
        "f64[3] an array from outside",
        "f64[3] the argument scale",
        "f64[3] the result of checkpoint_name",
    ]
    (named,) = [line for line in lines if "checkpoint_name" in line]
    assert "test_remat_policies.py:" in named


def test_equal_policies_make_equal_programs():
    def program(policy):
        return fnx.make_jaxpr(fnx.checkpoint(layer, policy=policy))(X)

    names = policies.save_only_these_names
    assert program(names("a", "b")) == program(names("b", "a"))
    assert program_digest(program(names("a", "b"))) is not None  # so it is kept on disk
    assert program(names("a")) != program(names("b"))
