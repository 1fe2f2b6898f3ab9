"""Tests of the observer of nodes: it sees their events until it is removed."""

# Reads the wrapped functions.
# pyright: reportPrivateUsage=false

import trio

from tests.coordinator.raft_clients import until
from tests.coordinator.raft_nodes import hosts, lists, values_of
from tests.simulation.cluster.witness import has_entry, state_of, witnessing
from tests.simulation.machine.world import Simulation, World
from tidelog.coordinator.raft.messages import Entry, Message, SnapshotMeta
from tidelog.coordinator.raft_node.node import RaftNode


class Notes:
    """Records its calls."""

    def __init__(self) -> None:
        self.began_ids: list[int] = []
        self.leaders: list[RaftNode] = []
        self.entries: dict[int, list[Entry]] = {}
        self.messages: list[Message] = []

    def began(self, node: RaftNode) -> None:
        self.began_ids.append(node.identity.node_id)

    def elected(self, node: RaftNode) -> None:
        self.leaders.append(node)

    def sends(self, node: RaftNode, message: Message) -> None:
        assert message.sender == node.identity
        self.messages.append(message)

    def applying(self, node: RaftNode, entry: Entry) -> None:
        assert node.applied_index < entry.index

    def applied(self, node: RaftNode, entry: Entry) -> None:
        assert node.applied_index == entry.index
        self.entries.setdefault(node.identity.node_id, []).append(entry)

    def restored(self, node: RaftNode, meta: SnapshotMeta) -> None:
        raise AssertionError(f"there are too few entries for a snapshot: {node.identity} {meta}")


def test_events_of_nodes_are_seen() -> None:
    notes = Notes()
    committed: list[bytes] = []

    async def main(world: World) -> None:
        group = hosts(world, 3, lists())
        for host in group:
            host.start()
        with witnessing(notes), trio.fail_after(30):
            await until(lambda: any(host.raft and host.raft.is_active_leader for host in group))
            leader = notes.leaders[-1]
            index = await leader.propose(b"one")
            await until(lambda: all(values_of(host) == {index: b"one"} for host in group))
            assert state_of(leader) == state_of(group[0].raft or leader)
            assert has_entry(leader, index, leader.term)
            assert not has_entry(leader, index, leader.term - 1)
            assert not has_entry(leader, index + 1, leader.term)
            committed.append(b"one")

    Simulation(1).run(main)

    assert committed == [b"one"]
    assert sorted(notes.began_ids) == [1, 2, 3]
    assert [[entry.payload for entry in entries][-1] for entries in notes.entries.values()] == [
        b"one"
    ] * 3
    assert notes.messages


def test_the_observer_is_removed_at_the_end() -> None:
    before = dict(RaftNode.__dict__)

    with witnessing(Notes()):
        assert RaftNode.__dict__["_apply"] is not before["_apply"]

    assert dict(RaftNode.__dict__) == before
