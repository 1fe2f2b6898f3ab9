"""Three nodes that serve consumer groups, and working members on machines of their own."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from typing import Any, TypeVar, final

import trio

from tests.cluster_secret import dialer_of
from tests.coordinator.command_cluster import Cluster
from tests.coordinator.raft_clients import until
from tests.coordinator.raft_nodes import PORT, Made, SlowAnswer, watch_roles
from tests.simulation.machine.process import Process
from tests.simulation.machine.world import Simulation, World
from tidelog.client.consumer.group.membership_protocol import (
    GroupPartition,
    MemberSettings,
    MembershipProtocol,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
)
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.group_coordinator.coordinator import Found, GroupCoordinator
from tidelog.coordinator.groups.commits import OffsetRange
from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.groups.partitions import Partition
from tidelog.coordinator.metadata.commands import CreateReplicatedTopic
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.coordinator.raft_node.peer_client import PeerClient
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerError,
    ConnectionLostError,
    LeaderNotAvailableError,
    NotControllerError,
    RequestTimedOutError,
    TidelogError,
)
from tidelog.wire.messages.groups import (
    CommitOffsetsReply,
    CommitOffsetsRequest,
    DescribedGroup,
    DescribeGroupsRequest,
    FetchOffsetsRequest,
    GroupHeartbeatReply,
    GroupHeartbeatRequest,
    PartitionCommit,
    Subscription,
    TopicPartitions,
)
from tidelog.wire.messages.offset_ranges import OffsetQuery, PartitionOffsets
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api

GROUP = "billing"
ORDERS = b"orders".ljust(16, b".")
WHOLE = PartitionOffsets(0, 1_000_000, 1_000_000)

Request = TypeVar("Request")
Reply = TypeVar("Reply")


@final
class KnownOffsets:
    """The bounds of all partitions' logs, as far as a test needs them."""

    def __init__(self) -> None:
        self.logs: dict[tuple[bytes, int], PartitionOffsets] = {}
        """Partitions that differ from the others."""
        self.is_reachable = True
        self.is_slow = False
        """Whether answers wait until the test releases them."""
        self._waiting: list[Callable[[], None]] = []
        self._went_on = trio.Event()
        self.questions: list[OffsetQuery] = []

    def look_up(self, partitions: Iterable[Partition], found: Found) -> None:
        """See `coordinator.group_coordinator.coordinator.OffsetFinder`."""
        logs = {one: self.logs.get(one, WHOLE) for one in partitions if self.is_reachable}
        ranges = {
            one: OffsetRange(log.log_start_offset, log.log_end_offset) for one, log in logs.items()
        }
        if self.is_slow:
            self._waiting.append(lambda: found(ranges))
        else:
            found(ranges)

    def go_on(self) -> None:
        """Send the delayed answers."""
        self.is_slow = False
        self._went_on.set()
        for answer in self._waiting:
            answer()

    async def ask(self, questions: Sequence[OffsetQuery]) -> list[PartitionOffsets]:
        """See `coordinator.group_coordinator.coordinator.OffsetFinder`."""
        self.questions += questions
        await trio.lowlevel.checkpoint()
        if self.is_slow:
            await self._went_on.wait()
        if not self.is_reachable:
            error = LeaderNotAvailableError("the partition has no leader").to_wire()
            return [PartitionOffsets(0, 0, 0, error=error) for _ in questions]
        return [self.logs.get((one.topic_id, one.partition), WHOLE) for one in questions]


@final
class Caller:
    """A client of the node that leads, which may first ask a wrong node."""

    def __init__(self, peers: PeerClient, nodes: Sequence[int]) -> None:
        self._peers = peers
        self._nodes = list(nodes)

    async def ask(
        self, api_: Api[Request, Reply], request: Request, *, timeout_s: float = 2.0
    ) -> Reply:
        """Send a request to one node; after a failure the next one goes to another node."""
        try:
            return await self._peers.ask(self._nodes[0], api_, request, timeout_s=timeout_s)
        except (ConnectionLostError, NotControllerError):
            self._nodes.append(self._nodes.pop(0))
            raise

    async def insist(self, api_: Api[Request, Reply], request: Request) -> Reply:
        """Ask until there is an answer or a refusal."""
        while True:
            try:
                return await self.ask(api_, request)
            except (ConnectionLostError, NotControllerError, RequestTimedOutError):
                await trio.sleep(0.05)


