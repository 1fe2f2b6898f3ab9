"""The partitions of one topic, and which of them a record goes to.

Pure: no clock, no I/O.
"""

import math
from typing import final

from tidelog.client.producer.partition_batches import PartitionBatches
from tidelog.client.producer.partitioner import next_sticky, partition_for_key

_KEYS_REMEMBERED_MAX = 65_536
"""Known keys of one topic; beyond it they are all forgotten and found again as they come."""


@final
class TopicPartitioner:
    """The partitions of one topic, and where its next record goes."""

    def __init__(self, queues: list[PartitionBatches], sticky: int) -> None:
        """Let records without a key go to the partition `sticky` first."""
        self.queues = queues
        self.sticky = sticky
        self.is_available = [True] * len(queues)
        self.batch_bytes_max = math.inf
        """What brokers take, as far as they have complained."""
        self.queue_by_key: dict[bytes | None, PartitionBatches] = {None: queues[sticky]}

    def rotate(self) -> None:
        """Let the next partition take records without a key."""
        self.sticky = next_sticky(self.sticky, self.is_available)
        self.queue_by_key[None] = self.queues[self.sticky]

    def partition_for(self, key: bytes | None) -> int | None:
        """Return where records with this key belong, `None` for the sticky partition."""
        if key is None:
            return None
        queue = self.queue_by_key.get(key)
        if queue is None:
            if len(self.queue_by_key) >= _KEYS_REMEMBERED_MAX:
                self.forget_keys()
            queue = self.queues[partition_for_key(key, len(self.queues))]
            self.queue_by_key[key] = queue
        return queue.partition

    def forget_keys(self) -> None:
        """Forget where keys belong, in place: the hot path holds the dictionary."""
        self.queue_by_key.clear()
        self.queue_by_key[None] = self.queues[self.sticky]
