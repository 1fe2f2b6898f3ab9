"""Reader of large messages, which joins their chunks.

Shell: fetches chunks by the offsets that the message names. Chunks may lie before the range of the
task, so the task cannot collect them as it reads. Memory: one message beside the rows of one Arrow
batch.
"""

import io
from collections.abc import Iterator
from typing import final

from tidelog.client.consumer.fetch.record import RecordBatch
from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.arrow.record_batch_builder import BYTES_MAX
from tidelog.spark_connector.arrow.record_columns import RecordColumns, only
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.read.data_loss import DataLossError, lost
from tidelog.spark_connector.read.fetcher import RangeFetcher
from tidelog.spark_connector.read.offset_ranges import Slice
from tidelog.spark_connector.read.read_options import ReadOptions
from tidelog.wire.batch.large_messages import ChunkMap, chunks_of, is_chunk, is_chunk_of
from tidelog.wire.batch.record_batch import Headers
from tidelog.wire.errors import CorruptRecordError, RecordTooLargeError, WireFormatError


@final
class LargeMessageReader:
    """Reader of the large messages of one partition."""

    def __init__(self, options: ReadOptions, wanted: Slice) -> None:
        """Create a reader for the partition of `wanted`."""
        self._options = options
        self._wanted = wanted

    def joined(self, batch: RecordBatch) -> Iterator[RecordColumns]:
        """Yield the records without chunks, in parts, with large messages joined.

        A part ends when its large messages fill an Arrow batch, so that the rows of one batch of
        the log never have to be in memory together.

        Raises:
            DataLossError: A chunk is gone, and `failOnDataLoss` is true.
            RecordTooLargeError: A message is larger than `largeMessageMaxBytes`.
            CorruptRecordError: A chunk, or a message's header about its chunks, is damaged.
        """
        if batch.has_only_chunks or not len(batch):
            return
        if not batch.has_queue_fields:
            yield batch
            return
        kept: list[int] = []
        whole: dict[int, bytes] = {}
        size_bytes = 0
        for row, headers in enumerate(batch.headers):
            if is_chunk(headers):
                continue
            chunks = self._chunks_of(batch, row, headers)
            if chunks is not None:
                value = self._read_or_skip(chunks, batch.offsets[row])
                if value is None:
                    continue
                whole[row] = value
                size_bytes += len(value)
            kept.append(row)
            if size_bytes >= BYTES_MAX:
                yield _part(batch, kept, whole)
                kept, whole, size_bytes = [], {}, 0
        if kept:
            yield batch if len(kept) == len(batch) and not whole else _part(batch, kept, whole)

    def _chunks_of(self, batch: RecordBatch, row: int, headers: Headers) -> ChunkMap | None:
        """Return the chunks of a message; `None` if it has its value itself."""
        try:
            chunks = chunks_of(headers)
        except WireFormatError as error:
            raise _not_it(self._wanted.at, batch.offsets[row], str(error)) from error
        return None if batch.values[row] else chunks

    def _read_or_skip(self, chunks: ChunkMap, offset: int) -> bytes | None:
        """Return a large message; `None` if it is lost, and `failOnDataLoss` is false."""
        try:
            return self._read(chunks, offset)
        except DataLossError:
            if self._options.fail_on_data_loss:
                raise
            return None

    def _read(self, chunks: ChunkMap, offset: int) -> bytes:
        at = self._wanted.at
        where = f"{at.topic}/{at.partition}: the message at offset {offset}"
        if chunks.is_lost:
            raise lost(f"{where} was moved after the deletion of its chunks")
        limit = self._options.large_message_bytes_max
        if chunks.length > limit:
            raise RecordTooLargeError(
                f"{where} has {chunks.length} bytes, largeMessageMaxBytes is {limit}; raise it, or"
                " read its parts with largeMessages=chunks",
                size_bytes=chunks.length,
                limit_bytes=limit,
            )
        buffer = io.BytesIO()
        index = 0
        for number, headers, value in self._chunks(chunks):
            end = buffer.tell() + len(value)
            if not is_chunk_of(chunks, headers, index=index, end=end):
                raise _not_it(at, number, "it is not the chunk that the message names")
            buffer.write(value)
            index += 1
        if buffer.tell() != chunks.length or index != chunks.chunk_count:
            raise _not_it(at, offset, f"its chunks have {buffer.tell()} bytes, not {chunks.length}")
        return buffer.getvalue()

    def _chunks(self, chunks: ChunkMap) -> Iterator[tuple[int, Headers, bytes]]:
        """Yield offset, headers and value of each chunk."""
        wanted = self._wanted
        # A client of its own: on the connections of the records a fetch may be in flight.
        with borrowed(self._options.connection) as cluster:
            for first, count in chunks.runs:
                run = Slice(wanted.topic, wanted.topic_id, wanted.partition, first, first + count)
                fetcher = RangeFetcher(
                    cluster,
                    run,
                    fail_on_data_loss=True,
                    timeout_ms=self._options.fetch_timeout_ms,
                )
                try:
                    for batch in fetcher.batches():
                        for number, headers, value in zip(
                            batch.offsets, batch.headers, batch.values, strict=True
                        ):
                            yield number, headers, value or b""
                finally:
                    fetcher.close()


def _part(batch: RecordBatch, rows: list[int], whole: dict[int, bytes]) -> RecordColumns:
    """Return some records of a batch, with the values of large messages by row."""
    if not whole:
        return only(batch, rows, batch.values)
    values = list(batch.values)
    for row, value in whole.items():
        values[row] = value
    return only(batch, rows, values)


def _not_it(at: TopicPartition, offset: int, why: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"{at.topic}/{at.partition}: offset {offset}: {why}", offset=offset, next_offset=offset + 1
    )
