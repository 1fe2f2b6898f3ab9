"""Fair order: noisy groups do not starve others. Numbers: docs/queue-statements.md."""

from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.queue_layer.driver import SECOND, Driver
from tests.queue_layer.order_model import RECORDS, Change, changes, check_order, chosen
from tidelog.queue_layer.ordering.delivery_order import GroupSize, RecordFields
from tidelog.queue_layer.ordering.fair_order import NOISY_IN_FLIGHT_MIN, SET_ASIDE_MAX, FairOrder
from tidelog.wire.config.queue_config import QueueConfig

FAIR = QueueConfig(fair_delivery=True)


def order(groups: str) -> FairOrder:
    """Return an order of messages, one for each letter; `.` is a message without a group."""
    made = FairOrder(0)
    made.on_records(0, len(groups), fields(groups))
    return made


def fields(groups: str) -> list[RecordFields]:
    return [RecordFields(group=None if name == "." else name.encode()) for name in groups]


def fair(groups: str) -> Driver:
    driver = Driver(FAIR, make_order=FairOrder)
    driver.came(len(groups), fields=fields(groups))
    return driver


@pytest.mark.statement("b90")
def test_a_noisy_group_waits_behind_quiet_ones() -> None:
    """Statement 90."""
    made = order("a" * 100 + "bc")
    made.on_invisible(0, NOISY_IN_FLIGHT_MIN, is_in_flight=True)

    assert chosen(made, 4) == [100, 101, 30, 31]


@pytest.mark.statement("b90")
def test_a_group_with_few_in_flight_messages_is_not_noisy() -> None:
    """Statement 90: 30 at least."""
    made = order("a" * 100 + "bc")
    made.on_invisible(0, NOISY_IN_FLIGHT_MIN - 1, is_in_flight=True)

    assert chosen(made, 4) == [29, 30, 31, 32]


@pytest.mark.statement("b90")
def test_a_group_with_a_small_share_of_in_flight_messages_is_not_noisy() -> None:
    """Statement 90: more than a tenth."""
    made = order("." * 270 + "a" * 100 + "b")
    made.on_invisible(0, 300, is_in_flight=True)
    assert chosen(made, 1) == [300]

    made.on_deleted(0, 1)

    assert chosen(made, 1) == [370]


@pytest.mark.statement("b90")
def test_the_noisy_group_with_the_fewest_in_flight_messages_comes_first() -> None:
    """Statement 90."""
    made = order("a" * 60 + "b" * 60)
    made.on_invisible(0, 50, is_in_flight=True)
    made.on_invisible(60, 100, is_in_flight=True)

    assert chosen(made, 3) == [100, 101, 102]


@pytest.mark.statement("b90")
def test_a_group_is_quiet_again_when_its_messages_are_settled() -> None:
    """Statement 90."""
    made = order("a" * 100 + "bb")
    made.on_invisible(0, 40, is_in_flight=True)
    assert chosen(made, 3) == [100, 101, 40]

    made.on_deleted(0, 20)

    assert chosen(made, 4) == [40, 41, 100, 101]


def test_messages_without_a_group_are_never_noisy() -> None:
    made = order("." * 100 + "b")
    made.on_invisible(0, 50, is_in_flight=True)

    assert chosen(made, 2) == [50, 51]


def test_messages_of_a_noisy_group_are_delivered_when_no_others_are_left() -> None:
    driver = fair("a" * 100)

    assert [len(driver.offsets(40)) for _ in range(4)] == [40, 40, 20, 0]


def test_a_noisy_backlog_delays_a_quiet_message_by_a_few_receives_only() -> None:
    backlog = 5 * SET_ASIDE_MAX
    driver = fair("a" * backlog + "b")
    for _ in range(4):
        driver.offsets(10)
    receives = 0

    while backlog not in driver.offsets(1):
        receives += 1

    assert receives <= backlog / SET_ASIDE_MAX


def test_the_fair_order_drops_done_messages() -> None:
    driver = fair("ab" * 10_000)
    while (received := driver.take(1000)).runs:
        driver.delete(received)
    made = driver.queue.state.order  # pyright: ignore[reportPrivateUsage]

    assert isinstance(made, FairOrder)
    assert made.known_count < 10_000
    assert driver.counts() == {}


def test_no_message_is_blocked() -> None:
    assert list(order("ab").blocked(0, 2)) == []


def finished(steps: Generator[None, None, list[GroupSize]]) -> tuple[list[GroupSize], int]:
    """Take all steps; return the largest groups, and the number of steps."""
    count = 0
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as stop:
            found: list[GroupSize] = stop.value
            return found, count


def test_the_largest_groups_are_counted_in_steps() -> None:
    made = order("." * 50 + "a" * 5 + "b" * 30_000 + "c" * 9)
    made.on_invisible(50, 52, is_in_flight=True)
    made.on_deleted(50, 51)
    made.on_deleted(60, 70)

    (first, second, third), step_count = finished(made.largest_groups(3))

    assert [each[:2] for each in (first, second, third)] == [(29_990, 0), (9, 0), (4, 1)]
    assert 55 <= first.offset < 30_055 <= second.offset
    assert step_count > 4


def test_messages_that_are_deleted_between_steps_may_count() -> None:
    made = order("a" * 25_000)
    steps = made.largest_groups(1)
    next(steps)
    made.on_deleted(0, 24_000)

    found, _ = finished(steps)

    assert found == [(4_000, 0, 0)]


@given(
    st.lists(st.sampled_from(".ab"), min_size=RECORDS, max_size=RECORDS),
    changes,
    st.integers(1, 30),
)
def test_all_visible_messages_are_offered_once(
    groups: list[str], told: list[Change], limit: int
) -> None:
    check_order(FairOrder(0), fields("".join(groups)), told, limit=limit)


def test_all_messages_are_redelivered_after_their_visibility_timeout() -> None:
    driver = fair("a" * 90 + "b" * 10)
    first = [offset for _ in range(10) for offset in driver.offsets(10)]
    driver.wait(30 * SECOND)

    second = [offset for _ in range(10) for offset in driver.offsets(10)]

    assert sorted(first) == sorted(second) == list(range(100))
