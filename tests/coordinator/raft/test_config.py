"""Tests of the settings of the Raft core."""

import pytest

from tidelog.coordinator.raft.config import RaftConfig
from tidelog.wire.errors import ConfigError


def test_the_defaults_are_valid() -> None:
    assert RaftConfig().election_ticks == 10


def test_an_election_timeout_must_be_longer_than_a_heartbeat() -> None:
    with pytest.raises(ConfigError, match="election_ticks is 3 and must be more than"):
        RaftConfig(heartbeat_ticks=3, election_ticks=3)


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        RaftConfig(append_bytes_max=0, inflight_messages_max=-1)

    assert "append_bytes_max is 0" in str(caught.value)
    assert "inflight_messages_max is -1" in str(caught.value)
