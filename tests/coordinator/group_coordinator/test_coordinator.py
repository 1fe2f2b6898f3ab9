"""Groups served by the node that leads, and never by a deposed one."""

from collections.abc import Awaitable, Mapping

import pytest
import trio

from tests.coordinator.group_cluster import GROUP, ORDERS, GroupCluster, Member, play
from tests.coordinator.raft_clients import FaultInjector, until
from tests.coordinator.raft_nodes import Host
from tidelog.coordinator.metadata.catalog import DeleteTopic
from tidelog.coordinator.raft_node import node as raft_node
from tidelog.wire.errors import (
    ErrorCode,
    FencedInstanceError,
    GroupNotEmptyError,
    InvalidRequestError,
    NotControllerError,
    StaleMemberEpochError,
    UnknownMemberError,
)
from tidelog.wire.messages.groups import (
    CommitOffsetsRequest,
    FetchOffsetsRequest,
    GroupHeartbeatRequest,
    ListGroupsRequest,
    PartitionCommit,
    Subscription,
)
from tidelog.wire.messages.offset_ranges import PartitionOffsets
from tidelog.wire.protocol import api

FIRST_SHARES_S = 5.0
"""By then the first members have their assignment."""


async def all_at_work(cluster: GroupCluster, members: list[Member], partitions: int = 4) -> None:
    """Wait until all partitions are worked on, and every member that can has one."""

    def is_so() -> bool:
        shares = [len(member.positions) for member in members]
        are_shared = sum(shares) == partitions and min(shares) >= partitions // len(members)
        return are_shared and len(cluster.work.acknowledged) == partitions

    await until(is_so, seconds=120)


def test_members_share_the_partitions_of_a_topic() -> None:
    async def story(cluster: GroupCluster) -> None:
        for _ in range(3):
            cluster.add_member()
        await trio.sleep(30)

        group = await cluster.described()

        assert group.state == "stable"
        shares = [sum(len(one.partitions) for one in each.assigned) for each in group.members]
        assert sorted(shares) == [1, 1, 2]
        assert set(cluster.work.acknowledged) == {0, 1, 2, 3}
        assert cluster.work.refusals == []
        listed = await cluster.caller.insist(api.LIST_GROUPS, ListGroupsRequest(["stable"]))
        assert [one.group_id for one in listed.groups] == [GROUP]

    play(story)


def test_the_partitions_of_a_dead_member_move_after_its_session() -> None:
    async def story(cluster: GroupCluster) -> None:
        fenced: list[tuple[object, object]] = []

        def observe(_: str, event: str, fields: Mapping[str, object]) -> None:
            if event == "group_member_fenced":
                fenced.append((fields["member"], fields["reason"]))

        cluster.world.observe(observe)
        members = [cluster.add_member() for _ in range(2)]
        await all_at_work(cluster, members)
        member_id = members[0].membership.member_id
        members[0].kill()

        await until(lambda: len(members[1].positions) == 4, seconds=60)

        assert fenced == [(member_id, "session timeout")]

    play(story)


def test_subscribers_read_a_new_topic_and_stop_reading_a_deleted_one() -> None:
    async def story(cluster: GroupCluster) -> None:
        first = await cluster.heartbeat("a", subscription=Subscription(["orders", "later"]))
        await trio.sleep(FIRST_SHARES_S)
        second = await cluster.heartbeat("a", first.member_epoch)
        assert second.assignment is not None
        assert [(one.topic, one.partitions) for one in second.assignment] == [
            ("orders", [0, 1, 2, 3])
        ]
        await cluster.commit(2, 40, member_id="a", epoch=second.member_epoch)

        leader, _ = await cluster.leader_and_another()
        await cluster.submit(leader, DeleteTopic("orders"))
        await trio.sleep(FIRST_SHARES_S)
        third = await cluster.heartbeat(
            "a", second.member_epoch, assignment_revision=second.assignment_revision
        )

        assert third.assignment == []
        assert await cluster.committed(2) is None

    play(story)


@pytest.mark.parametrize("end", ["kill", "cut_power"])
def test_a_new_leader_has_every_commit_and_moves_nothing(end: str) -> None:
    async def story(cluster: GroupCluster) -> None:
        members = [cluster.add_member() for _ in range(2)]
        await all_at_work(cluster, members)
        before = [(member.membership.member_id, set(member.positions)) for member in members]
        leader, _ = await cluster.leader_and_another()
        known = dict(cluster.work.acknowledged)

        getattr(leader, end)()
        offsets = {partition: await cluster.committed(partition) for partition in range(4)}
        await trio.sleep(60)

        assert all((offsets[partition] or 0) >= known[partition] for partition in known)
        after = [(member.membership.member_id, set(member.positions)) for member in members]
        assert after == before
        assert cluster.work.acknowledged[0] > known[0]

    play(story)


