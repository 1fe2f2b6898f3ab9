"""Tests of TOPIC_USAGE: any broker answers, with the disk usage that each leader reports."""

from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, create_topic, delete_records, produce, submit
from tests.broker.replication.three_brokers import NODES, TOPIC, ThreeBrokers, live, make_topic
from tests.broker.world import START_MS, World
from tidelog.client.client import Client
from tidelog.logstore.retention.ingest_rate import SHORTEST_MS
from tidelog.wire.messages.topic_usage import TopicUsage, TopicUsageRequest
from tidelog.wire.protocol import api

PARTITIONS = 6


async def test_topic_usage_has_growth_rate_and_age_of_a_log(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker(), world.client() as client:
        topic = await create_topic(client, segment_bytes="4096")
        for number in range(6):
            await produce(client, topic, batch_of(bytes(2000), at_ms=START_MS + number))
        await delete_records(client, topic, 1)
        world.clock.offset_ms += SHORTEST_MS

        request = TopicUsageRequest(["orders"])
        (usage,) = (await submit(client, api.TOPIC_USAGE, request).reply()).topics

    (partition,) = usage.partitions
    assert (partition.partition, partition.leader_id) == (0, 1)
    assert (partition.log_start_offset, partition.high_watermark) == (1, 6)
    assert partition.segment_count > 1
    assert partition.size_bytes > 6 * 2000
    assert partition.oldest_ms == START_MS + 1
    assert partition.ingest_bytes_per_day is not None
    assert partition.ingest_bytes_per_day > 1000 * 2000
    assert partition.ingest_offsets_per_day is not None
    assert partition.ingest_offsets_per_day > 1000


def test_every_broker_reports_the_usage_of_all_leaders_that_answer() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> list[TopicUsage]:
            await make_topic(client, PARTITIONS)
            async with client.producer() as producer:
                for number in range(PARTITIONS):
                    await producer.send(TOPIC, b"v", partition=number, timestamp_ms=number)
            return await client.admin.topic_usage([TOPIC])

        (usage,) = await brokers.with_client(work)

        assert usage.replication_factor == len(NODES)
        assert [each.partition for each in usage.partitions] == list(range(PARTITIONS))
        assert [each.oldest_ms for each in usage.partitions] == list(range(PARTITIONS))
        assert {each.leader_id for each in usage.partitions} == set(NODES)

    live(3, main)
