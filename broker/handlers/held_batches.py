"""Batches without acknowledgement (`acks=0`) for logs that are being opened.

Their clients see no refusal, so they would never repeat them. The first batch for a partition
without files has them created; it is appended when the partition is led.
"""

from collections.abc import Callable
from typing import Final, Protocol, final

import trio

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.requests.purgatory import Purgatory
from tidelog.coordinator.metadata.broker_delta import Key

HELD_S: Final = 30.0
"""Time in seconds for which a batch is held; then it is lost, as for a partition without leader."""
HELD_BYTES_MAX: Final = 32 << 20
"""Bytes of all held batches; more are lost. One partition gets at most as many as it leaves free,
so that a log that cannot be opened does not cost others their first records."""
_BATCH_BYTES: Final = 1_500
"""Bytes of a held batch besides its own, of its request and the objects here."""

Append = Callable[[memoryview], None]
"""Appends one batch to its partition."""


class Opening(Protocol):
    """Knows the partitions that are being opened."""

    listeners: list[Callable[[Partition], None]]
    """Called for each partition that this broker begins to lead."""

    def is_opening(self, topic_id: bytes, number: int) -> bool:
        """Return whether this broker leads a partition as soon as its log is open."""
        ...


@final
class _HeldBatch:
    """A batch that waits; its deadline is in the purgatory."""

    def __init__(self, held: "HeldBatches", key: Key, batch: bytearray, *, append: Append) -> None:
        self._held = held
        self.key = key
        self.batch = batch
        self.append = append

    def expire(self) -> None:
        """See `broker.requests.purgatory.Waiter`."""
        self._held.drop(self)

    def close(self) -> None:
        """Keep waiting: the log may still be opened."""


@final
class HeldBatches:
    """The held batches of a broker, in the order of their arrival."""

    def __init__(self, partitions: Opening, purgatory: Purgatory) -> None:
        """Hold batches for `partitions`; `purgatory` ends their time."""
        self._partitions = partitions
        self._purgatory = purgatory
        self._waiting: dict[Key, dict[_HeldBatch, None]] = {}
        self._bytes_of: dict[Key, int] = {}
        """Bytes of the held batches of each partition in `_waiting`."""
        self.size_bytes = 0
        """Bytes of all held batches."""
        partitions.listeners.append(self._append_all)

    def hold(self, key: Key, batch: memoryview, append: Append) -> bool:
        """Keep a refused batch if its log is being opened; return whether it is kept.

        Args:
            key: The partition.
            batch: The batch; it is copied.
            append: Appends it once this broker leads the partition.
        """
        size = len(batch) + _BATCH_BYTES
        size_of_key = self._bytes_of.get(key, 0) + size
        has_room = size_of_key <= HELD_BYTES_MAX - self.size_bytes
        if not (has_room and self._partitions.is_opening(*key)):
            return False
        held = _HeldBatch(self, key, bytearray(batch), append=append)
        self._waiting.setdefault(key, {})[held] = None
        self._bytes_of[key] = size_of_key
        self.size_bytes += size
        self._purgatory.add(held, trio.current_time() + HELD_S)
        return True

    def drop(self, held: _HeldBatch) -> None:
        """Forget a batch."""
        batches, size = self._waiting[held.key], len(held.batch) + _BATCH_BYTES
        del batches[held]
        self._bytes_of[held.key] -= size
        self.size_bytes -= size
        if not batches:
            del self._waiting[held.key], self._bytes_of[held.key]

    def _append_all(self, partition: Partition) -> None:
        for held in list(self._waiting.get(partition.key, ())):
            self.drop(held)
            self._purgatory.done(held)
            held.append(memoryview(held.batch))
