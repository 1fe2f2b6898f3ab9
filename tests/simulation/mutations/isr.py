"""Mutations of replication, which random runs of a replicated partition must find.

Each replaces functions of the code under test for the duration of a block. The code itself contains
none of it.
"""

# A mutation replaces private parts of the code.
# pyright: reportPrivateUsage=false

from bisect import bisect_left
from typing import Final

from msgspec.structs import replace

from tests.simulation.isr import replicated_partition
from tests.simulation.mutations.mutation import Mutation
from tidelog.coordinator.metadata import leader_election, truncation_refusal
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.coordinator.metadata.leader_election import Assignment, ElectionContext, PartitionEvent
from tidelog.coordinator.metadata.partition_changes import PartitionChangeBuilder
from tidelog.coordinator.metadata.records import PartitionRegistration
from tidelog.isr.divergence import LogShape
from tidelog.isr.durability import Durability
from tidelog.isr.follower import (
    Append,
    LeaderAnswer,
    PartitionFollower,
    Restart,
    Step,
    Truncate,
    _cut,
)
from tidelog.isr.follower_progress import FollowerProgress, FollowerReport
from tidelog.isr.followers import Followers, IsrChange, LogEnds
from tidelog.isr.leader import PartitionLeader
from tidelog.logstore.leader_epochs import EpochEndOffset, LeaderEpochs
from tidelog.wire.messages.replication import Diverging

_answered = PartitionFollower.answered
_target_isr = Followers._target_isr
_next_isr_change = Followers.next_isr_change
_refused = Followers.on_isr_change_rejected
_reported = FollowerProgress.reported
_begin_to_follow = PartitionFollower.__init__
_eligible = leader_election._eligible


def _truncate_by_high_watermark(
    self: PartitionFollower, log: LogShape, answer: LeaderAnswer
) -> Step:
    step = _answered(self, log, answer)
    if isinstance(step, Truncate):
        return Truncate(min(self.high_watermark, log.log_end_offset - 1))
    return step


def _keep_all_up_to_the_leaders_end(
    self: PartitionFollower, log: LogShape, answer: LeaderAnswer
) -> Step:
    if answer.diverging is not None and answer.diverging.end_offset >= log.log_end_offset:
        return Append()
    return _answered(self, log, answer)


def _high_watermark_before_truncation(
    self: PartitionFollower, log: LogShape, answer: LeaderAnswer
) -> Step:
    self.appended(answer, log_end_offset=log.log_end_offset)
    return _answered(self, log, answer)


def _take_old_answers(self: PartitionFollower, log: LogShape, answer: LeaderAnswer) -> Step:
    del self, log
    return Append() if answer.diverging is None else Truncate(answer.diverging.end_offset)


def _off_by_one(self: LeaderEpochs, epoch: int, *, log_end_offset: int) -> EpochEndOffset | None:
    found = bisect_left(self._entries, epoch, key=lambda entry: entry[0])
    if found >= len(self._entries):
        last = self._entries[-1:]
        return EpochEndOffset(last[0][0], log_end_offset) if last else None
    is_last = found == len(self._entries) - 1
    end_offset = log_end_offset if is_last else self._entries[found + 1][1]
    return EpochEndOffset(self._entries[found][0], end_offset)


def _compare_offsets_only(
    leader: LogShape, *, fetch_offset: int, last_fetched_epoch: int | None
) -> Diverging | None:
    if fetch_offset <= leader.log_end_offset:
        return None
    return Diverging(last_fetched_epoch, leader.log_end_offset)


def _members_that_are_committed(self: Followers) -> None:
    self.members = tuple(
        progress
        for node_id, progress in self._progress.items()
        if node_id in self.replicas.in_sync_replicas
    )


def _members_as_wished(self: Followers) -> None:
    wanted = self.replicas.in_sync_replicas
    if self._pending_change is not None:
        wanted = tuple(node_id for node_id, _ in self._pending_change.in_sync_replicas)
    self.members = tuple(
        progress for node_id, progress in self._progress.items() if node_id in wanted
    )


def _any_process(self: Followers, node_id: int, progress: FollowerProgress) -> bool:
    del progress
    status = self._view.status_of(node_id)
    return status is not None and status.may_join


def _epoch_of_the_metadata(self: Followers, node_id: int) -> int | None:
    status = self._view.status_of(node_id)
    return None if status is None else status.broker_epoch


