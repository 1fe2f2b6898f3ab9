"""Minimal replication of one partition on brokers under a real cluster's metadata.

Every broker acts on the metadata that it has seen, which may be old; deposed leaders continue
for a while. Records are numbers, a log is a list. Invariant: a replica that may become leader has
every record that was ever acknowledged.

The leader's side keeps the rules of `docs/metadata.md`. Nothing is committed while too few replicas
are in sync. A proposed replica counts as in sync from the moment of the proposal (KIP-497). The
leader proposes only replicas that have all committed records, and all records of the log when its
leadership began.

Records may become corrupt on a disk, of one replica at a time. The broker removes such a replica,
which reports nothing while it is damaged, and is repaired by its leader. After an unclean end the
disk of one replica may also have lost durable records at the end of the log, which nothing on that
disk shows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.metadata.catalog import AlterTopic
from tidelog.coordinator.metadata.cluster_config import min_insync_replicas
from tidelog.coordinator.metadata.commands import (
    AlterPartitions,
    Command,
    ElectLeaders,
    FailedReplica,
    InSyncReplica,
    PartitionAnswers,
    ProposedIsr,
    Reassignment,
    ReassignReplicas,
    RemoveFromIsr,
    ReportedLog,
    ReportLogEnds,
)
from tidelog.coordinator.metadata.records import LogEnd, PartitionRegistration
from tidelog.wire.errors import BrokerError

NODES: tuple[int, ...] = (1, 2, 3, 4)
TOPIC = "orders"

Batch = tuple[int, int]
"""Leader epoch and the number of the record."""


ACTIONS = (
    "learn",
    "produce",
    "flush",
    "fetch",
    "ask",
    "deliver",
    "stop",
    "lose disk",
    "start",
    "unfence",
    "fence",
    "shut down",
    "report log end",
    "administrate",
)
"""Methods that act on a broker."""
OFTEN = {
    "learn": 0.6,
    "produce": 0.9,
    "flush": 0.7,
    "fetch": 0.7,
    "ask": 0.9,
    "start": 0.3,
    "report log end": 0.7,
    "unfence": 0.3,
    "deliver": 0.5,
    "report damage": 0.9,
    "repair": 0.3,
}
"""Frequent actions, and their probability to hit all brokers at once."""
_OFTEN = [name for name in OFTEN if name not in {"report damage", "repair"}]
CHOICES = [*ACTIONS, *_OFTEN, *_OFTEN, "learn", "fetch", "fetch"]
DAMAGING = ["rot", *["report damage", "repair"] * 2]
"""Additional actions in runs with corrupt records: one in four."""
CUTTING = [*["stop all"] * 3, *["crash leader"] * 2]
"""Additional actions in runs in which a tail may be cut: another one in four."""


@dataclass(frozen=True, slots=True)
class View:
    """Metadata that a broker has seen."""

    partition: PartitionRegistration
    minimum: int
    is_fsync: bool


@dataclass(slots=True)
class Replica:
    """One broker: its log, and the state of its process."""

    log: list[Batch] = field(default_factory=list[Batch])
    durable_end: int = 0
    is_running: bool = True
    has_lost: bool = False
    """Whether its process ended and lost records, and it has not registered since."""
    was_unclean: bool = False
    broker_epoch: int = 0
    view: View | None = None
    high_watermark: int = 0
    epoch_start: int = 0
    positions: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    """Broker epoch and end of each follower, by its last fetch in this leader epoch."""
    asked: tuple[int, ...] = ()
    """Replicas that count as in sync because the leader has proposed them."""
    asked_at: int = -1
    """Partition epoch of the proposal."""
    is_cut: bool = False
    """Whether its disk has lost durable records at the end of the log."""
    damage: set[int] = field(default_factory=set[int])
    """Indexes of unreadable records, as its process knows."""

    def end(self) -> int:
        """Return the end offset that it reports; a damaged replica has nothing to show."""
        assert self.view is not None
        if self.damage:
            return -1
        return self.durable_end if self.view.is_fsync else len(self.log)


class Replication:
    """One partition on four brokers."""

    actions: Sequence[str] = CHOICES
    """Possible actions; more frequent ones are repeated."""

    def __init__(self, durability: str) -> None:
        """Begin with three in-sync replicas without records."""
        self.cluster = Cluster(*NODES)
        overrides = {"durability": durability}
        self.topic_id = self.cluster.create(TOPIC, [1, 2, 3], overrides=overrides)
        self.replicas = {node: self.new_replica([], 0, 0) for node in NODES}
        self.acknowledged: list[Batch] = []
        self.reports: list[ReportLogEnds] = []
        self.under_way: list[tuple[int, AlterPartitions]] = []
        self._record = 0
        self._is_hard = True
        self.counts: dict[str, int] = {}
        for node in NODES:
            self.replicas[node].broker_epoch = self.cluster.broker(node).broker_epoch
            self._learn(node)

    def new_replica(self, log: list[Batch], durable_end: int, broker_epoch: int) -> Replica:
        """Return a broker in the state of its process's start."""
        return Replica(log, durable_end, broker_epoch=broker_epoch)

    def check(self) -> None:
        """Check that all replicas that may lead have all acknowledged records."""
        partition = self.cluster.partition()
        acknowledged = len(self.acknowledged)
        for node in (*partition.in_sync_replicas, *partition.eligible_leader_replicas):
            replica = self.replicas[node]
            if not (replica.has_lost or replica.is_cut):
                has = replica.log[:acknowledged]
                assert has == self.acknowledged, f"broker {node} may lead and lacks records"

        if partition.leader is not None:
            self._check_cut(partition)

    def _check_cut(self, partition: PartitionRegistration) -> None:
        """Check that a replica whose tail was cut leads only when it has all records again."""
        for node, replica in self.replicas.items():
            durable = replica.log[: replica.durable_end]
            if replica.is_cut and durable[: len(self.acknowledged)] == self.acknowledged:
                replica.is_cut = False
            is_registered = replica.broker_epoch == self.cluster.broker(node).broker_epoch
            assert not (
                replica.is_cut
                and replica.is_running
                and is_registered
                and node in partition.in_sync_replicas
            ), f"broker {node} leads or is in sync with a log that was cut"

    def step(self, random: Random) -> None:
        """Execute one action."""
        name = random.choice(self.actions)
        is_for_all = name in OFTEN and random.random() < OFTEN[name]
        for node in NODES if is_for_all else [random.choice(NODES)]:
            getattr(self, name.replace(" ", "_"))(node, random)
            self.check()

    def heal(self, random: Random) -> None:
        """Let all brokers recover and catch up; none must wait forever."""
        self._is_hard = False
        for node, replica in self.replicas.items():
            if self.cluster.broker(node).is_shutting_down and replica.is_running:
                replica.is_running = False
                replica.was_unclean = False
            self.start(node, random)
        for _ in range(60):
            for act in self.healing():
                for node in NODES:
                    act(node, random)
                    self.check()
        partition = self.cluster.partition()
        if partition.leader is None:
            assert not partition.eligible_leader_replicas
        elif self.replicas[partition.leader].damage:
            in_sync_or_eligible = {*partition.in_sync_replicas, *partition.eligible_leader_replicas}
            assert in_sync_or_eligible == {partition.leader}, (
                "a damaged replica leads although another one could"
            )
            self.counts["lost to rot"] = 1
        else:
            assert not any(self.replicas[node].damage for node in partition.replicas)
            assert partition.in_sync_replicas == partition.replicas, "a replica never joins the ISR"
            assert not partition.is_reassigning

    def healing(self) -> Sequence[Callable[[int, Random], None]]:
        """Return the actions that repeat while all brokers recover."""
        return (
            self.report_damage,
            self.unfence,
            self.learn,
            self.report_log_end,
            self.flush,
            self.fetch,
            self.repair,
            self.ask,
            self.deliver,
        )

    def leads(self, node: int) -> bool:
        """Return whether a broker believes that it leads."""
        replica = self.replicas[node]
        return (
            replica.is_running
            and replica.view is not None
            and replica.view.partition.leader == node
        )

    def _learn(self, node: int) -> None:
        replica = self.replicas[node]
        topic = self.cluster.state.catalog.topic(TOPIC)
        partition = self.cluster.partition()
        minimum = min_insync_replicas(
            topic, self.cluster.state.config, partition.replication_factor
        )
        before = replica.view
        is_fsync = topic.config.durability.value == "fsync"
        replica.view = View(partition, minimum, is_fsync)
        if before is None or before.partition.leader_epoch != partition.leader_epoch:
            replica.positions = {}
            replica.asked = ()
            replica.epoch_start = len(replica.log)
        elif partition.partition_epoch > replica.asked_at:
            replica.asked = ()

    def learn(self, node: int, random: Random) -> None:
        """A broker sees the newest metadata."""
        del random
        replica = self.replicas[node]
        if replica.is_running and replica.broker_epoch == self.cluster.broker(node).broker_epoch:
            self._learn(node)

    def produce(self, node: int, random: Random) -> None:
        """A leader gets a record, if enough replicas are in sync."""
        replica = self.replicas[node]
        if not self.leads(node):
            return
        assert replica.view is not None
        if len(replica.view.partition.in_sync_replicas) >= replica.view.minimum:
            for _ in range(random.randint(1, 3)):
                self._record += 1
                replica.log.append((replica.view.partition.leader_epoch, self._record))
            self._advance(node)

    def flush(self, node: int, random: Random) -> None:
        """A broker syncs its log."""
        del random
        replica = self.replicas[node]
        if replica.is_running:
            replica.durable_end = len(replica.log)
            if self.leads(node):
                self._advance(node)

    def fetch(self, node: int, random: Random) -> None:
        """A follower fetches from its leader, which learns its position and returns records."""
        follower = self.replicas[node]
        if not follower.is_running or follower.view is None:
            return
        leader_id = follower.view.partition.leader
        if leader_id in {None, node} or not self.leads(leader_id or 0):
            return
        leader = self.replicas[leader_id or 0]
        assert leader.view is not None
        if leader.view.partition.leader_epoch != follower.view.partition.leader_epoch:
            return
        common = 0
        for ours, theirs in zip(leader.log, follower.log, strict=False):
            if ours != theirs:
                break
            common += 1
        if common < len(follower.log):
            del follower.log[common:]
            follower.damage = {place for place in follower.damage if place < common}
            follower.durable_end = min(follower.durable_end, common)
            return
        leader.positions[node] = (follower.broker_epoch, follower.end())
        self._advance(leader_id or 0)
        readable = min((place for place in leader.damage if place >= common), default=None)
        follower.log += leader.log[common : common + random.randint(0, 4)][
            : None if readable is None else readable - common
        ]

    def _advance(self, node: int) -> None:
        leader = self.replicas[node]
        assert leader.view is not None
        in_sync = leader.view.partition.in_sync_replicas
        if len(in_sync) < leader.view.minimum:
            return
        others = {*in_sync, *leader.asked} - {node}
        ends = [leader.end(), *(leader.positions.get(member, (0, 0))[1] for member in others)]
        leader.high_watermark = max(leader.high_watermark, min(ends))
        committed = leader.log[: leader.high_watermark]
        both = min(len(committed), len(self.acknowledged))
        assert committed[:both] == self.acknowledged[:both], "two histories were acknowledged"
        if len(committed) > len(self.acknowledged):
            self.counts["acknowledged"] = self.counts.get("acknowledged", 0) + 1
            self.acknowledged = committed

    def _is_slow(self, random: Random) -> bool:
        """Return whether a follower is treated as lagging for too long."""
        return self._is_hard and random.random() < 0.2

    def ask(self, node: int, random: Random) -> None:
        """A leader proposes an ISR change."""
        leader = self.replicas[node]
        if not self.leads(node) or leader.asked:
            return
        assert leader.view is not None
        partition = leader.view.partition
        epochs = {member: leader.positions.get(member, (0, 0))[0] for member in partition.replicas}
        epochs[node] = leader.broker_epoch
        for member in partition.in_sync_replicas:
            # For members that have not fetched yet the leader knows the epoch from the metadata.
            epochs[member] = epochs[member] or self.cluster.broker(member).broker_epoch
        wanted = list(partition.in_sync_replicas)
        for member in partition.replicas:
            position = leader.positions.get(member, (0, -1))[1]
            is_damaged = position < 0 and member in leader.positions
            caught_up = position >= max(leader.high_watermark, leader.epoch_start)
            if member not in wanted and caught_up:
                wanted.append(member)
            elif member in wanted and member != node and (is_damaged or self._is_slow(random)):
                wanted.remove(member)
        if sorted(wanted) == sorted(partition.in_sync_replicas):
            return
        leader.asked = tuple(wanted)
        leader.asked_at = partition.partition_epoch
        change = ProposedIsr(
            self.topic_id,
            0,
            partition.leader_epoch,
            partition.partition_epoch,
            [InSyncReplica(member, epochs[member]) for member in wanted],
        )
        command = AlterPartitions(node, leader.broker_epoch, [change])
        self.under_way.append((node, command))

    def deliver(self, node: int, random: Random) -> None:
        """A leader's proposal arrives, perhaps late."""
        del node
        if not self.under_way:
            return
        sender, command = self.under_way.pop(random.randrange(len(self.under_way)))
        leader = self.replicas[sender]
        change = command.changes[0]
        try:
            reply = self.cluster.answer(PartitionAnswers, command)
        except BrokerError:
            return
        is_same = leader.view is not None and (
            leader.view.partition.leader_epoch == change.leader_epoch
            and leader.asked_at == change.partition_epoch
        )
        if reply.answers[0].error is None:
            self.counts["in sync changed"] = self.counts.get("in sync changed", 0) + 1
        elif is_same:
            leader.asked = ()
            self.counts["refused"] = self.counts.get("refused", 0) + 1

    def stop(self, node: int, random: Random) -> None:
        """A process ends: cleanly, or not."""
        replica = self.replicas[node]
        if not replica.is_running or random.random() < 0.5:
            return
        replica.is_running = False
        if random.random() < 0.4:
            replica.durable_end = len(replica.log)
            replica.was_unclean = False
            return
        replica.was_unclean = True
        left = random.randint(replica.durable_end, len(replica.log))
        replica.has_lost = left < len(replica.log)
        del replica.log[left:]
        replica.damage = {place for place in replica.damage if place < left}
        replica.durable_end = left

    def crash_leader(self, node: int, random: Random) -> None:
        """A leader's process ends uncleanly, with durable records that no follower has."""
        replica = self.replicas[node]
        if not self.leads(node) or random.random() < 0.5:
            return
        self.produce(node, random)
        replica.durable_end = len(replica.log)
        replica.is_running = False
        replica.was_unclean = True

    def stop_all(self, node: int, random: Random) -> None:
        """All processes end at once, and mostly one disk loses the end of the log.

        While the partition waits for replicas after that, the process that loses it may be the only
        one to end: it may have reported its log end.
        """
        if random.random() < 0.8 or any(replica.is_cut for replica in self.replicas.values()):
            return
        partition = self.cluster.partition()
        is_only_one = partition.leader is None and random.random() < 0.7
        for other, replica in self.replicas.items():
            if replica.is_running and (other == node or not is_only_one):
                replica.is_running = False
                replica.was_unclean = True
                replica.has_lost |= replica.durable_end < len(replica.log)
                del replica.log[replica.durable_end :]
        cut = self.replicas[node]
        has_another = any(
            self.replicas[other].log[: len(self.acknowledged)] == self.acknowledged
            for other in partition.in_sync_or_eligible
            if other != node
        )
        is_relied_on = node in partition.in_sync_or_eligible and has_another
        is_down = not cut.is_running and cut.was_unclean
        if is_relied_on and is_down and cut.log and random.random() < 0.7:
            del cut.log[random.randrange(len(cut.log)) :]
            cut.durable_end = len(cut.log)
            cut.is_cut = True
            reported = {each.node_id for each in partition.unverified_replicas if each.log_end}
            if node in reported:
                self.counts["cut after a report"] = self.counts.get("cut after a report", 0) + 1
            self.counts["cut"] = self.counts.get("cut", 0) + 1

    def report_log_end(self, node: int, random: Random) -> None:
        """A broker whose replica was recovered reports its end while there is no leader."""
        replica = self.replicas[node]
        if not replica.is_running or replica.view is None:
            return
        partition = replica.view.partition
        if partition.leader is not None or self.leads(node):
            return
        last_epoch = replica.log[-1][0] if replica.log else -1
        end = LogEnd(last_epoch, len(replica.log), is_whole=not replica.damage)
        log = ReportedLog(self.topic_id, 0, partition.leader_epoch, end)
        self.reports.append(ReportLogEnds(node, replica.broker_epoch, [log]))
        if random.random() < 0.2:
            return  # It arrives late.
        random.shuffle(self.reports)
        while self.reports:
            self._try(self.reports.pop())

    def lose_disk(self, node: int, random: Random) -> None:
        """A broker that does not run gets an empty disk."""
        replica = self.replicas[node]
        is_one_cut = any(each.is_cut for each in self.replicas.values())
        is_fenced = self.cluster.broker(node).is_fenced
        if replica.is_running or not is_fenced or is_one_cut or random.random() < 0.5:
            return
        replica.log = []
        replica.damage = set()
        replica.durable_end = 0
        replica.has_lost = True
        self._start(node, f"disk-{self.cluster.draw()}")

    def start(self, node: int, random: Random) -> None:
        """A process begins."""
        del random
        if not self.replicas[node].is_running:
            self._start(node, None)

    def _start(self, node: int, disk_id: str | None) -> None:
        before = self.replicas[node]
        topic = self.cluster.state.catalog.topic(TOPIC)
        in_memory = self.cluster.state.may_lose_committed(topic, self.cluster.broker(node))
        partition = self.cluster.partition()
        have = {*partition.in_sync_replicas, *partition.eligible_leader_replicas}
        is_only_copy = partition.replication_factor == 1 and have == {node}
        if is_only_copy and disk_id is None and in_memory:
            # The only replica in memory continues with its records: no better one can come back.
            del self.acknowledged[len(before.log) :]
        epoch = self.cluster.register(node, disk_id=disk_id, unclean=before.was_unclean)
        self.replicas[node] = self.new_replica(before.log, before.durable_end, epoch)
        self.replicas[node].damage = before.damage
        self.replicas[node].is_cut = before.is_cut

    def unfence(self, node: int, random: Random) -> None:
        """A broker has caught up; before, it removes its damaged replicas from the ISR."""
        self.report_damage(node, random)
        replica = self.replicas[node]
        broker = self.cluster.broker(node)
        if replica.is_running and replica.broker_epoch == broker.broker_epoch:
            self.learn(node, random)
            self.cluster.unfence(node)

    def fence(self, node: int, random: Random) -> None:
        """A broker is fenced because it is gone, or because it pauses."""
        if not self.replicas[node].is_running or random.random() < 0.3:
            self.cluster.fence(node)

    def shut_down(self, node: int, random: Random) -> None:
        """A broker is about to stop."""
        if self.replicas[node].is_running and random.random() < 0.2:
            self.cluster.shut_down(node)

    def rot(self, node: int, random: Random) -> None:
        """Corrupt a durable record that other replicas in the ISR or eligible still have."""
        replica = self.replicas[node]
        partition = self.cluster.partition()
        in_sync_or_eligible = {*partition.in_sync_replicas, *partition.eligible_leader_replicas}
        is_first = not any(other.damage for other in self.replicas.values())
        if (
            is_first
            and in_sync_or_eligible - {node}
            and replica.durable_end
            and random.random() < 0.3
        ):
            replica.damage = {random.randrange(replica.durable_end)}
            self.counts["corrupt"] = self.counts.get("corrupt", 0) + 1

    def report_damage(self, node: int, random: Random) -> None:
        """A broker reports that its replica is damaged."""
        del random
        replica = self.replicas[node]
        if not replica.is_running or not replica.damage:
            return
        failed = FailedReplica(self.topic_id, 0, may_lack_records=True)
        try:
            self.cluster.do(RemoveFromIsr(node, replica.broker_epoch, [failed]))
        except BrokerError:
            return

    def repair(self, node: int, random: Random) -> None:
        """A follower whose log is a prefix of its leader's repairs its damaged records from it."""
        del random
        follower = self.replicas[node]
        if not follower.is_running or follower.view is None or not follower.damage:
            return
        leader = self.replicas.get(follower.view.partition.leader or 0)
        if leader is None or leader is follower or leader.view is None or not leader.is_running:
            return
        is_same = leader.view.partition.leader_epoch == follower.view.partition.leader_epoch
        if is_same and follower.log == leader.log[: len(follower.log)]:
            follower.damage &= leader.damage

    def administrate(self, node: int, random: Random) -> None:
        """An administrator changes settings, replicas or leaders."""
        if random.random() < 0.4:
            return
        choice = random.randrange(4)
        if choice == 0:
            minimum = str(random.randint(1, 3))
            self._try(AlterTopic(TOPIC, {"min_insync_replicas": minimum}, []))
        elif choice == 1:
            replicas = random.sample(NODES, random.randint(1, 3))
            wish = Reassignment(self.topic_id, 0, replicas if node > 1 else None)
            self._try(ReassignReplicas([wish]))
        elif choice == 2:
            self._try(ElectLeaders([(self.topic_id, 0)]))
        elif CUTTING[0] not in self.actions:  # With a disk that was cut, that is a second fault.
            durability = random.choice(["fsync", "replicated"])
            self._try(AlterTopic(TOPIC, {"durability": durability}, []))

    def _try(self, command: Command) -> None:
        try:
            self.cluster.do(command)
        except BrokerError:
            return


def replicate(
    seed: int, steps: int = 600, kind: Callable[[str], Replication] = Replication
) -> Replication:
    """Run one partition for a while, or until no replica is left that may lead it."""
    random = Random(seed)
    replication = kind(random.choice(["fsync", "replicated"]))
    if seed % 4 == 0:
        replication.actions = [*replication.actions, *DAMAGING]
    if seed % 4 == 1:
        replication = kind("fsync")
        replication.actions = [*replication.actions, *CUTTING]
        if seed % 8 == 1:  # Then a single replica is eligible after an outage.
            alone = AlterTopic(TOPIC, {"min_insync_replicas": "1"}, [])
            replication.cluster.do(alone)
    for _ in range(steps):
        replication.step(random)
        partition = replication.cluster.partition()
        if not partition.in_sync_replicas and not partition.eligible_leader_replicas:
            break
    replication.heal(random)
    return replication
