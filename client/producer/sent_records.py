"""What became of records that were sent together.

Pure: no clock, no I/O.
"""

import copy
from collections.abc import Sequence
from typing import final

import msgspec

from tidelog.client.producer.receipt import RangeReceipt, Receipt
from tidelog.client.producer.record_accumulator import Appended
from tidelog.client.producer.record_validation import ManyRecords
from tidelog.wire.errors import TidelogError


@final
class SentSlice(msgspec.Struct, frozen=True):
    """Records sent together that one batch took."""

    appended: Appended
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


def outcome(appended: Appended) -> Receipt | TidelogError:
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
