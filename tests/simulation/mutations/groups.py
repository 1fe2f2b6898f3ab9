"""Mutations of consumer groups: coordinator and member."""

from collections.abc import Iterable, Iterator
from copy import copy
from typing import Final

import msgspec

from tests.simulation.mutations.mutation import Mutation, Patch
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
from tidelog.coordinator.groups.outcome import GroupOutcome
from tidelog.coordinator.groups.partitions import Partition, unpack
from tidelog.coordinator.groups.rebalance_delay import RebalanceDelay, _Pending  # pyright: ignore[reportPrivateUsage]
from tidelog.coordinator.groups.records import (
    AssignmentChanged,
    MemberJoined,
    OffsetsCommitted,
    OffsetsReset,
    StaticMemberReplaced,
)
from tidelog.coordinator.groups.sessions import MemberKey, SessionHeartbeat, Sessions
from tidelog.wire.messages.groups import GroupHeartbeatReply, GroupHeartbeatRequest


def _given_before_it_was_revoked() -> Iterator[Patch]:
    def released(member: Member, request: GroupHeartbeatRequest) -> set[Partition]:
        return set(member.revoking) if request.group_id else set()

    yield reconciliation, "_released", released


def _released_by_a_heartbeat_from_before() -> Iterator[Patch]:
    def released(member: Member, request: GroupHeartbeatRequest) -> set[Partition]:
        if request.owned is None:
            return set()
        return member.revoking.difference(unpack(request.owned))

    yield reconciliation, "_released", released


def _given_although_held() -> Iterator[Patch]:
    change = Group.change_assignment

    def change_assignment(self: Group, record: AssignmentChanged) -> None:
        for partition in unpack(record.given):
            self.owner.pop(partition, None)
        change(self, record)

    def next_step(
        group: Group, member: Member, request: GroupHeartbeatRequest
    ) -> AssignmentChanged | None:
        owner, group.owner = group.owner, {}
        try:
            return reconciliation.next_step(group, member, request)
        finally:
            group.owner = owner

    yield Group, "change_assignment", change_assignment
    yield heartbeats, "next_step", next_step


def _commit_of_an_old_epoch() -> Iterator[Patch]:
    check = commits.check_holding

    def check_without_epoch(member: Member, partition: Partition, member_epoch: int) -> None:
        check(member, partition, max(member_epoch, 1 << 60))

    yield commits, "check_holding", check_without_epoch


def _commit_of_another_member() -> Iterator[Patch]:
    check = commits.check_holding

    def check_without_holding(member: Member, partition: Partition, member_epoch: int) -> None:
        if partition in member.held:
            check(member, partition, member_epoch)

    yield commits, "check_holding", check_without_holding


def _commit_that_was_overtaken() -> Iterator[Patch]:
    commit = Group.commit

    def commit_and_forget(self: Group, record: OffsetsCommitted | OffsetsReset) -> None:
        commit(self, record)
        for member in self.members.values():
            member.commit_sequence = 0

    yield Group, "commit", commit_and_forget


def _taken_over_but_not_fenced() -> Iterator[Patch]:
    on_static_member_replaced = Group.on_static_member_replaced

    def take_over_beside(self: Group, record: StaticMemberReplaced) -> None:
        former = copy(self.members[record.old_member_id])
        on_static_member_replaced(self, record)
        self.members[record.old_member_id] = former

    yield Group, "on_static_member_replaced", take_over_beside


def _epoch_not_bumped() -> Iterator[Patch]:
    join = Group.join

    def join_in_the_old_epoch(self: Group, record: MemberJoined) -> None:
        before = self.group_epoch
        join(self, record)
        self.group_epoch = before

    yield Group, "join", join_in_the_old_epoch


def _offset_forgotten_in_a_failover() -> Iterator[Patch]:
    restore = Group.restore

    def restore_some(cls: type[Group], snapshot: GroupSnapshot) -> Group:
        del cls
        group = restore(snapshot)
        for offsets in group.offsets.values():
            if len(offsets) > 1:
                offsets.popitem()
        return group

    yield Group, "restore", classmethod(restore_some)


def _not_sticky() -> Iterator[Patch]:
    def reader(topic_ids: list[bytes], held: object) -> Reader:
        del held
        return Reader(topic_ids, ())

    yield targets, "Reader", reader


def _target_at_every_change() -> Iterator[Patch]:
    def schedule(self: RebalanceDelay, group_id: str, pending: _Pending, now_ms: int) -> None:
        pending.due_ms = now_ms
        self._queue.append((now_ms, group_id))  # pyright: ignore[reportPrivateUsage]

    yield RebalanceDelay, "_schedule", schedule


def _session_not_renewed() -> Iterator[Patch]:
    heard = Sessions.on_heartbeat

    def heard_once(self: Sessions, key: MemberKey, sign: SessionHeartbeat, now_ms: int) -> None:
        if key not in self._sessions:  # pyright: ignore[reportPrivateUsage]
            heard(self, key, sign, now_ms)

    yield Sessions, "on_heartbeat", heard_once


def _partitions_of_a_leaver_kept() -> Iterator[Patch]:
    leave = Group.leave

    def leave_and_keep(self: Group, member_id: str, group_epoch: int, time_ms: int) -> None:
        owner = dict(self.owner)
        leave(self, member_id, group_epoch, time_ms)
        self.owner = owner

    yield Group, "leave", leave_and_keep


