"""Membership protocol of a group member: its heartbeats, and the effects of replies.

`tests/coordinator/groups` tests it together with a coordinator and faults.
"""

from collections.abc import Sequence
from random import Random

import pytest

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
from tidelog.wire.errors import (
    ConnectionLostError,
    FencedInstanceError,
    InvalidRequestError,
    NotLeaderError,
    TidelogError,
    UnknownMemberError,
)
from tidelog.wire.messages.groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    AssignedTopic,
    GroupHeartbeatReply,
    GroupHeartbeatRequest,
    Subscription,
    TopicPartitions,
)

ORDERS = b"orders".ljust(16, b".")
WANTED = Subscription(["orders"])


def partitions(*numbers: int) -> tuple[GroupPartition, ...]:
    return tuple(GroupPartition("orders", ORDERS, number) for number in numbers)


class Conversation:
    """A member, with a test in the role of the coordinator."""

    def __init__(self, *, instance_id: str | None = None) -> None:
        settings = MemberSettings(group_id="billing", instance_id=instance_id, incarnation=7)
        self.member = MembershipProtocol(settings, WANTED, Random(1))
        self.now = 100.0
        self.revision = 0
        self.epoch = 0

    def heartbeat(self) -> HeartbeatDue:
        """Return the next heartbeat of the member."""
        self.now = max(self.now, self.member.next_heartbeat_at())
        heartbeat = self.member.next_heartbeat(self.now)
        assert heartbeat is not None
        return heartbeat

    def answer(
        self, heartbeat: HeartbeatDue, assigned: Sequence[int] | None = None, *, epoch: int = 1
    ) -> list[MembershipEvent]:
        assignment = None
        if assigned is not None:
            self.revision += 1
            assignment = [AssignedTopic("orders", ORDERS, list(assigned))]
        reply = GroupHeartbeatReply(epoch, self.revision, 5_000, 40_000, assignment)
        return self.member.answered(heartbeat.number, reply, self.now)

    def exchange(
        self, assigned: Sequence[int] | None = None, *, epoch: int = 1
    ) -> tuple[GroupHeartbeatRequest, list[MembershipEvent]]:
        heartbeat = self.heartbeat()
        return heartbeat.request, self.answer(heartbeat, assigned, epoch=epoch)

    def fail(self, error: TidelogError) -> list[MembershipEvent]:
        return self.member.failed(self.heartbeat().number, error, self.now)


def a_member(*numbers: int, instance_id: str | None = None) -> Conversation:
    """Return a member that owns these partitions and has reported them."""
    talk = Conversation(instance_id=instance_id)
    talk.exchange([])
    talk.exchange(numbers, epoch=2)
    talk.exchange(epoch=2)
    return talk


def test_the_first_heartbeat_joins_with_the_subscription() -> None:
    talk = Conversation()

    request, effects = talk.exchange([])

    assert (request.member_epoch, request.subscription, request.owned) == (JOIN_EPOCH, WANTED, [])
    assert len(request.member_id) == 32
    assert effects == []
    assert talk.member.may_process(talk.now)


def test_an_assignment_is_acknowledged_in_the_next_heartbeat() -> None:
    talk = Conversation()
    talk.exchange([])

    _, effects = talk.exchange([0, 1], epoch=2)

    assert effects == [PartitionsAssigned(partitions(0, 1))]
    request, _ = talk.exchange(epoch=2)
    assert request.owned == [TopicPartitions(ORDERS, [0, 1])]
    assert (request.member_epoch, request.assignment_revision) == (2, 2)


def test_a_stable_member_sends_no_known_fields() -> None:
    talk = a_member(0, 1)

    request, _ = talk.exchange(epoch=2)

    assert (request.owned, request.subscription) == (None, None)


def test_heartbeats_are_sent_slightly_before_their_interval() -> None:
    talk = a_member(0)
    before = talk.now

    talk.heartbeat()

    assert 4.5 <= talk.now - before <= 5.0


def test_one_heartbeat_is_in_flight_at_a_time() -> None:
    talk = a_member(0)
    talk.heartbeat()

    assert talk.member.next_heartbeat(talk.now + 1000) is None
    assert talk.member.next_heartbeat_at() == float("inf")


def test_revoked_partitions_stay_owned_until_released() -> None:
    talk = a_member(0, 1, 2)

    _, effects = talk.exchange([0], epoch=2)

    assert effects == [PartitionsRevoked(partitions(1, 2))]
    assert talk.member.owned == set(partitions(0, 1, 2))
    request, _ = talk.exchange(epoch=2)
    assert request.owned in (None, [TopicPartitions(ORDERS, [0, 1, 2])])
    before = talk.now

    assert talk.member.released(partitions(1, 2), talk.now) == []

    request, _ = talk.exchange(epoch=3)
    assert talk.now == before
    assert request.owned == [TopicPartitions(ORDERS, [0])]


