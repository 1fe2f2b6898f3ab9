"""Tests of the proxy: it forwards bytes, and injects faults."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio

from tests.system.histories.fault_proxy import FaultProxy

STALL_S = 0.1
"""Seconds; a long time for bytes on one machine."""


@asynccontextmanager
async def an_echo(proxy: FaultProxy) -> AsyncGenerator[trio.SocketStream, None]:
    """Yield a connection through the proxy to an echo server."""

    async def echo(stream: trio.SocketStream) -> None:
        try:
            async with stream:
                async for data in stream:
                    await stream.send_all(data)
        except trio.BrokenResourceError:
            pass

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, echo, [listener])
        proxy.target_port = listener.socket.getsockname()[1]
        await nursery.start(proxy.run)
        async with await trio.open_tcp_stream("127.0.0.1", proxy.port) as stream:
            yield stream
        nursery.cancel_scope.cancel()


async def receive(stream: trio.SocketStream, length: int) -> bytes:
    data = b""
    while len(data) < length:
        chunk = await stream.receive_some()
        assert chunk
        data += chunk
    return data


async def test_bytes_and_their_end_pass_both_ways() -> None:
    async with an_echo(FaultProxy()) as stream:
        await stream.send_all(b"x" * 1_000_000)
        received = await receive(stream, 1_000_000)
        await stream.send_eof()

        assert received == b"x" * 1_000_000
        assert await stream.receive_some() == b""


@pytest.mark.parametrize("way", ["to_broker", "to_client"])
async def test_a_stall_of_one_direction_holds_bytes_back_and_loses_none(way: str) -> None:
    proxy = FaultProxy()
    async with an_echo(proxy) as stream:
        direction = proxy.to_broker if way == "to_broker" else proxy.to_client
        direction.stall()
        await stream.send_all(b"held back")
        with trio.move_on_after(STALL_S) as waiting:
            await stream.receive_some()
        proxy.heal()

        assert waiting.cancelled_caught
        assert await receive(stream, 9) == b"held back"


async def test_a_delay_is_injected() -> None:
    proxy = FaultProxy()
    async with an_echo(proxy) as stream:
        proxy.to_broker.delay_s = proxy.to_client.delay_s = 0.1
        began_at = trio.current_time()
        await stream.send_all(b"slow")
        await receive(stream, 4)

        assert trio.current_time() - began_at >= 0.2


async def test_a_reset_arrives_as_a_reset() -> None:
    proxy = FaultProxy()
    async with an_echo(proxy) as stream:
        await stream.send_all(b"x")
        await receive(stream, 1)

        assert proxy.end_connections(with_reset=True) == 1
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()


async def test_a_cut_arrives_as_an_end_of_stream() -> None:
    proxy = FaultProxy()
    async with an_echo(proxy) as stream:
        await stream.send_all(b"x")
        await receive(stream, 1)

        proxy.end_connections(with_reset=False)
        assert await stream.receive_some() == b""


async def test_without_a_listening_target_connections_are_reset() -> None:
    proxy = FaultProxy()
    async with an_echo(proxy):
        proxy.target_port = 1
        async with await trio.open_tcp_stream("127.0.0.1", proxy.port) as refused:
            with pytest.raises(trio.BrokenResourceError):
                await refused.receive_some()
