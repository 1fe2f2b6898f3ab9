"""Cluster nodes: joining, voting, moving, and restarts after a loss."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, final

import pytest
import trio

from tests.cluster_secret import dialer_of
from tests.coordinator.raft_clients import until
from tests.coordinator.raft_nodes import PORT, Answer, Answerer, SlowAnswer, listen
from tests.simulation.machine.process import Process
from tests.simulation.machine.world import Simulation, World
from tidelog.broker.handlers.raft import RaftHandler
from tidelog.broker.partitions.data_directory import DataDirectory, DiskIds, open_data_directory
from tidelog.coordinator.bootstrap.open_node import METADATA_DIRECTORY, open_node
from tidelog.coordinator.controller.broker_lifecycle import BrokerInfo, BrokerLifecycle
from tidelog.coordinator.metadata.broker_sessions import SESSION_MS
from tidelog.coordinator.metadata.catalog import TakeProducerIds
from tidelog.coordinator.metadata.commands import ProducerIds
from tidelog.coordinator.node import ClusterNode
from tidelog.coordinator.raft.membership import Identity
from tidelog.coordinator.raft_node import node as raft_node
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerNotReadyError,
    ConfigError,
    DuplicateBrokerError,
    LogOfflineError,
    TidelogError,
)
from tidelog.wire.messages.cluster import (
    BrokerHeartbeatReply,
    BrokerHeartbeatRequest,
    ForwardCommandReply,
    ForwardCommandRequest,
    JoinReply,
    JoinRequest,
    PeerStatusReply,
    RaftReply,
    RaftRequest,
    RaftSnapshotReply,
    RaftSnapshotRequest,
)
from tidelog.wire.messages.features import OWN_LEVELS
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api

SESSION_S: Final = SESSION_MS / 1000


@final
class Member:
    """A machine with a node and its broker."""

    def __init__(
        self, world: World, node_id: int, peer_ids: Sequence[int], *, name: str = ""
    ) -> None:
        """Start with these peers, itself included; `name` is that of the machine."""
        self.node_id = node_id
        self.machine = world.add_node(name or f"node{node_id}")
        self.cluster: ClusterNode | None = None
        """The node, while it is open."""
        self.error: TidelogError | None = None
        """Error with which the node ended."""
        self.addresses = {peer_id: (f"node{peer_id}", PORT) for peer_id in peer_ids}
        self._status: PeerStatusReply | None = None
        self._handler: tuple[ClusterNode, RaftHandler] | None = None

    def start(self) -> None:
        """Start the process."""
        self.machine.start(self._run)

    def stop(self) -> None:
        """End the process as in a crash."""
        self.machine.kill()
        self.cluster = None

    @property
    def node(self) -> ClusterNode:
        """The open node."""
        assert self.cluster is not None
        return self.cluster

    @property
    def identity(self) -> Identity:
        """Its identity in the cluster."""
        return self.node.raft.identity

    async def _run(self, process: Process) -> None:
        env, disk = process.env, process.disk
        disk_ids = DiskIds.draw(env.random)
        directory = await env.run_in_thread(
            lambda: open_data_directory(disk, node_id=self.node_id, disk_ids=disk_ids)
        )
        async with trio.open_nursery() as nursery:
            answerer = self._answerer(nursery)
            nursery.start_soon(partial(listen, env, self.machine.name, answerer, nursery=nursery))

            def answer(status: PeerStatusReply) -> None:
                self._status = status

            found = await open_node(
                env,
                FileCache(disk),
                directory,
                dialer=dialer_of(env, self.node_id),
                addresses=self.addresses,
                answer=answer,
            )
            answer(found.status)
            cluster = ClusterNode(
                env,
                found,
                self.addresses,
                nursery=nursery,
                dialer=dialer_of(env, self.node_id),
            )
            self.cluster = cluster
            broker = self._broker(env, cluster, directory)
            join = partial(cluster.keep_joined, self.machine.name, PORT)
            for task in (cluster.run, join, broker.run):
                nursery.start_soon(self._until_it_fails, task, nursery.cancel_scope)
        self.cluster = None

    def _broker(self, env: Env, cluster: ClusterNode, directory: DataDirectory) -> BrokerLifecycle:
        info = BrokerInfo(
            self.node_id,
            directory.disk_id,
            self.machine.name,
            PORT,
            "",
            None,
            directory.directory_epoch,
        )
        return BrokerLifecycle(
            env,
            cluster.command_client,
            cluster.metadata,
            info=info,
            cluster_id=cluster.raft.cluster_id,
            is_only_voter=lambda: cluster.raft.is_only_voter,
            write_epoch=lambda epoch: env.run_in_thread(lambda: directory.note_epoch(epoch)),
        )

    async def _until_it_fails(
        self, task: Callable[[], Awaitable[None]], scope: trio.CancelScope
    ) -> None:
        try:
            await task()
        except TidelogError as error:
            self.error = error
            scope.cancel()

    def _answerer(self, nursery: trio.Nursery) -> Answerer:
        answers: dict[Api[Any, Any], Answer] = {
            api.PEER_STATUS: self._say_status,
            api.RAFT: self._receive,
            api.RAFT_SNAPSHOT: self._receive_piece,
        }
        slow: Mapping[Api[Any, Any], SlowAnswer] = {
            api.FORWARD_COMMAND: self._decide,
            api.BROKER_HEARTBEAT: self._take_heartbeat,
            api.JOIN: self._let_join,
        }
        answerer = Answerer(self.node_id, answers)
        answerer.add_slow(slow, nursery)
        return answerer

    def _running(self) -> ClusterNode:
        if self.cluster is None:
            raise BrokerNotReadyError("it has just started")
        return self.cluster

    def _say_status(self, _: object, __: memoryview) -> PeerStatusReply:
        if self._status is None:
            raise BrokerNotReadyError("it has just started")
        return self._status if self.cluster is None else self.cluster.peer_status()

    def _raft(self) -> RaftHandler:
        node = self._running()
        if self._handler is None or self._handler[0] is not node:
            self._handler = (node, RaftHandler(node.raft))
        return self._handler[1]

    def _receive(
        self, request: RaftRequest, attachment: memoryview, node_id: int
    ) -> RaftReply | None:
        return self._raft().handle(request, attachment, node_id)

    def _receive_piece(
        self, request: RaftSnapshotRequest, piece: memoryview, node_id: int
    ) -> RaftSnapshotReply:
        return self._raft().handle_snapshot(request, piece, node_id)

    async def _decide(self, request: ForwardCommandRequest) -> ForwardCommandReply:
        return await self._running().command_client.decide(request)

    async def _take_heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatReply:
        return await self._running().command_client.take_heartbeat(request)

    async def _let_join(self, request: JoinRequest) -> JoinReply:
        return await self._running().command_client.join(request)


Story = Callable[[World], Awaitable[None]]


def play(story: Story, *, seed: int = 1) -> None:
    async def main(world: World) -> None:
        with trio.fail_after(600):
            await story(world)

    Simulation(seed).run(main)


async def three(world: World) -> list[Member]:
    """Return three nodes that have formed a cluster, with unfenced brokers."""
    members = [Member(world, node_id, (1, 2, 3)) for node_id in (1, 2, 3)]
    for member in members:
        member.start()
    await until(lambda: live_brokers(members[0]) == [1, 2, 3])
    return members


def live_brokers(member: Member) -> list[int]:
    """Return the unfenced brokers, as far as one node knows."""
    if member.cluster is None:
        return []
    brokers = member.cluster.metadata.state.brokers.values()
    return sorted(broker.node_id for broker in brokers if not broker.is_fenced)


def voters(member: Member) -> list[int]:
    """Return the voters, as far as one node knows."""
    if member.cluster is None:
        return []
    return sorted(voter.node_id for voter in member.cluster.raft.membership.voters)


def learners(member: Member) -> list[int]:
    """Return the learners, as far as one node knows."""
    if member.cluster is None:
        return []
    return [learner.node_id for learner in member.cluster.raft.membership.learners]


def leader_of(members: list[Member]) -> Member | None:
    """Return the leading member."""
    for member in members:
        if member.cluster is not None and member.cluster.raft.is_active_leader:
            return member
    return None


async def decided(member: Member) -> None:
    """Commit a command through one node."""
    reply = await member.node.command_client.submit(TakeProducerIds(), timeout_s=20)
    assert isinstance(reply, ProducerIds)


def test_a_single_node_decides_without_a_join_request() -> None:
    async def story(world: World) -> None:
        alone = Member(world, 1, ())
        alone.start()
        await until(lambda: alone.cluster is not None)

        await alone.node.wait_first_term()

        assert alone.node.raft.is_active_leader
        with trio.fail_after(0):
            await alone.node.keep_joined("node1", PORT)
            await alone.node.transfer_leadership()
        await decided(alone)

    play(story)


def test_a_cluster_grows_from_one_node_to_five_voters_and_no_more() -> None:
    async def story(world: World) -> None:
        members = [Member(world, 1, ())]
        members[0].start()
        for node_id, expected in ((2, [1]), (3, [1, 2, 3]), (4, [1, 2, 3])):
            members.append(Member(world, node_id, (1, node_id)))
            members[-1].start()
            await until(lambda node_id=node_id: node_id in live_brokers(members[0]))  # type: ignore[misc]
            await trio.sleep(5)
            assert voters(members[0]) == expected
        for node_id in (5, 6, 7):
            members.append(Member(world, node_id, (1, node_id)))
            members[-1].start()

        await until(lambda: len(live_brokers(members[0])) == 7)
        await trio.sleep(5)

        assert voters(members[0])[:4] == [1, 2, 3, 4]
        assert [(len(voters(each)), len(learners(each))) for each in members] == [(5, 2)] * 7
        assert len({each.node.raft.cluster_id for each in members}) == 1

    play(story)


def test_listeners_are_called_when_a_node_is_no_longer_alone_and_alone_again() -> None:
    async def story(world: World) -> None:
        first, second = Member(world, 1, ()), Member(world, 2, (1, 2))
        first.start()
        await until(lambda: first.cluster is not None)
        node = first.node
        heard: list[tuple[bool, int]] = []

        def hear() -> None:
            heard.append((node.is_alone, len(node.metadata.state.brokers)))

        node.on_alone(hear)
        await until(lambda: live_brokers(first) == [1])
        assert {is_alone for is_alone, _ in heard} == {True}

        second.start()
        await until(lambda: heard[-1] == (False, 2))
        assert 2 in node.metadata.state.brokers, "learners are brokers before they vote"
        second.stop()
        await until(lambda: live_brokers(first) == [1])
        assert heard[-1] == (False, 2)

        await node.controller.unregister(2)

        assert heard[-1] == (True, 1)

    play(story)


def test_a_node_joins_through_a_follower() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        follower = next(each for each in members if not each.node.raft.is_leader)
        late = Member(world, 4, (4, follower.node_id))

        late.start()

        await until(lambda: learners(late) == [4])
        await until(lambda: live_brokers(late) == [1, 2, 3, 4])
        await decided(late)
        await trio.sleep(5)
        assert voters(late) == [1, 2, 3], "a fourth voter does not raise the fault tolerance"

    play(story)


def wipe(member: Member) -> None:
    """Replace the disk of a machine by an empty one."""
    member.machine.wipe_disk()


def lose(member: Member) -> None:
    """Remove the metadata of a machine."""
    disk = member.machine.disk
    disk.remove_directory(METADATA_DIRECTORY)
    disk.sync_directory("")


def damage(member: Member) -> None:
    """Damage the vote of a machine."""
    member.machine.disk.flip_bit(f"{METADATA_DIRECTORY}/vote", 12, 1)


@pytest.mark.parametrize("misfortune", [wipe, lose, damage])
def test_a_voter_without_its_metadata_comes_back_as_a_new_voter(
    misfortune: Callable[[Member], None],
) -> None:
    async def story(world: World) -> None:
        members = await three(world)
        unlucky, first, second = members[2], members[0], members[1]
        before = unlucky.identity
        unlucky.stop()
        misfortune(unlucky)
        await until(lambda: 3 not in live_brokers(first))

        unlucky.start()
        await until(lambda: live_brokers(unlucky) == [1, 2, 3])
        await until(lambda: voters(unlucky) == [1, 2, 3])

        assert unlucky.identity.node_id == before.node_id
        assert unlucky.identity != before
        assert before not in first.node.raft.membership.members
        second.stop()
        await decided(first)

    play(story)


def test_a_wiped_node_waits_for_the_end_of_its_old_session() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        leader = leader_of(members)
        assert leader is not None
        leader.stop()
        wipe(leader)

        leader.start()  # The next leader gives its old identity a full session.
        await until(lambda: live_brokers(leader) == [1, 2, 3], 60)

        assert leader.error is None

    play(story)


def test_a_second_process_with_the_id_of_a_live_node_is_refused() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        before = [member.identity for member in members]
        stranger = Member(world, 2, (1, 2, 3), name="stranger")

        stranger.start()
        await until(lambda: stranger.error is not None)

        assert isinstance(stranger.error, DuplicateBrokerError)
        assert "node id 2 belongs to a live broker at node2:8433" in str(stranger.error)
        await trio.sleep(2 * SESSION_S)
        assert [member.error for member in members] == [None] * 3
        assert [member.identity for member in members] == before
        assert sorted(members[0].node.raft.membership.voters) == sorted(before)
        assert live_brokers(members[0]) == [1, 2, 3]
        assert {each.node.addresses.address_of(2) for each in members} == {("node2", PORT)}

    play(story)


def test_a_node_with_peers_of_another_cluster_is_refused() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        other = Member(world, 4, ())
        other.start()
        await until(lambda: other.cluster is not None)
        other.stop()
        confused = Member(world, 4, (4, 1), name="confused")
        confused.machine = other.machine

        confused.start()
        await until(lambda: confused.error is not None)

        assert isinstance(confused.error, ConfigError)
        cluster_id = members[0].node.raft.cluster_id
        assert f"node 1 belongs to cluster {cluster_id}, not to " in str(confused.error)
        assert voters(members[0]) == [1, 2, 3]
        assert learners(members[0]) == []

    play(story)


def carry_disk(old: Member, new: Member) -> None:
    """Move the disk of one machine into another one."""
    vars(new.machine)["_disk"] = old.machine.disk


def hosts_of_brokers(member: Member) -> list[str]:
    """Return the brokers' hosts, as far as one node knows."""
    brokers = member.node.metadata.state.brokers
    return [brokers[node_id].host for node_id in sorted(brokers)]


