"""What topics take, as people and programs see it."""

import json

import pytest

from tidelog.cli.topic.usage_view import print_usage, print_usages, usage_as_json
from tidelog.wire.messages.topic_usage import PartitionUsage, TopicUsage

Printed = pytest.CaptureFixture[str]

FIRST = PartitionUsage(0, 1, 3 << 20, 4, 100, 1_200, 1_700_000_000_000, 1 << 20, 5_000, 0.25)
SECOND = PartitionUsage(1, 2, 64, 1, 0, 0, None, None, None)
TOPIC = TopicUsage("orders", b"\x0a" * 16, 2, 3, [FIRST, SECOND])


def test_json_has_every_field_and_the_sums() -> None:
    found = json.loads(json.dumps(usage_as_json(TOPIC)))

    assert set(found) > set(TopicUsage.__struct_fields__)
    assert set(found["partitions"][1]) == set(PartitionUsage.__struct_fields__)
    assert (found["size_bytes"], found["segment_count"]) == ((3 << 20) + 64, 5)
    assert found["oldest_ms"] == 1_700_000_000_000
    assert (found["ingest_bytes_per_day"], found["ingest_offsets_per_day"]) == (1 << 20, 5_000)
    assert found["dirty_ratio"] == 0.25


def test_what_nobody_knows_is_null() -> None:
    found = usage_as_json(TopicUsage("orders", b"", 1, 1, [SECOND]))

    names = ("oldest_ms", "ingest_bytes_per_day", "ingest_offsets_per_day", "dirty_ratio")
    assert [found[name] for name in names] == [None] * 4


def test_a_list_adds_up_the_partitions(capsys: Printed) -> None:
    print_usages([TOPIC])

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
    print_usage(TopicUsage("orders", b"", 3, 3, [FIRST, SECOND]))

    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "no answer  from the leaders of 1 partitions"
    assert [line.split()[0] for line in lines[4:]] == ["0", "1", "all"]
