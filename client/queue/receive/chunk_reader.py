"""Reader of large messages, by the offsets of their chunks.

Shell without tasks. Memory: one fetch at a time, about `_FETCH_BYTES` twice, for a message of any
length. Chunks are read from the leader of the partition, like any other records, while the
message is leased. Each is under the checksums of its batch and has its number and its message, so
that no other record is taken for it.
"""

import io
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final, final

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.consumer.fetch.fetched_batches import FetchedBatches
from tidelog.client.consumer.fetch.record import Record
from tidelog.client.queue.receive.message import too_large
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.large_messages import ChunkMap, chunks_of, is_chunk_of
from tidelog.wire.errors import (
    CorruptRecordError,
    LeaderNotAvailableError,
    MessageBodyLostError,
    OffsetOutOfRangeError,
    from_wire,
)
from tidelog.wire.messages.fetch import FetchReply, FetchRequest, PartitionFetch
from tidelog.wire.protocol import api

_FETCH_BYTES: Final = 4 << 20
_MAX_WAIT_MS: Final = 500
_UNCOMPRESSED_BYTES_MAX: Final = 64 << 20


@final
class ChunkReader:
    """Reads chunks, for any number of concurrent callers."""

    def __init__(self, cluster: ClusterClient) -> None:
        """Use the connections of a client."""
        self._cluster = cluster

    async def chunks(self, tp: TopicPartition, chunks: ChunkMap) -> AsyncGenerator[bytes, None]:
        """Yield the value of a message, chunk by chunk.

        Raises:
            MessageBodyLostError: The topic has deleted a part of the value.
            CorruptRecordError: A part of the value is corrupt.
            TidelogError: No broker answered within `request_timeout`; the last error.
        """
        if chunks.is_lost:
            raise _lost(tp, chunks)
        index, length = 0, 0
        for first, count in chunks.runs:
            position, end = first, first + count
            while position < end:
                try:
                    records = await self._fetch(tp, position, end)
                except OffsetOutOfRangeError as error:
                    if position < (error.detail("log_start_offset") or 0):
                        raise _lost(tp, chunks) from error
                    raise
                for record in records:
                    value = record.value or b""
                    length += len(value)
                    is_next = is_chunk_of(chunks, record.headers, index=index, end=length)
                    if not is_next or record.offset != position:
                        raise _not_it(tp, position)
                    index, position = index + 1, position + 1
                    yield value
        if length != chunks.length:
            raise _not_it(tp, chunks.runs[-1][0])

    async def value_of(self, record: Record) -> AsyncIterator[bytes]:
        """Yield the value of a record, chunk by chunk if it is large; errors as for `chunks`."""
        chunks = chunks_of(record.headers)
        if chunks is not None:
            tp = TopicPartition(record.topic, record.partition)
            async with aclosing(self.chunks(tp, chunks)) as parts:
                async for part in parts:
                    yield part
        elif record.value:
            yield record.value

    async def join(self, tp: TopicPartition, chunks: ChunkMap, *, max_bytes: int) -> bytes:
        """Return the value of a message.

        Raises:
            RecordTooLargeError: The value is longer than `max_bytes`.
            TidelogError: As for `chunks`.
        """
        if chunks.length > max_bytes:
            raise too_large(chunks.length, max_bytes)
        buffer = io.BytesIO()
        async for chunk in self.chunks(tp, chunks):
            buffer.write(chunk)
        return buffer.getvalue()  # Without a copy: nothing else refers to it.

    async def _fetch(self, tp: TopicPartition, offset: int, end: int) -> list[Record]:
        """Return some records from an offset on, at least one."""

        async def attempt() -> list[Record]:
            topic = self._cluster.metadata.topic(tp.topic)
            if topic is None:
                topic = await self._cluster.topic(tp.topic)
            leader_id = self._cluster.metadata.leader_of(tp.topic, tp.partition)
            if leader_id is None:
                raise LeaderNotAvailableError(f"{tp.topic}/{tp.partition} has no leader now")
            connection = await self._cluster.connection_to(leader_id)
            wanted = PartitionFetch(topic.topic_id, tp.partition, offset, _FETCH_BYTES)
            request = FetchRequest(_MAX_WAIT_MS, 1, _FETCH_BYTES, [wanted])

            def take(reply: FetchReply, view: memoryview) -> tuple[FetchReply, bytes]:
                return reply, bytes(view)

            reply, content = await self._cluster.call_and_take(
                connection, api.FETCH, request, take=take
            )
            return _records(tp, reply, content, offset=offset, end=end)

        return await self._cluster.retry(attempt, is_repeatable=True)


def _records(
    tp: TopicPartition, reply: FetchReply, content: bytes, *, offset: int, end: int
) -> list[Record]:
    (fetched,) = reply.results
    if fetched.error is not None:
        raise from_wire(fetched.error)
    chunk = FetchedBatches(tp, content, fetched.high_watermark)
    records: list[Record] = []
    while batch := chunk.take(offset, uncompressed_bytes_max=_UNCOMPRESSED_BYTES_MAX):
        records += [record for record in batch if record.offset < end]
        if batch.next_offset >= end:
            break
    if not records:
        raise LeaderNotAvailableError(
            f"the leader of {tp.topic}/{tp.partition} does not know yet that offset {offset} is"
            " committed"
        )
    return records


def _lost(tp: TopicPartition, chunks: ChunkMap) -> MessageBodyLostError:
    return MessageBodyLostError(
        f"{tp.topic}/{tp.partition}: the topic has deleted chunks of this message of"
        f" {chunks.length} bytes, by its retention or by a request to delete records; set a"
        " retention of the topic above that of the queue"
    )


def _not_it(tp: TopicPartition, offset: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"{tp.topic}/{tp.partition}: record {offset} is not the chunk that the message names",
        offset=offset,
        next_offset=offset + 1,
    )
