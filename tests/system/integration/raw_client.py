"""Misbehaving client: it fetches many records and does not read the replies."""

import socket
from types import TracebackType
from typing import TypeVar, cast, final

from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.handshake import HelloRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.connection import ClientConnection, Reply

MiB = 1 << 20

RequestType = TypeVar("RequestType")
ReplyType = TypeVar("ReplyType")


@final
class StalledReader:
    """One blocking connection with a small receive buffer."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.connect((host, int(port)))
        self._core = ClientConnection(max_frame_bytes=MiB)
        hello = self._ask(api.HELLO, HelloRequest("stalled", "1"))
        self._core.set_offered(hello.apis)

    def __enter__(self) -> "StalledReader":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    def ask_for_everything(self, topic: str, *, times: int = 1) -> None:
        """Request all records of partition 0; return when the first bytes have arrived."""
        metadata = self._ask(api.METADATA, MetadataRequest([topic]))
        wanted = PartitionFetch(metadata.topics[0].topic_id, 0, 0, 64 * MiB)
        for _ in range(times):
            _, frame = self._core.send_request(api.FETCH, FetchRequest(0, 1, 64 * MiB, [wanted]))
            self._socket.sendall(frame)
        assert self._socket.recv(1, socket.MSG_PEEK), "the broker closed the connection"

    def _ask(self, asked: api.Api[RequestType, ReplyType], request: RequestType) -> ReplyType:
        _, frame = self._core.send_request(asked, request)
        self._socket.sendall(frame)
        reply: Reply | None = None
        while reply is None:
            received = self._socket.recv_into(self._core.decoder.get_buffer())
            assert received, "the broker closed the connection"
            self._core.decoder.bytes_received(received)
            reply = self._core.next_reply()
        return cast("ReplyType", reply.message)
