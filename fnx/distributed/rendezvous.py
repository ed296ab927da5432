"""How processes find each other over TCP: a coordinator, then connections of all pairs.

Process 0 listens at an address that all know. The others connect, prove that they know
the secret and say where they listen themselves; when all have come, each gets the list
and the processes of every pair connect, the later to the earlier. Whatever goes wrong
there is told to all that have come. Next on the walk: `launch.py`.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from fnx import errors

Address = tuple[str, int]

# Who connects says first that it is fnx, and which version of what follows it speaks.
_MAGIC = b"fnx 1\n\0\0"
_NONCE = 16
_PROOF = 32
_LENGTH = struct.Struct("<I")
_MOST = 2**24
# Seconds that a stranger may keep others waiting at the door.
_DOOR = 5.0


class Unmet(Exception):
    """Why the processes of a job, or of a group, have not found each other."""


class _Refused(Exception):
    """A connection whose other end is no process of this job."""


def connect(
    count: int, index: int, address: Address, bind: str | None, secret: str, end: float
) -> dict[int, socket.socket]:
    """The connections of process `index` to all `count - 1` others.

    `end` is when waiting ends, by `time.monotonic`. Raises `CollectiveError` on every
    process that has come where another one has not, or says something else.
    """
    key = secret.encode()
    try:
        if index == 0:
            return _coordinate(count, address, bind, key, end)
        return _join(count, index, address, key, end)
    except Unmet as error:
        raise errors.CollectiveError(
            errors.explain(
                f"fnx.distributed.initialize on process {index} of {count}",
                str(error),
                "start all processes with the same coordinator, number of processes "
                "and secret, and let each one call it within initialization_timeout "
                "seconds",
            )
        ) from None


def _join(
    count: int, index: int, address: Address, key: bytes, end: float
) -> dict[int, socket.socket]:
    """All processes but the coordinator: says where it listens, hears of the others."""
    hub = _knock(address, key, end)
    with _closed_on_error({0: hub}), listen(hub.getsockname()[0], 0) as listener:
        port = listener.getsockname()[1]
        _send(hub, {"index": index, "count": count, "port": port})
        # the coordinator waits as long, and then says who has not come
        answer = _receive(hub, end + _DOOR, "the coordinator (process 0)")
        if "error" in answer:
            raise Unmet(answer["error"])
        places = [address, *map(tuple, answer["places"][1:])]
        return mesh(index, places, listener, key, end, {0: hub})


def _coordinate(
    count: int, address: Address, bind: str | None, key: bytes, end: float
) -> dict[int, socket.socket]:
    """Process 0: waits for all others, and tells each where the others are."""
    try:
        listener = listen(bind or address[0], address[1], bind is not None)
    except OSError as error:
        raise Unmet(f"cannot listen at {_shown(address)}: {error}") from error
    hubs: dict[int, socket.socket] = {}
    places: list[Address] = [("", 0)] * count
    with listener, _closed_on_error(hubs):
        try:
            while len(hubs) < count - 1:
                hub = _admit(listener, key, end, _missing(hubs, count))
                with _closed_on_error({0: hub}):
                    hello = _receive(hub, end, "a process")
                    hubs[_welcome(hello, hubs, count, hub)] = hub
                places[hello["index"]] = (hub.getpeername()[0], hello["port"])
        except Unmet as error:
            for hub in hubs.values():
                _send(hub, {"error": str(error)})
            raise
    for hub in hubs.values():
        _send(hub, {"places": places})
    return hubs


def _welcome(
    hello: dict[str, Any], hubs: dict[int, Any], count: int, hub: socket.socket
) -> int:
    """The number of a process that has come; raises, and tells it, what is wrong."""
    index, text = hello["index"], ""
    if hello["count"] != count:
        text = f"process {index} was told of {hello['count']} processes, process 0 of "
        text += f"{count}"
    elif index in hubs or not 0 < index < count:
        text = f"two processes say that they are process {index} of {count}"
    if text:
        _send(hub, {"error": text})
        raise Unmet(text)
    return index


def _missing(hubs: dict[int, Any], count: int) -> str:
    numbers = [str(r) for r in range(1, count) if r not in hubs]
    return f"of {count} processes these have not come: {', '.join(numbers)}"


def mesh(
    rank: int,
    places: Sequence[Address],
    listener: socket.socket,
    key: bytes,
    end: float,
    known: dict[int, socket.socket] | None = None,
) -> dict[int, socket.socket]:
    """A connection to each rank but this one: to earlier ones, from later ones.

    `places[r]` is where rank r listens; `known` has connections that are there already.
    Raises `Unmet`.
    """
    peers = dict(known or {})
    later = set(range(rank + 1, len(places))) - peers.keys()
    with _closed_on_error(peers):
        for r in range(rank):
            if r not in peers:
                peers[r] = _knock(places[r], key, end)
                _send(peers[r], {"index": rank})
        while later:
            waiting = f"these have not connected: {', '.join(map(str, sorted(later)))}"
            connection = _admit(listener, key, end, waiting)
            with _closed_on_error({0: connection}):
                hello = _receive(connection, end, "a process")
            if hello["index"] in later:
                later.remove(hello["index"])
                peers[hello["index"]] = connection
    return peers


@contextmanager
def _closed_on_error(connections: Mapping[int, socket.socket]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for connection in connections.values():
            connection.close()
        raise


# ---------------------------------------------------------------- connections


def listen(host: str, port: int, exactly: bool = False) -> socket.socket:
    """A socket that listens: on this machine alone for its own address, else on all.

    With `exactly`, at that address and no other.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bind = host if exactly or is_loopback(host) else ""
    return socket.create_server((bind, port), family=family, backlog=128)


