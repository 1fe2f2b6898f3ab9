"""Topics and their usage as people and programs see them."""

import json

import msgspec
import pytest

from tests.wire.cluster_samples import EVENT
from tidelog.cli.topic.usage_view import print_usage, print_usages, usage_as_json
from tidelog.cli.topic.view import (
    print_topic,
    print_topics,
    record_count,
    topic_as_json,
)
from tidelog.wire.messages.topic_usage import PartitionUsage, TopicUsage
from tidelog.wire.messages.topics import PartitionDescription, RefusedRecords, TopicDescription

Printed = pytest.CaptureFixture[str]

FIRST = PartitionDescription(0, 1, 3, 100, 1_200, 1_250, 5_000, "online", [1], [1])
SECOND = PartitionDescription(1, None, 4, 0, 0, 0, 64, "offline", [2])
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
        "TOPIC   PARTITIONS  REPLICAS   RECORDS        SIZE  STATUS\n"
        "orders           2         1  >= 1,100  >= 4.9 KiB  offline, online\n"
    )


def test_a_description_ends_with_the_partitions(capsys: Printed) -> None:
    print_topic(TOPIC)

    assert capsys.readouterr().out.endswith(
        "PARTITION  LEADER  EPOCH  START    END  RECORDS     SIZE  STATUS   REPLICAS  IN SYNC\n"
        "        0       1      3    100  1,200    1,100  4.9 KiB  online   1         1\n"
        "        1       -      4      -      -        -        -  offline  2         -\n"
    )


def test_figures_that_no_leader_reported_are_unknown_and_not_zero(capsys: Printed) -> None:
    silent = PartitionDescription(0, 2, 4, 0, 0, 0, 0, "unknown", [2], [2])
    topic = msgspec.structs.replace(TOPIC, partitions=[silent])

    print_topic(topic)
    assert capsys.readouterr().out.endswith(
        "        0       2      4      -    -        -     -  unknown  2         2\n"
    )
    print_topics([topic])
    assert capsys.readouterr().out.endswith(
        "orders           1         1        -     -  unknown\n"
    )
    (found,) = json.loads(json.dumps(topic_as_json(topic)))["partitions"]
    assert [found[name] for name in ("log_start_offset", "high_watermark", "size_bytes")] == [
        None
    ] * 3


def test_a_list_shows_the_least_and_most_replicas_of_partitions_that_differ(
    capsys: Printed,
) -> None:
    more = msgspec.structs.replace(FIRST, replicas=[1, 2, 3])
    print_topics([msgspec.structs.replace(TOPIC, partitions=[more, SECOND])])

    assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["orders", "2", "1-3"]


def test_several_replicas_are_shown_with_the_preferred_leader_first(capsys: Printed) -> None:
    first = msgspec.structs.replace(FIRST, replicas=[1, 2, 3], in_sync_replicas=[1, 3])
    print_topic(msgspec.structs.replace(TOPIC, partitions=[first]))

    assert capsys.readouterr().out.endswith(
        "PARTITION  LEADER  EPOCH  START    END  RECORDS     SIZE  STATUS  REPLICAS  IN SYNC\n"
        "        0       1      3    100  1,200    1,100  4.9 KiB  online  1,2,3     1,3\n"
    )


def test_a_partition_without_a_leader_and_events_are_below_the_partitions(capsys: Printed) -> None:
    leaderless = msgspec.structs.replace(SECOND, leaderless_reason="the log is offline; restart")
    events = [msgspec.structs.replace(EVENT, event_id=number) for number in range(1, 8)]

    print_topic(msgspec.structs.replace(TOPIC, partitions=[FIRST, leaderless], events=events))

    *_, blank, head, reason, gap, title, columns, first, _, _, _, last = (
        capsys.readouterr().out.splitlines()
    )
    assert (blank, gap) == ("", "")
    assert head == "why partitions have no leader:"
    assert reason == "  orders/1: the log is offline; restart"
    assert title == (
        "events that are not acknowledged, the newest 5 of 7; see tidelog cluster events:"
    )
    assert columns.split()[-4:] == ["FIRST", "END", "RECORDS", "DETAIL"]
    assert first.split()[:2] == ["3", "2023-11-14"]
    assert last.split()[4:11] == ["records_lost", "orders", "3", "1", "585", "600", "15"]


