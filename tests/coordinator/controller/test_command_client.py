"""Commands through any node: the leader decides, and the node that was asked sees the outcome."""

import msgspec
import pytest
import trio

from tests.coordinator.command_cluster import Cluster, play
from tests.coordinator.controller.test_broker_lifecycle import raft_of
from tests.coordinator.controller.test_replicated_state import create, metadata_of, names, register
from tests.coordinator.raft_clients import FaultInjector, until
from tests.coordinator.raft_nodes import CLUSTER_ID, PORT, Host
from tests.simulation.machine.faulty_disk import StaleHandleError
from tidelog.coordinator.metadata.catalog import Catalog, DeleteTopic
from tidelog.coordinator.metadata.commands import (
    Registered,
    TopicAnswer,
    UnfenceBroker,
    encode_command,
)
from tidelog.coordinator.raft.membership import Identity
from tidelog.wire.errors import (
    InvalidRequestError,
    LeaderNotAvailableError,
    LogOfflineError,
    NotControllerError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    TopicExistsError,
)
from tidelog.wire.messages.cluster import (
    BrokerHeartbeatRequest,
    ForwardCommandRequest,
    JoinReply,
    JoinRequest,
    Peer,
)


async def with_brokers(cluster: Cluster, host: Host) -> None:
    for node_id in (1, 2, 3):
        registered = await cluster.submit(host, register(node_id))
        assert isinstance(registered, Registered)
        await cluster.submit(host, UnfenceBroker(node_id, registered.broker_epoch))


def catalog_of(host: Host) -> Catalog:
    return metadata_of(host).state.catalog


def test_a_command_can_be_sent_to_any_node_and_is_visible_there() -> None:
    async def story(cluster: Cluster) -> None:
        await until(lambda: all(host.raft is not None for host in cluster.group))
        await with_brokers(cluster, cluster.group[0])

        for number, host in enumerate(cluster.group):
            reply = await cluster.submit(host, create(number))

            assert reply == TopicAnswer(b"%016d" % number)
            assert f"topic{number}" in names(host)

    play(story)


def test_a_forwarded_command_returns_its_refusal() -> None:
    async def story(cluster: Cluster) -> None:
        _, other = await cluster.leader_and_another()
        await with_brokers(cluster, other)
        await cluster.submit(other, create(1))

        with pytest.raises(TopicExistsError, match="topic1"):
            await cluster.submit(other, create(1, topic_id=b"another topic id"))

    play(story)


def test_a_command_is_retried_during_an_election() -> None:
    async def story(cluster: Cluster) -> None:
        leader, other = await cluster.leader_and_another()
        await with_brokers(cluster, other)
        leader.cut_power()
        asked_at = trio.current_time()

        await cluster.submit(other, create(1))

        assert 0.5 < trio.current_time() - asked_at < 6

    play(story)


def test_a_command_is_retried_on_a_starting_node() -> None:
    async def story(cluster: Cluster) -> None:
        _, other = await cluster.leader_and_another()
        await with_brokers(cluster, other)
        cluster.unready_count = 3

        await cluster.submit(other, create(1))

        assert cluster.unready_count == 0
        assert "topic1" in names(other)

    play(story)


def test_a_command_without_a_majority_times_out_with_an_unknown_outcome() -> None:
    async def story(cluster: Cluster) -> None:
        _, other = await cluster.leader_and_another()
        for host in cluster.group:
            if host is not other:
                host.cut_power()

        with pytest.raises(RequestTimedOutError, match="not decided within 8 s"):
            await cluster.submit(other, create(1), timeout_s=8)

    play(story)


def test_broker_heartbeats_reach_the_controller() -> None:
    async def story(cluster: Cluster) -> None:
        _, other = await cluster.leader_and_another()
        registered = await cluster.submit(other, register(2))
        assert isinstance(registered, Registered)
        heartbeat = BrokerHeartbeatRequest(
            CLUSTER_ID, 2, registered.broker_epoch, is_caught_up=True, wants_to_stop=False
        )

        answer = await cluster.command_client(other).heartbeat(heartbeat, timeout_s=5)

        assert not answer.is_fenced
        stale = BrokerHeartbeatRequest(CLUSTER_ID, 2, 99, is_caught_up=True, wants_to_stop=False)
        with pytest.raises(StaleBrokerEpochError):
            await cluster.command_client(other).heartbeat(stale, timeout_s=5)

    play(story)


def joining(node_id: int, cluster_id: str = CLUSTER_ID, disk_id: bytes = b"new") -> JoinRequest:
    return JoinRequest(cluster_id, Peer(node_id, disk_id), "somewhere", 9)


