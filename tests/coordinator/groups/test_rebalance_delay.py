"""The delay of target assignments."""

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


def test_a_change_of_an_idle_group_is_due_at_once() -> None:
    delay = RebalanceDelay(CONFIG)

    delay.changed("g", 7_000)

    assert delay.due(7_000) == ["g"]


def test_targets_of_one_group_are_an_assignment_interval_apart() -> None:
    delay = RebalanceDelay(CONFIG)
    delay.changed("g", 0)
    delay.changed("h", 0)
    assert delay.due(0) == ["g", "h"]

    delay.joined("g", 1_000)
    delay.changed("g", 4_999)

    assert delay.due(4_999) == []
    assert delay.due(5_000) == ["g"]


def test_a_leaving_member_delays_the_target_until_it_is_replaced() -> None:
    delay = RebalanceDelay(CONFIG)
    delay.left("g", 100_000)

    assert delay.due(104_000) == []
    delay.joined("g", 104_000)

    assert delay.due(104_000) == ["g"]


def test_the_replacement_delay_ends_without_a_replacement() -> None:
    delay = RebalanceDelay(CONFIG)
    delay.left("g", 100_000)

    assert delay.due(104_999) == []
    assert delay.due(105_000) == ["g"]


def test_every_leaving_member_waits_for_a_replacement() -> None:
    delay = RebalanceDelay(CONFIG)
    delay.left("g", 100_000)
    delay.left("g", 101_000)
    delay.joined("g", 102_000)

    assert delay.due(105_999) == []

    delay.joined("g", 105_999)

    assert delay.due(105_999) == ["g"]


def test_the_assignment_delay_is_bounded_while_members_leave() -> None:
    delay = RebalanceDelay(CONFIG)
    due: list[int] = []
    for now_ms in range(100_000, 130_000, 1_000):
        if delay.due(now_ms):
            due.append(now_ms)
        delay.left("g", now_ms)

    assert due == [115_000]


def test_a_removed_group_is_not_due() -> None:
    delay = RebalanceDelay(CONFIG)
    delay.began("g", 0)
    delay.forget("g")

    assert delay.due(10_000) == []
    assert delay.next_deadline_ms is None


def test_many_concurrent_joins_have_one_queue_entry() -> None:
    delay = RebalanceDelay(CONFIG)
    delay.began("g", 0)
    for _ in range(1_000):
        delay.joined("g", 10)

    assert len(delay._queue) == 1  # pyright: ignore[reportPrivateUsage]
    assert delay.due(3_000) == ["g"]
