"""Broker sessions: a broker leads only while the cluster cannot have replaced it."""

import pytest
import trio

from tests.coordinator.command_cluster import Cluster, play
from tests.coordinator.raft_clients import until
from tests.coordinator.raft_nodes import CLUSTER_ID, PORT, Host
from tidelog.coordinator.controller.broker_lifecycle import BrokerInfo, BrokerLifecycle
from tidelog.coordinator.controller.command_client import CommandClient
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.metadata.broker_sessions import SESSION_MS
from tidelog.coordinator.metadata.commands import (
    CreateReplicatedTopic,
    FailedReplica,
    RemoveFromIsr,
)
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.wire.errors import DuplicateBrokerError, UnexpectedServerError
from tidelog.wire.messages.cluster import BrokerHeartbeatReply

TOPIC_ID = b"a topic of three"


def may_lead(cluster: Cluster, node_id: int) -> bool:
    lifecycle = cluster.lifecycles.get(node_id)
    return lifecycle is not None and lifecycle.may_lead()


async def all_in(cluster: Cluster) -> None:
    await until(lambda: all(may_lead(cluster, node_id) for node_id in (1, 2, 3)))


def raft_of(host: Host) -> RaftNode:
    assert host.raft is not None
    return host.raft


def metadata_of(host: Host) -> ReplicatedState:
    assert isinstance(host.state, ReplicatedState)
    return host.state


async def create(cluster: Cluster, assignment: list[list[int]]) -> None:
    await cluster.submit(
        cluster.group[0],
        CreateReplicatedTopic("topic", TOPIC_ID, len(assignment), {}, assignment=assignment),
    )


def a_broker(cluster: Cluster, host: Host, info: BrokerInfo) -> BrokerLifecycle:
    """Return a broker besides the one that is on a host."""
    process = host.machine.process
    assert process is not None

    async def write_epoch(_: int) -> None:
        pass

    return BrokerLifecycle(
        process.env,
        cluster.command_client(host),
        metadata_of(host),
        info=info,
        cluster_id=CLUSTER_ID,
        is_only_voter=lambda: False,
        write_epoch=write_epoch,
    )


def test_a_defect_of_the_controller_stops_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        refused = 0

        async def fail(*_: object) -> BrokerHeartbeatReply:
            nonlocal refused
            refused += 1
            raise UnexpectedServerError("a defect")

        with monkeypatch.context() as patched:
            patched.setattr(CommandClient, "take_heartbeat", fail)
            await until(lambda: refused >= 6)
        await trio.sleep(SESSION_MS / 1000)

        assert all(may_lead(cluster, node_id) for node_id in (1, 2, 3))

    play(story, has_brokers=True)


def test_brokers_are_unfenced_soon_after_registration() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.leader_and_another()
        begun_at = trio.current_time()

        await all_in(cluster)

        assert trio.current_time() - begun_at < 2
        for host in cluster.group:
            await until(lambda host=host: len(metadata_of(host).state.brokers) == 3)  # type: ignore[misc]

    play(story, has_brokers=True)


@pytest.mark.invariant("I46")
def test_an_isolated_broker_stops_leading_before_its_successor_starts() -> None:
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


def test_a_broker_paused_beyond_its_session_does_not_lead() -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        _, asleep = await cluster.leader_and_another()

        asleep.machine.pause(SESSION_MS / 1000 + 3)
        await trio.sleep(SESSION_MS / 1000 + 2)

        assert not may_lead(cluster, asleep.node_id)
        await all_in(cluster)

    play(story, has_brokers=True)


def test_a_deposed_paused_controller_gives_its_broker_no_session() -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        leader, _ = await cluster.leader_and_another()
        others = [host for host in cluster.group if host is not leader]
        let_go = leader.machine.stall_loop(60)

        def is_fenced() -> bool:
            images = [metadata_of(host).state for host in others]
            return all(image.brokers[leader.node_id].is_fenced for image in images)

        await until(is_fenced)
        let_go()

        while is_fenced():
            assert not may_lead(cluster, leader.node_id)
            await trio.sleep(0.0001)
        await all_in(cluster)

    # The heartbeat must be sent before the first tick, which happens one time in six.
    for seed in (6, 12, 19, 22):
        play(story, seed=seed, has_brokers=True)


@pytest.mark.invariant("I47")
def test_an_unfenced_broker_does_not_lead_before_it_applied_its_lost_leaderships() -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        leader, away = await cluster.leader_and_another()

        def is_fenced(host: Host) -> bool:
            return metadata_of(host).state.brokers[away.node_id].is_fenced

        others = [host.machine.name for host in cluster.group if host is not away]
        heal = cluster.world.network.partition([away.machine.name], others)
        await until(lambda: is_fenced(leader))
        away.machine.stall_disk(20)  # So that it applies no further entries.
        heal()
        await until(lambda: not is_fenced(leader))

        for _ in range(100):
            await trio.sleep(0.1)
            assert not may_lead(cluster, away.node_id)
        away.machine.stall_disk(0)
        await all_in(cluster)

    play(story, has_brokers=True)


