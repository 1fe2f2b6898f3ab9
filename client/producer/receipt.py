"""Receipts of acknowledged records (Kafka: `RecordMetadata`), and how batches become receipts.

Pure: no clock, no I/O.
"""

import copy
from collections.abc import Sequence
from typing import final

import msgspec

from tidelog.client.producer.producer_record import ManyRecords
from tidelog.client.producer.record_accumulator import AppendResult
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
    """Where one record is."""

    topic: str
    partition: int
    offset: int | None
    """`None` when nobody knows: with `acks=0`, and for a record that was sent again so late that
    the broker only remembered having it."""
    timestamp_ms: int
    ack_level: AckLevel | None
    """What is true of the record at the moment of the reply, `None` when `offset` is."""
    is_duplicate: bool = False
    """Messages of FIFO queues: it was sent before, within the window, and all else says where the
    original is."""

    @property
    def message_id(self) -> str:
        """The name of a message in its topic, as who receives it sees it; empty if not known."""
        return "" if self.offset is None else f"{self.partition}-{self.offset}"


class RangeReceipt(msgspec.Struct, frozen=True):
    """Where records of one `send_many` are that follow each other in one partition.

    The record `values[indexes[k]]` has the offset `offset + k`.
    """

    topic: str
    partition: int
    offset: int | None
    """Offset of the first of these records; see `Receipt.offset`."""
    indexes: Sequence[int]
    """Places in the `values` that were sent, in the order of their offsets; a `range` when the
    records had no keys."""
    ack_level: AckLevel | None


@final
class SentSlice(msgspec.Struct, frozen=True):
    """Records sent together that one batch took."""

    appended: AppendResult
    indexes: Sequence[int]
    """Their places in what was sent."""


def chosen(
    values: Sequence[bytes | None], keys: Sequence[bytes | None] | None, indexes: Sequence[int]
) -> ManyRecords:
    """Return the records at these places."""
    if len(indexes) != len(values):
        values = list(map(values.__getitem__, indexes))
        keys = None if keys is None else list(map(keys.__getitem__, indexes))
    return ManyRecords(values, keys)


def outcome(appended: AppendResult) -> Receipt | TidelogError:
    """Return what became of a record whose batch is settled."""
    (fate,) = appended.batch.fates(appended.place, appended.place + 1)
    if isinstance(fate.failure, TidelogError):
        return copy.copy(fate.failure)
    assert fate.failure is None, "what fails on purpose is an error of tidelog"
    queue, sent_ms = appended.queue, appended.batch.timestamp_ms
    return Receipt(queue.topic, queue.partition, fate.offset, sent_ms, fate.ack_level)


def receipts(slices: list[SentSlice]) -> list[RangeReceipt]:
    """Return where the records are, or raise the first failure among them."""
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
    """Return for each of `count` records where it is, or why it was not acknowledged."""
    found: dict[int, Receipt | TidelogError] = {}
    for part in slices:
        queue, first = part.appended.queue, part.appended.place
        sent_ms = part.appended.batch.timestamp_ms
        for fate in part.appended.batch.fates(first, first + part.appended.count):
            indexes = part.indexes[fate.start - first : fate.end - first]
            if isinstance(fate.failure, TidelogError):
                found.update((index, copy.copy(fate.failure)) for index in indexes)
                continue
            assert fate.failure is None, "what fails on purpose is an error of tidelog"
            for place, index in enumerate(indexes):
                offset = None if fate.offset is None else fate.offset + place
                found[index] = Receipt(
                    queue.topic, queue.partition, offset, sent_ms, fate.ack_level
                )
    return [found[index] for index in range(count)]
