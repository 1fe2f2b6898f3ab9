"""Tests of the partitions of a selection, and their offsets."""

import pytest

from tests.spark_connector.spark_fixture import SparkFixture
from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.connection.cluster_client import BlockingClusterClient
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.read.partition_bounds import (
    PartitionRange,
    dead_letter_topic,
    look,
    missing,
)
from tidelog.spark_connector.read.read_options import Selection
from tidelog.wire.errors import ConfigError, UnknownQueueError


def test_topics_are_found_by_name_and_by_pattern(town: SparkFixture) -> None:
    topic_id = town.create(2)
    town.write([b"a", b"b", b"c"], partition=1)

    with borrowed(town.connection) as cluster:
        by_name = look(cluster, Selection(topics=(town.topic,)), with_sizes=True)
        without_sizes = look(cluster, Selection(topics=(town.topic,)))
        by_pattern = look(cluster, Selection(pattern=f"{town.topic[:-1]}[{town.topic[-1]}]"))
        prefix_only = look(cluster, Selection(pattern="topi"))

    assert list(by_name) == [TopicPartition(town.topic, 0), TopicPartition(town.topic, 1)]
    bounds = by_name[TopicPartition(town.topic, 1)]
    assert (
        bounds.topic_id,
        bounds.start,
        bounds.end,
        bounds.is_known,
    ) == (topic_id, 0, 3, True)
    assert bounds.size_bytes > 3
    assert without_sizes == {at: each._replace(size_bytes=0) for at, each in by_name.items()}
    assert by_pattern == without_sizes
    assert prefix_only == {}


def test_only_assigned_partitions_are_read(town: SparkFixture) -> None:
    town.create(3)
    one = TopicPartition(town.topic, 2)

    with borrowed(town.connection) as cluster:
        assert list(look(cluster, Selection(partitions=(one,)))) == [one]
        with pytest.raises(ConfigError, match="3 partitions, 0 to 2; there is no 3"):
            look(cluster, Selection(partitions=(TopicPartition(town.topic, 3),)))


def test_a_deleted_topic_is_missing_and_the_others_are_found(town: SparkFixture) -> None:
    town.create()
    selection = Selection(topics=(town.topic, "zz-not-there"))

    with borrowed(town.connection) as cluster:
        ranges = look(cluster, selection)

    assert list(ranges) == [TopicPartition(town.topic, 0)]
    assert missing(selection, ranges) == ["zz-not-there"]


def test_dead_letters_of_a_queue_are_in_the_topic_of_its_dead_letter_queue(
    town: SparkFixture,
) -> None:
    admin = town.client.admin
    admin.create_queue(f"{town.topic}-dead", partitions=1)
    admin.create_queue(town.topic, dead_letter_queue=f"{town.topic}-dead", max_receive_count=2)

    with borrowed(town.connection) as cluster:
        assert dead_letter_topic(cluster, town.topic) == f"{town.topic}-dead"
        (at,) = look(cluster, Selection(dead_letters_of=town.topic))
        assert at.topic == f"{town.topic}-dead"
        refuses(cluster, f"{town.topic}-dead", ConfigError)
        refuses(cluster, "zz-not-there", UnknownQueueError)


def refuses(cluster: BlockingClusterClient, queue: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        dead_letter_topic(cluster, queue)


def test_a_range_has_the_id_of_its_topic() -> None:
    part = PartitionRange(b"i" * 16, 0, 9, 100).slice(TopicPartition("a", 4), 2, 5)

    assert (part.topic, part.topic_id, part.partition, part.start, part.end) == (
        "a", b"i" * 16, 4, 2, 5,
    )  # fmt: skip
