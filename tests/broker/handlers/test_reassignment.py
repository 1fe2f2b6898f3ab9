"""Tests of REASSIGN: replicas move at the request of an administrator to any node."""

import pytest

from tests.broker.handlers.test_cluster import create, partition
from tests.coordinator.raft_clients import until
from tests.coordinator.test_node import Member, live_brokers, play, three
from tests.simulation.machine.world import World
from tidelog.broker.handlers.reassignment import ReassignmentHandler
from tidelog.wire.errors import (
    ErrorCode,
    InvalidRequestError,
    InvalidTopicError,
    UnknownTopicError,
)
from tidelog.wire.messages.reassignment import PartitionMove, PartitionMoved, ReassignRequest


async def moved(member: Member, request: ReassignRequest) -> list[PartitionMoved]:
    """Have one node move replicas, as soon as it knows the topic."""
    await until(lambda: bool(member.node.metadata.state.catalog.topics))
    return (await ReassignmentHandler(member.node).reassign(request)).results


def to(replicas: list[int] | None, *, topic: str = "orders", number: int = 0) -> ReassignRequest:
    return ReassignRequest([PartitionMove(topic, number, replicas)], [])


def test_a_reassignment_can_be_started_and_cancelled_through_any_node() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        await create(members[0], [1, 2])
        asked = next(member for member in members if not member.node.raft.is_leader)

        (result,) = await moved(asked, to([3, 2]))

        assert result == PartitionMoved("orders", 0, [1, 2], [3, 2], is_under_way=True)
        assert partition(asked).adding_replicas == (3,)
        (again,) = await moved(asked, to([3, 2]))
        assert again.is_under_way
        (cancelled,) = await moved(asked, to(None))
        assert (sorted(cancelled.replicas), cancelled.is_under_way) == ([1, 2], False)

    play(story)


def test_reordering_the_replicas_copies_nothing() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        await create(members[0], [1, 2])

        (result,) = await moved(members[1], to([2, 1]))

        assert (result.replicas, result.is_under_way) == ([2, 1], False)

    play(story)


def test_plan_only_changes_nothing() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        await create(members[0], [1], [1], [1])

        plan = await moved(members[2], ReassignRequest([], [], plan_only=True))

        assert [each.replicas for each in plan] in ([[2], [3]], [[3], [2]])
        assert [partition(members[2], number).replicas for number in range(3)] == [(1,)] * 3

    play(story)


def test_a_leaving_node_loses_its_replicas() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        await create(members[0], [1, 2], [2, 3], [3, 1])

        results = await moved(members[1], ReassignRequest([], [3]))

        assert sorted(each.partition for each in results) == [1, 2]
        assert all(3 not in each.replicas for each in results)

    play(story)


def test_impossible_reassignments_are_refused_with_a_reason() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        await create(members[0], [1, 2])

        with pytest.raises(UnknownTopicError):
            await moved(members[0], to([1], topic="nope"))
        (nowhere,) = await moved(members[0], to([1], number=7))
        assert nowhere.error is not None
        assert nowhere.error.code == ErrorCode.UNKNOWN_PARTITION
        (unknown,) = await moved(members[0], to([9]))
        assert unknown.error is not None
        assert "9" in unknown.error.message
        with pytest.raises(InvalidRequestError, match="there is no broker 9; there are 1, 2, 3"):
            await moved(members[0], ReassignRequest([], [9]))
        both = ReassignRequest([PartitionMove("orders", 0, [1])], [2])
        with pytest.raises(InvalidRequestError, match="named or planned, not both"):
            await moved(members[0], both)
        with pytest.raises(InvalidRequestError, match="must be 1 to 10000"):
            await moved(members[0], ReassignRequest([], [], max_replicas=0))

    play(story)


def test_a_replacement_broker_gets_the_replicas_of_a_lost_one() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        await create(members[0], [1, 2], [3, 1])
        members[2].stop()
        await until(lambda: 3 not in live_brokers(members[0]))

        results = await moved(members[0], ReassignRequest([], [3], replacement=2))

        assert [(each.partition, each.replicas) for each in results] == [(1, [2, 1])]
        assert partition(members[0], 1).adding_replicas == (2,)

    play(story)


def test_a_live_broker_is_not_replaced_and_a_fenced_one_replaces_none() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        await create(members[0], [1, 2])
        members[2].stop()
        await until(lambda: 3 not in live_brokers(members[0]))

        for request, complaint in [
            (ReassignRequest([], [2], replacement=1), "broker 2 is alive .* broker drain 2"),
            (ReassignRequest([], [3], replacement=9), "there is no broker 9"),
            (ReassignRequest([], [3], replacement=3), "names one lost broker and another"),
            (ReassignRequest([], [], replacement=1), "names one lost broker and another"),
        ]:
            with pytest.raises(InvalidRequestError, match=complaint):
                await moved(members[0], request)

    play(story)


def factor(number: int, *topics: str, plan_only: bool = False) -> ReassignRequest:
    return ReassignRequest(
        [], [], plan_only=plan_only, replication_factor=number, topics=list(topics) or None
    )


def test_topics_get_more_replicas_through_any_node() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        await create(members[0], [1, 2], [3, 2])

        plan = await moved(members[2], factor(3, "orders", plan_only=True))
        assert [each.replicas for each in plan] == [[1, 2, 3], [3, 2, 1]]
        assert partition(members[2]).replicas == (1, 2)
        results = await moved(members[2], factor(3, "orders"))

        assert results == [
            PartitionMoved("orders", 0, [1, 2], [1, 2, 3], is_under_way=True),
            PartitionMoved("orders", 1, [3, 2], [3, 2, 1], is_under_way=True),
        ]
        again = await moved(members[1], factor(3))
        assert [(each.partition, each.is_under_way) for each in again] == [(0, True), (1, True)]

    play(story)


def test_topics_get_fewer_replicas_at_once_and_only_if_they_are_named() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        await create(members[0], [1, 2], [3, 2])

        assert await moved(members[0], factor(1)) == []
        results = await moved(members[0], factor(1, "orders"))

        assert [(each.replicas, each.is_under_way) for each in results] == [
            ([1], False),
            ([3], False),
        ]

    play(story)


def test_impossible_replication_factors_are_refused_and_nothing_changes() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        await create(members[0], [1, 2])

        with pytest.raises(InvalidTopicError, match=r"'orders' cannot have 4 replicas: .* is 3;"):
            await moved(members[1], factor(4, "orders"))
        with pytest.raises(UnknownTopicError):
            await moved(members[1], factor(3, "orders", "nope"))
        for request in (
            ReassignRequest([], [3], replication_factor=3),
            ReassignRequest([PartitionMove("orders", 0, [1])], [], replication_factor=3),
        ):
            with pytest.raises(InvalidRequestError, match="not both in one request"):
                await moved(members[1], request)
        with pytest.raises(InvalidRequestError, match="without their new replication factor"):
            await moved(members[1], ReassignRequest([], [], topics=["orders"]))
        assert partition(members[1]).replicas == (1, 2)

    play(story)
