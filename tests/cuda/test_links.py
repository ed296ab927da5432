"""NCCL between processes, at the adapter: what is told, and what ends a wait."""

from __future__ import annotations

import time

import numpy as np
import pytest

import fnx
from fnx import errors
from fnx_cuda import _cupy, device, links
from fnx_cuda.collectives import Ranks

pytestmark = [pytest.mark.cuda, pytest.mark.multi_device]


class NcclError(RuntimeError):
    """NCCL's error."""


class Comm:
    """One rank of NCCL."""

    def __init__(self, *given):
        self.given = given
        self.aborted = False
        self.error = None

    def check_async_error(self):
        if self.error is not None:
            raise self.error

    def abort(self):
        self.aborted = True


class Library:
    """NCCL, whose identifier is that of one process."""

    NcclError = NcclError
    NcclCommunicator = Comm
    available = True

    @staticmethod
    def get_unique_id():
        return bytes(range(128))


class Member:
    """A replica, which those of other processes meet."""

    size, rank = 2, 0

    def __init__(self, between):
        self.between = between


class Between:
    """What meets two processes; the other one has NCCL or has not."""

    size = 2

    def __init__(self, rank, other=True):
        self.rank = rank
        self.other = other

    def all_gather(self, x, out):
        out[...] = self.other
        out[self.rank] = x

    def broadcast(self, x, root=0):
        if self.rank != root:
            x[:] = np.arange(128)


@pytest.fixture(autouse=True)
def library(machine, monkeypatch):
    found = Library()
    monkeypatch.setattr(_cupy, "nccl", lambda: found)
    yield found
    links.forget()


def test_processes_share_the_identifier():
    for rank in (0, 1):
        between = Between(rank)
        made = links.link(between, 0)
        assert made.comm.given == (2, bytes(range(128)), rank)
        assert links.link(between, 0) is made
    assert links.are_there()


def test_graphs_of_one_link_are_none_of_another():
    """Also where a link lies in memory where one before it was."""
    identities = set()
    for _ in range(5):
        identities.add(Ranks(Member(Between(0)), 0).identity)
        links.forget()
    assert len(identities) == 5


def test_without_nccl_in_one_process_there_is_no_link():
    assert links.link(Between(0, other=False), 0) is None
    assert not links.are_there()


def test_who_does_not_come_in_time_is_not_waited_for():
    between = Between(0)
    made = links.link(between, 0)
    watch, start = device.device(0).watch, time.monotonic()
    watch(lambda: True)
    with (
        fnx.config.override(collective_timeout=1),
        pytest.raises(errors.CollectiveError, match="has not ended within 1 s"),
    ):
        watch(lambda: False)
    assert 1 <= time.monotonic() - start < 20
    assert made.comm.aborted


def test_an_error_of_nccl_ends_a_wait():
    between = Between(0)
    made = links.link(between, 0)
    made.comm.error = NcclError("unhandled system error")
    with pytest.raises(errors.CollectiveError, match=r"(?s)unhandled.*NCCL_DEBUG"):
        device.device(0).watch(lambda: False)
    assert made.comm.aborted
