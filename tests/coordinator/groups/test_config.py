"""Settings of consumer groups are checked against each other."""

import pytest

from tidelog.coordinator.groups.config import GroupConfig
from tidelog.wire.errors import ConfigError


def test_the_defaults_fit_together() -> None:
    assert GroupConfig().session_timeout_ms == 45_000


def test_every_problem_is_listed() -> None:
    with pytest.raises(ConfigError) as caught:
        GroupConfig(waiting_interval_ms=0, session_timeout_ms=14_999, target_delay_max_ms=1)

    assert str(caught.value) == (
        "consumer groups: waiting_interval_ms must be above 0; session_timeout_ms must leave time"
        " for two heartbeats, 15000 or more; target_delay_max_ms must not be below"
        " replacement_delay_ms"
    )


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"waiting_interval_ms": 5_001}, "must not be above heartbeat_interval_ms"),
        ({"busy_max_ms": 44_999}, "must not be below session_timeout_ms"),
    ],
)
def test_a_problem_is_named(config: dict[str, int], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        GroupConfig(**config)
