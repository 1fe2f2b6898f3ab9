"""Budget of CPU time for the sampling of batches: the choice is random, the cost is bounded.

Pure: no clock, no I/O. Broker code has no clock of CPU time, and a wall clock counts other
processes. So the cost of a batch is computed from its header, in microseconds of a core.
"""

from collections.abc import Callable
from math import ceil, log
from typing import Final, final

from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import BatchHeader

CORE_SHARE: Final = 0.005
"""Maximum share of one core for sampling, at any load."""
COST_MAX_US: Final = 4_500.0
"""Batches above this cost are never sampled: they would delay other requests."""

_BATCH_US: Final = 80.0
_RECORD_US: Final = 0.4
_COUNTER_US: Final = 0.7
"""Further cost of each of the first records, whose keys may get a counter."""
_COUNTERS: Final = 128
_UNPACKED_US: Final = 30.0
"""Further cost of a compressed batch."""
_UNPACKED_KIB_US: Final = 1.2
OBJECT_BYTE_US: Final = 0.0025
"""Cost of a byte of headers, known when a batch was split: small objects cost most."""
_PASSED_US: Final = 0.15
"""Cost of a batch that is passed over."""

_RATE_US: Final = CORE_SHARE * 1e6
"""Budget in microseconds a second."""
_CAPACITY_US: Final = _RATE_US
"""Budget that an idle time leaves for a burst: that of one second."""
_OVERDRAWN: Final = 0.1
"""Part of the probability that is left in a burst without budget, until the average knows of it."""
_ENOUGH_PER_S: Final = 8.0
"""Samples a second that show a hot key soon; further ones are only a part of the batches."""
_PART_MAX: Final = 1 / 32
"""That part: so a broker with little load does not spend much of it on samples."""
_SMOOTHED_S: Final = 5.0
"""Time over which the offered cost is averaged."""
_MEAN_OF: Final = 16
"""Hits over which the cost of one is averaged."""


def cost_us(header: BatchHeader) -> float:
    """Return the estimated cost of a sample in microseconds of a core.

    Calibrated with CPython 3.11 on a core of an AMD EPYC, inside of a broker under load, whose
    caches hold other things. Measured there: 60 to 90 us for a batch of one record, 215 us for 100
    with LZ4, 510 us for 1,000, and 670 us for 1,000 with Zstandard. `python -m bench hot_keys`
    measures samples that follow each other, which cost a fifth to a half of it.
    """
    count = header.record_count
    cost = _BATCH_US + _RECORD_US * count + _COUNTER_US * min(count, _COUNTERS)
    if header.codec != Codec.NONE:
        cost += _UNPACKED_US + _UNPACKED_KIB_US * header.uncompressed_length / 1024
    return cost


@final
class SamplingBudget:
    """Chooses batches with the probability that the budget allows.

    Each batch is hit with a probability that follows from earlier ones, never from the batch
    itself. So a batch that was hit with probability p, and stands for 1 / p batches, gives unbiased
    estimates. The number of batches to the next hit is drawn at once: a batch in between costs
    nothing but a subtraction.
    """

    def __init__(self, random: Callable[[], float], now: float) -> None:
        """Draw with `random`, which returns numbers from 0 (inclusive) to 1 (exclusive)."""
        self._random = random
        self._left_us = _CAPACITY_US
        self._offered_us = 0.0
        """Averaged cost in microseconds a second of sampling all batches."""
        self._batches_per_s = 0.0
        """Average rate of batches."""
        self._at = now
        self._mean_us = 0.0
        """Average cost of the last hits."""
        self._probability = 1.0
        self._drawn = self.until_hit = 1
        """Batches to the next hit, which is the one that makes it 0; the caller counts down."""
        self.spent_us = 0.0
        """Cost of all batches so far."""

    def hit(self, cost: float, now: float) -> float:
        """Account for a batch that is hit, and draw the next; return the probability of this hit.

        It is 0 if the batch is too expensive to be sampled.
        """
        probability = self._probability
        if cost > COST_MAX_US:
            cost = probability = 0.0
        self._mean_us += (cost - self._mean_us) / _MEAN_OF
        self._observe(self._drawn, cost, now)
        self.charge(cost)
        self._draw()
        return probability

    def refresh(self, now: float) -> None:
        """Draw again, because there may be far less load since the last draw."""
        self._observe(self._drawn - self.until_hit, self._mean_us, now)
        self._draw()

    def charge(self, cost: float) -> None:
        """Take a cost from the budget."""
        self._left_us -= cost
        self.spent_us += cost

    def _observe(self, batch_count: int, cost: float, now: float) -> None:
        """Take batches since the last call into account, each of the same cost."""
        elapsed, self._at = now - self._at, now
        self._left_us = min(self._left_us + elapsed * _RATE_US, _CAPACITY_US)
        self.charge(batch_count * _PASSED_US)
        offered = batch_count * cost
        kept = max(0.0, 1 - elapsed / _SMOOTHED_S)
        span = max(elapsed, _SMOOTHED_S)
        self._offered_us = self._offered_us * kept + offered / span
        self._batches_per_s = self._batches_per_s * kept + batch_count / span

    def _draw(self) -> None:
        # A burst lowers the probability before the average knows of it.
        left = max(_OVERDRAWN, min(1.0, 2 * self._left_us / _CAPACITY_US))
        affordable = _RATE_US / max(self._offered_us, 1.0)
        sufficient = max(_PART_MAX, _ENOUGH_PER_S / max(self._batches_per_s, 1.0))
        probability = left * min(1.0, affordable, sufficient)
        self._probability = probability
        is_sure = probability == 1
        count = 1 if is_sure else ceil(log(1 - self._random()) / log(1 - probability))
        self._drawn = self.until_hit = max(count, 1)
