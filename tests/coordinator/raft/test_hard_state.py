"""Tests of term and vote, and of the messages that wait for them."""

import pytest

from tests.coordinator.raft.samples import A, B, C
from tidelog.coordinator.raft.hard_state import HardStateGate
from tidelog.coordinator.raft.membership import Identity
from tidelog.coordinator.raft.messages import VoteReply
from tidelog.coordinator.raft.ready import HardState


def reply(term: int, target: Identity = B) -> VoteReply:
    return VoteReply(A, target, term, is_granted=True)


def test_in_a_quiet_term_messages_leave_at_once() -> None:
    promises = HardStateGate(HardState(3))

    promises.post(reply(3))

    assert promises.take_messages() == (reply(3),)
    assert promises.take_messages() == ()


def test_a_message_waits_until_its_vote_is_durable() -> None:
    """Term and vote are durable before any message that depends on them is sent (I66)."""
    promises = HardStateGate(HardState(3))
    promises.advance_term(4)
    promises.vote_for(B)
    promises.post(reply(4))

    assert promises.take_messages() == ()
    assert promises.unsynced() == HardState(4, B)

    promises.synced(HardState(4))
    assert promises.take_messages() == ()

    promises.synced(HardState(4, B))
    assert promises.take_messages() == (reply(4),)
    assert promises.unsynced() is None


def test_what_was_promised_while_a_write_ran_waits_for_the_next_one() -> None:
    promises = HardStateGate(HardState(3))
    promises.advance_term(4)
    promises.vote_for(B)
    promises.post(reply(4))
    promises.advance_term(5)
    promises.vote_for(C)
    promises.post(reply(5, C))

    promises.synced(HardState(4, B))

    assert promises.take_messages() == (reply(4),)
    assert promises.unsynced() == HardState(5, C)


def test_a_later_term_that_is_durable_covers_an_earlier_vote() -> None:
    promises = HardStateGate(HardState(3))
    promises.advance_term(4)
    promises.vote_for(B)
    promises.post(reply(4))
    promises.advance_term(5)

    promises.synced(HardState(5))

    assert promises.take_messages() == (reply(4),)


def test_a_vote_is_given_once_in_a_term() -> None:
    promises = HardStateGate(HardState(3, B))

    promises.vote_for(B)
    with pytest.raises(AssertionError, match="one vote in a term"):
        promises.vote_for(C)


def test_a_term_never_falls() -> None:
    with pytest.raises(AssertionError):
        HardStateGate(HardState(3)).advance_term(3)