def test_readable_offsets_are_counted() -> None:
    assert record_count(FIRST) == 1_100


FIRST_USAGE = PartitionUsage(0, 1, 3 << 20, 4, 100, 1_200, 1_700_000_000_000, 1 << 20, 5_000, 0.25)
SECOND_USAGE = PartitionUsage(1, 2, 64, 1, 0, 0, None, None, None)
USAGE = TopicUsage("orders", b"\x0a" * 16, 2, 3, [FIRST_USAGE, SECOND_USAGE])


def test_json_has_every_field_and_the_sums() -> None:
    found = json.loads(json.dumps(usage_as_json(USAGE)))

    assert set(found) > set(TopicUsage.__struct_fields__)
    assert set(found["partitions"][1]) == set(PartitionUsage.__struct_fields__)
    assert (found["size_bytes"], found["segment_count"]) == ((3 << 20) + 64, 5)
    assert found["oldest_ms"] == 1_700_000_000_000
    assert (found["ingest_bytes_per_day"], found["ingest_offsets_per_day"]) == (1 << 20, 5_000)
    assert found["dirty_ratio"] == 0.25


def test_unknown_usage_is_null() -> None:
    found = usage_as_json(TopicUsage("orders", b"", 1, 1, [SECOND_USAGE]))

    names = ("oldest_ms", "ingest_bytes_per_day", "ingest_offsets_per_day", "dirty_ratio")
    assert [found[name] for name in names] == [None] * 4


def test_a_topic_of_which_no_leader_answered_has_no_usage(capsys: Printed) -> None:
    silent = TopicUsage("orders", b"", 2, 1, [])

    print_usages([silent])
    assert capsys.readouterr().out.splitlines()[-1].split() == ["orders", "2", *"-------"]
    assert (usage_as_json(silent)["size_bytes"], usage_as_json(silent)["segment_count"]) == (
        None,
        None,
    )


def test_the_usage_of_a_topic_is_a_minimum_while_leaders_do_not_answer(capsys: Printed) -> None:
    print_usages([TopicUsage("orders", b"", 3, 3, [FIRST_USAGE])])

    assert capsys.readouterr().out.splitlines()[-1].startswith("orders           3  >= ")


def test_a_list_of_usages_adds_up_the_partitions(capsys: Printed) -> None:
    print_usages([USAGE])

    title, line = capsys.readouterr().out.splitlines()
    assert title.split() == [
        *("TOPIC", "PARTITIONS", "SIZE", "SEGMENTS", "RECORDS", "OLDEST", "BYTES/DAY"),
        *("RECORDS/DAY", "DIRTY"),
    ]
    assert line.split("  ")[0] == "orders"
    assert "3.0 MiB" in line
    assert "2023-11-14 22:13:20 UTC" in line
    assert line.endswith("25%")


def test_a_topic_has_a_line_for_each_partition_and_one_for_all(capsys: Printed) -> None:
    print_usage(TopicUsage("orders", b"", 3, 3, [FIRST_USAGE, SECOND_USAGE]))

    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "no answer  from the leaders of 1 partitions"
    assert [line.split()[0] for line in lines[4:]] == ["0", "1", "all"]


def test_records_that_a_replica_refuses_to_truncate_are_shown_with_the_command(
    capsys: Printed,
) -> None:
    first = msgspec.structs.replace(FIRST, refused_records=[RefusedRecords(3, 555, 600)])
    print_topic(msgspec.structs.replace(TOPIC, partitions=[first]))

    assert capsys.readouterr().out.endswith(
        "\n\npartition 0: broker 3 refuses to truncate 45 committed records (offsets 555 to 599)"
        " that leader 1 lacks; to accept the loss: tidelog cluster elect-leaders --topic orders"
        " --partition 0 --accept-data-loss\n"
    )
