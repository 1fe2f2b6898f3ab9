"""Lag, in records and in time."""

import pytest

from tidelog.coordinator.groups.lag import Lag, PartitionLog, group_lag, partition_lag

NOW_MS = 100_000


@pytest.mark.parametrize(
    ("offset", "log", "lag"),
    [
        (40, PartitionLog(10, 100, 70_000), Lag(60, 30_000)),
        (100, PartitionLog(10, 100), Lag(0, 0)),
        (0, PartitionLog(0, 0), Lag(0, 0)),
        (40, PartitionLog(10, 100), Lag(60, None)),
        (40, PartitionLog(10, 100, NOW_MS + 5_000), Lag(60, 0)),
        (None, PartitionLog(10, 100), Lag(None, None)),
        # Retention was faster than the group.
        (4, PartitionLog(10, 100, 70_000), Lag(90, 30_000, 6)),
        (4, PartitionLog(10, 10), Lag(0, 0, 6)),
        # Committed by a leader that knew more than the high watermark of now.
        (101, PartitionLog(10, 100), Lag(0, 0)),
    ],
)
def test_lag_is_what_is_left_to_read(offset: int | None, log: PartitionLog, lag: Lag) -> None:
    assert partition_lag(offset, log, NOW_MS) == lag


def test_the_lag_of_a_group_is_all_records_and_the_longest_time() -> None:
    lags = [Lag(10, 5_000), Lag(5, None, 2), Lag(None, None), Lag(0, 0, 1)]

    assert group_lag(lags) == Lag(15, 5_000, 3)


def test_what_is_known_nowhere_is_not_known() -> None:
    assert group_lag([Lag(None, None)]) == Lag(None, None)
    assert group_lag([]) == Lag(None, None)
