"""Receipts: of single records, and of records that were sent together."""

from random import Random

import pytest

from tidelog.client.cluster.backoff import Backoff
from tidelog.client.producer.partition_batches import DeliveryRules, PartitionBatches
from tidelog.client.producer.producer_batch import ProducerBatch
from tidelog.client.producer.receipt import (
    RangeReceipt,
    Receipt,
    SentSlice,
    chosen,
    outcome,
    outcomes,
    receipts,
)
from tidelog.client.producer.record_accumulator import AppendResult
from tidelog.wire.batch.compression import Codec
from tidelog.wire.errors import RecordTooLargeError
from tidelog.wire.messages.produce import AckLevel

DURABLE = AckLevel.DURABLE


def settled(
    partition: int, indexes: list[int], *, offset: int | None, error: Exception | None = None
) -> SentSlice:
    """Return records in one batch, after two others, with their outcome."""
    backoff = Backoff(1.0, 1.0, Random(0))
    rules = DeliveryRules(codec=Codec.NONE, is_idempotent=False, in_flight_max=1, backoff=backoff)
    queue = PartitionBatches("orders", partition, rules, on_settled=lambda _: None)
    batch = ProducerBatch(0, timestamp_ms=77, linger_until=0.0, deadline=1.0)
    batch.values += [b"v"] * (2 + len(indexes))
    batch.is_settled, batch.failure = True, error
    batch.base_offset, batch.ack_level = offset, None if offset is None else DURABLE
    return SentSlice(AppendResult(queue, batch, 2, len(indexes)), indexes)


def test_each_record_has_a_receipt_or_an_error() -> None:
    too_large = RecordTooLargeError("too large")
    slices = [
        settled(1, [0, 2], offset=100),
        settled(0, [1], offset=None, error=too_large),
        settled(2, [3], offset=None),
    ]

    first, second, third, fourth = outcomes(slices, 4)

    assert first == Receipt("orders", 1, 102, 77, DURABLE)
    assert isinstance(second, RecordTooLargeError)
    assert second is not too_large, "each raise adds a traceback"
    assert third == Receipt("orders", 1, 103, 77, DURABLE)
    assert fourth == Receipt("orders", 2, None, 77, None)


def test_a_single_record_has_the_same_outcome() -> None:
    appended = settled(1, [0], offset=100).appended

    assert outcome(appended) == Receipt("orders", 1, 102, 77, DURABLE)


def test_range_receipts_are_returned_unless_one_failed() -> None:
    good, bad = settled(1, [0, 1], offset=100), settled(0, [2], offset=None, error=OSError("gone"))

    assert receipts([good]) == [RangeReceipt("orders", 1, 102, [0, 1], DURABLE)]
    with pytest.raises(OSError, match="gone") as caught:
        receipts([good, bad])
    assert caught.value.__notes__ == ["records of this send_many that were not acknowledged: 1"]


def test_records_are_chosen_by_index() -> None:
    records = chosen([b"a", b"bb", b"ccc"], [b"k"] * 3, [2])

    assert records.remaining_count == 1
    assert records.next_size > chosen([b"a"], [b"k"], range(1)).next_size


def test_a_receipt_with_an_offset_has_a_message_id() -> None:
    assert Receipt("orders", 2, 70, 1, AckLevel.DURABLE).message_id == "2-70"
    assert Receipt("orders", 2, None, 1, None).message_id == ""
