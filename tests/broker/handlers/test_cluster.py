"""Tests of cluster descriptions and elections, requested from any node."""

from typing import Final

import pytest
import trio

from tests.coordinator.raft_clients import until
from tests.coordinator.test_node import (
    Member,
    live_brokers,
    play,
    three,
    voters,
)
from tests.simulation.machine.world import World
from tidelog.broker.handlers import cluster as handlers
from tidelog.broker.handlers.cluster import ClusterHandler
from tidelog.client.admin.cluster_health import ClusterSeverity, cluster_health
from tidelog.coordinator.metadata.broker_sessions import SESSION_MS
from tidelog.coordinator.metadata.commands import CreateQueue, CreateReplicatedTopic
from tidelog.coordinator.metadata.records import PartitionRegistration
from tidelog.wire.errors import (
    ErrorCode,
    InvalidRequestError,
    NotControllerError,
    UnknownTopicError,
)
from tidelog.wire.messages.cluster_admin import (
    AlterClusterConfigRequest,
    DescribeClusterReply,
    DescribeClusterRequest,
    ElectLeadersRequest,
    LeaderElected,
    TopicToElect,
    UnregisterBrokerRequest,
)
from tidelog.wire.messages.reassignment import DrainBrokerRequest

TOPIC_ID: Final = b"orders of a test"
START_MS: Final = 1_500_000_000_000


async def create(member: Member, *replicas: list[int]) -> None:
    """Create a topic with these replicas."""
    command = CreateReplicatedTopic(
        "orders", TOPIC_ID, len(replicas), {}, assignment=list(replicas)
    )
    await member.node.command_client.submit(command, timeout_s=20)


def partition(member: Member, number: int = 0) -> PartitionRegistration:
    """Return a partition in the metadata of one node."""
    found = member.node.metadata.state.partition(TOPIC_ID, number)
    assert found is not None
    return found


def described(member: Member, *, with_partitions: bool = True) -> DescribeClusterReply:
    """Have one node describe the cluster."""
    request = DescribeClusterRequest(with_partitions)
    return ClusterHandler(member.node).describe(request, memoryview(b""))


async def elected(
    member: Member, *numbers: int, accept_data_loss: bool = False
) -> list[LeaderElected]:
    """Elect leaders through one node; for the whole cluster without numbers."""
    topics = [TopicToElect("orders", list(numbers))] if numbers else None
    request = ElectLeadersRequest(topics, accept_data_loss)
    return (await ClusterHandler(member.node).elect(request)).results


async def without(members: list[Member], gone: Member) -> list[Member]:
    """Stop a node, and return the others when they have fenced it."""
    gone.stop()
    others = [member for member in members if member is not gone]
    await until(lambda: all(gone.node_id not in live_brokers(member) for member in others))
    return others


def test_every_node_describes_the_cluster_alike() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        await create(members[0], [1, 2], [2, 3])
        indexes = [member.node.raft for member in members]
        await until(lambda: len({raft.applied_index for raft in indexes}) == 1)

        replies = [described(member) for member in members]

        assert [reply.node_id for reply in replies] == [1, 2, 3]
        assert len({(reply.cluster_id, reply.controller_id, reply.term) for reply in replies}) == 1
        assert replies[0].nodes == replies[1].nodes == replies[2].nodes
        assert [(node.role, node.status) for node in replies[0].nodes] == [("voter", "alive")] * 3
        assert [(node.leader_count, node.replica_count) for node in replies[0].nodes] == [
            (1, 1),
            (1, 2),
            (0, 1),
        ]
        assert (replies[0].partition_count, replies[0].partitions) == (2, [])

    play(story)


def test_a_lost_node_is_fenced_and_its_partitions_are_listed_on_request() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        await create(members[0], [1, 2], [2, 3], [3, 1])
        (asked, _) = await without(members, members[0])

        reply = described(asked)

        assert [node.status for node in reply.nodes] == ["fenced", "alive", "alive"]
        assert (reply.leaderless_count, reply.under_replicated_count) == (0, 2)
        first, second = reply.partitions
        assert (first.topic, first.partition, first.leader_id) == ("orders", 0, 2)
        assert (first.replicas, first.in_sync_replicas) == ([1, 2], [2])
        assert (second.partition, second.leader_id, second.in_sync_replicas) == (2, 3, [3])
        assert described(asked, with_partitions=False).partitions == []

    play(story)


