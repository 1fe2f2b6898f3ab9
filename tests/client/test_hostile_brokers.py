"""Brokers that send nonsense, or nothing, at once: clients slow down and say what is wrong."""

from collections.abc import Mapping
from contextlib import suppress
from typing import cast

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from tests.client.consumer.fetch.test_fetched_batches import encoded
from tests.client.hostile_broker import (
    EMPTY,
    HELLO,
    TOPIC_ID,
    VERSIONS,
    Answer,
    HostileBroker,
    always,
    deceived_client,
    frame_of,
    http,
    metadata_of,
    other_api,
    wrong_id,
)
from tidelog.client.client import Client
from tidelog.client.queue.receive.message import Message
from tidelog.wire.errors import (
    ConnectError,
    DeliveryTimeoutError,
    ErrorCode,
    ErrorDetail,
    ShuttingDownError,
    UnexpectedServerError,
    UnsupportedVersionError,
    WireFormatError,
)
from tidelog.wire.messages.cluster_admin import DescribeClusterReply, NodeDescription
from tidelog.wire.messages.fetch import FetchReply, PartitionFetched
from tidelog.wire.messages.groups import GroupHeartbeatReply
from tidelog.wire.messages.metadata import BrokerAddress, MetadataRequest, PartitionMetadata
from tidelog.wire.messages.offset_ranges import ListOffsetsReply, PartitionOffsets
from tidelog.wire.messages.produce import InitProducerReply
from tidelog.wire.messages.queue_admin import (
    DescribeQueuesReply,
    QueueDescription,
    QueuePartitionDescription,
)
from tidelog.wire.messages.queues import (
    PartitionReceived,
    PeekedRun,
    PeekReply,
    ReceivedRun,
    ReceiveReply,
    Refused,
    SendReply,
    Settled,
    SettleReply,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.connection import Request

FEW = 3
"""Requests per second that are few."""
QUEUE_ID = b"q" * 16
SETTINGS = {"visibility_timeout_ms": "30s", "receive_message_wait_time_ms": "20s"}
LIMITED = {**SETTINGS, "send_rate": "5"}
"""Settings with which the broker inspects messages: they are sent by SEND."""


async def consume(client: Client) -> None:
    async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
        await anext(consumer.records())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (always(["none"]), "FETCH: a message cannot be decoded: Expected `array`, got `str`"),
        (always(7), "FETCH: a message cannot be decoded: Expected `array`, got `int`"),
        (wrong_id, "FETCH: a reply to request [0-9]+, which is not open"),
        (other_api, "FETCH: request [0-9]+ was FETCH, its reply is of API 1"),
        (always(FetchReply([])), "FETCH: .* brought 0 results"),
        (always(FetchReply([PartitionFetched(9, 1, 0)])), "FETCH: .* 9 bytes in 0 bytes"),
        (http, "FETCH: .*the bytes begin with b'HTTP"),
    ],
)
async def test_a_consumer_with_wrong_replies_to_fetches_ends_with_one_error(
    autojump_clock: MockClock, answer: Answer, why: str
) -> None:
    async with deceived_client(autojump_clock) as (client, broker, world):
        broker.answer(api.FETCH, answer)
        began = trio.current_time()

        with pytest.raises(WireFormatError, match=rf"broker:8433 .*{why}"):
            await consume(client)

        assert 10 <= trio.current_time() - began < 15
        assert broker.count(api.FETCH) <= 15 * FEW
        assert len(world.told("client.wrong_reply")) == 1


async def test_a_broker_that_answers_empty_at_once_is_asked_a_few_times_a_second(
    autojump_clock: MockClock,
) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.FETCH, always(EMPTY))

        with trio.move_on_after(20):
            await consume(client)

        assert 20 / 2 <= broker.count(api.FETCH) <= 20 * FEW


async def test_an_answer_that_lists_leaderless_partitions_is_requested_a_few_times_a_second(
    autojump_clock: MockClock,
) -> None:
    def unled(request: Request) -> bytes:
        message = cast("MetadataRequest", request.message)
        return frame_of(request, metadata_of(message, PartitionMetadata(0, None, 1)))

    async with deceived_client(autojump_clock) as (client, broker, _):
        async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            broker.answer(api.METADATA, unled)
            broker.answer(api.FETCH, always(["none"]))
            with trio.move_on_after(20):
                await anext(consumer.records())

        assert broker.count(api.METADATA) <= 20 * 5