def _wanted_below_the_epoch(self: Followers, ends: LogEnds, *, now_ms: int) -> list[int]:
    # A caught-up replica has all records from before the epoch, or was in sync then.
    stay = _target_isr(self, ends, now_ms=now_ms)
    start, view = self._epoch_start_offset, self._view
    self._epoch_start_offset, self._view = 0, replace(view, replica_lag_time_max_ms=1 << 63)
    try:
        wanted = _target_isr(self, ends, now_ms=now_ms)
    finally:
        self._epoch_start_offset, self._view = start, view
    in_sync = self.replicas.in_sync_replicas
    return [node_id for node_id in wanted if node_id in stay or node_id not in in_sync]


def _wanted_wherever_they_are(self: Followers, ends: LogEnds, *, now_ms: int) -> list[int]:
    lenient = LogEnds(ends.log_end_offset, 0, ends.durability)
    return _wanted_below_the_epoch(self, lenient, now_ms=now_ms)


def _settle_nothing(self: Followers, ends: LogEnds, *, now_ms: int) -> IsrChange | None:
    may_arrive_late, self._may_arrive_late = self._may_arrive_late, False
    try:
        return _next_isr_change(self, ends, now_ms=now_ms)
    finally:
        self._may_arrive_late = may_arrive_late


def _no_answer_is_a_refusal(
    self: Followers, change: IsrChange, *, is_certain: bool, now_ms: int
) -> None:
    del is_certain
    _refused(self, change, is_certain=True, now_ms=now_ms)


def _same_epoch(self: PartitionChangeBuilder, topic: Topic, number: int) -> PartitionRegistration:
    partition = self.partition(topic.topic_id, number)
    assert partition is not None
    return partition


def _advance_with_too_few(self: PartitionLeader) -> None:
    self.high_watermark = max(self.high_watermark, self._everywhere())


def _advance_alone(self: PartitionLeader) -> None:
    if self._followers.replicas.has_enough:
        self.high_watermark = max(self.high_watermark, self._position())


def _whatever_it_says_of_itself(
    self: FollowerProgress,
    report: FollowerReport,
    *,
    leader_end_offset: int,
    durability: Durability,
    now_ms: int,
) -> None:
    whole = replace(report, is_whole=True)
    _reported(
        self, whole, leader_end_offset=leader_end_offset, durability=durability, now_ms=now_ms
    )


def _repair_without_comparing(
    self: PartitionFollower,
    *,
    leader_id: int | None,
    leader_epoch: int,
    high_watermark: int,
    data_loss_epoch: int | None = None,
) -> None:
    _begin_to_follow(
        self,
        leader_id=leader_id,
        leader_epoch=leader_epoch,
        high_watermark=high_watermark,
        data_loss_epoch=data_loss_epoch,
    )
    self.is_beginning = True


def _eligible_though_lost(
    partition: PartitionRegistration,
    event: PartitionEvent,
    assignment: Assignment,
    *,
    in_sync: tuple[int, ...],
    context: ElectionContext,
) -> tuple[int, ...]:
    del event
    return _eligible(partition, PartitionEvent(), assignment, in_sync=in_sync, context=context)


def _in_memory_of_the_leader(self: PartitionLeader) -> int:
    return self._log_end_offset


def _in_memory_of_the_leader_and_on_others(self: PartitionLeader) -> int:
    ends = [member.position(self.durability) for member in self._followers.members]
    return min([self._log_end_offset, *ends])


def _cut_whatever_is_committed(
    self: PartitionFollower, log: LogShape, offset: int
) -> Truncate | Restart:
    del self
    return _cut(log, offset)


def _never(*_: object, **__: object) -> bool:
    return False


TRUNCATE_BY_HIGH_WATERMARK: Final = Mutation(
    "truncate-by-high-watermark",
    "a follower whose log differs truncates to its high watermark (KIP-101)",
    (PartitionFollower, "answered", _truncate_by_high_watermark),
    shows=("I48",),
)
"""A defect that random runs seldom reveal and a scenario reveals; see `test_lineages`."""

