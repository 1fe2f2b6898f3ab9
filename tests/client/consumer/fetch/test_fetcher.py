"""Fetcher with partitions that are assigned and revoked; see also the consumer and member tests."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.client.clients import orders_client
from tidelog.client.config import ConsumerConfig
from tidelog.client.consumer.fetch.fetcher import Fetcher
from tidelog.client.errors import ClosedError
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import LogTruncatedError, PartitionNotOwnedError

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@asynccontextmanager
async def a_reader(time: MockClock) -> AsyncGenerator[Fetcher, None]:
    """Read two partitions with three records each; both are staged."""
    async with orders_client(time, 2) as client:
        async with client.producer() as producer:
            for partition in range(2):
                await producer.send_many("orders", [b"a", b"b", b"c"], partition=partition)
        cluster = vars(client)["_cluster"]
        reader = Fetcher(cluster, ConsumerConfig(), is_member=True)
        reader.open()
        topic_id = (await cluster.topic("orders")).topic_id
        reader.stage(FIRST, topic_id, 1)
        reader.stage(SECOND, topic_id, 0)
        yield reader
        reader.close()


async def test_a_staged_partition_is_not_read_but_can_be_sought(
    autojump_clock: MockClock,
) -> None:
    async with a_reader(autojump_clock) as reader:
        assert reader.assignment == [FIRST, SECOND]
        assert (reader.position(FIRST), reader.processed(FIRST)) == (1, None)
        with trio.move_on_after(5) as scope:
            await reader.take(None)
        assert scope.cancelled_caught
        reader.seek(FIRST, 2)

        reader.begin([FIRST])

        record = await anext(reader.records(None))
        assert (record.partition, record.offset) == (0, 2)


async def test_a_stopped_partition_hands_out_nothing_and_keeps_its_position(
    autojump_clock: MockClock,
) -> None:
    async with a_reader(autojump_clock) as reader:
        reader.begin([FIRST])
        records = reader.records(None)
        await anext(records)

        reader.stop([FIRST, SECOND])

        assert (reader.position(FIRST), reader.processed(FIRST)) == (2, 1)
        with trio.move_on_after(5):
            await anext(records)
        assert reader.in_flight_partition is None
        assert (reader.processed(FIRST), reader.processed(SECOND)) == (2, 0)
        reader.forget([FIRST, SECOND])
        assert reader.processed(FIRST) is None
        with pytest.raises(ValueError, match="not assigned"):
            reader.position(FIRST)


async def test_a_batch_of_a_lost_partition_cannot_be_acknowledged(
    autojump_clock: MockClock,
) -> None:
    async with a_reader(autojump_clock) as reader:
        reader.begin([FIRST])
        await anext(reader.records(None))
        reader.stop([FIRST])
        reader.forget([FIRST])

        with pytest.raises(PartitionNotOwnedError, match="orders/0 was lost"):
            reader.ack()


async def test_a_rewind_hands_out_the_batch_in_flight_again(
    autojump_clock: MockClock,
) -> None:
    async with a_reader(autojump_clock) as reader:
        reader.begin([SECOND])
        records = reader.records(None)
        await anext(records)
        await anext(records)

        reader.rewind()

        assert reader.in_flight_partition is None
        assert (await anext(records)).offset == 1


async def test_an_interrupt_loses_no_record(autojump_clock: MockClock) -> None:
    async with a_reader(autojump_clock) as reader:
        reader.begin([SECOND])
        found: list[int] = []
        records = reader.records({SECOND: 3})
        async for record in records:
            found.append(record.offset)
            reader.interrupt()

        assert found == [0, 1, 2]


async def test_records_wait_while_may_hand_out_is_false(
    autojump_clock: MockClock,
) -> None:
    async with a_reader(autojump_clock) as reader:
        may = False
        reader.may_hand_out = lambda: may
        reader.begin([FIRST])
        with trio.move_on_after(5) as scope:
            await reader.take(None)
        assert scope.cancelled_caught

        may = True
        reader.wake()

        assert await reader.take(None) is not None


async def test_a_stored_failure_is_raised_by_the_next_read(
    autojump_clock: MockClock,
) -> None:
    async with a_reader(autojump_clock) as reader:
        reader.begin([FIRST])
        reader.failure = ValueError("in a callback")

        with pytest.raises(ValueError, match="in a callback"):
            await reader.take(None)


async def test_a_member_reads_until_the_ends_of_its_current_partitions(
    autojump_clock: MockClock,
) -> None:
    async with a_reader(autojump_clock) as reader:
        reader.begin([FIRST, SECOND])
        records = reader.records({FIRST: 3, SECOND: 3})
        reader.stop([FIRST])

        assert [record.partition async for record in records] == [1, 1, 1]


async def test_a_member_without_partitions_waits_for_an_assignment(
    autojump_clock: MockClock,
) -> None:
    async with a_reader(autojump_clock) as reader, trio.open_nursery() as nursery:

        async def begin_later() -> None:
            await trio.sleep(5)
            reader.begin([FIRST])
            await trio.sleep(5)
            reader.begin([SECOND])

        nursery.start_soon(begin_later)

        found = [record async for record in reader.records({FIRST: 3, SECOND: 3})]

        assert len(found) == 5


async def test_wait_finished_returns_when_the_batch_in_flight_is_processed(
    autojump_clock: MockClock,
) -> None:
    async with a_reader(autojump_clock) as reader, trio.open_nursery() as nursery:
        reader.begin([FIRST])
        records = reader.records(None)
        await anext(records)
        nursery.start_soon(reader.wait_finished)
        await trio.testing.wait_all_tasks_blocked()
        reader.interrupt()

        await anext(records)

        assert reader.in_flight_partition == FIRST


async def test_the_epoch_of_the_last_record_is_known_until_a_stopped_partition_is_forgotten(
    autojump_clock: MockClock,
) -> None:
    async with a_reader(autojump_clock) as reader:
        reader.begin([FIRST])
        await anext(reader.batches(None))
        epoch = reader.leader_epoch_before(FIRST, 3)
        assert epoch is not None

        reader.stop([FIRST])

        assert reader.leader_epoch_before(FIRST, 3) == epoch
        reader.forget([FIRST])
        assert reader.leader_epoch_before(FIRST, 3) is None
        reader.seek(SECOND, 2)
        assert reader.leader_epoch_before(SECOND, 2) is None


async def test_a_partition_that_was_staged_with_an_epoch_is_compared_from_its_start(
    autojump_clock: MockClock,
) -> None:
    async with a_reader(autojump_clock) as reader:
        reader.stage(FIRST, vars(reader)["_staged"][FIRST].topic_id, 1, leader_epoch=-1)
        reader.begin([FIRST])

        with pytest.raises(LogTruncatedError, match="orders/0: 1 offsets, 0 to 1"):
            await reader.take(None)

        reader.seek(FIRST, 1)
        batch = await reader.take(None)
        assert batch is not None
        assert batch.base_offset == 1


async def test_a_read_that_finds_its_end_reached_lets_other_tasks_run(
    autojump_clock: MockClock,
) -> None:
    """A program that asks again and again must not stop all others."""
    async with a_reader(autojump_clock) as reader:
        reader.begin([SECOND])
        ends = {SECOND: 3}
        assert [record.offset async for record in reader.records(ends)] == [0, 1, 2]

        with trio.testing.assert_checkpoints():
            assert await reader.take(ends) is None


async def test_a_read_that_fails_at_once_lets_other_tasks_run(autojump_clock: MockClock) -> None:
    async with a_reader(autojump_clock) as reader:
        reader.failure = ValueError("the group has failed")
        with trio.testing.assert_checkpoints(), pytest.raises(ValueError, match="has failed"):
            await reader.take(None)
        reader.close()
        with trio.testing.assert_checkpoints(), pytest.raises(ClosedError):
            await reader.take(None)
