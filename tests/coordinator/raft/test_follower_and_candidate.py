"""The follower and the candidate."""

from random import Random

import pytest

from tests.coordinator.raft.samples import NOTHING, THREE, A, B, C, D, at, entries, snapshot
from tidelog.coordinator.raft.candidate import Candidate, ElectionTimer
from tidelog.coordinator.raft.follower import Follower
from tidelog.coordinator.raft.log import RaftLog
from tidelog.coordinator.raft.messages import (
    AppendRefusal,
    AppendReply,
    AppendRequest,
    SnapshotRequest,
)

MOST = 1 << 20


def request(previous: tuple[int, int], *terms: int, commit_index: int = 0) -> AppendRequest:
    sent = tuple(entries(*terms, first=previous[0] + 1))
    return AppendRequest(A, B, 5, at(*previous), commit_index, 7, 3, sent)


@pytest.mark.invariant("I66")
def test_an_append_reply_has_received_and_durable_index() -> None:
    """An acknowledgement never claims more than the disk has."""
    log = RaftLog(NOTHING, entries(1, 1))
    follower = Follower(B, log, max_unsynced_bytes=MOST)

    assert follower.take_entries(request((2, 1), 2, 2)) == AppendReply(B, A, 5, 4, 2, 7, 3)

    log.synced(at(4, 2), None)
    assert follower.report(A, 5) == AppendReply(B, A, 5, 4, 4, 0, 0)


def test_the_durable_index_counts_only_up_to_the_match() -> None:
    log = RaftLog(NOTHING, entries(1, 1, 1, 1))
    follower = Follower(B, log, max_unsynced_bytes=MOST)

    reply = follower.take_entries(request((1, 1), 1))

    assert reply == AppendReply(B, A, 5, 2, 2, 7, 3)


def test_the_commit_index_advances_only_up_to_the_match() -> None:
    log = RaftLog(NOTHING, entries(1, 1, 1, 1))

    Follower(B, log, max_unsynced_bytes=MOST).take_entries(request((1, 1), 1, commit_index=4))

    assert log.commit_index == 2


def test_a_refusal_names_the_last_entry_that_may_agree() -> None:
    log = RaftLog(NOTHING, entries(1, 2, 2, 2, 2))
    follower = Follower(B, log, max_unsynced_bytes=MOST)

    assert follower.take_entries(request((5, 1))) == AppendRefusal(B, A, 5, 5, at(1, 1), 7, 3)
    assert follower.take_entries(request((9, 3))) == AppendRefusal(B, A, 5, 9, at(5, 2), 7, 3)


def test_a_refusal_names_no_entry_at_the_index_that_it_refuses() -> None:
    """The entry there is of an earlier term than the leader's, so the two differ."""
    follower = Follower(B, RaftLog(NOTHING, entries(1, 1)), max_unsynced_bytes=MOST)

    assert follower.take_entries(request((2, 3))) == AppendRefusal(B, A, 5, 2, at(1, 1), 7, 3)
    assert follower.take_entries(request((1, 3))) == AppendRefusal(B, A, 5, 1, at(0, 0), 7, 3)


def test_a_new_snapshot_is_acknowledged_when_it_is_durable() -> None:
    log = RaftLog(NOTHING, entries(1, 1))
    follower = Follower(B, log, max_unsynced_bytes=MOST)

    reply = follower.take_snapshot(SnapshotRequest(A, B, 5, snapshot(9, 4)))
    assert reply == AppendReply(B, A, 5, 9, 0, 0, 0)

    log.synced(at(9, 4), snapshot(9, 4))
    assert follower.report(A, 5) == AppendReply(B, A, 5, 9, 9, 0, 0)


def test_a_stale_snapshot_is_answered_with_the_commit_index() -> None:
    log = RaftLog(NOTHING, entries(1, 1, 1))
    log.commit_to(3)

    reply = Follower(B, log, max_unsynced_bytes=MOST).take_snapshot(
        SnapshotRequest(A, B, 5, snapshot(2, 1))
    )

    assert reply == AppendReply(B, A, 5, 3, 3, 0, 0)


