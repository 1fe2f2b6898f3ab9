"""Tests of the traffic of partitions: what clients wrote and read, and nothing else."""

import pytest
from trio.testing import MockClock

from tests.broker.broker_requests import batch_of, create_topic, fetch, produce, submit_fetch
from tests.broker.queues.queue_requests import create_queue, outgoing, receive, send, topic_of
from tests.broker.replication.three_brokers import NODES, ThreeBrokers, live, make_topic
from tests.broker.replication.three_brokers import produce as produce_by_client
from tests.broker.world import World
from tests.simulation.transactions.requests import begin, commit, replica, stage
from tidelog.broker.metrics.object_counts import ObjectCounts
from tidelog.broker.metrics.topic_totals import TopicTotals
from tidelog.broker.partitions.traffic import PartitionTraffic
from tidelog.client.client import Client
from tidelog.wire.batch.record_batch import header_of
from tidelog.wire.errors import OutOfOrderSequenceError
from tidelog.wire.messages.transactions import StagedPart


def counts(traffic: PartitionTraffic) -> tuple[int, int, int, int]:
    """Return received batches, records and bytes, and refused batches."""
    return (
        traffic.received_batches,
        traffic.received_records,
        traffic.received_bytes,
        traffic.refused_batches,
    )


async def test_appended_batches_count_but_duplicates_do_not(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client)
        batch = batch_of(b"a", b"b", producer_id=7)
        traffic = replica(broker).traffic
        assert counts(traffic) == (0, 0, 0, 0)

        await produce(client, topic, batch)
        await produce(client, topic, batch)

        assert counts(traffic) == (1, 2, len(batch), 0)


async def test_a_refused_batch_counts_apart(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client)
        await produce(client, topic, batch_of(b"a", producer_id=7))
        before = counts(replica(broker).traffic)

        with pytest.raises(OutOfOrderSequenceError):
            await produce(client, topic, batch_of(b"c", producer_id=7, sequence=5))

        assert counts(replica(broker).traffic) == (*before[:3], 1)


async def test_replies_to_consumers_count_by_their_bytes(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic = await create_topic(client)
        batch = batch_of(b"a", b"b")
        await produce(client, topic, batch)

        await fetch(client, topic)
        await fetch(client, topic)
        await submit_fetch(client, [(topic, 0, 2)]).reply.reply()

        traffic = replica(broker).traffic
        assert (traffic.sent_replies, traffic.sent_bytes) == (2, 2 * len(batch))


async def test_sends_and_receives_of_a_queue_count_at_its_topic(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        queue = await create_queue(broker, is_fifo=True)
        size = len(outgoing(queue, (b"a", "1"), (b"b", "2")))

        await send(client, queue, (b"a", "1"), (b"b", "2"))
        await send(client, queue, (b"a", "1"))
        assert len(await receive(client, queue)) == 2

        partitions = broker._partitions  # pyright: ignore[reportPrivateUsage]
        assert partitions is not None
        source = partitions.replica(topic_of(broker), 0)
        journal = partitions.replica(queue, 0)
        assert source is not None
        assert journal is not None
        assert counts(source.traffic) == (1, 2, size, 0)
        assert (source.traffic.sent_replies, source.traffic.sent_bytes) == (1, size)
        assert counts(journal.traffic) == (0, 0, 0, 0)


async def test_records_of_a_transaction_count_when_they_are_appended(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        topic_id = await create_topic(client)
        begun = await begin(client)
        piece = await stage(client, replica(broker, "staged@orders"), begun.number, b"a", b"b")
        assert counts(replica(broker).traffic) == (0, 0, 0, 0)

        await commit(client, begun.number, StagedPart(topic_id, 0, [piece]))

        assert counts(replica(broker).traffic)[:2] == (1, 2)


def test_replication_does_not_count_at_leader_or_followers() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            await produce_by_client(client, 5)

        await brokers.with_client(work)
        await brokers.all_in_sync()
        leader = await brokers.leads()
        for node in NODES:
            found = brokers.partition(node)
            assert found is not None
            assert found.traffic.received_records == (5 if node == leader else 0)
            assert found.traffic.sent_replies == 0

    live(1, main)


def test_a_header_gives_the_size_and_the_records() -> None:
    batch = batch_of(b"a", b"b", b"c")
    traffic = PartitionTraffic(ObjectCounts(TopicTotals), "orders")

    traffic.received(header_of(batch))

    assert counts(traffic) == (1, 3, len(batch), 0)
