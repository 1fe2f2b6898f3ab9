"""Damping: when targets are computed."""

from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.groups.rebalance_delay import Damping

CONFIG = GroupConfig()


def test_the_first_member_waits_for_others() -> None:
    damping = Damping(CONFIG)
    damping.began("g", 0)
    damping.joined("g", 1_000)
    damping.joined("g", 2_000)

    assert damping.due(2_999) == []
    assert damping.next_deadline_ms == 3_000
    assert damping.due(3_000) == ["g"]
    assert damping.due(99_000) == []


def test_a_change_of_a_quiet_group_is_not_waited_for() -> None:
    damping = Damping(CONFIG)

    damping.changed("g", 7_000)

    assert damping.due(7_000) == ["g"]


def test_targets_of_one_group_keep_their_distance() -> None:
    damping = Damping(CONFIG)
    damping.changed("g", 0)
    damping.changed("h", 0)
    assert damping.due(0) == ["g", "h"]

    damping.joined("g", 1_000)
    damping.changed("g", 4_999)

    assert damping.due(4_999) == []
    assert damping.due(5_000) == ["g"]


def test_who_leaves_is_waited_for_until_somebody_replaces_it() -> None:
    damping = Damping(CONFIG)
    damping.left("g", 100_000)

    assert damping.due(104_000) == []
    damping.joined("g", 104_000)

    assert damping.due(104_000) == ["g"]


def test_who_leaves_and_is_not_replaced_is_not_waited_for_any_longer() -> None:
    damping = Damping(CONFIG)
    damping.left("g", 100_000)

    assert damping.due(104_999) == []
    assert damping.due(105_000) == ["g"]


def test_each_of_several_that_left_is_waited_for() -> None:
    damping = Damping(CONFIG)
    damping.left("g", 100_000)
    damping.left("g", 101_000)
    damping.joined("g", 102_000)

    assert damping.due(105_999) == []

    damping.joined("g", 105_999)

    assert damping.due(105_999) == ["g"]


def test_no_change_waits_for_ever_while_others_leave() -> None:
    damping = Damping(CONFIG)
    due: list[int] = []
    for now_ms in range(100_000, 130_000, 1_000):
        if damping.due(now_ms):
            due.append(now_ms)
        damping.left("g", now_ms)

    assert due == [115_000]


def test_a_group_that_is_gone_is_not_due() -> None:
    damping = Damping(CONFIG)
    damping.began("g", 0)
    damping.forget("g")

    assert damping.due(10_000) == []
    assert damping.next_deadline_ms is None


def test_many_joins_at_once_wait_in_one_place() -> None:
    damping = Damping(CONFIG)
    damping.began("g", 0)
    for _ in range(1_000):
        damping.joined("g", 10)

    assert len(damping._queue) == 1  # pyright: ignore[reportPrivateUsage]
    assert damping.due(3_000) == ["g"]
