"""Eight CPU devices for the tests of replicas, in threads and as one program."""

from __future__ import annotations

import pytest

import fnx
from fnx.control import joint


@pytest.fixture(autouse=True, params=["threads", "some as one"])
def eight(request, monkeypatch):
    """Eight CPU devices; some programs may be run for all of them as one."""
    if request.param == "threads":
        monkeypatch.setattr(joint, "runs_as_one", lambda *_: False)
    fnx.clear_caches()
    with fnx.config.override(cpu_devices=8):
        yield
    fnx.clear_caches()
