"""Client that floods a broker: many connections, each with a burst of small produce requests.

python -m tests.system.integration.flooding_client ADDRESS TOPIC CONNECTIONS

Its token is the line of standard input. For each hundred acknowledged requests it prints a line:
how many milliseconds the last burst took.
"""

import selectors
import socket
import sys
from time import perf_counter, time_ns
from typing import Final, TypeVar, final

from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.errors import BrokerError
from tidelog.wire.messages.handshake import AuthenticateRequest, HelloRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.produce import Acks, PartitionBatch, ProduceRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.connection import ClientConnection
from tidelog.wire.security.token import TOKEN

BURST: Final = 8
"""Requests that a connection sends at once, when all before them are answered."""
_LINE: Final = 100

RequestType = TypeVar("RequestType")
ReplyType = TypeVar("ReplyType")


@final
class FloodConnection:
    """One connection with a burst under way."""

    def __init__(self, address: tuple[str, int], token: str, topic: str) -> None:
        self.socket = socket.create_connection(address)
        self._core = ClientConnection(max_frame_bytes=1 << 20)
        self._core.set_offered(self._ask(api.HELLO, HelloRequest("flood", "1")).apis)
        self._ask(api.AUTHENTICATE, AuthenticateRequest(TOKEN, token.encode()))
        (found,) = self._ask(api.METADATA, MetadataRequest([topic])).topics
        self._batch = bytes(
            encode_batch(Columns(1, values=[b"flood"]), first_timestamp_ms=time_ns() // 1_000_000)
        )
        batches = [PartitionBatch(found.topic_id, 0, len(self._batch))]
        self._request = ProduceRequest(Acks.LEADER, 60_000, batches)
        self._open_count = 0
        self._began_at = 0.0
        self.last_ms = 0.0
        """Time of the last whole burst."""

    def begin_burst(self) -> None:
        """Send the next burst."""
        self._open_count, self._began_at = BURST, perf_counter()
        self.socket.sendall(b"".join(self._frame() for _ in range(BURST)))

    def receive(self) -> int:
        """Receive what has arrived; return the number of acknowledgements."""
        received = self.socket.recv_into(self._core.decoder.get_buffer())
        if not received:
            raise EOFError("the broker closed the connection")
        self._core.decoder.bytes_received(received)
        count = 0
        while (reply := self._core.next_reply()) is not None:
            if isinstance(reply.message, BrokerError):
                raise reply.message
            count += 1
        self._open_count -= count
        if not self._open_count:
            self.last_ms = (perf_counter() - self._began_at) * 1000
            self.begin_burst()
        return count

    def _frame(self) -> bytes:
        length = len(self._batch)
        _, frame = self._core.send_request(api.PRODUCE, self._request, attachment_length=length)
        return frame + self._batch

    def _ask(self, asked: api.Api[RequestType, ReplyType], request: RequestType) -> ReplyType:
        _, frame = self._core.send_request(asked, request)
        self.socket.sendall(frame)
        while (reply := self._core.next_reply()) is None:
            received = self.socket.recv_into(self._core.decoder.get_buffer())
            assert received, "the broker closed the connection"
            self._core.decoder.bytes_received(received)
        if isinstance(reply.message, BrokerError):
            raise reply.message
        return reply.message  # type: ignore[return-value]  # The reply of this API.


def main(address: str, topic: str, connection_count: str) -> None:
    """Flood until killed."""
    token = sys.stdin.readline().strip()
    host, port = address.split(":")
    selector = selectors.DefaultSelector()
    connections = [
        FloodConnection((host, int(port)), token, topic) for _ in range(int(connection_count))
    ]
    for each in connections:
        selector.register(each.socket, selectors.EVENT_READ, each)
        each.begin_burst()
    count = 0
    while True:
        for key, _ in selector.select():
            count += key.data.receive()
            if count >= _LINE and key.data.last_ms:
                count -= _LINE
                sys.stdout.write(f"{key.data.last_ms:.3f}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