async def test_many_calls_to_a_broker_with_wrong_replies_share_its_backoff(
    autojump_clock: MockClock,
) -> None:
    async with deceived_client(autojump_clock) as (client, broker, world):
        broker.answer(api.DESCRIBE_TOPICS, always(7))

        async def ask() -> None:
            with pytest.raises(WireFormatError, match=r"broker:8433 .*DESCRIBE_TOPICS: a message"):
                await client.admin.describe_topics()

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask)

        assert broker.count(api.HELLO) <= 10 * FEW
        assert len(world.told("client.wrong_reply")) == 1


@pytest.mark.parametrize("brokers", [[], [BrokerAddress(1, "elsewhere", 9)]])
async def test_a_leader_that_is_not_announced_is_looked_up_a_few_times_a_second(
    autojump_clock: MockClock, brokers: list[BrokerAddress]
) -> None:
    def unknown(request: Request) -> bytes:
        message = cast("MetadataRequest", request.message)
        return frame_of(
            request, replace(metadata_of(message, PartitionMetadata(0, 9, 1)), brokers=brokers)
        )

    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.METADATA, unknown)
        async with client.consumer("orders") as consumer:
            consumer.seek("orders", 0, 5)
            with trio.move_on_after(20):
                await anext(consumer.records())

        assert broker.count(api.METADATA) <= 20 * 5


async def test_a_consumer_whose_metadata_are_nonsense_ends_with_one_error(
    autojump_clock: MockClock,
) -> None:
    def unled(request: Request) -> bytes:
        message = cast("MetadataRequest", request.message)
        return frame_of(request, metadata_of(message, PartitionMetadata(0, None, 1)))

    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.METADATA, unled)
        async with client.consumer("orders") as consumer:
            consumer.seek("orders", 0, 5)
            broker.answer(api.METADATA, always(7))
            began = trio.current_time()
            with pytest.raises(WireFormatError, match=r"broker:8433 .* METADATA: a message"):
                await anext(consumer.records())

        assert 10 <= trio.current_time() - began < 15


@pytest.mark.parametrize(
    ("fetch_offset", "batches"),
    [(22, encoded(20)), (20, encoded(20) + encoded(10)), (20, encoded(20) + encoded(21))],
)
async def test_a_consumer_that_gets_batches_of_other_offsets_ends_with_one_error(
    autojump_clock: MockClock, fetch_offset: int, batches: bytes
) -> None:
    fetched = FetchReply([PartitionFetched(len(batches), 99, 0)])
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.FETCH, always(fetched, batches))
        async with client.consumer("orders") as consumer:
            consumer.seek("orders", 0, fetch_offset)
            with pytest.raises(WireFormatError, match=r"broker:8433 .*FETCH: orders/0: "):
                await anext(consumer.records())

        assert broker.count(api.FETCH) <= 15 * FEW


async def test_records_of_a_broker_that_repeats_itself_are_handed_out_once(
    autojump_clock: MockClock,
) -> None:
    batch = encoded(20)
    fetched = FetchReply([PartitionFetched(len(batch), 99, 0)])
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.FETCH, always(fetched, batch))
        async with client.consumer("orders") as consumer:
            consumer.seek("orders", 0, 20)
            assert [(await anext(consumer.records())).offset for _ in range(2)] == [20, 21]
            with pytest.raises(WireFormatError, match=r"records before 22 were sent for offset 22"):
                await anext(consumer.records())

        assert broker.count(api.FETCH) <= 15 * FEW


async def test_a_wrong_reply_now_and_then_is_no_error(autojump_clock: MockClock) -> None:
    async with deceived_client(autojump_clock) as (client, broker, world):
        count = 0

        def every_other(request: Request) -> bytes:
            nonlocal count
            count += 1
            return frame_of(request, EMPTY if count % 2 else 7)

        broker.answer(api.FETCH, every_other)
        with trio.move_on_after(50) as waiting:
            await consume(client)

        assert waiting.cancelled_caught
        assert broker.count(api.FETCH) <= 50 * FEW
        assert len(world.told("client.wrong_reply")) == 1