def test_partitions_released_one_by_one_are_reported_one_by_one() -> None:
    talk = a_member(0, 1, 2)
    talk.exchange([0], epoch=2)

    talk.member.released(partitions(2), talk.now)

    request, _ = talk.exchange(epoch=2)
    assert request.owned == [TopicPartitions(ORDERS, [0, 1])]


def test_new_partitions_are_assigned_after_revoked_ones_are_released() -> None:
    talk = a_member(0)

    _, effects = talk.exchange([5], epoch=2)

    assert effects == [PartitionsRevoked(partitions(0))]
    assert talk.member.released(partitions(0), talk.now) == [PartitionsAssigned(partitions(5))]


def test_a_release_during_a_heartbeat_is_reported_right_after() -> None:
    talk = a_member(0, 1)
    talk.exchange([0], epoch=2)
    heartbeat = talk.heartbeat()
    talk.member.released(partitions(1), talk.now)

    talk.answer(heartbeat, epoch=2)

    assert talk.member.next_heartbeat_at() == talk.now


def test_a_reply_that_comes_too_late_changes_nothing() -> None:
    talk = a_member(0)
    late = talk.heartbeat()
    talk.member.failed(late.number, ConnectionLostError("gone"), talk.now)
    assert talk.answer(late, [0, 1], epoch=9) == []
    talk.heartbeat()

    assert talk.answer(late, [0, 1], epoch=9) == []
    assert talk.member.member_epoch == 2
    assert talk.member.failed(late.number, UnknownMemberError("no"), talk.now) == []


@pytest.mark.parametrize("error", [ConnectionLostError("gone"), NotLeaderError("not here")])
def test_after_a_failed_heartbeat_the_next_one_is_full(
    error: TidelogError,
) -> None:
    talk = a_member(0)

    assert talk.fail(error) == []

    before = talk.now
    request = talk.heartbeat().request
    assert talk.now - before < 0.2
    assert request.owned == [TopicPartitions(ORDERS, [0])]
    assert talk.member.owned == set(partitions(0))


def test_heartbeat_backoff_grows_and_is_reset() -> None:
    talk = a_member(0)
    waits: list[float] = []
    for _ in range(8):
        talk.fail(ConnectionLostError("gone"))
        waits.append(talk.member.next_heartbeat_at() - talk.now)

    assert waits[-1] > waits[0]
    assert max(waits) <= 3.0


def test_an_unanswered_member_stops_before_its_partitions_are_reassigned() -> None:
    talk = a_member(0)
    sent_at = talk.now
    talk.fail(ConnectionLostError("gone"))

    assert talk.member.may_process(sent_at + 39.9)
    assert not talk.member.may_process(sent_at + 40.0)


def test_a_member_resumes_its_partitions_after_a_reply() -> None:
    talk = a_member(0)
    talk.now += 100
    assert not talk.member.may_process(talk.now)

    _, effects = talk.exchange(epoch=2)

    assert effects == []
    assert talk.member.may_process(talk.now)
    assert talk.member.owned == set(partitions(0))


def test_a_fenced_member_loses_its_partitions_and_rejoins_with_a_new_id() -> None:
    talk = a_member(0, 1)
    old_id = talk.member.member_id

    effects = talk.fail(UnknownMemberError("fenced"))

    assert effects == [PartitionsLost(partitions(0, 1))]
    assert not talk.member.may_process(talk.now)
    request, _ = talk.exchange([])
    assert request.member_id != old_id
    assert (request.member_epoch, request.assignment_revision, request.owned) == (0, 0, [])
    assert request.subscription == WANTED


def test_a_fenced_static_member_rejoins_with_a_higher_incarnation() -> None:
    talk = a_member(0, instance_id="one")
    before = talk.fail(UnknownMemberError("fenced"))

    request = talk.heartbeat().request

    assert before == [PartitionsLost(partitions(0))]
    assert (request.instance_id, request.incarnation) == ("one", 8)


def test_a_release_by_a_fenced_member_is_ignored() -> None:
    talk = a_member(0, 1)
    talk.exchange([0], epoch=2)
    talk.fail(UnknownMemberError("fenced"))

    assert talk.member.released(partitions(1), talk.now) == []
    assert talk.member.owned == set()