def test_a_follower_forwards_a_join_request_to_the_leader() -> None:
    async def story(cluster: Cluster) -> None:
        leader, other = await cluster.leader_and_another()

        reply = await cluster.command_client(other).join(joining(4))

        assert reply == JoinReply(leader.node_id, f"node{leader.node_id}", PORT)
        assert raft_of(leader).membership.learners == (Identity(4, b"new"),)
        assert await cluster.command_client(leader).join(joining(4)) == JoinReply(
            leader.node_id, "", 0
        )
        assert raft_of(leader).membership.learners == (Identity(4, b"new"),)

    play(story)


def test_a_join_request_without_a_leader_can_be_retried() -> None:
    async def story(cluster: Cluster) -> None:
        leader, other = await cluster.leader_and_another()
        leader.cut_power()

        with pytest.raises(NotControllerError, match="cannot be reached"):
            await cluster.command_client(other).join(joining(4))

    play(story)


def test_a_join_request_is_forwarded_once() -> None:
    async def story(cluster: Cluster) -> None:
        _, other = await cluster.leader_and_another()
        passed_on = msgspec.structs.replace(joining(4), is_passed_on=True)

        with pytest.raises(NotControllerError, match="does not lead the cluster; ask node"):
            await cluster.command_client(other).join(passed_on)

    play(story)


def test_requests_of_another_cluster_and_invalid_commands_are_refused() -> None:
    async def story(cluster: Cluster) -> None:
        leader, _ = await cluster.leader_and_another()
        command_client = cluster.command_client(leader)

        with pytest.raises(InvalidRequestError, match=f"belongs to cluster {CLUSTER_ID}"):
            await command_client.decide(
                ForwardCommandRequest("theirs", encode_command(register(1)))
            )
        with pytest.raises(InvalidRequestError, match=f"belongs to cluster {CLUSTER_ID}"):
            await command_client.join(joining(4, "theirs"))
        with pytest.raises(InvalidRequestError, match="not a command"):
            await command_client.decide(ForwardCommandRequest(CLUSTER_ID, b"nonsense"))

    play(story)


async def be_a_broker(cluster: Cluster, host: Host) -> None:
    """Register the broker of a host, and send its heartbeats while its node is up."""
    epoch: int | None = None
    while True:
        await trio.sleep(1)
        if host.raft is None:
            continue
        try:
            if epoch is None:
                registered = await cluster.submit(host, register(host.node_id))
                assert isinstance(registered, Registered)
                epoch = registered.broker_epoch
            heartbeat = BrokerHeartbeatRequest(
                CLUSTER_ID, host.node_id, epoch, is_caught_up=True, wants_to_stop=False
            )
            await cluster.command_client(host).heartbeat(heartbeat, timeout_s=3)
        except (RequestTimedOutError, StaleHandleError, LogOfflineError):
            continue


@pytest.mark.parametrize("seed", range(2))
def test_random_faults_apply_each_command_once(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        random = cluster.world.streams.stream("story")
        group = cluster.group
        created: list[str] = []

        async def create_topics() -> None:
            for number in range(1000):
                while f"topic{number}" not in created:
                    host = random.choice(group)
                    if host.raft is None:
                        await trio.sleep(0.1)
                        continue
                    try:
                        await cluster.submit(host, create(number), timeout_s=3)
                    except (RequestTimedOutError, LeaderNotAvailableError):
                        continue
                    created.append(f"topic{number}")
                await trio.sleep(0.05)

        async with trio.open_nursery() as nursery:
            await until(lambda: all(host.raft is not None for host in group))
            await with_brokers(cluster, group[0])
            for host in group:
                nursery.start_soon(be_a_broker, cluster, host)
            nursery.start_soon(create_topics)
            await FaultInjector(cluster.world, group, random).run(8)
            await trio.sleep(5)
            nursery.cancel_scope.cancel()
        leader, _ = await cluster.leader_and_another()
        assert len(created) > 5
        assert set(created) <= set(names(leader))

    play(story, seed=seed)


def test_a_restarted_node_catches_up_with_earlier_decisions() -> None:
    async def story(cluster: Cluster) -> None:
        leader, other = await cluster.leader_and_another()
        await with_brokers(cluster, other)
        await cluster.submit(other, create(1))
        rest = [host.machine.name for host in cluster.group if host is not other]
        heal = cluster.world.network.partition([other.machine.name], rest)
        await cluster.submit(leader, DeleteTopic("topic1"))
        await cluster.submit(leader, create(1, topic_id=b"another topic id"))
        heal()
        assert catalog_of(other).topic("topic1").topic_id == b"%016d" % 1

        await cluster.command_client(other).catch_up(timeout_s=20)

        assert catalog_of(other).topic("topic1").topic_id == b"another topic id"

    play(story)
