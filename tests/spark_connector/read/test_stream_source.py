"""Tests of a streaming query against a broker: limits, delays, losses and commits."""

import pytest

from tests.spark_connector.spark_fixture import SparkFixture
from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.read.data_loss import DataLossError
from tidelog.spark_connector.read.offset_commit import commit_group, group_of
from tidelog.spark_connector.read.offset_ranges import StreamOffset
from tidelog.spark_connector.read.partition_bounds import look
from tidelog.spark_connector.read.read_options import ReadOptions
from tidelog.spark_connector.read.stream_progress import slices_between
from tidelog.spark_connector.read.stream_source import ALL, Limit, StreamSource
from tidelog.wire.errors import UnknownPartitionError, UnknownTopicError, UnknownTopicIdError

QUICK = {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "1"}


def source(town: SparkFixture, **options: str) -> StreamSource:
    return StreamSource(town.options(True, **{"startingOffsets": "earliest", **QUICK, **options}))


class Time:
    """Clock that advances by the waits of a caller."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def now(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds


def timed_source(town: SparkFixture, time: Time, **options: str) -> StreamSource:
    given = town.options(True, startingOffsets="earliest", **QUICK, **options)
    return StreamSource(given, now=time.now, wait=time.wait)


def read(position: StreamOffset) -> list[int]:
    return list(position.offsets.values())


def test_consecutive_batches_reach_the_end(town: SparkFixture) -> None:
    town.create(2)
    town.write([b""] * 6, partition=0)
    town.write([b""] * 2, partition=1)
    query = source(town)
    start = query.initial()

    assert read(start) == [0, 0]
    assert read(query.latest(start, Limit(records=4))) == [3, 1]
    assert read(query.latest(start, Limit(records=1))) == [1, 1]
    assert read(query.latest(start, Limit(size_bytes=1))) == [1, 1]
    assert read(query.latest(start, ALL)) == [6, 2]
    reported = query.reported()
    assert reported is not None
    assert read(reported) == [6, 2]


def test_a_checkpoint_has_the_epochs_of_the_last_records_and_slices_have_them_too(
    town: SparkFixture,
) -> None:
    town.create(2)
    town.write([b""] * 6, partition=0)
    query = source(town)
    start = query.initial()
    first, second = TopicPartition(town.topic, 0), TopicPartition(town.topic, 1)
    with borrowed(town.connection) as cluster:
        epoch = look(cluster, town.options(True).selection)[first].leader_epoch
    assert epoch is not None

    assert start.epochs == {}
    assert query.latest(start, Limit(records=4)).epochs == {}, "the epoch before the end is unknown"
    end = query.latest(start, ALL)
    assert end.epochs == {first: epoch}
    town.write([b""] * 6, partition=0)
    town.write([b""], partition=1)
    later = source(town).latest(StreamOffset.from_json(end.to_json()), Limit(records=4))
    assert later.epochs == {first: epoch, second: epoch}
    assert [each.leader_epoch for each in slices_between(end, later)] == [epoch, None]


def test_new_records_are_available_after_the_next_refresh(town: SparkFixture) -> None:
    town.create()
    query = source(town)
    start = query.initial()
    assert query.latest(start, Limit()) == start
    town.write([b"a"])

    assert read(query.latest(start, Limit())) == [1]


def requests_sent(town: SparkFixture) -> int:
    """Return the number of requests that this process has sent to the broker."""
    with borrowed(town.connection) as cluster:
        return cluster.sent_count


@pytest.mark.statement("s40")
def test_an_idle_query_sends_four_requests_a_second_at_any_poll_rate(
    town: SparkFixture,
) -> None:
    town.create(3)
    time = Time()
    query = timed_source(town, time)
    start = query.initial()
    assert query.latest(start, Limit()) == start
    begun_at, sent_before = time.now_s, requests_sent(town)

    while time.now_s - begun_at < 10:
        assert query.latest(start, Limit()) == start
        assert query.reported() == start

    assert requests_sent(town) - sent_before == 40


@pytest.mark.parametrize("selection", ["queueDeadLetters", "queueHistory"])
def test_an_idle_query_of_a_queue_sends_five_requests_a_second_at_most(
    town: SparkFixture, selection: str
) -> None:
    admin = town.client.admin
    dead = f"{town.topic}-dead"
    admin.create_queue(dead, partitions=1)
    admin.create_queue(town.topic, dead_letter_queue=dead, max_receive_count=2)
    time = Time()
    raw = {"bootstrap.servers": town.address, selection: town.topic, "startingOffsets": "earliest"}
    options = ReadOptions.parse(raw, is_stream=True)
    query = StreamSource(options, now=time.now, wait=time.wait)
    start = query.latest(query.initial(), Limit())
    begun_at, sent_before = time.now_s, requests_sent(town)

    while time.now_s - begun_at < 10:
        assert query.latest(start, Limit()) == start

    assert 30 <= requests_sent(town) - sent_before <= 50


@pytest.mark.statement("s25")
def test_a_stream_from_latest_has_an_empty_first_batch_and_loses_nothing_in_a_crash(
    town: SparkFixture,
) -> None:
    town.create()
    town.write([b"before"])
    first = source(town, startingOffsets="latest")
    begin = first.initial()
    town.write([b"between"])

    assert first.latest(begin, Limit()) == begin
    town.write([b"after a crash"])
    again = source(town, startingOffsets="latest")
    assert read(again.initial()) == [3]
    assert read(again.latest(begin, Limit())) == [3]


@pytest.mark.statement("s25")
@pytest.mark.parametrize("time", ["1h", "TOO LATE"])
def test_a_stream_from_a_moving_time_has_an_empty_first_batch_too(
    town: SparkFixture, time: str
) -> None:
    town.create(2)
    town.write([b"now"])
    quiet_is_latest = {"startingOffsetsByTimestampStrategy": "latest"}
    late = str(4_000_000_000_000)
    query = source(town, startingTimestamp=time.replace("TOO LATE", late), **quiet_is_latest)
    begin = query.initial()
    town.write([b"later"], partition=1)

    assert query.latest(begin, Limit()) == begin
    assert read(query.latest(begin, ALL)) == [1, 1]


@pytest.mark.statement("s21")
def test_a_batch_below_min_offsets_waits_for_max_trigger_delay(town: SparkFixture) -> None:
    town.create()
    town.write([b""] * 3)
    at_least_five = {"minOffsetsPerTrigger": "5"}

    time = Time()
    query = timed_source(town, time, **at_least_five, maxTriggerDelay="1h")
    start = query.initial()
    assert query.latest(start, Limit()) == start
    assert read(query.latest(start, ALL)) == [3]
    time.now_s += 3599
    assert query.latest(start, Limit()) == start
    time.now_s += 1
    assert read(query.latest(start, Limit())) == [3]
    assert query.latest(start, Limit()) == start
    town.write([b""] * 2)
    time.now_s += 1
    assert read(query.latest(start, Limit())) == [5]
    once = source(town, minOffsetsPerTrigger="50", maxTriggerDelay="1h")
    once.prepare_available_now()
    assert read(once.latest(once.initial(), Limit())) == [5]


def test_an_available_now_query_ends_although_records_arrive(town: SparkFixture) -> None:
    town.create()
    town.write([b""] * 5)
    query = source(town)
    query.prepare_available_now()
    position = query.initial()
    town.write([b""] * 5)

    seen: list[int] = []
    while (reached := query.latest(position, Limit(records=2))) != position:
        position = reached
        seen += read(position)

    assert seen == [2, 4, 5]


def test_lost_records_fail_the_query_or_are_skipped(
    town: SparkFixture, caplog: pytest.LogCaptureFixture
) -> None:
    town.create()
    for _ in range(4):
        town.write([b""])
    start = source(town).initial()
    town.client.admin.delete_records(town.topic, 0, 3)

    with pytest.raises(DataLossError, match=r"offsets \[0, 3\) are gone"):
        source(town).latest(start, Limit())
    careless = source(town, failOnDataLoss="false")
    assert read(careless.latest(start, Limit())) == [4]
    assert "offsets [0, 3) are gone" in caplog.text


def test_a_deleted_or_recreated_topic_is_data_loss(town: SparkFixture) -> None:
    town.create()
    town.write([b"old"])
    start = source(town).latest(source(town).initial(), ALL)
    careless = source(town, failOnDataLoss="false")
    town.client.admin.delete_topic(town.topic)

    with pytest.raises(DataLossError, match=f"topic {town.topic} is gone"):
        source(town).latest(start, Limit())
    assert careless.latest(start, Limit()) == start
    careless.prepare_available_now()
    assert careless.latest(start, Limit()) == start
    with pytest.raises(UnknownTopicError):
        source(town).prepare_available_now()
    new_id = town.create()
    town.write([b"new"])
    with pytest.raises(DataLossError, match="was deleted, and another one"):
        source(town).latest(start, Limit())
    reached = source(town, failOnDataLoss="false").latest(start, Limit())
    assert reached == StreamOffset({TopicPartition(town.topic, 0): 1}, {town.topic: new_id})


def test_a_failed_offset_commit_does_not_end_the_query(
    town: SparkFixture, caplog: pytest.LogCaptureFixture
) -> None:
    town.create()
    gone = StreamOffset({TopicPartition(town.topic, 9): 1}, {town.topic: b"x" * 16})

    source(town, groupId=f"{town.topic}-lag").commit(gone)

    assert "were not committed" in caplog.text


def group_lag(town: SparkFixture, group: str) -> int:
    """Return the lag of a group in records, over all partitions."""
    partitions = town.client.admin.describe_group(group).partitions
    assert all(each.lag_records is not None for each in partitions)
    return sum(each.lag_records or 0 for each in partitions)


def test_a_query_without_new_records_commits_the_position_that_is_written(
    town: SparkFixture,
) -> None:
    town.create(2)
    town.write([b""] * 5)
    group = f"{town.topic}-lag"
    time = Time()
    query = timed_source(town, time, groupId=group)
    query.prepare_available_now()

    reached = query.latest(query.initial(), Limit(records=3))
    assert read(reached) == [3, 0]
    query.commit(query.initial())  # Spark does so: there is another batch.
    assert group_lag(town, group) == 5, "the first batch is not written yet"
    reached = query.latest(reached, Limit())
    query.commit(query.latest(query.initial(), Limit(records=3)))
    assert group_lag(town, group) == 2
    assert query.latest(reached, Limit()) == reached
    assert group_lag(town, group) == 0


def test_an_idle_query_commits_its_position_once(town: SparkFixture) -> None:
    town.create()
    town.write([b""] * 5)
    time = Time()
    query = timed_source(town, time, groupId=f"{town.topic}-lag")
    reached = query.latest(query.initial(), Limit())
    assert query.latest(reached, Limit()) == reached
    sent_before = requests_sent(town)

    for _ in range(8):
        assert query.latest(reached, Limit()) == reached

    query.commit(reached)  # Spark does so when it has found the next batch.
    assert requests_sent(town) - sent_before == 8, "one request for the offsets each"


def test_an_idle_query_tries_a_failed_commit_again_after_a_while(
    town: SparkFixture, caplog: pytest.LogCaptureFixture
) -> None:
    town.create()
    group = f"{town.topic}-lag"
    town.write([b""] * 5)
    time = Time()
    query = timed_source(town, time, groupId=group)
    reached = query.latest(query.initial(), Limit())
    with town.client.consumer(
        town.topic, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    ) as member:
        next(iter(member))
        assert query.latest(reached, Limit()) == reached
        assert "were not committed" in caplog.text
        sent_before = requests_sent(town)
        assert query.latest(reached, Limit()) == reached
        assert requests_sent(town) - sent_before == 1

    time.now_s += 60
    assert query.latest(reached, Limit()) == reached
    assert group_lag(town, group) == 0


def test_the_group_has_the_committed_offsets_of_the_stream(town: SparkFixture) -> None:
    topic_id = town.create()
    town.write([b""] * 5)
    at = town.whole(topic_id, 0).at
    group = f"{town.topic}-lag"

    commit_group(town.options(True, groupId=group), StreamOffset({at: 3}, {town.topic: topic_id}))

    (partition,) = town.client.admin.describe_group(group).partitions
    assert (partition.offset, partition.lag_records) == (3, 2)


def test_without_a_group_nothing_is_committed(town: SparkFixture) -> None:
    at = town.whole(b"x" * 16, 0).at

    commit_group(town.options(True), StreamOffset({at: 3}, {town.topic: b"x" * 16}))


def test_a_rejected_offset_commit_is_raised(town: SparkFixture) -> None:
    topic_id = town.create()
    at = town.whole(topic_id, 0).at._replace(partition=7)
    options = town.options(True, groupId=f"{town.topic}-lag")

    with pytest.raises((UnknownPartitionError, UnknownTopicIdError)):
        commit_group(options, StreamOffset({at: 3}, {town.topic: topic_id}))


def test_a_group_id_prefix_gives_the_same_name_for_the_same_topics(town: SparkFixture) -> None:
    one = group_of(town.options(True, groupIdPrefix="spark"))

    assert one == group_of(town.options(True, groupIdPrefix="spark"))
    assert one is not None
    assert one.startswith("spark-")
    halves = {
        group_of(town.options(True, groupIdPrefix="spark", partitions=numbers))
        for numbers in ("0", "1", "0,1")
    }
    assert len(halves - {one}) == 3
    assert group_of(town.options(True, groupId="mine")) == "mine"
    assert group_of(town.options(True)) is None


def test_a_stream_from_a_fixed_time_has_records_in_its_first_batch(town: SparkFixture) -> None:
    town.create()
    town.write([b"now"])
    query = source(town, startingTimestamp="1")

    assert read(query.latest(query.initial(), Limit())) == [1]