class GroupCluster(Cluster):
    """Three nodes with groups, and a machine for clients."""

    def __init__(self, world: World, config: GroupConfig | None = None) -> None:
        super().__init__(world, has_brokers=True)
        self.offsets = KnownOffsets()
        self.coordinators: dict[int, GroupCoordinator] = {}
        """Of each node's last process."""
        self.members: list[Member] = []
        self.work = Work()
        self.caller: Caller
        """On a machine of its own."""
        self._config = config
        self._has_caller = trio.Event()
        world.add_node("caller").start(self._be_the_caller)

    def _make(self, env: Env, node: RaftNode, nursery: trio.Nursery) -> Made:
        made = super()._make(env, node, nursery)
        assert isinstance(made.state, ReplicatedState)
        coordinator = GroupCoordinator(
            env, node, made.state, offsets=self.offsets, config=self._config
        )
        self.coordinators[node.identity.node_id] = coordinator
        answers: dict[Api[Any, Any], SlowAnswer] = {
            **made.slow_answers,
            api.GROUP_HEARTBEAT: coordinator.heartbeat,
            api.COMMIT_OFFSETS: coordinator.commit_offsets,
            api.FETCH_OFFSETS: coordinator.fetch_offsets,
            api.LIST_GROUPS: coordinator.administration.list_groups,
            api.DESCRIBE_GROUPS: coordinator.administration.describe_groups,
            api.RESET_OFFSETS: coordinator.administration.reset_offsets,
            api.ALTER_GROUP: coordinator.administration.alter_group,
            api.DELETE_GROUP: coordinator.administration.delete_group,
        }
        return Made(made.state, answers, [*made.tasks, coordinator.run])

    async def _be_the_caller(self, process: Process) -> None:
        async with trio.open_nursery() as nursery:
            self.caller = self.calling(process, nursery)
            self._has_caller.set()
            await trio.sleep_forever()

    def calling(self, process: Process, nursery: trio.Nursery) -> Caller:
        """Return a client of all nodes, for a process."""
        peers = PeerClient(
            nursery,
            dialer_of(process.env, 9),
            name="caller",
            address_of=lambda node_id: (f"node{node_id}", PORT),
        )
        return Caller(peers, [host.node_id for host in self.group])

    async def begin(self, partition_count: int = 4) -> None:
        """Wait until there are brokers, and a topic."""
        await self._has_caller.wait()
        leader, _ = await self.leader_and_another()
        await until(
            lambda: (
                len(self.lifecycles) == 3
                and all(each.may_lead() for each in self.lifecycles.values())
            )
        )
        await self.submit(leader, CreateReplicatedTopic("orders", ORDERS, partition_count, {}))

    def add_member(self, **settings: str | int) -> "Member":
        """Start one more member."""
        member = Member(self, len(self.members) + 1, **settings)
        self.members.append(member)
        member.start()
        return member

    async def heartbeat(
        self, member_id: str, epoch: int = 0, **fields: object
    ) -> GroupHeartbeatReply:
        """Send one heartbeat by hand."""
        if epoch == 0:
            fields.setdefault("subscription", Subscription(["orders"]))
            fields.setdefault("owned", [])
        request = GroupHeartbeatRequest(GROUP, member_id, epoch, **fields)  # type: ignore[arg-type]
        return await self.caller.insist(api.GROUP_HEARTBEAT, request)

    async def commit(
        self,
        partition: int,
        offset: int,
        *,
        member_id: str = "",
        epoch: int = -1,
        sequence: int = 1,
    ) -> CommitOffsetsReply:
        """Commit one offset by hand."""
        offsets = [PartitionCommit(ORDERS, partition, offset)]
        request = CommitOffsetsRequest(GROUP, member_id, epoch, sequence, offsets)
        return await self.caller.insist(api.COMMIT_OFFSETS, request)

    async def committed(self, partition: int = 0) -> int | None:
        """Fetch the committed offset of the group."""
        request = FetchOffsetsRequest(GROUP, [TopicPartitions(ORDERS, [partition])])
        reply = await self.caller.insist(api.FETCH_OFFSETS, request)
        return reply.offsets[0].offset

    async def described(self) -> DescribedGroup:
        """Describe the group."""
        request = DescribeGroupsRequest([GROUP])
        return (await self.caller.insist(api.DESCRIBE_GROUPS, request)).groups[0]


