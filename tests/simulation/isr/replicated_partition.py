"""One partition on four brokers, replicated by the real cores under a real cluster's metadata.

It extends `tests.simulation.metadata.replicas`; but `isr` decides the ISR, the high watermark and
the truncation of logs. Every message between brokers takes time, and may be lost or overtaken.
Further invariants: no replica shows uncommitted records. No leader proposes a replica for the ISR
whose last report was damage. A damaged replica is repaired with the original records.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from tests.simulation.metadata.replicas import CHOICES, NODES, Batch, Replica, Replication
from tidelog.coordinator.metadata.commands import (
    AlterPartitions,
    InSyncReplica,
    PartitionAnswers,
    ProposedIsr,
)
from tidelog.coordinator.metadata.records import PartitionRegistration
from tidelog.isr.divergence import LogShape, find_divergence
from tidelog.isr.durability import Durability
from tidelog.isr.follower import (
    Append,
    Drop,
    FetchPosition,
    LeaderAnswer,
    PartitionFollower,
    Refuse,
    Restart,
    Truncate,
)
from tidelog.isr.follower_progress import FollowerReport
from tidelog.isr.followers import Followers, IsrChange
from tidelog.isr.leader import PartitionLeader
from tidelog.isr.replica_set import BrokerStatus, BrokerView, ReplicaSet
from tidelog.logstore.leader_epochs import LeaderEpochs
from tidelog.wire.errors import BrokerError, NotEnoughReplicasError
from tidelog.wire.messages.produce import Acks

LAG_MAX_MS = 3000


@dataclass(slots=True)
class LiveReplica(Replica):
    """A broker with the cores of one partition."""

    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    leader: PartitionLeader | None = None
    follower: PartitionFollower | None = None
    brokers: dict[int, BrokerStatus] = field(default_factory=dict[int, BrokerStatus])
    """States of the brokers, as this broker knows them."""

    def shape(self) -> LogShape:
        return LogShape(0, len(self.log), self.epochs)

    def known_high_watermark(self) -> int:
        if self.leader is not None:
            return self.leader.high_watermark
        return self.high_watermark if self.follower is None else self.follower.high_watermark

    def append(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self.epochs.assign(batch[0], len(self.log))
            self.log.append(batch)

    def truncate(self, offset: int) -> None:
        del self.log[offset:]
        self.damage = {place for place in self.damage if place < offset}
        self.durable_end = len(self.log)
        self.epochs.truncate_end(len(self.log))
        assert self.follower is not None
        self.follower.truncated(len(self.log))
        self.high_watermark = min(self.high_watermark, len(self.log))


@dataclass(frozen=True, slots=True)
class Question:
    """A fetch, or only a report of the durable end."""

    node: int
    broker_epoch: int
    leader_id: int
    leader_epoch: int
    position: FetchPosition
    durable_end: int
    is_whole: bool
    is_fetch: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """A leader's reply to a fetch."""

    question: Question
    answer: LeaderAnswer
    batches: tuple[Batch, ...]