def test_a_node_with_a_new_address_is_found_by_its_announcement() -> None:
    async def story(world: World) -> None:
        first, second = Member(world, 1, ()), Member(world, 2, (1, 2))
        first.start()
        second.start()
        await until(lambda: live_brokers(first) == [1, 2])
        second.stop()
        await until(lambda: live_brokers(first) == [1])
        moved = Member(world, 2, (1, 2), name="elsewhere")
        carry_disk(second, moved)

        moved.start()

        await until(lambda: live_brokers(moved) == [1, 2])
        assert first.node.addresses.address_of(2) == ("elsewhere", PORT)
        assert moved.identity in first.node.raft.membership.learners

    play(story)


def test_a_cluster_whose_addresses_all_changed_reconnects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Each node has the others' old addresses from its snapshot, before any message arrives.
    monkeypatch.setattr(raft_node, "SNAPSHOT_AFTER_BYTES", 1)

    async def story(world: World) -> None:
        before = await three(world)
        for member in before:
            member.stop()
        after = [
            Member(world, member.node_id, (1, 2, 3), name=f"new{member.node_id}")
            for member in before
        ]
        for old, new in zip(before, after, strict=True):
            carry_disk(old, new)
            new.addresses = {member.node_id: (member.machine.name, PORT) for member in after}
            new.start()

        await until(lambda: leader_of(after) is not None)
        await until(lambda: hosts_of_brokers(after[0]) == ["new1", "new2", "new3"])
        assert leader_of(after) is not None

    play(story)


