"""Lines in the log of a task of Spark that brokers throttle."""

import pytest

from tidelog.spark_connector.connection.throttling import ThrottleLog
from tidelog.wire.config.quota_rates import QuotaRate


def test_one_line_a_minute_says_how_long_and_by_which_quota(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = ThrottleLog()

    for second in range(0, 61, 2):
        log.add(QuotaRate.FETCH_BYTES, 1000, now=second)
        log.add(QuotaRate.FETCH_BYTES, 500, now=second)  # Another broker, at the same time.

    (line,) = caplog.messages
    assert line == "brokers throttled this task for 52 % of the last 60 s by fetch_bytes_per_s"
