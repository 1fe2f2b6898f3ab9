"""Tests of the plan of a batch: offset ranges, invalid ranges and data loss."""

import pytest

from tests.spark_connector.spark_fixture import SparkFixture
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.read.batch_plan import known_ranges, plan
from tidelog.spark_connector.read.data_loss import DataLossError
from tidelog.wire.errors import ConfigError, UnknownTopicError


def ranges(town: SparkFixture, **options: str) -> list[tuple[int, int, int]]:
    with borrowed(town.connection) as cluster:
        slices = plan(cluster, town.options(**options))
    return [(part.partition, part.start, part.end) for part in slices]


def offsets(town: SparkFixture, *numbers: int) -> str:
    by_partition = ",".join(f'"{place}":{number}' for place, number in enumerate(numbers))
    return f'{{"{town.topic}":{{{by_partition}}}}}'


def test_all_records_are_read_by_default_and_empty_partitions_have_no_task(
    town: SparkFixture,
) -> None:
    town.create(3)
    town.write([b""] * 5, partition=0)
    town.write([b""] * 2, partition=2)

    assert ranges(town) == [(0, 0, 5), (2, 0, 2)]
    assert ranges(town, maxRecordsPerPartition="2") == [
        (0, 0, 1), (0, 1, 3), (0, 3, 5), (2, 0, 2),
    ]  # fmt: skip
    assert len(ranges(town, minPartitions="6")) >= 6


def test_one_offset_bounds_all_partitions_and_short_ones_are_read_to_their_end(
    town: SparkFixture,
) -> None:
    town.create(3)
    town.write([b""] * 9, partition=0)
    town.write([b""] * 4, partition=1)

    assert ranges(town, startingOffsets="3", endingOffsets="6") == [(0, 3, 6), (1, 3, 4)]
    assert ranges(town, startingOffsets="9223372036854775807") == []
    with pytest.raises(ConfigError, match="/0 would begin at 6 and end before it, at 3"):
        ranges(town, startingOffsets="6", endingOffsets="3")


def test_only_the_partitions_of_the_option_are_read(town: SparkFixture) -> None:
    town.create(4)
    for partition in range(4):
        town.write([b""] * 2, partition=partition)

    assert ranges(town, partitions="0,2-3") == [(0, 0, 2), (2, 0, 2), (3, 0, 2)]
    with pytest.raises(ConfigError, match="has 4 partitions, 0 to 3; there is no 4"):
        ranges(town, partitions="0-4")


def test_the_log_names_options_without_an_effect(
    town: SparkFixture, caplog: pytest.LogCaptureFixture
) -> None:
    town.create()
    town.write([b""])

    assert ranges(town, groupId="billing", **{"kafka.fetch.min.bytes": "1"}) == [(0, 0, 1)]
    assert "'groupId' is ignored: it is for streams" in caplog.text
    assert "'kafka.fetch.min.bytes' is ignored" in caplog.text


@pytest.mark.statement("s7")
def test_a_range_that_starts_at_its_end_is_empty_and_behind_it_an_error(town: SparkFixture) -> None:
    town.create()
    town.write([b""] * 5)
    three = offsets(town, 3)

    assert ranges(town, startingOffsets=three, endingOffsets=three) == []
    with pytest.raises(
        ConfigError, match="begin at 3 and end before it, at 2; move startingOffsets or "
    ):
        ranges(town, startingOffsets=three, endingOffsets=offsets(town, 2))


def test_a_deleted_starting_offset_fails_or_is_skipped(town: SparkFixture) -> None:
    town.create()
    for _ in range(5):
        town.write([b""])
    town.client.admin.delete_records(town.topic, 0, 2)

    with pytest.raises(DataLossError, match=rf"{town.topic}/0: offsets \[0, 2\) are gone"):
        ranges(town, startingOffsets=offsets(town, 0))
    given = {"startingOffsets": offsets(town, 0), "failOnDataLoss": "false"}
    assert ranges(town, **given) == [(0, 2, 5)]
    assert ranges(town, **given, endingOffsets=offsets(town, 1)) == []


def test_the_error_of_a_missing_topic_names_it(town: SparkFixture) -> None:
    quick = {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "1"}
    with borrowed(town.connection) as cluster:
        with pytest.raises(UnknownTopicError, match=town.topic):
            known_ranges(cluster, town.options(**quick))
        raw = {"bootstrap.servers": town.address, "subscribePattern": "zz.*"}
        pattern = type(town.options()).parse(raw, is_stream=False)
        with pytest.raises(ConfigError, match=r"there are no topics like zz\.\*"):
            known_ranges(cluster, pattern)
