"""Tests of replicas that are compacted independently, and of followers that return after that."""

from tests.broker.replication.damage import (
    flip,
    is_damaged,
    leave_and_come_back,
    read_all,
    segments,
)
from tests.broker.replication.three_brokers import NODES, TOPIC, ThreeBrokers, live
from tests.coordinator.raft_clients import until
from tests.logstore.keyed_logs import rows_of
from tidelog.client.client import Client
from tidelog.client.producer.producer import Producer
from tidelog.logstore.log import PartitionLog
from tidelog.wire.batch.record_batch import parse_header

KEYS = 5
BEFORE, IN_ALL = 63, 263


async def make_topic(client: Client, **more: str) -> None:
    """Create a topic of states with small segments."""
    config = {
        "cleanup_policy": "compact",
        "segment_bytes": "8KiB",
        "min_cleanable_dirty_ratio": "0",
        **more,
    }
    await client.admin.create_topic(TOPIC, 1, replication_factor=3, config=config)


async def produce(producer: Producer, count: int, *, start: int = 0) -> None:
    """Send states, one in a batch."""
    for number in range(start, start + count):
        key, value = b"key-%d" % (number % KEYS), b"state %d of many" % number
        await producer.send(TOPIC, value + b"." * 400, key=key, partition=0)


async def leave_behind(brokers: ThreeBrokers, client: Client) -> int:
    """Stop a follower, and compact the rest as if it had never existed; return its node id."""
    await make_topic(client)
    async with client.producer() as producer:
        await produce(producer, BEFORE)
        await brokers.all_in_sync()
        await brokers.leads()
        victim = brokers.followers()[0]
        brokers.stop(victim)
        await until(lambda: brokers.machines[victim].process is None)
        await produce(producer, IN_ALL - BEFORE, start=BEFORE)
    leader = await brokers.leads()
    await until(lambda: cleaned_to(brokers, leader) > 150, 120)
    assert any(
        first < BEFORE < last and not count
        for first, last, count in batches_of(log_of(brokers, leader))
    )
    return victim


def log_of(brokers: ThreeBrokers, node_id: int) -> PartitionLog:
    partition = brokers.partition(node_id)
    assert partition is not None
    return partition.log


def cleaned_to(brokers: ThreeBrokers, node_id: int) -> int:
    """Return the clean offset of a replica."""
    partition = brokers.partition(node_id)
    return 0 if partition is None else partition.log.cleaner.clean_offset


def batches_of(log: PartitionLog) -> list[tuple[int, int, int]]:
    """Return base offset, next offset and number of records of each batch."""
    found: list[tuple[int, int, int]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, max_bytes=1 << 20, high_watermark=log.log_end_offset)
        assert part is not None
        data = memoryview(part.load().read())
        while data:
            header = parse_header(data)
            assert header is not None
            found.append((header.base_offset, header.next_offset, header.record_count))
            data = data[header.size :]
        assert found[-1][1] > offset
        offset = found[-1][1]
    return found


async def check_all(brokers: ThreeBrokers, count: int) -> None:
    """Check that all replicas have the newest record of each key, and only sent ones."""
    await brokers.all_in_sync()
    for node_id in NODES:
        rows = rows_of(log_of(brokers, node_id))
        newest = dict(rows.values())
        assert newest == {
            b"key-%d" % (number % KEYS): b"state %d of many" % number + b"." * 400
            for number in range(count - KEYS, count)
        }
        for offset, (key, value) in rows.items():
            assert (value or b"").startswith(b"state %d of" % offset)
            assert key == b"key-%d" % (offset % KEYS)


def test_every_replica_is_compacted_by_itself_and_consumers_see_the_newest_of_each_key() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            async with client.producer() as producer:
                await produce(producer, 200)
            await until(lambda: all(cleaned_to(brokers, node) > 100 for node in NODES), 120)

            await check_all(brokers, 200)
            for node_id in NODES:
                assert len(rows_of(log_of(brokers, node_id))) < 100
            async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
                seen = [await anext(aiter(consumer)) for _ in range(KEYS)]
            assert seen[0].offset > 0, "the oldest states are gone"

        await brokers.with_client(work)

    live(1, main)


def test_a_follower_continues_within_an_empty_batch_of_a_compacted_leader() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            victim = await leave_behind(brokers, client)

            brokers.start(victim)

            await until(lambda: brokers.in_sync() == set(NODES), 60)
            await check_all(brokers, IN_ALL)
            assert not is_damaged(brokers, victim)

        await brokers.with_client(work)

    live(2, main)


def test_a_replica_that_compacted_batches_do_not_fit_into_is_recreated() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            victim = await leave_behind(brokers, client)
            flip(brokers, victim, segments(brokers, victim)[0])

            brokers.start(victim)
            await until(lambda: brokers.in_sync() == set(NODES), 60)
            if read_all(brokers, victim):
                await leave_and_come_back(brokers, victim)

            await check_all(brokers, IN_ALL)

        await brokers.with_client(work)

    live(3, main)
