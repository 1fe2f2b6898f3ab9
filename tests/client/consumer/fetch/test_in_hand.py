"""What the application has in hand, and what of it is processed."""

from tests.client.consumer.fetch.test_record import batch_of
from tidelog.client.consumer.fetch.record_iterator import InFlightBatch
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.record_batch import Columns


def in_hand(base_offset: int = 10) -> InFlightBatch:
    """Return what a batch of two records leaves in hand."""
    held = InFlightBatch()
    held.take(batch_of(Columns(2, values=[b"a", b"b"]), base_offset=base_offset))
    return held


def test_at_first_nothing_is_in_hand() -> None:
    assert (InFlightBatch().at, InFlightBatch().offset) == (None, None)


def test_a_batch_is_processed_as_a_whole() -> None:
    held = in_hand()

    assert held.at == TopicPartition("orders", 2)
    assert held.offset == 10


def test_of_a_batch_that_is_read_record_by_record_all_but_the_last_are_processed() -> None:
    held = InFlightBatch()
    batch = batch_of(Columns(2, values=[b"a", b"b"]), base_offset=10)
    held.take(batch)
    held.cursor.begin(batch)
    next(held.cursor.unread)
    assert held.offset == 10

    next(held.cursor.unread)
    assert held.offset == 11

    held.cursor.stop()
    assert held.offset == 11


def test_what_is_vouched_for_is_processed_until_the_next_is_taken() -> None:
    held = in_hand()
    held.ack(12)
    assert held.offset == 12

    held.take(batch_of(Columns(2, values=[b"a", b"b"]), base_offset=4))
    assert held.offset == 4


def test_what_is_put_down_is_not_in_hand() -> None:
    held = in_hand()
    held.revoke()
    assert held.is_revoked

    held.finish()

    assert (held.at, held.offset, held.is_revoked) == (None, None, False)


def test_progress_is_made_with_each_record() -> None:
    held = InFlightBatch()
    batch = batch_of(Columns(2, values=[b"a", b"b"]))
    held.take(batch)
    held.cursor.begin(batch)
    seen = [held.progress]
    seen.extend(held.progress for _ in held.cursor.unread)
    held.take(batch)
    seen.append(held.progress)

    assert len(set(seen)) == len(seen)