@final
class Work:
    """The acknowledged work of members, with its invariants."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, int] = {}
        """By partition, the highest acknowledged offset."""
        self.commit_count = 0
        self.refusals: list[BrokerError] = []

    def committed(self, partition: int, offset: int) -> None:
        """Record an acknowledgement."""
        self.acknowledged[partition] = max(offset, self.acknowledged.get(partition, 0))
        self.commit_count += 1

    def begins(self, partition: int, offset: int, known: int) -> None:
        """Fail if a member starts below an offset that was acknowledged before it asked."""
        assert offset >= known, f"partition {partition} begins at {offset}, {known} is committed"


@final
class Member:
    """One working member, on a machine of its own."""

    def __init__(self, cluster: GroupCluster, number: int, **settings: str | int) -> None:
        self.membership: MembershipProtocol
        self.machine = cluster.world.add_node(f"member{number}")
        self.positions: dict[int, int] = {}
        """Partitions that it works on, and the next record of each."""
        self._cluster = cluster
        self._settings = settings
        self._random: Random = cluster.world.streams.stream(f"member {number}")
        self._caller: Caller
        self._wake = trio.Event()

    @property
    def works(self) -> bool:
        """Whether its process runs."""
        return self.machine.process is not None

    def start(self) -> None:
        """Start its process."""
        self.machine.start(self._run)

    def kill(self) -> None:
        """End its process."""
        self.positions = {}
        self.machine.kill()

    async def _run(self, process: Process) -> None:
        self.positions = {}
        settings = MemberSettings(group_id=GROUP, **self._settings)  # type: ignore[arg-type]
        self.membership = MembershipProtocol(settings, Subscription(["orders"]), process.env.random)
        async with trio.open_nursery() as nursery:
            self._caller = self._cluster.calling(process, nursery)
            nursery.start_soon(self._work)
            while not self.membership.is_over:
                self._wake = trio.Event()
                with trio.move_on_at(self.membership.next_heartbeat_at()):
                    await self._wake.wait()
                await self._heartbeat(nursery)
            nursery.cancel_scope.cancel()

    async def _heartbeat(self, nursery: trio.Nursery) -> None:
        membership = self.membership
        heartbeat = membership.next_heartbeat(trio.current_time())
        if heartbeat is None:
            return
        try:
            reply = await self._caller.ask(api.GROUP_HEARTBEAT, heartbeat.request)
        except TidelogError as error:
            effects = membership.failed(heartbeat.number, error, trio.current_time())
        else:
            effects = membership.answered(heartbeat.number, reply, trio.current_time())
        for effect in effects:
            if isinstance(effect, PartitionsAssigned):
                nursery.start_soon(self._take_up, effect.partitions)
            elif isinstance(effect, PartitionsLost):
                for partition in effect.partitions:
                    self.positions.pop(partition.partition, None)
            elif isinstance(effect, PartitionsRevoked):
                nursery.start_soon(self._let_go, effect.partitions)

    async def _take_up(self, partitions: Sequence[GroupPartition]) -> None:
        wanted = [TopicPartitions(ORDERS, [one.partition for one in partitions])]
        known = dict(self._cluster.work.acknowledged)
        member_id = self.membership.member_id
        found = await self._caller.insist(api.FETCH_OFFSETS, FetchOffsetsRequest(GROUP, wanted))
        for one in found.offsets:
            offset = one.offset or 0
            self._cluster.work.begins(one.partition, offset, known.get(one.partition, 0))
            if member_id == self.membership.member_id and self._owns(one.partition):
                self.positions[one.partition] = offset

    async def _let_go(self, partitions: Sequence[GroupPartition]) -> None:
        await self._commit([one.partition for one in partitions])
        for one in partitions:
            self.positions.pop(one.partition, None)
        self.membership.released(partitions, trio.current_time())
        self._wake.set()

    async def _work(self) -> None:
        while True:
            await trio.sleep(self._random.uniform(0.05, 0.5))
            if self.membership.may_process(trio.current_time()):
                for partition in list(self.positions):
                    self._check_alone(partition)
                    self.positions[partition] += self._random.randrange(10)
            if self._random.random() < 0.5:
                await self._commit(list(self.positions))

    async def _commit(self, partitions: Sequence[int]) -> None:
        offsets = {one: self.positions[one] for one in partitions if one in self.positions}
        if not offsets:
            return
        request = CommitOffsetsRequest(
            GROUP,
            self.membership.member_id,
            self.membership.member_epoch,
            self.membership.next_commit_sequence(),
            [PartitionCommit(ORDERS, *each) for each in offsets.items()],
        )
        work = self._cluster.work
        try:
            reply = await self._caller.ask(api.COMMIT_OFFSETS, request)
        except ConnectionLostError:
            return
        except BrokerError as error:
            work.refusals.append(error)
            return
        for (partition, offset), result in zip(offsets.items(), reply.results, strict=True):
            if result.error is None:
                assert not result.has_moved_back
                work.committed(partition, offset)

    def _check_alone(self, partition: int) -> None:
        """Fail if another member may work on the same partition at this moment."""
        for other in self._cluster.members:
            is_at_work = (
                other is not self
                and other.works
                and partition in other.positions
                and other.membership.may_process(trio.current_time())
            )
            assert not is_at_work, f"{self.machine.name} and {other.machine.name} read {partition}"

    def _owns(self, partition: int) -> bool:
        mine = self.membership.owned - self.membership.releasing
        return any(one.partition == partition for one in mine)


def play(
    story: Callable[[GroupCluster], Awaitable[None]],
    *,
    seed: int = 1,
    config: GroupConfig | None = None,
) -> None:
    """Run a scenario on three nodes, after a topic was created."""

    async def main(world: World) -> None:
        watch_roles(world)
        cluster = GroupCluster(world, config)
        for host in cluster.group:
            host.start()
        with trio.fail_after(1000):
            await cluster.begin()
            await story(cluster)

    Simulation(seed).run(main)
