"""A client under full control of a test: byte by byte, and with explicit reads."""

from typing import TypeVar, final

import trio

from tests.broker.memory_network import MemoryStream
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import ConnectionLostError
from tidelog.wire.messages.handshake import HelloReply, HelloRequest
from tidelog.wire.messages.produce import Acks, PartitionBatch, ProduceRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api
from tidelog.wire.protocol.connection import ClientConnection, Reply

_FOR_EVER_MS = 60_000

RequestType = TypeVar("RequestType")
ReplyType = TypeVar("ReplyType")


@final
class RawClient:
    """One end of a connection, without a task of its own."""

    def __init__(self, stream: MemoryStream) -> None:
        self.stream = stream
        self._core = ClientConnection(max_frame_bytes=1 << 28)

    async def introduce(self) -> None:
        """Exchange hellos."""
        await self.send(self.request(api.HELLO, HelloRequest("test", "0")))
        (reply,) = await self.replies(1)
        assert isinstance(reply.message, HelloReply)
        self._core.set_offered(reply.message.apis)

    def request(
        self, api_: Api[RequestType, ReplyType], message: RequestType, *attachment: BytesLike
    ) -> bytes:
        """Return the bytes of a request; its reply is expected."""
        length = sum(map(len, attachment))
        _, frame = self._core.send_request(api_, message, attachment_length=length)
        return b"".join((frame, *attachment))

    async def send(self, data: bytes) -> None:
        """Send all bytes, waiting for the broker to take them."""
        view = memoryview(data)
        with trio.fail_after(3600):
            while view:
                view = view[self.stream.send_nowait([view]) :]
                if view:
                    await self.stream.wait_writable()

    def send_nowait(self, data: bytes) -> int:
        """Send the bytes that the broker takes now; return their number."""
        return self.stream.send_nowait([data])

    def replies_nowait(self) -> list[Reply]:
        """Receive and return the available replies."""
        found: list[Reply] = []
        while True:
            buffer = self._core.decoder.get_buffer()
            count = self.stream.receive_nowait(buffer)
            if not count:
                return found
            self._core.decoder.bytes_received(count)
            while (reply := self._core.next_reply()) is not None:
                # A view would be invalid after the next receive.
                found.append(
                    Reply(reply.correlation_id, reply.message, memoryview(bytes(reply.attachment)))
                )

    async def replies(self, count: int) -> list[Reply]:
        """Receive and return so many replies."""
        found = self.replies_nowait()
        with trio.fail_after(3600):
            while len(found) < count:
                await self.stream.wait_readable()
                found += self.replies_nowait()
        assert len(found) == count
        return found

    def is_turned_away(self) -> bool:
        """Return whether the broker has closed the connection; drops unread bytes."""
        buffer = memoryview(bytearray(1 << 16))
        try:
            while count := self.stream.receive_nowait(buffer):
                assert count
        except ConnectionLostError:
            return True
        return count == 0


def produce_frame(client: RawClient, topic_id: bytes, batch: bytearray) -> bytes:
    """Return the bytes of a request that appends one batch to partition 0, with acks all."""
    request = ProduceRequest(Acks.ALL, _FOR_EVER_MS, [PartitionBatch(topic_id, 0, len(batch))])
    return client.request(api.PRODUCE, request, batch)