MUTATIONS: Final = (
    Mutation(
        "truncate-only-what-is-too-long",
        "a follower keeps its log if it is not longer than the leader's",
        (PartitionFollower, "answered", _keep_all_up_to_the_leaders_end),
    ),
    Mutation(
        "high-watermark-before-truncation",
        "a follower believes the leader's high watermark before it truncates (KAFKA-14704)",
        (PartitionFollower, "answered", _high_watermark_before_truncation),
        shows=("I52",),
    ),
    Mutation(
        "old-answers-count",
        "a follower accepts outdated fetch replies",
        (PartitionFollower, "answered", _take_old_answers),
        shows=("I57",),
    ),
    Mutation(
        "epoch-lookup-off-by-one",
        "an unknown epoch is treated as the next later one (KIP-279)",
        (LeaderEpochs, "end_offset_for", _off_by_one),
        shows=("I49",),
    ),
    Mutation(
        "compare-offsets-only",
        "the leader does not check epochs of a follower that is not ahead",
        (replicated_partition, "find_divergence", _compare_offsets_only),
    ),
    Mutation(
        "high-watermark-over-the-committed-ISR",
        "a proposed replica does not count as in sync before the reply (KIP-497)",
        (Followers, "_update_members", _members_that_are_committed),
        shows=("I39",),
    ),
    Mutation(
        "high-watermark-over-the-proposed-ISR",
        "a replica stops counting before its removal from the ISR is committed",
        (Followers, "_update_members", _members_as_wished),
        shows=("I39",),
    ),
    Mutation(
        "a-lost-answer-is-never-settled",
        "the leader waits forever for a proposed replica that is gone",
        (Followers, "next_isr_change", _settle_nothing),
    ),
    Mutation(
        "no-answer-is-a-refusal",
        "without a reply a proposed replica stops counting; the request may still arrive",
        (Followers, "on_isr_change_rejected", _no_answer_is_a_refusal),
        shows=("I39",),
    ),
    Mutation(
        "settled-without-another-partition-epoch",
        "an unchanged proposal is acknowledged, and an old request still arrives",
        (PartitionChangeBuilder, "bump_partition_epoch", _same_epoch),
    ),
    Mutation(
        "join-with-a-stale-broker-epoch",
        "the leader proposes a process that has not fetched from it (KIP-903)",
        (Followers, "_is_isr_eligible", _any_process),
        (Followers, "_broker_epoch", _epoch_of_the_metadata),
        shows=("I42",),
    ),
    Mutation(
        "join-below-the-leader-epoch",
        "a follower joins without records that earlier leaders may have acknowledged",
        (Followers, "_target_isr", _wanted_below_the_epoch),
        shows=("I41",),
    ),
    Mutation(
        "join-wherever-it-is",
        "a follower joins without all committed records",
        (Followers, "_target_isr", _wanted_wherever_they_are),
        shows=("I41",),
    ),
    Mutation(
        "commit-with-too-few-in-sync",
        "the high watermark moves while fewer than min_insync_replicas are in sync",
        (PartitionLeader, "_advance_high_watermark", _advance_with_too_few),
        shows=("I38",),
    ),
    Mutation(
        "commit-alone",
        "the leader waits for no follower",
        (PartitionLeader, "_advance_high_watermark", _advance_alone),
    ),
    Mutation(
        "the-leader-memory-is-its-disk",
        "with durability fsync, records in the leader's memory count",
        (PartitionLeader, "_position", _in_memory_of_the_leader),
        (PartitionLeader, "_everywhere", _in_memory_of_the_leader_and_on_others),
    ),
    Mutation(
        "a-damaged-replica-joins",
        "the leader ignores a follower's report of damage",
        (FollowerProgress, "reported", _whatever_it_says_of_itself),
    ),
    Mutation(
        "a-damaged-replica-stays-eligible",
        "a replica that may lack committed records becomes eligible when it leaves",
        (leader_election, "_eligible", _eligible_though_lost),
    ),
    Mutation(
        "repair-without-comparing",
        "a follower appends its leader's records before it knows where the logs differ",
        (PartitionFollower, "__init__", _repair_without_comparing),
    ),
    Mutation(
        "truncate-below-the-high-watermark",
        "a follower truncates committed records which its leader has lost",
        (PartitionFollower, "_cut_unless_committed", _cut_whatever_is_committed),
    ),
    Mutation(
        "no-step-down",
        "a leader stays although an eligible replica has more committed records",
        (truncation_refusal, "should_step_down", _never),
    ),
)
