"""Members of a group: real clients and the real core of the coordinator, on virtual time."""

from typing import cast

import pytest
import trio
from trio.testing import MockClock

from tests.client.fake_cluster import fronted_client
from tests.client.group_fixture import EARLIEST, consumer_of, every, town_of
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.topic_partition import TopicPartition
from tidelog.coordinator.groups.config import GroupConfig
from tidelog.wire.errors import (
    ConfigError,
    FencedInstanceError,
    InvalidRequestError,
    NoPositionError,
    NotControllerError,
    PartitionNotOwnedError,
)


async def test_a_member_alone_reads_everything(autojump_clock: MockClock) -> None:
    async with town_of(autojump_clock) as town:
        await town.produce(6)
        town.start("a")
        await trio.sleep(10)

        assert town.all_given() == every(2, 6)


async def test_two_members_share_the_partitions(autojump_clock: MockClock) -> None:
    async with town_of(autojump_clock) as town:
        town.start("a")
        town.start("b")
        await trio.sleep(10)
        await town.produce(6)
        await trio.sleep(1)

        assert town.all_given() == every(2, 6)
        assert [len({partition for partition, _ in town.given[name]}) for name in "ab"] == [1, 1]


async def test_when_one_leaves_the_other_takes_over_where_it_was(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock) as town:
        town.start("a")
        leave = town.start("b")
        await trio.sleep(10)
        await town.produce(6)
        await trio.sleep(6)  # An automatic commit later.
        await leave()
        await town.produce(6)
        await trio.sleep(30)

        # The record in hand of whoever waits for the next one is processed: nothing comes twice.
        assert town.all_given() == every(2, 12)


async def test_when_one_dies_the_other_takes_over_after_its_session_and_nothing_is_lost(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock) as town:
        town.start("a")
        async with fronted_client(town.cluster) as doomed:
            consumer = consumer_of(doomed)
            await consumer.__aenter__()
            await trio.sleep(10)
            await town.produce(6)
            async with trio.open_nursery() as nursery:
                with trio.move_on_after(3):
                    while True:
                        await anext(consumer.records())
                nursery.cancel_scope.cancel()
            kill(consumer)
        assert town.all_given() != every(2, 6)
        await trio.sleep(60)

        assert town.all_given() == every(2, 6)
        assert town.groups.fenced == ["session timeout"]


def kill(consumer: Consumer) -> None:
    """End the tasks of a consumer's membership, as its process would."""
    scope = cast("trio.CancelScope", vars(vars(consumer)["_member"])["_scope"])
    scope.cancel()


async def test_a_restart_of_a_static_member_moves_nothing(autojump_clock: MockClock) -> None:
    async with town_of(autojump_clock) as town:
        town.start("a", group_instance_id="one")
        leave = town.start("b", group_instance_id="two")
        await trio.sleep(10)
        before = list(town.groups.owners().values())

        await leave()
        await trio.sleep(20)
        town.start("b", group_instance_id="two")
        await town.produce(6)
        await trio.sleep(10)

        assert list(town.groups.owners().values()) == before
        assert len({partition for partition, _ in town.given["a"]}) == 1
        assert town.all_given() == every(2, 6)


async def test_a_newer_process_of_a_static_member_stops_the_older_one(
    autojump_clock: MockClock,
) -> None:
    async with (
        town_of(autojump_clock) as town,
        consumer_of(town.client, group_instance_id="one") as older,
    ):
        await trio.sleep(10)
        town.start("b", group_instance_id="one")

        with pytest.raises(FencedInstanceError):
            await anext(older.records())


async def test_a_slow_handler_keeps_its_partitions(autojump_clock: MockClock) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        await town.produce(3, partition_count=1)
        town.pace = 60.0  # Longer than a session and than the rebalance timeout.
        town.start("a", rebalance_timeout=20.0)
        await trio.sleep(150)
        assert town.given["a"] == [(0, 0), (0, 1)]

        await trio.sleep(50)

        assert town.groups.fenced == []
        assert town.given["a"] == [(0, 0), (0, 1), (0, 2)]


