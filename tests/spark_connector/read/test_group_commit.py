"""The lag of a stream can be seen where that of all groups is seen."""

import pytest

from tests.spark_connector.town import Town
from tidelog.spark_connector.read.group_commit import commit_group, group_of
from tidelog.spark_connector.read.offsets import Position
from tidelog.wire.errors import UnknownPartitionError, UnknownTopicIdError


def test_a_group_shows_how_far_the_stream_is(town: Town) -> None:
    topic_id = town.create()
    town.write([b""] * 5)
    at = town.whole(topic_id, 0).at
    group = f"{town.topic}-lag"

    commit_group(town.options(True, groupId=group), Position({at: 3}, {town.topic: topic_id}))

    (partition,) = town.client.admin.describe_group(group).partitions
    assert (partition.offset, partition.lag_records) == (3, 2)


def test_without_a_group_nothing_is_committed(town: Town) -> None:
    at = town.whole(b"x" * 16, 0).at

    commit_group(town.options(True), Position({at: 3}, {town.topic: b"x" * 16}))


def test_a_refusal_is_raised(town: Town) -> None:
    topic_id = town.create()
    at = town.whole(topic_id, 0).at._replace(partition=7)
    options = town.options(True, groupId=f"{town.topic}-lag")

    with pytest.raises((UnknownPartitionError, UnknownTopicIdError)):
        commit_group(options, Position({at: 3}, {town.topic: topic_id}))


def test_a_prefix_gives_the_same_name_for_the_same_topics(town: Town) -> None:
    one = group_of(town.options(True, groupIdPrefix="spark"))

    assert one == group_of(town.options(True, groupIdPrefix="spark"))
    assert one is not None
    assert one.startswith("spark-")
    assert group_of(town.options(True, groupId="mine")) == "mine"
    assert group_of(town.options(True)) is None
