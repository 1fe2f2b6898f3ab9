"""Producer with a real broker, on virtual time."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import submit
from tests.broker.world import ADDRESS, START_MS, World
from tests.client.clients import client_of, orders_client
from tidelog.client.client import Client, connect
from tidelog.client.consumer.fetch.record import Record
from tidelog.client.producer.partitioner import partition_for_key
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.client.producer.receipt import Receipt
from tidelog.wire.batch.record_batch import COLUMNAR_COUNT_MIN, parse_header
from tidelog.wire.errors import (
    DeliveryTimeoutError,
    RecordTooLargeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.produce import AckLevel
from tidelog.wire.protocol import api


async def everything(client: Client) -> list[Record]:
    async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
        ends = await consumer.end_offsets()
        return [record async for record in consumer.records(ends)]


async def test_a_receipt_has_the_offset_and_the_ack_level(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock, 3) as client:
        async with client.producer() as producer:
            receipt = await producer.send(
                "orders", b"v", key=b"k", headers=[("h", b"x")], timestamp_ms=START_MS + 5
            )

        (record,) = await everything(client)
        assert receipt.partition == partition_for_key(b"k", 3) == record.partition
        assert (receipt.offset, receipt.ack_level) == (0, AckLevel.DURABLE)
        assert (record.value, record.key, record.headers) == (b"v", b"k", (("h", b"x"),))
        assert record.timestamp_ms == receipt.timestamp_ms == START_MS + 5


async def test_a_record_without_a_timestamp_gets_the_time_of_sending(
    autojump_clock: MockClock,
) -> None:
    async with orders_client(autojump_clock, 3) as client:
        async with client.producer() as producer:
            receipt = await producer.send("orders", b"v")

        (record,) = await everything(client)
        assert record.timestamp_ms == receipt.timestamp_ms
        assert 0 <= record.timestamp_ms - START_MS < 60_000


async def test_records_of_one_key_stay_in_order(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock, 3) as client:
        keys = [b"a", b"b", b"c"]
        async with client.producer() as producer:
            for number in range(300):
                producer.send_nowait("orders", b"%d" % number, key=keys[number % 3])
            await producer.flush()

        records = await everything(client)
        assert len(records) == 300
        for place, key in enumerate(keys):
            values = [int(record.value or b"") for record in records if record.key == key]
            assert values == list(range(place, 300, 3))


async def test_records_without_a_key_are_spread(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock, 3) as client:
        async with client.producer(batch_size=1000) as producer:
            for _ in range(300):
                producer.send_nowait("orders", b"v" * 50)
            await producer.flush()

        partitions = [record.partition for record in await everything(client)]
        assert min(partitions.count(partition) for partition in range(3)) > 50


async def test_receipts_of_many_cover_all_of_them(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock, 3) as client:
        values = [b"%d" % number for number in range(100)]
        keys = [b"k%d" % (number % 7) for number in range(100)]
        async with client.producer() as producer:
            receipts = await producer.send_many("orders", values, keys=keys)

        found = {
            (record.partition, record.offset): record.value for record in await everything(client)
        }
        places: list[int] = []
        for receipt in receipts:
            assert receipt.offset is not None
            for step, index in enumerate(receipt.indexes):
                assert found[receipt.partition, receipt.offset + step] == values[index]
                places.append(index)
        assert sorted(places) == list(range(100))


async def test_long_batches_are_columnar_as_soon_as_the_cluster_accepts_them(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    values = [b"%d" % number for number in range(COLUMNAR_COUNT_MIN)]
    async with client_of(world) as client, world.client() as raw:
        topic = (await client.admin.create_topic("orders")).topic_id
        while not (await client.admin.describe_features()).level:  # noqa: ASYNC110 (in the broker)
            await trio.sleep(0.1)
        async with client.producer() as producer:
            await producer.send_many("orders", values)
            await producer.send_many("orders", values[1:])
        async with client.producer(acks=0) as producer:
            await producer.send_many("orders", values)

        found: list[int] = []
        offset, request = 0, FetchRequest(0, 1, 1 << 20, [PartitionFetch(topic, 0, 0, 1 << 20)])
        while offset < 3 * len(values) - 1:
            _, data = await submit(raw, api.FETCH, request).reply_and_attachment()
            found, position = [], 0
            while position < len(data):
                header = parse_header(data, position)
                assert header is not None
                found.append(header.format_version)
                position, offset = position + header.size, header.next_offset
        assert found == [2, 1, 1]
        assert [record.value for record in await everything(client)] == values + values[1:] + values


async def test_batches_that_a_leader_refuses_by_their_format_stay_in_order_and_come_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(autojump_clock)
    values = [b"%d" % number for number in range(5 * COLUMNAR_COUNT_MIN)]
    address = "{}:{}".format(*ADDRESS)
    async with world.broker() as broker, connect(address, env=world.env) as client:
        await client.admin.create_topic("orders")
        while not (await client.admin.describe_features()).level:  # noqa: ASYNC110 (in the broker)
            await trio.sleep(0.1)
        assert broker._cluster is not None
        state = broker._cluster.metadata.state
        async with client.producer() as producer, trio.open_nursery() as nursery:
            await producer.send("orders", b"before")  # It asks for the metadata.
            monkeypatch.setattr(state, "_feature_level", 5)
            nursery.start_soon(producer.send_many, "orders", values)
            await trio.sleep(0.05)
            for number in range(3):
                nursery.start_soon(producer.send, "orders", b"after %d" % number)
                await trio.sleep(1)
            assert [record.value for record in await everything(client)] == [b"before"]
            monkeypatch.setattr(state, "_feature_level", 6)

        after = [b"after %d" % number for number in range(3)]
        found = [record.value for record in await everything(client)]
        assert found == [b"before", *values, *after]


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
async def test_compressed_records_are_read_as_they_were_sent(
    autojump_clock: MockClock, compression: str
) -> None:
    async with orders_client(autojump_clock, 3) as client:
        values: Sequence[bytes] = [b"the same again " * 20] * 50
        async with client.producer(compression_type=compression) as producer:  # type: ignore[arg-type]
            await producer.send_many("orders", values)

        assert [record.value for record in await everything(client)] == values


async def test_a_full_buffer_blocks_until_there_is_room(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock, 3) as client:
        async with client.producer(buffer_memory=10_000, batch_size=1000) as producer:
            sent, why = 0, ""
            while sent < 1000:
                try:
                    producer.send_nowait("orders", b"v" * 100)
                except trio.WouldBlock as error:
                    why = str(error)
                    break
                sent += 1
            await producer.wait_writable()
            producer.send_nowait("orders", b"v" * 100)
            await producer.flush()
            assert producer.statistics().buffered_bytes == 0

        assert 10 < sent < 100
        assert "no room for a record of 140 bytes" in why
        assert "buffer_memory=10000 are free; call wait_writable" in why
        assert len(await everything(client)) == sent + 1


async def test_with_acks_0_the_offset_is_unknown(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock, 3) as client:
        async with client.producer(acks=0) as producer:
            receipt = await producer.send("orders", b"v")

        assert (receipt.offset, receipt.ack_level) == (None, None)


async def test_sending_to_an_unknown_topic_fails(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock, 3) as client, client.producer() as producer:
        with pytest.raises(UnknownTopicError, match="nope"):
            await producer.send("nope", b"v")


async def test_a_record_goes_to_the_topic_that_another_client_has_recreated(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with (
        client_of(world) as client,
        connect("{}:{}".format(*ADDRESS), env=world.env) as other,
        client.producer() as producer,
        other.producer() as producer_of_other,
    ):
        await other.admin.create_topic("orders")
        before = await producer.send("orders", b"before")
        await other.admin.delete_topic("orders")
        await other.admin.create_topic("orders")

        after = await producer.send("orders", b"after")

        of_other = await producer_of_other.send("orders", b"other")
        (many,) = await producer.send_records("orders", [ProducerRecord("orders", b"many")])
        assert after.topic_id == of_other.topic_id != before.topic_id
        assert isinstance(many, Receipt)
        assert many.topic_id == after.topic_id
        assert (after.offset, of_other.offset, many.offset) == (0, 1, 2)


async def test_flush_raises_the_failure_of_a_send_nowait(
    autojump_clock: MockClock,
) -> None:
    async with orders_client(autojump_clock, 3) as client, client.producer() as producer:
        producer.send_nowait("nope", b"v")

        with pytest.raises(UnknownTopicError):
            await producer.flush()


async def test_the_end_of_the_block_raises_the_failure_of_a_send_nowait(
    autojump_clock: MockClock,
) -> None:
    async with orders_client(autojump_clock, 3) as client:
        with pytest.raises(UnknownTopicError):
            async with client.producer() as producer:
                producer.send_nowait("nope", b"v")


async def test_an_unknown_partition_is_refused(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock, 3) as client, client.producer() as producer:
        with pytest.raises(UnknownPartitionError):
            await producer.send("orders", b"v", partition=3)


async def test_a_record_above_max_message_bytes_fails_alone(
    autojump_clock: MockClock,
) -> None:
    async with orders_client(autojump_clock, 3) as client:
        async with client.producer() as producer:
            with pytest.raises(RecordTooLargeError):
                await producer.send("orders", b"x" * (2 << 20), partition=0)
            receipt = await producer.send("orders", b"v", partition=0)

        assert receipt.offset == 0


async def test_an_undeliverable_record_fails_after_delivery_timeout(
    autojump_clock: MockClock,
) -> None:
    world = World(autojump_clock)
    async with client_of(world) as client:
        await client.admin.create_topic("orders", 1)
        world.work.hold_syncs()
        async with client.producer(delivery_timeout=5.0) as producer:
            with pytest.raises(DeliveryTimeoutError):
                await producer.send("orders", b"v")
        world.work.let_all_sync()


async def test_a_closed_producer_says_how_to_open_one(autojump_clock: MockClock) -> None:
    async with orders_client(autojump_clock, 3) as client:
        producer = client.producer()

        with pytest.raises(trio.ClosedResourceError, match="async with"):
            await producer.flush()


async def test_each_record_of_a_call_has_its_own_outcome(autojump_clock: MockClock) -> None:
    async with (
        orders_client(autojump_clock, 2) as client,
        client.producer(batch_size=500, buffer_memory=2_000) as producer,
    ):
        small = [
            ProducerRecord("orders", b"%d" % n, partition=n % 2, headers=(("n", b"%d" % n),))
            for n in range(40)
        ]
        huge = ProducerRecord("orders", b"x" * 3_000)

        results = await producer.send_records("orders", [*small[:20], huge, *small[20:]])

        failure = results.pop(20)
        assert isinstance(failure, RecordTooLargeError)
        places = [(each.partition, each.offset) for each in results if isinstance(each, Receipt)]
        assert places == [(n % 2, n // 2) for n in range(40)]
        assert await producer.send_records("orders", []) == []
        assert producer.statistics().unsettled_record_count == 0