def test_a_node_without_a_leader_describes_its_own_metadata() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        for member in members[1:]:
            member.stop()
        left = members[0]
        await until(lambda: left.node.raft.leader_id is None)

        reply = described(left)

        assert reply.controller_id is None
        assert [node.node_id for node in reply.nodes] == [1, 2, 3]
        assert {node.host for node in reply.nodes} == {"node1", "node2", "node3"}

    play(story)


def test_a_node_without_a_majority_does_not_describe_the_past_as_the_present() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        await create(members[0], [1, 2, 3], [2, 3, 1])
        await until(lambda: all(described(each).metadata_age_ms is not None for each in members))
        left = members[0]
        for member in members[1:]:
            member.stop()
        died_at = trio.current_time()

        async def after(seconds: float) -> DescribeClusterReply:
            await trio.sleep_until(died_at + seconds)
            reply = described(left)
            assert reply.metadata_age_ms is not None
            # Heartbeats are 750 ms apart, and each may take some time.
            assert seconds * 1000 <= reply.metadata_age_ms <= seconds * 1000 + 1000
            return reply

        early = await after(1)
        assert [node.status for node in early.nodes] == ["alive"] * 3
        for seconds in (10, 45):
            late = await after(seconds)
            assert [node.status for node in late.nodes] == ["alive", "unknown", "unknown"]
            assert [node.last_known_status for node in late.nodes] == ["", "alive", "alive"]
            health = cluster_health(late)
            assert health.severity is ClusterSeverity.UNAVAILABLE
            assert health.unknown_for_ms == late.metadata_age_ms
            assert (health.writable_count, health.readable_count) == (None, None)
            assert health.next_step.startswith("start node 2 or 3, ")

        members[1].start()
        await until(lambda: described(left).nodes[2].status == "fenced")
        now = cluster_health(described(left))
        assert (now.severity, now.is_stale) == (ClusterSeverity.DEGRADED, False)
        assert now.reason.startswith("node 3 is fenced")

    play(story)


def test_the_metadata_of_the_only_voter_are_always_current() -> None:
    async def story(world: World) -> None:
        alone = Member(world, 1, ())
        alone.start()
        await until(lambda: live_brokers(alone) == [1])

        await trio.sleep(60)

        reply = described(alone)
        assert (reply.metadata_age_ms, reply.metadata_age_max_ms) == (0, SESSION_MS)
        assert cluster_health(reply).severity is ClusterSeverity.HEALTHY

    play(story)


def test_a_fourth_node_is_a_learner_without_a_vote() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        fourth = Member(world, 4, (1, 4))
        fourth.start()
        await until(lambda: 4 in live_brokers(fourth))

        reply = described(fourth)

        assert voters(fourth) == [1, 2, 3]
        assert [node.role for node in reply.nodes] == ["voter"] * 3 + ["learner"]
        assert members

    play(story)


def test_the_preferred_leader_is_elected_through_a_node_that_is_not_the_controller() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        await create(members[0], [1, 2], [2, 3])
        others = await without(members, members[0])
        members[0].start()
        await until(lambda: all(live_brokers(member) == [1, 2, 3] for member in members))
        asked = next(member for member in others if not member.node.raft.is_leader)

        (early,) = await elected(asked, 0)

        # The replica must be in sync before it may lead; no replica fetches here.
        assert early.error is not None
        assert early.error.code == ErrorCode.LEADER_NOT_AVAILABLE
        assert (early.previous_leader_id, early.leader_id) == (2, 2)
        (there,) = await elected(asked, 1)
        assert there == LeaderElected("orders", 1, 2, 2)

    play(story)


def test_an_unclean_election_elects_a_leader_and_records_the_data_loss() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        await create(members[0], [1, 2])
        members[1].stop()
        await until(lambda: partition(members[0]).in_sync_replicas == (1,))
        members[1].start()
        await until(lambda: live_brokers(members[1]) == [1, 2, 3])
        (asked, _) = await without(members, members[0])
        (lost,) = described(asked).partitions
        assert (lost.leader_id, lost.last_known_leader) == (None, 1)
        assert lost.eligible_leader_replicas == [1]

        assert await elected(asked) == []
        (result,) = await elected(asked, accept_data_loss=True)

        assert result == LeaderElected("orders", 0, None, 2, may_have_lost_data=True)
        (loss,) = described(asked).data_losses
        assert (loss.topic, loss.partition, loss.leader_id) == ("orders", 0, 2)
        assert (loss.last_known_leader, loss.topic_id) == (1, TOPIC_ID)
        assert loss.accepted_at_ms > START_MS
        assert await elected(asked, accept_data_loss=True) == []
        (again,) = await elected(asked, 0, accept_data_loss=True)
        assert not again.may_have_lost_data

    play(story)


