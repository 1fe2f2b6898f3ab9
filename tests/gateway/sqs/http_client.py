"""An HTTP client for tests of the SQS front: one connection, and JSON."""

import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple, final

import trio

from tidelog.gateway.sqs.http.messages import HttpRequest


class HttpReply(NamedTuple):
    """A response."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes

    def value_of(self, metric: str) -> float:
        """Return the value of a metric without labels."""
        found = re.search(rf"^{metric} (\S+)$", self.body.decode(), re.MULTILINE)
        assert found is not None, self.body.decode()
        return float(found[1])


@final
class HttpClient:
    """One connection to a front."""

    def __init__(self, stream: trio.SocketStream) -> None:
        """Use `connected`."""
        self._stream = stream
        self._data = b""

    @classmethod
    @asynccontextmanager
    async def connected(cls, port: int) -> AsyncGenerator["HttpClient", None]:
        """Connect to a front of this machine while the block runs."""
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            yield cls(stream)

    async def ask(self, action: str, **parameters: object) -> HttpReply:
        """Send a request, and return its response."""
        await self.send(action, **parameters)
        return await self.reply()

    async def send(self, action: str, **parameters: object) -> None:
        """Send a request in AWS JSON 1.0."""
        body = json.dumps(parameters).encode()
        head = f"POST / HTTP/1.1\r\nX-Amz-Target: AmazonSQS.{action}\r\nContent-Length: {len(body)}"
        await self._stream.send_all(f"{head}\r\n\r\n".encode() + body)

    async def ask_as_signed(self, request: HttpRequest) -> HttpReply:
        """Send a request as it was signed, and return its response."""
        lines = [b"%s %s HTTP/1.1" % (request.method, request.target)]
        headers = {**request.headers, b"content-length": b"%d" % len(request.body)}
        lines += [b"%s: %s" % header for header in headers.items()]
        lines += [b"", request.body]
        await self._stream.send_all(b"\r\n".join(lines))
        return await self.reply()

    async def get(self, target: str) -> HttpReply:
        """Return the response to a GET request."""
        await self._stream.send_all(f"GET {target} HTTP/1.1\r\n\r\n".encode())
        return await self.reply()

    async def reply(self) -> HttpReply:
        """Return the next response."""
        while b"\r\n\r\n" not in self._data:
            await self._receive()
        head, _, self._data = self._data.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        pairs = [line.split(": ", 1) for line in lines]
        headers = {name.lower(): value for name, value in pairs}
        length = int(headers["content-length"])
        while len(self._data) < length:
            await self._receive()
        body, self._data = self._data[:length], self._data[length:]
        return HttpReply(int(status.split()[1]), headers, body)

    async def _receive(self) -> None:
        data = bytes(await self._stream.receive_some())
        assert data, "the front has closed the connection"
        self._data += data
