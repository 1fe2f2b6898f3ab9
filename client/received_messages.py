"""What one partition handed out, as messages.

Pure: no clock, no I/O. No byte of a batch is believed before both of its checksums were found
right.
"""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Final

from client.fetched_chunk import FetchedChunk
from client.metadata import TopicPartition
from client.queue_message import Lease, Message
from client.receipt_handle import ReceivedPlace
from client.record import RecordBatch
from wire.queues import PartitionReceived

_UNCOMPRESSED_BYTES_MAX: Final = 256 << 20
"""A batch that unpacks to more is refused, so that a small one cannot fill the memory."""


def messages_of(
    at: TopicPartition, received: PartitionReceived, content: bytes, lease: Lease
) -> list[Message]:
    """Return the messages of one partition, in the order of their offsets.

    Args:
        at: The partition, of the topic.
        received: Which records were received.
        content: Their batches.
        lease: Under which they were received.

    Raises:
        CorruptRecordError: A batch is damaged, or cannot be decoded.
    """
    messages: list[Message] = []
    chunk = FetchedChunk(at, content, 0)
    runs = iter(received.runs)
    run = next(runs, None)
    while run is not None:
        batch = chunk.take(run.first_offset, uncompressed_bytes_max=_UNCOMPRESSED_BYTES_MAX)
        if batch is None:
            break
        _ = batch.values  # Decoded once, for all runs in it.
        while run is not None and run.first_offset < batch.next_offset:
            end = run.first_offset + run.count
            facts = (run.receive_count, run.first_received_ms)
            messages.extend(_messages(batch.between(run.first_offset, end), facts, lease))
            if end > batch.next_offset:
                break  # The next batch has the rest of it.
            run = next(runs, None)
    return messages


def places_of(received: PartitionReceived) -> list[ReceivedPlace]:
    """Return the places of all messages that were received."""
    return [
        ReceivedPlace(received.partition, offset, received.receipt)
        for run in received.runs
        for offset in range(run.first_offset, run.first_offset + run.count)
    ]


def missing_places(received: PartitionReceived, messages: Sequence[Message]) -> list[ReceivedPlace]:
    """Return the places of messages whose records did not come with them."""
    if sum(run.count for run in received.runs) == len(messages):
        return []
    found = {message.offset for message in messages}
    return [place for place in places_of(received) if place.offset not in found]


def _messages(batch: RecordBatch, facts: tuple[int, int], lease: Lease) -> Iterator[Message]:
    return map(
        Message,
        repeat(batch.topic),
        repeat(batch.partition),
        batch.offsets,
        batch.timestamps_ms,
        batch.keys,
        batch.values,
        batch.headers,
        repeat(facts[0]),
        repeat(facts[1]),
        repeat(lease),
    )
