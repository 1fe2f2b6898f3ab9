"""Expiry of groups that are empty, idle for long, and without lag."""

from tests.coordinator.groups.conversation import Conversation
from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.groups.expiry import CONFIRMATION_MS, GroupExpiry
from tidelog.coordinator.groups.group import Group

WEEK_MS = 7 * 86_400_000


def idle_group() -> Group:
    """Return a group with an offset, whose last member left at 1,000,000 ms."""
    talk = Conversation()
    talk.join("a")
    talk.settle()
    talk.commit("a", (0, 50))
    talk.leave("a")
    return talk.group


def is_over(
    expiry: GroupExpiry, group: Group, *, lag: int | None, wall_ms: int, now_ms: int
) -> bool:
    return expiry.is_over(group, lag_records=lag, wall_ms=wall_ms, now_ms=now_ms)


def test_a_group_without_lag_expires_a_week_after_it_is_empty() -> None:
    expiry, group = GroupExpiry(GroupConfig()), idle_group()
    end_ms = group.empty_since_ms + WEEK_MS

    assert not expiry.is_idle(group, end_ms - 1)
    assert not is_over(expiry, group, lag=0, wall_ms=end_ms - 1, now_ms=0)
    assert expiry.is_idle(group, end_ms)
    assert not is_over(expiry, group, lag=0, wall_ms=end_ms, now_ms=0)
    assert is_over(expiry, group, lag=0, wall_ms=end_ms, now_ms=CONFIRMATION_MS)


def test_a_group_with_lag_never_expires() -> None:
    expiry, group = GroupExpiry(GroupConfig()), idle_group()
    wall_ms = group.empty_since_ms + 1000 * WEEK_MS

    for lag in (1, None):
        for now_ms in (0, CONFIRMATION_MS, 10 * CONFIRMATION_MS):
            assert not is_over(expiry, group, lag=lag, wall_ms=wall_ms, now_ms=now_ms)


def test_a_group_with_settings_never_expires() -> None:
    expiry, group = GroupExpiry(GroupConfig()), idle_group()
    group.overrides = {"owner": "billing"}
    wall_ms = group.empty_since_ms + 1000 * WEEK_MS

    for now_ms in (0, CONFIRMATION_MS):
        assert not is_over(expiry, group, lag=0, wall_ms=wall_ms, now_ms=now_ms)


def test_a_group_with_members_never_expires() -> None:
    talk = Conversation()
    talk.join("a")
    expiry = GroupExpiry(GroupConfig())

    for now_ms in (0, CONFIRMATION_MS):
        assert not is_over(expiry, talk.group, lag=0, wall_ms=1 << 50, now_ms=now_ms)


def test_a_group_without_commits_expires_as_well() -> None:
    talk = Conversation()
    talk.join("a")
    talk.leave("a")
    expiry, wall_ms = GroupExpiry(GroupConfig()), talk.group.empty_since_ms + WEEK_MS

    assert not is_over(expiry, talk.group, lag=None, wall_ms=wall_ms, now_ms=0)
    assert is_over(expiry, talk.group, lag=None, wall_ms=wall_ms, now_ms=CONFIRMATION_MS)


def test_a_jump_of_the_wall_clock_expires_no_group() -> None:
    expiry, group = GroupExpiry(GroupConfig()), idle_group()
    there_ms, back_ms = group.empty_since_ms + WEEK_MS, group.empty_since_ms

    assert not is_over(expiry, group, lag=0, wall_ms=there_ms, now_ms=0)
    assert not is_over(expiry, group, lag=0, wall_ms=back_ms, now_ms=CONFIRMATION_MS - 1)
    assert not is_over(expiry, group, lag=0, wall_ms=there_ms, now_ms=CONFIRMATION_MS)
