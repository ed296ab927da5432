"""Locks at a fork: taken in the order of their ranks, whichever was made first."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fnx import locks
from fnx.locks import fork_safe_lock


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    monkeypatch.setattr(locks, "_locks", list(locks._locks))


def test_a_fork_takes_locks_by_rank():
    later, earlier = fork_safe_lock(rank=8), fork_safe_lock(rank=7)
    mine = [lock for _, lock in locks._locks if lock in (later, earlier)]
    assert mine == [earlier, later]


CODE = """
import os, threading
from fnx.locks import fork_safe_lock

inner, outer = fork_safe_lock(rank=9), fork_safe_lock(rank=8)
done = threading.Event()

def work():
    while not done.is_set():
        with outer, inner:
            pass

thread = threading.Thread(target=work)
thread.start()
statuses = set()
for _ in range(50):
    child = os.fork()
    if child == 0:
        free = outer.acquire(timeout=5) and inner.acquire(timeout=5)
        os._exit(0 if free else 1)
    statuses.add(os.waitpid(child, 0)[1])
done.set()
thread.join()
print(statuses)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_does_not_meet_another_thread_half_way():
    run = [sys.executable, "-W", "ignore", "-c", CODE]
    assert subprocess.check_output(run, text=True, timeout=60).strip() == "{0}"
