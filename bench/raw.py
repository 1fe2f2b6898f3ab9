"""Client of all load generators: frames over a plain blocking socket.

It does as little work as possible, so that the figures are the server's: frames are encoded once,
replies are counted and not decoded.
"""

import random
import socket
import time
from collections.abc import Callable, Sequence
from typing import TypeVar, final

import msgspec

from bench.bare_server import Order
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.errors import BrokerError
from tidelog.wire.messages.handshake import HelloReply, HelloRequest
from tidelog.wire.messages.offset_ranges import ListOffsetsRequest, OffsetQuery
from tidelog.wire.messages.topics import CreateTopicReply, CreateTopicRequest, DeleteTopicRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api
from tidelog.wire.protocol.connection import ClientConnection
from tidelog.wire.protocol.frame import FrameDecoder, FrameKind

Request = TypeVar("Request")
Reply = TypeVar("Reply")
Address = tuple[str, int]

FRAME_BYTES_MAX = 256 << 20
RECORD_BYTES = 100
_VARIED_BYTES_MIN = 60
_VARIED_BYTES_MAX = 140


def connect(address: Address) -> socket.socket:
    """Return a blocking socket that sends at once."""
    sock = socket.create_connection(address)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


@final
class RawConnection:
    """Blocking connection to a broker, whose socket a load loop may also use."""

    def __init__(self, address: Address, *, timeout_s: float | None = None) -> None:
        """Connect and exchange HELLO; `timeout_s` limits each operation."""
        self.sock = connect(address)
        self.sock.settimeout(timeout_s)
        self._core = ClientConnection(max_frame_bytes=FRAME_BYTES_MAX)
        hello = self.ask(api.HELLO, HelloRequest("bench", "1"))
        assert isinstance(hello, HelloReply)
        self._core.set_offered(hello.apis)

    def ask(self, api_: Api[Request, Reply], request: Request, attachment: bytes = b"") -> Reply:
        """Send a request and return the reply.

        Raises:
            BrokerError: The broker rejected the request.
        """
        _, frame = self._core.send_request(api_, request, attachment_length=len(attachment))
        self.sock.sendall(frame + attachment)
        while (reply := self._core.next_reply()) is None:
            received = self.sock.recv_into(self._core.decoder.get_buffer())
            if not received:
                raise EOFError("the broker closed the connection")
            self._core.decoder.bytes_received(received)
        if isinstance(reply.message, BrokerError):
            raise reply.message
        return reply.message  # type: ignore[return-value]

    def create_topic(self, name: str, **config: str) -> bytes:
        """Create a topic of one partition and return its id."""
        reply: CreateTopicReply = self.ask(api.CREATE_TOPIC, CreateTopicRequest(name, 1, config))
        return reply.topic_id

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until its files are gone."""
        self.ask(api.DELETE_TOPIC, DeleteTopicRequest(name))

    def check_end_offset(self, topic_id: bytes, expected: int) -> None:
        """Raise when the only partition of a topic does not end at `expected`."""
        request = ListOffsetsRequest([OffsetQuery(topic_id, 0)])
        (found,) = self.ask(api.LIST_OFFSETS, request).partitions
        end = found.high_watermark
        if end != expected:
            raise RuntimeError(f"the log ends at {end} instead of {expected}: {found.error}")

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()


def connect_bare(address: Address, order: Order) -> socket.socket:
    """Return a socket to a bare server that has its order."""
    sock = connect(address)
    sock.sendall(msgspec.json.encode(order) + b"\n")
    assert sock.recv(1) == b"\n"
    return sock


def pump(
    sock: socket.socket,
    next_frame: Callable[[], Sequence[bytes | bytearray]],
    count: int,
    *,
    depth: int,
) -> None:
    """Send `count` frames, with `depth` of them in flight, and wait for all replies."""
    decoder = FrameDecoder(max_frame_bytes=FRAME_BYTES_MAX)
    sent = answered = 0
    while answered < count:
        while sent < count and sent - answered < depth:
            sock.sendmsg(next_frame())  # A blocking socket accepts all bytes.
            sent += 1
        received = sock.recv_into(decoder.get_buffer())
        if not received:
            raise EOFError("the server closed the connection")
        decoder.bytes_received(received)
        while (frame := decoder.next_frame()) is not None:
            if frame.kind is not FrameKind.REPLY:
                raise RuntimeError(f"the server failed: {api.decode_error(frame.header)}")
            answered += 1


def make_values(count: int) -> list[bytes]:
    """Return different values of 100 bytes."""
    values = [b"%0100d" % number for number in range(count)]
    assert len(values[0]) == RECORD_BYTES
    return values


def make_varied_values(count: int) -> list[bytes]:
    """Return values of 60 to 140 bytes, 100 in the mean, the same ones in each call."""
    chance = random.Random(60_140)
    source = chance.randbytes(1 << 16)
    starts = [chance.randrange(len(source) - _VARIED_BYTES_MAX) for _ in range(count)]
    return [
        source[start : start + chance.randint(_VARIED_BYTES_MIN, _VARIED_BYTES_MAX)]
        for start in starts
    ]


def make_batch(record_count: int) -> bytearray:
    """Return a batch of records of 100 bytes without keys."""
    # The time of today, because retention would delete older records.
    now_ms = time.time_ns() // 1_000_000
    columns = Columns(record_count, values=make_values(record_count))
    return encode_batch(columns, first_timestamp_ms=now_ms)
