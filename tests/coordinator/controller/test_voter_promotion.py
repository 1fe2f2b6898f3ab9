"""The choice of voters: one learner after the other, up to an odd number."""

import pytest

from tidelog.coordinator.controller.voter_promotion import VOTER_COUNT_MAX, next_promotion
from tidelog.coordinator.raft.membership import Identity, Membership
from tidelog.coordinator.raft.ready import Promote

ALL_LIVE = range(1, 20)


def member(node_id: int) -> Identity:
    return Identity(node_id, b"disk %d" % node_id)


def members(voter_count: int, learner_count: int) -> Membership:
    """Return voters with ids from 1 on, and learners with those that follow."""
    ids = [member(number + 1) for number in range(voter_count + learner_count)]
    return Membership(tuple(ids[:voter_count]), tuple(ids[voter_count:]))


@pytest.mark.parametrize(
    ("voter_count", "learner_count", "voters_in_the_end"),
    [
        (1, 0, 1), (1, 1, 1), (1, 2, 3), (1, 3, 3), (1, 4, 5), (1, 9, 5),
        (2, 0, 2), (2, 1, 3), (2, 2, 3), (3, 1, 3), (3, 2, 5), (4, 0, 4), (4, 1, 5),
        (5, 1, 5), (5, 4, 5), (6, 3, 6),
    ],
)  # fmt: skip
def test_learners_are_promoted_one_by_one_until_the_number_is_odd(
    voter_count: int, learner_count: int, voters_in_the_end: int
) -> None:
    membership = members(voter_count, learner_count)

    while (due := next_promotion(membership, ALL_LIVE)) is not None:
        promoted = member(due.node_id)
        assert promoted in membership.learners
        membership = Membership(
            (*membership.voters, promoted),
            tuple(each for each in membership.learners if each != promoted),
        )

    assert len(membership.voters) == voters_in_the_end
    assert voters_in_the_end <= max(VOTER_COUNT_MAX, voter_count)


def test_a_learner_with_a_fenced_broker_is_not_promoted() -> None:
    membership = members(1, 2)

    assert next_promotion(membership, {1, 2}) is None
    assert next_promotion(membership, {1, 3}) is None
    assert next_promotion(membership, {1, 2, 3}) == Promote(2)


def test_a_dead_learner_does_not_hold_up_a_live_one() -> None:
    membership = members(2, 2)

    assert next_promotion(membership, {1, 2, 4}) == Promote(4)


def test_a_dead_voter_counts_as_a_voter() -> None:
    # Two of four would have to agree on everything: a fourth voter is no gain.
    assert next_promotion(members(3, 1), {1, 4}) is None
    assert next_promotion(members(2, 1), {3}) == Promote(3)
