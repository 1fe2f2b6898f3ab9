"""Tests of the time on which a majority of the clocks agrees, and of its use by one broker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.paths import ROOT
from tidelog.coordinator.metadata.broker_sessions import SESSION_MS
from tidelog.coordinator.metadata.cluster_clock import (
    CLOCK_SKEW_MAX_MS,
    SLEW,
    STEP_AFTER_MS,
    STEP_ALONE_MS,
    BrokerTime,
    ClockTable,
    agreed_offset,
)

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
WALL_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("offsets", "clock_count", "expected"),
    [
        ([5], 1, 5),
        ([5], 2, None),
        ([5], 3, None),
        ([5, 9], 2, 5),
        ([9, 5], 3, 5),
        ([0, CLOCK_SKEW_MAX_MS], 2, 0),
        ([0, CLOCK_SKEW_MAX_MS + 1], 2, None),
        ([0, 9, 8 * DAY_MS], 3, 9),
        ([0, 9, -8 * DAY_MS], 3, 0),
        ([0, HOUR_MS, -HOUR_MS], 3, None),
        ([0, 1, HOUR_MS, HOUR_MS + 1], 4, None),
        ([0, 1, 2, HOUR_MS], 4, 1),
        ([], 1, None),
    ],
)
def test_a_majority_of_clocks_agrees_on_their_median(
    offsets: list[int], clock_count: int, expected: int | None
) -> None:
    assert agreed_offset(offsets, clock_count=clock_count) == expected


@given(
    honest=st.tuples(st.integers(-5000, 5000), st.integers(-5000, 5000)),
    jumps=st.lists(st.integers(-1000 * DAY_MS, 1000 * DAY_MS), min_size=1, max_size=10),
)
def test_no_jump_of_one_clock_of_three_moves_the_agreed_time_beyond_the_others(
    honest: tuple[int, int], jumps: list[int]
) -> None:
    for jump in jumps:
        agreed = agreed_offset([*honest, jump], clock_count=3)

        assert agreed is not None
        assert min(honest) <= agreed <= max(honest)


@given(
    wrong=st.integers(-1000 * DAY_MS, 1000 * DAY_MS),
    missing=st.integers(0, 2),
)
def test_one_clock_never_decides_while_others_are_silent(wrong: int, missing: int) -> None:
    agreed = agreed_offset([0, wrong][: 3 - missing], clock_count=3)

    assert agreed is None or abs(agreed) <= CLOCK_SKEW_MAX_MS


def heard_twice(clocks: ClockTable, node_id: int, wall_ms: int, *, now_ms: int) -> None:
    """Let two heartbeats of a broker arrive without delay, the second one at `now_ms`."""
    clocks.heard(node_id, wall_ms - 750, now_ms=now_ms - 750)
    clocks.heard(node_id, wall_ms, now_ms=now_ms)


def test_clocks_are_compared_by_the_arrival_of_heartbeats() -> None:
    clocks = ClockTable()
    heard_twice(clocks, 1, WALL_MS, now_ms=1000)
    heard_twice(clocks, 2, WALL_MS + 500, now_ms=1500)
    heard_twice(clocks, 3, WALL_MS + DAY_MS + 600, now_ms=1600)

    agreement = clocks.agreement({1, 2, 3}, now_ms=2000)

    assert agreement.time_ms == WALL_MS + 1000
    assert agreement.skews_ms == {1: 0, 2: 0, 3: DAY_MS}


def test_clocks_of_silent_brokers_and_of_strangers_do_not_agree() -> None:
    clocks = ClockTable()
    heard_twice(clocks, 1, WALL_MS, now_ms=750)
    heard_twice(clocks, 2, WALL_MS, now_ms=SESSION_MS - 1)
    heard_twice(clocks, 9, WALL_MS, now_ms=SESSION_MS - 1)

    assert clocks.agreement({1, 2, 3}, now_ms=SESSION_MS - 1).time_ms is not None
    assert clocks.agreement({1, 2, 3}, now_ms=SESSION_MS).time_ms is None


def test_a_delayed_heartbeat_moves_no_clock() -> None:
    """The controller was cut off: the heartbeats of the others arrive late, all at once."""
    clocks = ClockTable()
    for node_id in (1, 2, 3):
        clocks.heard(node_id, WALL_MS, now_ms=0 if node_id == 1 else 930)
    assert clocks.agreement({1, 2, 3}, now_ms=930).time_ms is None, "one heartbeat says too little"

    for node_id in (1, 2, 3):
        clocks.heard(node_id, WALL_MS + 1000, now_ms=1000)
    clocks.heard(2, WALL_MS + 1100, now_ms=2030)

    assert clocks.agreement({1, 2, 3}, now_ms=2030).time_ms == WALL_MS + 2030


def test_a_clock_that_jumps_back_is_seen_with_the_third_heartbeat() -> None:
    clocks = ClockTable()
    skews: list[int] = []
    for number in range(6):
        for node_id in (1, 2, 3):
            jump_ms = -HOUR_MS if node_id == 3 and number > 2 else 0
            clocks.heard(node_id, WALL_MS + 500 * number + jump_ms, now_ms=500 * number)
        skews.append(clocks.agreement({1, 2, 3}, now_ms=500 * number).skews_ms.get(3, 0))

    assert skews == [0, 0, 0, 0, 0, -HOUR_MS]


def started(lead_ms: int = 0) -> BrokerTime:
    """Return a broker's time that has been agreed on, at monotonic time 0."""
    time = BrokerTime(wall_ms=WALL_MS + lead_ms, now_ms=0)
    time.answered(WALL_MS, sent_ms=0, now_ms=0)
    return time


