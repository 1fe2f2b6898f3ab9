"""The group manager of the coordinator that leads: answers, fences, computes targets.

Pure: decides, given the time; no clock, no I/O. It combines the controller state, whose records are
proposed at once, with unreplicated state: sessions and the rebalance delay.

Every method returns records that must be proposed in this order, as one entry or several; they are
applied here already. A reply may go out when all earlier proposals are committed, also those of
other commands, for it may rest on them. A coordinator that loses leadership drops this object, and
the next leader creates another one from the committed state.
"""

from collections.abc import Mapping, Sequence
from typing import final

from tidelog.coordinator.groups.outcome import GroupOutcome
from tidelog.coordinator.groups.rebalance_delay import RebalanceDelay
from tidelog.coordinator.groups.records import (
    GroupDeleted,
    GroupRecord,
    GroupTouched,
    MemberJoined,
    MemberLeft,
    StaticMemberLeft,
    StaticMemberReplaced,
    SubscriptionChanged,
)
from tidelog.coordinator.groups.sessions import ExpiredMember, SessionHeartbeat, Sessions
from tidelog.coordinator.groups.stall_tolerant_clock import StallTolerantClock
from tidelog.coordinator.groups.state_machine import ConsumerGroups
from tidelog.coordinator.groups.targets import TopicShape
from tidelog.wire.messages.groups import GroupHeartbeatReply, GroupHeartbeatRequest


@final
class GroupManager:
    """The groups of one coordinator for as long as it leads.

    Invariant: every member has a session; every group without a target for its epoch is due.
    """

    def __init__(self, state: ConsumerGroups, now_ms: int) -> None:
        """Start at this monotonic time with a full session for every member."""
        self.state = state
        """The controller state: other commands go to it, and their records to `apply`."""
        self._time = StallTolerantClock(now_ms)
        self._sessions = Sessions(state.config)
        self._rebalance_delay = RebalanceDelay(state.config)
        for group_id, group in state.groups.items():
            for member_id in group.members:
                self._sessions.on_heartbeat((group_id, member_id), SessionHeartbeat(), now_ms)
            if group.target_epoch < group.group_epoch:
                self._rebalance_delay.began(group_id, now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """Latest time of the next `tick`, in monotonic milliseconds; `None` if not needed.

        It is never far away, so that a pause of the coordinator can be told from a quiet time.
        """
        deadlines = (self._sessions.next_deadline_ms, self._rebalance_delay.next_deadline_ms)
        earliest = min((one for one in deadlines if one is not None), default=None)
        return None if earliest is None else self._time.latest_wakeup(earliest)

    def heartbeat(
        self, request: GroupHeartbeatRequest, *, wall_ms: int, now_ms: int
    ) -> GroupOutcome[GroupHeartbeatReply]:
        """Answer a heartbeat; errors as in `ConsumerGroups.heartbeat`.

        Args:
            request: The member's heartbeat.
            wall_ms: Unix milliseconds, for administrators.
            now_ms: Monotonic milliseconds.
        """
        outcome = self.state.heartbeat(request, wall_ms)
        own_ms = self._time.read(now_ms)
        self._carry_out(outcome.records, own_ms, is_on_purpose=True)
        group = self.state.groups.get(request.group_id)
        member = None if group is None else group.members.get(request.member_id)
        if member is not None and not member.is_away:
            patience_ms = member.rebalance_timeout_ms if member.revoking else None
            heartbeat = SessionHeartbeat(request.busy_for_ms, patience_ms)
            self._sessions.on_heartbeat((request.group_id, request.member_id), heartbeat, own_ms)
        return outcome

    def tick(
        self, topics: Mapping[str, TopicShape], *, wall_ms: int, now_ms: int
    ) -> GroupOutcome[list[ExpiredMember]]:
        """Run due work; the reply has the fenced members, with reasons.

        Args:
            topics: All topics, by name.
            wall_ms: Unix milliseconds.
            now_ms: Monotonic milliseconds.
        """
        records: list[GroupRecord] = []
        own_ms = self._time.read(now_ms)
        expired = self._sessions.expired(own_ms)
        for one in expired:
            fenced = self.state.fence(one.group_id, one.member_id, wall_ms).records
            self._carry_out(fenced, own_ms, is_on_purpose=False)
            records.extend(fenced)
        for group_id in self._rebalance_delay.due(own_ms):
            computed = self.state.compute_target(group_id, topics).records
            self._carry_out(computed, own_ms, is_on_purpose=False)
            records.extend(computed)
        return GroupOutcome(records, expired)

    def apply(self, records: Sequence[GroupRecord], now_ms: int) -> None:
        """Apply records of another command, which are about to be proposed.

        Args:
            records: In their order.
            now_ms: Monotonic milliseconds.
        """
        self._carry_out(records, self._time.read(now_ms), is_on_purpose=True)

    def _carry_out(
        self, records: Sequence[GroupRecord], own_ms: int, *, is_on_purpose: bool
    ) -> None:
        """Apply records and update sessions and delays.

        `is_on_purpose`: a member that leaves with these records does so itself, and may be
        replaced.
        """
        for record in records:
            self.state.apply(record)
            self._note(record, own_ms, is_on_purpose=is_on_purpose)

    def _note(self, record: GroupRecord, own_ms: int, *, is_on_purpose: bool) -> None:
        match record:
            case MemberJoined():
                is_first = len(self.state.group(record.group_id).members) == 1
                note = self._rebalance_delay.began if is_first else self._rebalance_delay.joined
                note(record.group_id, own_ms)
            case MemberLeft():
                self._sessions.forget((record.group_id, record.member_id))
                note = (
                    self._rebalance_delay.left if is_on_purpose else self._rebalance_delay.changed
                )
                note(record.group_id, own_ms)
            case SubscriptionChanged() | GroupTouched():
                self._rebalance_delay.changed(record.group_id, own_ms)
            case StaticMemberReplaced():
                self._sessions.forget((record.group_id, record.old_member_id))
            case StaticMemberLeft():
                self._sessions.on_heartbeat(
                    (record.group_id, record.member_id), SessionHeartbeat(), own_ms
                )
            case GroupDeleted():
                self._rebalance_delay.forget(record.group_id)
            case _:
                pass
