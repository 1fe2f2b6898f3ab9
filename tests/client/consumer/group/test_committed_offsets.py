"""Commits of members; more of them is shown by members as a whole."""

import pytest
import trio
from trio.testing import MockClock

from tests.client.group_fixture import consumer_of, town_of
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import (
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    OverloadedError,
    PartitionNotOwnedError,
)
from tidelog.wire.messages.groups import (
    CommitOffsetsReply,
    CommitOffsetsRequest,
    PartitionCommitted,
)
from tidelog.wire.protocol import api

AT = TopicPartition("orders", 0)


async def test_what_did_not_change_is_not_committed_again(autojump_clock: MockClock) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        await town.produce(3, partition_count=1)
        async with consumer_of(town.client, enable_auto_commit=False) as consumer:
            await anext(consumer.records())
            await consumer.commit()
            await consumer.commit()

        asked = [each.key for each in town.cluster.fronts[1].asked]
        assert asked.count(api.ApiKey.COMMIT_OFFSETS) == 1


async def test_an_offset_that_is_not_in_the_log_is_refused_with_both_bounds(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        await town.produce(3, partition_count=1)
        async with consumer_of(town.client, enable_auto_commit=False) as consumer:
            await anext(consumer.records())

            with pytest.raises(OffsetOutOfRangeError) as caught:
                await consumer.commit({("orders", 0): 4})

        assert (caught.value.log_end_offset, caught.value.at) == (3, AT)


async def test_a_commit_is_repeated_as_it_was_while_the_coordinator_cannot_take_it(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        await town.produce(3, partition_count=1)
        served = town.cluster.answers[api.COMMIT_OFFSETS]  # type: ignore[index]
        sequences: list[int] = []

        async def refuse_twice(node_id: int, message: object) -> object:
            assert isinstance(message, CommitOffsetsRequest)
            sequences.append(message.sequence)
            if len(sequences) == 1:
                raise OverloadedError("later")
            if len(sequences) == 2:
                unknown_end = LeaderNotAvailableError("nobody leads orders/0 now")
                return CommitOffsetsReply([PartitionCommitted(None, error=unknown_end.to_wire())])
            return await served(node_id, message)

        town.cluster.answers[api.COMMIT_OFFSETS] = refuse_twice  # type: ignore[index]
        async with consumer_of(town.client, enable_auto_commit=False) as consumer:
            await anext(consumer.records())
            await consumer.commit()

        assert sequences == [1, 1, 1]
        assert town.groups.committed(0) == 1


async def test_commits_of_one_member_do_not_overtake_each_other(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        await town.produce(3, partition_count=1)
        under_way = 0

        async def take_time(node_id: int, message: object) -> object:
            nonlocal under_way
            assert isinstance(message, CommitOffsetsRequest)
            assert (node_id, under_way) == (1, 0)
            under_way += 1
            await trio.sleep(1)
            under_way -= 1
            return CommitOffsetsReply([PartitionCommitted(None)])

        async with consumer_of(town.client, auto_commit_interval=0.1) as consumer:
            records = consumer.records()
            await anext(records)
            town.cluster.answers[api.COMMIT_OFFSETS] = take_time  # type: ignore[index]
            for _ in range(2):
                await anext(records)
                await consumer.commit()


async def test_a_member_that_was_fenced_is_told_that_others_have_its_partitions(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        await town.produce(3, partition_count=1)
        async with consumer_of(town.client, enable_auto_commit=False) as consumer:
            records = consumer.records()
            await anext(records)
            (member_id,) = town.groups.groups.group("billing").members
            fenced = town.groups.groups.fence("billing", member_id, 0)
            town.groups.leading.apply(fenced.records, int(trio.current_time() * 1000))

            with pytest.raises(PartitionNotOwnedError, match="took this member for dead"):
                await consumer.commit()

            assert (await anext(records)).offset in {0, 1}
            await trio.sleep(20)
            assert consumer.assignment == [AT]


async def test_what_was_asked_past_is_committed_by_itself(autojump_clock: MockClock) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        await town.produce(5, partition_count=1)
        async with consumer_of(town.client, auto_commit_interval=1.0) as consumer:
            records = consumer.records()
            for _ in range(3):
                await anext(records)
            await trio.sleep(2)

            assert town.groups.committed(0) == 2  # The third is in hand.
            await anext(records)

        assert town.groups.committed(0) == 3


async def test_a_commit_counts_the_record_in_hand(autojump_clock: MockClock) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        await town.produce(5, partition_count=1)
        async with consumer_of(town.client, enable_auto_commit=False) as consumer:
            records = consumer.records()
            await anext(records)
            await anext(records)
            assert await consumer.committed() == {TopicPartition("orders", 0): None}

            await consumer.commit()

            assert await consumer.committed([("orders", 0)]) == {TopicPartition("orders", 0): 2}
            await consumer.commit({("orders", 0): 1})
            assert town.groups.committed(0) == 1
            await anext(records)

        assert town.groups.committed(0) == 1


async def test_an_automatic_commit_does_not_take_back_what_was_vouched_for(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        await town.produce(5, partition_count=1)
        async with consumer_of(town.client, auto_commit_interval=1.0) as consumer:
            await anext(consumer.records())
            await consumer.commit()
            await trio.sleep(5)

            assert town.groups.committed(0) == 1

        assert town.groups.committed(0) == 1
        assert town.groups.moved_back_count == 0


@pytest.mark.parametrize("chosen", [1, 3])
async def test_an_automatic_commit_does_not_move_what_was_committed_by_hand(
    autojump_clock: MockClock, chosen: int
) -> None:
    """The record in hand is no. 1: what was chosen is before what is processed, or behind it."""
    async with town_of(autojump_clock, 1) as town:
        await town.produce(6, partition_count=1)
        async with consumer_of(town.client, auto_commit_interval=0.5) as consumer:
            records = consumer.records()
            await anext(records)
            await anext(records)
            await consumer.commit({("orders", 0): chosen})
            await trio.sleep(5)
            assert town.groups.committed(0) == chosen

            for _ in range(3):
                await anext(records)
            await trio.sleep(5)
            assert town.groups.committed(0) == 4


async def test_a_batch_counts_as_processed_when_the_next_one_is_asked_for(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        async with town.client.producer() as producer:
            for _ in range(2):
                await producer.send_many("orders", [b"x", b"y"], partition=0)
        async with consumer_of(town.client) as consumer:
            batches = consumer.batches()
            await anext(batches)
            second = await anext(batches)
            consumer.give_back(second.between(3, None))

        assert town.groups.committed(0) == 3


async def test_without_automatic_commits_nothing_is_committed(autojump_clock: MockClock) -> None:
    async with town_of(autojump_clock) as town:
        await town.produce(6)
        leave = town.start("a", enable_auto_commit=False)
        await trio.sleep(20)
        await leave()

        assert [town.groups.committed(number) for number in range(2)] == [None, None]


async def test_the_end_that_was_chosen_is_committed_before_any_record_comes(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        await town.produce(2, partition_count=1)
        async with consumer_of(town.client, auto_offset_reset="latest"):
            await trio.sleep(10)
        await town.produce(1, partition_count=1)

        async with consumer_of(town.client, auto_offset_reset="latest") as consumer:
            record = await anext(consumer.records())

        assert record.offset == 2


async def test_who_asks_for_the_next_record_has_processed_the_last_one_also_if_cancelled(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        await town.produce(1, partition_count=1)
        async with consumer_of(town.client) as consumer:
            records = consumer.records()
            await anext(records)
            with trio.CancelScope() as scope:
                scope.cancel()
                await anext(records)

        assert town.groups.committed(0) == 1
