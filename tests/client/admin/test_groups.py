"""Groups as administrators see and move them."""

import pytest
import trio
from trio.testing import MockClock

from tests.client.group_fixture import consumer_of, town_of
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
    async with town_of(autojump_clock) as town:
        assert await town.client.admin.list_groups() == []
        town.start("a")
        await trio.sleep(20)

        (found,) = await town.client.admin.list_groups()

        assert (found.group_id, found.state, found.member_count) == ("billing", "stable", 1)
        assert await town.client.admin.list_groups(["empty"]) == []


async def test_a_description_says_who_reads_what_and_how_far_behind(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock) as town:
        await town.produce(6)
        async with consumer_of(town.client, group_instance_id="one") as consumer:
            await anext(consumer.records())
            await consumer.commit()

            group = await town.client.admin.describe_group("billing")

        (member,) = group.members
        assert (group.group_id, group.state, group.assignor) == ("billing", "stable", "uniform")
        assert (member.instance_id, member.topics) == ("one", ("orders",))
        assert member.assigned == (FIRST, SECOND)
        assert [each.at for each in group.partitions] == [FIRST, SECOND]
        assert sum(each.lag_records or 0 for each in group.partitions) == 5
        assert {each.member_id for each in group.partitions} == {member.member_id}


async def test_a_group_that_is_not_there_cannot_be_described(autojump_clock: MockClock) -> None:
    async with town_of(autojump_clock) as town:
        with pytest.raises(UnknownGroupError):
            await town.client.admin.describe_group("nobody")


async def test_a_group_is_moved_while_nobody_reads(autojump_clock: MockClock) -> None:
    async with town_of(autojump_clock) as town:
        admin = town.client.admin
        await town.produce(6)

        there = await admin.reset_offsets("billing", "orders", "latest")
        back = await admin.reset_offsets("billing", [("orders", 1)], ("shift", -2))
        would = await admin.reset_offsets("billing", "orders", "earliest", validate_only=True)
        exact = await admin.reset_offsets("billing", [("orders", 0)], ("offset", 1))

        assert there == {FIRST: OffsetMove(None, 3), SECOND: OffsetMove(None, 3)}
        assert back == {SECOND: OffsetMove(3, 1)}
        assert would == {FIRST: OffsetMove(3, 0), SECOND: OffsetMove(1, 0)}
        assert exact == {FIRST: OffsetMove(3, 1)}
        assert [town.groups.committed(number) for number in range(2)] == [1, 1]


async def test_a_group_that_reads_is_not_moved_and_not_deleted(autojump_clock: MockClock) -> None:
    async with town_of(autojump_clock) as town:
        leave = town.start("a")
        await trio.sleep(10)
        with pytest.raises(GroupNotEmptyError):
            await town.client.admin.reset_offsets("billing", "orders", "earliest")
        with pytest.raises(GroupNotEmptyError):
            await town.client.admin.delete_group("billing")
        await leave()

        assert await town.client.admin.delete_group("billing")
        assert not await town.client.admin.delete_group("billing")


async def test_what_leads_nowhere_is_refused_and_nothing_is_moved(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock) as town:
        admin = town.client.admin
        with pytest.raises(OffsetOutOfRangeError):
            await admin.reset_offsets("billing", "orders", ("offset", 99))
        with pytest.raises(InvalidRequestError, match="to shift"):
            await admin.reset_offsets("billing", "orders", ("shift", 1))
        with pytest.raises(UnknownPartitionError):
            await admin.reset_offsets("billing", [("orders", 9)], "latest")

        assert await admin.list_groups() == []


async def test_a_reset_is_repeated_while_an_end_cannot_be_learned(
    autojump_clock: MockClock,
) -> None:
    async with town_of(autojump_clock, partition_count=1) as town:
        served = town.cluster.answers[api.RESET_OFFSETS]  # type: ignore[index]
        attempt_count = 0

        async def refuse_once(node_id: int, message: object) -> object:
            nonlocal attempt_count
            attempt_count += 1
            if attempt_count > 1:
                return await served(node_id, message)
            error = LeaderNotAvailableError("nobody leads orders/0 now").to_wire()
            return ResetOffsetsReply([PartitionWasReset(None, None, error)])

        town.cluster.answers[api.RESET_OFFSETS] = refuse_once  # type: ignore[index]

        moved = await town.client.admin.reset_offsets("billing", "orders", "latest")

        assert (moved, attempt_count) == ({FIRST: OffsetMove(None, 0)}, 2)


ORDERS, GONE = b"o" * 16, b"g" * 16


def test_ids_become_names_and_the_order_is_theirs() -> None:
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
