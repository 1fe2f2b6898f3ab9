"""Tests of the time of a queue partition after leaders whose clocks were ahead."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.queue_layer.collections.queue_clock import LEAD_LOSS, QueueClock

HOUR_MS = 3_600_000
START_MS = 1_800_000_000_000


def test_without_later_times_it_is_the_time_of_the_broker() -> None:
    clock = QueueClock()

    assert clock.time(START_MS, used_ms=0) == START_MS
    assert clock.time(START_MS + 7, used_ms=START_MS) == START_MS + 7


def test_a_lead_is_kept_and_lost_slowly() -> None:
    clock = QueueClock()
    used_ms = START_MS + HOUR_MS
    assert clock.time(START_MS, used_ms=used_ms) == used_ms

    lease_ms = 600_000
    assert abs(clock.time(START_MS + lease_ms, used_ms=used_ms) - used_ms - lease_ms) <= 5000
    now_ms = START_MS + int(HOUR_MS / LEAD_LOSS)
    assert clock.time(now_ms, used_ms=used_ms) == now_ms


@given(
    st.lists(st.tuples(st.integers(-HOUR_MS, 60_000), st.booleans()), max_size=50),
    st.integers(0, 10 * HOUR_MS),
)
def test_it_never_goes_back_and_never_stands_still(
    steps: list[tuple[int, bool]], lead_ms: int
) -> None:
    clock = QueueClock()
    now_ms, used_ms = START_MS, START_MS + lead_ms
    used_ms = clock.time(now_ms, used_ms=used_ms)
    for passed_ms, is_used in steps:
        now_ms += passed_ms
        time_ms = clock.time(now_ms, used_ms=used_ms)
        assert time_ms >= used_ms
        if is_used and passed_ms > 0:
            used_ms = time_ms
    before_ms = clock.time(now_ms, used_ms=used_ms)
    passed_ms = 100_000
    after_ms = clock.time(now_ms + passed_ms, used_ms=used_ms)
    assert passed_ms * (1 - LEAD_LOSS) - 1 <= after_ms - before_ms <= passed_ms
