"""Toy world of consumer group members and a coordinator: client cores against the server core.

Time is a number, and the network is a queue of events. Messages are delayed, lost, repeated and
overtaken. Processes crash, pause and restart, and a new coordinator replaces the old one with
committed records only. Everything follows from a seed. `checks.Checks` observes.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import final

import msgspec

from tests.coordinator.decoded_records import check_decodes_to_itself
from tests.simulation.groups.checks import Checks
from tidelog.client.consumer.group.membership_protocol import (
    GroupPartition,
    HeartbeatDue,
    MemberSettings,
    MembershipEnded,
    MembershipEvent,
    MembershipProtocol,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
)
from tidelog.coordinator.groups.commits import OffsetRange
from tidelog.coordinator.groups.group_manager import GroupManager
from tidelog.coordinator.groups.partitions import Partition
from tidelog.coordinator.groups.records import GroupRecord
from tidelog.coordinator.groups.state_machine import ConsumerGroups, GroupsSnapshot
from tidelog.coordinator.groups.targets import TopicShape
from tidelog.wire.errors import BrokerError, ConnectionLostError, NotLeaderError
from tidelog.wire.messages.groups import (
    CommitOffsetsRequest,
    GroupHeartbeatReply,
    PartitionCommit,
    Subscription,
)

GROUP = "billing"
LOG_END = 1 << 40


@dataclass(frozen=True)
class Faults:
    """Rates of faults."""

    loss: float = 0.0
    """Fraction of messages that are lost, each way."""
    repeats: float = 0.0
    """Fraction of requests that arrive a second time, later."""
    returns: float = 0.0
    """Fraction of the old heartbeats and commits that reappear at the worst moment: when their
    partitions have come back to their member."""
    delay_ms: int = 20
    """Longest usual delay of a message, in ms; with loss some take a thousand times as long."""


@dataclass
class Entry:
    """A proposal that is not committed yet."""

    records: Sequence[GroupRecord]
    replies: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])


@final
class Process:
    """One consumer: a member core and an application that processes records."""

    def __init__(self, world: "World", settings: MemberSettings, topics: list[str]) -> None:
        self.world = world
        self.settings = settings
        self.core = MembershipProtocol(settings, Subscription(topics), world.random)
        self.is_alive = True
        self.standstill_end_ms = 0
        self.commit_chance = 0.3
        """Probability of a commit after each piece of work."""
        self.fickleness = 0.0
        """Probability of a new subscription just when a partition was revoked."""
        self.revocation_ms: tuple[int, int] = (0, 500)
        """Range of the time that the application takes to finish with a partition, in ms."""
        self.changed_ms = 0
        """Time of the last new assignment or revocation, in ms."""
        self.working: set[GroupPartition] = set()
        """Partitions that the application reads, whatever its core believes."""
        self.positions: dict[GroupPartition, int] = {}
        self.old_heartbeat: HeartbeatDue | None = None
        """The last heartbeat that reported owned partitions."""
        self.old_commits: dict[GroupPartition, tuple[CommitOffsetsRequest, int]] = {}
        """The last commits of partitions that were revoked."""
        world.after(0, self.step)
        if not world.is_idle:
            world.after(100, self.work)

    @property
    def now(self) -> float:
        return self.world.now_ms / 1000

    def when_awake(self, do: Callable[[], None]) -> None:
        """Act now, or at the end of a pause, or never."""
        if not self.is_alive:
            return
        wait_ms = self.standstill_end_ms - self.world.now_ms
        if wait_ms > 0:
            self.world.after(wait_ms, lambda: self.when_awake(do))
        else:
            do()
            self.world.check()

    def step(self) -> None:
        """Send a heartbeat when one is due, and check again soon."""
        if self.core.is_over or not self.is_alive:
            return
        if self.now >= self.core.next_heartbeat_at():
            self.when_awake(self.send_heartbeat)
        self.world.after(100, self.step)

    def send_heartbeat(self) -> None:
        heartbeat = self.core.next_heartbeat(self.now)
        if heartbeat is not None:
            self.world.after(10_000, lambda: self.time_out(heartbeat))
            if heartbeat.request.owned is not None:
                self.old_heartbeat = heartbeat
            self.world.to_coordinator(lambda: self.world.serve_heartbeat(self, heartbeat))

    def time_out(self, heartbeat: HeartbeatDue) -> None:
        error = ConnectionLostError("no answer in time")
        self.when_awake(lambda: self.carry_out(self.core.failed(heartbeat.number, error, self.now)))

    def hear(self, heartbeat: HeartbeatDue, answer: GroupHeartbeatReply | BrokerError) -> None:
        def hear_now() -> None:
            if isinstance(answer, BrokerError):
                effects = self.core.failed(heartbeat.number, answer, self.now)
            else:
                if answer.assignment is not None:
                    self.changed_ms = self.world.now_ms
                effects = self.core.answered(heartbeat.number, answer, self.now)
            self.carry_out(effects)

        self.when_awake(hear_now)

    def carry_out(self, effects: Sequence[MembershipEvent]) -> None:
        for effect in effects:
            match effect:
                case PartitionsRevoked():
                    self.return_old_heartbeat()
                    for one in effect.partitions:
                        self.finish_later(one)
                case PartitionsAssigned():
                    self.working.update(effect.partitions)
                    self.return_old_commits(effect.partitions)
                    if not self.world.is_idle:
                        for one in effect.partitions:
                            self.fetch_position(one)
                case PartitionsLost():
                    self.working.difference_update(effect.partitions)
                    for one in effect.partitions:
                        self.positions.pop(one, None)
                case MembershipEnded():
                    self.world.checks.stopped(self, effect.error)

    def return_old_heartbeat(self) -> None:
        """Repeat an old heartbeat, now that partitions are to be revoked."""
        old = self.old_heartbeat
        if old is not None and self.world.random.random() < self.world.faults.returns:
            self.world.after(1, lambda: self.world.serve_heartbeat(self, old))

    def return_old_commits(self, partitions: Sequence[GroupPartition]) -> None:
        """Repeat old commits, now that their partitions have come back."""
        for one in partitions:
            if one in self.old_commits and self.world.random.random() < self.world.faults.returns:
                request, made_ms = self.old_commits.pop(one)
                self.world.serve_commit(request, made_ms)

    def finish_later(self, partition: GroupPartition) -> None:
        member_id = self.core.member_id
        delay_ms = self.world.random.randint(*self.revocation_ms)
        self.world.after(
            delay_ms, lambda: self.when_awake(lambda: self.finish(partition, member_id))
        )

    def finish(self, partition: GroupPartition, member_id: str) -> None:
        """Commit and revoke a partition, if the membership is still the same."""
        if self.core.member_id != member_id:
            return
        if partition in self.positions:
            self.old_commits[partition] = (self.commit([partition]), self.world.now_ms)
        self.working.discard(partition)
        self.positions.pop(partition, None)
        self.changed_ms = self.world.now_ms
        self.carry_out(self.core.released([partition], self.now))
        if self.world.random.random() < self.fickleness:
            more = [f"not-there-{self.world.random.randint(0, 9)}"]
            self.core.subscribe(Subscription(sorted(self.world.topics) + more), self.now)

    def fetch_position(self, partition: GroupPartition) -> None:
        """Fetch the committed offset until there is a reply."""
        member_id = self.core.member_id

        def answered(offset: int) -> None:
            if self.core.member_id == member_id and partition in self.working:
                self.positions.setdefault(partition, offset)

        def ask() -> None:
            if (
                self.is_alive
                and self.core.member_id == member_id
                and partition in self.working
                and partition not in self.positions
            ):
                self.world.to_coordinator(
                    lambda: self.world.serve_offset(
                        partition, lambda offset: self.when_awake(lambda: answered(offset))
                    )
                )
                self.world.after(2_000, ask)

        ask()

    def work(self) -> None:
        """Read some records of readable partitions, and commit now and then."""
        if not self.is_alive or self.core.is_over:
            return

        def work_now() -> None:
            if not self.core.may_process(self.now):
                return
            for partition in sorted(self.working & self.core.owned):
                if partition in self.positions:
                    self.positions[partition] += self.world.random.randint(0, 5)
                    self.world.checks.processed(self, partition)
            if self.positions and self.world.random.random() < self.commit_chance:
                self.commit(sorted(self.positions.keys() & self.working))

        self.when_awake(work_now)
        self.world.after(500, self.work)

    def commit(self, partitions: Sequence[GroupPartition]) -> CommitOffsetsRequest:
        request = CommitOffsetsRequest(
            GROUP,
            self.core.member_id,
            self.core.member_epoch,
            self.core.next_commit_sequence(),
            [
                PartitionCommit(one.topic_id, one.partition, self.positions[one])
                for one in partitions
            ],
        )
        made_ms = self.world.now_ms
        self.world.to_coordinator(lambda: self.world.serve_commit(request, made_ms))
        return request


@final
class World:
    """The members, the coordinator and the network."""

    def __init__(self, seed: int, topics: dict[str, int], *, is_idle: bool = False) -> None:
        """Begin without members; an idle world has no readers and no check of owners."""
        self.random = Random(seed)
        self.is_idle = is_idle
        self.now_ms = 0
        self.faults = Faults()
        self.topics = {
            name: TopicShape(name.encode().ljust(16, b"."), count) for name, count in topics.items()
        }
        self.ranges: dict[Partition, OffsetRange] = {
            (shape.topic_id, number): OffsetRange(0, LOG_END)
            for shape in self.topics.values()
            for number in range(shape.partition_count)
        }
        self.processes: list[Process] = []
        self.checks = Checks(self)
        self.listeners: list[Callable[[GroupRecord], None]] = []
        """Callbacks for every committed record."""
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._event_count = 0
        self.image = ConsumerGroups()
        """The committed state."""
        self.saved = msgspec.msgpack.encode(self.image.snapshot())
        self.behind: list[GroupRecord] = []
        """Records committed since the snapshot."""
        self.pending: list[Entry] = []
        self.leading: GroupManager | None = GroupManager(ConsumerGroups(), 0)
        self.term = 1
        self.after(100, self.tick)

    # Time and network.

    def after(self, delay_ms: int, do: Callable[[], None]) -> None:
        self._event_count += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._event_count, do))

    def run(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, do = heapq.heappop(self._events)
            do()
        self.now_ms = end_ms

    def delay(self) -> int:
        if self.faults.loss and self.random.random() < 0.02:
            return self.random.randint(0, self.faults.delay_ms * 1000)
        return self.random.randint(1, self.faults.delay_ms)

    def to_coordinator(self, deliver: Callable[[], None]) -> None:
        if self.random.random() >= self.faults.loss:
            self.after(self.delay(), deliver)
        if self.random.random() < self.faults.repeats:
            self.after(self.delay() + self.random.randint(0, 20_000), deliver)

    def to_process(self, deliver: Callable[[], None]) -> None:
        if self.random.random() >= self.faults.loss:
            self.after(self.delay(), deliver)

    # Processes.

    def start(
        self,
        topics: list[str] | None = None,
        *,
        instance_id: str | None = None,
        assignor: str = "uniform",
    ) -> Process:
        settings = MemberSettings(
            group_id=GROUP,
            instance_id=instance_id,
            incarnation=self.now_ms + 1,
            assignor=assignor,
            rebalance_timeout=30.0,
        )
        process = Process(self, settings, topics or sorted(self.topics))
        self.processes.append(process)
        return process

    def crash(self, process: Process) -> None:
        process.is_alive = False
        process.working.clear()

    def leave(self, process: Process, *, is_restart: bool = False) -> None:
        process.when_awake(
            lambda: process.carry_out(process.core.leave(process.now, is_restart=is_restart))
        )

    def subscribe(self, process: Process, topics: list[str]) -> None:
        process.when_awake(lambda: process.core.subscribe(Subscription(topics), process.now))

    @property
    def living(self) -> list[Process]:
        return [one for one in self.processes if one.is_alive and not one.core.is_over]

    # The coordinator.

    def tick(self) -> None:
        leading = self.leading
        if leading is not None:
            deadline_ms = leading.next_deadline_ms
            if deadline_ms is not None and deadline_ms <= self.now_ms:
                outcome = leading.tick(self.topics, wall_ms=self.now_ms, now_ms=self.now_ms)
                for expired in outcome.reply:
                    self.checks.fenced(expired)
                self.propose(outcome.records)
        self.after(100, self.tick)

    def propose(
        self, records: Sequence[GroupRecord], reply: Callable[[], None] | None = None
    ) -> None:
        """Commit records soon, and send a reply when all records so far are committed."""
        if records:
            check_decodes_to_itself(records)
            self.checks.proposed(records)
            self.pending.append(Entry(records))
            term = self.term
            self.after(self.random.randint(1, 30), lambda: self.commit_next(term))
        if reply is not None:
            if self.pending:
                self.pending[-1].replies.append(reply)
            else:
                reply()
        self.check()

    def commit_next(self, term: int) -> None:
        if term == self.term and self.pending:
            entry = self.pending.pop(0)
            self.learn(entry.records)
            for reply in entry.replies:
                reply()

    def learn(self, records: Sequence[GroupRecord]) -> None:
        for record in records:
            self.image.apply(record)
            self.behind.append(record)
            self.checks.committed(record)
            for listener in self.listeners:
                listener(record)
        if self.random.random() < 0.05:
            self.saved = msgspec.msgpack.encode(self.image.snapshot())
            self.behind.clear()

    def fail_over(self, pause_ms: int) -> None:
        """Lose the coordinator and some uncommitted records; another one starts later."""
        self.term += 1
        self.leading = None
        surviving = self.pending[: self.random.randint(0, len(self.pending))]
        self.pending = []
        for entry in surviving:
            self.learn(entry.records)
        term = self.term
        self.after(pause_ms, lambda: self.begin_to_lead(term))

    def begin_to_lead(self, term: int) -> None:
        if term != self.term:
            return
        state = ConsumerGroups.restore(msgspec.msgpack.decode(self.saved, type=GroupsSnapshot))
        for record in self.behind:
            state.apply(record)
        assert state.snapshot() == self.image.snapshot()
        self.leading = GroupManager(state, self.now_ms)
        self.checks.new_leader()

    def serve_heartbeat(self, process: Process, heartbeat: HeartbeatDue) -> None:
        def send(answer: GroupHeartbeatReply | BrokerError) -> None:
            self.to_process(lambda: process.hear(heartbeat, answer))

        if self.leading is None:
            send(NotLeaderError("there is no coordinator now"))
            return
        try:
            outcome = self.leading.heartbeat(
                heartbeat.request, wall_ms=self.now_ms, now_ms=self.now_ms
            )
        except BrokerError as error:
            refusal = error
            self.propose([], lambda: send(refusal))
        else:
            self.checks.heard(process, heartbeat.request)
            self.propose(outcome.records, lambda: send(outcome.reply))

    def serve_offset(self, partition: GroupPartition, reply: Callable[[int], None]) -> None:
        if self.leading is not None:
            group = self.leading.state.groups.get(GROUP)
            found = group and group.committed((partition.topic_id, partition.partition))
            offset = found.offset if found else 0
            self.propose([], lambda: self.to_process(lambda: reply(offset)))

    def serve_commit(self, request: CommitOffsetsRequest, made_ms: int) -> None:
        if self.leading is None:
            return
        outcome = self.leading.state.commit_offsets([request], self.ranges, self.now_ms)
        self.checks.answered_commit(request, made_ms, outcome.reply[0])
        self.leading.apply(outcome.records, self.now_ms)
        self.propose(outcome.records)

    def check(self) -> None:
        if not self.is_idle:
            self.checks.look()