def test_a_broker_with_a_full_metadata_disk_is_fenced_until_there_is_room() -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        leader, full = await cluster.leader_and_another()
        disk = full.machine.disk
        disk.capacity_bytes = 1
        # From here on there are entries that it cannot write.
        assignment = [[full.node_id, leader.node_id]]
        await cluster.submit(
            leader, CreateReplicatedTopic("topic", TOPIC_ID, 1, {}, assignment=assignment)
        )

        def is_fenced() -> bool:
            return metadata_of(leader).state.brokers[full.node_id].is_fenced

        led_until: list[float] = []

        def look() -> bool:
            if not led_until and not may_lead(cluster, full.node_id):
                led_until.append(trio.current_time())
            return is_fenced()

        await until(look)
        assert led_until, "it led until others could"
        (partition,) = metadata_of(leader).state.partitions(TOPIC_ID)
        assert partition.leader == leader.node_id
        for _ in range(100):
            await trio.sleep(0.1)
            assert is_fenced()

        disk.capacity_bytes = None
        await all_in(cluster)

    play(story, has_brokers=True)


def test_a_controller_with_a_full_disk_grants_itself_no_session() -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        leader, other = await cluster.leader_and_another()
        await create(cluster, [[leader.node_id, other.node_id]])
        leader.machine.disk.capacity_bytes = 1

        # The others write the entry, so it is committed; the leader itself cannot apply it.
        replica = FailedReplica(TOPIC_ID, 0, may_lack_records=False)
        epoch = metadata_of(other).state.brokers[leader.node_id].broker_epoch
        async with trio.open_nursery() as nursery:
            given_up = RemoveFromIsr(leader.node_id, epoch, [replica])
            nursery.start_soon(cluster.submit, other, given_up)

            def is_taken_over() -> bool:
                partition = metadata_of(other).state.partition(TOPIC_ID, 0)
                return partition is not None and partition.leader == other.node_id

            await until(is_taken_over)
            await trio.sleep(SESSION_MS / 1000)
            for _ in range(100):
                assert not may_lead(cluster, leader.node_id)
                await trio.sleep(0.1)
        leader.machine.disk.capacity_bytes = None
        await all_in(cluster)

    play(story, has_brokers=True)


def test_a_restarted_broker_has_a_new_broker_epoch() -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        _, host = await cluster.leader_and_another()
        before = cluster.lifecycles[host.node_id].broker_epoch
        assert before is not None

        host.kill()
        host.start()
        await until(lambda: cluster.lifecycles[host.node_id].broker_epoch not in {None, before})

        await all_in(cluster)
        after = cluster.lifecycles[host.node_id].broker_epoch
        assert after is not None
        assert after > before

    play(story, has_brokers=True)


def test_of_two_processes_of_a_broker_the_older_one_must_stop() -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        host = cluster.group[0]
        old = cluster.lifecycles[1]
        info = BrokerInfo(1, "disk 1", "node1", PORT, "", None)
        newer = a_broker(cluster, host, info)

        await newer.register()

        await until(lambda: 1 in cluster.refusals)
        assert "newer process" in str(cluster.refusals[1])
        assert not old.may_lead()

    play(story, has_brokers=True)


def test_a_stranger_with_the_node_id_of_a_live_broker_is_refused() -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        host = cluster.group[0]
        info = BrokerInfo(2, "a disk of its own", "elsewhere", PORT, "", None)
        stranger = a_broker(cluster, host, info)

        with pytest.raises(DuplicateBrokerError, match="choose an unused node id"):
            await stranger.run()

    play(story, has_brokers=True)


def test_a_controlled_shutdown_ends_when_the_leaderships_have_moved() -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        await create(cluster, [[2, 1, 3], [2, 3, 1]])

        assert await cluster.lifecycles[2].controlled_shutdown(timeout_s=5)

        state = metadata_of(cluster.group[0]).state
        await until(lambda: [each.leader for each in state.partitions(TOPIC_ID)] == [1, 3], 1)

    play(story, has_brokers=True)


def test_a_controlled_shutdown_does_not_wait_for_leaderships_without_a_candidate() -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        await create(cluster, [[2]])
        began_at = trio.current_time()

        assert await cluster.lifecycles[2].controlled_shutdown(timeout_s=3)

        assert trio.current_time() - began_at < 1
        state = metadata_of(cluster.group[0]).state
        await until(lambda: state.brokers[2].is_shutting_down, 1)
        assert [each.leader for each in state.partitions(TOPIC_ID)] == [2]

    play(story, has_brokers=True)


def test_a_controlled_shutdown_without_a_controller_times_out() -> None:
    async def story(cluster: Cluster) -> None:
        await all_in(cluster)
        _, away = await cluster.leader_and_another()
        others = [host.machine.name for host in cluster.group if host is not away]
        cluster.world.network.partition([away.machine.name], others)
        began_at = trio.current_time()

        assert not await cluster.lifecycles[away.node_id].controlled_shutdown(timeout_s=3)

        assert 2.99 < trio.current_time() - began_at < 4

    play(story, has_brokers=True)


def test_the_only_voter_may_lead_after_any_pause() -> None:
    async def story(cluster: Cluster) -> None:
        await until(lambda: may_lead(cluster, 1))

        cluster.group[0].machine.pause(SESSION_MS / 1000 + 3)
        await trio.sleep(SESSION_MS / 1000 + 2)

        assert may_lead(cluster, 1), "no other node can have given its partitions to others"

    play(story, has_brokers=True, node_count=1)
