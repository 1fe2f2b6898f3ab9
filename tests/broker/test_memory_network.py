"""Tests of the network in memory, which also hold for the operating system's TCP."""

import errno
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio

from tests.broker.memory_network import MemoryNetwork
from tidelog.wire.env.env import Network, Stream
from tidelog.wire.env.real.tcp import TcpNetwork
from tidelog.wire.errors import ConnectionLostError

NETWORKS = pytest.mark.parametrize("network", [MemoryNetwork(), TcpNetwork()], ids=["memory", "os"])


@asynccontextmanager
async def connection(network: Network) -> AsyncGenerator[tuple[Stream, Stream]]:
    """Return both ends of a connection."""
    listener = await network.listen("127.0.0.1", 0)
    client = await network.connect(*listener.address)
    server = await listener.accept()
    yield client, server
    for each in (client, server, listener):
        each.close()


async def receive(stream: Stream, count: int) -> bytes:
    """Return so many bytes, or fewer at the end."""
    found = bytearray()
    while len(found) < count:
        buffer = memoryview(bytearray(count - len(found)))
        received = stream.receive_nowait(buffer)
        if received is None:
            await stream.wait_readable()
        elif received == 0:
            break
        else:
            found += buffer[:received]
    return bytes(found)


@NETWORKS
async def test_bytes_arrive_in_order(network: Network) -> None:
    async with connection(network) as (client, server):
        assert client.send_nowait([b"hello ", b"world"]) == 11
        assert await receive(server, 11) == b"hello world"
        assert server.receive_nowait(memoryview(bytearray(1))) is None
        assert f"{client.local[0]}:{client.local[1]}" == server.peer


@NETWORKS
async def test_a_full_connection_takes_nothing_until_the_receiver_reads(network: Network) -> None:
    async with connection(network) as (client, server):
        sent = 0
        while taken := client.send_nowait([bytes(1 << 16)]):
            sent += taken
        with trio.move_on_after(0.01) as waited:
            await client.wait_writable()
        assert waited.cancelled_caught

        assert await receive(server, sent) == bytes(sent)
        await client.wait_writable()
        assert client.send_nowait([b"x"]) == 1


@NETWORKS
async def test_bytes_sent_before_closing_arrive_before_the_end(network: Network) -> None:
    async with connection(network) as (client, server):
        client.send_nowait([b"bye"])
        client.close()
        client.close()

        assert await receive(server, 10) == b"bye"
        with pytest.raises(ConnectionLostError, match="was closed here"):
            client.receive_nowait(memoryview(bytearray(1)))
        with pytest.raises(ConnectionLostError):
            client.send_nowait([b"x"])


@NETWORKS
async def test_closing_wakes_waiting_tasks(network: Network) -> None:
    async with connection(network) as (client, _), trio.open_nursery() as nursery:
        nursery.start_soon(close_soon, client)
        with pytest.raises(ConnectionLostError):
            await client.wait_readable()


@NETWORKS
async def test_a_connect_without_a_listener_is_refused(network: Network) -> None:
    listener = await network.listen("127.0.0.1", 0)
    with pytest.raises(OSError, match="in use") as refusal:
        await network.listen(*listener.address)
    assert refusal.value.errno == errno.EADDRINUSE
    listener.close()

    with pytest.raises(ConnectionRefusedError):
        await network.connect(*listener.address)


async def test_a_reset_loses_bytes_under_way_at_both_ends() -> None:
    network = MemoryNetwork()
    listener = await network.listen("h", 1)
    client = await network.connect("h", 1)
    server = await listener.accept()
    client.send_nowait([b"lost"])

    client.reset()

    for stream in (client, server):
        with pytest.raises(ConnectionLostError, match="reset by peer"):
            stream.receive_nowait(memoryview(bytearray(10)))
        with pytest.raises(ConnectionLostError, match="reset by peer"):
            await stream.wait_writable()


async def test_a_test_limits_the_bytes_of_one_call() -> None:
    network = MemoryNetwork(buffer_bytes=5)
    listener = await network.listen("h", 1)
    client = await network.connect("h", 1)
    server = await listener.accept()
    client.bytes_at_once = 2

    pieces = [b"abc", b"cde", b"ef", b"f"]
    assert [client.send_nowait([piece]) for piece in pieces] == [2, 2, 1, 0]
    server.set_receive_buffer(8)
    assert client.send_nowait([b"fgh"]) == 2
    assert await receive(server, 7) == b"abcdefg"


async def close_soon(stream: Stream) -> None:
    await trio.testing.wait_all_tasks_blocked()
    stream.close()
