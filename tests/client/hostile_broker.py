"""Broker that answers requests as a test says, also with replies that no correct broker sends."""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Unpack, cast, final

import msgspec
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from tests.broker.world import ADDRESS, World
from tidelog.blocking.thread import TrioThread
from tidelog.client.client import Client, connect
from tidelog.client.config import ClientSettings
from tidelog.wire.env.env import Network, Stream
from tidelog.wire.env.real.tcp import TcpNetwork
from tidelog.wire.errors import ConnectionLostError
from tidelog.wire.messages.fetch import FetchReply, PartitionFetched
from tidelog.wire.messages.handshake import ApiVersions, HelloReply
from tidelog.wire.messages.metadata import (
    BrokerAddress,
    MetadataReply,
    MetadataRequest,
    PartitionMetadata,
    TopicMetadata,
)
from tidelog.wire.messages.offset_ranges import ListOffsetsReply, PartitionOffsets
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import AnyApi
from tidelog.wire.protocol.connection import Request, ServerConnection
from tidelog.wire.protocol.frame import FrameKind, encode_frame

ALL = [cast("AnyApi", found) for found in vars(api).values() if isinstance(found, api.Api)]
_BY_KEY = {int(each.key): each for each in ALL}
_LIMIT_S = 300.0
"""Time of the test after which a client that waits for ever fails it."""
TOPIC_ID = b"i" * 16
NODE_ID = 1
VERSIONS = [ApiVersions(each.key, each.min_version, each.max_version) for each in ALL]
HELLO = HelloReply("1", "cluster", NODE_ID, VERSIONS, 1 << 24, 100)
EMPTY = FetchReply([PartitionFetched(0, 0, 0)])
"""Reply to a fetch of one partition without records."""

Answer = Callable[[Request], bytes | None]
"""Returns the bytes of a reply, `None` to stay silent."""


def frame_of(request: Request, reply: object, attachment: bytes = b"") -> bytes:
    """Return the frame of a reply, a message or any other value."""
    head = encode_frame(
        FrameKind.REPLY,
        api_key=request.api_key,
        api_version=request.version,
        correlation_id=request.correlation_id,
        header=msgspec.msgpack.encode(reply),
        attachment_length=len(attachment),
    )
    return head + attachment


def always(reply: object, attachment: bytes = b"") -> Answer:
    """Return an answer that is the same for every request."""
    return lambda request: frame_of(request, reply, attachment)


def wrong_id(request: Request) -> bytes:
    """Answer another request than the one that was sent."""
    return frame_of(replace(request, correlation_id=request.correlation_id + 7), EMPTY)


def other_api(request: Request) -> bytes:
    """Answer a request of another API."""
    return frame_of(replace(request, api_key=api.METADATA.key), EMPTY)


def http(_: Request) -> bytes:
    """Answer as a server of another protocol."""
    return b"HTTP/1.1 400 Bad Request\r\n\r\n"


def in_turn(*answers: Answer) -> Answer:
    """Return an answer that is each of these once, and then silence."""
    left = iter(answers)

    def answer(request: Request) -> bytes | None:
        current = next(left, None)
        return None if current is None else current(request)

    return answer


def metadata_of(
    request: MetadataRequest, *partitions: PartitionMetadata, address: tuple[str, int] = ADDRESS
) -> MetadataReply:
    """Return metadata in which every topic has these partitions."""
    found = [TopicMetadata(name, TOPIC_ID, [*partitions]) for name in request.topics or ()]
    return MetadataReply("cluster", [BrokerAddress(NODE_ID, *address)], found, NODE_ID)


@final
class HostileBroker:
    """One node with one partition of each topic."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.answers: dict[AnyApi, Answer] = {
            cast("AnyApi", api.HELLO): always(HELLO),
            cast("AnyApi", api.METADATA): self._metadata,
            cast("AnyApi", api.LIST_OFFSETS): always(ListOffsetsReply([PartitionOffsets(0, 0, 0)])),
        }
        """Answers by API; a test replaces them. Requests of other APIs stay unanswered."""
        self.asked: list[Any] = []
        """APIs of the requests, in order."""
        self._streams: list[Stream] = []

    def answer(self, served: Any, answer: Answer) -> None:  # noqa: ANN401  (any API)
        """Answer requests of an API like this from now on."""
        self.answers[served] = answer

    def count(self, served: Any) -> int:  # noqa: ANN401  (any API)
        """Return the number of requests of an API."""
        return self.asked.count(served)

    def break_connections(self) -> None:
        """Break all connections; new ones can be opened."""
        streams, self._streams = self._streams, []
        for stream in streams:
            stream.close()

    async def serve(self, stream: Stream) -> None:
        """Answer the requests of one connection."""
        self._streams.append(stream)
        core = ServerConnection(ALL, max_frame_bytes=1 << 24)
        try:
            while True:
                received = stream.receive_nowait(core.decoder.get_buffer())
                if received is None:
                    await stream.wait_readable()
                    continue
                if received == 0:
                    break
                core.decoder.bytes_received(received)
                while isinstance(request := core.next_request(), Request):
                    served = _BY_KEY[request.api_key]
                    self.asked.append(served)
                    answer = self.answers.get(served)
                    frame = None if answer is None else answer(request)
                    if frame:
                        await trio.sleep(0.001)  # Otherwise a busy client would stop the clock.
                        await _send(stream, frame)
        except ConnectionLostError:
            pass
        stream.close()

    def _metadata(self, request: Request) -> bytes:
        message = cast("MetadataRequest", request.message)
        partition = PartitionMetadata(0, NODE_ID, 1)
        return frame_of(request, metadata_of(message, partition, address=self.address))


async def _send(stream: Stream, frame: bytes) -> None:
    rest = memoryview(frame)[stream.send_nowait([frame]) :]
    while rest:
        await stream.wait_writable()
        rest = rest[stream.send_nowait([rest]) :]


@asynccontextmanager
async def hostile_broker(
    network: Network, address: tuple[str, int]
) -> AsyncGenerator[HostileBroker, None]:
    """Run a hostile broker while the block runs; port 0 takes a free one."""
    listener = await network.listen(*address)
    broker = HostileBroker(listener.address)

    async def accept(nursery: trio.Nursery) -> None:
        while True:
            nursery.start_soon(broker.serve, await listener.accept())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept, nursery)
        yield broker
        nursery.cancel_scope.cancel()
    listener.close()


@contextmanager
def hostile_broker_in_a_thread() -> Generator[HostileBroker, None, None]:
    """Run a hostile broker that listens on the loopback interface while the block runs."""
    thread = TrioThread(hostile_broker(TcpNetwork(), ("127.0.0.1", 0)))
    try:
        yield thread.resource
    finally:
        thread.close()


@asynccontextmanager
async def deceived_client(
    time: MockClock, **settings: Unpack[ClientSettings]
) -> AsyncGenerator[tuple[Client, HostileBroker, World]]:
    """Run a hostile broker, and a client of it, while the block runs."""
    world = World(time)
    settings.setdefault("request_timeout", 10.0)
    with trio.fail_after(_LIMIT_S):
        async with (
            hostile_broker(world.network, ADDRESS) as broker,
            connect("{}:{}".format(*ADDRESS), env=world.env, **settings) as client,
        ):
            yield client, broker, world