def test_no_entries_are_accepted_while_the_disk_is_far_behind() -> None:
    log = RaftLog(NOTHING, entries(1, 1))
    follower = Follower(B, log, max_unsynced_bytes=1)
    follower.take_entries(request((2, 1), 2, 2))

    reply = follower.take_entries(request((4, 2), 2, 2, commit_index=6))
    assert reply == AppendReply(B, A, 5, 4, 2, 7, 3)
    assert log.last == at(4, 2)
    assert follower.take_entries(request((9, 2))) == reply, "no refusal, which requests more"

    log.synced(at(4, 2), None)
    assert log.unsynced_bytes == 0
    assert follower.take_entries(request((9, 2))) == AppendRefusal(B, A, 5, 9, at(4, 2), 7, 3)
    assert follower.take_entries(request((4, 2), 2, 2)) == AppendReply(B, A, 5, 6, 4, 7, 3)


def test_entries_are_accepted_until_the_limit_of_unsynced_bytes_is_passed() -> None:
    log = RaftLog(NOTHING)
    follower = Follower(B, log, max_unsynced_bytes=2 * entries(1)[0].size_bytes)

    replies = [follower.take_entries(request((index, min(index, 1)), 1)) for index in range(4)]

    assert [
        reply == AppendReply(B, A, 5, index + 1, 0, 7, 3) for index, reply in enumerate(replies)
    ] == [
        True,
        True,
        True,
        False,
    ]
    assert log.last == at(3, 1)


def wait(timer: ElectionTimer) -> int:
    ticks = 1
    while not timer.tick():
        ticks += 1
    return ticks


def test_timeouts_are_spread_between_one_and_two_election_timeouts() -> None:
    timer = ElectionTimer(10, Random(1))
    waits: list[int] = []
    for _ in range(500):
        waits.append(wait(timer))
        timer.reset()

    assert set(waits) == set(range(10, 20))


def test_the_first_campaigns_after_a_leader_are_repeated_sooner() -> None:
    timer = ElectionTimer(20, Random(1))
    pre_votes: list[int] = []
    votes: list[int] = []
    for _ in range(500):
        timer.heard_leader()
        for _ in range(2):
            timer.begin_pre_campaign()
            pre_votes.append(wait(timer))
            timer.begin_campaign()
            votes.append(wait(timer))

    assert set(pre_votes) == set(range(5, 10))
    assert set(votes) == set(range(10, 20))


def test_later_campaigns_wait_as_long_as_usual() -> None:
    timer = ElectionTimer(20, Random(1))
    for _ in range(2):
        timer.begin_pre_campaign()
    waits: list[int] = []
    for _ in range(500):
        timer.begin_pre_campaign()
        waits.append(wait(timer))
        timer.begin_campaign()
        waits.append(wait(timer))

    assert set(waits) == set(range(20, 40))


def test_no_timer_ends_within_the_minimum_election_timeout() -> None:
    timer = ElectionTimer(3, Random(1))

    within: list[bool] = []
    for _ in range(4):
        within.append(timer.is_within_minimum)
        timer.tick()
    timer.reset()

    assert within == [True, True, True, False]
    assert timer.is_within_minimum


def test_a_campaign_is_won_by_a_majority_of_the_voters() -> None:
    candidate = Candidate()

    candidate.record(A, is_granted=True)
    candidate.record(A, is_granted=True)
    candidate.record(B, is_granted=False)
    assert not candidate.is_won(THREE)

    candidate.record(C, is_granted=True)
    assert candidate.is_won(THREE)


def test_the_vote_of_a_learner_does_not_count() -> None:
    candidate = Candidate()

    candidate.record(A, is_granted=True)
    candidate.record(D, is_granted=True)

    assert not candidate.is_won(THREE.with_learner(D))
