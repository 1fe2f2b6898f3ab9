"""TCP by the operating system, over the loopback interface."""

import errno
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Callable
from typing import BinaryIO, NamedTuple

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.wire.streams import FakeFile
from tidelog.wire.env.real.tcp import TcpNetwork, TcpStream
from tidelog.wire.errors import ConnectionLostError

MiB = 1 << 20


class Pair(NamedTuple):
    """Both ends of one connection."""

    near: TcpStream
    far: TcpStream


class OpenFile:
    """A real file; see `wire.env.env.FileRegionSource`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def fileno(self) -> int | None:
        return self._file.fileno()

    def read_at(self, position: int, length: int) -> bytes:
        raise NotImplementedError


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    listener = await TcpNetwork().listen("127.0.0.1", 0)
    near = await TcpNetwork().connect(*listener.address)
    far = await listener.accept()
    listener.close()
    yield Pair(near, far)
    near.close()
    far.close()


async def receive_exactly(stream: TcpStream, length: int) -> bytes:
    buffer = bytearray(length)
    view = memoryview(buffer)
    while view:
        count = stream.receive_nowait(view)
        if count is None:
            await stream.wait_readable()
        else:
            assert count > 0, "the other side closed"
            view = view[count:]
    return bytes(buffer)


async def send_until_full(stream: TcpStream) -> int:
    sent_bytes = 0
    while count := stream.send_nowait([bytes(MiB)]):
        sent_bytes += count
    return sent_bytes


async def closed_port() -> int:
    listener = await TcpNetwork().listen("127.0.0.1", 0)
    listener.close()
    return listener.address[1]


async def test_bytes_arrive_in_order(pair: Pair) -> None:
    assert pair.near.send_nowait([b"one"]) == 3
    assert pair.near.send_nowait([b"two", bytearray(b"three"), memoryview(b"four")]) == 12

    assert await receive_exactly(pair.far, 15) == b"onetwothreefour"


async def test_each_end_knows_its_address_and_its_peer(pair: Pair) -> None:
    near_host, near_port = pair.near.local
    assert near_host == "127.0.0.1"
    assert pair.far.peer == f"127.0.0.1:{near_port}"
    assert pair.near.peer == f"127.0.0.1:{pair.far.local[1]}"


async def test_calls_that_move_bytes_never_wait(pair: Pair) -> None:
    assert pair.near.receive_nowait(memoryview(bytearray(10))) is None

    await send_until_full(pair.near)

    assert pair.near.send_nowait([b"more"]) == 0
    assert pair.near.send_nowait([b"more", b"pieces"]) == 0


async def test_a_full_stream_becomes_writable_when_the_peer_reads(
    pair: Pair, nursery: trio.Nursery
) -> None:
    sent_bytes = await send_until_full(pair.near)
    became_writable = trio.Event()

    async def wait_writable() -> None:
        await pair.near.wait_writable()
        became_writable.set()

    nursery.start_soon(wait_writable)
    await wait_all_tasks_blocked()
    assert not became_writable.is_set()
    await receive_exactly(pair.far, sent_bytes)
    await became_writable.wait()

    assert pair.near.send_nowait([b"more"]) == 4


async def test_a_stream_becomes_readable_when_the_peer_sends(
    pair: Pair, nursery: trio.Nursery
) -> None:
    became_readable = trio.Event()

    async def wait_readable() -> None:
        await pair.near.wait_readable()
        became_readable.set()

    nursery.start_soon(wait_readable)
    await wait_all_tasks_blocked()
    assert not became_readable.is_set()
    pair.far.send_nowait([b"x"])
    await became_readable.wait()

    assert pair.near.receive_nowait(memoryview(bytearray(10))) == 1


# Files


async def test_a_region_of_a_file_is_sent_without_a_copy(pair: Pair) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"0123456789")
        file.flush()

        assert pair.near.send_file_nowait(OpenFile(file), 3, 4) == 4

    assert await receive_exactly(pair.far, 4) == b"3456"


async def test_a_region_of_a_file_without_a_descriptor_is_sent_by_reading(pair: Pair) -> None:
    assert pair.near.send_file_nowait(FakeFile(b"0123456789"), 3, 4) == 4

    assert await receive_exactly(pair.far, 4) == b"3456"


async def test_a_full_stream_takes_nothing_of_a_file(pair: Pair) -> None:
    await send_until_full(pair.near)

    with tempfile.TemporaryFile() as file:
        file.write(b"0123456789")
        file.flush()
        assert pair.near.send_file_nowait(OpenFile(file), 3, 4) == 0
    assert pair.near.send_file_nowait(FakeFile(b"0123456789"), 3, 4) == 0


async def test_a_file_that_is_too_short_is_a_lost_connection(pair: Pair) -> None:
    with tempfile.TemporaryFile() as file, pytest.raises(ConnectionLostError, match="a file ends"):
        pair.near.send_file_nowait(OpenFile(file), 0, 1)
    with pytest.raises(ConnectionLostError, match="a file ends"):
        pair.near.send_file_nowait(FakeFile(b"short"), 5, 1)


async def test_a_file_that_cannot_be_read_is_a_lost_connection(pair: Pair) -> None:
    class DamagedFile:
        def fileno(self) -> int | None:
            return None

        def read_at(self, position: int, length: int) -> bytes:
            raise OSError(errno.EIO, f"Input/output error at {position}, {length}")

    with pytest.raises(ConnectionLostError, match="Input/output error at 3, 4"):
        pair.near.send_file_nowait(DamagedFile(), 3, 4)


# The end of a connection


async def test_the_end_is_seen_after_the_last_byte(pair: Pair) -> None:
    pair.far.send_nowait([b"last"])
    pair.far.close()

    assert await receive_exactly(pair.near, 4) == b"last"
    await pair.near.wait_readable()
    assert pair.near.receive_nowait(memoryview(bytearray(10))) == 0


async def test_keepalive_detects_a_vanished_machine_within_minutes() -> None:
    listener = await TcpNetwork().listen("127.0.0.1", 0)
    sock = socket.create_connection(listener.address)

    TcpStream(sock)

    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    idle_s = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
    interval_s = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
    count = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
    assert idle_s + interval_s * count == 120
    sock.close()
    listener.close()


async def test_a_reset_is_a_lost_connection_that_names_the_peer() -> None:
    listener = await TcpNetwork().listen("127.0.0.1", 0)
    peer = socket.create_connection(listener.address)
    stream = await listener.accept()
    listener.close()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    host, port = peer.getsockname()

    peer.close()
    await stream.wait_readable()

    with pytest.raises(ConnectionLostError) as caught:
        stream.receive_nowait(memoryview(bytearray(10)))
    assert str(caught.value) == f"connection to {host}:{port}: Connection reset by peer"
    with pytest.raises(ConnectionLostError, match="Broken pipe"):
        stream.send_nowait([b"x"])
    stream.close()


async def test_a_closed_stream_raises_connection_lost(pair: Pair) -> None:
    pair.near.close()
    pair.near.close()

    calls: list[Callable[[], object]] = [
        lambda: pair.near.receive_nowait(memoryview(bytearray(10))),
        lambda: pair.near.send_nowait([b"x"]),
        lambda: pair.near.send_nowait([b"x", b"y"]),
        lambda: pair.near.send_file_nowait(FakeFile(b"x"), 0, 1),
    ]

    for call in calls:
        with pytest.raises(ConnectionLostError, match="was closed here"):
            call()
    with pytest.raises(ConnectionLostError, match="was closed here"):
        await pair.near.wait_readable()
    with pytest.raises(ConnectionLostError, match="was closed here"):
        await pair.near.wait_writable()


async def test_every_wait_for_a_closed_stream_raises(pair: Pair) -> None:
    for stream in pair:
        stream.close()

    for stream in (*pair, *pair):
        with pytest.raises(ConnectionLostError, match="was closed here"):
            await stream.wait_readable()
        with pytest.raises(ConnectionLostError, match="was closed here"):
            await stream.wait_writable()


async def test_closing_a_stream_wakes_its_waiters(pair: Pair, nursery: trio.Nursery) -> None:
    await send_until_full(pair.near)
    woken: list[str] = []

    async def wait_readable() -> None:
        with pytest.raises(ConnectionLostError, match="was closed here"):
            await pair.near.wait_readable()
        woken.append("reader")

    async def wait_writable() -> None:
        with pytest.raises(ConnectionLostError, match="was closed here"):
            await pair.near.wait_writable()
        woken.append("writer")

    nursery.start_soon(wait_readable)
    nursery.start_soon(wait_writable)
    await wait_all_tasks_blocked()
    assert woken == []
    pair.near.close()
    await wait_all_tasks_blocked()

    assert sorted(woken) == ["reader", "writer"]


# Listening and connecting


async def test_an_address_in_use_cannot_be_listened_on() -> None:
    listener = await TcpNetwork().listen("127.0.0.1", 0)

    with pytest.raises(OSError, match="Address already in use"):
        await TcpNetwork().listen(*listener.address)

    listener.close()
    listener.close()
    again = await TcpNetwork().listen(*listener.address)
    assert again.address == listener.address
    again.close()


async def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    with pytest.raises(OSError, match="Cannot assign requested address"):
        await TcpNetwork().listen("192.0.2.1", 0)


async def test_a_port_without_a_listener_refuses() -> None:
    port = await closed_port()

    with pytest.raises(ConnectionRefusedError) as caught:
        await TcpNetwork().connect("127.0.0.1", port)

    assert caught.value.strerror == "Connection refused"


@pytest.mark.parametrize("port", [-1, 65_536, 70_000, 1 << 40])
async def test_a_port_that_does_not_exist_is_not_taken_for_another(port: int) -> None:
    with pytest.raises(OSError, match=rf"port {port} is not between 0 and 65535"):
        await TcpNetwork().connect("127.0.0.1", port)
    with pytest.raises(OSError, match=rf"port {port} is not between 0 and 65535"):
        await TcpNetwork().listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["a" * 64, "a..b", "ü" * 64])
async def test_an_illegal_host_name_is_an_unknown_name(host: str) -> None:
    with pytest.raises(socket.gaierror, match="not a legal host name"):
        await TcpNetwork().connect(host, 1)
    with pytest.raises(socket.gaierror, match="not a legal host name"):
        await TcpNetwork().listen(host, 0)


async def test_accepting_can_be_cancelled() -> None:
    listener = await TcpNetwork().listen("127.0.0.1", 0)

    with trio.move_on_after(0) as scope:
        await listener.accept()

    assert scope.cancelled_caught
    near = await TcpNetwork().connect(*listener.address)
    far = await listener.accept()
    assert far.peer == f"127.0.0.1:{near.local[1]}"
    for end in (near, far, listener):
        end.close()


async def test_connecting_can_be_cancelled() -> None:
    listener = await TcpNetwork().listen("127.0.0.1", 0)

    with trio.move_on_after(0) as scope:
        await TcpNetwork().connect(*listener.address)

    assert scope.cancelled_caught
    listener.close()