@pytest.mark.parametrize(
    "error", [FencedInstanceError("a newer one"), InvalidRequestError("no such assignor")]
)
def test_a_fatal_error_ends_the_membership(error: TidelogError) -> None:
    talk = a_member(0)

    assert talk.fail(error) == [PartitionsLost(partitions(0)), MembershipEnded(error)]
    assert talk.member.is_over
    assert talk.member.next_heartbeat(talk.now + 1000) is None


def test_a_leaving_member_releases_its_partitions_and_leaves() -> None:
    talk = a_member(0, 1)

    assert talk.member.leave(talk.now) == [PartitionsRevoked(partitions(0, 1))]
    assert talk.exchange(epoch=2)[0].member_epoch == 2
    talk.member.released(partitions(0, 1), talk.now)

    request, effects = talk.exchange(epoch=LEAVE_EPOCH)
    assert (request.member_epoch, request.owned) == (LEAVE_EPOCH, [])
    assert effects == [MembershipEnded(None)]


def test_a_restarting_static_member_leaves_temporarily() -> None:
    talk = a_member(instance_id="one")

    assert talk.member.leave(talk.now, is_restart=True) == []

    request = talk.heartbeat().request
    assert request.member_epoch == STATIC_LEAVE_EPOCH
    assert (request.instance_id, request.incarnation) == ("one", 7)


def test_a_lost_leave_request_is_not_retried() -> None:
    talk = a_member()
    talk.member.leave(talk.now)

    assert talk.fail(ConnectionLostError("gone")) == [MembershipEnded(None)]


def test_a_member_that_never_joined_sends_no_leave_request() -> None:
    talk = Conversation()

    assert talk.member.leave(talk.now) == [MembershipEnded(None)]
    assert talk.member.is_over


def test_a_member_fenced_while_leaving_has_left() -> None:
    talk = a_member(0)
    talk.member.leave(talk.now)

    assert talk.fail(UnknownMemberError("fenced")) == [
        PartitionsLost(partitions(0)),
        MembershipEnded(None),
    ]


def test_a_leaving_member_gets_no_assignment() -> None:
    talk = a_member(0)
    talk.member.leave(talk.now)

    assert talk.exchange([0, 1], epoch=2)[1] == []
    assert talk.member.released(partitions(0), talk.now) == []


def test_a_new_subscription_is_sent_at_once_until_it_is_acknowledged() -> None:
    talk = a_member(0)
    heartbeat = talk.heartbeat()
    wanted = Subscription(pattern="ord*")

    talk.member.subscribe(wanted, talk.now)
    talk.answer(heartbeat, epoch=2)

    assert talk.member.next_heartbeat_at() == talk.now
    lost = talk.heartbeat()
    assert (lost.request.subscription, lost.request.subscription_version) == (wanted, 2)
    talk.member.failed(lost.number, ConnectionLostError("gone"), talk.now)
    assert talk.exchange(epoch=2)[0].subscription == wanted
    assert talk.exchange(epoch=2)[0].subscription is None


def test_a_busy_application_announces_its_poll_interval() -> None:
    talk = a_member(0)
    talk.member.busy(talk.now + 60.0)

    request = talk.heartbeat().request

    assert 55_000 <= request.busy_for_ms <= 60_000


def test_commits_of_one_membership_are_numbered() -> None:
    talk = a_member(0)

    assert [talk.member.next_commit_sequence() for _ in range(3)] == [1, 2, 3]


def test_a_slow_release_while_leaving_keeps_the_heartbeat_interval() -> None:
    talk = a_member(0)
    talk.member.leave(talk.now)

    talk.exchange(epoch=1)

    assert talk.member.next_heartbeat_at() > talk.now + 4.0


def test_hurry_sends_the_next_heartbeat_at_once() -> None:
    talk = a_member(0)

    talk.member.hurry(talk.now)

    assert talk.member.next_heartbeat_at() == talk.now


def test_records_are_not_handed_out_after_the_lease_end() -> None:
    member = a_member(0).member

    assert member.may_process(member.lease_end - 0.001)
    assert not member.may_process(member.lease_end)


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, LEAVE_EPOCH), ("a", STATIC_LEAVE_EPOCH)])
def test_an_abandoned_membership_returns_a_leave_request(
    instance_id: str | None, epoch: int
) -> None:
    talk = Conversation(instance_id=instance_id)
    talk.exchange([0])

    goodbye = talk.member.abandon()

    assert goodbye is not None
    assert (goodbye.member_epoch, goodbye.owned) == (epoch, [])
    assert talk.member.is_over
    assert talk.member.abandon() is None


def test_an_abandoned_membership_without_heartbeats_has_no_leave_request() -> None:
    assert Conversation().member.abandon() is None
