"""A broker leads only while its cluster cannot have given its place to others."""

import pytest
import trio

from coordinator.cluster.commands import CreateReplicatedTopic
from coordinator.cluster.sessions import SESSION_MS
from coordinator.raft_node import RaftNode
from coordinator.registration import BrokerPlace, Registration
from coordinator.replicated import ReplicatedMetadata
from tests.coordinator.raft_life import until
from tests.coordinator.raft_nodes import CLUSTER_ID, PORT, Host
from tests.coordinator.submitting import Cluster, play
from wire.errors import DuplicateBrokerError

TOPIC_ID = b"a topic of three"


def may_lead(cluster: Cluster, node_id: int) -> bool:
    registration = cluster.registrations.get(node_id)
    return registration is not None and registration.may_lead()


async def all_in(cluster: Cluster) -> None:
    await until(lambda: all(may_lead(cluster, node_id) for node_id in (1, 2, 3)))


def raft_of(host: Host) -> RaftNode:
    assert host.raft is not None
    return host.raft


def metadata_of(host: Host) -> ReplicatedMetadata:
    assert isinstance(host.state, ReplicatedMetadata)
    return host.state


async def create(cluster: Cluster, assignment: list[list[int]]) -> None:
    await cluster.submit(
        cluster.group[0],
        CreateReplicatedTopic("topic", TOPIC_ID, len(assignment), {}, assignment=assignment),
    )


def test_brokers_are_let_in_soon_after_they_have_registered() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.leader_and_another()
        begun_at = trio.current_time()

        await all_in(cluster)

        assert trio.current_time() - begun_at < 2
        for host in cluster.group:
            await until(lambda host=host: len(metadata_of(host).state.brokers) == 3)  # type: ignore[misc]

    play(story, has_brokers=True)


def test_a_broker_that_is_cut_off_stops_to_lead_before_others_begin() -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        leader, away = await cluster.leader_and_another()
        others = [host.machine.name for host in cluster.group if host is not away]
        cluster.world.network.partition([away.machine.name], others)
        led_until: list[float] = []
        fenced_at: list[float] = []

        def look() -> bool:
            now = trio.current_time()
            if not led_until and not may_lead(cluster, away.node_id):
                led_until.append(now)
            if not fenced_at and metadata_of(leader).state.brokers[away.node_id].is_fenced:
                fenced_at.append(now)
            return bool(led_until and fenced_at)

        await until(look)
        assert led_until[0] <= fenced_at[0]

    play(story, has_brokers=True)


def test_a_broker_that_slept_through_its_session_does_not_lead_when_it_wakes() -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        _, asleep = await cluster.leader_and_another()

        asleep.machine.pause(SESSION_MS / 1000 + 3)
        await trio.sleep(SESSION_MS / 1000 + 2)

        assert not may_lead(cluster, asleep.node_id)
        await all_in(cluster)

    play(story, has_brokers=True)


def test_a_broker_that_starts_again_is_another_one_at_the_same_place() -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        _, host = await cluster.leader_and_another()
        before = cluster.registrations[host.node_id].broker_epoch
        assert before is not None

        host.kill()
        host.start()
        await until(lambda: cluster.registrations[host.node_id].broker_epoch not in {None, before})

        await all_in(cluster)
        after = cluster.registrations[host.node_id].broker_epoch
        assert after is not None
        assert after > before

    play(story, has_brokers=True)


def test_of_two_processes_at_one_place_the_older_one_must_stop() -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        host = cluster.group[0]
        process = host.machine.process
        assert process is not None
        old = cluster.registrations[1]
        place = BrokerPlace(1, "disk 1", "node1", PORT, "", None)
        newer = Registration(
            process.env, cluster.submission(host), metadata_of(host), place, cluster_id=CLUSTER_ID
        )

        await newer.register()

        await until(lambda: 1 in cluster.refusals)
        assert "newer process" in str(cluster.refusals[1])
        assert not old.may_lead()

    play(story, has_brokers=True)


def test_a_stranger_with_the_node_id_of_a_live_broker_is_refused() -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        host = cluster.group[0]
        process = host.machine.process
        assert process is not None
        place = BrokerPlace(2, "a disk of its own", "elsewhere", PORT, "", None)
        stranger = Registration(
            process.env, cluster.submission(host), metadata_of(host), place, cluster_id=CLUSTER_ID
        )

        with pytest.raises(DuplicateBrokerError, match="choose a node id that nobody has"):
            await stranger.run()

    play(story, has_brokers=True)


def test_a_broker_leaves_when_others_lead_what_it_led() -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        await create(cluster, [[2, 1, 3], [2, 3, 1]])

        assert await cluster.registrations[2].leave(timeout_s=5)

        state = metadata_of(cluster.group[0]).state
        await until(lambda: [each.leader for each in state.partitions(TOPIC_ID)] == [1, 3], 1)

    play(story, has_brokers=True)


def test_what_nobody_else_can_lead_is_not_waited_for_longer_than_that() -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        await create(cluster, [[2]])
        began_at = trio.current_time()

        assert not await cluster.registrations[2].leave(timeout_s=3)

        assert 3 <= trio.current_time() - began_at < 4

    play(story, has_brokers=True)
