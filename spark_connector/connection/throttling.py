"""Throttling of a task of Spark by quotas: its time, and lines in the log.

Shell: logs.
"""

import logging
from typing import Final, final

from tidelog.wire.config.quota_rates import quota_of

_log = logging.getLogger(__name__)

_INTERVAL_S: Final = 60.0


@final
class ThrottleLog:
    """Throttled time of one process, in one line a minute."""

    def __init__(self) -> None:
        """Start at zero."""
        self._since: float | None = None
        """Start of the minute that the next line is about."""
        self._until = float("-inf")
        self._seconds: dict[int, float] = {}

    def add(self, rate: int, ms: int, *, now: float) -> None:
        """Count the time until a broker reads on, by the code of a rate; log a minute that is over.

        Times at several brokers count once. `now` is in monotonic seconds.
        """
        if self._since is None:
            self._since = now
        until = now + ms / 1000
        self._seconds[rate] = self._seconds.get(rate, 0.0) + max(0.0, until - max(now, self._until))
        self._until = max(self._until, until)
        elapsed_s = now - self._since
        if elapsed_s >= _INTERVAL_S:
            percent = min(100, max(1, round(100 * sum(self._seconds.values()) / elapsed_s)))
            longest = max(self._seconds, key=self._seconds.__getitem__)
            _log.warning(
                "brokers throttled this task for %d %% of the last %.0f s by %s",
                percent,
                elapsed_s,
                quota_of(longest),
            )
            self._since, self._seconds = now, {}


THROTTLE_LOG: Final = ThrottleLog()
"""The log of this process."""
