"""Shares of the keys of one partition in its recent records, from a sample of its batches.

Pure: no clock, no I/O; times are seconds of a monotonic clock.
"""

from collections import Counter
from hashlib import blake2b
from math import sqrt
from typing import Final, NamedTuple, cast, final

from tidelog.broker.hot.space_saving import SpaceSaving

HALF_LIFE_S: Final = 60.0
"""Age at which a record has half the weight of a new one: so shares are those of the last
minutes."""
KEY_BYTES_MAX: Final = 128
"""Bytes of a key that are kept. Longer keys are told apart by a hash."""
_STEP_S: Final = 1.0
"""Time that counters are not scaled again."""
_STANDARD_ERRORS: Final = 2.0
"""Standard errors of the sample in an error bound: the share is within it in 95 % of all cases."""


class LongKey(NamedTuple):
    """A key of more than `KEY_BYTES_MAX` bytes."""

    begin: bytes
    """Its first bytes."""
    length: int
    """Bytes of the whole key."""
    digest: bytes
    """Hash of the whole key."""


class KeyShare(NamedTuple):
    """A key's share of the records of a partition."""

    key: bytes | LongKey
    share: float
    """From 0 to 1."""
    error: float
    """Maximum by which `share` is wrong: what the counters may have added, and two standard errors
    of the sample."""


@final
class KeyShares:
    """Shares of keys among sampled records."""

    def __init__(self, now: float) -> None:
        """Begin without records."""
        self._keys: SpaceSaving[bytes | LongKey] = SpaceSaving()
        self._total = 0.0
        """Estimated records, with and without a key."""
        self._keyless = 0.0
        self._variance = 0.0
        """Variance of `_total` by the random choice of batches. That of a key with share s is at
        most s (1 - s) times this, when each batch has a single key."""
        self._scaled_at = now

    def add(self, counts: Counter[bytes | None], probability: float, now: float) -> None:
        """Add a batch that was sampled with this probability, by the records of each key.

        The counter is used up.
        """
        self._decay(now)
        weight = 1 / probability
        record_count = counts.total()
        self._total += record_count * weight
        self._variance += (1 - probability) * (record_count * weight) ** 2
        keyless = counts.pop(None, 0)
        self._keyless += keyless * weight
        keys = cast("Counter[bytes | LongKey]", counts)
        if max(map(len, keys), default=0) > KEY_BYTES_MAX:
            keys = Counter({_kept(key): count for key, count in counts.items()})
        self._keys.add(keys, weight)

    def top(self, limit: int) -> list[KeyShare]:
        """Return the keys with the largest shares, the largest first."""
        total = self._total
        if not total:
            return []
        shares: list[KeyShare] = []
        for key, weight, error in self._keys.top(limit):
            share = min(weight / total, 1.0)
            deviation = sqrt(self._variance * share * (1 - share)) / total
            bound = error / total + _STANDARD_ERRORS * deviation
            shares.append(KeyShare(key, share, min(bound, 1.0)))
        return shares

    @property
    def keyless_share(self) -> float:
        """Share of records without a key, from 0 to 1."""
        return self._keyless / self._total if self._total else 0.0

    def _decay(self, now: float) -> None:
        elapsed = now - self._scaled_at
        if elapsed < _STEP_S:
            return
        factor = 0.5 ** (elapsed / HALF_LIFE_S)
        self._scaled_at = now
        self._total *= factor
        self._keyless *= factor
        self._variance *= factor * factor
        self._keys.scale(factor)


def _kept(key: bytes | None) -> bytes | LongKey:
    assert key is not None, "records without a key count apart"
    if len(key) <= KEY_BYTES_MAX:
        return key
    return LongKey(key[:KEY_BYTES_MAX], len(key), blake2b(key, digest_size=16).digest())
