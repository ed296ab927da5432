"""The channel over TCP: one connection for each pair of processes, nothing to install.

Receives connections that `rendezvous.py` has made. What is sent has a header: its kind
and length; a process that fails sends its reason in the place of data. A process that
dies is noticed at once, its machine by the timeout. Connections are authenticated when
they are made, and not encrypted. Next on the walk: `rendezvous.py`.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from fnx.distributed import rendezvous
from fnx.distributed.channel import (
    Broken,
    Buffer,
    Buffers,
    Channel,
    as_bytes,
    deadline,
)

_HEADER = struct.Struct("<cQ")
_DATA, _FAILED = b"D", b"F"
# Up to this many bytes go in one packet with their header.
_PACKED = 8192
# For a few connections at a time there is nothing quicker; Windows has no poll.
_Selector: Any = getattr(selectors, "PollSelector", selectors.SelectSelector)
# Seconds after which a waiting process looks whether its channel was broken elsewhere.
_LOOK = 0.2


class _Incoming:
    """What is being read from a peer: a header, then as much as it says."""

    def __init__(self, data: Buffer, shorter: bool) -> None:
        self.data = data
        self.shorter = shorter
        self.header = memoryview(bytearray(_HEADER.size))
        self.rest = self.header
        self.kind = b""

    def read(self, connection: socket.socket) -> bool:
        """Reads what is there; whether that was the rest. Raises `Broken`."""
        while len(self.rest) or not self.kind:
            if not len(self.rest):
                self._begin()
                continue
            try:
                count = connection.recv_into(self.rest)
            except BlockingIOError:
                return False
            if not count:
                raise ConnectionResetError("its connection is closed")
            self.rest = self.rest[count:]
        if self.kind == _FAILED:
            raise Broken(self.data.tobytes().decode(errors="replace"))
        return True

    def _begin(self) -> None:
        """Goes on from the header to what it announces."""
        self.kind, length = _HEADER.unpack(self.header)
        if self.kind == _FAILED:
            self.data = np.empty(min(length, 2**16), np.uint8)
        elif self.kind == _DATA and self.shorter and length < self.data.size:
            self.data = self.data[:length]
        elif self.kind != _DATA or length != self.data.size:
            raise Broken(
                f"{length} bytes of kind {self.kind!r} came where {self.data.size} "
                "bytes of data were expected"
            )
        self.rest = self.data.data


class TCPChannel(Channel):
    """The processes at the other ends of connections, by their ranks."""

    def __init__(
        self,
        rank: int,
        members: Sequence[int],
        peers: Mapping[int, socket.socket],
        secret: bytes,
    ) -> None:
        super().__init__(rank, members)
        self._peers = dict(peers)
        self._secret = secret
        for connection in self._peers.values():
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def _exchange(self, sends: Buffers, receives: Buffers, patient: bool) -> None:
        outgoing = {r: _outgoing(x) for r, x in sends.items()}
        incoming = {r: _Incoming(x, patient) for r, x in receives.items()}
        end = deadline()
        ready = [*{*outgoing, *incoming}]
        while outgoing or incoming:
            for rank in ready:
                self._move(rank, outgoing, incoming)
            if not outgoing and not incoming:
                return
            self._check()
            if time.monotonic() > end:
                raise self._late(sorted({*outgoing, *incoming}))
            ready = self._ready(outgoing, incoming)

    def _move(
        self,
        rank: int,
        outgoing: dict[int, list[memoryview]],
        incoming: dict[int, _Incoming],
    ) -> None:
        """Sends to a rank and reads from it as much as goes without waiting."""
        connection = self._peers[rank]
        try:
            if rank in outgoing and _send(connection, outgoing[rank]):
                del outgoing[rank]
        except OSError as error:
            if rank not in incoming:
                raise self._lost(rank, error) from None
            del outgoing[rank]  # it may have said why, which is read below
        try:
            if rank in incoming and incoming[rank].read(connection):
                del incoming[rank]
        except OSError as error:
            raise self._lost(rank, error) from None

    def _ready(
        self, outgoing: Mapping[int, object], incoming: Mapping[int, object]
    ) -> list[int]:
        """The ranks with which something can be done; none after a short while."""
        with _Selector() as selector:
            for rank in {*outgoing, *incoming}:
                wanted = selectors.EVENT_WRITE if rank in outgoing else 0
                wanted |= selectors.EVENT_READ if rank in incoming else 0
                selector.register(self._peers[rank], wanted, rank)
            return [key.data for key, _ in selector.select(_LOOK)]

    def _listen(self) -> None:
        for rank, connection in self._peers.items():
            try:
                first = connection.recv(1, socket.MSG_PEEK)
            except OSError:
                continue  # nothing is there, or it has left: an error if it is needed
            if first == _FAILED:
                self._exchange({}, {rank: np.empty(0, np.uint8)}, patient=False)

    def _lost(self, rank: int, error: OSError) -> Broken:
        return Broken(f"process {self.members[rank]} has ended: {error}")

    def _tell(self, text: str) -> None:
        data = text.encode()[:4096]
        for connection in self._peers.values():
            with suppress(OSError):  # a peer that is gone, or reads no more
                connection.send(_HEADER.pack(_FAILED, len(data)) + data)
                connection.shutdown(socket.SHUT_WR)

    def _part(self, ranks: Sequence[int]) -> TCPChannel:
        """New connections: groups are used at the same time, by several threads."""
        if self.size == 1:
            return TCPChannel(0, self.members, {}, self._secret)
        end = deadline()
        address = next(iter(self._peers.values())).getsockname()[0]
        with rendezvous.listen(address, 0) as listener:
            ports = np.zeros(self.size, "<i8")
            ports[self.rank] = listener.getsockname()[1]
            mine = ports[self.rank : self.rank + 1].copy()
            others = [r for r in range(self.size) if r != self.rank]
            sends = dict.fromkeys(others, as_bytes(mine))
            receives = {r: as_bytes(ports[r : r + 1]) for r in others}
            self._exchange(sends, receives, patient=True)
            places = [
                ("", 0)
                if rank == self.rank
                else (self._peers[rank].getpeername()[0], int(ports[rank]))
                for rank in ranks
            ]
            own = ranks.index(self.rank)
            try:
                peers = rendezvous.mesh(own, places, listener, self._secret, end)
            except rendezvous.Unmet as error:
                raise Broken(str(error)) from None
        return TCPChannel(own, [self.members[r] for r in ranks], peers, self._secret)

    def _close(self) -> None:
        for connection in self._peers.values():
            connection.close()


def _outgoing(x: Buffer) -> list[memoryview]:
    """What is sent for a buffer: its header first, with the data if that is small."""
    header = _HEADER.pack(_DATA, x.size)
    if x.size <= _PACKED:
        return [memoryview(header + x.tobytes())]
    return [memoryview(header), x.data]


def _send(connection: socket.socket, parts: list[memoryview]) -> bool:
    """Sends what goes without waiting; whether that was the rest."""
    while parts:
        try:
            count = connection.send(parts[0])
        except BlockingIOError:
            return False
        parts[0] = parts[0][count:]
        if not len(parts[0]):
            del parts[0]
    return True


def connect(
    count: int,
    index: int,
    address: rendezvous.Address,
    bind: str | None,
    secret: str,
    timeout: float,
) -> TCPChannel:
    """The channel of `count` processes, whose coordinator is at an address.

    Raises `CollectiveError` where they do not all come within `timeout` seconds.
    """
    end = time.monotonic() + timeout
    peers = rendezvous.connect(count, index, address, bind, secret, end)
    return TCPChannel(index, range(count), peers, secret.encode())
