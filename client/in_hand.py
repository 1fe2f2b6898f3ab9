"""What the application has in hand: what it was given last, and what of that is processed.

Pure: no clock, no I/O. A record counts as processed when the application asks for the next one, or
says so by a commit; a batch likewise, as a whole.
"""

from typing import final

from client.metadata import TopicPartition
from client.record import RecordBatch
from client.record_iterator import RecordCursor


@final
class InHand:
    """The batch that was handed out last, as a whole or record by record."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.cursor = RecordCursor()
        """The records of the batch, if it is handed out record by record."""
        self.is_disowned = False
        """Whether its partition was lost since: whatever becomes of it does not count."""
        self._batch: RecordBatch | None = None
        self._vouched_offset = 0
        self._taken_count = 0

    @property
    def at(self) -> TopicPartition | None:
        """The partition of what is in hand, `None` when nothing is."""
        batch = self._batch
        return None if batch is None else TopicPartition(batch.topic, batch.partition)

    @property
    def offset(self) -> int | None:
        """The first offset that is not processed, `None` when nothing is in hand."""
        batch = self._batch
        if batch is None:
            return None
        is_by_record = self.cursor.source is batch
        offset = self.cursor.last_offset if is_by_record else batch.base_offset
        return max(offset, self._vouched_offset)

    @property
    def progress(self) -> tuple[int, int]:
        """Changes whenever the application was given something."""
        return (self._taken_count, self.cursor.unread_count)

    def take(self, batch: RecordBatch) -> None:
        """Take note that a batch was handed out; what was in hand before is processed."""
        self.put_down()
        self._batch = batch
        self._taken_count += 1

    def put_down(self) -> None:
        """Take note that nothing is in hand any more."""
        self._batch = None
        self._vouched_offset = 0
        self.is_disowned = False

    def disown(self) -> None:
        """Take note that the partition was lost while it is in hand."""
        self.is_disowned = True

    def vouch(self, next_offset: int) -> None:
        """Let everything before this offset count as processed."""
        self._vouched_offset = next_offset
