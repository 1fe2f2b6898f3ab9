"""The hard state, `Ready`, and the configuration of the core."""

import re
from dataclasses import fields

import pytest

from tests.coordinator.raft.samples import A, B, C, at
from tests.paths import ROOT
from tidelog.coordinator.raft.config import RaftConfig
from tidelog.coordinator.raft.hard_state import HardStateGate
from tidelog.coordinator.raft.membership import Identity
from tidelog.coordinator.raft.messages import ENTRY_COUNT_MAX, VoteReply
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


def test_an_election_timeout_may_be_one_tick_longer_than_a_heartbeat() -> None:
    assert RaftConfig(heartbeat_ticks=3, election_ticks=4).election_ticks == 4


@pytest.mark.parametrize("name", [each.name for each in fields(RaftConfig)])
def test_each_setting_of_raft_is_at_least_1(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 0 and must be at least 1"):
        RaftConfig(**{name: 0})
    if name != "election_ticks":
        assert getattr(RaftConfig(**{name: 1}), name) == 1


def test_the_page_of_raft_has_the_default_of_each_setting() -> None:
    page = (ROOT / "docs" / "raft.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `(\w+)` \| ([\d,]+) (ticks?|entries|messages|MiB) \|", page, re.MULTILINE
    )
    units = {"MiB": 1 << 20}

    assert {
        name: int(number.replace(",", "")) * units.get(unit, 1) for name, number, unit in rows
    } == {each.name: each.default for each in fields(RaftConfig)}


def test_messages_of_the_default_size_fit_the_limits_of_others() -> None:
    config = RaftConfig()

    assert config.election_ticks >= 10 * config.heartbeat_ticks, "heartbeats may be lost"
    assert config.max_append_bytes < config.max_inflight_bytes
    assert config.max_append_entries < ENTRY_COUNT_MAX, "a decoder accepts each message"
    assert config.max_payload_bytes < config.max_uncommitted_bytes < config.max_unsynced_bytes


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        RaftConfig(max_append_bytes=0, max_inflight_messages=-1)

    assert "max_append_bytes is 0" in str(caught.value)
    assert "max_inflight_messages is -1" in str(caught.value)
