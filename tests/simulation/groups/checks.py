"""Invariants of members and coordinator (I76, I77).

Each check objects at the event that breaks its promise.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

import pytest

from tidelog.client.consumer.group.membership_protocol import GroupPartition
from tidelog.coordinator.groups.commits import CommitResult
from tidelog.coordinator.groups.partitions import Partition, unpack
from tidelog.coordinator.groups.records import (
    AssignmentChanged,
    GroupRecord,
    MemberLeft,
    OffsetsCommitted,
    StaticMemberReplaced,
    TargetComputed,
)
from tidelog.coordinator.groups.sessions import ExpiredMember
from tidelog.wire.errors import BrokerError, FencedInstanceError, TidelogError
from tidelog.wire.messages.groups import JOIN_EPOCH, CommitOffsetsRequest, GroupHeartbeatRequest

if TYPE_CHECKING:
    from tests.simulation.groups.world import Process, World


class ViolationError(AssertionError):
    """A promise was broken."""


@final
class Checks:
    """Observes a world."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.target_count = 0
        self.moved_count = 0
        """Partitions that were assigned to another member than before."""
        self.fenced_count = 0
        self.accepted_count = 0
        self.refused_count = 0
        self._fenced_in_spite: set[str] = set()
        """Member ids that were fenced while alive: replaced, or late with a revocation."""
        self._held_since: dict[tuple[str, Partition], int] = {}
        self._last_owner: dict[Partition, str] = {}
        self._offsets: dict[Partition, int] = {}
        self._epochs: dict[str, int] = {}
        self._heard_ms: dict[str, int] = {}
        self._target_ms: int | None = None
        self._targets: dict[str, frozenset[Partition]] = {}
        self._group_epochs = (0, 0)
        self._done: dict[Partition, int] = {}

    # Events of the coordinator.

    def heard(self, process: "Process", request: GroupHeartbeatRequest) -> None:
        """Check that the coordinator refused each heartbeat that it had to refuse."""
        if request.member_epoch < JOIN_EPOCH:
            return
        core = process.core
        if request.member_epoch > JOIN_EPOCH:
            if request.member_id in self._fenced_in_spite:
                raise ViolationError(f"{request.member_id} was fenced, but got a reply")
        elif core.member_id == request.member_id and core.member_epoch == JOIN_EPOCH:
            # Fenced before it knew of its membership, and a member again.
            self._fenced_in_spite.discard(request.member_id)
        self._heard_ms[request.member_id] = self.world.now_ms

    def new_leader(self) -> None:
        leading = self.world.leading
        assert leading is not None
        self._target_ms = None
        state = leading.state
        # Uncommitted records have no effect.
        self._fenced_in_spite = {
            member_id
            for member_id in self._fenced_in_spite
            if all(member_id not in group.members for group in state.groups.values())
        }
        self._targets = {
            member_id: group.target(member_id)
            for group in state.groups.values()
            for member_id in group.members
        }
        self._held_since = {
            (member.member_id, partition): 0
            for group in leading.state.groups.values()
            for member in group.members.values()
            for partition in member.held
        }

    def fenced(self, expired: ExpiredMember) -> None:
        self.fenced_count += 1
        if expired.reason != "session timeout":
            self._fenced_in_spite.add(expired.member_id)
            for process in self.world.living:
                core = process.core
                # A heartbeat of the last five seconds got a reply. It confirmed the assignment that
                # the member had received before, and reported its revocations.
                is_up_to_date = core.may_process(process.now + 35.0)
                has_confirmed = self.world.now_ms - process.changed_ms >= 5_000
                is_it = core.member_id == expired.member_id and is_up_to_date and has_confirmed
                if is_it and not core.releasing:
                    raise ViolationError(f"{expired.member_id} was fenced after its revocation")
        elif self.world.now_ms - self._heard_ms.get(expired.member_id, -(10**9)) < 40_000:
            raise ViolationError(f"{expired.member_id} was fenced in spite of its heartbeats")

    def proposed(self, records: Sequence[GroupRecord]) -> None:
        """Record the records that the coordinator has created and applied."""
        now_ms = self.world.now_ms
        for record in records:
            match record:
                case AssignmentChanged():
                    self._note_assignment(record, now_ms)
                case MemberLeft():
                    self._targets.pop(record.member_id, None)
                case StaticMemberReplaced():
                    self._note_takeover(record)
                case TargetComputed():
                    self._check_time_of_target()
                    self._check_moves(record)
                case _:
                    pass

    def _note_assignment(self, record: AssignmentChanged, now_ms: int) -> None:
        for partition in unpack(record.given):
            self._held_since[record.member_id, partition] = now_ms
            if self._last_owner.get(partition, record.member_id) != record.member_id:
                self.moved_count += 1
            self._last_owner[partition] = record.member_id
        for partition in unpack(record.released):
            del self._held_since[record.member_id, partition]

    def _note_takeover(self, record: StaticMemberReplaced) -> None:
        if record.old_member_id in self._targets:
            self._targets[record.member_id] = self._targets.pop(record.old_member_id)
        self._fenced_in_spite.add(record.old_member_id)
        for (member_id, partition), since_ms in list(self._held_since.items()):
            if member_id == record.old_member_id:
                self._held_since[record.member_id, partition] = since_ms
                self._last_owner[partition] = record.member_id

    def _check_moves(self, record: TargetComputed) -> None:
        """Check that no staying member loses more partitions than an even share demands."""
        assert self.world.leading is not None
        group = self.world.leading.state.group(record.group_id)
        before, after = self._targets, {one: group.target(one) for one in group.members}
        self._targets = after
        wanted = {tuple(member.subscription.topics) for member in group.members.values()}
        stay = before.keys() & after.keys()
        topic_ids = {topic_id for one in after.values() for topic_id, _ in one}
        if (
            not after
            or len(wanted) > 1
            or {id_ for one in stay for id_, _ in before[one]} != topic_ids
        ):
            return
        share = sum(map(len, after.values())) // len(after)
        given_away = sum(len(before[one] - after[one]) for one in stay)
        if given_away > sum(max(0, len(before[one]) - share) for one in stay):
            raise ViolationError(f"{given_away} partitions moved without need")

    def _check_time_of_target(self) -> None:
        now_ms = self.world.now_ms
        self.target_count += 1
        if self._target_ms is not None and now_ms - self._target_ms < 5_000:
            raise ViolationError(f"targets at {self._target_ms} and at {now_ms} ms")
        self._target_ms = now_ms

    def answered_commit(
        self, request: CommitOffsetsRequest, made_ms: int, result: CommitResult
    ) -> None:
        """Check that the member has held the partition ever since it made the commit."""
        if isinstance(result, BrokerError):
            self.refused_count += 1
            return
        assert self.world.leading is not None
        group = self.world.leading.state.group(request.group_id)
        for commit, outcome in zip(request.offsets, result.results, strict=True):
            if outcome.error is not None:
                self.refused_count += 1
                continue
            self.accepted_count += 1
            partition = (commit.topic_id, commit.partition)
            owner = group.owner.get(partition)
            if owner is None or owner.member_id != request.member_id:
                raise ViolationError(
                    f"{request.member_id} committed {partition} without holding it"
                )
            if self._held_since[request.member_id, partition] > made_ms:
                raise ViolationError(f"a commit of {partition} from an earlier time was accepted")

    def committed(self, record: GroupRecord) -> None:
        if isinstance(record, OffsetsCommitted):
            for commit in record.offsets:
                partition = (commit.topic_id, commit.partition)
                before = self._offsets.get(partition, 0)
                if commit.offset < before:
                    raise ViolationError(f"{partition} went back from {before} to {commit.offset}")
                self._offsets[partition] = commit.offset
        for group in self.world.image.groups.values():
            epochs = (group.group_epoch, group.target_epoch)
            if epochs[0] < self._group_epochs[0] or epochs[1] < self._group_epochs[1]:
                raise ViolationError(f"epochs fell from {self._group_epochs} to {epochs}")
            self._group_epochs = epochs
            for partition, at in self._offsets.items():
                found = group.committed(partition)
                if found is None or found.offset < at:
                    raise ViolationError(f"the offset {at} of {partition} is forgotten: {found}")

    # Events of processes.

    def stopped(self, process: "Process", error: TidelogError | None) -> None:
        """Check that only a newer process of the same member stops a process."""
        instance_id, incarnation = process.settings.instance_id, process.settings.incarnation
        is_replaced = any(
            other.settings.instance_id == instance_id and other.settings.incarnation > incarnation
            for other in self.world.processes
        )
        if process.working:
            raise ViolationError("a process that stopped still works")
        if error is not None and not (isinstance(error, FencedInstanceError) and is_replaced):
            raise ViolationError(f"a process was stopped: {error}")

    def processed(self, process: "Process", partition: GroupPartition) -> None:
        """Check that no other process reads the same partition now."""
        for other in self.world.living:
            if (
                other is not process
                and partition in other.working
                and self._counts(other)
                and self._counts(process)
            ):
                raise ViolationError(f"two members read {partition}")

    @pytest.mark.invariant("I76")
    def look(self) -> None:
        """Check that no two processes believe that they own the same partition."""
        owners: dict[GroupPartition, str] = {}
        for process in self.world.living:
            if self._counts(process):
                for partition in process.core.owned | process.working:
                    if partition in owners:
                        raise ViolationError(
                            f"{process.core.member_id} and {owners[partition]} both own"
                            f" {partition} at {self.world.now_ms} ms"
                        )
                    owners[partition] = process.core.member_id

    def _counts(self, process: "Process") -> bool:
        """Return whether the belief of a process counts.

        It does not count for a process whose lease is over (it returns no records then), nor for
        one that was fenced by a newer incarnation or for a late revocation, and does not know yet.
        """
        core = process.core
        return core.may_process(process.now) and core.member_id not in self._fenced_in_spite

    # At the end.

    def converged(self) -> None:
        """Check that every member has its share and knows it."""
        image = self.world.image
        group = image.groups["billing"]
        if group.state != "stable":
            raise ViolationError(f"the group is {group.state}")
        living = {process.core.member_id: process for process in self.world.living}
        if living.keys() != group.members.keys():
            raise ViolationError(f"members are {list(group.members)}, live ones are {list(living)}")
        owned = sorted(
            (partition.topic_id, partition.partition)
            for process in living.values()
            for partition in process.core.owned
        )
        wanted = {
            name
            for process in living.values()
            for name in group.members[process.core.member_id].subscription.topics
            if name in self.world.topics
        }
        there = sorted(
            (self.world.topics[name].topic_id, number)
            for name in wanted
            for number in range(self.world.topics[name].partition_count)
        )
        if owned != there:
            raise ViolationError(f"{len(owned)} partitions are owned of {len(there)}")
        for process in living.values():
            if process.core.owned != process.working:
                raise ViolationError("a process works on partitions that it does not own")
            if not process.core.may_process(process.now):
                raise ViolationError("a process may not work")