async def test_records_for_a_broker_with_wrong_replies_fail_with_the_reason(
    autojump_clock: MockClock,
) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.INIT_PRODUCER, always(InitProducerReply(7, 0)))
        broker.answer(api.PRODUCE, always(7))
        async with client.producer(delivery_timeout=20) as producer:
            with pytest.raises(DeliveryTimeoutError, match=r"broker:8433 .* PRODUCE: a message"):
                await producer.send("orders", b"value")

        assert broker.count(api.PRODUCE) <= 20 * FEW


async def test_a_producer_that_gets_no_producer_id_fails_its_records_after_request_timeout(
    autojump_clock: MockClock,
) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.INIT_PRODUCER, always(7))
        began = trio.current_time()
        async with client.producer() as producer:
            with pytest.raises(WireFormatError, match=r"broker:8433 .* INIT_PRODUCER: a message"):
                await producer.send("orders", b"value")

        assert trio.current_time() - began < 15
        assert broker.count(api.INIT_PRODUCER) <= 15 * FEW


async def test_a_member_whose_heartbeats_get_wrong_replies_ends_with_one_error(
    autojump_clock: MockClock,
) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        joined = GroupHeartbeatReply(1, 0, 1000, 30_000)
        broker.answer(api.GROUP_HEARTBEAT, always(joined))
        async with client.consumer("orders", group_id="billing") as consumer:
            broker.answer(api.GROUP_HEARTBEAT, always(7))
            began = trio.current_time()
            with pytest.raises(WireFormatError, match=r"broker:8433 .* GROUP_HEARTBEAT: a message"):
                await anext(consumer.records())

            assert trio.current_time() - began < 20
        assert broker.count(api.GROUP_HEARTBEAT) <= 25 * FEW


async def test_a_heartbeat_interval_of_0_is_not_obeyed(autojump_clock: MockClock) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.GROUP_HEARTBEAT, always(GroupHeartbeatReply(1, 0, 0, 30_000)))
        async with client.consumer("orders", group_id="billing") as consumer:
            with trio.move_on_after(10):
                await anext(consumer.records())

        assert broker.count(api.GROUP_HEARTBEAT) <= 10 * 20


async def test_the_description_of_a_queue_is_required(autojump_clock: MockClock) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.DESCRIBE_QUEUES, always(DescribeQueuesReply([])))

        with pytest.raises(WireFormatError, match="DESCRIBE_QUEUES: 0 queues for 1 queues"):
            await client.queue("orders").receive()

        assert broker.count(api.DESCRIBE_QUEUES) <= 15 * FEW


@pytest.mark.parametrize(
    ("minimum", "maximum"), [(99, 100), (3, 2), (-5, 0), (0, 0), (-(1 << 60), -1)]
)
async def test_an_api_of_strange_versions_is_refused_at_once(
    autojump_clock: MockClock, minimum: int, maximum: int
) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        versions = [
            replace(each, min_version=minimum, max_version=maximum)
            if each.api_key == api.FETCH.key
            else each
            for each in VERSIONS
        ]
        broker.answer(api.HELLO, always(replace(HELLO, apis=versions)))
        broker.answer(api.DESCRIBE_TOPICS, always(7))

        with pytest.raises(UnsupportedVersionError, match=f"FETCH {minimum} to {maximum}"):
            await reconnected(client, broker)

        assert broker.count(api.FETCH) == 0


async def reconnected(client: Client, broker: HostileBroker) -> None:
    """Consume over a new connection."""
    async with client.consumer("orders") as consumer:
        consumer.seek("orders", 0, 5)
        broker.break_connections()
        await anext(consumer.records())


def queue_of(*partitions: int, settings: Mapping[str, str] = SETTINGS) -> DescribeQueuesReply:
    found = [QueuePartitionDescription(each, 1, 1, 0, [1], [1]) for each in partitions]
    described = QueueDescription(
        "orders", QUEUE_ID, "orders", TOPIC_ID, False, 0, dict(settings), [], [], found
    )
    return DescribeQueuesReply([described])


@pytest.mark.parametrize(
    ("described", "why"),
    [
        (queue_of(), "'orders' does not have all of its partitions, in order"),
        (queue_of(1), "'orders' does not have all of its partitions, in order"),
        (
            queue_of(0, settings={}),
            "the description of queue 'orders' has no visibility_timeout_ms",
        ),
    ],
)
async def test_a_description_of_a_queue_that_is_incomplete_is_an_error(
    autojump_clock: MockClock, described: DescribeQueuesReply, why: str
) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.DESCRIBE_QUEUES, always(described))

        with pytest.raises(WireFormatError, match=why):
            await client.queue("orders").receive(wait=1)


