"""Fetch state: positions, fetches in flight, and prefetched batches."""

from random import Random

import pytest

from tests.client.consumer.fetch.test_fetched_batches import encoded
from tidelog.client.cluster.backoff import Backoff
from tidelog.client.config import ConsumerConfig
from tidelog.client.consumer.fetch import fetch_state
from tidelog.client.consumer.fetch.fetch_state import Fetch, FetchState
from tidelog.client.metrics.counters import ConsumerCounters
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.record_batch import (
    Columns,
    encode_batch,
    stamp_leader,
    stamp_replica,
)
from tidelog.wire.errors import (
    ConnectionLostError,
    CorruptRecordError,
    NoPositionError,
    OffsetOutOfRangeError,
    WireFormatError,
)
from tidelog.wire.messages.fetch import PartitionFetched

AT = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
ID = b"i" * 16


def subscription(*partitions: TopicPartition) -> FetchState:
    made = FetchState(ConsumerConfig(), Backoff(0.1, 1.0, Random(1)), ConsumerCounters())
    made.assign(dict.fromkeys(partitions, ID))
    for at in partitions:
        made.seek(at, 10)
    return made


def plan(made: FetchState, now: float = 0.0) -> list[Fetch]:
    return made.plan(now, lambda _: 1)


def land(made: FetchState, fetch: Fetch, content: bytes, *, high_watermark: int = 99) -> None:
    result = PartitionFetched(len(content), high_watermark, 0)
    made.on_complete(fetch, [result], memoryview(content), now=0.0)


def long_batch(columns: Columns, base_offset: int = 10) -> bytes:
    batch = encode_batch(columns, first_timestamp_ms=1)
    stamp_leader(memoryview(batch), base_offset=base_offset, leader_epoch=0)
    stamp_replica(memoryview(batch), durable_position=0)
    return bytes(batch)


@pytest.mark.parametrize("distance", [1, 1000])
def test_a_batch_of_very_many_records_is_handed_out_in_parts(
    monkeypatch: pytest.MonkeyPatch, distance: int
) -> None:
    monkeypatch.setattr(fetch_state, "_RECORDS_MAX", 4)
    made = subscription(AT)
    (fetch,) = plan(made)
    deltas = [distance * number for number in range(9)]
    land(made, fetch, long_batch(Columns(9, values=[b"v"] * 9, offset_deltas=deltas)))

    parts = [made.take(None, 0.0) for _ in range(4)]

    assert [None if part is None else len(part) for part in parts] == [4, 4, 1, None]
    offsets = [offset for part in parts if part is not None for offset in part.offsets]
    assert offsets == [10 + delta for delta in deltas]
    assert made.position(AT) == 11 + deltas[-1]


def test_a_batch_of_very_many_records_with_wrong_offsets_is_an_error_until_it_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_state, "_RECORDS_MAX", 2)
    made = subscription(AT)
    (fetch,) = plan(made)
    land(made, fetch, long_batch(Columns(3, values=[b"v"] * 3, offset_deltas=[0, 5, 5])))

    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="do not grow; to skip it, seek to 16"):
            made.take(None, 0.0)
        assert made.position(AT) == 10
    made.seek(AT, 16)
    assert made.take(None, 0.0) is None


def test_a_partition_without_a_position_raises_no_position_error() -> None:
    made = FetchState(ConsumerConfig(), Backoff(0.1, 1.0, Random(1)), ConsumerCounters())
    made.assign({AT: ID})

    assert made.unplaced == [AT]
    assert plan(made) == []
    with pytest.raises(NoPositionError, match="orders/0 has no position"):
        made.take(None, 0.0)


def test_a_partition_is_in_one_fetch_at_a_time() -> None:
    made = subscription(AT)

    (fetch,) = plan(made)

    assert [part.fetch_offset for part in fetch.request.partitions] == [10]
    assert plan(made) == []


def test_fetched_records_are_handed_out_once_and_advance_the_position() -> None:
    made = subscription(AT)
    (fetch,) = plan(made)
    land(made, fetch, encoded(10) + encoded(12))

    first, second = made.take(None, 0.0), made.take(None, 0.0)

    assert first is not None
    assert second is not None
    assert [*first.offsets, *second.offsets] == [10, 11, 12, 13]
    assert made.take(None, 0.0) is None
    assert made.position(AT) == 14
    assert made.buffered_bytes == 0


