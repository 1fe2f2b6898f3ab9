"""Queues as people and programs see them."""

import json

import pytest
from msgspec.structs import replace

from tidelog.cli.queue.view import print_queue, print_queues, queue_as_json
from tidelog.client.admin.queue_counts import DescribedQueue, MessageCounts
from tidelog.wire.messages.queue_admin import QueuePartitionDescription

Printed = pytest.CaptureFixture[str]

SENT_MS = 1_700_000_000_000
QUEUE = DescribedQueue(
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
    MessageCounts(1200, 30, 4, 5, SENT_MS, 90 * 60_000),
)
UNKNOWN = replace(QUEUE, name="shipping", counts=None)
EMPTY = replace(QUEUE, name="empty", counts=MessageCounts(0, 0, 0, 0, None))


def test_json_has_every_field() -> None:
    found = json.loads(json.dumps(queue_as_json(QUEUE)))

    assert set(found) == set(DescribedQueue.__struct_fields__)
    assert set(found["counts"]) == set(MessageCounts.__struct_fields__)
    assert found["counts"]["oldest_age_ms"] == 90 * 60_000
    assert queue_as_json(UNKNOWN)["counts"] is None
    assert (found["queue_id"], found["topic_id"]) == ("0a" * 16, "0b" * 16)
    assert set(found["partitions"][1]) == set(QueuePartitionDescription.__struct_fields__)
    assert found["partitions"][1]["leader_id"] is None


def test_a_list_says_what_people_look_for(capsys: Printed) -> None:
    print_queues([QUEUE, UNKNOWN, EMPTY], with_counts=True)

    head, *lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert head[4:] == [
        "VISIBLE",
        "IN",
        "FLIGHT",
        "DELAYED",
        "DEAD",
        "OLDEST",
        "DEAD",
        "LETTERS",
        "TO",
    ]
    assert lines == [
        *[
            [
                "billing",
                "orders",
                "FIFO",
                "2",
                "1,200",
                "30",
                "4",
                "5",
                *["1", "h", "30", "min"],
                "dead",
            ]
        ],
        ["shipping", "orders", "FIFO", "2", "-", "-", "-", "-", "-", "dead"],
        ["empty", "orders", "FIFO", "2", "0", "0", "0", "0", "-", "dead"],
    ]


def test_a_list_without_counts_says_nothing_of_them(capsys: Printed) -> None:
    print_queues([UNKNOWN], with_counts=False)

    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["QUEUE", "TOPIC", "KIND", "PARTITIONS", "DEAD", "LETTERS", "TO"],
        ["shipping", "orders", "FIFO", "2", "dead"],
    ]


def test_a_queue_is_shown_with_settings_and_places(capsys: Printed) -> None:
    print_queue(QUEUE)

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["created", "2023-11-14", "22:13:20", "UTC"] in lines
    assert ["dead", "letters", "of", "a,", "b"] in lines
    assert ["visible", "1,200"] in lines
    assert ["oldest", "1", "h", "30", "min"] in lines
    assert ["max_receive_count", "5", "queue"] in lines
    assert ["visibility_timeout_ms", "1min", "default"] in lines
    assert ["0", "1", "7", "1,000", "1,2,3", "1,2"] in lines
    assert ["1", "-", "8", "0", "2,3,1"] in lines