@pytest.mark.parametrize("partitions", [[], [PartitionMetadata(1, 1, 1)]])
async def test_metadata_without_all_partitions_of_a_topic_are_an_error(
    autojump_clock: MockClock, partitions: list[PartitionMetadata]
) -> None:
    def partial(request: Request) -> bytes:
        return frame_of(request, metadata_of(cast("MetadataRequest", request.message), *partitions))

    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.METADATA, partial)
        async with client.producer() as producer:
            with pytest.raises(WireFormatError, match="METADATA: 'orders' does not have all"):
                await producer.send("orders", b"value")


@pytest.mark.parametrize("wait_s", [0.4, 15.0])
@pytest.mark.parametrize("results", [[], [PartitionReceived(0)]])
async def test_a_queue_that_answers_empty_at_once_is_asked_a_few_times_a_second(
    autojump_clock: MockClock, wait_s: float, results: list[PartitionReceived]
) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.DESCRIBE_QUEUES, always(queue_of(0)))
        broker.answer(api.RECEIVE, always(ReceiveReply(results, 0)))

        with suppress(ShuttingDownError):
            assert await client.queue("orders").receive(wait=wait_s) == []

        assert broker.count(api.RECEIVE) <= 5 + wait_s * FEW


@pytest.mark.parametrize(
    "results",
    [
        [PartitionReceived(0, b"receipt", [ReceivedRun(0, 1 << 40, 1, 0)])],
        [PartitionReceived(0, b"receipt", [ReceivedRun(0, -1, 1, 0)])],
        [PartitionReceived(7, b"receipt", [ReceivedRun(0, 1, 1, 0)])],
        [3],
    ],
)
async def test_a_receiver_with_wrong_replies_ends_with_one_error(
    autojump_clock: MockClock, results: list[PartitionReceived]
) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.DESCRIBE_QUEUES, always(queue_of(0)))
        broker.answer(api.RECEIVE, always(ReceiveReply(results, 0)))

        with pytest.raises(WireFormatError, match=r"broker:8433 .* RECEIVE: "):
            await client.queue("orders").receive(wait=60)

        assert broker.count(api.RECEIVE) <= 70 * FEW


async def test_a_worker_with_wrong_replies_ends_with_one_error(autojump_clock: MockClock) -> None:
    async def handle(message: Message) -> None:
        del message

    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.DESCRIBE_QUEUES, always(queue_of(0)))
        broker.answer(api.RECEIVE, always(7))

        with pytest.raises(WireFormatError, match=r"broker:8433 .* RECEIVE: "):
            await client.queue("orders").work(handle)


@pytest.mark.parametrize("hint_ms", [0, -5, 1, 1 << 62])
async def test_a_strange_hint_of_a_throttling_broker_delays_a_send_until_its_timeout_at_most(
    autojump_clock: MockClock, hint_ms: int
) -> None:
    error = ErrorDetail(int(ErrorCode.THROTTLED), "slow", {"retry_after_ms": hint_ms})
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.DESCRIBE_QUEUES, always(queue_of(0, settings=LIMITED)))
        broker.answer(api.INIT_PRODUCER, always(InitProducerReply(7, 0)))
        broker.answer(api.SEND, refusing(error))

        with pytest.raises(DeliveryTimeoutError):
            await client.queue("orders").send(b"value")

        assert 1 <= broker.count(api.SEND) <= 120 * FEW


async def test_a_throttle_of_centuries_delays_the_next_send_for_request_timeout(
    autojump_clock: MockClock,
) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.DESCRIBE_QUEUES, always(queue_of(0, settings=LIMITED)))
        broker.answer(api.INIT_PRODUCER, always(InitProducerReply(7, 0)))
        broker.answer(api.SEND, always(SendReply([0], [], 1, 0, 1 << 62)))
        queue = client.queue("orders")

        for _ in range(2):
            await queue.send(b"value")

        assert 10 <= trio.current_time() < 12


