"""Queues as people and programs see them."""

import json

import pytest

from tidelog.cli.queue_view import print_queue, print_queues, queue_as_json
from wire.queue_admin import QueueDescription, QueuePartitionDescription

Printed = pytest.CaptureFixture[str]

QUEUE = QueueDescription(
    "billing",
    b"\x0a" * 16,
    "orders",
    b"\x0b" * 16,
    True,
    1_700_000_000_000,
    {
        "dead_letter_queue": "dead",
        "max_receive_count": "5",
        "visibility_timeout_ms": "1min",
    },
    ["max_receive_count"],
    ["a", "b"],
    [
        QueuePartitionDescription(0, 1, 7, 1000, [1, 2, 3], [1, 2]),
        QueuePartitionDescription(1, None, 8, 0, [2, 3, 1], []),
    ],
)


def test_json_has_every_field() -> None:
    found = json.loads(json.dumps(queue_as_json(QUEUE)))

    assert set(found) == set(QueueDescription.__struct_fields__)
    assert (found["queue_id"], found["topic_id"]) == ("0a" * 16, "0b" * 16)
    assert set(found["partitions"][1]) == set(QueuePartitionDescription.__struct_fields__)
    assert found["partitions"][1]["leader_id"] is None


def test_a_list_says_what_people_look_for(capsys: Printed) -> None:
    print_queues([QUEUE])

    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["QUEUE", "TOPIC", "KIND", "PARTITIONS", "VISIBILITY", "RECEIVES", "DEAD", "LETTERS"],
        ["billing", "orders", "FIFO", "2", "1min", "5", "dead"],
    ]


def test_a_queue_is_shown_with_settings_and_places(capsys: Printed) -> None:
    print_queue(QUEUE)

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["created", "2023-11-14", "22:13:20", "UTC"] in lines
    assert ["dead", "letters", "of", "a,", "b"] in lines
    assert ["max_receive_count", "5", "queue"] in lines
    assert ["visibility_timeout_ms", "1min", "default"] in lines
    assert ["0", "1", "7", "1,000", "1,2,3", "1,2"] in lines
    assert ["1", "-", "8", "0", "2,3,1"] in lines