class ReplicatedPartition(Replication):
    """The cores, and the messages between them."""

    actions = (*CHOICES, *["carry"] * 4, "produce carelessly", "lose memory")
    now_ms: int = 0
    _slowness = 0.0
    """Probability that a follower skips a sync of its log."""
    _rashness = 0.0
    """Probability that unsynced records are lost as soon as there are some."""

    def __init__(self, durability: str) -> None:
        """Begin with three in-sync replicas without records."""
        self.talk: list[Question | Answer] = []
        self._isr_changes: dict[int, tuple[PartitionLeader, IsrChange]] = {}
        self._knew_more: set[int] = set()
        """Brokers that know committed records which the only replica in memory has lost since."""
        self._heard: dict[PartitionLeader, dict[int, tuple[int, bool]]] = {}
        """Last report of each follower to each leader: broker epoch, and whether it is
        undamaged."""
        super().__init__(durability)

    def new_replica(self, log: list[Batch], durable_end: int, broker_epoch: int) -> Replica:
        """Return a broker that derives leader epochs from its log."""
        replica = LiveReplica([], durable_end, broker_epoch=broker_epoch)
        replica.append(log)
        return replica

    def of(self, node: int) -> LiveReplica:
        replica = self.replicas[node]
        assert isinstance(replica, LiveReplica)
        return replica

    def step(self, random: Random) -> None:
        """Advance the time, and execute one action."""
        if self.now_ms == 0:
            self._slowness = random.choice((0.0, 0.3, 0.8))
            self._rashness = random.choice((0.0, 0.1, 0.5))
        self.now_ms += random.choice((1, 10, 100, 400))
        super().step(random)

    def check(self) -> None:
        """Check in addition that no replica shows records that may be lost."""
        super().check()
        for node in NODES:
            replica = self.of(node)
            if not replica.is_running:
                continue
            shown = replica.known_high_watermark()
            assert shown <= len(replica.log), f"broker {node} shows records that it does not have"
            is_committed = replica.log[:shown] == self.acknowledged[:shown]
            if is_committed:
                self._knew_more.discard(node)
            assert is_committed or node in self._knew_more, (
                f"broker {node} shows uncommitted records"
            )

    def _start(self, node: int, disk_id: str | None) -> None:
        before = len(self.acknowledged)
        checkpointed = self.replicas[node].high_watermark
        super()._start(node, disk_id)
        replica = self.of(node)
        replica.high_watermark = min(checkpointed, len(replica.log))
        if len(self.acknowledged) < before:
            # The only replica has lost its memory, and other brokers had seen its records.
            self._knew_more |= {
                other
                for other in NODES
                if self.of(other).known_high_watermark() > len(self.acknowledged)
            }

    def _learn(self, node: int) -> None:
        replica = self.of(node)
        known = replica.known_high_watermark()
        before = replica.view
        super()._learn(node)
        view = replica.view
        assert view is not None
        for broker in self.cluster.state.brokers.values():
            replica.brokers[broker.node_id] = BrokerStatus(broker.broker_epoch, broker.can_lead)
        durability = Durability.FSYNC if view.is_fsync else Durability.REPLICATED
        is_new = before is None or before.partition.leader_epoch != view.partition.leader_epoch
        replica_set = _replica_set(view.partition, view.minimum)
        if is_new:
            replica.leader = replica.follower = None
            if view.partition.leader == node:
                replica.leader = self._lead(node, replica_set, durability, known=known)
            else:
                replica.follower = PartitionFollower(
                    leader_id=view.partition.leader,
                    leader_epoch=view.partition.leader_epoch,
                    high_watermark=known,
                    data_loss_epoch=view.partition.data_loss_epoch,
                )
        elif replica.leader is not None:
            replica.leader.durability = durability
            replica.leader.replicas_changed(replica_set, now_ms=self.now_ms)
        self._advance(node)

    def _lead(
        self, node: int, replica_set: ReplicaSet, durability: Durability, *, known: int
    ) -> PartitionLeader:
        replica = self.of(node)
        view = BrokerView(node, self.of(node).brokers.get, LAG_MAX_MS)
        end = len(replica.log)
        assert replica.view is not None
        return PartitionLeader(
            leader_epoch=replica.view.partition.leader_epoch,
            durability=durability,
            log_end_offset=end,
            durable_end_offset=replica.durable_end,
            high_watermark=known,
            followers=Followers(replica_set, view, epoch_start_offset=end, now_ms=self.now_ms),
        )

    def _advance(self, node: int) -> None:
        """Update the committed records of a leader."""
        replica = self.of(node)
        if replica.leader is None:
            return
        replica.leader.progressed(
            log_end_offset=len(replica.log), durable_end_offset=replica.durable_end
        )
        committed = replica.log[: replica.leader.high_watermark]
        both = min(len(committed), len(self.acknowledged))
        assert committed[:both] == self.acknowledged[:both], "two histories were acknowledged"
        if len(committed) > len(self.acknowledged):
            self.counts["acknowledged"] = self.counts.get("acknowledged", 0) + 1
            self.acknowledged = committed

    def produce(self, node: int, random: Random) -> None:
        """A leader gets records with acks=all, if enough replicas are in sync."""
        self._produce(node, Acks.ALL, random)

    def produce_carelessly(self, node: int, random: Random) -> None:
        """A leader gets records of a producer that does not wait for other replicas."""
        self._produce(node, Acks.LEADER, random)

    def _produce(self, node: int, acks: Acks, random: Random) -> None:
        replica = self.of(node)
        if not self.leads(node) or replica.leader is None:
            return
        try:
            replica.leader.require_enough_in_sync(acks)
        except NotEnoughReplicasError:
            return
        for _ in range(random.randint(1, 3)):
            self._record += 1
            replica.append([(replica.leader.leader_epoch, self._record)])
        self._advance(node)

    def flush(self, node: int, random: Random) -> None:
        """A broker syncs its log, and a follower reports that."""
        replica = self.of(node)
        is_slow = self._is_hard and replica.leader is None and random.random() < self._slowness
        if not replica.is_running or is_slow:
            return
        super().flush(node, random)
        self._advance(node)
        replica.high_watermark = replica.known_high_watermark()  # It writes a checkpoint.
        self._say(node, is_fetch=False)

    def lose_memory(self, node: int, random: Random) -> None:
        """A process ends with unsynced records, and the next one begins at once."""
        del node
        unsafe = [
            node
            for node in NODES
            if self.of(node).is_running and self.of(node).durable_end < len(self.of(node).log)
        ]
        if not unsafe or random.random() >= self._rashness:
            return
        node = random.choice(unsafe)
        replica = self.of(node)
        replica.is_running = False
        replica.was_unclean = replica.has_lost = True
        del replica.log[replica.durable_end :]
        replica.damage = {place for place in replica.damage if place < replica.durable_end}
        self.start(node, random)
        self.unfence(node, random)

    def fetch(self, node: int, random: Random) -> None:
        """A follower fetches from its leader."""
        self._say(node, is_fetch=True)
        if not self._is_hard:
            while self.talk:
                self._carry(self.talk.pop(0), random)

    def _say(self, node: int, *, is_fetch: bool) -> None:
        replica = self.of(node)
        follower = replica.follower
        if not replica.is_running or follower is None or follower.leader_id is None:
            return
        question = Question(
            node,
            replica.broker_epoch,
            follower.leader_id,
            follower.leader_epoch,
            follower.position(replica.shape()),
            replica.durable_end,
            not replica.damage,
            is_fetch,
        )
        self.talk.append(question)

    def carry(self, node: int, random: Random) -> None:
        """A message arrives, or is lost."""
        del node
        if self.talk:
            # Late messages often arrive late; seldom they are overtaken, or lost.
            place = 0 if random.random() < 0.7 else random.randrange(len(self.talk))
            said = self.talk.pop(place)
            if random.random() < 0.95:
                self._carry(said, random)

    def _carry(self, said: Question | Answer, random: Random) -> None:
        if isinstance(said, Answer):
            self._take(said)
        else:
            self._answer(said, random)

    def _answer(self, question: Question, random: Random) -> None:
        node = question.leader_id
        replica = self.of(node)
        leader = replica.leader
        if not replica.is_running or leader is None:
            return
        if leader.leader_epoch != question.leader_epoch:
            return
        position = question.position
        if not question.is_fetch:
            leader.follower_became_durable(
                question.node, question.broker_epoch, question.durable_end, now_ms=self.now_ms
            )
            self._advance(node)
            return
        diverging = find_divergence(
            replica.shape(),
            fetch_offset=position.fetch_offset,
            last_fetched_epoch=position.last_fetched_epoch,
        )
        batches: tuple[Batch, ...] = ()
        if diverging is None:
            report = FollowerReport(
                question.node,
                question.broker_epoch,
                position.fetch_offset,
                question.durable_end,
                question.is_whole,
            )
            heard = self._heard.setdefault(leader, {})
            if question.broker_epoch >= heard.get(question.node, (0, True))[0]:
                heard[question.node] = (question.broker_epoch, question.is_whole)
            leader.follower_reported(report, now_ms=self.now_ms)
            self._advance(node)
            start = position.fetch_offset
            count = random.randint(0, 4) if self._is_hard else 20
            batches = tuple(replica.log[start : start + count])
            readable = min((place for place in replica.damage if place >= start), default=None)
            batches = batches if readable is None else batches[: readable - start]
        answer = LeaderAnswer(leader.leader_epoch, position, leader.high_watermark, 0, diverging)
        self.talk.append(Answer(question, answer, batches))

    def _take(self, said: Answer) -> None:
        replica = self.of(said.question.node)
        follower = replica.follower
        if not replica.is_running or replica.broker_epoch != said.question.broker_epoch:
            return
        if follower is None:
            return
        match follower.answered(replica.shape(), said.answer):
            case Truncate(offset):
                assert offset < len(replica.log), "truncating would not end"
                replica.truncate(offset)
                self.counts["truncated"] = self.counts.get("truncated", 0) + 1
            case Append():
                replica.append(said.batches)
                follower.appended(said.answer, log_end_offset=len(replica.log))
            case Refuse(offset):
                self.refused(said.question.node, offset)
            case Restart():
                raise AssertionError("all logs here begin at the same offset")
            case Drop():
                self.counts["dropped"] = self.counts.get("dropped", 0) + 1

    def refused(self, node: int, offset: int) -> None:
        """A follower refuses to truncate its log: here no leader lacks committed records."""
        raise AssertionError(f"broker {node} refuses to truncate committed records from {offset}")

    def ask(self, node: int, random: Random) -> None:
        """A leader proposes an ISR change."""
        del random
        self.now_ms += 0 if self._is_hard else 100
        replica = self.of(node)
        leader = replica.leader
        if not self.leads(node) or leader is None:
            return
        change = leader.next_isr_change(now_ms=self.now_ms)
        self._advance(node)
        if change is not None:
            heard = self._heard.get(leader, {})
            for member, _ in change.in_sync_replicas:
                assert heard.get(member, (0, True))[1], f"broker {member} is damaged"
            self.under_way.append((node, self._command(node, leader, change)))
            self._isr_changes[id(self.under_way[-1][1])] = (leader, change)

    def repair(self, node: int, random: Random) -> None:
        """A follower repairs its log with the records of its leader."""
        del random
        replica = self.of(node)
        follower = replica.follower
        if not replica.is_running or follower is None or not follower.is_beginning:
            return
        source = self.replicas.get(follower.leader_id or 0)
        if source is None or not source.is_running or not replica.damage:
            return
        leader = self.of(follower.leader_id or 0).leader
        if leader is None or leader.leader_epoch != follower.leader_epoch:
            return
        for place in replica.damage - source.damage:
            theirs = source.log[place : place + 1]
            assert theirs == [replica.log[place]], "repaired with another record"
            self.counts["repaired"] = self.counts.get("repaired", 0) + 1
        replica.damage &= source.damage

    def _command(self, node: int, leader: PartitionLeader, change: IsrChange) -> AlterPartitions:
        command = ProposedIsr(
            self.topic_id,
            0,
            leader.leader_epoch,
            change.partition_epoch,
            [InSyncReplica(member, epoch) for member, epoch in change.in_sync_replicas],
        )
        return AlterPartitions(node, self.of(node).broker_epoch, [command])

    def deliver(self, node: int, random: Random) -> None:
        """A leader's proposal arrives; perhaps late, twice, or without a reply."""
        del node
        if not self.under_way:
            return
        place = random.randrange(len(self.under_way))
        sender, command = self.under_way[place]
        leader, change = self._isr_changes[id(command)]
        fate = random.random() if self._is_hard else 1.0
        if fate < 0.1:  # The leader stops waiting for the reply; the request is still in flight.
            leader.on_isr_change_rejected(change, is_certain=False, now_ms=self.now_ms)
            return
        del self.under_way[place]
        try:
            reply = self.cluster.answer(PartitionAnswers, command)
        except BrokerError:
            leader.on_isr_change_rejected(change, is_certain=True, now_ms=self.now_ms)
            return
        if fate < 0.2:
            leader.on_isr_change_rejected(change, is_certain=False, now_ms=self.now_ms)
        elif reply.answers[0].error is not None:
            self.counts["refused"] = self.counts.get("refused", 0) + 1
            leader.on_isr_change_rejected(change, is_certain=True, now_ms=self.now_ms)
        else:
            self.counts["in sync changed"] = self.counts.get("in sync changed", 0) + 1
            if self.of(sender).leader is leader and self.leads(sender):
                self._learn(sender)
                leader.on_isr_change_committed(change)
        if self.of(sender).leader is leader:
            self._advance(sender)


def _replica_set(partition: PartitionRegistration, minimum: int) -> ReplicaSet:
    return ReplicaSet(
        partition.replicas, partition.in_sync_replicas, partition.partition_epoch, minimum
    )
