"""Administration of consumer groups."""

import pytest
import trio
from trio.testing import MockClock

from tests.client.group_fixture import consumer_of, group_fixture_of
from tidelog.client.admin.groups import OffsetMove, describe
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import (
    GroupNotEmptyError,
    InvalidRequestError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    UnknownGroupError,
    UnknownPartitionError,
)
from tidelog.wire.messages import groups
from tidelog.wire.messages.groups import PartitionWasReset, ResetOffsetsReply
from tidelog.wire.protocol import api

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


async def test_groups_are_listed_with_their_state(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        assert await fixture.client.admin.list_groups() == []
        fixture.start("a")
        await trio.sleep(20)

        (found,) = await fixture.client.admin.list_groups()

        assert (found.group_id, found.state, found.member_count) == ("billing", "stable", 1)
        assert await fixture.client.admin.list_groups(["empty"]) == []


async def test_a_group_description_has_assignments_and_lag(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        await fixture.produce(6)
        async with consumer_of(fixture.client, group_instance_id="one") as consumer:
            await anext(consumer.records())
            await consumer.commit()

            group = await fixture.client.admin.describe_group("billing")

        (member,) = group.members
        assert (group.group_id, group.state, group.assignor) == ("billing", "stable", "uniform")
        assert (member.instance_id, member.topics) == ("one", ("orders",))
        assert member.assigned == (FIRST, SECOND)
        assert [each.at for each in group.partitions] == [FIRST, SECOND]
        assert sum(each.lag_records or 0 for each in group.partitions) == 5
        assert {each.member_id for each in group.partitions} == {member.member_id}


async def test_describing_an_unknown_group_fails(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        with pytest.raises(UnknownGroupError):
            await fixture.client.admin.describe_group("unknown")


async def test_offsets_of_an_empty_group_are_reset(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        admin = fixture.client.admin
        await fixture.produce(6)

        there = await admin.reset_offsets("billing", "orders", "latest")
        back = await admin.reset_offsets("billing", [("orders", 1)], ("shift", -2))
        would = await admin.reset_offsets("billing", "orders", "earliest", validate_only=True)
        exact = await admin.reset_offsets("billing", [("orders", 0)], ("offset", 1))

        assert there == {FIRST: OffsetMove(None, 3), SECOND: OffsetMove(None, 3)}
        assert back == {SECOND: OffsetMove(3, 1)}
        assert would == {FIRST: OffsetMove(3, 0), SECOND: OffsetMove(1, 0)}
        assert exact == {FIRST: OffsetMove(3, 1)}
        assert [fixture.groups.committed(number) for number in range(2)] == [1, 1]


async def test_settings_of_a_group_are_changed_and_described(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        admin = fixture.client.admin

        first = await admin.alter_group("billing", set={"owner": "a b", "alert_lag": 300})
        second = await admin.alter_group(
            "billing", set={"alert_lag_records": 7}, reset=["alert_lag"]
        )
        group = await admin.describe_group("billing")

        assert first == {"owner": "a b", "alert_lag_ms": "300000ms", "alert_lag_records": "none"}
        assert second == {"owner": "a b", "alert_lag_ms": "none", "alert_lag_records": "7"}
        assert group.config == second
        assert group.config_overrides == ("alert_lag_records", "owner")


async def test_a_group_with_members_is_neither_reset_nor_deleted(autojump_clock: MockClock) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        leave = fixture.start("a")
        await trio.sleep(10)
        with pytest.raises(GroupNotEmptyError):
            await fixture.client.admin.reset_offsets("billing", "orders", "earliest")
        with pytest.raises(GroupNotEmptyError):
            await fixture.client.admin.delete_group("billing")
        await leave()

        assert await fixture.client.admin.delete_group("billing")
        assert not await fixture.client.admin.delete_group("billing")


async def test_an_invalid_offset_reset_moves_nothing(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock) as fixture:
        admin = fixture.client.admin
        with pytest.raises(OffsetOutOfRangeError):
            await admin.reset_offsets("billing", "orders", ("offset", 99))
        with pytest.raises(InvalidRequestError, match="to shift"):
            await admin.reset_offsets("billing", "orders", ("shift", 1))
        with pytest.raises(UnknownPartitionError):
            await admin.reset_offsets("billing", [("orders", 9)], "latest")

        assert await admin.list_groups() == []


async def test_an_offset_reset_is_retried_while_a_log_end_is_unknown(
    autojump_clock: MockClock,
) -> None:
    async with group_fixture_of(autojump_clock, partition_count=1) as fixture:
        served = fixture.cluster.answers[api.RESET_OFFSETS]  # type: ignore[index]
        attempt_count = 0

        async def refuse_once(node_id: int, message: object) -> object:
            nonlocal attempt_count
            attempt_count += 1
            if attempt_count > 1:
                return await served(node_id, message)
            error = LeaderNotAvailableError("orders/0 has no leader now").to_wire()
            return ResetOffsetsReply([PartitionWasReset(None, None, error)])

        fixture.cluster.answers[api.RESET_OFFSETS] = refuse_once  # type: ignore[index]

        moved = await fixture.client.admin.reset_offsets("billing", "orders", "latest")

        assert (moved, attempt_count) == ({FIRST: OffsetMove(None, 0)}, 2)


ORDERS, GONE = b"o" * 16, b"g" * 16


def test_topic_ids_become_names_in_sorted_order() -> None:
    member = groups.DescribedMember(
        "m", "app", None, 0, 7, "unrevoked", groups.Subscription(pattern="ord*"),
        [groups.TopicPartitions(ORDERS, [2, 1])], [groups.TopicPartitions(GONE, [0])], [],
    )  # fmt: skip
    progress = [
        groups.PartitionProgress(ORDERS, number, "m", 5, 0, 9, 4, 1_000, 7) for number in (2, 1)
    ]
    found = groups.DescribedGroup("billing", "stable", "range", 8, 7, [member], progress)

    described = describe(found, {ORDERS: "orders"})

    assert (described.group_epoch, described.target_epoch, described.assignor) == (8, 7, "range")
    assert [each.at for each in described.partitions] == [("orders", 1), ("orders", 2)]
    assert described.partitions[0].lag_records == 4
    assert described.members[0].assigned == (
        TopicPartition("orders", 1),
        TopicPartition("orders", 2),
    )
    assert described.members[0].revoking == (TopicPartition(GONE.hex(), 0),)
    assert (described.members[0].pattern, described.members[0].topics) == ("ord*", ())
