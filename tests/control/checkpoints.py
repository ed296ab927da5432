"""What the tests of checkpoints share: functions, policies, and what is kept."""

from __future__ import annotations

import numpy as np

import fnx
import fnx.numpy as fnp
from fnx import checkpoint_policies as policies
from fnx import lax
from fnx.ad_checkpoint import checkpoint_name

W = np.array([[0.5, -1.0, 0.3], [0.2, 0.7, -0.4], [-0.6, 0.1, 0.9]])
NAMED = policies.save_only_these_names("hidden")
POLICIES = {
    "none": None,
    "nothing": policies.nothing_saveable,
    "everything": policies.everything_saveable,
    "dots": policies.dots_saveable,
    "named": NAMED,
    "all but named": policies.save_anything_except_these_names("hidden"),
}


def bare(f, **options):
    return f


def layer(y):
    hidden = checkpoint_name(fnp.tanh(y @ W), "hidden")
    return fnp.sin(hidden) * y


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def kept(f, *args):
    """The types of what the linear map of a function reads, as texts, sorted."""
    _, linear = fnx.vjp(f, *args)
    return sorted([str(x.type) for x in fnx.tree.leaves(linear)])


def rounds(x, length, **options):
    def body(carry, row):
        state = fnp.sin(carry["s"]) * x + row
        return {"s": state, "n": carry["n"] + 1}, (state * carry["n"], None)

    rows = np.sin(np.arange(3.0 * length)).reshape(length, 3)
    last, (ys, _) = lax.scan(body, {"s": x, "n": 0}, rows, **options)
    return last["s"] * last["n"] + (ys * np.cos(np.arange(length))[:, None]).sum(0)
