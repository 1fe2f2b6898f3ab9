"""Commits of members; the member tests cover more of them."""

import pytest
import trio
from trio.testing import MockClock

from tests.client.group_fixture import consumer_of, group_fixture_of
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


async def test_unchanged_offsets_are_not_committed_again(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        await fixture.produce(3, partition_count=1)
        async with consumer_of(fixture.client, enable_auto_commit=False) as consumer:
            await anext(consumer.records())
            await consumer.commit()
            await consumer.commit()

        asked = [each.key for each in fixture.cluster.fronts[1].asked]
        assert asked.count(api.ApiKey.COMMIT_OFFSETS) == 1


async def test_a_commit_out_of_range_is_refused_with_both_bounds(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        await fixture.produce(3, partition_count=1)
        async with consumer_of(fixture.client, enable_auto_commit=False) as consumer:
            await anext(consumer.records())

            with pytest.raises(OffsetOutOfRangeError) as caught:
                await consumer.commit({("orders", 0): 4})

        assert (caught.value.log_end_offset, caught.value.at) == (3, AT)


async def test_a_commit_is_retried_unchanged_while_the_coordinator_refuses(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        await fixture.produce(3, partition_count=1)
        served = fixture.cluster.answers[api.COMMIT_OFFSETS]  # type: ignore[index]
        sequences: list[int] = []

        async def refuse_twice(node_id: int, message: object) -> object:
            assert isinstance(message, CommitOffsetsRequest)
            sequences.append(message.sequence)
            if len(sequences) == 1:
                raise OverloadedError("later")
            if len(sequences) == 2:
                unknown_end = LeaderNotAvailableError("orders/0 has no leader now")
                return CommitOffsetsReply([PartitionCommitted(None, error=unknown_end.to_wire())])
            return await served(node_id, message)

        fixture.cluster.answers[api.COMMIT_OFFSETS] = refuse_twice  # type: ignore[index]
        async with consumer_of(fixture.client, enable_auto_commit=False) as consumer:
            await anext(consumer.records())
            await consumer.commit()

        assert sequences == [1, 1, 1]
        assert fixture.groups.committed(0) == 1


async def test_commits_of_one_member_do_not_overtake_each_other(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        await fixture.produce(3, partition_count=1)
        under_way = 0

        async def take_time(node_id: int, message: object) -> object:
            nonlocal under_way
            assert isinstance(message, CommitOffsetsRequest)
            assert (node_id, under_way) == (1, 0)
            under_way += 1
            await trio.sleep(1)
            under_way -= 1
            return CommitOffsetsReply([PartitionCommitted(None)])

        async with consumer_of(fixture.client, auto_commit_interval=0.1) as consumer:
            records = consumer.records()
            await anext(records)
            fixture.cluster.answers[api.COMMIT_OFFSETS] = take_time  # type: ignore[index]
            for _ in range(2):
                await anext(records)
                await consumer.commit()


async def test_a_commit_of_a_fenced_member_raises_partition_not_owned(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        await fixture.produce(3, partition_count=1)
        async with consumer_of(fixture.client, enable_auto_commit=False) as consumer:
            records = consumer.records()
            await anext(records)
            (member_id,) = fixture.groups.groups.group("billing").members
            fenced = fixture.groups.groups.fence("billing", member_id, 0)
            fixture.groups.leading.apply(fenced.records, int(trio.current_time() * 1000))

            with pytest.raises(PartitionNotOwnedError, match="took this member for dead"):
                await consumer.commit()

            assert (await anext(records)).offset in {0, 1}
            await trio.sleep(20)
            assert consumer.assignment == [AT]


async def test_processed_records_are_committed_automatically(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        await fixture.produce(5, partition_count=1)
        async with consumer_of(fixture.client, auto_commit_interval=1.0) as consumer:
            records = consumer.records()
            for _ in range(3):
                await anext(records)
            await trio.sleep(2)

            assert fixture.groups.committed(0) == 2  # The third record is in hand.
            await anext(records)

        assert fixture.groups.committed(0) == 3


async def test_a_commit_counts_the_record_in_hand(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        await fixture.produce(5, partition_count=1)
        async with consumer_of(fixture.client, enable_auto_commit=False) as consumer:
            records = consumer.records()
            await anext(records)
            await anext(records)
            assert await consumer.committed() == {TopicPartition("orders", 0): None}

            await consumer.commit()

            assert await consumer.committed([("orders", 0)]) == {TopicPartition("orders", 0): 2}
            await consumer.commit({("orders", 0): 1})
            assert fixture.groups.committed(0) == 1
            await anext(records)

        assert fixture.groups.committed(0) == 1


async def test_an_auto_commit_does_not_revert_a_manual_commit(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        await fixture.produce(5, partition_count=1)
        async with consumer_of(fixture.client, auto_commit_interval=1.0) as consumer:
            await anext(consumer.records())
            await consumer.commit()
            await trio.sleep(5)

            assert fixture.groups.committed(0) == 1

        assert fixture.groups.committed(0) == 1
        assert fixture.groups.moved_back_count == 0


@pytest.mark.parametrize("chosen", [1, 3])
async def test_an_auto_commit_keeps_manually_committed_offsets(
    autojump_clock: MockClock, chosen: int
) -> None:
    """The record in hand is no. 1: the chosen offset is before or after the processed one."""
    async with group_fixture_of(autojump_clock, 1) as fixture:
        await fixture.produce(6, partition_count=1)
        async with consumer_of(fixture.client, auto_commit_interval=0.5) as consumer:
            records = consumer.records()
            await anext(records)
            await anext(records)
            await consumer.commit({("orders", 0): chosen})
            await trio.sleep(5)
            assert fixture.groups.committed(0) == chosen

            for _ in range(3):
                await anext(records)
            await trio.sleep(5)
            assert fixture.groups.committed(0) == 4


async def test_a_batch_counts_as_processed_at_the_next_request(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        async with fixture.client.producer() as producer:
            for _ in range(2):
                await producer.send_many("orders", [b"x", b"y"], partition=0)
        async with consumer_of(fixture.client) as consumer:
            batches = consumer.batches()
            await anext(batches)
            second = await anext(batches)
            consumer.give_back(second.between(3, None))

        assert fixture.groups.committed(0) == 3


async def test_without_auto_commit_nothing_is_committed(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        await fixture.produce(6)
        leave = fixture.start("a", enable_auto_commit=False)
        await trio.sleep(20)
        await leave()

        assert [fixture.groups.committed(number) for number in range(2)] == [None, None]


async def test_the_reset_to_latest_is_committed_before_any_record(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        await fixture.produce(2, partition_count=1)
        async with consumer_of(fixture.client, auto_offset_reset="latest"):
            await trio.sleep(10)
        await fixture.produce(1, partition_count=1)

        async with consumer_of(fixture.client, auto_offset_reset="latest") as consumer:
            record = await anext(consumer.records())

        assert record.offset == 2


async def test_a_cancelled_request_for_a_record_counts_the_last_as_processed(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        await fixture.produce(1, partition_count=1)
        async with consumer_of(fixture.client) as consumer:
            records = consumer.records()
            await anext(records)
            with trio.CancelScope() as scope:
                scope.cancel()
                await anext(records)

        assert fixture.groups.committed(0) == 1


async def test_offsets_of_many_partitions_are_fetched_and_committed_in_several_requests(
    autojump_clock: MockClock,
) -> None:
    count = 1_100
    async with group_fixture_of(autojump_clock, partition_count=count) as fixture:
        await fixture.produce(1, partition_count=count)
        async with consumer_of(fixture.client, enable_auto_commit=False) as consumer:
            await anext(consumer.records())
            await consumer.commit({("orders", number): 0 for number in range(count)})

        asked = [each.key for each in fixture.cluster.fronts[1].asked]
        assert asked.count(api.ApiKey.FETCH_OFFSETS) == 2
        assert asked.count(api.ApiKey.COMMIT_OFFSETS) == 2
        assert {fixture.groups.committed(number) for number in range(count)} == {0}