def is_loopback(host: str) -> bool:
    """Whether only this machine can be meant.

    >>> is_loopback("127.0.0.1"), is_loopback("10.0.0.1")
    (True, False)
    """
    return host in ("localhost", "::1") or host.startswith("127.")


def _knock(address: Address, key: bytes, end: float) -> socket.socket:
    """A connection to an address where a process of this job listens, or soon will."""
    pause, error = 0.01, ""
    while time.monotonic() < end:
        try:
            left = max(end - time.monotonic(), 0.01)
            connection = socket.create_connection(address, timeout=min(left, _DOOR))
            with _closed_on_error({0: connection}):
                _prove(connection, key)
            return connection
        except _Refused as refused:
            raise Unmet(f"at {_shown(address)}: {refused}") from None
        except OSError as failed:
            error = str(failed)
        time.sleep(pause)
        pause = min(2 * pause, 0.5)
    raise Unmet(f"nobody answers at {_shown(address)}: {error}")


def _admit(
    listener: socket.socket, key: bytes, end: float, waiting: str
) -> socket.socket:
    """The next connection of a process of this job; strangers are sent away."""
    while True:
        left = end - time.monotonic()
        if left <= 0:
            raise Unmet(waiting)
        listener.settimeout(left)
        with suppress(TimeoutError):
            connection, _ = listener.accept()
            connection.settimeout(min(max(left, 0.01), _DOOR))
            try:
                _challenge(connection, key)
                return connection
            except (_Refused, OSError):
                connection.close()


def _prove(connection: socket.socket, key: bytes) -> None:
    """The connecting side: both prove that they know the key, without sending it."""
    mine = os.urandom(_NONCE)
    connection.sendall(_MAGIC + mine)
    answer = _read(connection, len(_MAGIC) + _NONCE + _PROOF)
    theirs = answer[len(_MAGIC) : -_PROOF]
    if not answer.startswith(_MAGIC):
        raise _Refused("what listens there is no process of fnx of this version")
    if not hmac.compare_digest(answer[-_PROOF:], _proof(key, b"door", mine, theirs)):
        raise _Refused("it has another secret (FNX_SECRET)")
    connection.sendall(_proof(key, b"guest", mine, theirs))


def _challenge(connection: socket.socket, key: bytes) -> None:
    """The listening side of `_prove`."""
    hello = _read(connection, len(_MAGIC) + _NONCE)
    if not hello.startswith(_MAGIC):
        raise _Refused("it does not speak the language of fnx")
    theirs, mine = hello[len(_MAGIC) :], os.urandom(_NONCE)
    connection.sendall(_MAGIC + mine + _proof(key, b"door", theirs, mine))
    proof = _read(connection, _PROOF)
    if not hmac.compare_digest(proof, _proof(key, b"guest", theirs, mine)):
        raise _Refused("it has another secret")


def _proof(key: bytes, side: bytes, guest: bytes, door: bytes) -> bytes:
    return hmac.digest(key, side + guest + door, "sha256")


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    with suppress(OSError):  # it is gone: reading from it says so
        connection.sendall(_LENGTH.pack(len(data)) + data)


def _receive(connection: socket.socket, end: float, who: str) -> dict[str, Any]:
    try:
        connection.settimeout(max(end - time.monotonic(), 0.01))
        (length,) = _LENGTH.unpack(_read(connection, _LENGTH.size))
        if length > _MOST:
            raise OSError(f"a message of {length} bytes")
        message = json.loads(_read(connection, length))
    except (OSError, ValueError) as error:
        raise Unmet(f"{who} has not answered: {error}") from error
    if not isinstance(message, dict):
        raise Unmet(f"{who} has answered {message!r}")
    return message


def _read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionResetError("the connection is closed")
        data += more
    return data


def _shown(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
