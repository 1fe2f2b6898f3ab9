"""A broker played by the test, at the other end of a `FakeStream`."""

from typing import final

from tests.wire.samples import EXCHANGES
from tests.wire.streams import FakeStream
from tidelog.wire.messages.handshake import ApiVersions, HelloReply
from tidelog.wire.messages.metadata import MetadataReply
from tidelog.wire.protocol import api
from tidelog.wire.protocol.connection import Request, ServerConnection

APIS = [exchange.api for exchange in EXCHANGES]
OFFERED = [ApiVersions(served.key, served.min_version, served.max_version) for served in APIS]
HELLO_REPLY = HelloReply("0.1.0", "cluster", 1, OFFERED, 1 << 20, 64)
METADATA_REPLY = MetadataReply("cluster", [], [])


@final
class FakeBroker:
    """A broker that decodes requests and sends the test's replies."""

    def __init__(self, stream: FakeStream) -> None:
        self._stream = stream
        self._core = ServerConnection(APIS, max_frame_bytes=1 << 20)
        self._read_count = 0
        self.requests: list[object] = []

    def read(self) -> list[int]:
        """Record new requests and return their correlation ids."""
        ids: list[int] = []
        rest = memoryview(bytes(self._stream.sent[self._read_count :]))
        self._read_count += len(rest)
        while rest:
            buffer = self._core.decoder.get_buffer()
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            rest = rest[count:]
            self._core.decoder.bytes_received(count)
            while (request := self._core.next_request()) is not None:
                assert isinstance(request, Request)
                self.requests.append(request.message)
                ids.append(request.correlation_id)
        return ids

    def answer_metadata(self, correlation_id: int) -> None:
        self._stream.feed(
            api.METADATA.encode_reply(METADATA_REPLY, version=1, correlation_id=correlation_id)
        )

    def answer_hello(self) -> None:
        (correlation_id,) = self.read()
        self._stream.feed(
            api.HELLO.encode_reply(HELLO_REPLY, version=1, correlation_id=correlation_id)
        )
