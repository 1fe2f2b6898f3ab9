"""Bugs that were planted on purpose: a test of the tests."""

from collections.abc import Callable, Iterable
from copy import copy
from typing import NamedTuple

import msgspec
import pytest

from tidelog.client.consumer.group.membership_protocol import (
    GroupPartition,
    MembershipEvent,
    MembershipProtocol,
    PartitionsRevoked,
)
from tidelog.coordinator.groups import commits, heartbeats, reconciliation, state_machine, targets
from tidelog.coordinator.groups.assignors import Reader
from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.groups.group import Group, GroupSnapshot, Member
from tidelog.coordinator.groups.outcome import Outcome
from tidelog.coordinator.groups.partitions import Partition, unpack
from tidelog.coordinator.groups.rebalance_delay import Damping, _Pending  # pyright: ignore[reportPrivateUsage]
from tidelog.coordinator.groups.records import (
    AssignmentChanged,
    MemberJoined,
    MemberTookOver,
    OffsetsCommitted,
    OffsetsReset,
)
from tidelog.coordinator.groups.sessions import MemberKey, Sessions, Sign
from tidelog.wire.messages.groups import HeartbeatReply, HeartbeatRequest


class Mutant(NamedTuple):
    """One bug."""

    name: str
    plant: Callable[[pytest.MonkeyPatch], None]


def given_before_it_was_revoked(patch: pytest.MonkeyPatch) -> None:
    def released(member: Member, request: HeartbeatRequest) -> set[Partition]:
        return set(member.revoking) if request.group_id else set()

    patch.setattr(reconciliation, "_released", released)


def released_by_a_heartbeat_from_before(patch: pytest.MonkeyPatch) -> None:
    def released(member: Member, request: HeartbeatRequest) -> set[Partition]:
        if request.owned is None:
            return set()
        return member.revoking.difference(unpack(request.owned))

    patch.setattr(reconciliation, "_released", released)


def given_although_held(patch: pytest.MonkeyPatch) -> None:
    change = Group.change_assignment

    def change_assignment(self: Group, record: AssignmentChanged) -> None:
        for partition in unpack(record.given):
            self.owner.pop(partition, None)
        change(self, record)

    def next_step(
        group: Group, member: Member, request: HeartbeatRequest
    ) -> AssignmentChanged | None:
        owner, group.owner = group.owner, {}
        try:
            return reconciliation.next_step(group, member, request)
        finally:
            group.owner = owner

    patch.setattr(Group, "change_assignment", change_assignment)
    patch.setattr(heartbeats, "next_step", next_step)


def commit_of_an_old_epoch(patch: pytest.MonkeyPatch) -> None:
    check = commits.check_holding

    def check_without_epoch(member: Member, partition: Partition, member_epoch: int) -> None:
        check(member, partition, max(member_epoch, 1 << 60))

    patch.setattr(commits, "check_holding", check_without_epoch)


def commit_of_somebody_else(patch: pytest.MonkeyPatch) -> None:
    check = commits.check_holding

    def check_without_holding(member: Member, partition: Partition, member_epoch: int) -> None:
        if partition in member.held:
            check(member, partition, member_epoch)

    patch.setattr(commits, "check_holding", check_without_holding)


def commit_that_was_overtaken(patch: pytest.MonkeyPatch) -> None:
    commit = Group.commit

    def commit_and_forget(self: Group, record: OffsetsCommitted | OffsetsReset) -> None:
        commit(self, record)
        for member in self.members.values():
            member.commit_sequence = 0

    patch.setattr(Group, "commit", commit_and_forget)


def taken_over_but_not_fenced(patch: pytest.MonkeyPatch) -> None:
    take_over = Group.take_over

    def take_over_beside(self: Group, record: MemberTookOver) -> None:
        former = copy(self.members[record.old_member_id])
        take_over(self, record)
        self.members[record.old_member_id] = former

    patch.setattr(Group, "take_over", take_over_beside)


def epoch_not_bumped(patch: pytest.MonkeyPatch) -> None:
    join = Group.join

    def join_in_the_old_epoch(self: Group, record: MemberJoined) -> None:
        before = self.group_epoch
        join(self, record)
        self.group_epoch = before

    patch.setattr(Group, "join", join_in_the_old_epoch)


def offset_forgotten_in_a_failover(patch: pytest.MonkeyPatch) -> None:
    restore = Group.restore

    def restore_some(snapshot: GroupSnapshot) -> Group:
        group = restore(snapshot)
        for offsets in group.offsets.values():
            if len(offsets) > 1:
                offsets.popitem()
        return group

    patch.setattr(Group, "restore", restore_some)


