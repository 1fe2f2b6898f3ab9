"""The certificate of a node: whether it may be used, and when its end is announced."""

import pytest

from tidelog.broker.security.own_certificate import ExpiryWarning, ExpiryWatch, own_name
from tidelog.wire.env.env import Certificate
from tidelog.wire.errors import ConfigError
from tidelog.wire.security.certificate_name import CertificateName
from tidelog.wire.security.principal import parse_principal

DAY_MS = 24 * 3_600_000


def a_certificate(*uris: str) -> Certificate:
    return Certificate("a subject", uris, "0a", 0, 100 * DAY_MS)


def test_a_node_uses_its_own_certificate_or_one_that_names_no_node() -> None:
    own = a_certificate("tidelog://blue/node/1")
    wanted = CertificateName("blue", parse_principal("node:1"))

    assert own_name(own, node_id=1, now_ms=0) == wanted
    assert own_name(a_certificate(), node_id=1, now_ms=0) is None


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("tidelog://blue/node/2", "is of node:2, and this is node 1; choose the directory"),
        ("tidelog://blue/user/alice", "is of user:alice, and this is node 1"),
        ("tidelog://blue/nodes/1", "it must have one"),
    ],
)
def test_a_node_uses_no_other_certificate(uri: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        own_name(a_certificate(uri), node_id=1, now_ms=0)


def test_a_node_does_not_begin_with_an_expired_certificate() -> None:
    with pytest.raises(ConfigError, match="has expired 0 days ago; issue a new one"):
        own_name(a_certificate(), node_id=1, now_ms=100 * DAY_MS)


def test_a_node_does_not_begin_with_a_certificate_of_the_future() -> None:
    with pytest.raises(ConfigError, match="is not valid yet, for 5 minutes more; check the clock"):
        own_name(a_certificate(), node_id=1, now_ms=-5 * 60_000)


def test_each_stage_is_announced_once_and_the_end_daily() -> None:
    watch = ExpiryWatch()

    told = {
        day: warning.days_left
        for day in range(60)
        for hour in (0, 12)
        if (warning := watch.due(50 * DAY_MS, now_ms=day * DAY_MS + hour * 3_600_000))
    }

    assert told == {20: 29, 43: 6, 49: 0} | {day: 49 - day for day in range(50, 60)}


def test_a_new_certificate_is_announced_again() -> None:
    watch = ExpiryWatch()
    assert watch.due(10 * DAY_MS, now_ms=0) == ExpiryWarning(10)
    assert watch.due(90 * DAY_MS, now_ms=0) is None
    assert watch.due(10 * DAY_MS, now_ms=0) == ExpiryWarning(10)


def test_the_last_day_is_an_error() -> None:
    assert [ExpiryWarning(days).severity for days in (29, 1, 0, -5)] == [
        *("warning", "warning"),
        *("error", "error"),
    ]
