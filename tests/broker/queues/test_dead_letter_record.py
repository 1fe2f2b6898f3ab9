"""Tests of the records of moved messages."""

import pytest

from tidelog.broker.partitions.mover_ids import producer_id_of
from tidelog.broker.queues.dead_letter_record import (
    DeadLetterOrigin,
    DeadLetterRecord,
    as_dead_letter,
    as_it_was,
    batch_of,
    fitting,
    records_in,
)
from tidelog.queue_layer.state.pending_dead_letters import DeadLetters
from tidelog.wire.batch.message_id import MESSAGE_ID_HEADER, message_id_in
from tidelog.wire.batch.record_batch import check_produced, parse_header
from tidelog.wire.messages.queues import (
    DELIVER_AT_HEADER,
    FIRST_RECEIVED_HEADER,
    FIRST_SENT_HEADER,
    ORIGIN_OFFSET_HEADER,
    ORIGIN_QUEUE_HEADER,
    PRIORITY_HEADER,
    REASON_HEADER,
)

ORDERS = bytes(range(16))
ORIGIN = DeadLetterOrigin("billing", "orders", 3, ORDERS)
LETTERS_QUEUE = DeadLetterOrigin("letters", "letters", 0, bytes(16))
MESSAGE_ID = f"{ORDERS.hex()}-3-10".encode()
LETTERS = DeadLetters(10, 1, 5, 1000, 2000, "no such customer")


def record(offset: int, size: int = 1) -> DeadLetterRecord:
    return DeadLetterRecord(offset, 1000 + offset, b"k", bytes(size), (("trace", b"7"),))


@pytest.mark.statement("b53")
def test_a_dead_letter_has_origin_headers_and_its_own_headers() -> None:
    sent = record(10)._replace(
        headers=(("trace", b"7"), (DELIVER_AT_HEADER, b"5"), (PRIORITY_HEADER, b"2"))
    )

    letter = as_dead_letter(sent, ORIGIN, LETTERS)

    headers = dict(letter.headers)
    assert headers["trace"] == b"7"
    assert headers[PRIORITY_HEADER] == b"2"
    assert DELIVER_AT_HEADER not in headers
    assert headers[ORIGIN_QUEUE_HEADER] == b"billing"
    assert headers[ORIGIN_OFFSET_HEADER] == b"10"
    assert headers[FIRST_RECEIVED_HEADER] == b"1000"
    assert headers[REASON_HEADER] == b"no such customer"
    assert letter[:4] == sent[:4]


@pytest.mark.statement("b53")
def test_a_dead_letter_that_dies_again_has_the_last_origin() -> None:
    once = as_dead_letter(record(10), ORIGIN, LETTERS)

    twice = as_dead_letter(once, LETTERS_QUEUE, LETTERS)

    names = [name for name, _ in twice.headers]
    assert len(names) == len(set(names))
    assert dict(twice.headers)[ORIGIN_QUEUE_HEADER] == b"letters"


def test_a_redriven_record_is_the_original_with_its_first_send_time() -> None:
    back = as_it_was(as_dead_letter(record(10), ORIGIN, LETTERS), LETTERS_QUEUE)

    own = (("trace", b"7"), (MESSAGE_ID_HEADER, MESSAGE_ID), (FIRST_SENT_HEADER, b"1010"))
    assert back == record(10)._replace(headers=own)


def test_a_moved_message_keeps_its_id_over_all_moves() -> None:
    once = as_dead_letter(record(10), ORIGIN, LETTERS)._replace(offset=4)
    twice = as_dead_letter(once, LETTERS_QUEUE, LETTERS)._replace(offset=7)
    back = as_it_was(twice, LETTERS_QUEUE)

    for each in (once, twice, back):
        assert message_id_in(each.headers) == MESSAGE_ID.decode()
        assert [name for name, _ in each.headers].count(MESSAGE_ID_HEADER) == 1


def test_an_id_of_the_application_is_kept_and_an_invalid_one_replaced() -> None:
    own = record(10)._replace(headers=((MESSAGE_ID_HEADER, b"invoice-7"),))
    assert message_id_in(as_dead_letter(own, ORIGIN, LETTERS).headers) == "invoice-7"

    for strange in (b"", b"\xff", b"x" * 256):
        sent = record(10)._replace(headers=((MESSAGE_ID_HEADER, strange),))
        assert message_id_in(as_it_was(sent, ORIGIN).headers) == MESSAGE_ID.decode()


@pytest.mark.statement("b54")
def test_a_moved_message_keeps_its_first_send_time_over_all_moves() -> None:
    once = as_dead_letter(record(10), ORIGIN, LETTERS)._replace(timestamp_ms=5000)

    back = as_it_was(once, LETTERS_QUEUE)._replace(timestamp_ms=6000)
    twice = as_dead_letter(back, ORIGIN, LETTERS)

    assert [value for name, value in twice.headers if name == FIRST_SENT_HEADER] == [b"1010"]


def test_an_invalid_first_send_time_is_replaced() -> None:
    for strange in (b"", b"soon", b"-1", b"9" * 5000):
        sent = record(10)._replace(headers=((FIRST_SENT_HEADER, strange),))

        assert (FIRST_SENT_HEADER, b"1010") in as_it_was(sent, ORIGIN).headers
        assert len(as_it_was(sent, ORIGIN).headers) == 2


def test_a_move_batch_is_cut_by_its_records_alone_and_never_empty() -> None:
    assert fitting([record(1, 1 << 20), record(2)]) == 1
    assert fitting([record(1), record(2, 1 << 20)]) == 1
    assert fitting([record(number) for number in range(100)]) == 100


def test_the_same_records_encode_to_the_same_batch_and_decode_as_new_ones() -> None:
    records = [record(5), record(7)]

    first, second = (
        batch_of(records, now_ms=9000, producer_id=9, producer_epoch=1, base_sequence=40)
        for _ in range(2)
    )

    assert first == second
    check_produced(memoryview(first))
    header = parse_header(first)
    assert header is not None
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 40)
    found = list(records_in(bytes(first), header, [1, 5]))
    assert found == [record(7)._replace(offset=1, timestamp_ms=9000)]


def test_each_queue_partition_has_its_own_mover_id() -> None:
    ids = {producer_id_of(bytes([queue]) * 16, number) for queue in range(9) for number in range(9)}

    assert len(ids) == 81
    assert producer_id_of(b"q" * 16, 3) == producer_id_of(b"q" * 16, 3)
    assert all(1 << 62 <= each < 1 << 63 for each in ids)
