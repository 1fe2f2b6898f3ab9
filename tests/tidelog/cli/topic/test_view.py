"""Topics as people and programs see them."""

import json

import msgspec
import pytest

from tidelog.cli.topic.view import (
    print_topic,
    print_topics,
    record_count,
    topic_as_json,
)
from tidelog.wire.messages.topics import PartitionDescription, TopicDescription

Printed = pytest.CaptureFixture[str]

FIRST = PartitionDescription(0, 1, 3, 100, 1_200, 1_250, 5_000, "online")
SECOND = PartitionDescription(1, None, 4, 0, 0, 0, 64, "offline")
TOPIC = TopicDescription(
    "orders", b"\x0a" * 16, {"retention_ms": "1d", "segment_ms": "7d"}, ["retention_ms"],
    [FIRST, SECOND],
)  # fmt: skip


def test_json_has_every_field() -> None:
    found = json.loads(json.dumps(topic_as_json(TOPIC)))

    assert found["topic_id"] == "0a" * 16
    assert set(found) == set(TopicDescription.__struct_fields__)
    assert set(found["partitions"][1]) == set(PartitionDescription.__struct_fields__)
    assert found["partitions"][1]["leader_id"] is None


def test_a_list_adds_up_the_partitions(capsys: Printed) -> None:
    print_topics([TOPIC])

    assert capsys.readouterr().out == (
        "TOPIC   PARTITIONS  RECORDS     SIZE  STATUS\n"
        "orders           2    1,100  4.9 KiB  offline, online\n"
    )


def test_a_description_ends_with_the_partitions(capsys: Printed) -> None:
    print_topic(TOPIC)

    assert capsys.readouterr().out.endswith(
        "PARTITION  LEADER  EPOCH  START    END  RECORDS     SIZE  STATUS\n"
        "        0       1      3    100  1,200    1,100  4.9 KiB  online\n"
        "        1       -      4      0      0        0     64 B  offline\n"
    )


def test_replicas_are_shown_where_there_are_several(capsys: Printed) -> None:
    first = msgspec.structs.replace(FIRST, replicas=[1, 2, 3], in_sync_replicas=[1, 3])
    print_topic(msgspec.structs.replace(TOPIC, partitions=[first]))

    assert capsys.readouterr().out.endswith(
        "PARTITION  LEADER  EPOCH  START    END  RECORDS     SIZE  STATUS  REPLICAS  IN SYNC\n"
        "        0       1      3    100  1,200    1,100  4.9 KiB  online  1,2,3     1,3\n"
    )


def test_what_can_be_read_is_counted() -> None:
    assert record_count(FIRST) == 1_100
