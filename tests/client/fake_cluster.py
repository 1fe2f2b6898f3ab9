"""Fake cluster of several brokers for clients, with one real broker behind it.

Each front listens on its own address and speaks for one node. It forwards requests about records to
the broker, if its node leads the partitions; all fronts return the same metadata. A test moves
leaders, stops and freezes fronts, and adds answers to other requests.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, cast, final

import trio
from msgspec.structs import replace
from trio.testing import MockClock

from tests.broker.memory_network import MemoryStream
from tests.broker.world import World
from tidelog.broker.server import Broker
from tidelog.client.client import Client, connect
from tidelog.client.config import ClientSettings
from tidelog.wire.env.env import Network, Stream
from tidelog.wire.errors import BrokerError, ConnectionLostError, NotLeaderError, OverloadedError
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.handshake import ApiVersions, HelloReply
from tidelog.wire.messages.metadata import (
    BrokerAddress,
    MetadataReply,
    MetadataRequest,
    PartitionMetadata,
    TopicMetadata,
)
from tidelog.wire.messages.offset_ranges import ListOffsetsRequest
from tidelog.wire.messages.produce import ProduceRequest
from tidelog.wire.messages.queue_admin import DescribeQueuesReply
from tidelog.wire.messages.queues import ReceiveRequest, SendRequest, SettleRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import AnyApi
from tidelog.wire.protocol.connection import Request, ServerConnection
from tidelog.wire.transport.rpc import Outcome, RpcConnection
from tidelog.wire.transport.write_buffer import WriteBuffer

Answer = Callable[[object], Awaitable[object]]

_ALL = [cast("AnyApi", found) for found in vars(api).values() if isinstance(found, api.Api)]
_BY_KEY = {int(each.key): each for each in _ALL}
_OF_RECORDS = (ProduceRequest, FetchRequest, ListOffsetsRequest)
_OfPartitions = (
    ProduceRequest
    | FetchRequest
    | ListOffsetsRequest
    | ReceiveRequest
    | SendRequest
    | SettleRequest
)
_OF_PARTITIONS = (*_OF_RECORDS, ReceiveRequest, SendRequest, SettleRequest)


class _OfPartition(Protocol):
    """Message about one partition."""

    @property
    def partition(self) -> int: ...


@final
class Front:
    """One node, as clients see it."""

    def __init__(self, cluster: "FakeCluster", node_id: int) -> None:
        self.node_id = node_id
        self.address = (f"front-{node_id}", 8433)
        self.asked: list[AnyApi] = []
        """Requests received here, in order."""
        self.is_frozen = False
        """Whether requests stay unanswered; the operating system still accepts connections."""
        self.is_ready = True
        """Whether HELLO succeeds."""
        self.lost_count = 0
        """Number of replies to `SEND` that are still to be lost, with the connection."""
        self.refusal: BrokerError | None = None
        """Error for all requests except HELLO."""
        self.refused: set[api.ApiKey] = set(api.ApiKey) - {api.ApiKey.HELLO}
        """Requests that the refusal is limited to."""
        self._cluster = cluster
        self._scope = trio.CancelScope()
        self._streams: list[Stream] = []

    async def run(self) -> None:
        """Listen until stopped; then break all connections."""
        self._scope = trio.CancelScope()
        listener = await self._cluster.network.listen(*self._cluster.listen_address(self))
        self.address = listener.address
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    while True:
                        stream = await listener.accept()
                        self._streams.append(stream)
                        nursery.start_soon(self._serve, stream)
        finally:
            listener.close()
            self.break_connections()

    def break_connections(self) -> None:
        """Break all connections; new ones can be opened."""
        streams, self._streams = self._streams, []
        for stream in streams:
            stream.reset() if isinstance(stream, MemoryStream) else stream.close()

    def stop(self) -> None:
        """Stop, like a killed process."""
        self._scope.cancel()

    async def _serve(self, stream: Stream) -> None:
        core = ServerConnection(_ALL, max_frame_bytes=1 << 24)
        write_buffer = WriteBuffer(stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write_buffer.run)
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
                        attachment = bytes(request.attachment)
                        if self.is_frozen:
                            continue
                        if isinstance(request.message, ProduceRequest):
                            self._produce(request, attachment, write_buffer)
                        else:
                            nursery.start_soon(self._answer, request, attachment, write_buffer)
            except ConnectionLostError:
                pass
            write_buffer.close()
            nursery.cancel_scope.cancel()

    def _produce(self, request: Request, attachment: bytes, write_buffer: WriteBuffer) -> None:
        """Forward batches to append, in the order of their arrival."""
        message = request.message
        assert isinstance(message, ProduceRequest)
        self.asked.append(cast("AnyApi", api.PRODUCE))

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, tuple):
                self._put(request, outcome[0], b"", write_buffer=write_buffer)
            elif isinstance(outcome, BrokerError):
                self._put(request, outcome, b"", write_buffer=write_buffer)

        try:
            if self.refusal is not None:
                raise self.refusal
            self._cluster.check_leader(self.node_id, message)
        except BrokerError as error:
            self._put(request, error, b"", write_buffer=write_buffer)
        else:
            self._cluster.upstream.submit(api.PRODUCE, message, done, attachment=[attachment])

    async def _answer(self, request: Request, attachment: bytes, write_buffer: WriteBuffer) -> None:
        served = _BY_KEY[request.api_key]
        self.asked.append(served)
        try:
            if self.refusal is not None and served.key in self.refused:
                raise self.refusal
            reply, data = await self._reply(served, request.message, attachment)
        except BrokerError as error:
            self._put(request, error, b"", write_buffer=write_buffer)
        else:
            if self.lost_count and served.key is api.ApiKey.SEND:
                self.lost_count -= 1
                self.break_connections()
                return
            self._put(request, reply, data, write_buffer=write_buffer)

    def _put(
        self, request: Request, reply: object, data: bytes, *, write_buffer: WriteBuffer
    ) -> None:
        if self.is_frozen:
            return
        if isinstance(reply, BrokerError):
            frame = api.encode_error(
                reply.to_wire(),
                api_key=request.api_key,
                api_version=request.version,
                correlation_id=request.correlation_id,
            )
        else:
            frame = _BY_KEY[request.api_key].encode_reply(
                reply,
                version=request.version,
                correlation_id=request.correlation_id,
                attachment_length=len(data),
            )
        write_buffer.put(frame)
        write_buffer.put(data)
        write_buffer.flush()

    async def _reply(
        self, served: AnyApi, message: object, attachment: bytes
    ) -> tuple[object, bytes]:
        cluster = self._cluster
        if served.key is api.ApiKey.HELLO:
            if not self.is_ready:
                raise OverloadedError("not yet")
            versions = [ApiVersions(int(a.key), a.min_version, a.max_version) for a in _ALL]
            return HelloReply("0", "cluster", self.node_id, versions, 1 << 24, 100), b""
        if isinstance(message, MetadataRequest):
            return await cluster.metadata(message), b""
        if served in cluster.answers:
            return await cluster.answers[served](self.node_id, message), b""
        if isinstance(message, _OF_PARTITIONS):
            cluster.check_leader(self.node_id, message)
        reply, data = await cluster.pass_on(served, message, attachment)
        if isinstance(reply, DescribeQueuesReply):
            reply = cluster.with_leaders(reply)
        return reply, data


@final
class FakeCluster:
    """All fronts, and the metadata that they return."""

    def __init__(self, world: World, upstream: RpcConnection, nursery: trio.Nursery) -> None:
        self.world = world
        self.network: Network = world.network
        """Network of the fronts; a test may use that of the machine."""
        self.fronts: dict[int, Front] = {}
        self.leaders: dict[int, tuple[int, int]] = {}
        """Node and leader epoch of partitions by number; node 1 leads all others."""
        self.in_sync: list[int] | None = None
        """Replicas of all partitions in the reported ISR; the data are at the one broker."""
        self.racks: dict[int, str] = {}
        self.controller_id: int | None = 1
        self.answers: dict[AnyApi, Callable[[int, object], Awaitable[object]]] = {}
        """Answers to other requests, given the node that is asked."""
        self.receives: list[ReceiveRequest] = []
        """Requests forwarded to the broker, in order."""
        self.upstream = upstream
        self._nursery = nursery
        self._names: dict[bytes, str] = {}

    async def start(self, node_id: int) -> None:
        """Start a node."""
        front = self.fronts.setdefault(node_id, Front(self, node_id))
        self._nursery.start_soon(front.run)
        await trio.testing.wait_all_tasks_blocked()

    def listen_address(self, front: Front) -> tuple[str, int]:
        return front.address if self.network is self.world.network else ("127.0.0.1", 0)

    def leader_of(self, partition: int) -> tuple[int, int]:
        return self.leaders.get(partition, (1, 0))

    async def metadata(self, request: MetadataRequest) -> MetadataReply:
        """Return metadata with the addresses of the fronts."""
        reply = await self.upstream.ask(api.METADATA, request)
        topics = [
            TopicMetadata(
                topic.name,
                topic.topic_id,
                [
                    PartitionMetadata(each.partition, *self.leader_of(each.partition), self.in_sync)
                    for each in topic.partitions
                ],
                topic.error,
            )
            for topic in reply.topics
        ]
        brokers = [
            BrokerAddress(node_id, *front.address, self.racks.get(node_id, ""))
            for node_id, front in self.fronts.items()
        ]
        return MetadataReply("cluster", brokers, topics, self.controller_id)

    def with_leaders(self, reply: DescribeQueuesReply) -> DescribeQueuesReply:
        """Return descriptions of queues with the leaders of the partitions."""
        queues = [
            replace(
                queue,
                partitions=[
                    replace(each, leader_id=self.leader_of(each.partition)[0])
                    for each in queue.partitions
                ],
            )
            for queue in reply.queues
        ]
        return DescribeQueuesReply(queues)

    def check_leader(self, node_id: int, message: _OfPartitions) -> None:
        """Refuse requests for partitions led by another node."""
        for each in _partitions_of(message):
            may_follow = isinstance(each, PartitionFetch) and each.from_follower
            number = each if isinstance(each, int) else each.partition
            if self.leader_of(number)[0] != node_id and not may_follow:
                raise NotLeaderError(f"node {node_id} does not lead partition {number}")

    async def pass_on(
        self, served: AnyApi, message: object, attachment: bytes
    ) -> tuple[object, bytes]:
        """Forward a request to the broker."""
        if isinstance(message, ReceiveRequest):
            self.receives.append(message)
            # When the connection of the client breaks, the broker must notice.
            async with self.world.client() as own:
                return await own.call(served, message, take=_copied)
        pieces = [attachment] if attachment else []
        return await self.upstream.call(served, message, take=_copied, attachment=pieces)


def _copied(reply: object, attachment: memoryview) -> tuple[object, bytes]:
    return reply, bytes(attachment)


def _partitions_of(message: _OfPartitions) -> Sequence[int | _OfPartition]:
    match message:
        case ProduceRequest():
            return message.batches
        case SettleRequest():
            return message.settlements
        case SendRequest():
            return [message.partition]
        case _:
            return message.partitions


def seeds_of(node_ids: Sequence[int]) -> str:
    """Return the addresses of these nodes, as for `connect`."""
    return ",".join(f"front-{node_id}" for node_id in node_ids)


@asynccontextmanager
async def fronted_cluster(
    time: MockClock, node_ids: Sequence[int] = (1,), topics: Mapping[str, int] | None = None
) -> AsyncGenerator[FakeCluster, None]:
    """Run a broker with a front for each node, with topics of so many partitions."""
    world = World(time)
    async with world.broker() as broker, world.client() as upstream:
        assert isinstance(broker, Broker)
        async with trio.open_nursery() as nursery:
            cluster = FakeCluster(world, upstream, nursery)
            for node_id in node_ids:
                await cluster.start(node_id)
            async with connect("broker", env=world.env) as client:
                for name, partition_count in (topics or {"orders": 2}).items():
                    await client.admin.create_topic(name, partition_count)
            yield cluster
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def fronted_client(
    cluster: FakeCluster, seeds: Sequence[int] = (1,), **settings: object
) -> AsyncGenerator[Client, None]:
    """Connect to these nodes of a cluster."""
    keywords = cast("ClientSettings", settings)
    async with connect(seeds_of(seeds), env=cluster.world.env, **keywords) as client:
        yield client
