"""fnx/runtime/replicas.py: runs that begin while others wait."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.multi_device

ROOT = Path(__file__).parents[2]

# A callback of each replica starts a thread that calls pmap, and waits for it.
PROGRAM = """
import threading
import numpy as np
import fnx, fnx.numpy as fnp
from fnx.control import joint

joint.runs_as_one = lambda *_: False  # small replicas have threads, too
fnx.config.cpu_devices = 4
inner = fnx.pmap(lambda x: fnx.lax.psum(fnp.sin(x), "j"), "j")
rows = np.arange(12.0, dtype="float32").reshape(4, 3)

def host(x):
    found = []
    thread = threading.Thread(target=lambda: found.append(np.asarray(inner(rows))))
    thread.start()
    thread.join()
    return np.float32(x.sum() + found[0][0, 0])

def member(x):
    shape = fnx.ShapeDtypeStruct((), "float32")
    return fnx.lax.psum(fnx.pure_callback(host, shape, x), "i")

got = fnx.pmap(member, "i")(np.ones((4, 3), "float32"))
want = 4 * (3 + np.sin(rows).sum(0)[0])
np.testing.assert_allclose(got, [want] * 4, rtol=1e-6)
threads = [t for t in threading.enumerate() if t.name.startswith("fnx-device")]
print("ended", len(threads))
"""


def test_a_callback_may_wait_for_a_thread_that_calls_pmap():
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    ended, count = run.stdout.split()
    # Three for the outer run, and three at most for each of four inner ones.
    assert ended == "ended" and 3 < int(count) <= 15
