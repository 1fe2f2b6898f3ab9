"""Tests of well-formed requests with nonsensical fields: all are answered, none causes a defect."""

from random import Random
from typing import Any

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import (
    Pending,
    batch_of,
    create_topic,
    describe,
    fetch_all,
    produce,
    submit,
)
from tests.broker.world import World
from tidelog.wire.errors import (
    BrokerError,
    ErrorCode,
    InvalidRequestError,
)
from tidelog.wire.messages.cluster_admin import ElectLeadersRequest, TopicToElect
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.offset_ranges import ListOffsetsRequest, OffsetQuery
from tidelog.wire.messages.produce import InitProducerRequest, PartitionBatch, ProduceRequest
from tidelog.wire.messages.reassignment import PartitionMove, ReassignRequest
from tidelog.wire.messages.topics import (
    AlterTopicRequest,
    CreateTopicRequest,
    DeleteRecordsRequest,
    DeleteTopicRequest,
    DescribeTopicsRequest,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api
from tidelog.wire.transport.rpc import RpcConnection

NUMBERS = [
    0, 1, 2, 3, -1, 255, 4096, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32,
    (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 31), -(1 << 63),
]  # fmt: skip
NAMES = ["orders", "other", "", ".", "..", "a/b", "x" * 249, "x" * 250, "\x00", "\U0001f600"]
SETTINGS = ["retention_ms", "segment_bytes", "max_message_bytes", "durability", "colour", ""]
VALUES = ["1h", "4KiB", "fsync", "replicated", "", "-1", "9" * 400, "unlimited", "\u00b2", "1e9"]


class Strange:
    """Makes requests with numbers and names that no client should send."""

    def __init__(self, seed: int, topic_ids: list[bytes]) -> None:
        self._random = Random(seed)
        self._ids = [*topic_ids, b"", b"\xff" * 16, b"x" * 300]

    def number(self) -> int:
        return self._random.choice(NUMBERS)

    def size(self) -> int:
        return self._random.choice([number for number in NUMBERS if 0 <= number < 1 << 63])

    def name(self) -> str:
        return self._random.choice(NAMES)

    def topic_id(self) -> bytes:
        return self._random.choice(self._ids)

    def partition(self) -> int:
        return self._random.choice([0, 0, 0, self.number()])

    def settings(self) -> dict[str, str]:
        count = self._random.randrange(3)
        return {self._random.choice(SETTINGS): self._random.choice(VALUES) for _ in range(count)}

    def send_one(self, client: RpcConnection) -> Pending[object]:
        """Send one request of any kind."""
        kinds = [
            self._metadata, self._create, self._describe, self._alter, self._delete,
            self._delete_records, self._init_producer, self._produce, self._fetch, self._offsets,
        ]  # fmt: skip
        return self._random.choice(kinds)(client)

    def _metadata(self, client: RpcConnection) -> Pending[object]:
        pending = submit(client, api.METADATA, MetadataRequest([self.name(), self.name()]))
        return pending  # noqa: RET504  (its type is found before it is widened)

    def _create(self, client: RpcConnection) -> Pending[object]:
        count = self._random.choice([1, 2, *(each for each in NUMBERS if not 1 <= each <= 10_000)])
        request = CreateTopicRequest(self.name(), count, self.settings(), self.size() % 2 == 0)
        pending = submit(client, api.CREATE_TOPIC, request)
        return pending  # noqa: RET504  (its type is found before it is widened)

    def _describe(self, client: RpcConnection) -> Pending[object]:
        pending = submit(client, api.DESCRIBE_TOPICS, DescribeTopicsRequest([self.name()]))
        return pending  # noqa: RET504  (its type is found before it is widened)

    def _alter(self, client: RpcConnection) -> Pending[object]:
        reset = [self._random.choice(SETTINGS)]
        request = AlterTopicRequest(self.name(), self.settings(), reset)
        pending = submit(client, api.ALTER_TOPIC, request)
        return pending  # noqa: RET504  (its type is found before it is widened)

    def _delete(self, client: RpcConnection) -> Pending[object]:
        name = self._random.choice(["other", "nope", "", "a/b"])
        pending = submit(client, api.DELETE_TOPIC, DeleteTopicRequest(name))
        return pending  # noqa: RET504  (its type is found before it is widened)

    def _delete_records(self, client: RpcConnection) -> Pending[object]:
        before = self._random.choice([None, -1, 0, 1 << 40, self.number()])
        request = DeleteRecordsRequest(self.topic_id(), self.number(), before)
        pending = submit(client, api.DELETE_RECORDS, request)
        return pending  # noqa: RET504  (its type is found before it is widened)

    def _init_producer(self, client: RpcConnection) -> Pending[object]:
        request = InitProducerRequest(self.size(), self.size() % (1 << 32))
        pending = submit(client, api.INIT_PRODUCER, request)
        return pending  # noqa: RET504  (its type is found before it is widened)

    def _produce(self, client: RpcConnection) -> Pending[object]:
        batch = batch_of(b"strange", producer_id=self.size(), sequence=self.size() % (1 << 62))
        length = self._random.choice([len(batch), len(batch), self.size()])
        entry = PartitionBatch(self.topic_id(), self.partition(), length)
        request = ProduceRequest(self._random.choice([1, 2, 2, 7, -1]), self.size(), [entry])
        pending = submit(client, api.PRODUCE, request, batch)
        return pending  # noqa: RET504  (its type is found before it is widened)

    def _fetch(self, client: RpcConnection) -> Pending[object]:
        partitions = [
            PartitionFetch(self.topic_id(), self.partition(), self.number(), self.size())
            for _ in range(self._random.randrange(4))
        ]
        request = FetchRequest(self.size(), self.size(), self.size(), partitions)
        pending = submit(client, api.FETCH, request)
        return pending  # noqa: RET504  (its type is found before it is widened)

    def _offsets(self, client: RpcConnection) -> Pending[object]:
        partitions = [
            OffsetQuery(
                self.topic_id(),
                self.partition(),
                self._random.choice([None, self.number()]),
                self._random.choice([None, self.number()]),
            )
            for _ in range(self._random.randrange(4))
        ]
        pending = submit(client, api.LIST_OFFSETS, ListOffsetsRequest(partitions))
        return pending  # noqa: RET504  (its type is found before it is widened)


async def codes_of(pending: Pending[object]) -> set[int]:
    """Return the errors of the request as a whole and of its parts."""
    try:
        reply = await pending.reply()
    except BrokerError as error:
        return {error.code}
    lists = [getattr(reply, name, []) for name in ("results", "offsets", "topics")]
    details = [getattr(each, "error", None) for entries in lists for each in entries]
    return {detail.code for detail in details if detail is not None}


@pytest.mark.parametrize("seed", range(4))
async def test_nonsensical_requests_are_answered_without_a_defect(
    seed: int, mock_clock: MockClock
) -> None:
    world = World(mock_clock)
    async with (
        world.broker(max_in_flight_requests_per_connection=1000) as broker,
        world.client() as client,
        world.client() as bystander,
    ):
        topic = await create_topic(bystander, "orders", 2)
        other = await create_topic(bystander, "other", 1)
        strange = Strange(seed, [topic, other])
        codes: set[int] = set()
        for round_number in range(10):
            pending = [strange.send_one(client) for _ in range(40)]
            await world.pass_time(601)  # No request may wait for longer than ten minutes.
            assert all(each.is_answered for each in pending)
            for each in pending:
                codes |= await codes_of(each)
            result = await produce(bystander, topic, batch_of(b"%d" % round_number), partition=1)
            assert result.error is None

        assert ErrorCode.UNEXPECTED_SERVER_ERROR not in codes
        assert len(codes) >= 7
        assert broker.statistics().waiting_count == 0
        assert (await describe(bystander)).status == "online"
        found = [record.value for record in await fetch_all(bystander, topic, 1)]
        assert found[-1:] == [b"9"]


@pytest.mark.parametrize("number", [-1, 1 << 31])
async def test_a_partition_of_an_election_or_a_move_is_in_range(
    number: int, *, mock_clock: MockClock
) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        await create_topic(client)
        asked: list[tuple[Api[Any, Any], object]] = [
            (api.ELECT_LEADERS, ElectLeadersRequest([TopicToElect("orders", [number])])),
            (api.REASSIGN, ReassignRequest([PartitionMove("orders", number, [1])], [])),
        ]
        for method, request in asked:
            with pytest.raises(InvalidRequestError, match="Expected `int`"):
                await submit(client, method, request).reply()

        assert world.told("a request failed unexpectedly") == []
