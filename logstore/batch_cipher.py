"""The seam of encryption at rest: what a log needs of the keys of its topic.

Pure: declarations. A log never looks at a sealed payload, except in compaction.
"""

from typing import Protocol

from tidelog.wire.batch.record_batch import BatchHeader
from tidelog.wire.env.env import BytesLike


class BatchCipher(Protocol):
    """Seals and opens the batches of one log; callable from any thread."""

    def seal(
        self,
        batch: memoryview,
        header: BatchHeader,
        *,
        base_offset: int,
        leader_epoch: int,
        like: BytesLike | None = None,
    ) -> tuple[memoryview, BatchHeader]:
        """Return the batch to store for a plain one: sealed, if the topic is encrypted now.

        Args:
            batch: The plain batch. Its offset and epoch are stamped in place.
            header: Its header.
            base_offset: Offset of its first record.
            leader_epoch: Epoch in which it is, or was, appended.
            like: The sealed batch that it replaces, if any: it is sealed in any case then, under
                the same data key, so that the deletion of that key deletes what is left, too.

        Raises:
            KeyUnavailableError: The topic has no data key that can be used here.
        """
        ...

    def open(self, header: BatchHeader, batch: BytesLike) -> tuple[BatchHeader, BytesLike]:
        """Return the plain form of a stored batch, whose checksums are right.

        A batch whose data key was deleted has no records, and is returned as an empty one.

        Raises:
            KeyUnavailableError: The data key cannot be used here; nothing is damaged.
            CorruptRecordError: The seal is broken.
        """
        ...
