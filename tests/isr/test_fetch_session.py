"""Incremental fetch sessions send only changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.isr.fetch_session import (
    FollowerPosition,
    FollowerSession,
    Key,
    LeaderSession,
    SessionDelta,
)
from tidelog.isr.follower import FetchPosition
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.messages.replication import ReplicaFetchRequest, ReplicaIdentity, ReplicaPosition

A: Key = (b"a" * 16, 0)
B: Key = (b"b" * 16, 3)
IDENTITY = ReplicaIdentity("cluster", 2, 12, "process")


def position_of(key: Key) -> FollowerPosition:
    return FollowerPosition(FetchPosition(key[1] * 10, None), 0)


def no_epochs(_: Key) -> list[tuple[int, int]]:
    return []


def request(delta: SessionDelta, *, begins: bool = False) -> ReplicaFetchRequest:
    return ReplicaFetchRequest(IDENTITY, begins, 500, 1000, *delta)


def test_a_session_sends_leader_epochs_once_per_partition() -> None:
    session = FollowerSession()
    session.follow(A, 7)

    first, _, _ = session.next_delta(position_of, lambda _: [(3, 0), (6, 5)])
    session.is_due(A)
    again, positions, _ = session.next_delta(position_of, lambda _: [(3, 0), (6, 5)])

    assert [each.leader_epochs for each in first] == [[(3, 0), (6, 5)]]
    assert again == []
    assert len(positions) == 1


def test_a_session_sends_an_unchanged_position_once() -> None:
    session = FollowerSession()
    session.follow(A, 7)
    session.follow(B, 8)

    followed, positions, unfollowed = session.next_delta(position_of, no_epochs)
    assert [(each.topic_id, each.partition, each.leader_epoch) for each in followed] == [
        (*A, 7),
        (*B, 8),
    ]
    assert positions == [ReplicaPosition(0, 0, None, 0), ReplicaPosition(1, 30, None, 0)]
    assert unfollowed == []

    assert session.next_delta(position_of, no_epochs) == ([], [], [])


def test_a_session_sends_changed_positions() -> None:
    session = FollowerSession()
    session.follow(A, 7)
    session.follow(B, 8)
    session.next_delta(position_of, no_epochs)

    session.is_due(B)

    assert session.next_delta(position_of, no_epochs) == ([], [ReplicaPosition(1, 30, None, 0)], [])


@pytest.mark.invariant("I57")
def test_a_new_leader_epoch_replaces_the_partition_in_the_session() -> None:
    session = FollowerSession()
    session.follow(A, 7)
    session.next_delta(position_of, no_epochs)

    session.follow(A, 9)

    followed, _, unfollowed = session.next_delta(position_of, no_epochs)
    assert [(each.number_in_session, each.leader_epoch) for each in followed] == [(1, 9)]
    assert unfollowed == [0]
    assert session.asked(0) is None
    assert session.asked(1) == (A, 9, FetchPosition(0, None))


def test_a_partition_removed_before_its_request_is_not_unfollowed() -> None:
    session = FollowerSession()
    session.follow(A, 7)
    assert session.number_of(A) is None
    session.unfollow(A)

    assert session.next_delta(position_of, no_epochs) == ([], [], [])
    assert len(session) == 0


def test_a_partition_has_a_number_at_the_leader_from_its_request_until_it_is_unfollowed() -> None:
    session = FollowerSession()
    session.follow(A, 7)
    session.follow(B, 8)
    assert session.number_of(B) is None

    session.next_delta(position_of, no_epochs)
    assert [session.number_of(key) for key in (A, B)] == [0, 1]

    session.unfollow(A)
    assert [session.number_of(key) for key in (A, B)] == [None, 1]


def test_a_new_connection_restarts_the_session() -> None:
    session = FollowerSession()
    session.follow(A, 7)
    session.follow(B, 8)
    session.next_delta(position_of, no_epochs)
    session.unfollow(A)

    session.begin()

    followed, positions, unfollowed = session.next_delta(position_of, no_epochs)
    assert [each.number_in_session for each in followed] == [0]
    assert len(positions) == 1
    assert unfollowed == []


def test_a_leader_checks_only_reported_and_touched_partitions() -> None:
    ours, theirs = FollowerSession(), LeaderSession()
    ours.follow(A, 7)
    ours.follow(B, 8)
    theirs.take(request(ours.next_delta(position_of, no_epochs), begins=True))
    assert list(theirs.due) == [0, 1]

    for number in (0, 1):
        theirs.told(number, high_watermark=5, log_start_offset=0)
    assert list(theirs.due) == []
    assert theirs.is_told(1, high_watermark=5, log_start_offset=0)
    assert not theirs.is_told(1, high_watermark=6, log_start_offset=0)

    theirs.touch(1)
    theirs.touch(17)
    assert list(theirs.due) == [1]


def test_the_leader_awaits_a_report_before_it_answers_again() -> None:
    """Otherwise a leader would resend batches at every append to a follower with a full disk."""
    ours, theirs = FollowerSession(), LeaderSession()
    ours.follow(A, 7)
    theirs.take(request(ours.next_delta(position_of, no_epochs), begins=True))
    theirs.told(0, high_watermark=5, log_start_offset=0, awaits_report=True)

    theirs.touch(0)
    assert list(theirs.due) == []

    ours.is_due(A)
    theirs.take(request(ours.next_delta(position_of, no_epochs)))
    assert list(theirs.due) == [0]
    theirs.told(0, high_watermark=5, log_start_offset=0)
    theirs.touch(0)
    assert list(theirs.due) == [0]


def test_a_partition_without_a_position_counts_as_not_compared_and_not_reported() -> None:
    """A durable end that a follower reports before its first position must not count."""
    ours, theirs = FollowerSession(), LeaderSession()
    ours.follow(A, 7)
    followed, _, _ = ours.next_delta(position_of, no_epochs)

    theirs.take(request(SessionDelta(followed, [], []), begins=True))

    partition = theirs.partitions[0]
    assert partition.position is None
    assert not partition.is_compared
    assert not partition.is_reported
    assert not theirs.is_told(0, high_watermark=0, log_start_offset=0)
    theirs.touch(0)
    assert list(theirs.due) == [0]


def test_a_new_position_must_be_reported_again() -> None:
    ours, theirs = FollowerSession(), LeaderSession()
    ours.follow(A, 7)
    theirs.take(request(ours.next_delta(position_of, no_epochs), begins=True))
    theirs.partitions[0].is_compared = theirs.partitions[0].is_reported = True

    ours.is_due(A)
    theirs.take(request(ours.next_delta(position_of, no_epochs)))

    assert theirs.partitions[0].is_compared
    assert not theirs.partitions[0].is_reported


def test_a_follower_says_whether_its_replica_is_whole() -> None:
    ours, theirs = FollowerSession(), LeaderSession()
    ours.follow(A, 7)

    def damaged_at(key: Key) -> FollowerPosition:
        return position_of(key)._replace(is_whole=False, is_suspect=True)

    theirs.take(request(ours.next_delta(damaged_at, no_epochs), begins=True))

    position = theirs.partitions[0].position
    assert position == ReplicaPosition(0, 0, None, 0, is_whole=False, is_suspect=True)


def test_a_served_partition_goes_to_the_end_of_the_queue() -> None:
    ours, theirs = FollowerSession(), LeaderSession()
    ours.follow(A, 7)
    ours.follow(B, 8)
    theirs.take(request(ours.next_delta(position_of, no_epochs), begins=True))

    ours.is_due(A)
    theirs.take(request(ours.next_delta(position_of, no_epochs)))

    assert list(theirs.due) == [1, 0]


def test_a_new_session_drops_the_earlier_state() -> None:
    ours, theirs = FollowerSession(), LeaderSession()
    ours.follow(A, 7)
    theirs.take(request(ours.next_delta(position_of, no_epochs), begins=True))
    ours.unfollow(A)
    ours.follow(B, 8)
    ours.begin()

    assert theirs.take(request(ours.next_delta(position_of, no_epochs), begins=True)) == [0]

    assert [each.followed.topic_id for each in theirs.partitions.values()] == [B[0]]


def test_a_position_of_an_unknown_partition_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="does not know a partition 4; follow it first"):
        LeaderSession().take(request(SessionDelta([], [ReplicaPosition(4, 0, None, 0)], [])))


@given(
    st.lists(st.tuples(st.sampled_from(["follow", "move", "unfollow", "begin"]), st.integers(0, 5)))
)
def test_follower_and_leader_sessions_agree(steps: list[tuple[str, int]]) -> None:
    ours, theirs = FollowerSession(), LeaderSession()
    ends = dict.fromkeys(range(6), 0)
    epochs: dict[int, int] = {}
    is_new = True
    for step, (action, number) in enumerate(steps):
        key = (b"t", number)
        match action:
            case "follow":
                ours.follow(key, step)
                epochs[number] = step
            case "unfollow":
                ours.unfollow(key)
                epochs.pop(number, None)
            case "begin":
                ours.begin()
                is_new = True
            case _:
                ends[number] += 1
                ours.is_due(key)
        delta = ours.next_delta(
            lambda key: FollowerPosition(FetchPosition(ends[key[1]], None), 0), no_epochs
        )
        theirs.take(request(delta, begins=is_new))
        is_new = False

        known = {
            each.followed.partition: (
                each.followed.leader_epoch,
                each.position and each.position.fetch_offset,
            )
            for each in theirs.partitions.values()
        }
        assert known == {number: (epoch, ends[number]) for number, epoch in epochs.items()}
