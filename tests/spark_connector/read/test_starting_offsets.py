"""Tests of start and end options, resolved to offsets as in Spark's Kafka source."""

import pytest

from tests.spark_connector.spark_fixture import SparkFixture
from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.read.offset_ranges import Offsets
from tidelog.spark_connector.read.partition_bounds import look
from tidelog.spark_connector.read.starting_offsets import ending_offsets, starting_offsets
from tidelog.wire.errors import ConfigError

NOW_MS = 10_000


def starts(town: SparkFixture, is_stream: bool = True, /, **options: str) -> Offsets:
    given = town.options(is_stream, **options)
    with borrowed(town.connection) as cluster:
        ranges = look(cluster, given.selection)
        return starting_offsets(
            cluster, given.starting, ranges, strategy=given.starting_strategy, now_ms=NOW_MS
        )


def ends(town: SparkFixture, **options: str) -> Offsets:
    given = town.options(**options)
    with borrowed(town.connection) as cluster:
        ranges = look(cluster, given.selection)
        return ending_offsets(cluster, given.ending, ranges, now_ms=NOW_MS)


@pytest.fixture
def timed(town: SparkFixture) -> SparkFixture:
    """Return a topic with records at the times 1000, 3000, 2000 and 3000."""
    town.create()
    for time_ms in (1000, 3000, 2000, 3000):
        town.write_one(b"", timestamp_ms=time_ms)
    return town


@pytest.mark.statement("s10")
@pytest.mark.parametrize(
    ("time_ms", "offset"), [(0, 0), (1000, 0), (1001, 1), (2500, 1), (3000, 1)]
)
def test_a_starting_time_is_the_first_record_of_that_time_or_later(
    timed: SparkFixture, time_ms: int, offset: int
) -> None:
    at = TopicPartition(timed.topic, 0)
    by_name = f'{{"{timed.topic}":{{"0":{time_ms}}}}}'

    assert starts(timed, startingTimestamp=str(time_ms)) == {at: offset}
    assert starts(timed, startingOffsetsByTimestamp=by_name) == {at: offset}
    assert ends(timed, endingTimestamp=str(time_ms)) == {at: offset}


@pytest.mark.statement("s10")
def test_a_starting_time_after_all_records_fails_or_is_the_end(timed: SparkFixture) -> None:
    at = TopicPartition(timed.topic, 0)

    with pytest.raises(ConfigError, match=r"startingTimestamp.*startingOffsetsByTimestampStrategy"):
        starts(timed, startingTimestamp="3001")
    assert starts(timed, startingTimestamp="3001", startingOffsetsByTimestampStrategy="latest") == {
        at: 4
    }
    assert ends(timed, endingTimestamp="3001") == {at: 4}


@pytest.mark.statement("s10")
@pytest.mark.parametrize("time", ["1970-01-01T00:00:02Z", "8s", "8s ago"])
def test_a_starting_time_may_be_iso_8601_or_an_age(timed: SparkFixture, time: str) -> None:
    at = TopicPartition(timed.topic, 0)
    by_name = f'{{"{timed.topic}":{{"0":"{time}"}}}}'

    assert starts(timed, startingTimestamp=time) == {at: 1}
    assert starts(timed, startingOffsetsByTimestamp=by_name) == {at: 1}
    assert ends(timed, endingTimestamp=time) == {at: 1}


@pytest.mark.statement("s10")
def test_an_empty_partition_begins_at_its_end_and_a_quiet_one_too_in_a_batch(
    town: SparkFixture,
) -> None:
    town.create(3)
    for partition, time_ms in ((0, 1000), (0, 5000), (1, 1000)):
        with town.client.producer() as producer:
            producer.send(town.topic, b"", partition=partition, timestamp_ms=time_ms)
    empty, busy, quiet = (
        TopicPartition(town.topic, 2),
        *(TopicPartition(town.topic, number) for number in (0, 1)),
    )

    assert starts(town, False, startingTimestamp="2000") == {busy: 1, quiet: 1, empty: 0}
    with pytest.raises(ConfigError, match=f"startingTimestamp: {town.topic}/1 has no record"):
        starts(town, startingTimestamp="2000")
    assert starts(town, startingTimestamp="1000") == {busy: 0, quiet: 0, empty: 0}
    town.client.admin.delete_records(town.topic, 1, 1)
    assert starts(town, startingTimestamp="2000") == {busy: 1, quiet: 1, empty: 0}


def test_earliest_latest_and_numeric_offsets_are_resolved(timed: SparkFixture) -> None:
    at = TopicPartition(timed.topic, 0)
    timed.client.admin.delete_records(timed.topic, 0, 1)

    assert starts(timed, startingOffsets="earliest") == {at: 1}
    assert starts(timed, startingOffsets="latest") == {at: 4}
    for text, offset in ((-2, 1), (-1, 4), (3, 3)):
        given = f'{{"{timed.topic}":{{"0":{text}}}}}'
        assert starts(timed, startingOffsets=given) == {at: offset}
    assert ends(timed) == {at: 4}


@pytest.mark.statement("s5")
@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ('{"zz":{"0":1}}', "names zz/0, which is not read"),
        ('{"TOPIC":{"0":1,"7":1}}', "TOPIC/7, which is not read"),
        ('{"TOPIC":{"1":1}}', "which is not read|is missing"),
    ],
)
def test_offsets_must_name_exactly_the_selected_partitions(
    timed: SparkFixture, offsets: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message.replace("TOPIC", timed.topic)):
        starts(timed, startingOffsets=offsets.replace("TOPIC", timed.topic))


@pytest.mark.statement("s5")
def test_the_error_names_a_partition_without_an_offset(town: SparkFixture) -> None:
    town.create(2)

    with pytest.raises(ConfigError, match=f"{town.topic}/1 is missing"):
        ends(town, endingOffsets=f'{{"{town.topic}":{{"0":-1}}}}')


def test_an_ending_offset_beyond_the_partition_end_is_refused(timed: SparkFixture) -> None:
    with pytest.raises(ConfigError, match="ends at 4, before 9"):
        ends(timed, endingOffsets=f'{{"{timed.topic}":{{"0":9}}}}')
