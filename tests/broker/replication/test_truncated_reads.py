"""Tests of consumers that have read records which an unclean election lost (KIP-320)."""

from contextlib import suppress

import pytest
import trio

from tests.broker.replication.three_brokers import (
    TOPIC,
    Acknowledged,
    ThreeBrokers,
    live,
    make_topic,
    produce,
)
from tests.coordinator.raft_clients import until
from tidelog.client.client import Client
from tidelog.client.config import ConsumerConfig
from tidelog.client.consumer.consumer import Consumer
from tidelog.wire.errors import LogTruncatedError, TidelogError

_KEPT_COUNT, _LOST_COUNT, _NEW_COUNT = 585, 15, 40
_READ_COUNT = _KEPT_COUNT + _LOST_COUNT


async def read(consumer: Consumer, count: int) -> Acknowledged:
    """Return the next records by offset."""
    found: Acknowledged = {}
    async for record in consumer:
        assert record.value is not None
        found[record.offset] = record.value
        if len(found) == count:
            return found
    raise AssertionError("an iteration without an end has ended")


async def write(client: Client, count: int, *, start: int) -> Acknowledged:
    """Write records and return them by offset."""
    async with client.producer() as producer:
        values = [b"order %d" % number for number in range(start, start + count)]
        await producer.send_many(TOPIC, values, partition=0)
    return dict(enumerate(values, start))


async def prepare(brokers: ThreeBrokers, client: Client) -> tuple[int, int]:
    """Write records to two replicas; return their nodes, the leader first."""
    config = {"min_insync_replicas": "1"}
    await client.admin.create_topic(TOPIC, 1, replication_factor=2, config=config)
    await write(client, _KEPT_COUNT, start=0)
    leader = await brokers.leads()
    await until(lambda: len(brokers.in_sync()) == 2, 60)
    (follower,) = brokers.in_sync() - {leader}
    await until(lambda: brokers.end_of(follower) == _KEPT_COUNT, 60)
    return leader, follower


async def write_alone(brokers: ThreeBrokers, client: Client, nodes: tuple[int, int]) -> None:
    """Write records that only the leader has, as the only replica in sync."""
    leader, follower = nodes
    brokers.kill(follower)
    await until(lambda: brokers.in_sync() == {leader}, 60)
    await write(client, _LOST_COUNT, start=_KEPT_COUNT)


async def lose(brokers: ThreeBrokers, client: Client, nodes: tuple[int, int]) -> None:
    """Elect the follower without those records."""
    leader, follower = nodes
    brokers.cut_power(leader)
    brokers.start(follower)
    await until(lambda: brokers.partition(follower) is not None, 60)
    while brokers.leader() != follower:
        with suppress(TidelogError):  # The controller may have been on the lost node.
            await client.admin.elect_leaders([(TOPIC, 0)], accept_data_loss=True)
        await trio.sleep(1)


async def read_and_lose(
    brokers: ThreeBrokers, client: Client, nodes: tuple[int, int], *, consumer: Consumer
) -> None:
    """Let a consumer read all records, of which the cluster then loses the last ones."""
    await read(consumer, _KEPT_COUNT)
    await write_alone(brokers, client, nodes)
    await read(consumer, _LOST_COUNT)
    await lose(brokers, client, nodes)


def test_a_consumer_learns_that_the_offsets_it_has_read_were_given_out_twice() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            nodes = await prepare(brokers, client)
            async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
                await read_and_lose(brokers, client, nodes, consumer=consumer)
                written = await write(client, _NEW_COUNT, start=_KEPT_COUNT)
                with pytest.raises(LogTruncatedError) as caught:
                    await read(consumer, 1)
                error = caught.value
                assert error.at == (TOPIC, 0)
                assert (error.truncated_to, error.fetch_offset) == (_KEPT_COUNT, _READ_COUNT)
                assert "15 offsets, 585 to 600 (exclusive)" in str(error)
                assert consumer.position(TOPIC, 0) == _READ_COUNT
                with pytest.raises(LogTruncatedError):  # Until the application seeks.
                    await read(consumer, 1)

                consumer.seek(TOPIC, 0, error.truncated_to or 0)
                assert await read(consumer, _NEW_COUNT) == written

        await brokers.with_client(work)

    live(1, main)


def test_a_consumer_that_is_idle_learns_of_the_loss_without_new_records() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            nodes = await prepare(brokers, client)
            async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
                await read_and_lose(brokers, client, nodes, consumer=consumer)
                with pytest.raises(LogTruncatedError, match="15 offsets, 585 to 600"):
                    await read(consumer, 1)

        await brokers.with_client(work)

    live(2, main)


def test_a_member_that_begins_at_a_committed_offset_learns_of_the_loss() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            nodes = await prepare(brokers, client)
            await write_alone(brokers, client, nodes)
            member = ConsumerConfig(auto_offset_reset="earliest")
            async with client.consumer(TOPIC, group_id="billing", config=member) as consumer:
                await read(consumer, _READ_COUNT)
                await consumer.commit()
            await lose(brokers, client, nodes)
            await write(client, _NEW_COUNT, start=_KEPT_COUNT)

            async with client.consumer(TOPIC, group_id="billing", config=member) as consumer:
                with pytest.raises(LogTruncatedError) as caught:
                    await read(consumer, 1)
            assert caught.value.truncated_to == _KEPT_COUNT

        await brokers.with_client(work)

    live(3, main)


def test_consumers_at_or_before_the_truncation_learn_nothing() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            nodes = await prepare(brokers, client)
            async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
                old = await read(consumer, _KEPT_COUNT - 1)
                await write_alone(brokers, client, nodes)
                consumer.seek(TOPIC, 0, _KEPT_COUNT - 1)  # Drops the prefetch.
                old |= await read(consumer, 1)
                await lose(brokers, client, nodes)
                new = await write(client, _NEW_COUNT, start=_KEPT_COUNT)
                consumer.seek(TOPIC, 0, 0)
                assert await read(consumer, _KEPT_COUNT + _NEW_COUNT) == old | new

        await brokers.with_client(work)

    live(4, main)


def test_a_clean_election_and_a_deletion_are_no_truncation() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            await make_topic(client)
            async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
                for number in range(4):
                    await brokers.all_in_sync()
                    written = await write(client, 10, start=10 * number)
                    assert await read(consumer, 10) == written
                    if number == 2:
                        await client.admin.delete_records(TOPIC, 0, None)
                    leader = await brokers.leads()
                    brokers.kill(leader)
                    await brokers.leads(other_than=leader)
                    brokers.start(leader)

        await brokers.with_client(work)

    live(5, main)


def test_a_consumer_learns_of_records_that_a_power_cut_took_from_memory() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        async def work(client: Client) -> None:
            config = {"durability": "replicated"}
            await client.admin.create_topic(TOPIC, 1, replication_factor=1, config=config)
            count = len(await produce(client, 100))
            leader = await brokers.leads()
            async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
                await read(consumer, count)
                brokers.cut_power(leader)
                brokers.start(leader)
                await brokers.leads()
                kept = brokers.end_of(leader)
                assert kept < count
                await write(client, count, start=kept)
                with pytest.raises(LogTruncatedError) as caught:
                    await read(consumer, 1)
                assert (caught.value.truncated_to, caught.value.fetch_offset) == (kept, count)

        await brokers.with_client(work)

    live(6, main, log_flush_interval_ms=60_000)
