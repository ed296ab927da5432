"""fnx/distributed/rendezvous.py: who finds whom, and who is kept out."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from fnx.distributed import rendezvous, tcp
from fnx.errors import CollectiveError
from tests.distributed.jobs import free_port
from tests.distributed.threads import close, on_all, together


def starts(rows, timeout=1.0):
    """What becomes of processes with these (count, index, secret)."""
    address = ("127.0.0.1", free_port())
    return together(
        [
            lambda row=row: tcp.connect(*row[:2], address, None, row[2], timeout)
            for row in rows
        ]
    )


def errors_of(results):
    assert all(isinstance(error, CollectiveError) for error in results), results
    return [str(error) for error in results]


def test_who_does_not_come_is_an_error_for_all_that_have():
    texts = errors_of(starts([(4, 0, "s"), (4, 2, "s")]))
    for text in texts:
        assert "of 4 processes these have not come: 1, 3" in text
    assert "on process 0 of 4" in texts[0] and "on process 2 of 4" in texts[1]


def test_two_that_say_they_are_the_same():
    texts = errors_of(starts([(3, 0, "s"), (3, 1, "s"), (3, 1, "s")], 2.0))
    for text in texts:
        assert "two processes say that they are process 1 of 3" in text


def test_other_numbers_of_processes():
    for text in errors_of(starts([(3, 0, "s"), (2, 1, "s")])):
        assert "process 1 was told of 2 processes, process 0 of 3" in text


def test_another_secret():
    first, second = errors_of(starts([(2, 0, "right"), (2, 1, "wrong")]))
    assert "these have not come: 1" in first
    assert "it has another secret (FNX_SECRET)" in second
    assert "right" not in first + second


def test_nobody_else_may_listen_there():
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = other.getsockname()
        with pytest.raises(CollectiveError, match="cannot listen at 127"):
            tcp.connect(2, 0, address, None, "s", 1)


def test_something_else_answers():
    with socket.create_server(("127.0.0.1", 0)) as web:

        def answer():
            connection, _ = web.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n" + bytes(100))
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(CollectiveError, match="no process of fnx"):
            tcp.connect(2, 1, web.getsockname(), None, "s", 5)


def test_strangers_are_sent_away():
    address = ("127.0.0.1", free_port())
    guests = []

    def stranger(text):
        for _ in range(100):
            try:
                guest = socket.create_connection(address, timeout=1)
            except OSError:
                time.sleep(0.02)
                continue
            guests.append(guest)
            guest.sendall(text)
            try:
                return guest.recv(10)
            except ConnectionResetError:
                return b""

    def come():
        time.sleep(0.3)
        return tcp.connect(2, 1, address, None, "s", 20)

    results = together(
        [
            lambda: tcp.connect(2, 0, address, None, "s", 20),
            lambda: stranger(b"GET / HTTP/1.1\r\n\r\n" + bytes(100)),
            # speaks the language, and does not know the secret
            lambda: stranger(b"fnx 1\n\0\0" + bytes(16) + bytes(32)),
            come,
        ]
    )
    channels = results[0], results[3]
    assert all(isinstance(channel, tcp.TCPChannel) for channel in channels), results
    assert results[1] == b""
    for channel in channels:
        channel.close()
    for guest in guests:
        guest.close()


def test_messages_of_any_length_are_not_believed():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            rendezvous._challenge(connection, b"s")
            connection.recv(100)
            connection.sendall(b"\xff" * 4)
            return connection

        def join():
            return tcp.connect(2, 1, server.getsockname(), None, "s", 2)

        connection, error = together([answer, join])
        connection.close()
    assert "has not answered: a message of 4294967295 bytes" in errors_of([error])[0]


def test_five_processes_all_meet_each_other():
    channels = starts([(5, index, "s") for index in (4, 3, 2, 1, 0)], 20)
    for index, channel in zip((4, 3, 2, 1, 0), channels, strict=True):
        assert channel.rank == index and channel.members == (0, 1, 2, 3, 4)
        assert channel._peers.keys() == {0, 1, 2, 3, 4} - {index}
    for channel in channels:
        channel.close()


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False)],
)
def test_loopback(host, expected):
    assert rendezvous.is_loopback(host) is expected


def test_only_this_machine_is_let_in_where_only_it_is_meant():
    with rendezvous.listen("127.0.0.1", 0) as here:
        assert here.getsockname()[0] == "127.0.0.1"
    with rendezvous.listen("10.9.8.7", 0) as all_addresses:
        assert all_addresses.getsockname()[0] == "0.0.0.0"
    with rendezvous.listen("127.0.0.1", 0, exactly=True) as exactly:
        assert exactly.getsockname()[0] == "127.0.0.1"


def test_connections_of_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("this machine has no IPv6")
    address = ("::1", free_port())
    channels = together(
        [lambda i=i: tcp.connect(2, i, address, None, "s", 20) for i in range(2)]
    )
    from fnx.distributed.communicator import ProcessCommunicator

    both = [ProcessCommunicator(channel) for channel in channels]
    assert on_all(both, lambda c: c.split([[0, 1]]).barrier()) == [None] * 2
    close(both)
