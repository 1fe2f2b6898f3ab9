"""`tidelog topic hot` and `tidelog queue hot`."""

import json

import pytest

from tidelog.cli import main
from tidelog.cli.output.keys import key_text
from tidelog.cli.topic.hot_view import hot_keys_as_json, print_hot_keys
from tidelog.client.admin.hot_keys import HotKeys, TopicHotKey
from tidelog.wire.messages.hot_keys import PartitionHotKeys

Printed = pytest.CaptureFixture[str]

FOUND = HotKeys(
    "orders",
    3,
    [
        PartitionHotKeys(0, 2_000_000.0, 12_345.6, 0.0, is_hot=True, is_sampled=True),
        PartitionHotKeys(2, 1_000.0, 10.0, 512.0, keyless_share=0.5),
    ],
    [TopicHotKey(0, b"user-1", 6, 0.2012, 0.0049), TopicHotKey(2, b"\xff\x00", 2, 0.1, 0.02)],
)


def test_hot_partitions_and_keys_are_two_tables(capsys: Printed) -> None:
    print_hot_keys(FOUND)

    assert capsys.readouterr().out == (
        "topic        orders\n"
        "no answer    from the leaders of 1 partition\n"
        "not sampled  1 partition (hot_keys_sampling = off)\n"
        "PARTITION  RECORDS/S  RECEIVED/S  SENT/S  WITHOUT KEY  HOT\n"
        "        0     12,346     1.9 MiB     0 B           0%  hot\n"
        "        2         10      1000 B   512 B            -  -\n"
        "\n"
        "PARTITION  SHARE  OFF BY  KEY\n"
        "        0  20.1%    0.5%  user-1\n"
        "        2  10.0%    2.0%  0xff00\n"
    )


def test_json_has_all_fields() -> None:
    found = json.loads(json.dumps(hot_keys_as_json(FOUND)))

    assert set(found) == set(HotKeys.__struct_fields__)
    assert set(found["keys"][0]) == set(TopicHotKey.__struct_fields__)
    assert [each["key"] for each in found["keys"]] == ["user-1", {"base64": "/wA="}]
    assert found["partitions"][0]["is_hot"]


@pytest.mark.parametrize(
    ("begin", "length", "text"),
    [
        (b"user-1", 6, "user-1"),
        (b"", 0, '""'),
        (b"a\x1b[1m\n", 6, "a\\x1b[1m\\n"),
        (b"\xff\x01", 2, "0xff01"),
        (b"k" * 49, 49, "k" * 47 + "… (49 bytes)"),
        ("é".encode() * 20 + b"\xc3", 300, "é" * 20 + " (300 bytes)"),
    ],
)
def test_a_key_is_text_or_hex(begin: bytes, length: int, text: str) -> None:
    assert key_text(begin, length) == text


@pytest.mark.usefixtures("at_broker")
def test_the_traffic_of_a_topic_is_shown(capsys: Printed) -> None:
    assert main.run(["topic", "create", "warm"]) == 0
    capsys.readouterr()

    assert main.run(["topic", "hot", "warm"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "topic  warm"
    assert lines[2].split() == ["0", "0", "0", "B", "0", "B", "0%", "-"]
    assert main.run(["topic", "hot", "nope"]) == 1
    assert "there is no topic 'nope'" in capsys.readouterr().err


@pytest.mark.usefixtures("at_broker")
def test_the_message_groups_of_a_queue_are_shown(capsys: Printed) -> None:
    assert main.run(["queue", "create", "grouped", "--fifo"]) == 0
    assert main.run(["queue", "hot", "grouped"]) == 0
    assert capsys.readouterr().err == "there are no message groups with messages now\n"
    assert main.run(["queue", "send", "grouped", "one", "two", "--group", "customer-7"]) == 0
    capsys.readouterr()

    assert main.run(["queue", "hot", "grouped"]) == 0
    assert capsys.readouterr().out == (
        "PARTITION  MESSAGES  NOT VISIBLE  GROUP\n        0         2            0  customer-7\n"
    )
    assert main.run(["queue", "hot", "grouped", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"] == [
        {
            "partition": 0,
            "key": "customer-7",
            "key_bytes": 10,
            "message_count": 2,
            "not_visible_count": 0,
        }
    ]
