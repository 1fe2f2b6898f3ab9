"""Batches of messages that were found for a receive or a peek, and the ranges that were not.

Shell: reads and opens batches of files that are in the page cache.
"""

import errno
from collections.abc import Iterable
from typing import final

import msgspec

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.partition.batch_cache import Batch
from tidelog.logstore.segments.log_slice import corrupt
from tidelog.wire.batch.record_batch import parse_header
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import CorruptRecordError, KeyUnavailableError
from tidelog.wire.messages.queues import Run


@final
class DestroyedRecordsError(Exception):
    """Records whose data key was deleted: they are deleted with it, and nothing is damaged."""

    def __init__(self, next_offset: int) -> None:
        """Name the offset behind them; they begin with the first requested record."""
        super().__init__("the data key of the records was deleted")
        self.next_offset = next_offset


class Gathered(msgspec.Struct):
    """Messages whose batches were found."""

    taken: list[Run]
    batches: list[Batch]
    """Ascending, each once."""
    size: int = 0
    """Bytes of all batches."""
    damage: CorruptRecordError | None = None
    """Error by which some were left out."""
    unreadable: list[tuple[int, int, CorruptRecordError]] = []
    """First offsets and exclusive ends of unreadable ranges, with their errors."""
    destroyed: list[tuple[int, int]] = []
    """First offsets and exclusive ends of ranges whose data key was deleted."""
    opened: dict[int, BytesLike] = {}
    """Batches that were decrypted or rewritten, by base offset: all of `batches`, or none."""
    stopped_at: int | None = None
    """Offset of the first message for which there was no room."""

    def add(self, batches: list[Batch], found: dict[int, Batch], max_bytes: int) -> int:
        """Add batches to those that were found, as many as have room; return their number."""
        for count, batch in enumerate(batches):
            if found and self.size + batch.size > max_bytes:
                return count
            found[batch.base_offset] = batch
            self.size += batch.size
        return len(batches)

    def open_all(self, partition: Partition, batches: Iterable[Batch], offset: int) -> None:
        """Open batches from the one with an offset on.

        Stop before a batch that has no records any more, or cannot be opened.

        Raises:
            DestroyedRecordsError: The data key of the first batch was deleted.
            KeyUnavailableError: It cannot be used here.
            CorruptRecordError: The seal of the first batch is broken.
            OSError: The disk failed.
        """
        for batch in batches:
            data = batch.file.read_at(batch.position, batch.size)
            header = parse_header(data)
            if header is None:
                raise corrupt(batch.base_offset, batch.next_offset)
            try:
                plain_header, plain = partition.opened(header, data)
            except (KeyUnavailableError, CorruptRecordError):
                if batch.base_offset <= offset:
                    raise
                return
            if header.record_count and not plain_header.record_count:
                if batch.base_offset <= offset:
                    raise DestroyedRecordsError(batch.next_offset)
                return
            self.opened[batch.base_offset] = plain

    def plain(self, batch: Batch) -> BytesLike:
        """Return the bytes of a batch, decrypted if it was.

        Raises:
            OSError: The disk failed.
        """
        opened = self.opened.get(batch.base_offset)
        if opened is not None:
            return opened
        data = batch.file.read_at(batch.position, batch.size)
        if len(data) < batch.size:
            raise OSError(errno.EIO, "the file is shorter than it was")
        return data

    def found_unreadable(
        self, offset: int, error: CorruptRecordError | DestroyedRecordsError
    ) -> int:
        """Record an unreadable range from an offset on; return its end."""
        if isinstance(error, DestroyedRecordsError):
            self.destroyed.append((offset, error.next_offset))
            return error.next_offset
        first, end = error.detail("offset"), error.detail("next_offset")
        assert first is not None
        assert end is not None
        self.damage = error
        self.unreadable.append((min(first, offset), end, error))
        return end
