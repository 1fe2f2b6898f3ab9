"""The hard state, `Ready`, and the configuration of the core."""

import pytest

from tests.coordinator.raft.samples import A, B, C, at
from tidelog.coordinator.raft.config import RaftConfig
from tidelog.coordinator.raft.hard_state import HardStateGate
from tidelog.coordinator.raft.membership import Identity
from tidelog.coordinator.raft.messages import VoteReply
from tidelog.coordinator.raft.ready import HardState, Ready, Write
from tidelog.wire.errors import ConfigError


def reply(term: int, target: Identity = B) -> VoteReply:
    return VoteReply(A, target, term, is_granted=True)


def test_messages_of_a_durable_term_leave_at_once() -> None:
    promises = HardStateGate(HardState(3))

    promises.post(reply(3))

    assert promises.take_messages() == (reply(3),)
    assert promises.take_messages() == ()


@pytest.mark.invariant("I66")
def test_a_message_waits_until_its_vote_is_durable() -> None:
    """Term and vote are durable before any message that depends on them is sent."""
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


def test_a_promise_made_during_a_write_waits_for_the_next_one() -> None:
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


@pytest.mark.parametrize(
    ("kept", "promised", "is_covered"),
    [
        (HardState(5), HardState(5), True),
        (HardState(5, A), HardState(5), True),
        (HardState(5, A), HardState(5, A), True),
        (HardState(5, A), HardState(5, B), False),
        (HardState(5), HardState(5, A), False),
        (HardState(6), HardState(5, A), True),
        (HardState(4, A), HardState(5), False),
    ],
)
def test_a_hard_state_is_covered_by_the_same_vote_or_a_later_term(
    kept: HardState, promised: HardState, is_covered: bool
) -> None:
    assert kept.covers(promised) is is_covered


def test_ready_is_empty_when_there_is_nothing_to_do() -> None:
    write = Write(HardState(1), None, (), at(0, 0))

    assert Ready(None, (), None, (), ()).is_empty
    assert not Ready(write, (), None, (), ()).is_empty


def test_the_defaults_are_valid() -> None:
    assert RaftConfig().election_ticks == 10


def test_an_election_timeout_must_be_longer_than_a_heartbeat() -> None:
    with pytest.raises(ConfigError, match="election_ticks is 3 and must be more than"):
        RaftConfig(heartbeat_ticks=3, election_ticks=3)


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        RaftConfig(max_append_bytes=0, max_inflight_messages=-1)

    assert "max_append_bytes is 0" in str(caught.value)
    assert "max_inflight_messages is -1" in str(caught.value)
