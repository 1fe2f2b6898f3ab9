"""The controller state of groups equals the proposals, and leadership is confirmed."""

import pytest
import trio

from tests.coordinator.group_cluster import ORDERS, GroupCluster, play
from tests.coordinator.raft_clients import until
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.group_coordinator import leadership as group_leadership
from tidelog.coordinator.group_coordinator.leadership import GroupLeadership
from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.groups.records import OffsetsReset
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.wire.errors import NotControllerError
from tidelog.wire.messages.groups import PartitionCommit


async def led(cluster: GroupCluster, nursery: trio.Nursery) -> tuple[RaftNode, GroupLeadership]:
    """Return a second `GroupLeadership` of the leader, beside that of its coordinator."""
    leader, _ = await cluster.leader_and_another()
    assert leader.raft is not None
    assert isinstance(leader.state, ReplicatedState)
    leadership = GroupLeadership(leader.raft, leader.state, GroupConfig())
    leader.raft.on_role_changed(leadership.role_changed)
    nursery.start_soon(leadership.run)
    return leader.raft, leadership


def committed(group_id: str) -> OffsetsReset:
    return OffsetsReset(group_id, 0, [PartitionCommit(ORDERS, 0, 7)])


def test_group_records_are_split_into_entries_of_limited_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_leadership, "ENTRY_BYTES_MAX", 1000)

    async def story(cluster: GroupCluster) -> None:
        async with trio.open_nursery() as nursery:
            node, leadership = await led(cluster, nursery)
            before = node.applied_index
            names = [f"group{number}" for number in range(100)]

            leadership.carry_out([committed(name) for name in names])
            await leadership.settled()

            assert 4 <= node.applied_index - before <= 16
            leader, _ = await cluster.leader_and_another()
            assert isinstance(leader.state, ReplicatedState)
            assert list(leader.state.groups.groups) == names
            nursery.cancel_scope.cancel()

    play(story)


def test_concurrent_confirmations_share_one_request() -> None:
    async def story(cluster: GroupCluster) -> None:
        async with trio.open_nursery() as nursery:
            node, leadership = await led(cluster, nursery)
            asked = 0
            ask = node.wait_current

            async def counted() -> None:
                nonlocal asked
                asked += 1
                await ask()

            node.wait_current = counted  # type: ignore[method-assign]
            async with trio.open_nursery() as readers:
                for _ in range(50):
                    readers.start_soon(leadership.wait_current)

            assert 1 <= asked <= 2
            nursery.cancel_scope.cancel()

    play(story)


def test_a_recent_confirmation_needs_no_request() -> None:
    async def story(cluster: GroupCluster) -> None:
        async with trio.open_nursery() as nursery:
            _, leadership = await led(cluster, nursery)
            await leadership.wait_current()
            began_at = trio.current_time()

            await leadership.settled()

            assert trio.current_time() == began_at
            await trio.sleep(3)
            began_at = trio.current_time()
            await leadership.settled()
            assert trio.current_time() > began_at, "it had to ask a majority"
            nursery.cancel_scope.cancel()

    play(story)


def test_after_a_refusal_group_leadership_restarts_when_pending_entries_are_committed() -> None:
    async def story(cluster: GroupCluster) -> None:
        async with trio.open_nursery() as nursery:
            node, leadership = await led(cluster, nursery)
            _, other = await cluster.leader_and_another()
            leadership.carry_out([committed("under way")])
            other.machine.pause(10)
            node.transfer_leadership(other.node_id)

            with pytest.raises(NotControllerError):
                leadership.carry_out([committed("refused")])
            with pytest.raises(NotControllerError, match="others are under way"):
                leadership.leading()
            await until(lambda: "under way" in cluster_groups(cluster, node))

            assert list(leadership.leading().state.groups) == ["under way"]
            nursery.cancel_scope.cancel()

    play(story)


def cluster_groups(cluster: GroupCluster, node: RaftNode) -> list[str]:
    """Return the groups in the image of a node."""
    (host,) = [host for host in cluster.group if host.raft is node]
    assert isinstance(host.state, ReplicatedState)
    return list(host.state.groups.groups)