def test_a_stopping_leader_transfers_its_leadership() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        leader = leader_of(members)
        assert leader is not None
        term = leader.node.raft.term

        with trio.fail_after(1):
            await leader.node.transfer_leadership()

        assert not leader.node.raft.is_leader
        await until(lambda: leader_of(members) is not None, 1)
        assert leader_of(members) is not leader
        assert members[0].node.raft.term == term + 1, "no election timeout was needed"

    play(story)


def test_a_stopping_leader_with_dead_peers_does_not_wait_for_long() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        leader = leader_of(members)
        assert leader is not None
        for member in members:
            if member is not leader:
                member.stop()
        began_at = trio.current_time()

        await leader.node.transfer_leadership()

        assert trio.current_time() - began_at <= 2

    play(story)


def test_a_node_ends_with_an_error_when_its_disk_fails() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        leader = leader_of(members)
        assert leader is not None
        others = [each for each in members if each is not leader]

        leader.machine.disk.fail("sync", path=f"{METADATA_DIRECTORY}/{0:020d}.log")
        await decided(others[0])

        await until(lambda: leader.error is not None)
        assert isinstance(leader.error, LogOfflineError)
        await decided(others[1])

    play(story)


def leading(members: list[Member]) -> Member:
    return next(member for member in members if member.node.raft.is_active_leader)


def joining(controller: Member, member: Member) -> JoinRequest:
    """Return the request with which a member would announce another address."""
    return JoinRequest(
        controller.node.raft.cluster_id,
        member.node.status.peer,
        "elsewhere",
        8433,
        supported_levels=OWN_LEVELS,
    )


def test_a_copied_data_directory_is_refused_while_the_original_is_alive() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        controller = leading(members)
        original = next(member for member in members if member is not controller)
        before = controller.node.addresses.address_of(original.node.node_id)
        join = joining(controller, original)

        for asked in members:
            with pytest.raises(DuplicateBrokerError, match="copy of its data directory cannot"):
                await asked.node.command_client.join(join)

        for asked in members:
            assert asked.node.addresses.address_of(original.node.node_id) == before

    play(story)


def test_a_moved_data_directory_is_accepted_after_the_old_session() -> None:
    async def story(world: World) -> None:
        members = await three(world)
        controller = leading(members)
        moved = next(member for member in members if member is not controller)
        node_id, join = moved.node.node_id, joining(controller, moved)
        moved.machine.kill()
        await until(lambda: node_id not in live_brokers(controller))

        await controller.node.command_client.join(join)

        assert controller.node.addresses.address_of(node_id) == ("elsewhere", 8433)

    play(story)
