"""Limits of a log are consistent, or refused."""

import pytest

from tidelog.logstore.config import SEGMENT_BYTES_LIMIT, KiB, LogConfig, MiB
from tidelog.wire.errors import PartitionFullError

DAY_MS = 24 * 3600 * 1000


def test_the_defaults_are_legal() -> None:
    config = LogConfig()

    assert config.roll_after_ms == config.segment_ms


@pytest.mark.parametrize(
    ("retention_ms", "roll_after_ms"), [(None, DAY_MS), (2 * DAY_MS, DAY_MS), (1000, 1000)]
)
def test_a_segment_is_rolled_early_enough_for_retention(
    retention_ms: int | None, roll_after_ms: int
) -> None:
    assert LogConfig(segment_ms=DAY_MS, retention_ms=retention_ms).roll_after_ms == roll_after_ms


@pytest.mark.parametrize(
    ("retention_bytes", "roll_bytes"),
    [
        (None, 256 * MiB),
        (1 << 40, 256 * MiB),
        (1024 * MiB, 256 * MiB),
        (100 * MiB, 25 * MiB),
        (1 * MiB, 256 * KiB),
        (1000, 256 * KiB),
        (0, 256 * KiB),
    ],
)
def test_a_segment_is_rolled_at_a_quarter_of_the_bytes_retained(
    retention_bytes: int | None, roll_bytes: int
) -> None:
    assert LogConfig(retention_bytes=retention_bytes).roll_bytes == roll_bytes
    assert LogConfig(retention_bytes=retention_bytes, segment_bytes=4096).roll_bytes == 4096


@pytest.mark.parametrize(
    "setting",
    [
        {"segment_bytes": 0},
        {"segment_bytes": SEGMENT_BYTES_LIMIT + 1},
        {"index_interval_bytes": 0},
        {"segment_bytes": 1000, "index_interval_bytes": 1001},
        {"max_message_bytes": SEGMENT_BYTES_LIMIT + 1},
        {"retention_ms": 0},
        {"retention_bytes": -1},
        {"max_partition_bytes": 0},
    ],
    ids=str,
)
def test_contradicting_limits_are_an_assertion_error(
    setting: dict[str, int],
) -> None:
    with pytest.raises(AssertionError):
        LogConfig(**setting)


def test_a_log_may_grow_to_its_limit_and_not_beyond() -> None:
    config = LogConfig(max_partition_bytes=1000)

    config.require_room(100, 900)
    LogConfig().require_room(1 << 40, 1 << 40)

    with pytest.raises(PartitionFullError, match=r"has 901 bytes, .* limit of 1000 bytes"):
        config.require_room(100, 901)