async def test_a_partition_is_given_on_when_its_slow_handler_is_done(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock) as town:
        await town.produce(2)
        town.pace = 60.0
        town.start("a", rebalance_timeout=20.0)
        await trio.sleep(10)  # It is at work on a record of one partition.

        town.start("b")
        await trio.sleep(200)

        assert town.groups.fenced == []
        assert town.all_given() == every(2, 2)


async def test_a_stuck_handler_is_found_out_and_others_take_over(
    autojump_clock: MockClock,
) -> None:
    config = GroupConfig(max_poll_interval_ms=100_000)
    async with town_of(autojump_clock, partition_count=1, config=config) as town:
        await town.produce(1, partition_count=1)
        lost: list[TopicPartition] = []

        async def note(partitions: list[TopicPartition]) -> None:
            await trio.lowlevel.checkpoint()
            lost.extend(partitions)

        async with consumer_of(town.client, on_lost=note) as stuck:
            await anext(stuck.records())
            town.start("b")
            await trio.sleep(150)

            assert town.groups.fenced == ["max poll interval"]
            assert town.given["b"] == [(0, 0)]
            with pytest.raises(PartitionNotOwnedError, match="while a record of it was in hand"):
                await stuck.commit()
            with trio.move_on_after(30):
                await anext(stuck.records())
            assert lost == [TopicPartition("orders", 0)]


async def test_where_to_begin_without_a_commit_must_be_chosen(autojump_clock: MockClock) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        await town.produce(2, partition_count=1)
        async with consumer_of(town.client, auto_offset_reset=None) as consumer:
            with pytest.raises(NoPositionError):
                await anext(consumer.records())
            consumer.seek("orders", 0, 1)

            record = await anext(consumer.records())

        assert record.offset == 1


async def test_a_coordinator_that_changes_is_followed_without_an_error(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock, node_ids=(1, 2, 3)) as town:
        town.start("a", auto_commit_interval=1.0)
        town.start("b", auto_commit_interval=1.0)
        await trio.sleep(10)
        for number in range(6):
            town.cluster.controller_id = None
            await trio.sleep(2)
            town.groups.fail_over(1 + number % 3)
            await town.produce(2)
            await trio.sleep(10)

        assert town.all_given() == every(2, 12)
        assert town.groups.fenced == []
        assert town.groups.moved_back_count == 0


async def test_a_coordinator_that_stands_still_is_left_before_leases_are_over(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock, node_ids=(1, 2)) as town:
        town.cluster.controller_id = 2
        town.start("a")
        await trio.sleep(10)
        town.cluster.fronts[2].is_frozen = True
        await trio.sleep(3)
        town.groups.fail_over(1)
        await town.produce(2)
        await trio.sleep(25)

        assert town.all_given() == every(2, 2)
        assert town.groups.fenced == []
        assert len(town.groups.groups.group("billing").members) == 1


