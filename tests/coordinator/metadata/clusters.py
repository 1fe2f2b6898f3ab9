"""A cluster's metadata for tests; each command is checked for all permanent invariants."""

from collections.abc import Sequence
from typing import TypeVar

import pytest

from tests.coordinator.decoded_records import check_decodes_to_itself
from tests.simulation.metadata.invariants import all_partitions, check_state, check_step
from tidelog.coordinator.controller.log_entries import decode_entry, encode_entry
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.commands import (
    AlterPartitions,
    BeginShutdown,
    Command,
    CommandOutcome,
    CreateReplicatedTopic,
    ElectRecovered,
    FenceBroker,
    InSyncReplica,
    PartitionAnswer,
    PartitionAnswers,
    ProposedIsr,
    RegisterBroker,
    Registered,
    Reply,
    ReportedLog,
    ReportLogEnds,
    UnfenceBroker,
)
from tidelog.coordinator.metadata.records import (
    BrokerRegistration,
    LogEnd,
    PartitionRegistration,
    Record,
)
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.metadata.state_machine import MetadataStateMachine
from tidelog.wire.messages.features import SupportedLevels

NOW_MS = 1_700_000_000_000

R = TypeVar("R", bound=Reply)


class Cluster:
    """The controller's state, its image, and a follower that gets only the encoded records."""

    def __init__(self, *node_ids: int) -> None:
        """Start with these brokers, alive."""
        self.machine = MetadataStateMachine()
        self.image = MetadataStateMachine()
        """Applies the very records that the controller has proposed, as a leader's image does."""
        self.follower = MetadataStateMachine()
        self.records: list[Record] = []
        self.supported_levels: SupportedLevels | None = None
        """Feature levels of the processes that register; `None` for versions without any."""
        self._leaders: dict[tuple[bytes, int, int], int | None] = {}
        self._drawn = 0
        for node_id in node_ids:
            self.start(node_id)

    @property
    def state(self) -> ClusterState:
        return self.machine.state

    def handle(self, command: Command) -> CommandOutcome:
        """Return the outcome of a command, and check that the state did not change."""
        before = self.machine.snapshot()
        try:
            return self.machine.handle(command, now_ms=NOW_MS)
        finally:
            assert self.machine.snapshot() == before, "a command changed the state by itself"

    def do(self, command: Command) -> Reply:
        """Apply a command here and at the follower."""
        before = all_partitions(self.state)
        outcome = self.handle(command)
        check_decodes_to_itself(outcome.records)
        for record in outcome.records:
            self.machine.apply(record)
            self.image.apply(record)
        for record in decode_entry(encode_entry(outcome.records)).cluster:
            self.follower.apply(record)
        assert self.follower.snapshot() == self.image.snapshot() == self.machine.snapshot()
        check_state(self.state)
        if outcome.records:
            check_step(before, self.state, command)
        self._check_leaders()
        self.records += outcome.records
        return outcome.reply

    @pytest.mark.invariant("I45")
    def _check_leaders(self) -> None:
        """Check that a leader epoch of a partition has one leader, for ever (I45)."""
        for key, partition in all_partitions(self.state).items():
            leader = self._leaders.setdefault((*key, partition.leader_epoch), partition.leader)
            assert leader == partition.leader, "two leaders of one epoch"

    def answer(self, kind: type[R], command: Command) -> R:
        """Apply a command, and return its reply, which is of this kind."""
        reply = self.do(command)
        assert isinstance(reply, kind)
        return reply

    def draw(self) -> int:
        """Return a new number."""
        self._drawn += 1
        return self._drawn

    def broker(self, node_id: int) -> BrokerRegistration:
        return self.state.brokers[node_id]

    def registration(
        self, node_id: int, *, disk_id: str | None = None, unclean: bool = False, domain: str = ""
    ) -> RegisterBroker:
        """Return the registration of a new process of a broker."""
        known = self.state.brokers.get(node_id)
        disk = disk_id or (f"disk-{node_id}" if known is None else known.disk_id)
        clean = None if known is None or unclean else known.broker_epoch
        return RegisterBroker(
            node_id,
            disk,
            f"process-{self.draw()}",
            f"host-{node_id}",
            8433,
            domain,
            clean,
            known_epoch=0 if known is None else known.broker_epoch,
            supported_levels=self.supported_levels,
        )

    def register(
        self, node_id: int, *, disk_id: str | None = None, unclean: bool = False, domain: str = ""
    ) -> int:
        """Start a process of a broker, and return its broker epoch."""
        command = self.registration(node_id, disk_id=disk_id, unclean=unclean, domain=domain)
        return self.answer(Registered, command).broker_epoch

    def unfence(self, node_id: int) -> None:
        self.do(UnfenceBroker(node_id, self.broker(node_id).broker_epoch))

    def fence(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.do(FenceBroker(node_id, self.broker(node_id).broker_epoch))

    def start(self, node_id: int, *, unclean: bool = False, domain: str = "") -> None:
        """Start a process of a broker that catches up at once."""
        self.register(node_id, unclean=unclean, domain=domain)
        self.unfence(node_id)

    def shut_down(self, node_id: int) -> Reply:
        return self.do(BeginShutdown(node_id, self.broker(node_id).broker_epoch))

    def create(
        self, name: str, *replicas: Sequence[int], overrides: dict[str, str] | None = None
    ) -> bytes:
        """Create a topic with these replicas of its partitions, and return its id."""
        topic_id = self.draw().to_bytes(16, "big")
        self.do(
            CreateReplicatedTopic(
                name,
                topic_id,
                len(replicas),
                overrides or {},
                assignment=[list(nodes) for nodes in replicas],
            )
        )
        return topic_id

    def partition(self, name: str = "orders", number: int = 0) -> PartitionRegistration:
        """Return a partition of a topic, or of the journal of a queue."""
        found = self.state.partition(self._topic(name).topic_id, number)
        assert found is not None
        return found

    def _topic(self, name: str) -> Topic:
        (found,) = (topic for topic in self.state.catalog.topics if topic.name == name)
        return found

    def report_log_end(
        self,
        node_id: int,
        leader_epoch: int,
        log_end_offset: int,
        *,
        is_whole: bool = True,
        name: str = "orders",
    ) -> PartitionRegistration:
        """Report the log end of a replica of the first partition, and return the partition."""
        end = LogEnd(leader_epoch, log_end_offset, is_whole)
        current = self.partition(name).leader_epoch
        log = ReportedLog(self._topic(name).topic_id, 0, current, end)
        self.do(ReportLogEnds(node_id, self.broker(node_id).broker_epoch, [log]))
        return self.partition(name)

    def end_wait(self, name: str = "orders") -> PartitionRegistration:
        """Elect without the replicas that have not reported, and return the partition."""
        key = (self._topic(name).topic_id, 0, self.partition(name).leader_epoch)
        self.do(ElectRecovered([key]))
        return self.partition(name)

    def change(self, *in_sync: int, name: str = "orders", number: int = 0) -> ProposedIsr:
        """Return the ISR proposal of a leader that knows the current epochs."""
        partition = self.partition(name, number)
        return ProposedIsr(
            self._topic(name).topic_id,
            number,
            partition.leader_epoch,
            partition.partition_epoch,
            [InSyncReplica(node, self.broker(node).broker_epoch) for node in in_sync],
        )

    def ask(self, leader: int, *changes: ProposedIsr) -> list[PartitionAnswer]:
        """Send ISR proposals of a leader."""
        epoch = self.broker(leader).broker_epoch
        command = AlterPartitions(leader, epoch, list(changes))
        return self.answer(PartitionAnswers, command).answers

    def in_sync(
        self, *in_sync: int, name: str = "orders", number: int = 0
    ) -> PartitionRegistration:
        """Set the ISR of a partition by its leader, and return the partition."""
        leader = self.partition(name, number).leader
        assert leader is not None
        (answer,) = self.ask(leader, self.change(*in_sync, name=name, number=number))
        assert answer.error is None
        assert answer.partition == self.partition(name, number)
        return self.partition(name, number)
