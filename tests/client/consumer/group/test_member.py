"""Members of a group: real clients and the real core of the coordinator, on virtual time."""

from typing import cast

import pytest
import trio
from trio.testing import MockClock

from tests.client.fake_cluster import fronted_client
from tests.client.group_fixture import EARLIEST, consumer_of, every, group_fixture_of
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
    async with group_fixture_of(autojump_clock) as fixture:
        await fixture.produce(6)
        fixture.start("a")
        await trio.sleep(10)

        assert fixture.all_given() == every(2, 6)


async def test_two_members_share_the_partitions(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        fixture.start("a")
        fixture.start("b")
        await trio.sleep(10)
        await fixture.produce(6)
        await trio.sleep(1)

        assert fixture.all_given() == every(2, 6)
        assert [len({partition for partition, _ in fixture.given[name]}) for name in "ab"] == [1, 1]


async def test_after_a_leave_the_other_member_continues_at_the_committed_offset(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        fixture.start("a")
        leave = fixture.start("b")
        await trio.sleep(10)
        await fixture.produce(6)
        await trio.sleep(6)  # Longer than the interval of automatic commits.
        await leave()
        await fixture.produce(6)
        await trio.sleep(30)

        # A request for the next record counts the last one as processed: no record is repeated.
        assert fixture.all_given() == every(2, 12)


async def test_after_a_crash_the_other_member_takes_over_when_the_session_expires(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        fixture.start("a")
        async with fronted_client(fixture.cluster) as doomed:
            consumer = consumer_of(doomed)
            await consumer.__aenter__()
            await trio.sleep(10)
            await fixture.produce(6)
            async with trio.open_nursery() as nursery:
                with trio.move_on_after(3):
                    while True:
                        await anext(consumer.records())
                nursery.cancel_scope.cancel()
            kill(consumer)
        assert fixture.all_given() != every(2, 6)
        await trio.sleep(60)

        assert fixture.all_given() == every(2, 6)
        assert fixture.groups.fenced == ["session timeout"]


def kill(consumer: Consumer) -> None:
    """End the tasks of a consumer's membership, as its process would."""
    scope = cast("trio.CancelScope", vars(vars(consumer)["_member"])["_scope"])
    scope.cancel()


async def test_a_restart_of_a_static_member_moves_nothing(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        fixture.start("a", group_instance_id="one")
        leave = fixture.start("b", group_instance_id="two")
        await trio.sleep(10)
        before = list(fixture.groups.owners().values())

        await leave()
        await trio.sleep(20)
        fixture.start("b", group_instance_id="two")
        await fixture.produce(6)
        await trio.sleep(10)

        assert list(fixture.groups.owners().values()) == before
        assert len({partition for partition, _ in fixture.given["a"]}) == 1
        assert fixture.all_given() == every(2, 6)


async def test_a_newer_process_of_a_static_member_stops_the_older_one(
    autojump_clock: MockClock,
) -> None:
    async with (
        group_fixture_of(autojump_clock) as fixture,
        consumer_of(fixture.client, group_instance_id="one") as older,
    ):
        await trio.sleep(10)
        fixture.start("b", group_instance_id="one")

        with pytest.raises(FencedInstanceError):
            await anext(older.records())


async def test_a_slow_handler_keeps_its_partitions(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        await fixture.produce(3, partition_count=1)
        fixture.pace = 60.0  # Longer than a session and than the rebalance timeout.
        fixture.start("a", rebalance_timeout=20.0)
        await trio.sleep(150)
        assert fixture.given["a"] == [(0, 0), (0, 1)]

        await trio.sleep(50)

        assert fixture.groups.fenced == []
        assert fixture.given["a"] == [(0, 0), (0, 1), (0, 2)]


async def test_a_revoked_partition_is_released_when_its_slow_handler_is_done(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        await fixture.produce(2)
        fixture.pace = 60.0
        fixture.start("a", rebalance_timeout=20.0)
        await trio.sleep(10)  # The handler works on a record of one partition.

        fixture.start("b")
        await trio.sleep(200)

        assert fixture.groups.fenced == []
        assert fixture.all_given() == every(2, 2)


async def test_a_member_with_a_stuck_handler_is_fenced(
    autojump_clock: MockClock,
) -> None:
    config = GroupConfig(max_poll_interval_ms=100_000)
    async with group_fixture_of(autojump_clock, partition_count=1, config=config) as fixture:
        await fixture.produce(1, partition_count=1)
        lost: list[TopicPartition] = []

        async def note(partitions: list[TopicPartition]) -> None:
            await trio.lowlevel.checkpoint()
            lost.extend(partitions)

        async with consumer_of(fixture.client, on_lost=note) as stuck:
            await anext(stuck.records())
            fixture.start("b")
            await trio.sleep(150)

            assert fixture.groups.fenced == ["max poll interval"]
            assert fixture.given["b"] == [(0, 0)]
            with pytest.raises(PartitionNotOwnedError, match="while a record of it was in hand"):
                await stuck.commit()
            with trio.move_on_after(30):
                await anext(stuck.records())
            assert lost == [TopicPartition("orders", 0)]


async def test_a_member_without_committed_offset_and_reset_raises_no_position(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        await fixture.produce(2, partition_count=1)
        async with consumer_of(fixture.client, auto_offset_reset=None) as consumer:
            with pytest.raises(NoPositionError):
                await anext(consumer.records())
            consumer.seek("orders", 0, 1)

            record = await anext(consumer.records())

        assert record.offset == 1


async def test_a_coordinator_failover_is_followed_without_an_error(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock, node_ids=(1, 2, 3)) as fixture:
        fixture.start("a", auto_commit_interval=1.0)
        fixture.start("b", auto_commit_interval=1.0)
        await trio.sleep(10)
        for number in range(6):
            fixture.cluster.controller_id = None
            await trio.sleep(2)
            fixture.groups.fail_over(1 + number % 3)
            await fixture.produce(2)
            await trio.sleep(10)

        assert fixture.all_given() == every(2, 12)
        assert fixture.groups.fenced == []
        assert fixture.groups.moved_back_count == 0


async def test_a_hanging_coordinator_is_replaced_before_leases_expire(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock, node_ids=(1, 2)) as fixture:
        fixture.cluster.controller_id = 2
        fixture.start("a")
        await trio.sleep(10)
        fixture.cluster.fronts[2].is_frozen = True
        await trio.sleep(3)
        fixture.groups.fail_over(1)
        await fixture.produce(2)
        await trio.sleep(25)

        assert fixture.all_given() == every(2, 2)
        assert fixture.groups.fenced == []
        assert len(fixture.groups.groups.group("billing").members) == 1


async def test_without_a_coordinator_records_are_handed_out_until_the_lease_ends(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        await fixture.produce(200, partition_count=1)
        fixture.pace = 1.0
        fixture.start("a")
        await trio.sleep(10)
        fixture.cluster.controller_id = None
        lost_at = trio.current_time()
        await trio.sleep(60)
        count = len(fixture.given["a"])
        assert 30 < count < 50
        await trio.sleep(60)
        assert len(fixture.given["a"]) == count
        assert trio.current_time() - lost_at == pytest.approx(120)

        fixture.groups.fail_over(1)
        await trio.sleep(200)

        assert len(fixture.given["a"]) == 200
        assert fixture.given["a"] == every(1, 200)


async def test_a_pattern_matches_later_topics(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        consumer = fixture.client.consumer(group_id="billing", pattern="orders*", **EARLIEST)
        async with consumer:
            await trio.sleep(10)
            assert {at.topic for at in consumer.assignment} == {"orders"}

            await fixture.client.admin.create_topic("orders-too", 1)
            await fixture.groups.topics_changed("orders-too")
            await trio.sleep(20)
            assert {at.topic for at in consumer.assignment} == {"orders", "orders-too"}

            consumer.subscribe("orders-too")
            await trio.sleep(20)
            assert {at.topic for at in consumer.assignment} == {"orders-too"}


async def test_joining_with_an_invalid_pattern_is_refused(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        with pytest.raises(InvalidRequestError, match="is no glob"):
            async with fixture.client.consumer(group_id="billing", pattern="a+?"):
                pass


async def test_joining_without_a_coordinator_fails(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        fixture.cluster.controller_id = None

        with pytest.raises(NotControllerError):
            async with consumer_of(fixture.client):
                pass


async def test_a_cancelled_member_commits_and_leaves(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        await fixture.produce(5, partition_count=1)
        with trio.move_on_after(10):
            async with consumer_of(fixture.client, auto_commit_interval=1000.0) as consumer:
                async for _ in consumer:
                    pass
        left_at = trio.current_time()
        await trio.sleep(1)

        assert left_at < 12
        assert fixture.groups.groups.group("billing").members == {}
        assert fixture.groups.committed(0) == 5


async def test_extend_poll_interval_keeps_a_blocking_member(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        await fixture.produce(1, partition_count=1)
        async with consumer_of(fixture.client) as consumer:
            await anext(consumer.records())

            await consumer.extend_poll_interval(600)

            assert fixture.groups.heartbeats[-1].busy_for_ms > 590_000


@pytest.mark.parametrize("work_s", [0.3, 3.0, 15.0])
async def test_heartbeats_continue_with_a_handler_that_never_awaits(
    autojump_clock: MockClock, work_s: float
) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        async with fixture.client.producer() as producer:
            await producer.send_many("orders", [b"x"] * 40, partition=0)  # One batch.
        offsets: list[int] = []
        async with consumer_of(fixture.client) as consumer:
            async for record in consumer:
                autojump_clock.jump(work_s)  # Time passes without any other task running.
                offsets.append(record.offset)
                if record.offset == 39:
                    break

        assert offsets == list(range(40))
        assert fixture.groups.fenced == []


async def test_a_member_that_blocked_too_long_gets_no_records_until_its_next_heartbeat(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        async with fixture.client.producer() as producer:
            await producer.send_many("orders", [b"x"] * 3, partition=0)
        async with consumer_of(fixture.client) as consumer:
            records = consumer.records()
            await anext(records)
            fixture.cluster.controller_id = None
            autojump_clock.jump(41.0)
            with trio.move_on_after(1) as scope:
                await anext(records)
            assert scope.cancelled_caught

            fixture.groups.fail_over(1)

            assert (await anext(records)).offset == 1


async def test_an_idle_member_is_not_busy_and_a_working_one_is(autojump_clock: MockClock) -> None:
    async with (
        group_fixture_of(autojump_clock, partition_count=1) as fixture,
        consumer_of(fixture.client) as consumer,
    ):
        with trio.move_on_after(30):
            await anext(consumer.records())
        assert fixture.groups.heartbeats[-1].busy_for_ms == 0

        await fixture.produce(1, partition_count=1)
        await anext(consumer.records())
        await trio.sleep(30)

        assert 0 < fixture.groups.heartbeats[-1].busy_for_ms < 45_000


async def test_group_calls_require_a_group_and_assign_refuses_one(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        async with fixture.client.consumer("orders", **EARLIEST) as alone:
            with pytest.raises(ConfigError, match="group_id"):
                await alone.commit()
        async with consumer_of(fixture.client) as member:
            with pytest.raises(ConfigError, match="subscribe"):
                await member.assign([("orders", 0)])
            with pytest.raises(PartitionNotOwnedError):
                await member.commit({("orders", 0): 0})
        with pytest.raises(ConfigError, match="group_id"):
            fixture.client.consumer("orders", group_instance_id="one")
        with pytest.raises(ConfigError, match="either names of topics or a pattern"):
            fixture.client.consumer(group_id="billing")
