"""NCCL between processes, each with an emulated machine: messages over a socket.

The process that makes the identifier serves a board, where ranks leave what they send
and take what is for them. A collective is a message of each rank to all. A rank waits
while its stream is there, as a device would. Used by `nccl.py`, where the environment
has `FNX_EMULATED_RANKS=processes`; next: nccl_data.py.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from collections.abc import Sequence
from functools import cache
from multiprocessing.connection import Client, Listener
from typing import Any

import numpy as np

from . import nccl_data
from .errors import NcclError
from .machine import Machine
from .nccl_data import Call

_KEY = b"emulated"
# Seconds that a rank waits for a message.
_PATIENCE = float(os.environ.get("FNX_EMULATED_PATIENCE", "60"))
_names = itertools.count(1)


def is_wanted() -> bool:
    """Whether ranks are in processes of their own."""
    return os.environ.get("FNX_EMULATED_RANKS") == "processes"


def identifier() -> bytes:
    """An identifier, which says where the board of this process is."""
    text = f"far {_serve()} {os.getpid()} {next(_names)}"
    return text.encode().ljust(128, b"\0")


@cache
def _serve() -> int:
    """Serves the board from now on; gives its port."""
    listener = Listener(("127.0.0.1", 0), authkey=_KEY)
    board: dict[Any, bytes] = {}
    changed = threading.Condition()

    def answer(connection: Any) -> None:
        while True:
            try:
                key, data = connection.recv()
            except EOFError:
                return
            with changed:
                if data is not None:
                    board[key] = data
                    changed.notify_all()
                    continue
                changed.wait_for(lambda key=key: key in board, _PATIENCE)
                data = board.pop(key, None)
            connection.send(data)

    def accept() -> None:
        while True:
            connection = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return int(listener.address[1])


class Link:
    """One rank's hold of the board."""

    def __init__(self, name: bytes, rank: int, size: int) -> None:
        self.name, self.rank, self.size = name, rank, size
        port = int(name.split()[1])
        self.connection = Client(("127.0.0.1", port), authkey=_KEY)
        self.counts: Counter[Any] = Counter()

    def put(self, kind: str, target: int, data: Any) -> None:
        """Leaves the next message of a kind for a rank."""
        self.connection.send((self._key("to", kind, self.rank, target), data))

    def take(self, kind: str, source: int) -> Any:
        """Waits for the next message of a kind from a rank."""
        self.connection.send((self._key("from", kind, source, self.rank), None))
        found = self.connection.recv()
        if found is None:
            raise NcclError(2, f"rank {source} has not come to {kind}")
        return found

    def _key(self, side: str, *way: Any) -> Any:
        self.counts[side, way] += 1
        return self.name, way, self.counts[side, way]


def perform(here: Machine, link: Link, calls: Sequence[Call]) -> None:
    """This rank's part of a group of calls."""
    where = {link.rank: here.position}
    for call in calls:
        if call.kind == "send":
            data = nccl_data.source(here, call, 1, where)
            link.put("message", call.peer, data.tobytes())
        elif call.kind != "recv":
            _collective(here, link, call, where)
    for call in calls:
        if call.kind == "recv":
            data = link.take("message", call.peer)
            nccl_data.write(here, call, np.frombuffer(data, np.uint8), where)


def _collective(here: Machine, link: Link, call: Call, where: nccl_data.Where) -> None:
    own = nccl_data.source(here, call, link.size, where)
    what = call.kind, call.count, call.dtype, call.op, call.root
    others = [rank for rank in range(link.size) if rank != link.rank]
    for rank in others:
        link.put("collective", rank, (what, own.tobytes()))
    sources = {link.rank: own}
    for rank in others:
        other, data = link.take("collective", rank)
        if other != what:
            here.finding(
                f"would deadlock: {what} of rank {link.rank}, {other} of {rank}"
            )
        sources[rank] = np.frombuffer(data, np.uint8).view(call.element)
    ordered = [sources[rank] for rank in range(link.size)]
    result = nccl_data.results(call, ordered)[link.rank]
    if result is not None:
        nccl_data.write(here, call, result, where)
