"""Messages of queues: ids, origins, receipt handles, and decoding of receives."""

from collections.abc import Sequence

import pytest

from tidelog.client.queue.receive.message import (
    Disposition,
    Lease,
    Message,
    extension,
    giving_up,
    messages_of,
    missing_places,
    origin_of,
    places_of,
)
from tidelog.client.queue.receive.receipt_handle import ReceivedPlace, handle_of, place_of
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.record_batch import Columns, encode_batch, stamp_leader, stamp_replica
from tidelog.wire.errors import CorruptRecordError, InvalidReceiptError
from tidelog.wire.messages.queues import PartitionReceived, ReceivedRun, SettleAction

ORIGIN = (
    ("trace", b"1"),
    ("tidelog.origin.queue", b"work"),
    ("tidelog.origin.topic", b"orders"),
    ("tidelog.origin.partition", b"3"),
    ("tidelog.origin.offset", b"17"),
    ("tidelog.receive_count", b"5"),
    ("tidelog.first_received_ms", b"1000"),
    ("tidelog.last_received_ms", b"2000"),
    ("tidelog.reason", "käse".encode()),
    ("tidelog.first_sent_ms", b"500"),
)


def test_a_dead_letter_has_its_origin_and_reason() -> None:
    origin = origin_of(ORIGIN)
    assert origin == ("work", "orders", 3, 17, 5, 1000, 2000, "käse", 500)


def test_other_messages_have_no_origin() -> None:
    assert origin_of([("trace", b"1")]) is None


def test_forged_origin_headers_are_tolerated() -> None:
    origin = origin_of([("tidelog.origin.queue", b"\xff"), ("tidelog.receive_count", b"many")])
    assert origin is not None
    assert (origin.queue, origin.receive_count, origin.reason) == ("\ufffd", 0, "")
    origin = origin_of([("tidelog.origin.queue", b"q"), ("tidelog.receive_count", b"9" * 5000)])
    assert origin is not None
    assert origin.receive_count == 0


async def test_settlements_of_a_message_go_through_its_lease() -> None:
    asked: list[tuple[Sequence[Message], Disposition]] = []

    async def settle(messages: Sequence[Message], verdict: Disposition) -> None:
        asked.append((messages, verdict))

    lease = Lease(b"receipt", 10.0, settle)
    message = Message("orders", 1, 7, 0, None, b"v", (), 1, 0, lease)
    assert place_of(message.receipt_handle) == (1, 7, b"receipt")
    assert message.message_id == "1-7"

    await message.extend(1.5)
    await message.release(2, reason="busy")
    assert asked == [
        ([message], Disposition(SettleAction.EXTEND, 1500)),
        ([message], Disposition(SettleAction.RELEASE, 2000, "busy")),
    ]


def test_a_release_without_a_delay_uses_the_queue_backoff() -> None:
    assert giving_up(None, "").delay_ms is None
    assert giving_up(0, "").delay_ms == 0
    assert extension(0.0004).delay_ms == 0


PLACE = ReceivedPlace(3, 1_000_000, b"receipt \x00\xff\xfe")
HANDLE = handle_of(PLACE)


def test_a_receipt_handle_round_trips() -> None:
    assert place_of(HANDLE) == PLACE


def test_a_receipt_handle_is_url_safe() -> None:
    assert HANDLE.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize(
    "text",
    ["", "garbage", "käse", "=", HANDLE + "=", " " + HANDLE, HANDLE + "!", "a" * 100, "gA"],
)
def test_an_invalid_receipt_handle_is_refused_and_shown(text: str) -> None:
    with pytest.raises(InvalidReceiptError, match="is no receipt handle; use one from a receive"):
        place_of(text)


def test_a_truncated_receipt_handle_is_refused() -> None:
    for length in range(len(HANDLE)):
        with pytest.raises(InvalidReceiptError):
            place_of(HANDLE[:length])


def test_a_changed_receipt_handle_is_refused_or_differs() -> None:
    for position in range(len(HANDLE)):
        for letter in "Aa0-_":
            changed = HANDLE[:position] + letter + HANDLE[position + 1 :]
            try:
                assert changed == HANDLE or place_of(changed) != PLACE
            except InvalidReceiptError:
                continue


AT = TopicPartition("orders", 2)


async def settle(places: object, verdict: Disposition) -> None:
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


def test_only_received_records_are_taken_from_batches() -> None:
    content = batch(0, 10) + batch(10, 10)
    runs = received((3, 2, 1), (8, 4, 2), (19, 1, 1))

    messages = messages_of(AT, runs, content, lease=LEASE)

    expected = [(3, 1), (4, 1), (8, 2), (9, 2), (10, 2), (11, 2), (19, 1)]
    assert seen(messages) == [(offset, b"%d" % offset, times) for offset, times in expected]
    assert {each.partition for each in messages} == {2}
    assert messages[0].first_received_ms == 500
    assert missing_places(runs, messages) == []


def test_missing_records_of_a_receive_are_detected() -> None:
    runs = received((3, 2, 1), (18, 4, 1))

    messages = messages_of(AT, runs, batch(0, 20), lease=LEASE)

    assert [each.offset for each in messages] == [3, 4, 18, 19]
    assert [each.offset for each in missing_places(runs, messages)] == [20, 21]
    assert len(places_of(runs)) == 6


def test_a_corrupt_batch_of_a_receive_is_detected() -> None:
    content = bytearray(batch(0, 10))
    content[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        messages_of(AT, received((3, 2, 1)), bytes(content), lease=LEASE)
