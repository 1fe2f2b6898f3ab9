"""The HTTP server of a real broker on real sockets: a half-closed client, a slow one, probes."""

from pathlib import Path

import trio

import tidelog


async def exchange(address: str, data: bytes) -> bytes:
    """Send bytes, close the sending side, and return all that comes back."""
    host, port = address.split(":")
    stream = await trio.open_tcp_stream(host, int(port))
    async with stream:
        await stream.send_all(data)
        await stream.send_eof()
        return b"".join([chunk async for chunk in stream])


async def test_a_client_that_closes_its_sending_side_gets_its_replies(tmp_path: Path) -> None:
    request = b"GET /health/ready HTTP/1.1\r\nHost: x\r\n\r\n"
    async with tidelog.open_broker(tmp_path, http_listen="127.0.0.1:0") as broker:
        found = await exchange(broker.http_address, request * 2)
        refused = await exchange(broker.http_address, b"POST / HTTP/1.1\r\nHost: x\r\n\r\n")
        torn = await exchange(broker.http_address, request[:20])
        # An unread body must not cost the client its reply.
        body = b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + bytes(300_000)
        with_body = await exchange(broker.http_address, body)

    assert found.count(b'{"ready":true}') == 2
    assert refused.startswith(b"HTTP/1.1 405 ")
    assert torn.startswith(b"HTTP/1.1 400 ")
    assert with_body.startswith(b"HTTP/1.1 405 ")


async def test_two_brokers_of_one_process_share_no_address(tmp_path: Path) -> None:
    async with (
        tidelog.open_broker(tmp_path / "a", http_listen="127.0.0.1:0") as one,
        tidelog.open_broker(tmp_path / "b") as other,
    ):
        assert one.http_address
        assert not other.http_address