def _what_comes_free_later_is_not_given() -> Iterator[Patch]:
    def next_step(
        group: Group, member: Member, request: GroupHeartbeatRequest
    ) -> AssignmentChanged | None:
        if member.member_epoch == group.target_epoch and not member.revoking:
            return None
        return reconciliation.next_step(group, member, request)

    yield heartbeats, "next_step", next_step


def _lost_assignment_not_repeated() -> Iterator[Patch]:
    answer = heartbeats.answer_heartbeat

    def answer_once(
        group: Group, request: GroupHeartbeatRequest, config: GroupConfig, *, now_ms: int
    ) -> GroupOutcome[GroupHeartbeatReply]:
        outcome = answer(group, request, config, now_ms=now_ms)
        if outcome.records:
            return outcome
        return GroupOutcome([], msgspec.structs.replace(outcome.reply, assignment=None))

    yield state_machine, "answer_heartbeat", answer_once


def _letting_go_forgotten_beside_a_subscription() -> Iterator[Patch]:
    def next_step(
        group: Group, member: Member, request: GroupHeartbeatRequest
    ) -> AssignmentChanged | None:
        if request.subscription not in (None, member.subscription):
            return None
        return reconciliation.next_step(group, member, request)

    yield heartbeats, "next_step", next_step


def _lease_ignored_by_the_client() -> Iterator[Patch]:
    def may_process(self: MembershipProtocol, now: float) -> bool:
        return self.member_epoch > 0 and now >= 0

    yield MembershipProtocol, "may_process", may_process


def _revoke_before_it_is_finished() -> Iterator[Patch]:
    def revoke(
        self: MembershipProtocol, partitions: Iterable[GroupPartition]
    ) -> list[MembershipEvent]:
        found = tuple(sorted(partitions))
        self.owned.difference_update(found)
        return [PartitionsRevoked(found)] if found else []

    yield MembershipProtocol, "_revoke", revoke


def _old_replies_believed() -> Iterator[Patch]:
    answered = MembershipProtocol.answered

    def answered_whatever(
        self: MembershipProtocol, number: int, reply: GroupHeartbeatReply, now: float
    ) -> list[MembershipEvent]:
        under_way = self._under_way  # pyright: ignore[reportPrivateUsage]
        if under_way is not None:
            number = under_way.number
        return answered(self, number, reply, now)

    yield MembershipProtocol, "answered", answered_whatever


MUTATIONS: Final = (
    Mutation(
        "given-before-it-was-revoked",
        "a partition is given to the next member before the old one has revoked it",
        *_given_before_it_was_revoked(),
    ),
    Mutation(
        "released-by-a-heartbeat-from-before",
        "a heartbeat that was sent before the revocation counts as its confirmation",
        *_released_by_a_heartbeat_from_before(),
    ),
    Mutation(
        "given-although-held",
        "a partition is given to a member while another one owns it",
        *_given_although_held(),
    ),
    Mutation(
        "commit-of-an-old-epoch",
        "a commit of an old member epoch is accepted",
        *_commit_of_an_old_epoch(),
    ),
    Mutation(
        "commit-of-another-member",
        "a member commits for a partition that it does not hold",
        *_commit_of_another_member(),
    ),
    Mutation(
        "commit-that-was-overtaken",
        "a late commit overwrites a later one",
        *_commit_that_was_overtaken(),
    ),
    Mutation(
        "taken-over-but-not-fenced",
        "a static member is replaced, and the old process continues",
        *_taken_over_but_not_fenced(),
    ),
    Mutation(
        "epoch-not-bumped",
        "a member joins, and the group epoch does not rise",
        *_epoch_not_bumped(),
    ),
    Mutation(
        "offset-forgotten-in-a-failover",
        "a snapshot loses an offset",
        *_offset_forgotten_in_a_failover(),
    ),
    Mutation(
        "not-sticky",
        "an assignment ignores the partitions that members own",
        *_not_sticky(),
    ),
    Mutation(
        "target-at-every-change",
        "a target assignment is computed at once, without the rebalance delay",
        *_target_at_every_change(),
    ),
    Mutation(
        "session-not-renewed", "a heartbeat does not renew a session", *_session_not_renewed()
    ),
    Mutation(
        "partitions-of-a-leaver-kept",
        "partitions of a member that left stay owned",
        *_partitions_of_a_leaver_kept(),
    ),
    Mutation(
        "what-comes-free-later-is-not-given",
        "a member that waits for a partition does not get it when it is free",
        *_what_comes_free_later_is_not_given(),
    ),
    Mutation(
        "lost-assignment-not-repeated",
        "an assignment whose reply was lost is not sent again",
        *_lost_assignment_not_repeated(),
    ),
    Mutation(
        "letting-go-forgotten-beside-a-subscription",
        "a heartbeat with a new subscription does not confirm a revocation",
        *_letting_go_forgotten_beside_a_subscription(),
    ),
    Mutation(
        "lease-ignored-by-the-client",
        "a member still processes records when its lease is over",
        *_lease_ignored_by_the_client(),
    ),
    Mutation(
        "let-go-before-it-is-finished",
        "a member reports partitions as revoked while they are in process",
        *_revoke_before_it_is_finished(),
    ),
    Mutation(
        "old-replies-believed",
        "a member accepts replies to earlier heartbeats",
        *_old_replies_believed(),
    ),
)
"""Mutations that runs of groups must find."""