def test_a_paused_leader_does_not_answer_from_stale_state() -> None:
    """Neither offsets nor memberships, even for requests from before it noticed."""

    async def story(cluster: GroupCluster) -> None:
        await cluster.commit(0, 10)
        leader, _ = await cluster.leader_and_another()
        coordinator = cluster.coordinators[leader.node_id]
        leader.machine.pause(8)
        others = [host for host in cluster.group if host is not leader]
        await until(lambda: any(host.raft and host.raft.is_active_leader for host in others))
        await cluster.commit(0, 20)
        assert leader.raft is not None
        assert leader.raft.is_active_leader, "it does not know yet"

        async with trio.open_nursery() as nursery:

            async def refused(answer: Awaitable[object]) -> None:
                with pytest.raises(NotControllerError):
                    await answer

            asked = FetchOffsetsRequest(GROUP)
            nursery.start_soon(refused, coordinator.fetch_offsets(asked))
            unknown = GroupHeartbeatRequest(GROUP, "unknown", 5)
            nursery.start_soon(refused, coordinator.heartbeat(unknown))
        assert await cluster.committed(0) == 20

    play(story)


def test_an_isolated_leader_does_not_answer() -> None:
    async def story(cluster: GroupCluster) -> None:
        reply = await cluster.heartbeat("a")
        leader, _ = await cluster.leader_and_another()
        coordinator = cluster.coordinators[leader.node_id]
        others = [host.machine.name for host in cluster.group if host is not leader]
        await trio.sleep(FIRST_SHARES_S)
        reply = await cluster.heartbeat("a", reply.member_epoch)
        await trio.sleep(3)
        cluster.world.network.partition([leader.machine.name], others)
        assert leader.raft is not None
        assert leader.raft.is_active_leader, "it does not know yet"

        refusals = 0
        async with trio.open_nursery() as nursery:

            async def refused(request: GroupHeartbeatRequest) -> None:
                nonlocal refusals
                with pytest.raises(NotControllerError):
                    await coordinator.heartbeat(request)
                refusals += 1

            nursery.start_soon(refused, GroupHeartbeatRequest(GROUP, "a", reply.member_epoch))
            nursery.start_soon(refused, GroupHeartbeatRequest(GROUP, "unknown", 7))
        assert refusals == 2

    play(story)


def test_a_leader_with_a_failed_disk_redirects_members() -> None:
    async def story(cluster: GroupCluster) -> None:
        leader, _ = await cluster.leader_and_another()
        coordinator = cluster.coordinators[leader.node_id]
        leader.machine.disk.fail("sync")
        join = GroupHeartbeatRequest(GROUP, "a", 0, owned=[], subscription=Subscription(["orders"]))
        offsets = [PartitionCommit(ORDERS, 0, 7)]

        async with trio.open_nursery() as nursery:

            async def refused(answer: Awaitable[object]) -> None:
                with pytest.raises(NotControllerError, match="this node leads no more"):
                    await answer

            nursery.start_soon(refused, coordinator.heartbeat(join))
            commit = CommitOffsetsRequest("other", "", -1, 1, offsets)
            nursery.start_soon(refused, coordinator.commit_offsets(commit))

        assert (await cluster.heartbeat("a")).member_epoch > 0

    play(story)


def test_a_follower_names_the_group_coordinator() -> None:
    async def story(cluster: GroupCluster) -> None:
        leader, other = await cluster.leader_and_another()

        with pytest.raises(NotControllerError, match=f"ask node {leader.node_id}"):
            await cluster.coordinators[other.node_id].administration.list_groups(
                ListGroupsRequest()
            )

    play(story)


def test_commits_outside_the_log_and_stale_ones_are_refused() -> None:
    async def story(cluster: GroupCluster) -> None:
        cluster.offsets.logs[ORDERS, 1] = PartitionOffsets(100, 190, 200)
        reply = await cluster.heartbeat("a")
        await trio.sleep(FIRST_SHARES_S)
        reply = await cluster.heartbeat("a", reply.member_epoch)
        epoch = reply.member_epoch
        codes: list[int | None] = []
        for sequence, (partition, offset) in enumerate([(1, 99), (1, 201), (1, 195), (7, 0)]):
            done = await cluster.commit(
                partition, offset, member_id="a", epoch=epoch, sequence=sequence
            )
            error = done.results[0].error
            codes.append(None if error is None else error.code)

        assert codes == [
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            None,
            ErrorCode.PARTITION_NOT_OWNED,
        ]
        with pytest.raises(StaleMemberEpochError, match="was overtaken"):
            await cluster.commit(1, 150, member_id="a", epoch=epoch, sequence=1)
        with pytest.raises(InvalidRequestError, match="cannot know of"):
            await cluster.commit(1, 196, member_id="a", epoch=epoch + 1, sequence=9)
        with pytest.raises(UnknownMemberError):
            await cluster.commit(1, 196, member_id="b", epoch=epoch, sequence=9)
        with pytest.raises(GroupNotEmptyError, match="only they can commit"):
            await cluster.commit(1, 196)
        assert await cluster.committed(1) == 195

    play(story)


