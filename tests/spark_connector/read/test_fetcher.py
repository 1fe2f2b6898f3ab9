"""Tests of the fetcher: exact ranges, and errors for deleted or damaged records."""

import itertools
from dataclasses import replace

import pytest

from tests.spark_connector.spark_fixture import SparkFixture
from tidelog.spark_connector.connection.cluster_client import BlockingClusterClient
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.read.data_loss import DataLossError
from tidelog.spark_connector.read.fetcher import FETCH_BYTES, RangeFetcher
from tidelog.spark_connector.read.offset_ranges import Slice
from tidelog.wire.batch.compression import Codec
from tidelog.wire.errors import CorruptRecordError, RequestTimedOutError

MB = 1_000_000


def fetcher(
    cluster: BlockingClusterClient, wanted: Slice, *, fail: bool = True, timeout_ms: int = 10_000
) -> RangeFetcher:
    return RangeFetcher(cluster, wanted, fail_on_data_loss=fail, timeout_ms=timeout_ms)


def read(town: SparkFixture, wanted: Slice, *, fail: bool = True) -> list[tuple[int, bytes | None]]:
    with borrowed(town.connection) as cluster:
        found = fetcher(cluster, wanted, fail=fail)
        try:
            return [
                pair
                for batch in found.batches()
                for pair in zip(batch.offsets, batch.values, strict=True)
            ]
        finally:
            found.close()


def last_epoch(town: SparkFixture) -> int:
    """Return the leader epoch of the last record."""
    with borrowed(town.connection) as cluster:
        (found,) = cluster.topic_offsets([town.topic], with_leader_epochs=True)
    (epoch,) = found.leader_epochs
    assert epoch is not None
    return epoch


@pytest.mark.statement("s9")
def test_every_range_within_batches_has_exactly_its_records(town: SparkFixture) -> None:
    topic_id = town.create()
    expected: list[tuple[int, bytes]] = []
    for size in (3, 1, 4):
        values = [b"%d" % (len(expected) + index) for index in range(size)]
        town.write(values)
        expected += enumerate(values, len(expected))

    for start, end in itertools.combinations_with_replacement(range(9), 2):
        assert read(town, town.whole(topic_id, end, start)) == expected[start:end]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_a_range_larger_than_one_fetch_is_read_with_any_compression(
    town: SparkFixture, codec: Codec
) -> None:
    topic_id = town.create()
    values = [bytes([number]) * 700_000 for number in range(16)]
    for value in values:
        town.write([value], compression=codec)

    assert read(town, town.whole(topic_id, 16)) == list(enumerate(values))


@pytest.mark.statement("s13")
def test_deleted_first_records_are_data_loss(town: SparkFixture) -> None:
    topic_id = town.create()
    for number in range(6):
        town.write([b"%d" % number])
    town.client.admin.delete_records(town.topic, 0, 4)

    with pytest.raises(DataLossError, match=rf"{town.topic}/0 .*offsets \[1, 4\) are gone"):
        read(town, town.whole(topic_id, 6, 1))
    assert read(town, town.whole(topic_id, 6, 1), fail=False) == [(4, b"4"), (5, b"5")]


def test_lost_records_below_a_range_are_data_loss_or_read_on_where_they_were_lost(
    town: SparkFixture, caplog: pytest.LogCaptureFixture
) -> None:
    topic_id = town.create()
    for number in range(6):
        town.write([b"%d" % number])
    intact = replace(town.whole(topic_id, 6, 3), leader_epoch=last_epoch(town))
    # The records that were read below 3 were of an earlier epoch than all of the log.
    lost = replace(intact, leader_epoch=last_epoch(town) - 1)

    assert [offset for offset, _ in read(town, intact)] == [3, 4, 5]
    with pytest.raises(
        DataLossError, match=rf"{town.topic}/0 .*offsets \[0, 3\) were read and are"
    ):
        read(town, lost)
    assert [offset for offset, _ in read(town, lost, fail=False)] == [0, 1, 2, 3, 4, 5]
    assert "offsets [0, 3) were read and are lost" in caplog.text


def test_a_range_that_was_lost_before_it_was_read_ends_where_the_log_ends(
    town: SparkFixture,
) -> None:
    topic_id = town.create()
    town.write([b"a", b"b"])
    beyond = replace(town.whole(topic_id, 9, 5), leader_epoch=last_epoch(town))

    with pytest.raises(DataLossError, match=r"offsets \[2, 5\) were read and are lost"):
        read(town, beyond)
    with borrowed(town.connection) as cluster:
        found = fetcher(cluster, beyond, fail=False, timeout_ms=100)
        assert list(found.batches()) == []
        found.close()


