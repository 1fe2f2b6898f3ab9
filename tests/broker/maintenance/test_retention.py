"""Tests of the logs that count towards `log_retention_disk_bytes`."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, create_topic, produce
from tests.broker.queues.queue_requests import create_queue, topic_of
from tests.broker.world import START_MS, World
from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.maintenance.retention import Retention
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.server import Broker
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.transport.rpc import RpcConnection


def retention_of(world: World, broker: Broker, *, max_bytes: int) -> Retention:
    """Return the retention of a broker with such a limit."""
    assert broker._partitions is not None
    config = BrokerConfig(log_retention_disk_bytes=max_bytes)
    return Retention(
        world.env, lambda: config, broker._partitions, group_commit=broker._group_commit
    )


def partition_of(broker: Broker, topic: bytes) -> Partition:
    assert broker._partitions is not None
    partition = broker._partitions.replica(topic, 0)
    assert partition is not None
    return partition


async def fill(client: RpcConnection, topic: bytes, count: int) -> None:
    for _ in range(count):
        await produce(client, topic, batch_of(b"a" * 2000))


async def test_compacted_topics_and_journals_do_not_count_towards_the_limit(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client, segment_bytes="4KiB")
        kept = await create_topic(client, "kept", cleanup_policy="compact")
        columns = Columns(1, keys=[b"k"], values=[b"a" * 9000])
        await produce(client, kept, encode_batch(columns, first_timestamp_ms=START_MS))
        await create_queue(broker)
        await fill(client, topic, 3)
        source = partition_of(broker, topic_of(broker))

        retention = retention_of(world, broker, max_bytes=1)
        retention.begin_round()

        assert set(retention._wanted) == {source.key}


async def test_without_a_disk_limit_no_segment_is_deleted(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client, segment_bytes="4KiB")
        await fill(client, topic, 3)

        retention = retention_of(world, broker, max_bytes=0)
        retention.begin_round()

        assert retention._wanted == {}
