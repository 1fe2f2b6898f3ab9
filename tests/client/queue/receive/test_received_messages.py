"""Messages are cut out of the batches that hold them."""

import pytest

from tidelog.client.queue.receive.message import (
    Lease,
    Message,
    Verdict,
    messages_of,
    missing_places,
    places_of,
)
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.record_batch import Columns, encode_batch, stamp_leader, stamp_replica
from tidelog.wire.errors import CorruptRecordError
from tidelog.wire.messages.queues import PartitionReceived, ReceivedRun

AT = TopicPartition("orders", 2)


async def settle(places: object, verdict: Verdict) -> None:
    """Settle nothing."""


LEASE = Lease(b"receipt", 0.0, settle)


def batch(first: int, count: int) -> bytes:
    """Return records whose values are their offsets."""
    columns = Columns(count, values=[b"%d" % (first + n) for n in range(count)])
    encoded = encode_batch(columns, first_timestamp_ms=1000)
    stamp_leader(memoryview(encoded), base_offset=first, leader_epoch=0)
    stamp_replica(memoryview(encoded), durable_position=0)
    return bytes(encoded)


def received(*runs: tuple[int, int, int]) -> PartitionReceived:
    found = [ReceivedRun(first, count, times, 500) for first, count, times in runs]
    return PartitionReceived(2, b"receipt", found)


def seen(messages: list[Message]) -> list[tuple[int, bytes | None, int]]:
    return [(each.offset, each.value, each.receive_count) for each in messages]


def test_only_what_was_received_is_taken_from_whole_batches() -> None:
    content = batch(0, 10) + batch(10, 10)
    runs = received((3, 2, 1), (8, 4, 2), (19, 1, 1))

    messages = messages_of(AT, runs, content, lease=LEASE)

    expected = [(3, 1), (4, 1), (8, 2), (9, 2), (10, 2), (11, 2), (19, 1)]
    assert seen(messages) == [(offset, b"%d" % offset, times) for offset, times in expected]
    assert {each.partition for each in messages} == {2}
    assert messages[0].first_received_ms == 500
    assert missing_places(runs, messages) == []


def test_records_that_did_not_come_are_known_as_missing() -> None:
    runs = received((3, 2, 1), (18, 4, 1))

    messages = messages_of(AT, runs, batch(0, 20), lease=LEASE)

    assert [each.offset for each in messages] == [3, 4, 18, 19]
    assert [each.offset for each in missing_places(runs, messages)] == [20, 21]
    assert len(places_of(runs)) == 6


def test_a_batch_that_is_damaged_is_not_believed() -> None:
    content = bytearray(batch(0, 10))
    content[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        messages_of(AT, received((3, 2, 1)), bytes(content), lease=LEASE)