@pytest.mark.parametrize("lead_ms", [8 * DAY_MS, -8 * DAY_MS, HOUR_MS, 0])
def test_the_first_agreement_replaces_the_wall_clock_at_once(lead_ms: int) -> None:
    time = started(lead_ms)

    assert time.time(now_ms=7) == time.steady(now_ms=7) == WALL_MS + 7


def test_without_agreement_time_is_elapsed_time_and_nothing_is_deleted() -> None:
    time = BrokerTime(wall_ms=WALL_MS, now_ms=0)
    time.answered(None, sent_ms=0, now_ms=0)
    time.answered(WALL_MS + HOUR_MS, sent_ms=0, now_ms=5000)  # It took too long.

    assert time.time(now_ms=6000) == time.steady(now_ms=6000) == WALL_MS + 6000
    assert time.skew(wall_ms=WALL_MS + 6000, now_ms=6000) is None
    assert time.deletion_time(wall_ms=WALL_MS + 6000, now_ms=6000) is None


def test_a_broker_that_starts_without_agreement_counts_from_the_time_of_the_controller() -> None:
    time = BrokerTime(wall_ms=WALL_MS + 8 * DAY_MS, now_ms=0)
    time.answered(None, sent_ms=0, now_ms=0, controller_ms=WALL_MS)
    time.answered(None, sent_ms=0, now_ms=0, controller_ms=WALL_MS + DAY_MS)  # Not twice.

    assert time.time(now_ms=7) == time.steady(now_ms=7) == WALL_MS + 7
    assert time.deletion_time(wall_ms=WALL_MS, now_ms=0) is None
    assert started().is_known


@pytest.mark.parametrize(("took_ms", "counts"), [(4000, True), (4001, False)])
def test_an_answer_after_more_than_four_seconds_says_nothing(took_ms: int, *, counts: bool) -> None:
    time = BrokerTime(wall_ms=WALL_MS + DAY_MS, now_ms=0)

    time.answered(WALL_MS, sent_ms=100, now_ms=100 + took_ms)

    assert time.is_known is counts
    assert time.is_agreed(now_ms=100 + took_ms) is counts
    assert (time.time(now_ms=100 + took_ms) < WALL_MS + HOUR_MS) is counts


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("is_alone", [True, False])
def test_the_steady_time_steps_only_if_it_is_farther_than_a_limit(
    sign: int, *, is_alone: bool
) -> None:
    """Two hours for a broker alone, and the maximum skew with others."""
    limit_ms = 2 * HOUR_MS if is_alone else CLOCK_SKEW_MAX_MS
    has_stepped: list[bool] = []
    for beyond_ms in (0, 4001):  # The steady time comes closer by 3 s in ten minutes.
        time = BrokerTime(wall_ms=WALL_MS, now_ms=0)
        time.alone(wall_ms=WALL_MS, now_ms=0)
        for now_ms in range(0, STEP_AFTER_MS + 1, 1000):
            agreed_ms = WALL_MS + now_ms + sign * (limit_ms + beyond_ms)
            if is_alone:
                time.alone(wall_ms=agreed_ms, now_ms=now_ms)
            else:
                time.answered(agreed_ms, sent_ms=now_ms, now_ms=now_ms)
        distance_ms = abs(time.steady(now_ms=STEP_AFTER_MS) - WALL_MS - STEP_AFTER_MS)
        has_stepped.append(distance_ms > 2 * STEP_AFTER_MS * SLEW)

    assert has_stepped == [False, True]


