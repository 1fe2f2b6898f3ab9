"""RebalanceDelay: when targets are computed."""

from tidelog.coordinator.groups.config import GroupConfig
from tidelog.coordinator.groups.rebalance_delay import RebalanceDelay

CONFIG = GroupConfig()


def test_the_first_member_waits_for_others() -> None:
    delay = RebalanceDelay(CONFIG)
    delay.began("g", 0)
    delay.joined("g", 1_000)
    delay.joined("g", 2_000)

    assert delay.due(2_999) == []
    assert delay.next_deadline_ms == 3_000
    assert delay.due(3_000) == ["g"]
    assert delay.due(99_000) == []


def test_a_change_of_a_quiet_group_is_not_waited_for() -> None:
    delay = RebalanceDelay(CONFIG)

    delay.changed("g", 7_000)

    assert delay.due(7_000) == ["g"]


def test_targets_of_one_group_keep_their_distance() -> None:
    delay = RebalanceDelay(CONFIG)
    delay.changed("g", 0)
    delay.changed("h", 0)
    assert delay.due(0) == ["g", "h"]

    delay.joined("g", 1_000)
    delay.changed("g", 4_999)

    assert delay.due(4_999) == []
    assert delay.due(5_000) == ["g"]


def test_who_leaves_is_waited_for_until_somebody_replaces_it() -> None:
    delay = RebalanceDelay(CONFIG)
    delay.left("g", 100_000)

    assert delay.due(104_000) == []
    delay.joined("g", 104_000)

    assert delay.due(104_000) == ["g"]


def test_who_leaves_and_is_not_replaced_is_not_waited_for_any_longer() -> None:
    delay = RebalanceDelay(CONFIG)
    delay.left("g", 100_000)

    assert delay.due(104_999) == []
    assert delay.due(105_000) == ["g"]


def test_each_of_several_that_left_is_waited_for() -> None:
    delay = RebalanceDelay(CONFIG)
    delay.left("g", 100_000)
    delay.left("g", 101_000)
    delay.joined("g", 102_000)

    assert delay.due(105_999) == []

    delay.joined("g", 105_999)

    assert delay.due(105_999) == ["g"]


def test_no_change_waits_for_ever_while_others_leave() -> None:
    delay = RebalanceDelay(CONFIG)
    due: list[int] = []
    for now_ms in range(100_000, 130_000, 1_000):
        if delay.due(now_ms):
            due.append(now_ms)
        delay.left("g", now_ms)

    assert due == [115_000]


def test_a_group_that_is_gone_is_not_due() -> None:
    delay = RebalanceDelay(CONFIG)
    delay.began("g", 0)
    delay.forget("g")

    assert delay.due(10_000) == []
    assert delay.next_deadline_ms is None


def test_many_joins_at_once_wait_in_one_place() -> None:
    delay = RebalanceDelay(CONFIG)
    delay.began("g", 0)
    for _ in range(1_000):
        delay.joined("g", 10)

    assert len(delay._queue) == 1  # pyright: ignore[reportPrivateUsage]
    assert delay.due(3_000) == ["g"]
