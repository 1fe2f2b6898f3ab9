"""Tests of election timeouts and of counting votes."""

from random import Random

from tests.coordinator.raft.samples import THREE, A, B, C, D
from tidelog.coordinator.raft.candidate import Candidate, ElectionTimer


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


def test_the_minimum_is_the_time_in_which_nobody_can_have_timed_out() -> None:
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
