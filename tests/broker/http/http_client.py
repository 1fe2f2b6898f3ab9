"""A client of the HTTP server under full control of a test: raw bytes, and parsed replies."""

from dataclasses import dataclass
from typing import Generic, TypeVar, final

import h11
import msgspec
import trio

from tests.broker.memory_network import MemoryStream
from tests.broker.world import World
from tidelog.wire.env.env import Network, Stream

HTTP = "broker:8480"
_ADDRESS = ("broker", 8480)
AnyStream = TypeVar("AnyStream", bound=Stream)


@final
@dataclass
class HttpReply:
    """A reply: status, headers by lower-case name, and body."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    is_complete: bool = False

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> object:
        return msgspec.json.decode(self.body)


@final
class HttpClient(Generic[AnyStream]):
    """One connection."""

    def __init__(self, stream: AnyStream) -> None:
        self.stream = stream
        self._core = h11.Connection(h11.CLIENT)

    async def send(self, data: bytes) -> None:
        """Send raw bytes."""
        view = memoryview(data)
        while view:
            view = view[self.stream.send_nowait([view]) :]
            if view:
                await self.stream.wait_writable()

    async def reply(self, method: str = "GET") -> HttpReply:
        """Return the reply to a request that was sent with `send`."""
        if self._core.our_state is h11.DONE:
            self._core.start_next_cycle()
        # The client's parser must know the method.
        self._core.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        self._core.send(h11.EndOfMessage())
        reply = HttpReply(0, {})
        while True:
            event = self._core.next_event()
            if event is h11.NEED_DATA:
                self._core.receive_data(await self._receive())
            elif isinstance(event, h11.Response):
                headers = {name.decode(): value.decode() for name, value in event.headers}
                reply.status, reply.headers = event.status_code, headers
            elif isinstance(event, h11.Data):
                reply.body += event.data
            else:
                reply.is_complete = isinstance(event, h11.EndOfMessage)
                return reply

    async def get(self, target: str, *headers: str, method: str = "GET") -> HttpReply:
        """Return the reply to a request."""
        lines = [f"{method} {target} HTTP/1.1", "Host: broker", *headers, "", ""]
        await self.send("\r\n".join(lines).encode())
        return await self.reply(method)

    async def rest(self) -> bytes:
        """Return all bytes until the server closes the connection."""
        found = b""
        while data := await self._receive():
            found += data
        return found

    async def _receive(self) -> bytes:
        buffer = bytearray(1 << 16)
        with trio.fail_after(3600):
            while (count := self.stream.receive_nowait(memoryview(buffer))) is None:
                await self.stream.wait_readable()
        return bytes(buffer[:count])


async def http_client(world: World) -> HttpClient[MemoryStream]:
    """Connect to the HTTP server of the broker."""
    return HttpClient(await world.network.connect(*_ADDRESS))


async def get(world: World, target: str, *headers: str, method: str = "GET") -> HttpReply:
    """Return the reply to a request on a connection of its own."""
    client = await http_client(world)
    try:
        return await client.get(target, *headers, method=method)
    finally:
        client.stream.close()


async def get_from(network: Network, host: str, target: str) -> HttpReply:
    """Return the reply of the HTTP server on a machine."""
    stream = await network.connect(host, _ADDRESS[1])
    try:
        return await HttpClient(stream).get(target)
    finally:
        stream.close()