def test_the_documented_times_of_clocks_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "queues.md").read_text(encoding="utf-8")

    assert f"an error of one second disappears within {1 / SLEW:g} s" in page
    assert "It follows a jump of up to two hours at the same rate" in page
    assert "after a larger jump that lasts for ten minutes" in page
    assert (STEP_ALONE_MS, STEP_AFTER_MS) == (2 * HOUR_MS, HOUR_MS // 6)


def test_an_agreement_decides_about_deletion_for_a_minute() -> None:
    time = started()

    assert time.deletion_time(wall_ms=WALL_MS + 60_000, now_ms=60_000) == WALL_MS + 60_000
    assert time.deletion_time(wall_ms=WALL_MS + 60_001, now_ms=60_001) is None


@pytest.mark.parametrize("sign", [1, -1])
def test_a_broker_with_a_wrong_clock_deletes_nothing_by_time(sign: int) -> None:
    time = started()

    within = WALL_MS + sign * CLOCK_SKEW_MAX_MS
    assert time.deletion_time(wall_ms=within, now_ms=0) == WALL_MS
    assert time.deletion_time(wall_ms=within + sign, now_ms=0) is None
    assert time.skew(wall_ms=within, now_ms=0) == sign * CLOCK_SKEW_MAX_MS


def test_answers_move_the_time_only_beyond_their_uncertainty() -> None:
    time = started()

    time.answered(WALL_MS + 900, sent_ms=900, now_ms=1100)  # Between 900 and 1100: it fits.
    assert time.time(now_ms=1100) == WALL_MS + 1100
    time.answered(WALL_MS + 2500, sent_ms=2000, now_ms=2100)
    assert time.time(now_ms=2100) == WALL_MS + 2500
    time.answered(WALL_MS + 2700, sent_ms=3000, now_ms=3100)
    assert time.time(now_ms=3100) == WALL_MS + 2800


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_the_steady_time_of_a_broker_alone_follows_a_jump_slowly(jump_ms: int) -> None:
    time = BrokerTime(wall_ms=WALL_MS, now_ms=0)
    time.alone(wall_ms=WALL_MS, now_ms=0)
    time.alone(wall_ms=WALL_MS + jump_ms, now_ms=0)
    lease_ms = 600_000

    assert time.time(now_ms=0) == WALL_MS + jump_ms
    assert abs(time.steady(now_ms=lease_ms) - WALL_MS - lease_ms) <= 5000
    end_ms = int(HOUR_MS / SLEW)
    assert abs(time.steady(now_ms=end_ms) - WALL_MS - jump_ms - end_ms) <= 1


def test_a_broker_alone_deletes_by_the_older_one_of_its_times() -> None:
    time = BrokerTime(wall_ms=WALL_MS, now_ms=0)
    time.alone(wall_ms=WALL_MS, now_ms=0)

    time.alone(wall_ms=WALL_MS + 8 * DAY_MS, now_ms=1000)
    assert time.deletion_time(wall_ms=WALL_MS + 8 * DAY_MS, now_ms=1000) == WALL_MS + 1000
    assert time.skew(wall_ms=WALL_MS + 8 * DAY_MS, now_ms=1000) == 8 * DAY_MS - 1000
    time.alone(wall_ms=WALL_MS - DAY_MS, now_ms=2000)
    assert time.deletion_time(wall_ms=WALL_MS - DAY_MS, now_ms=2000) == WALL_MS - DAY_MS


@pytest.mark.parametrize("is_back_in_time", [True, False])
def test_the_steady_time_steps_to_a_far_time_that_lasts(*, is_back_in_time: bool) -> None:
    time = BrokerTime(wall_ms=WALL_MS, now_ms=0)
    time.alone(wall_ms=WALL_MS, now_ms=0)
    for now_ms in range(0, STEP_AFTER_MS, 60_000):
        time.alone(wall_ms=WALL_MS + now_ms + 8 * DAY_MS, now_ms=now_ms)
    steady_ms = time.steady(now_ms=STEP_AFTER_MS)
    assert abs(steady_ms - WALL_MS - STEP_AFTER_MS) <= STEP_AFTER_MS * SLEW

    jump_ms = 0 if is_back_in_time else 8 * DAY_MS
    time.alone(wall_ms=WALL_MS + STEP_AFTER_MS + jump_ms, now_ms=STEP_AFTER_MS)

    now_ms = STEP_AFTER_MS
    has_stepped = time.steady(now_ms=now_ms) == WALL_MS + now_ms + 8 * DAY_MS
    assert has_stepped is not is_back_in_time


def test_the_steady_time_returns_to_the_agreed_time_after_the_machine_slept() -> None:
    time = started()  # Monotonic time stood still for an hour.
    for now_ms in range(0, STEP_AFTER_MS + 1, 2000):
        time.answered(WALL_MS + HOUR_MS + now_ms, sent_ms=now_ms, now_ms=now_ms)

    assert time.steady(now_ms=STEP_AFTER_MS) == WALL_MS + HOUR_MS + STEP_AFTER_MS


@given(st.lists(st.tuples(st.integers(0, 60_000), st.integers(-HOUR_MS, HOUR_MS)), max_size=50))
def test_jumps_of_an_hour_never_change_the_rate_of_the_steady_time_by_more_than_the_slew(
    steps: list[tuple[int, int]],
) -> None:
    time = BrokerTime(wall_ms=WALL_MS, now_ms=0)
    time.alone(wall_ms=WALL_MS, now_ms=0)
    now_ms = before_ms = 0
    for passed_ms, jump_ms in steps:
        now_ms += passed_ms
        time.alone(wall_ms=WALL_MS + now_ms + jump_ms, now_ms=now_ms)
        steady_ms = time.steady(now_ms=now_ms) - WALL_MS
        assert abs(steady_ms - before_ms - passed_ms) <= passed_ms * SLEW + 1
        before_ms = steady_ms
