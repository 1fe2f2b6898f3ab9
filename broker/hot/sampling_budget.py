"""Budget of CPU time for the sampling of batches: the choice is random, the cost is bounded.

Pure: no clock, no I/O. Broker code has no clock of CPU time, and a wall clock counts other
processes. So the cost of a batch is computed from its header, in microseconds of a core.
"""

from collections.abc import Callable
from typing import Final, final

from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import BatchHeader

CORE_SHARE: Final = 0.005
"""Maximum share of one core for sampling, at any load."""
COST_MAX_US: Final = 2_500.0
"""Batches above this cost are never sampled: they would delay other requests."""

_BATCH_US: Final = 12.0
_RECORD_US: Final = 0.2
_UNPACKED_US: Final = 10.0
_UNPACKED_KIB_US: Final = 0.6
OBJECT_BYTE_US: Final = 0.0025
"""Cost of a byte of headers, known when a batch was split: small objects cost most."""
_OFFER_US: Final = 0.5
"""Cost of a batch that is not sampled."""

_RATE_US: Final = CORE_SHARE * 1e6
"""Budget in microseconds a second."""
_CAPACITY_US: Final = 2 * _RATE_US
"""Budget that an idle time leaves for a burst: that of two seconds."""
_SMOOTHED_S: Final = 2.0
"""Time over which the offered cost is averaged."""


def cost_us(header: BatchHeader) -> float:
    """Return the estimated cost of a sample in microseconds of a core.

    Calibrated with CPython 3.11 on a core of an AMD EPYC, by
    `python -m tests.bench.hot_keys_cost`. The figures are rounded up by about half.
    """
    cost = _BATCH_US + _RECORD_US * header.record_count
    if header.codec != Codec.NONE:
        cost += _UNPACKED_US + _UNPACKED_KIB_US * (header.uncompressed_length / 1024)
    return cost


@final
class SamplingBudget:
    """Draws batches with the probability that the budget allows.

    The probability follows from earlier batches only, never from the batch itself. So a batch with
    probability p that stands for 1 / p batches gives unbiased estimates.

    Invariant: the cost of drawn batches is below the budget of the time so far, `_CAPACITY_US`, and
    one batch.
    """

    def __init__(self, random: Callable[[], float], now: float) -> None:
        """Draw with `random`, which returns numbers from 0 (inclusive) to 1 (exclusive)."""
        self._random = random
        self._left_us = _CAPACITY_US
        self._offered_us = 0.0
        """Smoothed cost in microseconds a second of sampling all batches."""
        self._at = now
        self.spent_us = 0.0
        """Cost of all batches so far."""

    def draw(self, cost: float, now: float) -> float:
        """Return the probability with which a batch was drawn; 0 if it was not."""
        elapsed, self._at = now - self._at, now
        left = min(self._left_us + elapsed * _RATE_US, _CAPACITY_US)
        # A burst lowers the probability before the average knows of it.
        probability = min(1.0, 2 * left / _CAPACITY_US)
        if self._offered_us > _RATE_US:
            probability *= _RATE_US / self._offered_us
        self._offered_us *= max(0.0, 1 - elapsed / _SMOOTHED_S)
        self._offered_us += cost / _SMOOTHED_S
        is_drawn = cost <= COST_MAX_US and self._random() < probability
        spent = _OFFER_US + (cost if is_drawn else 0)
        self._left_us = left - spent
        self.spent_us += spent
        return probability if is_drawn else 0.0

    def charge(self, cost: float) -> None:
        """Take a cost that was not known before."""
        self._left_us -= cost
        self.spent_us += cost