def not_sticky(patch: pytest.MonkeyPatch) -> None:
    def reader(topic_ids: list[bytes], held: object) -> Reader:
        del held
        return Reader(topic_ids, ())

    patch.setattr(targets, "Reader", reader)


def target_at_every_change(patch: pytest.MonkeyPatch) -> None:
    def schedule(self: Damping, group_id: str, pending: _Pending, now_ms: int) -> None:
        pending.due_ms = now_ms
        self._queue.append((now_ms, group_id))  # pyright: ignore[reportPrivateUsage]

    patch.setattr(Damping, "_schedule", schedule)


def session_not_renewed(patch: pytest.MonkeyPatch) -> None:
    heard = Sessions.heard

    def heard_once(self: Sessions, key: MemberKey, sign: Sign, now_ms: int) -> None:
        if key not in self._sessions:  # pyright: ignore[reportPrivateUsage]
            heard(self, key, sign, now_ms)

    patch.setattr(Sessions, "heard", heard_once)


def partitions_of_a_leaver_kept(patch: pytest.MonkeyPatch) -> None:
    leave = Group.leave

    def leave_and_keep(self: Group, member_id: str, group_epoch: int, time_ms: int) -> None:
        owner = dict(self.owner)
        leave(self, member_id, group_epoch, time_ms)
        self.owner = owner

    patch.setattr(Group, "leave", leave_and_keep)


def what_comes_free_later_is_not_given(patch: pytest.MonkeyPatch) -> None:
    def next_step(
        group: Group, member: Member, request: HeartbeatRequest
    ) -> AssignmentChanged | None:
        if member.member_epoch == group.target_epoch and not member.revoking:
            return None
        return reconciliation.next_step(group, member, request)

    patch.setattr(heartbeats, "next_step", next_step)


def lost_assignment_not_repeated(patch: pytest.MonkeyPatch) -> None:
    answer = heartbeats.answer_heartbeat

    def answer_once(
        group: Group, request: HeartbeatRequest, config: GroupConfig, *, now_ms: int
    ) -> Outcome[HeartbeatReply]:
        outcome = answer(group, request, config, now_ms=now_ms)
        if outcome.records:
            return outcome
        return Outcome([], msgspec.structs.replace(outcome.reply, assignment=None))

    patch.setattr(state_machine, "answer_heartbeat", answer_once)


def letting_go_forgotten_beside_a_subscription(patch: pytest.MonkeyPatch) -> None:
    def next_step(
        group: Group, member: Member, request: HeartbeatRequest
    ) -> AssignmentChanged | None:
        if request.subscription not in (None, member.subscription):
            return None
        return reconciliation.next_step(group, member, request)

    patch.setattr(heartbeats, "next_step", next_step)


def lease_ignored_by_the_client(patch: pytest.MonkeyPatch) -> None:
    def may_process(self: MembershipProtocol, now: float) -> bool:
        return self.member_epoch > 0 and now >= 0

    patch.setattr(MembershipProtocol, "may_process", may_process)


def let_go_before_it_is_finished(patch: pytest.MonkeyPatch) -> None:
    def let_go(
        self: MembershipProtocol, partitions: Iterable[GroupPartition]
    ) -> list[MembershipEvent]:
        found = tuple(sorted(partitions))
        self.owned.difference_update(found)
        return [PartitionsRevoked(found)] if found else []

    patch.setattr(MembershipProtocol, "_revoke", let_go)


def old_replies_believed(patch: pytest.MonkeyPatch) -> None:
    answered = MembershipProtocol.answered

    def answered_whatever(
        self: MembershipProtocol, number: int, reply: HeartbeatReply, now: float
    ) -> list[MembershipEvent]:
        under_way = self._under_way  # pyright: ignore[reportPrivateUsage]
        if under_way is not None:
            number = under_way.number
        return answered(self, number, reply, now)

    patch.setattr(MembershipProtocol, "answered", answered_whatever)


MUTANTS = [
    Mutant(plant.__name__, plant)
    for plant in (
        given_before_it_was_revoked,
        released_by_a_heartbeat_from_before,
        given_although_held,
        commit_of_an_old_epoch,
        commit_of_somebody_else,
        commit_that_was_overtaken,
        taken_over_but_not_fenced,
        epoch_not_bumped,
        offset_forgotten_in_a_failover,
        not_sticky,
        target_at_every_change,
        session_not_renewed,
        partitions_of_a_leaver_kept,
        what_comes_free_later_is_not_given,
        lost_assignment_not_repeated,
        letting_go_forgotten_beside_a_subscription,
        lease_ignored_by_the_client,
        let_go_before_it_is_finished,
        old_replies_believed,
    )
]
