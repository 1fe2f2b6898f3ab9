"""Batches of one partition from one fetch.

Pure: no clock, no I/O. A batch is used only after both of its checksums were verified, although the
broker has verified them: memory and networks flip bits too.
"""

from collections import deque
from typing import final

from tidelog.client.consumer.fetch.record import RecordBatch
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.batch_columns import ALL_COLUMNS, ColumnDecoder
from tidelog.wire.batch.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    has_valid_payload,
    parse_header,
)
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import CorruptRecordError


@final
class FetchedBatches:
    """Consecutive batches, taken one by one."""

    def __init__(
        self,
        tp: TopicPartition,
        content: BytesLike,
        high_watermark: int,
        *,
        topic_id: bytes = b"",
    ) -> None:
        """Hold `content`: a copy of a reply, or the reply itself for as long as it is valid."""
        self.at = tp
        self._topic_id = topic_id
        self.size = len(content)
        self._content = memoryview(content)
        self._high_watermark = high_watermark
        self._passed_bytes = 0
        self.passed_offset = 0
        """Offset after the last batch that was taken or skipped."""
        self.is_ascending = True
        """Whether each batch begins at the end of the one before or later; see `next_offset`."""
        self.leader_epochs: list[tuple[int, int]] = []
        """Leader epochs with the base offset of their first batch; `next_offset` fills it."""
        self._headers: deque[BatchHeader] = deque()
        """Headers of the batches to be taken, if `next_offset` found all of them right."""

    @property
    def is_used_up(self) -> bool:
        """Whether every batch was taken or skipped."""
        return self._passed_bytes == self.size

    def next_offset(self) -> int | None:
        """Return the offset after the last batch, `None` if a header or the end is corrupt."""
        assert not self._passed_bytes, "the walk begins at the first batch"
        position = 0
        next_offset = -1
        leader_epoch = -1
        self.leader_epochs = []
        headers: deque[BatchHeader] = deque()
        while position < self.size:
            header = parse_header(self._content, position)
            if header is None or header.size > self.size - position:
                return None
            headers.append(header)
            position += header.size
            if header.base_offset < next_offset:
                self.is_ascending = False
            next_offset = header.next_offset
            if header.leader_epoch != leader_epoch:
                leader_epoch = header.leader_epoch
                self.leader_epochs.append((leader_epoch, header.base_offset))
        self._headers = headers
        return next_offset if position else None

    def mismatch(self, fetch_offset: int, next_offset: int) -> str | None:
        """Return in which way the batches do not belong to a fetch, `None` if they do.

        Args:
            fetch_offset: Offset of the fetch.
            next_offset: Result of `next_offset`.
        """
        if not self.is_ascending:
            return f"batches up to offset {next_offset} are not in the order of their offsets"
        if next_offset <= fetch_offset:
            return f"records before {next_offset} were sent for offset {fetch_offset}"
        return None

    def take(
        self,
        position: int,
        *,
        uncompressed_bytes_max: int,
        decoder: ColumnDecoder = ALL_COLUMNS,
    ) -> RecordBatch | None:
        """Return the next batch with data records at `position` or later, `None` at the end.

        Args:
            position: Records below this offset are left out.
            uncompressed_bytes_max: Maximum bytes that a batch may unpack to.
            decoder: Decoder of the columns that are likely to be requested.

        Raises:
            CorruptRecordError: The next batch is corrupt.
        """
        found = self.take_whole(position)
        if found is None:
            return None
        header, batch = found
        whole = RecordBatch(
            self.at,
            header,
            batch,
            high_watermark=self._high_watermark,
            uncompressed_bytes_max=uncompressed_bytes_max,
            decoder=decoder,
            topic_id=self._topic_id,
        )
        return whole if position <= header.base_offset else whole.between(position, None)

    def take_whole(self, position: int) -> tuple[BatchHeader, memoryview] | None:
        """Return header and bytes of the next batch with data records at `position` or later.

        `None` at the end. The batch may have records below `position`.

        Raises:
            CorruptRecordError: The next batch is corrupt.
        """
        while self._passed_bytes < self.size:
            start = self._passed_bytes
            headers = self._headers
            header = headers.popleft() if headers else parse_header(self._content, start)
            end = self.size + 1 if header is None else start + header.size
            if header is None or end > self.size:
                raise self._corrupt("header", position, self._find_next_offset(start))
            batch = self._content[start:end]
            next_offset = header.next_offset
            if not has_valid_payload(header, batch):
                headers.clear()  # This one is gone, and the batch may be taken again.
                raise self._corrupt("payload", position, next_offset)
            self._passed_bytes = end
            self.passed_offset = next_offset
            if next_offset > position and not header.is_control:
                return header, batch
        return None

    def _find_next_offset(self, damaged_at: int) -> int | None:
        """Return the start of the next readable batch, `None` when this chunk has no other."""
        for start in range(damaged_at + 1, self.size - HEADER_SIZE + 1):
            header = parse_header(self._content, start)
            if header is not None:
                return header.base_offset
        return None

    def _corrupt(self, what: str, position: int, next_offset: int | None) -> CorruptRecordError:
        where = f"{self.at.topic}/{self.at.partition}"
        details = {"offset": position}
        advice = "fetch it again in case it was damaged on its way"
        if next_offset is not None and next_offset > position:
            details["next_offset"] = next_offset
            advice += f", or seek to {next_offset} to skip it"
        return CorruptRecordError(
            f"{where}: the {what} of the batch with offset {position} does not match its CRC-32C;"
            f" {advice}",
            **details,
        )