def test_a_fetch_names_the_epoch_of_the_last_batch(town: SparkFixture) -> None:
    topic_id = town.create()
    town.write([b"a"])
    town.write([b"b"])
    with borrowed(town.connection) as cluster:
        found = fetcher(cluster, town.whole(topic_id, 2))
        batches = found.batches()
        next(batches)
        assert vars(found)["_epochs"].before(1) == last_epoch(town)
        found.close()


@pytest.mark.statement("s14")
def test_a_range_with_all_records_deleted_is_data_loss(town: SparkFixture) -> None:
    topic_id = town.create()
    town.write([b"a", b"b", b"c"])
    town.client.admin.delete_records(town.topic, 0, None)

    assert read(town, town.whole(topic_id, 2), fail=False) == []
    with pytest.raises(DataLossError, match="failOnDataLoss"):
        read(town, town.whole(topic_id, 2))


def test_a_range_beyond_the_end_of_the_log_is_data_loss(town: SparkFixture) -> None:
    topic_id = town.create()
    town.write([b"a"])

    assert read(town, town.whole(topic_id, 9, 5), fail=False) == []
    with pytest.raises(DataLossError, match="the log ends at 1, before 5"):
        read(town, town.whole(topic_id, 9, 5))


def test_a_recreated_topic_is_another_topic(town: SparkFixture) -> None:
    old_id = town.create()
    town.write([b"old"])
    assert read(town, town.whole(old_id, 1)) == [(0, b"old")]
    town.client.admin.delete_topic(town.topic)
    with pytest.raises(DataLossError):
        read(town, town.whole(old_id, 1))
    new_id = town.create()
    town.write([b"new", b"newer"])

    with pytest.raises(DataLossError):
        read(town, town.whole(old_id, 1))
    assert read(town, town.whole(old_id, 1), fail=False) == []
    assert read(town, town.whole(new_id, 2)) == [(0, b"new"), (1, b"newer")]


def test_the_fetch_timeout_ends_a_wait_for_missing_records(town: SparkFixture) -> None:
    topic_id = town.create()
    town.write([b"a"])

    with borrowed(town.connection) as cluster:
        found = fetcher(cluster, town.whole(topic_id, 2), timeout_ms=100)
        with pytest.raises(RequestTimedOutError, match=r"offset 1 .*fetch\.timeout\.ms"):
            list(found.batches())
        found.close()


@pytest.mark.statement("s41")
def test_the_error_of_a_damaged_batch_names_topic_partition_and_offset(town: SparkFixture) -> None:
    topic_id = town.create()
    town.write([b"good"])
    town.write([b"bad-to-the-bone"])
    (segment,) = (town.data_dir / "topics").glob(f"{town.topic}.*/0/*.log")
    content = segment.read_bytes()
    place = content.index(b"bad-to-the-bone")
    with segment.open("r+b") as file:
        file.seek(place)
        file.write(b"BAD")

    assert read(town, town.whole(topic_id, 1)) == [(0, b"good")]
    with pytest.raises(CorruptRecordError, match=rf"{town.topic}/0.* offset 1 "):
        read(town, town.whole(topic_id, 2))


@pytest.mark.statement("s38")
def test_a_fetcher_that_stops_early_does_not_affect_the_next_one(town: SparkFixture) -> None:
    topic_id = town.create()
    for number in range(12):
        town.write([bytes([number]) * MB])

    with borrowed(town.connection) as cluster:
        found = fetcher(cluster, town.whole(topic_id, 12))
        batches = found.batches()
        assert next(batches).base_offset == 0
        found.close()
        assert cluster.is_idle
    assert len(read(town, town.whole(topic_id, 12))) == 12


def test_a_lost_connection_in_a_range_loses_no_record(town: SparkFixture) -> None:
    topic_id = town.create()
    values = [bytes([number]) * MB for number in range(12)]
    for value in values:
        town.write([value])

    with borrowed(town.connection) as cluster:
        found = fetcher(cluster, town.whole(topic_id, 12))
        seen: list[bytes | None] = []
        for batch in found.batches():
            seen += batch.values
            if len(seen) in (1, 6):
                cluster.any_connection().close()
        found.close()

    assert seen == values


@pytest.mark.statement("s12")
@pytest.mark.parametrize("size", [0, 1, 1_000_000, FETCH_BYTES + 1_000_000])
def test_a_value_larger_than_the_fetch_limit_is_read(town: SparkFixture, size: int) -> None:
    topic_id = town.create(max_message_bytes=str(8 << 20))
    value = bytes(range(256)) * (size // 256) + bytes(size % 256)
    with town.client.producer() as producer:
        for each in (value, b"behind it", value):
            producer.send(town.topic, each, partition=0)

    assert read(town, town.whole(topic_id, 3)) == [(0, value), (1, b"behind it"), (2, value)]