async def test_a_settlement_refused_for_too_many_messages_fails_with_the_reason(
    autojump_clock: MockClock,
) -> None:
    refused = Refused([(0, 1 << 40)], ErrorDetail(int(ErrorCode.MESSAGE_GONE), "gone"))
    batch = encoded(0)
    received = PartitionReceived(
        0, b"receipt", [ReceivedRun(0, 2, 1, 0)], len(batch), deadline_ms=30_000
    )
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.DESCRIBE_QUEUES, always(queue_of(0)))
        broker.answer(api.RECEIVE, always(ReceiveReply([received], 0), batch))
        broker.answer(api.SETTLE, always(SettleReply([Settled([refused])])))
        message, *_rest = await client.queue("orders").receive(2)

        with pytest.raises(WireFormatError, match=r"SETTLE: a run of 1099511627776 messages"):
            await message.delete()

        assert broker.count(api.SETTLE) <= 15 * FEW


@pytest.mark.parametrize(
    "reply",
    [
        PeekReply([], 0, 0),
        PeekReply([PeekedRun(0, 1 << 40, 0, 0, 0, "", "")], None, 0),
        PeekReply([PeekedRun(0, 1, 99, 0, 0, "", "")], None, 0),
    ],
)
async def test_a_peek_with_a_wrong_reply_ends_with_one_error(
    autojump_clock: MockClock, reply: PeekReply
) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.DESCRIBE_QUEUES, always(queue_of(0)))
        broker.answer(api.PEEK, always(reply))

        with pytest.raises(WireFormatError, match=r"broker:8433 .* PEEK: "):
            await client.queue("orders").peek()

        assert broker.count(api.PEEK) <= 15 * FEW


def refusing(error: ErrorDetail) -> Answer:
    """Return an answer that refuses every request."""
    return lambda request: api.encode_error(
        error,
        api_key=request.api_key,
        api_version=request.version,
        correlation_id=request.correlation_id,
    )


async def test_an_error_of_an_unknown_code_is_raised_at_once(autojump_clock: MockClock) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.FETCH, refusing(ErrorDetail(9999, "\x1b[2J new")))

        with pytest.raises(UnexpectedServerError, match=r"error 9999 .*: \\x1b\[2J new"):
            await consume(client)

        assert trio.current_time() < 1


async def test_the_host_of_a_broker_reaches_the_terminal_printable(
    autojump_clock: MockClock,
) -> None:
    def strange(request: Request) -> bytes:
        message = cast("MetadataRequest", request.message)
        brokers = [BrokerAddress(9, "\x1b[2J", 1)]
        return frame_of(request, replace(metadata_of(message), brokers=brokers))

    node = NodeDescription(9, "\x1b[2J", 1, "", "voter", "alive", 0, 0)
    described = DescribeClusterReply("c", 1, 1, 1, [node], 0, 0, 0, 0, 0, 0, [], [])
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.METADATA, strange)
        broker.answer(api.DESCRIBE_CLUSTER, always(described))

        with pytest.raises(ConnectError) as caught:
            await client.admin.broker_config(9)

        assert r"\x1b[2J:1" in str(caught.value)
        assert str(caught.value).isprintable()


async def test_wrong_replies_to_others_do_not_fail_a_consumer(autojump_clock: MockClock) -> None:
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.FETCH, always(EMPTY))
        broker.answer(api.DESCRIBE_TOPICS, always(7))

        async def describe() -> None:
            while True:
                with suppress(WireFormatError):
                    await client.admin.describe_topics()

        async with client.consumer("orders") as consumer, trio.open_nursery() as nursery:
            consumer.seek("orders", 0, 5)
            nursery.start_soon(describe)
            with trio.move_on_after(40) as waiting:
                await anext(consumer.records())
            nursery.cancel_scope.cancel()

        assert waiting.cancelled_caught
        assert broker.count(api.DESCRIBE_TOPICS) > 30


async def test_a_journal_of_a_newer_version_is_an_error_at_once(autojump_clock: MockClock) -> None:
    batch = encoded(0)
    fetched = FetchReply([PartitionFetched(len(batch), 5, 0)])
    async with deceived_client(autojump_clock) as (client, broker, _):
        broker.answer(api.DESCRIBE_QUEUES, always(queue_of(0)))
        broker.answer(
            api.LIST_OFFSETS, always(ListOffsetsReply([PartitionOffsets(0, 2, 2, True, 0)]))
        )
        broker.answer(api.FETCH, always(fetched, batch))

        with pytest.raises(WireFormatError):
            await client.queue("orders").history()

        assert trio.current_time() < 1
        assert broker.count(api.FETCH) == 1
