"""A member's side of a group: what it says, and what follows from what it hears.

How it gets along with a coordinator in a bad world is shown in `tests/coordinator/groups`.
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
    """A member that talks to a test."""

    def __init__(self, *, instance_id: str | None = None) -> None:
        settings = MemberSettings(group_id="billing", instance_id=instance_id, incarnation=7)
        self.member = MembershipProtocol(settings, WANTED, Random(1))
        self.now = 100.0
        self.revision = 0
        self.epoch = 0

    def heartbeat(self) -> HeartbeatDue:
        """Wait until the member sends a heartbeat."""
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
    """Return a member that reads these partitions, and has said so."""
    talk = Conversation(instance_id=instance_id)
    talk.exchange([])
    talk.exchange(numbers, epoch=2)
    talk.exchange(epoch=2)
    return talk


def test_the_first_heartbeat_joins_and_says_what_is_wanted() -> None:
    talk = Conversation()

    request, effects = talk.exchange([])

    assert (request.member_epoch, request.subscription, request.owned) == (JOIN_EPOCH, WANTED, [])
    assert len(request.member_id) == 32
    assert effects == []
    assert talk.member.may_process(talk.now)


def test_what_is_assigned_is_taken_up_and_told() -> None:
    talk = Conversation()
    talk.exchange([])

    _, effects = talk.exchange([0, 1], epoch=2)

    assert effects == [PartitionsAssigned(partitions(0, 1))]
    request, _ = talk.exchange(epoch=2)
    assert request.owned == [TopicPartitions(ORDERS, [0, 1])]
    assert (request.member_epoch, request.assignment_revision) == (2, 2)


def test_a_settled_member_says_nothing_that_the_group_knows() -> None:
    talk = a_member(0, 1)

    request, _ = talk.exchange(epoch=2)

    assert (request.owned, request.subscription) == (None, None)


def test_heartbeats_come_in_their_interval_and_a_bit_early() -> None:
    talk = a_member(0)
    before = talk.now

    talk.heartbeat()

    assert 4.5 <= talk.now - before <= 5.0


def test_one_heartbeat_is_under_way_at_a_time() -> None:
    talk = a_member(0)
    talk.heartbeat()

    assert talk.member.next_heartbeat(talk.now + 1000) is None
    assert talk.member.next_heartbeat_at() == float("inf")


def test_what_is_taken_away_is_finished_first_and_left_out_at_once() -> None:
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


def test_what_is_let_go_of_one_by_one_is_told_one_by_one() -> None:
    talk = a_member(0, 1, 2)
    talk.exchange([0], epoch=2)

    talk.member.released(partitions(2), talk.now)

    request, _ = talk.exchange(epoch=2)
    assert request.owned == [TopicPartitions(ORDERS, [0, 1])]


def test_nothing_new_is_taken_up_before_the_old_is_let_go_of() -> None:
    talk = a_member(0)

    _, effects = talk.exchange([5], epoch=2)

    assert effects == [PartitionsRevoked(partitions(0))]
    assert talk.member.released(partitions(0), talk.now) == [PartitionsAssigned(partitions(5))]


def test_what_was_let_go_of_while_a_heartbeat_was_under_way_is_told_right_after() -> None:
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
def test_a_coordinator_that_cannot_be_reached_is_asked_again_soon_and_told_everything(
    error: TidelogError,
) -> None:
    talk = a_member(0)

    assert talk.fail(error) == []

    before = talk.now
    request = talk.heartbeat().request
    assert talk.now - before < 0.2
    assert request.owned == [TopicPartitions(ORDERS, [0])]
    assert talk.member.owned == set(partitions(0))


def test_waits_grow_while_it_fails_and_end_when_it_does_not() -> None:
    talk = a_member(0)
    waits: list[float] = []
    for _ in range(8):
        talk.fail(ConnectionLostError("gone"))
        waits.append(talk.member.next_heartbeat_at() - talk.now)

    assert waits[-1] > waits[0]
    assert max(waits) <= 3.0


def test_a_member_that_is_not_answered_stops_before_others_may_begin() -> None:
    talk = a_member(0)
    sent_at = talk.now
    talk.fail(ConnectionLostError("gone"))

    assert talk.member.may_process(sent_at + 39.9)
    assert not talk.member.may_process(sent_at + 40.0)


def test_a_member_that_is_answered_again_goes_on_with_what_it_has() -> None:
    talk = a_member(0)
    talk.now += 100
    assert not talk.member.may_process(talk.now)

    _, effects = talk.exchange(epoch=2)

    assert effects == []
    assert talk.member.may_process(talk.now)
    assert talk.member.owned == set(partitions(0))


def test_who_is_fenced_loses_everything_and_joins_under_another_name() -> None:
    talk = a_member(0, 1)
    old_id = talk.member.member_id

    effects = talk.fail(UnknownMemberError("fenced"))

    assert effects == [PartitionsLost(partitions(0, 1))]
    assert not talk.member.may_process(talk.now)
    request, _ = talk.exchange([])
    assert request.member_id != old_id
    assert (request.member_epoch, request.assignment_revision, request.owned) == (0, 0, [])
    assert request.subscription == WANTED


def test_a_static_member_that_was_fenced_comes_back_as_a_newer_one() -> None:
    talk = a_member(0, instance_id="one")
    before = talk.fail(UnknownMemberError("fenced"))

    request = talk.heartbeat().request

    assert before == [PartitionsLost(partitions(0))]
    assert (request.instance_id, request.incarnation) == ("one", 8)


def test_what_was_being_let_go_of_by_a_fenced_member_is_nothing_any_more() -> None:
    talk = a_member(0, 1)
    talk.exchange([0], epoch=2)
    talk.fail(UnknownMemberError("fenced"))

    assert talk.member.released(partitions(1), talk.now) == []
    assert talk.member.owned == set()


@pytest.mark.parametrize(
    "error", [FencedInstanceError("a newer one"), InvalidRequestError("no such assignor")]
)
def test_what_trying_again_does_not_cure_stops_the_member(error: TidelogError) -> None:
    talk = a_member(0)

    assert talk.fail(error) == [PartitionsLost(partitions(0)), MembershipEnded(error)]
    assert talk.member.is_over
    assert talk.member.next_heartbeat(talk.now + 1000) is None


def test_who_leaves_lets_go_of_everything_and_says_goodbye() -> None:
    talk = a_member(0, 1)

    assert talk.member.leave(talk.now) == [PartitionsRevoked(partitions(0, 1))]
    assert talk.exchange(epoch=2)[0].member_epoch == 2
    talk.member.released(partitions(0, 1), talk.now)

    request, effects = talk.exchange(epoch=LEAVE_EPOCH)
    assert (request.member_epoch, request.owned) == (LEAVE_EPOCH, [])
    assert effects == [MembershipEnded(None)]


def test_a_static_member_that_restarts_goes_away_only() -> None:
    talk = a_member(instance_id="one")

    assert talk.member.leave(talk.now, is_restart=True) == []

    request = talk.heartbeat().request
    assert request.member_epoch == STATIC_LEAVE_EPOCH
    assert (request.instance_id, request.incarnation) == ("one", 7)


def test_a_goodbye_that_is_lost_is_not_waited_for() -> None:
    talk = a_member()
    talk.member.leave(talk.now)

    assert talk.fail(ConnectionLostError("gone")) == [MembershipEnded(None)]


def test_who_never_joined_leaves_without_a_word() -> None:
    talk = Conversation()

    assert talk.member.leave(talk.now) == [MembershipEnded(None)]
    assert talk.member.is_over


def test_who_is_fenced_while_leaving_has_left() -> None:
    talk = a_member(0)
    talk.member.leave(talk.now)

    assert talk.fail(UnknownMemberError("fenced")) == [
        PartitionsLost(partitions(0)),
        MembershipEnded(None),
    ]


def test_nothing_is_taken_up_while_leaving() -> None:
    talk = a_member(0)
    talk.member.leave(talk.now)

    assert talk.exchange([0, 1], epoch=2)[1] == []
    assert talk.member.released(partitions(0), talk.now) == []


def test_a_new_subscription_is_told_at_once_and_until_it_is_heard() -> None:
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


def test_an_application_at_work_says_how_long() -> None:
    talk = a_member(0)
    talk.member.busy(talk.now + 60.0)

    request = talk.heartbeat().request

    assert 55_000 <= request.busy_for_ms <= 60_000


def test_commits_of_one_membership_are_numbered() -> None:
    talk = a_member(0)

    assert [talk.member.next_commit_sequence() for _ in range(3)] == [1, 2, 3]


def test_who_takes_time_to_let_go_while_leaving_does_not_hurry() -> None:
    talk = a_member(0)
    talk.member.leave(talk.now)

    talk.exchange(epoch=1)

    assert talk.member.next_heartbeat_at() > talk.now + 4.0


def test_a_heartbeat_is_hurried_when_something_is_to_be_told() -> None:
    talk = a_member(0)

    talk.member.hurry(talk.now)

    assert talk.member.next_heartbeat_at() == talk.now


def test_the_lease_ends_when_records_may_not_be_handed_out_any_more() -> None:
    member = a_member(0).member

    assert member.may_process(member.lease_end - 0.001)
    assert not member.may_process(member.lease_end)


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, LEAVE_EPOCH), ("a", STATIC_LEAVE_EPOCH)])
def test_who_has_no_time_leaves_with_a_word(instance_id: str | None, epoch: int) -> None:
    talk = Conversation(instance_id=instance_id)
    talk.exchange([0])

    goodbye = talk.member.abandon()

    assert goodbye is not None
    assert (goodbye.member_epoch, goodbye.owned) == (epoch, [])
    assert talk.member.is_over
    assert talk.member.abandon() is None


def test_who_never_spoke_has_no_goodbye_to_say() -> None:
    assert Conversation().member.abandon() is None
