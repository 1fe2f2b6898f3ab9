"""Aimed faults: cases that random runs of a replicated partition seldom reach.

At the end of a run a leader proposes all replicas that have caught up for the ISR. Then no reply
comes, or a proposed replica loses its state. Or all brokers end, and a replica that counts has lost
the end of its log, and returns first. Only then all replicas recover.
"""

from collections.abc import Callable, Iterable
from random import Random

from tests.simulation.isr.replicated_partition import LAG_MAX_MS, ReplicatedPartition
from tests.simulation.metadata.replicas import NODES, TOPIC, replicate
from tidelog.coordinator.metadata.catalog import AlterTopic
from tidelog.coordinator.metadata.commands import (
    AlterPartitions,
    ElectRecovered,
    RefusedTruncation,
    RefuseTruncation,
)
from tidelog.isr.followers import JOINING_HOLD_MS
from tidelog.wire.errors import BrokerError


class AimedPartition(ReplicatedPartition):
    """A replicated partition with a fault at the worst moment before it heals."""

    _cut: int | None = None
    """A broker whose replica has lost the end of its log, while it lacks acknowledged records."""

    def check(self) -> None:
        """Check in addition that a replica without acknowledged records is not relied on."""
        if self._cut is not None:
            replica = self.of(self._cut)
            count = len(self.acknowledged)
            replica.has_lost = replica.log[:count] != self.acknowledged
            if not replica.has_lost:
                self._cut = None
        super().check()

    def refused(self, node: int, offset: int) -> None:
        """A follower knows more committed records than its leader, and reports that."""
        if self._cut is None:
            super().refused(node, offset)
        replica = self.of(node)
        follower = replica.follower
        assert follower is not None
        refused = RefusedTruncation(
            self.topic_id,
            0,
            follower.leader_epoch,
            offset,
            follower.high_watermark,
            len(replica.log),
            replica.epochs.latest,
            not replica.damage,
        )
        self.counts["truncation refused"] = self.counts.get("truncation refused", 0) + 1
        try:
            self.cluster.do(RefuseTruncation(node, replica.broker_epoch, [refused]))
        except BrokerError:
            return

    def heal(self, random: Random) -> None:
        """Propose, strike, and continue with the remaining replicas; then recover all replicas."""
        self._is_hard = False
        for node in NODES:
            if not self.cluster.broker(node).is_shutting_down:
                self.start(node, random)
                self.unfence(node, random)
        self._all_act((self.learn, *[self.flush, self.fetch] * 3), random)
        hits = (self._die, self._stand_still, self._be_fenced, self._lose_disks, self._lose_an_end)
        hit = random.choice(hits)
        hit(random)
        if self._cut is None:
            self._go_on(random)
        super().heal(random)
        assert self._cut is None, "acknowledged records are missing"

    def _die(self, random: Random) -> None:
        """The joining replica never comes back, and the leader does not know whether it joined."""
        for node, _ in self._ask_in_vain(random):
            self.of(node).is_running = False
            self.cluster.fence(node)

    def _stand_still(self, random: Random) -> None:
        """The joining replica pauses while the leader continues, and joins late."""
        late = self._ask_in_vain(random)
        for node, _ in late:
            self.of(node).is_running = False
        self._write(random)
        self._arrive(late, random)

    def _be_fenced(self, random: Random) -> None:
        """As before, but the joining replica is fenced until the leader has settled the change."""
        late = self._ask_in_vain(random)
        for node, _ in late:
            self.of(node).is_running = False
            self.cluster.fence(node)
        self.now_ms += LAG_MAX_MS
        self._all_act((self.learn, self.ask, self.deliver, self.learn), random)
        self._write(random)
        for node, _ in late:
            self.cluster.unfence(node)
        self._arrive(late, random)

    def _lose_disks(self, random: Random) -> None:
        """The joining replica restarts with an empty disk, and its leader has learned of that."""
        for node in self._outsiders():
            replica = self.of(node)
            replica.is_running = False
            self.cluster.fence(node)
            replica.log, replica.durable_end, replica.has_lost = [], 0, True
            replica.damage = set()
            self._start(node, f"disk-{self.cluster.draw()}")
            self.unfence(node, random)
        self._all_act((self.learn, self.ask, self.deliver), random)

    def _lose_an_end(self, random: Random) -> None:
        """All brokers end. One has lost the end of its log, and takes it for a torn tail."""
        self._bring_in_sync(random)
        partition, count = self.cluster.partition(), len(self.acknowledged)
        topic = self.cluster.state.catalog.topic(TOPIC)
        known = {node: self.of(node) for node in partition.in_sync_or_eligible}
        if len(known) < 2 or any(
            replica.damage
            or not replica.high_watermark == count > 0
            or self.cluster.state.may_lose_committed(topic, self.cluster.broker(node))
            for node, replica in known.items()
        ):
            return
        nodes = list(NODES)
        random.shuffle(nodes)
        for node in nodes:
            self.of(node).is_running, self.of(node).was_unclean = False, True
            self.cluster.fence(node)
        self.talk, self.under_way = [], []
        self._cut = random.choice(self.cluster.partition().eligible_leader_replicas)
        replica = self.of(self._cut)
        del replica.log[random.randrange(count) :]
        replica.has_lost = True
        replica.durable_end = len(replica.log)
        self._start(self._cut, None)
        self.check()
        self.unfence(self._cut, random)
        self.learn(self._cut, random)
        self.report_log_end(self._cut, random)
        if random.random() < 0.7:  # The election does not wait for the others any longer.
            epoch = self.cluster.partition().leader_epoch
            self._try(ElectRecovered([(self.topic_id, 0, epoch)]))
        self.learn(self._cut, random)
        self.produce_carelessly(self._cut, random)

    def _bring_in_sync(self, random: Random) -> None:
        """Let all replicas join that can, under settings that need more than one for a commit."""
        for settings in ({"durability": "fsync"}, {"min_insync_replicas": "2"}):
            self._try(AlterTopic(TOPIC, settings, []))
        acts = (self.learn, self.produce, self.flush, self.fetch, self.ask, self.deliver)
        for node in NODES:
            replica = self.of(node)
            if replica.is_running and not self.cluster.broker(node).is_shutting_down:
                replica.is_running = replica.was_unclean = False
                replica.durable_end = len(replica.log)
                self.start(node, random)
                self.unfence(node, random)
            for _ in range(4):
                self.now_ms += LAG_MAX_MS // 4
                self._all_act(acts, random)
        self._all_act([self.flush, self.fetch] * 2 + [self.flush], random)
        # Before a reassignment was complete, there may have been too few replicas for it.
        self._try(AlterTopic(TOPIC, {"min_insync_replicas": "2"}, []))

    def _ask_in_vain(self, random: Random) -> list[tuple[int, AlterPartitions]]:
        """Send proposals without a reply; return the joining replicas and the commands."""
        self._all_act((self.ask,), random)
        asked: list[tuple[int, AlterPartitions]] = []
        for _, command in self.under_way:
            leader, change = self._isr_changes[id(command)]
            leader.on_isr_change_rejected(change, is_certain=False, now_ms=self.now_ms)
            outsiders = self._outsiders()
            asked += [(node, command) for node, _ in change.in_sync_replicas if node in outsiders]

        self.under_way = []
        return asked

    def _outsiders(self) -> set[int]:
        partition = self.cluster.partition()
        return {*partition.replicas} - {*partition.in_sync_replicas}

    def _write(self, random: Random) -> None:
        """Append more, and give the leader time to forget the joining replica."""
        self.now_ms += 2 * JOINING_HOLD_MS
        self._all_act((self.produce, *[self.flush, self.fetch] * 2), random)

    def _arrive(self, late: Iterable[tuple[int, AlterPartitions]], random: Random) -> None:
        for _, command in late:
            self.under_way = [(command.node_id, command)]
            self.deliver(0, random)
            self.check()

    def _go_on(self, random: Random) -> None:
        """The records of the remaining replicas must become committed."""
        acts = (self.learn, self.produce, self.flush, self.fetch, self.ask, self.deliver)
        for _ in range(12):
            self.now_ms += LAG_MAX_MS // 4
            self._all_act(acts, random)
        self._all_act([self.flush, self.fetch] * 2, random)
        leader_id = self.cluster.partition().leader
        if leader_id is None or not self.leads(leader_id):
            return
        replica = self.of(leader_id)
        leader = replica.leader
        assert leader is not None
        if leader.replicas.has_enough:
            is_all = leader.high_watermark == len(replica.log)
            assert is_all, "the leader waits for a replica that does not come back"
            self.counts["without the dead"] = self.counts.get("without the dead", 0) + 1

    def _all_act(self, acts: Iterable[Callable[[int, Random], None]], random: Random) -> None:
        for act in acts:
            for node in NODES:
                if not self.cluster.broker(node).is_fenced:
                    act(node, random)
                    self.check()


def replicate_aimed(seed: int) -> dict[str, int]:
    """Execute the run of a seed; return counts of its events."""
    partition = replicate(seed, kind=AimedPartition)
    assert isinstance(partition, AimedPartition)
    return partition.counts