def test_a_commit_is_stored_without_known_log_bounds() -> None:
    async def story(cluster: GroupCluster) -> None:
        cluster.offsets.is_reachable = False

        done = await cluster.commit(0, 77)
        unknown = await cluster.commit(9, 77)

        assert done.results[0].error is None
        assert await cluster.committed(0) == 77
        assert unknown.results[0].error is not None
        assert unknown.results[0].error.code == ErrorCode.UNKNOWN_TOPIC_ID
        group = await cluster.described()
        assert [(one.offset, one.lag_records) for one in group.partitions] == [(77, None)]

    play(story)


def test_a_newer_process_of_a_static_member_takes_over_at_once() -> None:
    async def story(cluster: GroupCluster) -> None:
        old = cluster.add_member(instance_id="one", incarnation=1)
        await all_at_work(cluster, [old])
        offsets = dict(cluster.work.acknowledged)
        old.kill()

        new = cluster.add_member(instance_id="one", incarnation=2)
        await until(lambda: len(new.positions) == 4, seconds=5)

        assert all(new.positions[partition] >= offset for partition, offset in offsets.items())
        with pytest.raises(FencedInstanceError, match="runs elsewhere as incarnation 2"):
            await cluster.heartbeat("late", instance_id="one", incarnation=1)

    play(story)


def test_a_refused_proposal_drops_the_controller_state() -> None:
    """Proposals are refused during a leadership transfer."""

    async def story(cluster: GroupCluster) -> None:
        leader, other = await cluster.leader_and_another()
        coordinator = cluster.coordinators[leader.node_id]
        assert leader.raft is not None
        other.machine.pause(10)
        leader.raft.transfer_leadership(other.node_id)
        join = GroupHeartbeatRequest(GROUP, "a", 0, owned=[], subscription=Subscription(["orders"]))

        with pytest.raises(NotControllerError):
            await coordinator.heartbeat(join)
        reply = await cluster.heartbeat("a")

        assert reply.member_epoch == 1
        assert [member.member_id for member in (await cluster.described()).members] == ["a"]

    play(story)


def snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nodes take snapshots often, and fall behind the kept entries."""
    monkeypatch.setattr(raft_node, "SNAPSHOT_AFTER_BYTES", 20_000)
    monkeypatch.setattr(raft_node, "KEPT_ENTRIES", 20)


@pytest.mark.parametrize("seed", range(2))
def test_random_faults_lose_no_commit_and_give_no_partition_two_readers(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots(monkeypatch)

    async def story(cluster: GroupCluster) -> None:
        random = cluster.world.streams.stream("story")
        members = [cluster.add_member() for _ in range(4)]

        async def disturb() -> None:
            while True:
                await trio.sleep(random.expovariate(0.1))
                member = random.choice(members)
                if not member.works:
                    member.start()
                elif random.random() < 0.5:
                    member.kill()
                else:
                    member.machine.pause(random.expovariate(0.05))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(disturb)
            for _ in range(2):
                await FaultInjector(cluster.world, cluster.group, random).run(8)
                await trio.sleep(random.uniform(0, 20))
            nursery.cancel_scope.cancel()
        for member in members:
            if not member.works:
                member.start()
        before = cluster.work.commit_count
        await trio.sleep(60)

        await all_at_work(cluster, members)
        assert cluster.work.commit_count > before + 50
        known = dict(cluster.work.acknowledged)
        offsets = [await cluster.committed(partition) for partition in range(4)]
        assert all((offset or 0) >= known[number] for number, offset in enumerate(offsets))
        await one_state(cluster, members)

    play(story, seed=seed)


async def one_state(cluster: GroupCluster, members: list[Member]) -> None:
    """Wait until all nodes have the same groups, when no client changes them any more."""
    for member in members:
        member.kill()

    def states(hosts: list[Host]) -> set[bytes]:
        return {host.state.snapshot() for host in hosts if host.state is not None}

    await until(lambda: len(states(cluster.group)) == 1)
