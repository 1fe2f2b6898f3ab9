"""The output of `tidelog group`."""

import json

import pytest

from tidelog.cli.group.view import (
    duration_text,
    group_as_json,
    listing_as_json,
    moves_as_json,
    print_group,
    print_groups,
    print_moves,
)
from tidelog.client.admin.groups import (
    GroupDescription,
    GroupProgress,
    MemberDescription,
    OffsetMove,
)
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.messages.groups import GroupListing

Printed = pytest.CaptureFixture[str]

AT = TopicPartition("orders", 0)
STATIC = MemberDescription("0a" * 16, "app", "one", "stable", 7, (), "ord.*", (AT,), (), (AT,))
DYNAMIC = MemberDescription("0b" * 16, "app", None, "unreleased", 7, ("orders",), None, (), (), ())
GROUP = GroupDescription(
    "billing", "stable", "uniform", 8, 7, (STATIC, DYNAMIC),
    (
        GroupProgress(AT, "0a" * 16, 4, 0, 1_010, 1_006, 90_000, 5, ""),
        GroupProgress(TopicPartition("orders", 1), None, None, None, None, None, None, None, ""),
    ),
)  # fmt: skip
LISTING = GroupListing("billing", "empty", 0, "")


def test_json_has_every_field() -> None:
    found = json.loads(json.dumps(group_as_json(GROUP)))

    assert set(found) == set(GroupDescription.__dataclass_fields__)
    assert found["members"][0]["assigned"] == [{"topic": "orders", "partition": 0}]
    assert set(found["members"][0]) == set(MemberDescription.__dataclass_fields__)
    assert found["partitions"][1] == {
        "topic": "orders", "partition": 1, "member_id": None, "offset": None,
        "log_start_offset": None, "high_watermark": None, "lag_records": None, "lag_ms": None,
        "commit_time_ms": None, "metadata": "",
    }  # fmt: skip
    assert set(listing_as_json(LISTING)) == set(GroupListing.__struct_fields__)


def test_moves_are_those_of_partitions() -> None:
    assert moves_as_json("billing", {AT: OffsetMove(None, 3)}, dry_run=True) == {
        "group_id": "billing",
        "dry_run": True,
        "partitions": [{"topic": "orders", "partition": 0, "previous_offset": None, "offset": 3}],
    }


def test_a_group_is_printed_with_members_and_partitions(capsys: Printed) -> None:
    print_group(GROUP)

    assert capsys.readouterr().out == (
        "group     billing\n"
        "state     stable\n"
        "assignor  uniform\n"
        "lag       1,006 records\n"
        "\n"
        "MEMBER    CLIENT  STATE       PARTITIONS  READS\n"
        "one       app     stable               1  ord.*\n"
        "0b0b0b0b  app     unreleased           0  orders\n"
        "\n"
        "TOPIC   PARTITION  OFFSET    END    LAG  BEHIND  MEMBER\n"
        "orders          0       4  1,010  1,006  1m 30s  one\n"
        "orders          1       -      -      -  -       -\n"
    )


def test_settings_of_a_group_are_shown_if_it_has_any(capsys: Printed) -> None:
    config = {"alert_lag_ms": "5min", "owner": "none"}
    print_group(GroupDescription("billing", "empty", "", 0, 0, (), (), config, ("alert_lag_ms",)))

    assert capsys.readouterr().out.endswith(
        "\nSETTING       VALUE  SOURCE\nalert_lag_ms  5min   group\nowner         none   default\n"
    )


def test_a_group_without_anything_is_short(capsys: Printed) -> None:
    print_group(GroupDescription("billing", "empty", "", 0, 0, (), ()))

    assert capsys.readouterr().out == (
        "group     billing\nstate     empty\nassignor  -\nlag       -\n"
    )


def test_lists_and_moves_are_tables(capsys: Printed) -> None:
    print_groups([LISTING])
    print_moves({AT: OffsetMove(1_500, 3)})

    assert capsys.readouterr().out == (
        "GROUP    STATE  MEMBERS  ASSIGNOR\n"
        "billing  empty        0  -\n"
        "TOPIC   PARTITION  BEFORE  AFTER  CHANGE\n"
        "orders          0   1,500      3  -1,497\n"
    )


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0.0s"),
        (1_500, "1.5s"),
        (320_000, "5m 20s"),
        (7_500_000, "2h 5m"),
        (273_600_000, "3d 4h"),
    ],
)
def test_durations_have_two_units(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text
