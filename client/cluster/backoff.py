"""Exponential backoff with jitter for retries.

Pure: no clock, no I/O; entropy is handed in.
"""

import random
from typing import final

_DOUBLINGS_MAX = 30
"""Beyond it every sensible maximum is reached, and floats would only grow."""


@final
class Backoff:
    """Waits that double up to a maximum, with jitter.

    Each wait lies between a half and one and a half of its mean, so that clients which failed
    together do not retry together.
    """

    def __init__(self, mean: float, mean_max: float, entropy: random.Random) -> None:
        """Wait about `mean` seconds at first and about `mean_max` seconds at most."""
        self._mean = mean
        self._mean_max = mean_max
        self._entropy = entropy

    def delay(self, failure_count: int) -> float:
        """Return the seconds to wait after `failure_count` failures in a row, at least 1."""
        assert failure_count > 0, "nothing failed"
        doublings = min(failure_count - 1, _DOUBLINGS_MAX)
        mean = min(self._mean_max, self._mean * 2.0**doublings)
        return mean * (0.5 + self._entropy.random())