def test_the_next_fetch_starts_after_the_prefetched_records() -> None:
    made = subscription(AT)
    (fetch,) = plan(made)
    land(made, fetch, encoded(10))

    (following,) = plan(made)

    assert [part.fetch_offset for part in following.request.partitions] == [12]


def test_a_seek_drops_prefetched_records_and_late_replies() -> None:
    made = subscription(AT)
    (fetch,) = plan(made)
    land(made, fetch, encoded(10))
    (late,) = plan(made)

    made.seek(AT, 50)
    land(made, late, encoded(12))

    assert made.take(None, 0.0) is None
    assert made.buffered_bytes == 0
    assert made.position(AT) == 50


def test_reading_until_an_end_stops_in_the_middle_of_a_batch_and_keeps_the_rest() -> None:
    made = subscription(AT)
    (fetch,) = plan(made)
    land(made, fetch, encoded(10))

    part = made.take({AT: 11}, 0.0)

    assert part is not None
    assert list(part.offsets) == [10]
    assert made.is_done({AT: 11})
    rest = made.take(None, 0.0)
    assert rest is not None
    assert list(rest.offsets) == [11]


def test_a_returned_batch_is_handed_out_first() -> None:
    made = subscription(AT)
    (fetch,) = plan(made)
    land(made, fetch, encoded(10) + encoded(12))
    first = made.take(None, 0.0)
    assert first is not None

    made.give_back(first.between(11, None))

    again = made.take(None, 0.0)
    assert again is not None
    assert list(again.offsets) == [11]


def test_a_lost_connection_backs_off_and_refreshes_metadata() -> None:
    made = subscription(AT)
    (fetch,) = plan(made)

    made.on_failure(fetch, ConnectionLostError("gone"), 0.0)

    assert plan(made, 0.0) == []
    assert made.take_stale_topics() == {"orders"}
    assert 0.0 < made.next_retry(0.0) < 1.0
    assert len(plan(made, 10.0)) == 1


def test_a_fatal_fetch_error_is_raised_and_keeps_the_position() -> None:
    made = subscription(AT)
    (fetch,) = plan(made)
    error = OffsetOutOfRangeError("out", log_start_offset=20, log_end_offset=30)
    made.on_complete(
        fetch, [PartitionFetched(0, 30, 20, error.to_wire())], memoryview(b""), now=0.0
    )

    with pytest.raises(OffsetOutOfRangeError):
        made.take(None, 0.0)

    assert made.position(AT) == 10


def test_a_reply_that_does_not_belong_to_the_fetch_is_refused() -> None:
    made = subscription(AT)
    (fetch,) = plan(made)

    with pytest.raises(WireFormatError, match="1 partitions brought 1 results of 5 bytes"):
        made.on_complete(fetch, [PartitionFetched(5, 0, 0)], memoryview(b""), now=0.0)


def test_partitions_that_stay_assigned_keep_their_position() -> None:
    made = subscription(AT)

    made.assign({AT: ID, OTHER: ID})

    assert made.position(AT) == 10
    assert made.unplaced == [OTHER]


def test_a_recreated_topic_starts_without_a_position() -> None:
    made = subscription(AT)

    made.assign({AT: b"j" * 16})

    assert made.position(AT) is None


def test_an_unassigned_partition_cannot_be_sought() -> None:
    with pytest.raises(ValueError, match="orders/1 is not assigned"):
        subscription(AT).seek(OTHER, 0)


def test_a_fetch_is_not_too_long_and_the_next_one_begins_with_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_state, "_PARTITIONS_MAX", 3)
    partitions = [TopicPartition("orders", number) for number in range(8)]
    made = subscription(*partitions)
    rounds: list[list[int]] = []

    for number in range(4):
        (fetch,) = plan(made, 10.0 * number)
        rounds.append([each.at.partition for each in fetch.partitions])
        results = [PartitionFetched(0, 10, 0)] * len(fetch.partitions)
        made.on_complete(fetch, results, memoryview(b""), now=10.0 * number + 5)  # No early reply.

    assert rounds == [[0, 1, 2], [3, 4, 5], [6, 7, 0], [1, 2, 3]]
