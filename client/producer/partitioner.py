"""Partitioner: the choice of a record's partition.

Pure: no clock, no I/O.

A record with a key goes to `(murmur2(key) & 0x7fffffff) % partition_count`, with murmur2 as in
Kafka's default partitioner (32 bits, seed 0x9747b28c). So keys land where users of Kafka expect
them, topics copied from Kafka stay co-partitioned, and clients in any language agree. The hash is
part of the protocol and never changes. It costs a microsecond or two in Python, so results are
cached; CRC-32C would need no cache and was declined because no other client uses it.

Records without a key go to the sticky partition: all of them to one partition until its batch is
closed, then to the next. That fills batches and still spreads evenly.
"""

import math
import struct
from collections.abc import Sequence
from typing import cast, final

from tidelog.client.producer.partition_batches import PartitionBatches

_SEED = 0x9747_B28C
_MULTIPLIER = 0x5BD1_E995
_MASK = 0xFFFF_FFFF
_WORD = struct.Struct("<I")
_KEYS_REMEMBERED_MAX = 65_536
"""Maximum cached keys of one topic; beyond it the cache is cleared."""


def murmur2(key: bytes) -> int:
    """Return the 32-bit MurmurHash2 of `key`, unsigned, with Kafka's seed."""
    length = len(key)
    tail_at = length & ~3
    hashed = _SEED ^ length
    for (word,) in _WORD.iter_unpack(key[:tail_at]):
        word = word * _MULTIPLIER & _MASK  # noqa: PLW2901  (the algorithm's own step)
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK  # noqa: PLW2901
        hashed = (hashed * _MULTIPLIER & _MASK) ^ word
    if tail_at != length:
        hashed ^= int.from_bytes(key[tail_at:], "little")
        hashed = hashed * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key; stable across processes, versions and languages."""
    return (murmur2(key) & 0x7FFF_FFFF) % partition_count


def next_sticky(current: int, is_available: Sequence[bool]) -> int:
    """Return the next partition after `current` in the ring, available partitions preferred.

    Args:
        current: The partition of the batch that was closed.
        is_available: For each partition, whether its leader is known.
    """
    count = len(is_available)
    for step in range(1, count + 1):
        candidate = (current + step) % count
        if is_available[candidate]:
            return candidate
    return (current + 1) % count


@final
class TopicPartitioner:
    """The partitions of one topic, and the choice among them."""

    def __init__(self, queues: list[PartitionBatches], sticky: int) -> None:
        """Send records without a key to the partition `sticky` first."""
        self.queues = queues
        self.sticky = sticky
        self.is_available = [True] * len(queues)
        self.batch_size = math.inf
        """Maximum batch size that brokers accept, as far as errors have shown."""
        self.queue_by_key: dict[bytes | None, PartitionBatches] = {None: queues[sticky]}

    def rotate(self) -> None:
        """Move records without a key to the next partition."""
        self.sticky = next_sticky(self.sticky, self.is_available)
        self.queue_by_key[None] = self.queues[self.sticky]

    def partition_for(self, key: bytes | None) -> int | None:
        """Return the partition of a key, `None` for the sticky partition."""
        if key is None:
            return None
        queue = self.queue_by_key.get(key)
        return self._remember(key).partition if queue is None else queue.partition

    def queues_of(self, keys: Sequence[bytes | None]) -> list[PartitionBatches]:
        """Return the queue of each record; that of records without a key is the sticky one."""
        queues = list(map(self.queue_by_key.get, keys))
        if None in queues:
            for place, queue in enumerate(queues):
                if queue is None:
                    key = keys[place]
                    assert key is not None, "records without a key have a queue"
                    queues[place] = self.queue_by_key.get(key) or self._remember(key)
        return cast("list[PartitionBatches]", queues)

    def _remember(self, key: bytes) -> PartitionBatches:
        if len(self.queue_by_key) >= _KEYS_REMEMBERED_MAX:
            self.forget_keys()
        queue = self.queues[partition_for_key(key, len(self.queues))]
        self.queue_by_key[key] = queue
        return queue

    def forget_keys(self) -> None:
        """Clear the cached keys in place: the hot path holds the dictionary."""
        self.queue_by_key.clear()
        self.queue_by_key[None] = self.queues[self.sticky]
