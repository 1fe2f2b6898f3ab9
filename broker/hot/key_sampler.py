"""Sampler of the keys of appended batches.

Pure: no I/O; times come from a function. A broker never looks into all batches: the budget chooses
some, and of these only the column of keys becomes objects
(`docs/decisions/0019-column-projection.md`).
"""

from collections import Counter
from collections.abc import Callable, Container, Hashable
from typing import Final, Generic, TypeVar, final

from tidelog.broker.hot.key_shares import KeyShares
from tidelog.broker.hot.sampling_budget import OBJECT_BYTE_US, SamplingBudget, cost_us
from tidelog.wire.batch.batch_columns import PackedColumns
from tidelog.wire.batch.record_batch import BatchHeader
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import WireFormatError

PARTITIONS_MAX: Final = 1_000
"""Partitions whose shares are kept, those that were sampled last: about 20 KiB each at most."""

Place = TypeVar("Place", bound=Hashable)


@final
class KeySampler(Generic[Place]):
    """Shares of the keys of partitions."""

    def __init__(self, random: Callable[[], float], clock: Callable[[], float]) -> None:
        """Choose batches with `random`, which returns numbers from 0 to 1 (exclusive).

        `clock` returns seconds of a monotonic clock.
        """
        self.budget = SamplingBudget(random, clock())
        self._clock = clock
        self._shares: dict[Place, KeyShares] = {}
        """By partition, the one that was sampled last at the end."""

    def offer(self, place: Place, header: BatchHeader, batch: BytesLike) -> None:
        """Take the keys of a batch of a partition into account, if the budget has it sampled."""
        budget = self.budget
        budget.until_hit -= 1
        if budget.until_hit:
            return
        now = self._clock()
        probability = budget.hit(cost_us(header), now)
        if not probability:
            return
        try:
            columns = PackedColumns(
                header, batch, uncompressed_length_max=header.uncompressed_length
            )
            keys = columns.column("keys")
        except WireFormatError:
            return  # Only readers check payloads.
        budget.charge((columns.size_of("headers") or 0) * OBJECT_BYTE_US)
        counts: Counter[bytes | None] = Counter(keys or {None: header.record_count})
        shares = self._shares.pop(place, None) or KeyShares(now)
        self._shares[place] = shares
        if len(self._shares) > PARTITIONS_MAX:
            del self._shares[next(iter(self._shares))]
        shares.add(counts, probability, now)

    def refresh(self) -> None:
        """Adapt to the present load; to be called every some seconds."""
        self.budget.refresh(self._clock())

    def keep(self, places: Container[Place]) -> None:
        """Drop the shares of all other partitions."""
        self._shares = {place: each for place, each in self._shares.items() if place in places}

    def shares(self, place: Place) -> KeyShares | None:
        """Return the shares of the keys of a partition; `None` if none of it was sampled."""
        return self._shares.get(place)
