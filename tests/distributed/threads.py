"""Processes that are threads: TCP channels inside one process, for quick tests.

Receives a function of a communicator; gives what it returned or raised for each rank.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from fnx.distributed import tcp
from fnx.distributed.communicator import ProcessCommunicator
from tests.distributed.jobs import free_port


def connected(count: int) -> list[ProcessCommunicator]:
    """The communicators of `count` processes."""
    address = ("127.0.0.1", free_port())

    def connect(rank: int) -> ProcessCommunicator:
        return ProcessCommunicator(tcp.connect(count, rank, address, None, "s", 20))

    found = together([lambda rank=rank: connect(rank) for rank in range(count)])
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found


def together(functions: list[Callable[[], Any]], limit: float = 60) -> list[Any]:
    """What functions return or raise, each called in a thread of its own."""
    results: list[Any] = [None] * len(functions)

    def call(i: int) -> None:
        try:
            results[i] = functions[i]()
        except BaseException as error:
            results[i] = error

    threads = [
        threading.Thread(target=call, args=(i,), daemon=True)
        for i in range(len(functions))
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + limit
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0))
    assert not any(thread.is_alive() for thread in threads), "somebody hangs"
    return results


def on_all(
    communicators: list[ProcessCommunicator], function: Callable[[Any], Any]
) -> list[Any]:
    """What a function of each rank's communicator returns or raises."""
    return together([lambda c=c: function(c) for c in communicators])


def close(communicators: list[ProcessCommunicator]) -> None:
    """Closes all connections."""
    for communicator in communicators:
        communicator.channel.close()