async def test_without_a_coordinator_records_are_handed_out_for_a_lease_and_no_longer(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        await town.produce(200, partition_count=1)
        town.pace = 1.0
        town.start("a")
        await trio.sleep(10)
        town.cluster.controller_id = None
        lost_at = trio.current_time()
        await trio.sleep(60)
        count = len(town.given["a"])
        assert 30 < count < 50
        await trio.sleep(60)
        assert len(town.given["a"]) == count
        assert trio.current_time() - lost_at == pytest.approx(120)

        town.groups.fail_over(1)
        await trio.sleep(200)

        assert len(town.given["a"]) == 200
        assert town.given["a"] == every(1, 200)


async def test_topics_are_found_by_a_pattern_also_later(autojump_clock: MockClock) -> None:
    async with town_of(autojump_clock) as town:
        consumer = town.client.consumer(group_id="billing", pattern="orders*", **EARLIEST)
        async with consumer:
            await trio.sleep(10)
            assert {at.topic for at in consumer.assignment} == {"orders"}

            await town.client.admin.create_topic("orders-too", 1)
            await town.groups.topics_changed("orders-too")
            await trio.sleep(20)
            assert {at.topic for at in consumer.assignment} == {"orders", "orders-too"}

            consumer.subscribe("orders-too")
            await trio.sleep(20)
            assert {at.topic for at in consumer.assignment} == {"orders-too"}


async def test_the_group_says_what_is_wrong_when_it_is_joined(autojump_clock: MockClock) -> None:
    async with town_of(autojump_clock) as town:
        with pytest.raises(InvalidRequestError, match="is no glob"):
            async with town.client.consumer(group_id="billing", pattern="a+?"):
                pass


async def test_who_cannot_reach_a_coordinator_is_told_so(autojump_clock: MockClock) -> None:
    async with town_of(autojump_clock) as town:
        town.cluster.controller_id = None

        with pytest.raises(NotControllerError):
            async with consumer_of(town.client):
                pass


async def test_a_cancelled_member_commits_and_leaves_all_the_same(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        await town.produce(5, partition_count=1)
        with trio.move_on_after(10):
            async with consumer_of(town.client, auto_commit_interval=1000.0) as consumer:
                async for _ in consumer:
                    pass
        left_at = trio.current_time()
        await trio.sleep(1)

        assert left_at < 12
        assert town.groups.groups.group("billing").members == {}
        assert town.groups.committed(0) == 5


async def test_who_blocks_the_whole_program_says_so_before(autojump_clock: MockClock) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        await town.produce(1, partition_count=1)
        async with consumer_of(town.client) as consumer:
            await anext(consumer.records())

            await consumer.extend_poll_interval(600)

            assert town.groups.heartbeats[-1].busy_for_ms > 590_000


@pytest.mark.parametrize("work_s", [0.3, 3.0, 15.0])
async def test_a_handler_that_never_awaits_does_not_keep_heartbeats_from_going_out(
    autojump_clock: MockClock, work_s: float
) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        async with town.client.producer() as producer:
            await producer.send_many("orders", [b"x"] * 40, partition=0)  # One batch.
        offsets: list[int] = []
        async with consumer_of(town.client) as consumer:
            async for record in consumer:
                autojump_clock.jump(work_s)  # Time goes by, and no other task runs.
                offsets.append(record.offset)
                if record.offset == 39:
                    break

        assert offsets == list(range(40))
        assert town.groups.fenced == []


async def test_a_handler_that_blocks_for_too_long_is_given_nothing_until_it_is_heard_again(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        async with town.client.producer() as producer:
            await producer.send_many("orders", [b"x"] * 3, partition=0)
        async with consumer_of(town.client) as consumer:
            records = consumer.records()
            await anext(records)
            town.cluster.controller_id = None
            autojump_clock.jump(41.0)
            with trio.move_on_after(1) as scope:
                await anext(records)
            assert scope.cancelled_caught

            town.groups.fail_over(1)

            assert (await anext(records)).offset == 1


async def test_an_idle_member_is_not_busy_and_a_working_one_is(autojump_clock: MockClock) -> None:
    async with (
        town_of(autojump_clock, partition_count=1) as town,
        consumer_of(town.client) as consumer,
    ):
        with trio.move_on_after(30):
            await anext(consumer.records())
        assert town.groups.heartbeats[-1].busy_for_ms == 0

        await town.produce(1, partition_count=1)
        await anext(consumer.records())
        await trio.sleep(30)

        assert 0 < town.groups.heartbeats[-1].busy_for_ms < 45_000


async def test_commits_and_assignments_are_for_those_they_are_for(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock) as town:
        async with town.client.consumer("orders", **EARLIEST) as alone:
            with pytest.raises(ConfigError, match="group_id"):
                await alone.commit()
        async with consumer_of(town.client) as member:
            with pytest.raises(ConfigError, match="subscribe"):
                await member.assign([("orders", 0)])
            with pytest.raises(PartitionNotOwnedError):
                await member.commit({("orders", 0): 0})
        with pytest.raises(ConfigError, match="group_id"):
            town.client.consumer("orders", group_instance_id="one")
        with pytest.raises(ConfigError, match="either names of topics or a pattern"):
            town.client.consumer(group_id="billing")
