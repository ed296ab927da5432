"""Locks at a fork: taken in the order of their ranks, whichever was made first."""

from __future__ import annotations

import os
import threading

import pytest

from fnx import locks
from fnx.locks import fork_safe_lock

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    monkeypatch.setattr(locks, "_locks", list(locks._locks))


def test_a_fork_takes_locks_by_rank():
    later, earlier = fork_safe_lock(rank=8), fork_safe_lock(rank=7)
    mine = [lock for _, lock in locks._locks if lock in (later, earlier)]
    assert mine == [earlier, later]


@forks
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_does_not_meet_another_thread_half_way():
    inner, outer = fork_safe_lock(rank=9), fork_safe_lock(rank=8)
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            with outer, inner:
                pass

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(50):
            child = os.fork()
            if child == 0:
                free = outer.acquire(timeout=5) and inner.acquire(timeout=5)
                os._exit(0 if free else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        done.set()
        thread.join()