def test_an_election_for_an_unknown_topic_or_partition_is_refused() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        with pytest.raises(UnknownTopicError):
            await elected(members[0], 0)
        await create(members[0], [1])

        (result,) = await elected(members[0], 7)

        assert result.error is not None
        assert result.error.code == ErrorCode.UNKNOWN_PARTITION

    play(story)


def test_many_elections_are_split_into_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        monkeypatch.setattr(handlers, "_ELECTIONS_MAX", 2)
        members = await three(world)
        await create(members[0], [1], [2], [3], [1], [2])
        request = ElectLeadersRequest([TopicToElect("orders")])

        reply = await ClusterHandler(members[0].node).elect(request)

        assert [(each.partition, each.leader_id) for each in reply.results] == [
            (0, 1),
            (1, 2),
            (2, 3),
            (3, 1),
            (4, 2),
        ]

    play(story)


def test_cluster_settings_can_be_altered_through_any_node() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        asked = next(member for member in members if not member.node.raft.is_leader)

        reply = await ClusterHandler(asked.node).alter(
            AlterClusterConfigRequest({"reassignment_max_bytes_per_second": "1MB"}, [])
        )

        assert reply.config["reassignment_max_bytes_per_second"] == "1MB"
        assert described(asked).config == reply.config

    play(story)


def test_a_drained_node_is_shown_as_drained_until_that_is_undone() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        await create(members[0], [1, 2], [2, 3])
        handler = ClusterHandler(members[1].node)

        reply = await handler.drain(DrainBrokerRequest(2, is_drained=True))
        assert reply.replica_count == 2
        assert [node.is_drained for node in described(members[1]).nodes] == [False, True, False]

        await handler.drain(DrainBrokerRequest(2, is_drained=False))
        assert not any(node.is_drained for node in described(members[1]).nodes)

    play(story)


def test_an_unregistered_node_no_longer_votes_and_is_removed() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        gone = next(member for member in members if not member.node.raft.is_leader)
        others = await without(members, gone)
        leader = next(member for member in others if member.node.raft.is_leader)
        handler = ClusterHandler(leader.node)

        reply = await handler.unregister(UnregisterBrokerRequest(gone.node_id))

        assert reply.was_member
        assert gone.node_id not in {node.node_id for node in described(leader).nodes}
        assert len(voters(leader)) == 2
        again = await handler.unregister(UnregisterBrokerRequest(gone.node_id))
        assert not again.was_member

    play(story)


def test_a_live_node_or_one_with_replicas_cannot_be_unregistered() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        gone = next(member for member in members if not member.node.raft.is_leader)
        await create(members[0], [gone.node_id])
        others = await without(members, gone)
        leader = next(member for member in others if member.node.raft.is_leader)
        follower = next(member for member in others if member is not leader)

        with pytest.raises(InvalidRequestError, match="is alive at"):
            await ClusterHandler(leader.node).unregister(UnregisterBrokerRequest(follower.node_id))
        with pytest.raises(InvalidRequestError, match="still has 1 replicas"):
            await ClusterHandler(leader.node).unregister(UnregisterBrokerRequest(gone.node_id))
        with pytest.raises(NotControllerError):
            await ClusterHandler(follower.node).unregister(UnregisterBrokerRequest(gone.node_id))
        assert len(voters(leader)) == 3

    play(story)


def test_an_election_for_a_topic_includes_the_journals_of_its_queues() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        await create(members[0], [1])
        queue_id = b"a queue's journal"[:16]
        command = CreateQueue(
            *("q", queue_id, bytes(32), b"no other topic's"[:16], START_MS, "orders", TOPIC_ID),
            start_offsets=[0],
            is_fifo=False,
            overrides={},
        )
        await members[0].node.command_client.submit(command, timeout_s=20)
        (asked, _) = await without(members, members[0])

        results = await elected(asked, 0, accept_data_loss=True)

        assert [(each.topic, each.leader_id) for each in results] == [
            ("orders", None),
            ("queue@q", None),
        ]
        everything = await elected(asked)
        assert everything == [], "no preferred replica is in sync"

    play(story)
