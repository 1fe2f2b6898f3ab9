"""Receipts of acknowledged records (Kafka: `RecordMetadata`), made from batches.

Pure: no clock, no I/O.
"""

import copy
from collections.abc import Sequence
from typing import final

import msgspec

from tidelog.client.producer.producer_record import ManyRecords
from tidelog.client.producer.record_accumulator import AppendResult
from tidelog.wire.batch.record_batch import Headers
from tidelog.wire.errors import TidelogError
from tidelog.wire.messages.produce import AckLevel

__all__ = [
    "AckLevel",
    "RangeReceipt",
    "Receipt",
    "SentSlice",
    "chosen",
    "outcome",
    "outcomes",
    "receipts",
]


class Receipt(msgspec.Struct, frozen=True):
    """Place of one record in the log."""

    topic: str
    partition: int
    offset: int | None
    """`None` when it is unknown: with `acks=0`, and for a record that was sent again so late that
    the broker only remembered having it."""
    timestamp_ms: int
    ack_level: AckLevel | None
    """What the reply guarantees for the record, `None` when `offset` is."""
    is_duplicate: bool = False
    """In FIFO queues: the message was sent before, within the window, and the other fields are
    those of the original."""
    topic_id: bytes = b""
    """Id of the topic; a recreated topic has another one."""

    @property
    def message_id(self) -> str:
        """Id of a message in its topic, as in received messages; empty if it is unknown."""
        return "" if self.offset is None else f"{self.partition}-{self.offset}"


class RangeReceipt(msgspec.Struct, frozen=True):
    """Place of consecutive records of one `send_many` in one partition.

    The record `values[indexes[k]]` has the offset `offset + k`.
    """

    topic: str
    partition: int
    offset: int | None
    """Offset of the first of these records; see `Receipt.offset`."""
    indexes: Sequence[int]
    """Places of the records in `values`, in the order of their offsets; a `range` when the records
    had no keys."""
    ack_level: AckLevel | None


@final
class SentSlice(msgspec.Struct, frozen=True):
    """Records of one call that are in one batch."""

    appended: AppendResult
    indexes: Sequence[int]
    """Places of these records in the call."""


def chosen(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    indexes: Sequence[int],
    *,
    headers: Headers = (),
) -> ManyRecords:
    """Return the records at these places, all with the same headers."""
    if len(indexes) != len(values):
        values = list(map(values.__getitem__, indexes))
        keys = None if keys is None else list(map(keys.__getitem__, indexes))
    return ManyRecords(values, keys, headers)


def outcome(appended: AppendResult, timestamp_ms: int | None = None) -> Receipt | TidelogError:
    """Return the receipt or the error of a record in a settled batch.

    Args:
        appended: Place of the record.
        timestamp_ms: Timestamp of the record; `None` for that of the batch.
    """
    queue, batch, place = appended.queue, appended.batch, appended.place
    failure, level, topic_id = batch.failure, batch.ack_level, batch.topic_id
    offset = None if batch.base_offset is None else batch.base_offset + place
    if batch.parts:
        (fate,) = batch.fates(place, place + 1)
        failure, offset, level = fate.failure, fate.offset, fate.ack_level
        topic_id = fate.topic_id
    if isinstance(failure, TidelogError):
        return copy.copy(failure)
    assert failure is None, "an error of delivery is an error of tidelog"
    sent_ms = batch.timestamp_ms if timestamp_ms is None else timestamp_ms
    return Receipt(queue.topic, queue.partition, offset, sent_ms, level, topic_id=topic_id)


def receipts(slices: list[SentSlice]) -> list[RangeReceipt]:
    """Return the receipts of the records, or raise the first failure among them."""
    receipts: list[RangeReceipt] = []
    failures: list[Exception] = []
    failed_count = 0
    for part in slices:
        queue, first = part.appended.queue, part.appended.place
        for fate in part.appended.batch.fates(first, first + part.appended.count):
            if fate.failure is not None:
                failures.append(fate.failure)
                failed_count += fate.end - fate.start
            indexes = part.indexes[fate.start - first : fate.end - first]
            receipts.append(
                RangeReceipt(queue.topic, queue.partition, fate.offset, indexes, fate.ack_level)
            )
    if failures:
        failure = copy.copy(failures[0])
        failure.add_note(f"records of this send_many that were not acknowledged: {failed_count}")
        raise failure
    return receipts


def outcomes(slices: list[SentSlice], count: int) -> list[Receipt | TidelogError]:
    """Return the receipt or the error of each of `count` records."""
    found: dict[int, Receipt | TidelogError] = {}
    for part in slices:
        queue, first = part.appended.queue, part.appended.place
        sent_ms = part.appended.batch.timestamp_ms
        for fate in part.appended.batch.fates(first, first + part.appended.count):
            indexes = part.indexes[fate.start - first : fate.end - first]
            if isinstance(fate.failure, TidelogError):
                found.update((index, copy.copy(fate.failure)) for index in indexes)
                continue
            assert fate.failure is None, "an error of delivery is an error of tidelog"
            for place, index in enumerate(indexes):
                offset = None if fate.offset is None else fate.offset + place
                found[index] = Receipt(
                    *(queue.topic, queue.partition, offset, sent_ms, fate.ack_level),
                    topic_id=fate.topic_id,
                )
    return [found[index] for index in range(count)]
