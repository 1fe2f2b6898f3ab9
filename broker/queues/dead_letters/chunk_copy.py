"""Copies of the chunks of large messages that are moved to another topic.

Shell without tasks. The chunks are copied first, then the message that lists their new offsets. So
a copy that is aborted, or made twice, leaves chunks that no message lists: no receive returns them,
and retention deletes them. Memory: a few chunks at a time, however large the message is.
"""

from collections.abc import Callable
from typing import final

from tidelog.broker.queues.dead_letter_record import DeadLetterRecord, batch_of, large_message_in
from tidelog.broker.queues.dead_letters.topic_producer import TopicProducer
from tidelog.broker.queues.partition.source_records import SourceRecords
from tidelog.wire.batch.large_messages import ChunkMap, runs_of, with_chunks
from tidelog.wire.errors import OffsetOutOfRangeError
from tidelog.wire.messages.queue_journal import Target


@final
class ChunkCopier:
    """Copies chunks for one partition of a queue.

    Invariant: the copied chunks of a message are kept until it is settled, so that a target that
    fails in between does not get the same chunks again and again.
    """

    def __init__(
        self, records: SourceRecords, producer: TopicProducer, now_ms: Callable[[], int]
    ) -> None:
        """Copy chunks of `records` with `producer`; `now_ms` returns the time of day."""
        self._records = records
        self._producer = producer
        self._now_ms = now_ms
        self._copied: dict[Target, dict[int, list[int]]] = {}
        """Offsets of the copied chunks at the target, by the offset of the message."""

    async def copied(
        self, records: list[DeadLetterRecord], target: Target
    ) -> list[DeadLetterRecord]:
        """Return messages with the chunk offsets of a target, once their chunks are there.

        A message whose chunks the log has deleted is moved without them, and marked so.

        Raises:
            BrokerError: A chunk cannot be read or produced now.
            ConnectionLostError: The outcome of a produce is unknown.
            WireFormatError: A chunk cannot be decoded.
        """
        there: list[DeadLetterRecord] = []
        for record in records:
            chunks = large_message_in(record)
            if chunks is None or chunks.is_lost:
                there.append(record)
                continue
            offsets = self._copied.setdefault(target, {}).setdefault(record.offset, [])
            is_whole = await self._copy(chunks, target, offsets)
            moved = ChunkMap(chunks.body_id, chunks.length, runs_of(offsets if is_whole else ()))
            there.append(record._replace(headers=with_chunks(record.headers, moved)))
        return there

    def settled(self, target: Target) -> None:
        """Forget the chunks copied to a target: its messages are settled."""
        self._copied.pop(target, None)

    async def _copy(self, chunks: ChunkMap, target: Target, offsets: list[int]) -> bool:
        """Copy the chunks that are not in `offsets` yet; return whether all of them existed.

        Raises:
            BrokerError: As for `copied`.
        """
        passed = len(offsets)
        for first, count in chunks.runs:
            offset, end = first + min(passed, count), first + count
            passed -= offset - first
            while offset < end:
                try:
                    found = await self._records.read_records([(offset, end - offset)])
                except OffsetOutOfRangeError as error:
                    if offset < (error.detail("log_start_offset") or 0):
                        return False
                    raise
                for chunk in found:
                    # As new as the message, so that the target's retention does not delete the
                    # chunk first.
                    batch = batch_of(
                        [chunk],
                        now_ms=self._now_ms(),
                        producer_id=0,
                        producer_epoch=0,
                        base_sequence=0,
                    )
                    offsets.append(await self._producer.produce(target, batch))
                    offset = chunk.offset + 1
        return True
